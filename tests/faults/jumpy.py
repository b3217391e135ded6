"""A process whose wall clock jumps, to be run as `python -m tests.faults.jumpy FOLDER SEED`.

It carries one run that streams, waits for an answer which never comes, and goes on; the clock is
set back and forth all through the streaming and in the middle of the waiting. Prints what happened
as one line of JSON; how long things took is by a clock that nobody sets.
"""

import json
import random
import sys
import time
from contextlib import aclosing
from pathlib import Path

import anyio

from holdfast.calls.tasks import task_group
from holdfast.core.events import ApprovalExpired, ApprovalRequested, ModelChoice, TextStreamed
from holdfast.core.watchdog import Patience
from holdfast.ports import Review
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

DAY = 86400.0

#: Seconds for which a worker holds the run without renewing, and for which an answer is awaited.
LEASE = 1.5
ANSWER = 1.0

WORDS = [part for number in range(40) for part in (f"{number} ", Silence(0.05))]


class JumpingClock:
    """Wall time, which is set forward or back by up to a year."""

    def __init__(self, seed):
        self._chance, self._skew = random.Random(seed), 0.0

    def __call__(self):
        return time.time() + self._skew  # noqa: TID251 (it is what the clock is made of)

    def jump(self):
        self._skew = self._chance.uniform(-365 * DAY, 365 * DAY)


async def look_around(store, seen):
    """Whether the run ever seems to be nobody's, and how long it is said to rest."""
    while True:
        seen["orphans"] += await store.orphans()
        seen["rests"].append(await store.next_ready() or 0.0)
        await anyio.sleep(0.02)


async def jump_while_it_waits(clock):
    # Whoever laid the run to rest has worked out by now how long that is.
    await anyio.sleep(ANSWER / 4)
    for _ in range(4):
        clock.jump()
        await anyio.sleep(ANSWER / 8)


async def main(folder, seed):
    clock = JumpingClock(seed)
    pay = ScriptedTool(review=Review(gate="ask"))
    model = ScriptedModel.by_turn([*WORDS, Call("pay")], ["No."])
    patient = (ModelChoice("model", patience=Patience(first=5.0, between=5.0, whole=20.0)),)
    async with (
        open_sqlite(folder / "journal.db", now=clock) as store,
        stage(model, pay, store=store, clock=clock, ttl=LEASE) as play,
        task_group() as tasks,
    ):
        run_id = await play.start(models=patient, approval_timeout=ANSWER)
        moments, seen = {}, {"orphans": [], "rests": []}
        tasks.start_soon(look_around, store, seen)
        async with aclosing(play.runs.follow(run_id)) as events:
            async for recorded in events:
                moments[type(recorded.event)] = time.monotonic()
                if isinstance(recorded.event, TextStreamed):
                    clock.jump()
                if isinstance(recorded.event, ApprovalRequested):
                    tasks.start_soon(jump_while_it_waits, clock)
        state = await play.runs.state(run_id)
        journal = await store.read(run_id)
        told = {
            "status": state.status.value,
            "output": state.output,
            "rescues": state.rescues,
            "tags": await play.tags(run_id),
            "seqs": [recorded.seq for recorded in journal],
            "times": [recorded.at for recorded in journal],
            "waited": moments[ApprovalExpired] - moments[ApprovalRequested],
            "effects": len(pay.effects),
            **seen,
        }
        sys.stdout.write(json.dumps(told))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
