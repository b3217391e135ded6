"""Whether to try a model again, when, and where.

One function, `next_attempt`, looks at how the attempts of this turn failed. A run that is planned and a
call that is made alone ask the same function. Attempts that a crash or a drain cut
short are not failures and are not in the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

#: How a call can end without a reply. Whoever raises a ModelError names one of these.
STALLED = frozenset({"ttfb_kill", "codex_ttfb_kill", "idle_kill", "stale_kill"})
BROKEN = frozenset({"truncated", "reset", "overloaded"})
UNREADABLE = frozenset({"bad_reply", "too_large"})
#: Nothing was sent: the endpoint has failed so often in a row that it is left alone for a while.
BREAKER_OPEN = "breaker_open"
#: The reply was cut in the middle of a tool call by its own limit, which may be made longer once.
CUT_SHORT = "length"
#: The conversation is longer than the model can take.
OVERFLOW = "context_overflow"
REASONS = (
    STALLED
    | BROKEN
    | UNREADABLE
    | {BREAKER_OPEN, CUT_SHORT, OVERFLOW, "refused", "interrupt_abort"}
)

_WORTH_REPEATING = frozenset({408, 409, 425, 429})
_WRONG_EVERYWHERE = frozenset({400, 413, 422})

#: How often an endpoint that is left alone is waited for in one turn.
_WAITS = 20

_BASE = 1.0
_CAP = 60.0


class Failure(Struct, frozen=True):
    """One attempt that ended without a reply."""

    model: str
    reason: str
    message: str = ""
    status: int | None = None
    retry_after: float | None = None
    #: Seconds of silence before it ended: since its last semantic event, or since its start.
    waited: float = 0.0
    #: It had said something before it ended.
    spoke: bool = False
    #: When it was recorded, in wall time.
    at: float = 0.0

    @property
    def worth_repeating(self) -> bool:
        """The same model may well answer if asked once more."""
        if (self.retry_after or 0.0) > _CAP:
            return False
        if self.reason == "refused":
            return self.status in _WORTH_REPEATING
        return self.reason in STALLED | BROKEN

    @property
    def worth_moving(self) -> bool:
        """Another model may well answer."""
        if self.reason == "refused":
            return self.status is not None and self.status not in _WRONG_EVERYWHERE
        return self.reason in STALLED | BROKEN | UNREADABLE | {BREAKER_OPEN}


class RetryRules(Struct, frozen=True):
    """The models to try in order, how often each, and the seconds to lose on a turn in all."""

    models: tuple[str, ...]
    attempts: int = 4
    total: float = 600.0


class Attempt(Struct, frozen=True):
    model: str


class Wait(Struct, frozen=True):
    """Try this model, `seconds` after the last failure was recorded."""

    seconds: float
    model: str


class GiveUp(Struct, frozen=True):
    why: str


Next: TypeAlias = Attempt | Wait | GiveUp


def next_attempt(history: Sequence[Failure], rules: RetryRules, *, spread: float = 1.0) -> Next:
    """What to do after these failures. `spread`, in [0, 1], keeps a crowd from retrying at once."""
    if not history:
        return Attempt(rules.models[0])
    last = history[-1]
    further = _further(history, rules) if last.worth_moving else None
    if last.reason == BREAKER_OPEN:
        # Nothing was tried. It is waited for only where nobody else can be asked.
        waits = sum(failure.reason == BREAKER_OPEN for failure in history)
        again = further is None and waits <= _WAITS
    elif last.reason == CUT_SHORT:
        again = sum(failure.reason == CUT_SHORT for failure in history) == 1
    else:
        again = last.worth_repeating and tries(history, last.model) < rules.attempts
    pause = back_off(history, spread=spread)
    if again and _room(history, rules, pause, spread):
        return Wait(pause, last.model) if pause else Attempt(last.model)
    if further and _room(history, rules, 0.0, spread):
        return Attempt(further)
    return GiveUp(_farewell(history, late=bool(again or further)))


def back_off(history: Sequence[Failure], *, spread: float) -> float:
    """Seconds to wait after the last failure: none after a first stall, then doubling."""
    last = history[-1]
    tried = tries(history, last.model)
    if last.reason == BREAKER_OPEN:
        return max(last.retry_after or 0.0, _BASE)
    if last.reason == CUT_SHORT or (last.reason in STALLED and tried == 1):
        return 0.0
    own = min(_BASE * 2.0 ** min(tried - 1, 6), _CAP) * (0.5 + spread / 2)
    return max(own, last.retry_after or 0.0)


def tries(history: Sequence[Failure], model: str) -> int:
    """How often this model was really called."""
    return sum(one.model == model and one.reason != BREAKER_OPEN for one in history)


def lost(history: Sequence[Failure], *, spread: float) -> float:
    """Seconds this turn has cost since something semantic was last heard."""
    seconds = 0.0
    for end in range(len(history), 0, -1):
        failure = history[end - 1]
        seconds += failure.waited
        if failure.spoke:
            break
        if end > 1 and history[end - 2].model == failure.model:
            seconds += back_off(history[: end - 1], spread=spread)
    return seconds


def _room(history: Sequence[Failure], rules: RetryRules, pause: float, spread: float) -> bool:
    return not rules.total or lost(history, spread=spread) + pause <= rules.total


def _further(history: Sequence[Failure], rules: RetryRules) -> str | None:
    """The first model after the last one tried that has not had its turn."""
    tried = {failure.model for failure in history}
    if history[-1].model not in rules.models:
        return None
    later = rules.models[rules.models.index(history[-1].model) + 1 :]
    return next((model for model in later if model not in tried), None)


def _farewell(history: Sequence[Failure], *, late: bool) -> str:
    last = history[-1]
    why = last.message or last.reason
    if late:
        return f"gave up, the turn's time for stalls and waiting is used up; the last was: {why}"
    if len(history) > 1:
        return f"gave up after {len(history)} attempts; the last: {why}"
    return why
