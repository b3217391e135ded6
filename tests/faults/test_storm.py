"""Stops from everywhere at once, at every phase of a run's life."""

from collections import Counter
from contextlib import suppress
from random import Random

import anyio
import pytest

from holdfast.core.events import FINAL, ApprovalRequested, RunCancelled
from holdfast.errors import Conflict, ModelUnavailable
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence, Think
from holdfast.testing.stage import stage

RUNS, STOPPERS, STOPS = 50, 20, 1000


@pytest.mark.parametrize("slow", [0.0, 0.4])
async def test_a_thousand_stops_from_twenty_hands_leave_one_end_each(slow):
    random = Random(12)
    acknowledged = Counter()
    tool = ScriptedTool("pay", review=lambda _: Review(gate=random.choice(("ask", "auto"))))
    turn = [Think("hm"), "Once", Silence(1), " upon", Call("pay"), Call("pay")]
    model = ScriptedModel.by_turn(turn, [Silence(2), ModelUnavailable("busy")], ["The end."])
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    async with stage(model, tool, store=line, capacity=40) as play:
        line.delay = slow
        runs = [await play.start() for _ in range(RUNS)]

        async def stop():
            for _ in range(STOPS // STOPPERS):
                run_id = random.choice(runs)
                await anyio.sleep(random.uniform(0, 0.5))
                with suppress(Conflict):
                    await play.runs.stop(run_id)
                    acknowledged[run_id] += 1

        async def approve(run_id):
            async for recorded in play.runs.follow(run_id):
                if isinstance(recorded.event, ApprovalRequested):
                    await anyio.sleep(random.uniform(0, 1))
                    with suppress(Conflict):
                        await play.runs.answer(run_id, "once", everything=True)

        async with anyio.create_task_group() as tasks:
            for run_id in runs:
                tasks.start_soon(approve, run_id)
            for _ in range(STOPPERS):
                tasks.start_soon(stop)
        line.delay = 0.0
        for run_id in runs:
            events = await play.journal(run_id)
            assert sum(isinstance(event, FINAL) for event in events) == 1
            state = await play.runs.state(run_id)
            assert state.status.final
            assert not acknowledged[run_id] or isinstance(events[-1], RunCancelled)
            assert not any(tool.result is None for tool in state.tools)
        assert len(acknowledged) > RUNS / 2
        assert model.open == 0
