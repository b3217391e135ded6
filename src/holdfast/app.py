"""The wiring: the one place that knows every part and puts them together.

async with open_app(data="data") as app:
    run_id = await app.runs.accept(app.prepare("hello"))
    async for recorded in app.runs.follow(run_id):
        ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time  # noqa: TID251 (the one to take when none is brought)
from typing import Literal

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from msgspec import structs

from holdfast.calls.line import Line
from holdfast.calls.tasks import task_group
from holdfast.config import Settings, secrets
from holdfast.config.places import JOURNAL
from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import Text
from holdfast.core.secrets import Secrets
from holdfast.engine.means import Means, random_id
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.engine.worker import Worker
from holdfast.errors import InvalidRequest, NotFound, StoreError
from holdfast.lines import choices, open_lines
from holdfast.models.demo import DemoModel
from holdfast.ports import Clock, Model, Rulebook, Store, Tool
from holdfast.stores.memory import MemoryStore
from holdfast.toolbox import Toolbox, open_toolbox
from holdfast.tools.demo import KeepNote, LookAround

#: Runs that one worker carries at a time, unless the settings say otherwise.
CAPACITY = 1000

#: Seconds a worker may be out of touch with its store before it lets go. A file has no other
#: worker that could be waiting.
MEMORY_LEASE = 10.0
FILE_LEASE = 60.0


@dataclass(frozen=True)
class App:
    """Runs are started, followed, stopped and answered through `runs`, and conversations had through
    `sessions`; a worker carries them.
    """

    runs: Runs
    sessions: Sessions
    means: Means
    settings: Settings | None = None
    toolbox: Toolbox | None = None
    worker: Worker | None = None
    #: Set once the worker has let go of everything.
    left: anyio.Event = field(default_factory=anyio.Event)

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
        model: str = "",
        instructions: str = "",
        approval: Literal["ask", "deny"] = "ask",
        surface: str = "",
    ) -> RunAccepted:
        """A run with all the tools, on this model or else the first. Raises NotFound.

        `approval`: can anyone be asked? What else there is to say stands in the settings.
        """
        if model and model not in self.means.models:
            raise NotFound("model", model)
        asked = RunAccepted(
            input=(Text(prompt),),
            models=(ModelChoice(model or next(iter(self.means.models))),),
            tools=tuple(tool.spec for tool in self.means.tools.values()),
            instructions=instructions,
            approval=approval,
            surface=surface,
        )
        if self.toolbox and not instructions:
            asked = structs.replace(asked, instructions=self.toolbox.brief(asked.tools, approval))
        return _as_configured(asked, self.settings, model) if self.settings else asked


def _as_configured(asked: RunAccepted, settings: Settings, model: str) -> RunAccepted:
    chosen = settings.models[model or settings.default_model]
    return structs.replace(
        asked,
        models=choices(settings.models, chosen.name),
        attempts=chosen.attempts,
        retry_total=chosen.total,
        approval="deny" if settings.tools.approval == "deny" else asked.approval,
        instructions=asked.instructions or settings.agent.instructions,
        approval_timeout=settings.tools.approval_timeout,
        budget=settings.budget,
        workspace=str(settings.workspace),
    )


def _as_it_is(store: Store) -> Store:
    return store


@asynccontextmanager
async def open_app(
    settings: Settings | None = None,
    *,
    data: str | Path | None = None,
    journal: Path | None = None,
    models: Mapping[str, Model] | None = None,
    tools: Sequence[Tool] | None = None,
    demo: DemoModel | None = None,
    clock: Clock = time,
    work: bool = True,
    only: Collection[str] | None = None,
    address: str = "",
    pin: str = "",
    wrap: Callable[[Store], Store] = _as_it_is,
) -> AsyncIterator[App]:
    """An engine in this process. What is live when it closes is cut off.

    With a data directory its runs are kept there, and what an earlier process left unfinished is
    taken up at once; without one they are kept in memory. `journal` is the file, if it is not the
    usual one. Raises DataInUse if another process owns the directory, or that of the file.

    `settings` say where, and which models and tools there are. Without them and without models of
    your own there is the demo; with it, and without tools of your own, its two.
    `only` are the runs to carry, if not all of them; without `work` none is carried, and wishes
    can still be recorded. `address` is where the owner of the directory can be talked to, and `pin`
    the certificate it shows there; `wrap` puts something around the store.
    """
    if data is None and settings is not None:
        data, journal = settings.data, settings.journal
    name = random_id("worker")
    async with (
        _open_store(data, journal, worker=name, address=address, pin=pin, clock=clock) as store,
        _open_models(settings, models, demo or DemoModel(), clock=clock) as (found, lines),
    ):
        toolbox = None
        if tools is None:
            tools = _demo_tools(found)
            if settings is not None and work:
                toolbox = await open_toolbox(settings, blob=store.blob, extra=tools)
        named = _by_name(toolbox.tools if toolbox else tools)
        means = Means(
            store=wrap(store),
            models=found,
            tools=named,
            clock=clock,
            lines=lines,
            secrets=_held(settings, (*found, *named)),
            rulebook=_rulebook(data, clock),
        )
        runs, left = Runs(means), anyio.Event()
        sessions = Sessions(means, runs, workers=lambda: work and not left.is_set())
        own = None if models is not None else settings
        app = App(runs, sessions, means, own, toolbox, left=left)
        if not work:
            yield app
            return
        ttl = MEMORY_LEASE if data is None else FILE_LEASE
        capacity = settings.max_concurrent_runs if settings else CAPACITY
        worker = Worker(means, name=name, ttl=ttl, only=only, capacity=capacity)
        app = replace(app, worker=worker)
        async with task_group() as tasks:
            await tasks.start(_work, worker, app.left)
            try:
                yield app
            finally:
                worker.leave(drain=0)


async def _work(
    worker: Worker, left: anyio.Event, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
) -> None:
    await worker.run(task_status=task_status)
    left.set()


@asynccontextmanager
async def _open_models(
    settings: Settings | None,
    models: Mapping[str, Model] | None,
    demo: DemoModel,
    *,
    clock: Clock,
) -> AsyncIterator[tuple[Mapping[str, Model], Mapping[str, Line]]]:
    if models is not None or settings is None:
        yield ({"demo": demo} if models is None else models), {}
        return
    async with open_lines(settings.models, demo=demo, clock=clock) as lines:
        yield {name: line.model for name, line in lines.items()}, lines


def _held(settings: Settings | None, names: Sequence[str]) -> Secrets:
    """What must never be recorded. What things are called is not among it, whatever holds it."""
    known = (*names, str(settings.workspace)) if settings else tuple(names)
    return Secrets(secrets(settings=settings), known=known)


def _rulebook(data: str | Path | None, clock: Clock) -> Rulebook | None:
    if data is None:
        return None
    from holdfast.stores.rules import RuleFile

    return RuleFile(_from_anywhere(data), now=clock)


def _demo_tools(models: Mapping[str, Model]) -> Sequence[Tool]:
    """The demo's, where it is what is called."""
    demo = any(isinstance(model, DemoModel) for model in models.values())
    return (LookAround(), KeepNote()) if demo else ()


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if tool.spec.name in found:
            raise InvalidRequest(f"there are two tools by the name of {tool.spec.name}")
        found[tool.spec.name] = tool
    return found


@asynccontextmanager
async def _open_store(
    data: str | Path | None,
    journal: Path | None,
    *,
    worker: str,
    address: str,
    pin: str,
    clock: Clock,
) -> AsyncIterator[Store]:
    if data is None:
        yield MemoryStore(now=clock)
        return
    # Only who keeps a file pays for what that takes to load.
    from holdfast.stores.owner import own
    from holdfast.stores.sqlite import open_sqlite

    folder = _from_anywhere(data)
    file = journal or folder / JOURNAL
    async with (
        own(folder, worker=worker, address=address, journal=file, pin=pin),
        open_sqlite(file, now=clock) as store,
    ):
        yield store


def _from_anywhere(data: str | Path) -> Path:
    """So that a process which changes its directory keeps its data."""
    return Path(data).absolute()
