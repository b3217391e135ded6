"""Stores that refuse, hang, answer late or hold nonsense, and workers that must cope with it."""

import anyio
import anyio.lowlevel
import pytest

from holdfast.core.codec import recall
from holdfast.core.events import (
    ApprovalRequested,
    ModelChoice,
    RunAccepted,
    RunWaiting,
    TextStreamed,
    ToolStarted,
)
from holdfast.core.messages import Said, Text, UserMessage
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.supervisor import LAST_WORDS
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage


def memory():
    return MemoryStore(now=anyio.current_time)


async def test_a_store_that_refuses_does_not_let_a_run_be_driven_twice():
    shared, alive = memory(), []
    line = FaultyStore(shared)

    async def work(use):
        alive.append(1)
        try:
            await anyio.sleep(300)
        finally:
            alive.pop()

    look = ScriptedTool("look", work=work, writes=False, repeatable=True)
    model = ScriptedModel.by_turn([Call("look")], ["x"])
    async with stage(model, look, store=line, name="a") as a:
        run_id = await a.start()
        await a.until(run_id, ToolStarted)
        async with stage(model, look, store=shared, name="b"):
            line.down = True
            await anyio.sleep(60)
            assert len(alive) == 1
            line.down = False


@pytest.mark.parametrize("fault", ["cut", "down"])
async def test_a_run_is_dropped_before_its_lease_ends_however_late_it_was_claimed(fault):
    shared, ticks = memory(), []
    line = FaultyStore(shared)

    async def work(use):
        while True:
            ticks.append(anyio.current_time())
            await anyio.sleep(0.25)

    pay = ScriptedTool(work=work)
    async with stage(ScriptedModel.by_turn([Call("pay")], ["x"]), pay, store=line, ttl=10.0):
        await anyio.sleep(3.2)
        accepted = RunAccepted(
            input=(Text("x"),), models=(ModelChoice("model"),), tools=(pay.spec,)
        )
        await Runs(Means(store=shared, models={})).accept(accepted)
        while not ticks:
            await anyio.lowlevel.checkpoint()
        claimed = anyio.current_time()
        setattr(line, fault, True)
        await anyio.sleep(30)
        setattr(line, fault, False)
        assert ticks[-1] - claimed < 10 * 2 / 3 + 0.3


class SlowFor(MemoryStore):
    """Takes its time for the commits of one run."""

    run_id = ""

    async def append(self, lease, *events, **kwargs):
        if lease.run_id == self.run_id:
            await anyio.sleep(25)
        return await super().append(lease, *events, **kwargs)


class Chatty:
    async def stream(self, request):
        while True:
            yield Said("x")
            await anyio.sleep(1)


async def test_one_run_s_slow_commit_costs_no_other_its_lease_and_holds_up_no_stop():
    store = SlowFor(now=anyio.current_time)
    models = {"a": Chatty(), "b": ScriptedModel(["x", Silence()])}
    async with stage(models, store=store) as play:
        slow = await play.start(models=(ModelChoice("a"),))
        other = await play.start(models=(ModelChoice("b"),))
        await play.until(slow, TextStreamed)
        await play.until(other, TextStreamed)
        store.run_id = slow
        await anyio.sleep(1.5)
        await play.runs.add(slow, (Text("more"),))
        await anyio.sleep(12)
        assert other not in await store.orphans()
        began = anyio.current_time()
        await play.runs.stop(other)
        await play.ended(other)
        assert anyio.current_time() - began < 5


class LateAnswer(MemoryStore):
    """Lets go of a run a moment before it says so."""

    async def release(self, lease, **kwargs):
        await super().release(lease, **kwargs)
        await anyio.sleep(0.05)


async def test_a_run_that_is_claimed_again_while_it_leaves_is_carried_like_any_other():
    pay = ScriptedTool(review=Review(gate="ask"))
    model = ScriptedModel.by_turn([Call("pay")], ["a", Silence(40), "b"])
    async with stage(model, pay, store=LateAnswer(now=anyio.current_time)) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(0.01)
        await play.runs.answer(run_id, "once")
        await play.start()
        with anyio.fail_after(1000):
            assert (await play.ended(run_id)).output == "ab"
        assert "run.queued" not in await play.tags(run_id)


async def test_an_answer_that_comes_while_a_run_leaves_does_not_wait_for_the_next_poll():
    pay = ScriptedTool(review=Review(gate="ask"))
    model = ScriptedModel.by_turn([Call("pay")], ["a"])
    async with stage(model, pay, store=LateAnswer(now=anyio.current_time)) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(0.01)
        await play.runs.answer(run_id, "once")
        await play.ended(run_id)
        assert anyio.current_time() < 5


async def test_a_queued_run_is_claimed_as_soon_as_there_is_room():
    async with stage(ScriptedModel(*[["ok"]] * 4), capacity=1) as play:
        for run_id in [await play.start() for _ in range(4)]:
            await play.ended(run_id)
        assert anyio.current_time() < 1


@pytest.mark.parametrize("orphan", [False, True])
async def test_a_journal_that_makes_no_sense_harms_nobody_else(orphan, caplog):
    store = memory()
    async with stage(ScriptedModel(["a", Silence(50), "b"]), store=store) as play:
        good = await play.start()
        await play.until(good, TextStreamed)
        await store.accept("bad", ACCEPTED)
        if orphan:
            await store.seize("bad", "ghost", ttl=1)
        store._runs["bad"].log.append(recall(2, 0.0, b'{"type":"run.cancelled"}'))
        store._runs["bad"].log.append(recall(3, 0.0, b'{"type":"stop.requested"}'))
        assert (await play.ended(good)).output == "ab"
        assert len(await store.read("bad")) == 3


@pytest.mark.parametrize("name", ["read", "release", "blob"])
async def test_a_store_that_loses_one_answer_does_not_keep_a_run_for_ever(name):
    store, calls = memory(), []
    true = getattr(store, name)

    async def forgetful(*args, **kwargs):
        calls.append(name)
        if len(calls) == 1:
            await anyio.sleep_forever()
        return await true(*args, **kwargs)

    pay = ScriptedTool(review=Review(gate="ask"))
    model = ScriptedModel.by_turn([Call("pay")], ["x"])
    async with stage(model, pay, store=store) as play:
        setattr(store, name, forgetful)
        accepted = RunAccepted(
            input=(Text("x"),), models=(ModelChoice("model"),), tools=(pay.spec,)
        )
        earlier = (UserMessage(parts=(Text("earlier"),)),)
        run_id = await play.runs.accept(accepted, history=earlier)
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(200)
        assert not store._held


async def test_a_run_that_was_set_aside_keeps_its_questions():
    class Stumbling(MemoryStore):
        first = True

        async def release(self, lease, **kwargs):
            if self.first:
                self.first = False
                raise RuntimeError("a bug of ours, once")
            await super().release(lease, **kwargs)

    pay = ScriptedTool(review=Review(gate="ask"))
    model = ScriptedModel.by_turn([Call("pay")], ["x"])
    async with stage(model, pay, store=Stumbling(now=anyio.current_time)) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(3600)
        assert "approval.expired" not in await play.tags(run_id)


async def test_a_question_runs_out_in_time_though_another_call_lacks_its_tool():
    pay = ScriptedTool("pay", review=Review(gate="ask"), parallel=True)
    look = ScriptedTool("look", parallel=True)
    model = ScriptedModel.by_turn([Call("look"), Call("pay")], ["x"])
    async with stage(model, pay) as play:
        run_id = await play.start(tools=(look.spec, pay.spec), approval_timeout=100.0)
        request = (await play.until(run_id, ApprovalRequested)).event
        assert request.tool == "pay", "nobody is asked about what no tool has looked at"
        await play.until(run_id, RunWaiting)
        await anyio.sleep(101)
        assert "approval.expired" in await play.tags(run_id)


class NoAppend(MemoryStore):
    hangs = True

    async def append(self, *args, **kwargs):
        if self.hangs:
            await anyio.sleep_forever()
        return await super().append(*args, **kwargs)


async def test_a_stop_is_answered_soon_though_the_end_cannot_be_written(caplog):
    runs = Runs(Means(store=NoAppend(now=anyio.current_time), models={}))
    run_id = await runs.accept(ACCEPTED)
    await runs.stop(run_id)
    assert anyio.current_time() <= 6


async def test_last_words_take_no_longer_than_they_may(caplog):
    store = NoAppend(now=anyio.current_time)
    store.hangs = False
    async with stage(ScriptedModel(["a", Silence()]), store=store) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        store.hangs = True
    assert anyio.current_time() <= LAST_WORDS + 1


async def test_what_is_being_claimed_when_the_worker_leaves_is_let_go_of():
    class Slow(MemoryStore):
        async def claim(self, worker, **kwargs):
            granted = await super().claim(worker, **kwargs)
            await anyio.sleep(0.2)
            return granted

    store = Slow(now=anyio.current_time)
    async with stage(ScriptedModel(["x"]), store=store) as play:
        await anyio.sleep(1)
        await play.start()
        await anyio.sleep(0.1)
    assert not store._held
