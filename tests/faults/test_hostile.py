"""Models and tools that do what nobody expects of them. The run, and its neighbours, go on."""

import asyncio
import time

import anyio
import pytest

from holdfast.core.codec import recall
from holdfast.core.events import (
    ApprovalRequested,
    ModelChoice,
    ModelFailed,
    ModelReplied,
    ToolProgressed,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Asked, Calling, Done, Reasoning, Said, plain
from holdfast.core.usage import Usage
from holdfast.core.watchdog import Patience
from holdfast.engine.use import PROGRESS_LIMIT
from holdfast.errors import InvalidRequest, ModelRefused, ModelUnavailable
from holdfast.ports import Review
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.stage import stage


async def used(work=None, **tool):
    """A run that uses such a tool once: its state and its events."""
    pay = ScriptedTool(work=work, **tool)
    async with stage(ScriptedModel.by_turn([Call("pay")], ["Done."]), pay) as play:
        run_id = await play.start()
        with anyio.fail_after(100_000):
            return await play.ended(run_id), await play.journal(run_id)


def smooth(events):
    """Nobody stumbled over the run."""
    return not any(type(event).__name__ == "RunQueued" for event in events)


async def test_a_cancellation_out_of_nowhere_in_a_model_harms_no_neighbour():
    class Careless:
        async def stream(self, request):
            if "bad" in plain(request.messages[0].parts):
                await anyio.sleep(1)
                raise asyncio.CancelledError
            yield Said("a")
            await anyio.sleep(20)
            yield Said("b")
            yield Done()

    async with stage(Careless()) as play:
        good, bad = await play.start("good"), await play.start("bad")
        with anyio.fail_after(1000):
            assert (await play.ended(good)).output == "ab"
            assert "behind its back" in (await play.ended(bad)).ended.message


async def test_a_cancellation_out_of_nowhere_in_a_tool_is_told_to_the_model():
    async def work(use):
        task = asyncio.ensure_future(asyncio.sleep(100))  # noqa: TID251 - as a careless tool would
        asyncio.get_running_loop().call_later(1, task.cancel)
        await task

    state, _ = await used(work)
    assert (state.status, state.output) == (Status.COMPLETED, "Done.")


async def test_a_model_that_will_not_hang_up_is_left_behind_and_its_reply_stands():
    class Clinging:
        async def stream(self, request):
            try:
                yield Said("hi")
                yield Done()
            finally:
                await anyio.sleep_forever()

    async with stage(Clinging()) as play:
        run_id = await play.start()
        with anyio.fail_after(100):
            assert (await play.ended(run_id)).output == "hi"


@pytest.mark.real_time
async def test_a_model_that_never_waits_does_not_keep_everyone_else_waiting():
    class Babbling:
        async def stream(self, request):
            end = time.monotonic() + 1
            while time.monotonic() < end:
                yield Calling("x")
            yield Done()

    async with stage(Babbling()) as play:
        await play.start(models=(ModelChoice("model", patience=Patience(whole=0.3)),))
        worst, last = 0.0, anyio.current_time()
        for _ in range(30):
            await anyio.sleep(0.02)
            worst, last = max(worst, anyio.current_time() - last), anyio.current_time()
        assert worst < 0.8


async def test_a_senseless_retry_after_is_passed_over():
    busy = [
        ModelUnavailable("busy", reason="overloaded", retry_after=seconds)
        for seconds in (float("nan"), float("inf"), -1.0)
    ]
    async with stage(ScriptedModel(*[[error] for error in busy], ["fine"])) as play:
        run_id = await play.start()
        assert (await play.ended(run_id)).output == "fine"
        assert smooth(await play.journal(run_id))


@pytest.mark.parametrize(
    ("done", "gate"),
    [
        (Done(stop="tool_calls"), "auto"),
        (Done(usage=Usage(input=1.5)), "auto"),
        (Done(calls=(Asked("pay", "{}", None),)), "auto"),
        (Done(calls=(Asked("pay", "{}"),)), "perhaps"),
    ],
)
async def test_what_could_not_be_read_back_is_not_written(done, gate):
    tool = ScriptedTool(review=Review(gate=gate))
    async with stage(ScriptedModel([done], ["x"]), tool) as play:
        run_id = await play.start()
        await play.until(run_id, ModelReplied, ModelFailed)
        for recorded in await play.means.store.read(run_id):
            assert recall(recorded.seq, recorded.at, recorded.body) == recorded


@pytest.mark.parametrize(
    "done",
    [
        Done(reasoning=(Reasoning(text="x" * 17_000_000),)),
        Done(calls=(Asked("n" * 17_000_000, "{}"),)),
        Done(calls=(Asked("pay", "{}", "i" * 17_000_000),)),
    ],
    ids=["reasoning", "name", "id"],
)
async def test_nothing_in_a_reply_is_without_measure(done):
    async with stage(ScriptedModel([done]), ScriptedTool()) as play:
        run_id = await play.start()
        assert (await play.until(run_id, ModelFailed)).event.reason == "too_large"


async def test_the_words_of_an_error_have_a_measure():
    async with stage(ScriptedModel([ModelRefused("x" * 20_000_000)])) as play:
        run_id = await play.start()
        await play.ended(run_id)
        assert sum(len(r.body) for r in await play.means.store.read(run_id)) < 2**16


async def test_a_tool_that_does_not_say_whether_it_may_run_does_not():
    state, events = await used(review=lambda arguments: None)
    assert state.status is Status.COMPLETED and smooth(events)


async def test_progress_that_is_no_text_is_shown_as_text():
    async def work(use):
        await use.progress(b"half")
        return "ok"

    state, events = await used(work)
    assert [e.text for e in events if isinstance(e, ToolProgressed)] == ["b'half'"]


async def test_an_error_that_cannot_even_say_what_it_is_is_told_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    async def work(use):
        raise Mute

    state, events = await used(work)
    assert smooth(events) and "cannot say what it is" in events[-5].output


async def test_progress_has_a_measure_and_says_when_it_is_full():
    async def work(use):
        for _ in range(50):
            await use.progress("x" * 100_000)
        return "ok"

    _, events = await used(work)
    kept = "".join(e.text for e in events if isinstance(e, ToolProgressed))
    assert len(kept) < PROGRESS_LIMIT + 100
    assert kept.endswith("further progress is not kept]\n")


async def test_a_tool_that_goes_on_reporting_after_its_end_is_not_heard():
    kept = []

    async def work(use):
        kept.append(use)
        return "ok"

    async with stage(ScriptedModel.by_turn([Call("pay")], ["b"]), ScriptedTool(work=work)) as play:
        run_id = await play.start()
        await play.ended(run_id)
        with anyio.fail_after(1000):
            for _ in range(5):
                await kept[0].progress("x" * 200_000)
        assert "tool.progress" not in await play.tags(run_id)


async def test_only_a_yes_is_a_yes():
    pay = ScriptedTool(review=Review(gate="ask"))
    async with stage(ScriptedModel([Call("pay")]), pay) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        with pytest.raises(InvalidRequest, match="'yes' is no answer"):
            await play.runs.answer(run_id, "yes")
        assert len((await play.runs.state(run_id)).pending) == 1
