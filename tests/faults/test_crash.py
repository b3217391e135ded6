"""Kill the worker everywhere, start another, and see that nothing was lost or done twice."""

import asyncio
from collections import Counter

import anyio
import pytest
from msgspec.structs import replace

from holdfast.core.events import (
    ApprovalRequested,
    ToolFinished,
)
from holdfast.core.lifecycle import Status
from holdfast.core.run import replay
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.worker import Worker
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED
from holdfast.testing.faults import Crash, FaultyStore, MortalTool
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence, Think
from holdfast.testing.simulation import Story, check
from holdfast.testing.virtual_time import VirtualTimeLoop

#: Three turns: two tools side by side, a payment that has to be approved, an answer.
TURNS = (
    [Think("look first"), "Looking. ", Call("look"), Call("look")],
    ["Now I pay.", Silence(1), Call("pay", '{"euro":5}')],
    ["All", " done."],
)


class Life:
    """One run, any number of workers after each other, and somebody who says yes."""

    def __init__(self):
        self.store = MemoryStore(now=anyio.current_time)
        self.model = ScriptedModel.by_turn(*TURNS)
        self.pay = ScriptedTool("pay", review=Review(gate="ask", key="pay"))
        self.look = ScriptedTool("look", writes=False, repeatable=True, parallel=True)
        self.story = Story()

    async def work(self, name, line):
        tools = {tool.spec.name: MortalTool(tool, line) for tool in (self.pay, self.look)}
        means = Means(line, {"model": self.model}, tools, clock=anyio.current_time)
        with anyio.CancelScope() as life:
            line.on_death = life.cancel
            try:
                await Worker(means, name=name).run()
            except Crash:
                pass

    async def person(self):
        runs = Runs(Means(self.store, {}, clock=anyio.current_time))
        accepted = replace(ACCEPTED, tools=(self.pay.spec, self.look.spec))
        await runs.accept(accepted, run_id="run_1")
        async for recorded in runs.follow("run_1"):
            self.story.seen.append(recorded)
            if isinstance(recorded.event, ApprovalRequested):
                await runs.answer("run_1", "once", approval_id=recorded.event.approval_id)

    async def live(self, first):
        """The first worker on its line, a second one when that is gone; to the end of the run."""
        with anyio.fail_after(10_000):
            async with anyio.create_task_group() as workers:

                async def hosts():
                    await self.work("first", first)
                    await anyio.sleep(1)
                    await self.work("second", FaultyStore(self.store))

                workers.start_soon(hosts)
                await self.person()
                workers.cancel_scope.cancel()

    async def check(self):
        journal = list(await self.store.read("run_1"))
        check(journal, self.story, Counter((*self.pay.effects, *self.look.effects)))
        state = replay(journal)
        assert (state.status, state.output) == (Status.COMPLETED, "All done.")
        results = [e.event for e in journal if isinstance(e.event, ToolFinished)]
        unknown = sum(result.outcome == "unknown" for result in results)
        assert len(self.pay.effects) + unknown >= 1, "the payment was forgotten"
        assert len(self.pay.effects) <= 1


async def test_undisturbed_it_takes_one_worker_and_each_tool_runs_once():
    life = Life()
    await life.live(FaultyStore(life.store))
    await life.check()
    assert (len(life.pay.effects), len(life.look.effects)) == (1, 2)


@pytest.mark.parametrize("writes", range(18))
async def test_a_run_survives_a_crash_after_any_write(writes):
    life = Life()
    line = FaultyStore(life.store)
    line.crash_after(writes)
    await life.live(line)
    await life.check()


class CountingLoop(VirtualTimeLoop):
    """Calls `fatal` at a chosen step. Every await that waits, and every task begun, is a step."""

    steps = 0
    fatal_step = -1
    fatal = staticmethod(lambda: None)

    def call_soon(self, callback, *args, context=None):
        self.steps += 1
        if self.steps == self.fatal_step:
            self.fatal()
        return super().call_soon(callback, *args, context=context)


def lived_through(fatal_step):
    """A life whose first worker dies at this step of the event loop. Returns the steps it took."""

    async def main():
        life, loop = Life(), asyncio.get_running_loop()
        line = FaultyStore(life.store)
        loop.fatal = line.die
        await life.live(line)
        await life.check()

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.get_loop().fatal_step = fatal_step
        runner.run(main())
        return runner.get_loop().steps


def test_a_run_survives_a_crash_at_any_await():
    steps = lived_through(-1)
    assert steps > 100
    for step in range(1, steps):
        try:
            lived_through(step)
        except BaseException as error:
            error.add_note(f"the worker died at step {step} of {steps}")
            raise
