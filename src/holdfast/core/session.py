"""What a session is: a conversation of many runs, with a journal of its own.

The journal says little, for the runs have journals of their own: that the session began, which runs
were added to it and in what order, what people call it and where they put it, and that it was
deleted. As with a run, everything else is computed; and as there, a tag is chosen once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import StopRequested, Unknown
from holdfast.core.messages import Part, plain
from holdfast.errors import IllegalEvent

#: Characters of a title that is made of the first words.
LONGEST_WORDS = 60


class _Note(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    pass


class SessionCreated(_Note, frozen=True, tag="session.created"):
    """`instructions` and `model` are for runs that bring none of their own."""

    title: str = ""
    instructions: str = ""
    model: str = ""
    surface: str = ""
    principal: str = ""


class RunAdded(_Note, frozen=True, tag="run.added"):
    """Written with the run's first event. `ordinal` counts the runs of the session from 1.

    `words` are the first of what was asked, where the session has no title yet.
    """

    run_id: str
    ordinal: int
    words: str = ""


class SessionRenamed(_Note, frozen=True, tag="session.renamed"):
    title: str
    by: str = ""


class SessionPinned(_Note, frozen=True, tag="session.pinned"):
    pinned: bool
    by: str = ""


class SessionArchived(_Note, frozen=True, tag="session.archived"):
    archived: bool
    by: str = ""


class SessionDeleted(_Note, frozen=True, tag="session.deleted"):
    """It is gone for everyone, and can be restored until it is purged."""

    by: str = ""


class SessionRestored(_Note, frozen=True, tag="session.restored"):
    by: str = ""


SessionEvent: TypeAlias = (
    SessionCreated
    | RunAdded
    | SessionRenamed
    | SessionPinned
    | SessionArchived
    | SessionDeleted
    | SessionRestored
)


class Noted(Struct, frozen=True, gc=False):
    """An event of a session in its place in the session's journal: as Recorded is for a run."""

    seq: int
    at: float
    event: SessionEvent | Unknown
    body: bytes


class SessionState(Struct, frozen=True):
    """Where a session stands. `moved_at` is when somebody last said something in it."""

    seq: int = 0
    created_at: float = 0.0
    moved_at: float = 0.0
    title: str = ""
    words: str = ""
    instructions: str = ""
    model: str = ""
    surface: str = ""
    principal: str = ""
    pinned: bool = False
    archived: bool = False
    deleted_at: float | None = None
    #: How many runs were added, and the last of them.
    runs: int = 0
    last_run: str = ""

    @property
    def name(self) -> str:
        """What to call it: its title, or how it began."""
        return self.title or self.words


def fold_session(state: SessionState, noted: Noted) -> SessionState:
    """The state after one more event. An event of a newer version changes nothing.

    Raises IllegalEvent for one that cannot happen now.
    """
    event = noted.event
    if not isinstance(event, Unknown):
        _check(state, event)
        state = _FOLDS[type(event)](state, event, noted.at)
    return replace(state, seq=noted.seq)


def replay_session(journal: Iterable[Noted]) -> SessionState:
    return reduce(fold_session, journal, SessionState())


def last_wish(deleted: SessionDeleted) -> StopRequested:
    """What is wished for every run of a session that is deleted."""
    return StopRequested(by=deleted.by, reason="its session was deleted")


def first_words(parts: tuple[Part, ...]) -> str:
    """What a session is called until somebody names it."""
    line = " ".join(plain(parts).split())
    if len(line) <= LONGEST_WORDS:
        return line
    whole = line[:LONGEST_WORDS].rpartition(" ")[0]
    return f"{whole or line[:LONGEST_WORDS]}…"


def _check(state: SessionState, event: SessionEvent) -> None:
    begins = isinstance(event, SessionCreated)
    if begins is not (state.seq == 0):
        raise IllegalEvent("a session begins once, and with being created")
    gone = state.deleted_at is not None
    if not begins and gone is not isinstance(event, SessionRestored):
        said = "is deleted" if gone else "is not deleted"
        raise IllegalEvent(f"{type(event).__name__} cannot happen to a session that {said}")
    if isinstance(event, RunAdded) and event.ordinal != state.runs + 1:
        raise IllegalEvent(f"run {event.ordinal} is not the next one of its session")


def _created(state: SessionState, event: SessionCreated, at: float) -> SessionState:
    return replace(
        state,
        created_at=at,
        moved_at=at,
        title=event.title,
        instructions=event.instructions,
        model=event.model,
        surface=event.surface,
        principal=event.principal,
    )


def _added(state: SessionState, event: RunAdded, at: float) -> SessionState:
    return replace(
        state,
        moved_at=at,
        words=state.words or event.words,
        # Who says something in it wants to see it.
        archived=False,
        runs=event.ordinal,
        last_run=event.run_id,
    )


_FOLDS: Mapping[type[Any], Callable[[SessionState, Any, float], SessionState]] = {
    SessionCreated: _created,
    RunAdded: _added,
    SessionRenamed: lambda state, event, _: replace(state, title=event.title),
    SessionPinned: lambda state, event, _: replace(state, pinned=event.pinned),
    SessionArchived: lambda state, event, _: replace(state, archived=event.archived),
    SessionDeleted: lambda state, _, at: replace(state, deleted_at=at),
    SessionRestored: lambda state, _event, _: replace(state, deleted_at=None),
}
