"""One call on a line: what its endpoint is remembered for. All in virtual time."""

import anyio
import pytest

from holdfast.calls.line import Endpoint, Line, attempt
from holdfast.core.breaker import FAILURES, REST
from holdfast.core.messages import Request, Said, Text, UserMessage
from holdfast.core.retry import BREAKER_OPEN
from holdfast.core.watchdog import Patience
from holdfast.errors import BadReply, ModelError, ModelRefused, ModelUnavailable, StreamStalled
from holdfast.testing.scripted import CutOff, ScriptedModel, Silence

REQUEST = Request("main", "", (UserMessage(parts=(Text("hi"),)),))


async def ignore(_):
    pass


async def fail(line, kind=ModelError, patience=Patience(first=1, between=1)):  # noqa: B008
    with pytest.raises(kind) as failed:
        await attempt(line, REQUEST, patience, ignore)
    return failed.value


@pytest.mark.parametrize(
    "script",
    [
        [Silence()],
        ["a", Silence()],
        ["a", CutOff()],
        [ModelUnavailable("reset")],
        [ModelUnavailable("busy", reason="overloaded", status=429)],
        [BadReply("what?")],
        [ModelRefused("who are you?", status=401)],
    ],
    ids=["no start", "no end", "cut off", "reset", "overloaded", "bad reply", "bad key"],
)
async def test_every_kind_of_failure_counts_towards_leaving_it_alone(script):
    line = Line(ScriptedModel(*[script] * FAILURES, ["never"]))
    for _ in range(FAILURES):
        assert (await fail(line)).reason != BREAKER_OPEN
    left_alone = await fail(line, ModelUnavailable)
    assert (left_alone.reason, left_alone.retry_after) == (BREAKER_OPEN, REST)
    assert "main failed 5 times in a row and is left alone for 30 s more" in str(left_alone)
    assert line.model.calls == FAILURES


async def test_what_is_wrong_with_the_request_says_nothing_against_the_endpoint():
    refusal = [ModelRefused("no such option", status=400)]
    line = Line(ScriptedModel(*[refusal] * 20, ["a"]))
    for _ in range(20):
        await fail(line, ModelRefused)
    await attempt(line, REQUEST, Patience(), ignore)


async def test_after_a_rest_one_call_tries_and_its_success_is_everyones():
    gone = [ModelUnavailable("gone")]
    line = Line(ScriptedModel(*[gone] * FAILURES, [Silence(3), "back"], ["well"]))
    for _ in range(FAILURES):
        await fail(line)
    await anyio.sleep(REST)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attempt, line, REQUEST, Patience(), ignore)
        await anyio.sleep(1)
        assert (await fail(line)).reason == BREAKER_OPEN
    await attempt(line, REQUEST, Patience(), ignore)


async def test_a_try_that_is_heard_lets_everyone_in_before_it_is_over():
    gone = [ModelUnavailable("gone")]
    line = Line(ScriptedModel(*[gone] * FAILURES, ["back", Silence(100)], ["well"]))
    for _ in range(FAILURES):
        await fail(line)
    await anyio.sleep(REST)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attempt, line, REQUEST, Patience(), ignore)
        await anyio.sleep(1)
        await attempt(line, REQUEST, Patience(), ignore)
        assert anyio.current_time() == REST + 1


async def test_a_model_that_is_not_there_says_nothing_against_its_neighbours():
    missing = [ModelRefused("no such model", status=404)]
    line = Line(ScriptedModel(*[missing] * 10, ["a"]))
    for _ in range(10):
        await fail(line, ModelRefused)
    await attempt(line, REQUEST, Patience(), ignore)


async def test_a_try_that_was_stopped_leaves_the_try_to_another():
    gone = [ModelUnavailable("gone")]
    line = Line(ScriptedModel(*[gone] * FAILURES, [Silence()], ["back"]))
    for _ in range(FAILURES):
        await fail(line)
    await anyio.sleep(REST)
    with anyio.move_on_after(1):
        await attempt(line, REQUEST, Patience(), ignore)
    await attempt(line, REQUEST, Patience(), ignore)


async def test_the_wire_that_has_its_own_word_for_a_silent_start_uses_it():
    codex = Line(ScriptedModel([Silence()]), wire="openai-responses")
    stalled = await fail(codex, StreamStalled)
    assert stalled.reason == "codex_ttfb_kill" and "TTFB" in str(stalled)


async def test_so_many_may_call_at_once_and_no_more():
    endpoint, said = Endpoint(concurrency=2), []

    async def busy():
        said.append(anyio.current_time())

    async def call(seconds):
        async with endpoint.place(busy):
            await anyio.sleep(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (5, 5, 5):
            tasks.start_soon(call, seconds)
    assert (anyio.current_time(), said) == (10, [0])


async def test_a_place_is_free_again_however_the_call_ended():
    endpoint = Endpoint(concurrency=1)
    with pytest.raises(RuntimeError):
        async with endpoint.place(ignore):
            raise RuntimeError
    with anyio.move_on_after(1):
        async with endpoint.place(ignore):
            await anyio.sleep_forever()
    async with endpoint.place(ignore):
        pass


async def test_words_are_passed_on():
    heard = []

    async def hear(chunk):
        heard.append(chunk)

    await attempt(Line(ScriptedModel(["a", "b"])), REQUEST, Patience(), hear)
    assert heard == [Said("a"), Said("b")]
