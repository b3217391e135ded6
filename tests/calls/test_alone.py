"""A call without a journal, supervised like any other. All in virtual time."""

import anyio
import pytest

from holdfast.calls.alone import Retracted, call
from holdfast.calls.line import Line
from holdfast.core.messages import Request, Said, Text, UserMessage
from holdfast.core.retry import RetryRules
from holdfast.core.watchdog import Patience
from holdfast.errors import BadReply, ModelRefused, ModelUnavailable, StreamStalled
from holdfast.testing.scripted import ScriptedModel, Silence, Think

GONE = ModelUnavailable("gone")


async def test_the_reply_is_returned_whole():
    reply = await call(ScriptedModel(["Hel", Think("hm"), "lo"]), "hi")
    assert (reply.text, reply.done.stop, reply.failures) == ("Hello", "stop", ())


async def test_a_stall_costs_its_cutoff_and_the_next_attempt_is_made_at_once():
    model = ScriptedModel([Silence()], ["a"])
    reply = await call(model, "hi", patience=Patience(first=2))
    assert (reply.text, anyio.current_time()) == ("a", 2)
    assert [failure.reason for failure in reply.failures] == ["ttfb_kill"]


async def test_words_of_an_attempt_that_was_given_up_are_retracted():
    heard = []

    async def hear(chunk):
        heard.append(chunk)

    reply = await call(ScriptedModel(["a", GONE], ["b"]), "hi", hear=hear)
    assert reply.text == "b"
    assert heard == [Said("a"), Retracted(reply.failures[0]), Said("b")]


async def test_after_its_attempts_the_next_model_is_asked():
    main, backup = ScriptedModel(*[[GONE]] * 2), ScriptedModel(["a"])
    rules = RetryRules(models=("main", "backup"), attempts=2)
    reply = await call({"main": Line(main), "backup": Line(backup)}, "hi", rules=rules)
    assert (reply.text, main.calls, backup.requests[0].model) == ("a", 2, "backup")


async def test_the_last_failure_is_raised():
    model = ScriptedModel(*[[Silence()]] * 4)
    with pytest.raises(StreamStalled, match="TTFB"):
        await call(model, "hi", patience=Patience(first=1))
    assert (model.calls, model.open) == (4, 0)


async def test_what_cannot_be_helped_is_raised_at_once():
    model = ScriptedModel([ModelRefused("no", status=401)])
    with pytest.raises(ModelRefused):
        await call(model, "hi")
    assert model.calls == 1


async def test_a_reply_cut_inside_a_call_is_asked_for_again_with_more_room():
    model = ScriptedModel([BadReply("cut", reason="length")], ["a"])
    request = Request("", "", (UserMessage(parts=(Text("hi"),)),))
    reply = await call(model, request)
    assert (reply.text, [asked.stretch for asked in model.requests]) == ("a", [1, 2])


async def test_a_cancel_is_never_retried():
    model = ScriptedModel([Silence()], ["never"])
    with anyio.move_on_after(1) as scope:
        await call(model, "hi")
    assert scope.cancelled_caught and (model.calls, model.open) == (1, 0)


async def test_a_cancel_leaves_nothing_for_the_next_call():
    model = ScriptedModel([Silence()], [GONE], ["a"])
    with anyio.move_on_after(1):
        await call(model, "hi")
    reply = await call(model, "hi")
    assert reply.text == "a" and [one.reason for one in reply.failures] == ["reset"]


async def test_an_emoji_cut_in_two_arrives_whole():
    assert (await call(ScriptedModel(["\ud83d", "\ude00"]), "hi")).text == "\U0001f600"


@pytest.mark.parametrize("script", [["a\ud83d"], ["\ud83d", "b"]], ids=["at the end", "inside"])
async def test_half_a_character_is_no_reply(script):
    rules = RetryRules(models=("model",), attempts=1)
    with pytest.raises(BadReply, match="half a character"):
        await call(ScriptedModel(script), "hi", rules=rules)


async def test_the_limit_for_reaching_the_endpoint_is_handed_on():
    model = ScriptedModel(["a"])
    await call(model, "hi", patience=Patience(connect=3.0))
    assert model.requests[0].connect == 3.0
