"""What a reader should know about a run that nobody seems to carry, or that was given up.

Nothing of this is stored. It is computed when somebody reads, from where the run stands, whether
its lease lives, whether any worker does, and the time; so it heals by itself when more arrives,
and reading changes nothing. Each sentence claims no more than the evidence.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.entries import Cause, Entry, Mark, Meaning
from holdfast.core.events import RunFailed
from holdfast.core.lease import remaining
from holdfast.core.state import RunState

#: How long what is missing is taken to be on its way, in seconds.
ARRIVING = 24 * 3600.0

_WORDS: dict[Meaning, str] = {
    "resuming": "nobody carries this run now, and a worker is there to take it up again.",
    "still_arriving": "nobody carries this run now, and more of it may still arrive.",
    "recovered": "this run could not go on, and what it got to is above.",
    "nothing_came": "this run could not go on, and nothing had come of it.",
    "some_may_be_lost": "nothing has come of this run for a day or more, and some may be lost.",
}
_BECAUSE: dict[Cause, str] = {
    "restart": "its last worker let go of it in good order: ",
    "lost_worker": "a worker was lost or set it aside: ",
    "unknown": "",
}
_UNSEEN: dict[Meaning, str] = {
    "still_arriving": "What belongs here cannot be seen yet, and may still arrive.",
    "some_may_be_lost": "What belongs here was not to be seen for a day or more, and may be lost.",
}


class Marker(Struct, frozen=True):
    """`attempts` are the rescues on record since the run last got further; `at` is its last event.

    The cause is "restart" where a worker let go in good order, "lost_worker" where it is on
    record that one was lost or set the run aside, else "unknown".
    """

    meaning: Meaning
    cause: Cause
    words: str
    attempts: int
    at: float


def marker(state: RunState, *, leased: bool, workers: bool, now: float) -> Marker | None:
    """What to say below what there is of this run; None if all is as it should be."""
    if not state.status.live:
        return _given_up(state)
    if leased or not state.epoch or _rests(state):
        return None
    if workers:
        return _marker("resuming", _cause(state), state)
    return _marker(_by_age(state.at, now), _cause(state), state)


def unseen(at: float, *, workers: bool, now: float) -> Marker:
    """The same for a run that was added to its session `at` this time, and is not to be seen yet.

    Nothing says that it was interrupted, so it is never said to be resuming. A worker that lives
    may bring it however late.
    """
    meaning: Meaning = "still_arriving" if workers else _by_age(at, now)
    return Marker(meaning, "unknown", _UNSEEN[meaning], 0, at)


def damaged(at: float) -> Marker:
    """The same for a run whose journal makes no sense."""
    words = "What belongs here is damaged and cannot be read; whoever runs this can look into it."
    return Marker("some_may_be_lost", "unknown", words, 0, at)


def marked(
    entries: tuple[Entry, ...], marker: Marker | None, *, run_id: str, ordinal: int
) -> tuple[Entry, ...]:
    """The entries of a run with its marker below them. Its id stays the same whatever it says."""
    if marker is None:
        return entries
    mark = Mark(
        id=f"{run_id}.marker",
        run_id=run_id,
        ordinal=ordinal,
        seq=max((entry.seq for entry in entries), default=0),
        at=marker.at,
        meaning=marker.meaning,
        cause=marker.cause,
        words=marker.words,
        attempts=marker.attempts,
    )
    return (*entries, mark)


def _given_up(state: RunState) -> Marker | None:
    if not isinstance(state.ended, RunFailed) or state.ended.code != "rescues":
        return None
    shown = state.replies or (state.attempt and state.attempt.shown)
    return _marker("recovered" if shown else "nothing_came", "lost_worker", state)


def _rests(state: RunState) -> bool:
    """It was put to rest on purpose: for a person, for what is missing, or for a newer version."""
    if state.unknown:
        return True
    attempt = state.attempt
    calling = bool(attempt and attempt.open and attempt.epoch == state.epoch)
    # Whoever was in the middle of something was carrying it.
    busy = calling or any(state.running(tool) for tool in state.open_tools)
    return not busy and bool(state.pending or state.waiting)


def _cause(state: RunState) -> Cause:
    """Of a run that names a worker, nobody has recorded how it was lost."""
    if state.worker:
        return "unknown"
    return "lost_worker" if state.rescues else "restart"


def _by_age(at: float, now: float) -> Meaning:
    return "still_arriving" if remaining(at, ARRIVING, now=now) else "some_may_be_lost"


def _marker(meaning: Meaning, cause: Cause, state: RunState) -> Marker:
    words = f"{_BECAUSE[cause]}{_WORDS[meaning]}"
    return Marker(meaning, cause, words[0].upper() + words[1:], state.rescues, state.at)
