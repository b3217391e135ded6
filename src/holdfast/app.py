"""The wiring: the one place that knows every part and puts them together.

async with open_app() as app:
    run_id = await app.runs.accept(app.prepare("hello"))
    async for recorded in app.runs.follow(run_id):
        ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time  # noqa: TID251 (the one to take when none is brought)
from typing import Literal

from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import Text
from holdfast.engine.means import Means, random_id
from holdfast.engine.runs import Runs
from holdfast.engine.tasks import task_group
from holdfast.engine.worker import Worker
from holdfast.models.demo import DemoModel
from holdfast.ports import Clock, Model, Tool
from holdfast.stores.memory import MemoryStore
from holdfast.tools.demo import KeepNote, LookAround


@dataclass(frozen=True)
class App:
    """Runs are started, followed, stopped and answered through `runs`; a worker carries them."""

    runs: Runs
    means: Means

    @property
    def clock(self) -> Clock:
        return self.means.clock

    def prepare(
        self,
        prompt: str,
        *,
        instructions: str = "",
        approval: Literal["ask", "deny"] = "ask",
        surface: str = "",
    ) -> RunAccepted:
        """A run on the first of the models, with all the tools. `approval`: can anyone be asked?"""
        return RunAccepted(
            input=(Text(prompt),),
            models=(ModelChoice(next(iter(self.means.models))),),
            tools=tuple(tool.spec for tool in self.means.tools.values()),
            instructions=instructions,
            approval=approval,
            surface=surface,
        )


@asynccontextmanager
async def open_app(
    *,
    models: Mapping[str, Model] | None = None,
    tools: Iterable[Tool] | None = None,
    clock: Clock = time,
) -> AsyncIterator[App]:
    """An engine in this process, its runs kept in memory. What is live when it closes is cut off.

    Without models of your own there is the demo; with it, and without tools of your own, its two.
    """
    if tools is None:
        tools = () if models else (LookAround(), KeepNote())
    means = Means(
        store=MemoryStore(now=clock),
        models=models or {"demo": DemoModel()},
        tools={tool.spec.name: tool for tool in tools},
        clock=clock,
    )
    worker = Worker(means, name=random_id("worker"))
    async with task_group() as tasks:
        await tasks.start(worker.run)
        try:
            yield App(Runs(means), means)
        finally:
            worker.leave(drain=0)
