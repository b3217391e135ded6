import logging

import anyio
import pytest

from holdfast.core.events import (
    ApprovalRequested,
    InputAdded,
    ModelCalled,
    ModelFailed,
    Receipt,
    RunCancelled,
    RunQueued,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text
from holdfast.errors import RunFinished, StoreFull
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, STARTED
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

ASK = Review(gate="ask")


async def for_ever(use):
    await anyio.sleep_forever()


async def stopped(play, run_id):
    """Stop the run and return where it ended and how long that took."""
    began = anyio.current_time()
    await play.runs.stop(run_id, by="ada", reason="enough")
    state = await play.ended(run_id)
    return state, anyio.current_time() - began


async def test_a_stop_before_the_first_byte_hangs_up_at_once():
    model = ScriptedModel([Silence()])
    async with stage(model) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        state, took = await stopped(play, run_id)
    assert (state.status, took) == (Status.CANCELLED, 0)
    assert (model.calls, model.open) == (1, 0)
    assert state.ended.receipt == Receipt(model_calls=1, may_bill=True)
    assert (state.stop.by, state.stop.reason) == ("ada", "enough")


async def test_a_stop_in_mid_stream_keeps_what_was_said_and_is_no_network_error():
    model = ScriptedModel(["Once upon", Silence()])
    async with stage(model) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        state, took = await stopped(play, run_id)
        failed = [e for e in await play.journal(run_id) if isinstance(e, ModelFailed)]
    assert "".join(state.attempt.text) == "Once upon"
    assert [failure.reason for failure in failed] == ["interrupt_abort"]
    assert (model.calls, model.open, took) == (1, 0, 0)


async def test_words_that_were_not_written_yet_are_written_before_the_end():
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    async with stage(ScriptedModel(["Once", " upon", Silence()]), store=line) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        line.delay = 2.0
        await anyio.sleep(1)
        state, _ = await stopped(play, run_id)
    assert "".join(state.attempt.text) == "Once upon"


async def test_a_stop_in_a_tool_cuts_it_off_and_its_result_is_on_record():
    pay = ScriptedTool(work=for_ever)
    async with stage(ScriptedModel([Call("pay")]), pay) as play:
        run_id = await play.start()
        started = await play.until(run_id, ToolStarted)
        state, took = await stopped(play, run_id)
        result = [e for e in await play.journal(run_id) if isinstance(e, ToolFinished)]
    assert [(e.call_id, e.outcome) for e in result] == [(started.event.call_id, "cancelled")]
    assert state.ended.receipt.tool_calls == (started.event.call_id,)
    assert (took, len(pay.effects)) == (0, 1)


async def test_a_stop_while_an_approval_is_pending_ends_the_run_though_nobody_holds_it():
    pay = ScriptedTool(review=ASK)
    async with stage(ScriptedModel([Call("pay")]), pay) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(100)
        state, took = await stopped(play, run_id)
    assert (state.status, took, pay.effects) == (Status.CANCELLED, 0, [])
    assert state.tools[0].result.outcome == "not_started"


async def test_a_queued_run_is_ended_by_whoever_stops_it():
    async with stage(ScriptedModel(), capacity=0) as play:
        run_id = await play.start()
        state, took = await stopped(play, run_id)
        assert await play.tags(run_id) == ["run.accepted", "stop.requested", "run.cancelled"]
    assert (state.status, took) == (Status.CANCELLED, 0)


async def test_a_stop_while_the_store_is_slow_takes_effect_when_the_store_does():
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    model = ScriptedModel(["a", Silence()])
    async with stage(model, store=line) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        line.delay = 1.5
        await stopped(play, run_id)
        line.delay = 0.0
        *_, stop, _, end = await play.means.store.read(run_id)
    assert isinstance(stop.event, StopRequested) and isinstance(end.event, RunCancelled)
    # Hear of it, read it, write the end: a few turns at a store that takes its time.
    assert end.at - stop.at <= 4 * 1.5 and model.open == 0


async def test_a_stop_may_be_repeated_while_the_run_lives_and_not_after():
    async with stage(ScriptedModel([Silence()])) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(play.runs.stop, run_id)
        await play.ended(run_id)
        assert (await play.tags(run_id)).count("stop.requested") == 1
        with pytest.raises(RunFinished):
            await play.runs.stop(run_id)


class Hasty(MemoryStore):
    """Somebody stops a run in the very moment in which its worker lets go of it."""

    async def release(self, lease, **how):
        await super().release(lease, **how)
        if not any(isinstance(one.event, StopRequested) for one in await self.read(lease.run_id)):
            await self.wish(lease.run_id, StopRequested(by="ada"))
            # All who hear of it do what they will before this is answered.
            await anyio.sleep(0.01)


async def test_a_stop_while_a_run_is_let_go_of_is_for_whoever_has_it_then(caplog):
    pay = ScriptedTool(review=ASK)
    async with stage(ScriptedModel([Call("pay")]), pay, store=Hasty()) as play:
        run_id = await play.start()
        assert (await play.ended(run_id)).status is Status.CANCELLED
        assert (await play.tags(run_id)).count("run.cancelled") == 1
    assert "rescued" not in caplog.text


async def test_a_second_stop_of_a_waiting_run_is_no_error():
    pay = ScriptedTool(review=ASK)
    async with stage(ScriptedModel([Call("pay")]), pay, capacity=1) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play.runs.stop, run_id)
            tasks.start_soon(play.runs.stop, run_id)
        assert (await play.ended(run_id)).status is Status.CANCELLED
        assert (await play.tags(run_id)).count("run.cancelled") == 1


async def test_a_failing_run_does_not_harm_its_neighbours(caplog):
    class Broken:
        async def stream(self, request):
            raise KeyError("a bug in an adapter")
            yield

    good = ScriptedModel(["a", Silence(30), "b"])
    async with stage({"bad": Broken(), "good": good}) as play:
        from holdfast.core.events import ModelChoice

        with caplog.at_level(logging.CRITICAL):
            bad = await play.start(models=(ModelChoice("bad"),))
            fine = await play.start(models=(ModelChoice("good"),))
            assert (await play.ended(fine)).output == "ab"
            state = await play.ended(bad)
    assert (state.status, state.ended.code) == (Status.FAILED, "rescues")


async def test_a_run_that_stumbles_is_tried_again_later_and_may_yet_succeed(caplog):
    class Stumbling(ScriptedModel):
        async def stream(self, request):
            if not self.calls:
                self.calls += 1
                raise KeyError("once")
            async for chunk in super().stream(request):
                yield chunk

    async with stage(Stumbling(["fine"])) as play:
        run_id = await play.start()
        state = await play.ended(run_id)
        queued = [e for e in await play.journal(run_id) if isinstance(e, RunQueued)]
    assert state.output == "fine"
    assert [(e.why, e.detail) for e in queued] == [("tripped", "KeyError: 'once'")]
    assert "stumbled" in caplog.text


async def test_a_run_that_not_even_fits_into_the_queue_is_left_to_be_rescued(caplog):
    class Brimful(FaultyStore):
        async def release(self, lease, **options):
            if self.full:
                raise StoreFull("not a byte")
            await super().release(lease, **options)

    line = Brimful(MemoryStore(now=anyio.current_time))
    async with stage(ScriptedModel(["a", Silence(5), "b"], ["again"]), store=line) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        line.full = True
        await anyio.sleep(60)
        line.full = False
        state = await play.ended(run_id)
        assert "run.queued" in await play.tags(run_id)
    assert state.output == "again"
    assert "is left to be rescued: not a byte" in caplog.text


async def test_a_wish_that_comes_as_the_run_goes_to_rest_is_not_slept_over():
    """The answer lands between the question and the letting go."""
    store = MemoryStore(now=anyio.current_time)
    line, pay = FaultyStore(store), ScriptedTool(review=ASK)
    async with stage(ScriptedModel([Call("pay")], ["Paid."]), pay, store=line) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        line.delay = 2.0
        from dataclasses import replace

        from holdfast.engine.runs import Runs

        await Runs(replace(play.means, store=store)).answer(run_id, "once")
        assert (await play.ended(run_id)).output == "Paid."
    assert len(pay.effects) == 1


async def test_losing_a_lease_drops_the_run_unwritten():
    store = MemoryStore(now=anyio.current_time)
    line, model = FaultyStore(store), ScriptedModel(["a", Silence()])
    async with stage(model, store=line, ttl=10.0) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        line.cut = True
        await anyio.sleep(9)
        assert model.open == 0
        line.cut = False
        before = await store.read(run_id)
        await anyio.sleep(0.5)
        assert await store.read(run_id) == before


async def test_a_wish_that_is_heard_just_as_the_run_lies_down_keeps_it_awake():
    """It is in the state by then, but not in the decision to rest."""
    model = ScriptedModel([Call("pay")], ["ok"])
    async with stage(model, ScriptedTool(review=Review("ask"))) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await play.runs.add(run_id, (Text("and one more thing"),))
        await play.runs.answer(run_id, "once")
        assert (await play.ended(run_id)).output == "ok"
        assert anyio.current_time() < 60


async def test_a_wish_that_comes_while_a_run_is_being_let_go_of_harms_nobody():
    store = MemoryStore(now=anyio.current_time)
    line = FaultyStore(store)
    async with stage(ScriptedModel(["a", Silence()]), store=line) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        line.delay = 2.0
        play.worker.leave(drain=0)
        await anyio.sleep(1)
        await store.wish(run_id, InputAdded(parts=(Text("and one more thing"),)))
        await anyio.sleep(10)
        line.delay = 0.0
        assert (await play.runs.state(run_id)).status is Status.QUEUED


async def test_a_crowd_lets_its_words_gather_and_few_do_not():
    async def pieces(runs):
        script = ["word ", Silence(0.001)] * 100
        model = ScriptedModel(*[script] * runs)
        async with stage(model) as play:
            ids = [await play.start() for _ in range(runs)]
            states = [await play.ended(run_id) for run_id in ids]
            assert all(state.output == "word " * 100 for state in states)
            journal = await play.journal(ids[0])
        return sum(isinstance(event, TextStreamed) for event in journal)

    assert await pieces(1) == 100
    assert await pieces(60) < 20


async def test_a_run_without_space_goes_on_soon_after_there_is_some():
    model = ScriptedModel(["Once ", Silence(1), "upon"], ["Once upon"])
    store = FaultyStore(MemoryStore())
    async with stage(model, store=store, ttl=60.0) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        store.full = True
        await anyio.sleep(5)
        store.full = False
        assert (await play.ended(run_id)).output == "Once upon"
        # Long before its lease would have run out.
        assert anyio.current_time() < 15


async def test_a_run_that_makes_no_sense_on_a_full_disk_ends_no_worker():
    class Full(MemoryStore):
        async def release(self, lease, *, aside=False, **how):
            if aside:
                raise StoreFull("no space")
            await super().release(lease, **how)

    store = Full()
    await store.accept("odd", ACCEPTED)
    (lease,) = await store.claim("a", ttl=60.0)
    await store.append(
        lease, STARTED, ToolFinished(call_id="none", outcome="ok", output=""), seen=1
    )
    await store.release(lease, seen=3, ready_in=0.0)
    async with stage(ScriptedModel(["yes"]), store=store) as play:
        await anyio.sleep(1)
        assert (await play.ended(await play.start())).output == "yes"
