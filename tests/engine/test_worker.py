import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from holdfast.core.events import (
    ApprovalRequested,
    ModelCalled,
    ModelChoice,
    RunAccepted,
    RunQueued,
    TextStreamed,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text
from holdfast.engine.rescue import rescue
from holdfast.engine.worker import POLL
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Crash, FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

ACCEPTED = RunAccepted(input=(Text("hi"),), models=(ModelChoice("model"),))


async def test_no_more_runs_are_carried_than_there_is_room_for():
    model = ScriptedModel(*[["a", Silence(10)]] * 5)
    busy = []
    async with stage(model, capacity=2) as play:
        runs = [await play.start() for _ in range(5)]
        for _ in range(25):
            await anyio.sleep(1)
            busy.append(model.open)
        for run_id in runs:
            assert (await play.ended(run_id)).status is Status.COMPLETED
    assert max(busy) == 2


async def test_a_worker_for_certain_runs_leaves_the_others_as_they_are():
    async with stage(ScriptedModel(["Hi"]), only=["run_wanted"]) as play:
        other = await play.start()
        await play.runs.accept((await play.runs.state(other)).accepted, run_id="run_wanted")
        assert (await play.ended("run_wanted")).output == "Hi"
        # Long enough for a lease to run out, and for whoever rescues to look.
        await anyio.sleep(60)
        assert len(await play.means.store.read(other)) == 1


async def test_a_waiting_run_leaves_memory_and_comes_back():
    pay = ScriptedTool(review=Review(gate="ask"))
    async with stage(ScriptedModel([Call("pay")], ["Paid."]), pay, capacity=1) as play:
        waiting = await play.start()
        await play.until(waiting, ApprovalRequested)
        await anyio.sleep(1)
        assert await play.means.store.renew([], ttl=1) == {}
        assert not play.means.store._held
        await play.runs.answer(waiting, "once")
        assert (await play.ended(waiting)).output == "Paid."


async def test_leaving_lets_runs_end_that_end_in_time():
    async with stage(ScriptedModel(["a", Silence(20), "b"])) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        play.worker.leave(drain=30)
        assert (await play.ended(run_id)).output == "ab"
        assert anyio.current_time() == 20


async def test_leaving_lets_go_of_the_rest_and_somebody_else_goes_on():
    store = MemoryStore(now=anyio.current_time)
    async with stage(ScriptedModel(["lost", Silence()]), store=store, name="a") as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        play.worker.leave(drain=5)
        queued = await play.until(run_id, RunQueued)
        assert (queued.event.why, queued.at) == ("drained", 5)
        await anyio.sleep(100)
        late = await play.start()
        await anyio.sleep(100)
        assert await play.tags(late) == ["run.accepted"]
    async with stage(ScriptedModel(["whole"], ["whole"]), store=store, name="b") as play:
        state = await play.ended(run_id)
        assert (state.output, state.rescues) == ("whole", 0)
        assert "model.retracted" in await play.tags(run_id)


@pytest.mark.parametrize("quietly", [True, False])
async def test_leaving_in_the_middle_of_a_tool_leaves_its_outcome_unknown(quietly):
    async def work(use):
        try:
            await anyio.sleep_forever()
        finally:
            if not quietly:
                raise RuntimeError("I will not go")

    store, pay = MemoryStore(now=anyio.current_time), ScriptedTool(work=work)
    model = ScriptedModel.by_turn([Call("pay")], ["I see."])
    async with stage(model, pay, store=store) as play:
        run_id = await play.start()
        await play.until(run_id, ToolStarted)
    async with stage(model, pay, store=store) as play:
        await play.ended(run_id)
    assert "unknown" in model.requests[-1].messages[-1].output
    assert len(pay.effects) == 1


async def test_a_run_of_a_worker_that_died_is_taken_over():
    store = MemoryStore(now=anyio.current_time)
    line = FaultyStore(store)
    with anyio.CancelScope() as life:
        line.on_death = life.cancel
        with pytest.raises(Crash):
            async with stage(ScriptedModel(["lost", Silence()]), store=line, name="a") as play:
                run_id = await play.start()
                await play.until(run_id, TextStreamed)
                line.die()
                await anyio.lowlevel.checkpoint()
    async with stage(ScriptedModel(["whole"]), store=store, name="b") as play:
        state = await play.ended(run_id)
        assert (state.output, state.worker) == ("whole", "b")
        assert 10 <= anyio.current_time() <= 16


async def test_trouble_with_the_store_is_waited_out(caplog):
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    line.down = True
    async with stage(ScriptedModel(["Hello"]), store=line) as play:
        await anyio.sleep(60)
        line.down = False
        assert (await play.ended(await play.start())).output == "Hello"
    assert "cannot claim runs: the store refuses" in caplog.text
    assert "the store is in trouble: the store refuses" in caplog.text


async def test_a_worker_that_is_cut_off_drops_its_runs_before_another_may_take_them():
    store = MemoryStore(now=anyio.current_time)
    line, model = FaultyStore(store), ScriptedModel([Silence()])
    async with stage(model, store=line, ttl=9.0) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        line.cut = True
        with anyio.fail_after(9.0):
            while model.open:
                await anyio.sleep(0.1)
        assert await store.orphans() == []
        line.cut = False


async def test_a_run_that_was_taken_away_is_dropped():
    store, model = MemoryStore(now=anyio.current_time), ScriptedModel([Silence()])
    async with stage(model, store=store, ttl=9.0) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        store._runs[run_id].until = 0.0
        assert await store.seize(run_id, "thief", ttl=60.0)
        await anyio.sleep(4)
        assert model.open == 0


async def test_a_worker_leaves_in_time_though_its_store_never_answers():
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    async with stage(ScriptedModel(), store=line, ttl=10.0) as play:
        await anyio.sleep(1)
        line.cut = True
        # It asks for something to do, and hears nothing.
        await anyio.sleep(60)
        assert play.worker.name == "worker"
    assert anyio.current_time() <= 61 + 10


async def test_a_process_that_was_frozen_does_not_take_its_own_runs_for_orphans():
    """All its timers are late at once, and it may come to rescuing before it renews."""
    store, model = MemoryStore(now=anyio.current_time), ScriptedModel(["a", Silence(30), "b"])
    async with stage(model, store=store) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        store._runs[run_id].until = anyio.current_time() - 8 * 3600
        assert await rescue(store, "worker", ttl=10.0, live=[run_id]) == []
        state = await play.ended(run_id)
    assert (state.output, state.rescues, model.calls) == ("ab", 0, 1)


class Mute(MemoryStore):
    """Hints at nothing, and tells only of what is not ready yet. `delay`: a claim takes so long."""

    delay = 0.0

    async def changes(self):
        await anyio.sleep_forever()
        yield ""

    async def next_ready(self):
        return await super().next_ready() or None

    async def claim(self, worker, *, ttl, limit=1):
        await anyio.sleep(self.delay)
        return await super().claim(worker, ttl=ttl, limit=limit)


async def test_a_run_that_ends_leaves_its_place_to_one_that_had_to_wait():
    model, store = ScriptedModel(*[["a", Silence(1)]] * 2), Mute(now=anyio.current_time)
    for run_id in ("run_1", "run_2"):
        await store.accept(run_id, ACCEPTED)
    async with stage(model, store=store, capacity=1) as play:
        await play.ended("run_2")
        assert anyio.current_time() == 2


async def test_a_run_that_ends_while_another_is_being_claimed_leaves_its_place_to_a_third():
    model, store = ScriptedModel(["a", Silence(30.5)], *[["b", Silence(50)]] * 2), Mute()
    store.delay = 1.0
    await store.accept("run_1", ACCEPTED)
    async with stage(model, store=store, capacity=2) as play:
        await play.until("run_1", TextStreamed)
        for run_id in ("run_2", "run_3"):
            await store.accept(run_id, ACCEPTED)
        await play.ended("run_1")
        # It was looked for runs half a second ago, and there was room for one.
        assert anyio.current_time() == 1 + POLL + 0.5
        await anyio.sleep(2)
        assert model.open == 2


async def test_a_run_whose_tool_made_a_report_leaves_its_place_when_it_ends():
    async def work(use):
        await use.progress("half way")
        return "ok"

    model = ScriptedModel([Call("pay")], ["Paid."], ["Hello"])
    async with stage(model, ScriptedTool(work=work), capacity=1) as play:
        await play.until(await play.start(), ToolStarted)
        second = await play.start()
        with anyio.fail_after(1):
            assert (await play.ended(second)).output == "Hello"


async def test_a_run_that_was_wished_something_leaves_its_place_when_it_ends():
    model = ScriptedModel(["a", Silence(1)], ["b"], ["Hello"])
    async with stage(model, capacity=1) as play:
        first = await play.start()
        await play.until(first, TextStreamed)
        second = await play.start()
        await play.runs.add(first, (Text("and one more thing"),))
        with anyio.fail_after(2):
            assert (await play.ended(second)).output == "Hello"


async def test_a_run_that_rests_is_looked_at_in_time_though_nobody_hints_at_it():
    store, pay = Mute(now=anyio.current_time), ScriptedTool(review=Review(gate="ask"))
    await store.accept("run_1", replace(ACCEPTED, tools=(pay.spec,), approval_timeout=5.0))
    async with stage(ScriptedModel([Call("pay")], ["Well then."]), pay, store=store) as play:
        await play.ended("run_1")
        assert anyio.current_time() == 5


async def test_a_worker_with_room_does_not_look_for_runs_because_one_has_ended():
    class Counting(MemoryStore):
        claims = 0

        async def claim(self, worker, *, ttl, limit=1):
            self.claims += 1
            return await super().claim(worker, ttl=ttl, limit=limit)

    store = Counting(now=anyio.current_time)
    async with stage(ScriptedModel(["a", Silence(1)]), store=store) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        before = store.claims
        await play.ended(run_id)
        await anyio.sleep(1)
        assert store.claims == before
