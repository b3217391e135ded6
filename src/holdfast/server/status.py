"""Where a run stands, as whoever asks for it is told.

Computed from the state and never kept. A field that says nothing at this point is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from holdfast.core.events import Recorded, RunAccepted, RunCancelled, RunCompleted, RunFailed
from holdfast.core.messages import plain
from holdfast.core.phase import Phase, behind, phase
from holdfast.core.state import RunState
from holdfast.errors import HoldfastError
from holdfast.ports import Entry
from holdfast.server.frames import DELTAS, NAMES, Fields, Used, approval, find_tool, short, used

#: Characters of what was asked.
MOST_INPUT = 200


class Ahead(Struct, frozen=True, kw_only=True):
    """A run that another waits for, and what that one waits for itself."""

    run_id: str
    status: str
    waiting_for: Phase | UnsetType = UNSET
    approvals: tuple[Fields, ...] | UnsetType = UNSET


class Status(Struct, frozen=True, kw_only=True):
    """`model` is what was asked for. `effective_model` is what carries the run: the configured
    model, and once it has replied, what its endpoint calls it.

    `approval` is the one of `approvals` that has waited longest.
    """

    object: str = "hermes.run"
    run_id: str
    status: str
    created_at: float
    updated_at: float
    seq: int
    last_event: str | UnsetType = UNSET
    #: What was asked, the beginning of it.
    input: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    effective_model: str | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    waiting_for: Phase | UnsetType = UNSET
    #: The run of its session that is ahead of it, if it waits for its turn there.
    behind: Ahead | UnsetType = UNSET
    #: Its turn among those that wait for a worker, counted from 1.
    place: int | UnsetType = UNSET
    approval: Fields | UnsetType = UNSET
    approvals: tuple[Fields, ...] | UnsetType = UNSET
    output: str | UnsetType = UNSET
    usage: Used | UnsetType = UNSET
    incomplete: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET
    receipt: Mapping[str, Any] | UnsetType = UNSET


def status(
    run_id: str,
    state: RunState,
    *,
    created_at: float,
    last_event: str = "",
) -> Status:
    """`created_at` is when the run was accepted; `last_event` is as the function finds it."""
    accepted = state.accepted
    return Status(
        run_id=run_id,
        # Whoever accepted it was a newer version, for which it waits.
        status=state.status.value if accepted else "queued",
        created_at=created_at,
        updated_at=state.at,
        seq=state.seq,
        last_event=last_event or UNSET,
        input=_asked_for(accepted) if accepted else UNSET,
        session_id=(accepted and accepted.session_id) or UNSET,
        model=(accepted.asked_model or accepted.models[0].name) if accepted else UNSET,
        effective_model=_effective(state) or UNSET,
        metadata=(accepted and accepted.metadata) or UNSET,
        waiting_for=phase(state) or UNSET,
        **_asked(state),
        **_end(state),
    )


def waits_behind(told: Status, state: RunState, front: Status) -> Status:
    """The status of a run whose turn in its session comes after another's."""
    return replace(told, waiting_for=behind(state, front.run_id), behind=ahead(front))


def ahead(front: Status) -> Ahead:
    return Ahead(
        run_id=front.run_id,
        status=front.status,
        waiting_for=front.waiting_for,
        approvals=front.approvals,
    )


def damaged(entry: Entry, error: HoldfastError) -> Status:
    """All that can be said of a run whose journal cannot be read, or makes no sense."""
    return Status(
        run_id=entry.run_id,
        status="damaged",
        created_at=entry.first.at,
        updated_at=entry.last.at,
        seq=entry.last.seq,
        error=str(error),
        error_code="journal_damaged",
    )


def _asked_for(accepted: RunAccepted) -> str:
    return short(plain(accepted.input), MOST_INPUT)


def _effective(state: RunState) -> str:
    if state.attempt:
        return state.attempt.model
    if state.reply and state.reply.model:
        return state.reply.model
    return state.accepted.models[0].name if state.accepted else ""


def last_event(journal: Sequence[Recorded]) -> str:
    """What the last event is called on the stream, words as they arrived left aside."""
    events = (recorded.event for recorded in reversed(journal))
    names = (NAMES.get(type(event)) for event in events if not isinstance(event, DELTAS))
    return next((name for name in names if name), "")


def _asked(state: RunState) -> Fields:
    asked = tuple(approval(p, find_tool(state, p.request.call_id)) for p in state.pending)
    return {"approval": asked[0], "approvals": asked} if asked else {}


def _end(state: RunState) -> Fields:
    match state.ended:
        case RunCompleted(incomplete=incomplete):
            done = {"output": state.output, "usage": used(state.usage)}
            return {**done, "incomplete": incomplete} if incomplete else done
        case RunFailed(message=message, code=code):
            return {"error": message, "error_code": code}
        case RunCancelled(receipt=receipt):
            return {"receipt": asdict(receipt)}
        case None:
            return {}
