"""How a run goes from status to status: one table, and nothing else.

An event that is not in the row of the present status is a bug, and is refused before a byte
is written. Rules for changing the table: a wish is legal in every live status; it never makes
illegal what the worker may be about to write, but for a final event, which the store
holds back until the worker has seen every wish before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    InputAdded,
    InputEdited,
    ModelCalled,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunStarted,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)


class Status(StrEnum):
    NEW = "new"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting_for_approval"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in _FINAL

    @property
    def live(self) -> bool:
        return self in _LIVE


_FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
_LIVE = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING, Status.STOPPING})

Row: TypeAlias = Mapping[type[Any], Status]

#: What a worker records on its way. It may be about to write any of these when a wish arrives.
_WORK = (
    RunStarted,
    RunWaiting,
    ModelCalled,
    ModelHeard,
    TextStreamed,
    ReasoningStreamed,
    ModelRetracted,
    ModelReplied,
    ModelFailed,
    ToolStarted,
    ToolProgressed,
    ToolFinished,
    ApprovalRequested,
    ApprovalExpired,
)
_LIVELY: Row = {
    **dict.fromkeys(_WORK, Status.RUNNING),
    RunQueued: Status.QUEUED,
    ApprovalAnswered: Status.RUNNING,
    InputAdded: Status.RUNNING,
    InputEdited: Status.RUNNING,
    StopRequested: Status.STOPPING,
    RunCompleted: Status.COMPLETED,
    RunFailed: Status.FAILED,
}

#: QUEUED and RUNNING in this table read WAITING while an approval is pending.
LIFECYCLE: Mapping[Status, Row] = {
    Status.NEW: {RunAccepted: Status.QUEUED},
    Status.QUEUED: {
        RunStarted: Status.RUNNING,
        RunQueued: Status.QUEUED,
        RunWaiting: Status.QUEUED,
        ApprovalExpired: Status.QUEUED,
        ApprovalAnswered: Status.QUEUED,
        InputAdded: Status.QUEUED,
        InputEdited: Status.QUEUED,
        StopRequested: Status.STOPPING,
    },
    Status.RUNNING: _LIVELY,
    Status.WAITING: _LIVELY,
    Status.STOPPING: {
        **dict.fromkeys(_WORK, Status.STOPPING),
        RunQueued: Status.STOPPING,
        ApprovalAnswered: Status.STOPPING,
        InputAdded: Status.STOPPING,
        InputEdited: Status.STOPPING,
        StopRequested: Status.STOPPING,
        RunCancelled: Status.CANCELLED,
    },
    Status.COMPLETED: {},
    Status.FAILED: {},
    Status.CANCELLED: {},
}
