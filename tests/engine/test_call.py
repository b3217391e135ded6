import pytest

from holdfast.core.events import ModelFailed, ModelHeard, ModelReplied, TextStreamed
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Asked, Done, Reasoning
from holdfast.engine.call import MOST_CALLS, MOST_TEXT
from holdfast.testing.scripted import Ack, Call, CutOff, ScriptedModel, ScriptedTool, Silence, Think
from holdfast.testing.stage import stage


async def outcome(*scripts, **accepted):
    """What became of a run on this script: its state and its events."""
    async with stage(ScriptedModel(*scripts), ScriptedTool()) as play:
        run_id = await play.start(**accepted)
        return await play.ended(run_id), await play.journal(run_id)


def only(events, kind):
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


async def test_the_text_of_a_reply_is_exactly_what_was_streamed():
    state, events = await outcome(["Hel", "", "lo", Think("hm"), "!"])
    streamed = "".join(event.text for event in events if isinstance(event, TextStreamed))
    assert streamed == only(events, ModelReplied).text == state.output == "Hello!"


async def test_an_acknowledgement_is_on_record_so_that_readers_know_what_is_awaited():
    _, events = await outcome([Ack(), Silence(10), "a"])
    assert only(events, ModelHeard) == ModelHeard(turn=1, attempt=1)


async def test_an_emoji_cut_in_two_arrives_whole():
    state, events = await outcome(["a\ud83d", "\ude00b", Think("\ud83d"), "c", Think("\ude00")])
    assert state.output == "a\U0001f600bc"


@pytest.mark.parametrize("text", ["\u2028\u2029\u0085", "nul \x00 in it", "\U0001f600" * 3])
async def test_odd_text_is_kept_exactly(text):
    state, _ = await outcome([text])
    assert state.output == text


@pytest.mark.parametrize(
    "script",
    [["a\ude00b"], ["\ud83db"], ["ab\ud83d"], [Think("\ud83d"), "a"]],
    ids=["second half", "first half", "at the end", "in a thought"],
)
async def test_half_a_character_fails_the_attempt_and_nothing_of_it_is_stored(script):
    state, events = await outcome(script)
    assert only(events, ModelFailed).reason == "bad_reply"
    assert "character" in state.ended.message


async def test_half_a_character_in_what_is_not_streamed_fails_the_attempt_too():
    thought = Done(reasoning=(Reasoning(text="\ud83d"),))
    _, events = await outcome([thought])
    assert "cannot be kept" in only(events, ModelFailed).message


async def test_a_reply_that_asks_for_too_many_calls_is_no_reply():
    _, events = await outcome([Done(calls=(Asked("pay", "{}"),) * (MOST_CALLS + 1))])
    assert only(events, ModelFailed).reason == "bad_reply"


@pytest.mark.parametrize(
    "script",
    [["x" * (MOST_TEXT // 4)] * 5, [Done(calls=(Asked("pay", "x" * (MOST_TEXT // 4)),) * 5)]],
    ids=["in words", "in arguments"],
)
async def test_a_reply_without_measure_is_given_up_on(script):
    _, events = await outcome(script)
    assert only(events, ModelFailed).reason == "too_large"


async def test_a_reply_that_was_cut_off_is_retracted_and_asked_for_again():
    state, events = await outcome(["half", CutOff()], ["whole"])
    assert only(events, ModelFailed).reason == "truncated"
    assert state.output == "whole"


async def test_a_call_of_a_reply_that_was_cut_off_never_runs():
    model, pay = ScriptedModel([Call("pay"), CutOff()], ["No."]), ScriptedTool()
    async with stage(model, pay) as play:
        await play.ended(await play.start())
    assert pay.effects == []


async def test_a_stop_that_is_on_record_first_means_no_call_is_made():
    from holdfast.core.events import StopRequested
    from holdfast.core.plan import CallModel
    from holdfast.engine.call import call_model
    from holdfast.engine.means import Means
    from holdfast.engine.scribe import Scribe
    from holdfast.stores.memory import MemoryStore
    from holdfast.testing.contracts import STARTED, held

    model, store = ScriptedModel(["never"]), MemoryStore()
    scribe = await Scribe.open(store, await held(store))
    await scribe.record(STARTED)
    await store.wish("run_1", StopRequested())
    means = Means(store, {"model": model})
    await call_model(scribe, means, CallModel(turn=1, attempt=1, model="model"))
    assert (model.calls, scribe.state.status) == (0, Status.STOPPING)
    assert scribe.state.attempt.late


async def test_usage_and_time_of_a_call_are_on_record():
    _, events = await outcome(["a", Silence(3), "b"])
    replied = only(events, ModelReplied)
    assert (replied.usage.input, replied.seconds) == (10, 3)
