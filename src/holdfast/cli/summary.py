"""A run in a few words: where it stands, what it waits for, and what it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert

from holdfast.core.events import Recorded, RunAccepted, RunCancelled, RunCompleted, RunFailed
from holdfast.core.lifecycle import Status
from holdfast.core.messages import plain
from holdfast.core.phase import Awaited, Phase, phase
from holdfast.core.run import replay
from holdfast.core.state import RunState
from holdfast.stores.archive import Archive, Entry
from holdfast.stores.owner import Owner

_ENDS: Mapping[type[object], Status] = {
    RunCompleted: Status.COMPLETED,
    RunFailed: Status.FAILED,
    RunCancelled: Status.CANCELLED,
}

_AWAITED: Mapping[Awaited, str] = {
    "worker": "a worker",
    "turn": "the end of {name}",
    "first_event": "{name}",
    "next_event": "{name}",
    "retry": "{name}, once more",
    "tool": "{name}",
    "approval": "your answer on {name}",
    "missing_model": "the model {name}",
    "missing_tool": "the tool {name}",
    "place": "its turn at {name}",
    "stop": "its end",
    "newer_version": "a newer version",
}


class Summary(Struct, frozen=True):
    """`interrupted`: it lives, and nobody carries it. That is never stored; a reader sees it."""

    run: str
    accepted_at: float
    at: float
    seq: int
    status: Status
    interrupted: bool
    waiting_for: Phase | None
    input: str

    @property
    def stands(self) -> str:
        """Its status, in a word."""
        if self.interrupted:
            return "interrupted"
        return "waiting" if self.status is Status.WAITING else self.status.value

    @property
    def awaits(self) -> str:
        """What it waits for, in a few words."""
        if self.interrupted:
            return "holdfast resume"
        if self.waiting_for is None:
            return ""
        return _AWAITED[self.waiting_for.waiting_for].format(name=self.waiting_for.name)


def summarise(archive: Archive, entry: Entry, owner: Owner | None) -> Summary:
    """Of a run that has ended, only the first and the last event are read."""
    ended = _ENDS.get(type(entry.last.event))
    state = RunState(status=ended) if ended else replay(archive.events(entry.id))
    return Summary(
        run=entry.id,
        accepted_at=entry.first.at,
        at=entry.last.at,
        seq=max(entry.last.seq, state.seq),
        status=state.status,
        interrupted=interrupted(state, owner),
        waiting_for=phase(state),
        input=_asked(entry.first),
    )


def summarise_far(told: Mapping[str, Any]) -> Summary:
    """Of a run as a server tells how it stands; it carries whatever it has."""
    waits = told.get("waiting_for")
    return Summary(
        run=told["run_id"],
        accepted_at=told["created_at"],
        at=told["updated_at"],
        seq=told["seq"],
        status=Status(told["status"]),
        interrupted=False,
        waiting_for=convert(waits, Phase) if waits else None,
        input=told.get("input", ""),
    )


def _asked(first: Recorded) -> str:
    return plain(first.event.input) if isinstance(first.event, RunAccepted) else ""


def interrupted(state: RunState, owner: Owner | None) -> bool:
    """Somebody should be at work on the run, and nobody is. Waiting for a person takes nobody."""
    if not state.status.live or state.status is Status.WAITING:
        return False
    return owner is None or (bool(state.worker) and state.worker != owner.worker)
