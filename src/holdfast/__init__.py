"""Durable agent runs that can always be stopped.

Putting it to use:

    open_app        an engine in this process, its runs in memory or in a data directory
    App             what it gives you: `runs`, `sessions`, and `prepare` to make a request of a prompt
    Runs            start, follow, stop and answer runs
    Sessions        conversations: say something, look at them, follow them
    Worker          carries runs; an app has one
    Means           what a worker works with: a store, models, tools
    MemoryStore     journals in memory, gone with the process

What a run is asked, and what it records:

    RunAccepted     the request: input, models, tools, limits
    ModelChoice     a model by name, with options and patience
    Patience        how long a model may be silent
    Budget          how much a run may use
    Text, Image     the parts of an input
    Recorded        an event in its place, as `follow` yields it; the events are in
                    `holdfast.core.events`
    replay, RunState
                    what the events add up to
    Status          where a run stands
    phase, Phase    what a run is waiting for

Bringing your own:

    Model, Request, Chunk               a model, what it is asked, what it yields
    tool                                makes a tool of a typed function
    Tool, ToolSpec, ToolUse, Review     a tool, what it may do, one use, and its gate

Everything raised on purpose is a HoldfastError and can be imported from here; `holdfast.errors`
draws the tree. Each name is loaded when it is first used, so that importing holdfast costs next
to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.app import App, open_app
    from holdfast.core.events import ModelChoice, Recorded, RunAccepted
    from holdfast.core.lifecycle import Status
    from holdfast.core.messages import Chunk, Image, Request, Text, ToolSpec
    from holdfast.core.phase import Phase, phase
    from holdfast.core.run import replay
    from holdfast.core.state import RunState
    from holdfast.core.usage import Budget
    from holdfast.core.watchdog import Patience
    from holdfast.engine.means import Means
    from holdfast.engine.runs import Runs
    from holdfast.engine.sessions import Sessions
    from holdfast.engine.worker import Worker
    from holdfast.errors import (
        AlreadyAccepted,
        ApprovalAmbiguous,
        ApprovalChanged,
        ApprovalSettled,
        BadReply,
        ConfigError,
        Conflict,
        DataInUse,
        FileDamaged,
        HoldfastError,
        IllegalEvent,
        InvalidRequest,
        JournalDamaged,
        KeyReused,
        LeaseLost,
        ModelError,
        ModelRefused,
        ModelUnavailable,
        NotFound,
        NothingPending,
        RequestError,
        RunBegun,
        RunFinished,
        RunStopping,
        SchemaTooNew,
        SessionBusy,
        SessionGone,
        StoreError,
        StoreFull,
        StoreUnavailable,
        StreamStalled,
        ToolError,
        ToolTimeout,
        WishPending,
    )
    from holdfast.ports import Model, Review, Tool, ToolUse
    from holdfast.stores.memory import MemoryStore
    from holdfast.tools.function import tool

    __version__: str

__all__ = [
    "AlreadyAccepted",
    "App",
    "ApprovalAmbiguous",
    "ApprovalChanged",
    "ApprovalSettled",
    "BadReply",
    "Budget",
    "Chunk",
    "ConfigError",
    "Conflict",
    "DataInUse",
    "FileDamaged",
    "HoldfastError",
    "IllegalEvent",
    "Image",
    "InvalidRequest",
    "JournalDamaged",
    "KeyReused",
    "LeaseLost",
    "Means",
    "MemoryStore",
    "Model",
    "ModelChoice",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "NotFound",
    "NothingPending",
    "Patience",
    "Phase",
    "Recorded",
    "Request",
    "RequestError",
    "Review",
    "RunAccepted",
    "RunBegun",
    "RunFinished",
    "RunState",
    "RunStopping",
    "Runs",
    "SchemaTooNew",
    "SessionBusy",
    "SessionGone",
    "Sessions",
    "Status",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StreamStalled",
    "Text",
    "Tool",
    "ToolError",
    "ToolSpec",
    "ToolTimeout",
    "ToolUse",
    "WishPending",
    "Worker",
    "__version__",
    "open_app",
    "phase",
    "replay",
    "tool",
]

_HOMES = {
    "holdfast.app": "App open_app",
    "holdfast.core.events": "ModelChoice Recorded RunAccepted",
    "holdfast.core.lifecycle": "Status",
    "holdfast.core.messages": "Chunk Image Request Text ToolSpec",
    "holdfast.core.phase": "Phase phase",
    "holdfast.core.run": "replay",
    "holdfast.core.state": "RunState",
    "holdfast.core.usage": "Budget",
    "holdfast.core.watchdog": "Patience",
    "holdfast.engine.means": "Means",
    "holdfast.engine.runs": "Runs",
    "holdfast.engine.sessions": "Sessions",
    "holdfast.engine.worker": "Worker",
    "holdfast.errors": (
        "AlreadyAccepted ApprovalAmbiguous ApprovalChanged ApprovalSettled BadReply ConfigError "
        "Conflict DataInUse FileDamaged HoldfastError IllegalEvent InvalidRequest JournalDamaged KeyReused LeaseLost ModelError "
        "ModelRefused ModelUnavailable NotFound NothingPending RequestError RunBegun RunFinished "
        "RunStopping SchemaTooNew SessionBusy SessionGone StoreError StoreFull StoreUnavailable StreamStalled "
        "ToolError ToolTimeout WishPending"
    ),
    "holdfast.ports": "Model Review Tool ToolUse",
    "holdfast.stores.memory": "MemoryStore",
    "holdfast.tools.function": "tool",
}

if not TYPE_CHECKING:  # pragma: no branch

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("holdfast")
        for home, names in _HOMES.items():
            if name in names.split():
                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __all__
