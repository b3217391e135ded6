"""The wiring: the one place that knows every part and puts them together.

async with open_app(data="data") as app:
    run_id = await app.runs.accept(app.prepare("hello"))
    async for recorded in app.runs.follow(run_id):
        ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time  # noqa: TID251 (the one to take when none is brought)
from typing import Literal

from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import Text
from holdfast.engine.means import Means, random_id
from holdfast.engine.runs import Runs
from holdfast.engine.tasks import task_group
from holdfast.engine.worker import Worker
from holdfast.errors import StoreError
from holdfast.models.demo import DemoModel
from holdfast.ports import Clock, Model, Store, Tool
from holdfast.stores.memory import MemoryStore
from holdfast.tools.demo import KeepNote, LookAround

#: The file in the data directory that holds every run.
JOURNAL = "journal.db"

#: Seconds a worker may be out of touch with its store before it lets go. A file has no other
#: worker that could be waiting.
MEMORY_LEASE = 10.0
FILE_LEASE = 60.0


@dataclass(frozen=True)
class App:
    """Runs are started, followed, stopped and answered through `runs`; a worker carries them."""

    runs: Runs
    means: Means

    @property
    def clock(self) -> Clock:
        return self.means.clock

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing more can be recorded by this process, once that is so."""
        broken: StoreError | None = getattr(self.means.store, "broken", None)
        return broken

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
    data: str | Path | None = None,
    models: Mapping[str, Model] | None = None,
    tools: Iterable[Tool] | None = None,
    clock: Clock = time,
    work: bool = True,
    only: Collection[str] | None = None,
) -> AsyncIterator[App]:
    """An engine in this process. What is live when it closes is cut off.

    With a data directory its runs are kept there, and what an earlier process left unfinished is
    taken up at once; without one they are kept in memory. Raises DataInUse if another process
    owns the directory.

    Without models of your own there is the demo; with it, and without tools of your own, its two.
    `only` are the runs to carry, if not all of them; without `work` none is carried, and wishes
    can still be recorded.
    """
    if tools is None:
        tools = () if models else (LookAround(), KeepNote())
    name = random_id("worker")
    async with _open_store(data, worker=name, clock=clock) as store:
        means = Means(
            store=store,
            models=models or {"demo": DemoModel()},
            tools={tool.spec.name: tool for tool in tools},
            clock=clock,
        )
        app = App(Runs(means), means)
        if not work:
            yield app
            return
        ttl = MEMORY_LEASE if data is None else FILE_LEASE
        worker = Worker(means, name=name, ttl=ttl, only=only)
        async with task_group() as tasks:
            await tasks.start(worker.run)
            try:
                yield app
            finally:
                worker.leave(drain=0)


@asynccontextmanager
async def _open_store(
    data: str | Path | None, *, worker: str, clock: Clock
) -> AsyncIterator[Store]:
    if data is None:
        yield MemoryStore(now=clock)
        return
    # Only who keeps a file pays for what that takes to load.
    from holdfast.stores.owner import own
    from holdfast.stores.sqlite import open_sqlite

    folder = _from_anywhere(data)
    async with own(folder, worker=worker), open_sqlite(folder / JOURNAL, now=clock) as store:
        yield store


def _from_anywhere(data: str | Path) -> Path:
    """So that a process which changes its directory keeps its data."""
    return Path(data).absolute()
