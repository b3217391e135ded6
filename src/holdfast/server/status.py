"""Where a run stands, as whoever asks for it is told.

Computed from the state and never kept. A field that says nothing at this point is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from holdfast.core.events import Recorded, RunCancelled, RunCompleted, RunFailed
from holdfast.core.phase import Phase, phase
from holdfast.core.state import RunState
from holdfast.server.frames import DELTAS, NAMES, Fields, Used, approval, find_tool, used


class Status(Struct, frozen=True, kw_only=True):
    """`model` is the run's first choice, `effective_model` what the endpoint says replied last.

    `approval` is the one of `approvals` that has waited longest.
    """

    object: str = "hermes.run"
    run_id: str
    status: str
    created_at: float
    updated_at: float
    seq: int
    last_event: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    effective_model: str | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    waiting_for: Phase | UnsetType = UNSET
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
    metadata: Mapping[str, Any] | None = None,
) -> Status:
    """`created_at` is when the run was accepted; `last_event` is as the function finds it."""
    accepted, reply = state.accepted, state.reply
    return Status(
        run_id=run_id,
        # Whoever accepted it was a newer version, for which it waits.
        status=state.status.value if accepted else "queued",
        created_at=created_at,
        updated_at=state.at,
        seq=state.seq,
        last_event=last_event or UNSET,
        session_id=(accepted and accepted.session_id) or UNSET,
        model=accepted.models[0].name if accepted else UNSET,
        effective_model=(reply and reply.model) or UNSET,
        metadata=metadata or UNSET,
        waiting_for=phase(state) or UNSET,
        **_asked(state),
        **_end(state),
    )


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
