"""Everything a test of an agent needs, put together.

    async with stage(ScriptedModel(["Hello"])) as play:
        run_id = await play.start("hi")
        state = await play.ended(run_id)
    assert state.output == "Hello"

A real engine with a real worker, on the store in memory or on one that is given. On
VirtualTimeLoop an hour of waiting takes no time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from holdfast.calls.line import Line
from holdfast.calls.tasks import task_group
from holdfast.core.events import ModelChoice, Recorded, RunAccepted
from holdfast.core.messages import Text
from holdfast.core.state import RunState
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Busy, Sent, Sessions
from holdfast.engine.worker import Worker
from holdfast.ports import Clock, Model, Rulebook, Store, Tool
from holdfast.stores.memory import MemoryStore


@dataclass(frozen=True)
class Stage:
    means: Means
    runs: Runs
    sessions: Sessions
    worker: Worker

    async def start(self, text: str = "hi", **accepted: Any) -> str:
        """Accept a run; its models and tools are all there are, unless said otherwise."""
        accepted.setdefault("models", tuple(ModelChoice(name) for name in self.means.models))
        accepted.setdefault("tools", tuple(tool.spec for tool in self.means.tools.values()))
        return await self.runs.accept(RunAccepted(input=(Text(text),), **accepted))

    async def say(
        self, text: str, *, session: str = "ses_1", busy: Busy = "queue", **accepted: Any
    ) -> Sent:
        """Say something in a session; as `start` otherwise."""
        accepted.setdefault("models", tuple(ModelChoice(name) for name in self.means.models))
        accepted.setdefault("tools", tuple(tool.spec for tool in self.means.tools.values()))
        run = RunAccepted(input=(Text(text),), session_id=session, **accepted)
        return await self.sessions.send(run, busy=busy)

    async def ended(self, run_id: str) -> RunState:
        """Where the run stands once it has come to its end."""
        async with aclosing(self.runs.follow(run_id)) as events:
            async for _ in events:
                pass
        return await self.runs.state(run_id)

    async def until(self, run_id: str, *kinds: type, after: int = 0) -> Recorded:
        """The first event of one of these kinds, as soon as it is recorded."""
        async with aclosing(self.runs.follow(run_id, after=after)) as events:
            async for recorded in events:
                if isinstance(recorded.event, kinds):
                    return recorded
        names = " or ".join(kind.__name__ for kind in kinds)
        raise AssertionError(f"run {run_id} ended without {names}")

    async def journal(self, run_id: str) -> list[Any]:
        """The events so far."""
        return [recorded.event for recorded in await self.means.store.read(run_id)]

    async def tags(self, run_id: str) -> list[str]:
        """What happened so far, by name."""
        events = await self.journal(run_id)
        return [str(event.__struct_config__.tag) for event in events]


@asynccontextmanager
async def stage(
    models: Model | Mapping[str, Model],
    *tools: Tool,
    store: Store | None = None,
    clock: Clock = anyio.current_time,
    lines: Mapping[str, Line] | None = None,
    rulebook: Rulebook | None = None,
    **worker: Any,
) -> AsyncIterator[Stage]:
    """Set up, with one worker at work; leave at once at the end, whatever is still going on.

    `clock` is wall time; further arguments are the worker's.
    """
    means = Means(
        store=store or MemoryStore(now=clock),
        models=models if isinstance(models, Mapping) else {"model": models},
        tools={tool.spec.name: tool for tool in tools},
        clock=clock,
        lines=lines or {},
        rulebook=rulebook,
    )
    runs = Runs(means)
    sessions = Sessions(means, runs, workers=lambda: True)
    play = Stage(means, runs, sessions, Worker(means, **{"name": "worker", **worker}))
    async with task_group() as tasks:
        await tasks.start(play.worker.run)
        yield play
        play.worker.leave(drain=0.0)
