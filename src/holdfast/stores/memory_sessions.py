"""Sessions in memory: their journals, the order of their runs, and the order of themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from holdfast.core.codec import note
from holdfast.core.events import RunAccepted
from holdfast.core.session import (
    Noted,
    RunAdded,
    SessionCreated,
    SessionEvent,
    SessionRestored,
    SessionState,
    first_words,
    fold_session,
    replay_session,
)
from holdfast.errors import Conflict, NotFound, SessionGone
from holdfast.ports import ListPlace


@dataclass
class Session:
    log: list[Noted] = field(default_factory=list)
    state: SessionState = field(default_factory=SessionState)
    #: Its runs, in their order.
    runs: list[str] = field(default_factory=list)


class MemorySessions(dict[str, Session]):
    """By their ids. `stir` is called for each that is written to."""

    def __init__(self, now: Callable[[], float], stir: Callable[[str], None]) -> None:
        super().__init__()
        self._now, self._stir = now, stir

    def find(self, session_id: str) -> Session:
        try:
            return self[session_id]
        except KeyError:
            raise NotFound("session", session_id) from None

    def check_there(self, session_id: str) -> None:
        """Raises SessionGone. One that never was is not gone."""
        if self.is_deleted(session_id):
            raise SessionGone(session_id)

    def is_deleted(self, session_id: str) -> bool:
        found = self.get(session_id)
        return found is not None and found.state.deleted_at is not None

    def deleted_before(self, at: float) -> Sequence[str]:
        """Their ids."""
        gone = ((id, one.state.deleted_at) for id, one in self.items())
        return [id for id, when in gone if when is not None and when < at]

    def check_new(self, session_id: str) -> None:
        """Raises Conflict."""
        if session_id in self:
            raise Conflict(f"session {session_id} already exists")

    def note(self, session_id: str, *events: SessionEvent) -> Sequence[Noted]:
        if isinstance(events[0], SessionCreated):
            self.check_new(session_id)
        else:
            self.find(session_id)
            if not isinstance(events[0], SessionRestored):
                self.check_there(session_id)
        return self._write(session_id, *events)

    def join(self, run_id: str, first: RunAccepted) -> None:
        """Add the run to its session, which begins with it if there is none."""
        session_id = first.session_id
        if session_id not in self:
            began = SessionCreated(surface=first.surface, principal=first.principal)
            self._write(session_id, began)
        state = self[session_id].state
        words = "" if state.name else first_words(first.input)
        self._write(session_id, RunAdded(run_id=run_id, ordinal=state.runs + 1, words=words))
        self[session_id].runs.append(run_id)

    def take_in(self, session_id: str, notes: Sequence[Noted], runs: Sequence[str]) -> None:
        """Keep one that comes from elsewhere."""
        self[session_id] = Session(list(notes), replay_session(notes), list(runs))
        self._stir(session_id)

    def listed(
        self, *, archived: bool | None, deleted: bool, text: str, before: ListPlace | None
    ) -> Sequence[str]:
        """Their ids, in the order of a list."""
        places = {
            id: ListPlace(one.state.pinned, one.state.moved_at, id) for id, one in self.items()
        }
        return [
            id
            for id in sorted(self, key=places.__getitem__, reverse=True)
            if (archived is None or self[id].state.archived is archived)
            and (self[id].state.deleted_at is not None) is deleted
            and text.casefold() in self[id].state.name.casefold()
            and (before is None or places[id] < before)
        ]

    def _write(self, session_id: str, *events: SessionEvent) -> Sequence[Noted]:
        found, at = self.get(session_id, Session()), self._now()
        batch = [note(seq, at, event) for seq, event in enumerate(events, len(found.log) + 1)]
        found.state = reduce(fold_session, batch, found.state)
        found.log += batch
        self[session_id] = found
        self._stir(session_id)
        return batch
