"""What a run is waiting for, since when, until when, and what happens then.

A pure reading of the state: phases change only when something is recorded, and readers
count the seconds themselves.
"""

from __future__ import annotations

from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.plan import following
from holdfast.core.retry import Failure, GiveUp, Wait, tries
from holdfast.core.state import AttemptState, RunState
from holdfast.core.watchdog import Watchdog

Awaited: TypeAlias = Literal[
    "worker",
    "turn",
    "first_event",
    "next_event",
    "retry",
    "tool",
    "approval",
    "missing_model",
    "missing_tool",
    "place",
    "stop",
    "newer_version",
]


class Phase(Struct, frozen=True, omit_defaults=True):
    """`since` is wall time; `limit` is in seconds from then, 0 for none."""

    waiting_for: Awaited
    since: float
    name: str = ""
    limit: float = 0.0
    attempt: int = 0
    attempts: int = 0
    next: str = ""


_LACKS: dict[str, Awaited] = {"model": "missing_model", "tool": "missing_tool", "place": "place"}


def phase(state: RunState) -> Phase | None:
    """What the run is waiting for, or None once it has ended."""
    if not state.status.live:
        return None
    if state.unknown:
        return Phase("newer_version", state.at, state.unknown)
    if state.stopping:
        return Phase("stop", state.stopped_at, next="cancelled")
    return _person(state) or _lacking(state) or _working(state) or Phase("worker", state.at)


def behind(state: RunState, run_id: str) -> Phase:
    """What a run waits for that is not its session's turn yet: that this one ends."""
    return Phase("turn", state.at, run_id, next="it begins")


def _person(state: RunState) -> Phase | None:
    if not state.pending:
        return None
    first = state.pending[0]
    then = "the call is refused" if first.request.expires else ""
    return Phase("approval", first.at, first.request.tool, first.request.expires, next=then)


def _lacking(state: RunState) -> Phase | None:
    if state.waiting is None:
        return None
    return Phase(_LACKS[state.waiting.what], state.waiting_at, state.waiting.name)


def _working(state: RunState) -> Phase | None:
    if not state.worker:
        return None
    if state.attempt and state.attempt.open and state.attempt.epoch == state.epoch:
        return _model(state, state.attempt)
    for tool in state.open_tools:
        if state.running(tool):
            spec = state.spec(tool.call.tool)
            limit = spec.timeout if spec else 0.0
            return Phase("tool", tool.at, tool.call.tool, limit, next="the model is told")
    if state.failures:
        return _retry(state)
    return None


def _model(state: RunState, attempt: AttemptState) -> Phase:
    stalled = Failure(model=attempt.model, reason="ttfb_kill")
    return Phase(
        "next_event" if attempt.heard else "first_event",
        attempt.heard_at if attempt.heard else attempt.at,
        attempt.model,
        _limit(attempt),
        attempt=tries(state.failures, attempt.model) + 1,
        attempts=state.accepted.attempts if state.accepted else 0,
        next=_then(replace(state, failures=(*state.failures, stalled)), attempt.model),
    )


def _limit(attempt: AttemptState) -> float:
    """Seconds until the watchdog bites, from when the wait began: the whole call has its limit too."""
    dog, heard = Watchdog(attempt.patience, now=0.0), 0.0
    if attempt.heard:
        heard = attempt.heard_at - attempt.at
        dog.hear(now=heard)
    limit = round(dog.deadline - heard, 3)
    return limit if 0.0 < limit < inf else 0.0


def _retry(state: RunState) -> Phase | None:
    last, coming = state.failures[-1], following(state)
    if isinstance(coming, GiveUp):
        return None
    pause = coming.seconds if isinstance(coming, Wait) else 0.0
    return Phase(
        "retry",
        last.at,
        coming.model,
        pause,
        attempt=tries(state.failures, coming.model) + 1,
        attempts=state.accepted.attempts if state.accepted else 0,
        next=_then(state, last.model),
    )


def _then(state: RunState, model: str) -> str:
    coming = following(state)
    if isinstance(coming, GiveUp):
        return "give up"
    return "try again" if coming.model == model else f"fall back to {coming.model}"
