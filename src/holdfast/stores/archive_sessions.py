"""The sessions in a data directory, read without owning it: see `archive`.

A file that an older version wrote holds none until somebody owns it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import Any

import apsw
import msgspec

from holdfast.core.entries import Entry
from holdfast.core.luggage import Carried, Luggage
from holdfast.core.marker import marked, marker
from holdfast.core.messages import lone
from holdfast.core.session import Noted, RunAdded, SessionState, fold_session
from holdfast.core.transcript import Transcript, grow
from holdfast.errors import (
    IllegalEvent,
    InvalidRequest,
    JournalDamaged,
    NotFound,
    SessionGone,
)
from holdfast.ports import Member, SessionEntry
from holdfast.stores.archive import Archive
from holdfast.stores.reading import link
from holdfast.stores.sessions import members_of, read_notes, session_entries, session_entry

#: How many candidates are named when it is not clear which session is meant.
_NAMED = 3

#: The version that first had sessions.
_SINCE = 3

#: More than there are of anything.
_ALL = 2**62


class ArchivedSessions:
    """Those of an archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        db = archive.connection
        self._db = db if db is not None and db.pragma("user_version") >= _SINCE else None

    def list(
        self, *, archived: bool | None = False, deleted: bool = False, limit: int = _ALL
    ) -> Sequence[SessionEntry]:
        """As `ports.Sessions.sessions`."""
        if self._db is None:
            return ()
        how = {"archived": archived, "deleted": deleted, "limit": limit}
        return session_entries(self._db, text="", before=None, **how)  # type: ignore[arg-type]

    def ids(self) -> Sequence[str]:
        """Every session, the oldest first, deleted or not."""
        return self._ids("select id from session order by key")

    def find(self, word: str, *, deleted: bool = False) -> str:
        """The id that is meant by this one, or by the beginning of one, with or without `ses_`.

        Raises NotFound or InvalidRequest. One that was deleted is looked for only if that is said.
        """
        if lone(word) is not None or not word:
            raise NotFound("session", word)
        for start in (word, f"ses_{word}"):
            if self._ids("select id from session where id = ?", start):
                return self._there(start, deleted=deleted)
        for start in (word, f"ses_{word}"):
            if found := self._beginning(start, deleted=deleted):
                return self._one_of(found, word)
        raise NotFound("session", word)

    def _beginning(self, start: str, *, deleted: bool) -> Sequence[str]:
        kept = "" if deleted else " and deleted_at is null"
        # Of our own words; what was asked for is bound.
        return self._ids(
            f"select id from session where substr(id, 1, ?) = ?{kept} order by key desc",  # noqa: S608
            len(start),
            start,
        )

    def _one_of(self, found: Sequence[str], word: str) -> str:
        if len(found) > 1:
            some = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
            raise InvalidRequest(
                f"{len(found)} sessions begin with {word}: {some}; type more of it"
            )
        return found[0]

    def _there(self, session_id: str, *, deleted: bool) -> str:
        if not deleted and self.entry(session_id).state.deleted_at is not None:
            raise SessionGone(session_id)
        return session_id

    def entry(self, session_id: str) -> SessionEntry:
        """Raises NotFound."""
        return session_entry(self._kept(session_id), session_id)

    def notes(self, session_id: str) -> Sequence[Noted]:
        """Raises NotFound, or JournalDamaged."""
        return read_notes(self._kept(session_id), session_id)

    def members(self, session_id: str) -> Sequence[Member]:
        """Its runs, the first first. Raises NotFound."""
        found = members_of(self._kept(session_id), session_id, before=None, limit=_ALL)
        return list(reversed(found))

    # --- what is made of them

    def transcript(self, session_id: str, *, lives: bool, now: float) -> Iterator[Entry]:
        """All there is to show, the last first. `lives`: there is an owner, who carries runs."""
        for member in reversed(self.members(session_id)):
            yield from reversed(self._told(member, lives=lives, now=now))

    def _told(self, member: Member, *, lives: bool, now: float) -> tuple[Entry, ...]:
        run_id, ordinal = member.run_id, member.ordinal
        events = self._archive.events(run_id)
        told = reduce(grow, events, Transcript(run_id, ordinal))
        mark = marker(told.state, leased=lives, workers=lives, now=now)
        return marked(told.entries, mark, run_id=run_id, ordinal=ordinal)

    def luggage(self, session_id: str) -> Luggage:
        """All of it as of one moment, to be carried elsewhere. Raises JournalDamaged."""
        with self._db or nullcontext():
            self._verify(session_id)
            runs = [self._carried(member.run_id) for member in self.members(session_id)]
            return Luggage(session_id, self.notes(session_id), runs)

    def _carried(self, run_id: str) -> Carried:
        self._archive.verify(run_id)
        return Carried(
            run_id, list(self._archive.events(run_id)), dict(self._archive.blobs(run_id))
        )

    # --- is it what was written?

    def verify(self, session_id: str) -> int:
        """Check its journal against its sums, and what stands beside it against the journal.

        Returns how many events there are. Raises JournalDamaged.
        """
        # Seen as of one moment: the session may be going on.
        with self._db or nullcontext():
            return self._verify(session_id)

    def _verify(self, session_id: str) -> int:
        db, notes = self._kept(session_id), self.notes(session_id)
        chain, *told = db.execute(
            "select sum, state, name, pinned, archived, moved_at, deleted_at from session"
            " where id = ?",
            (session_id,),
        ).get
        state, before = SessionState(), b""
        for noted in notes:
            state = _fold(session_id, state, noted)
            before = link(before, noted.seq, noted.at, noted.body)
        if not notes or before != chain or not _says(told, state):
            raise _damaged(session_id, state.seq + 1, "what is listed of it is not what it says")
        added = [one.event for one in notes if isinstance(one.event, RunAdded)]
        members = [(member.ordinal, member.run_id) for member in self.members(session_id)]
        if members != [(one.ordinal, one.run_id) for one in added]:
            raise _damaged(session_id, state.seq, "its runs are not those it tells of")
        return state.seq

    # --- rows

    def _kept(self, session_id: str) -> apsw.Connection:
        if self._db is None:
            raise NotFound("session", session_id)
        return self._db

    def _ids(self, query: str, *values: object) -> Sequence[str]:
        rows: Any = self._db.execute(query, values) if self._db else ()
        return [id for (id,) in rows if isinstance(id, str)]


def _fold(session_id: str, state: SessionState, noted: Noted) -> SessionState:
    try:
        return fold_session(state, noted)
    except IllegalEvent as error:
        raise _damaged(session_id, noted.seq, str(error)) from error


def _says(told: Sequence[Any], state: SessionState) -> bool:
    """Whether what stands beside the journal is what that adds up to."""
    kept, *columns = told
    listed = [state.name.casefold(), state.pinned, state.archived, state.moved_at, state.deleted_at]
    return columns == listed and msgspec.json.decode(kept, type=SessionState) == state


def _damaged(session_id: str, seq: int, what: str) -> JournalDamaged:
    return JournalDamaged(session_id, seq, what, kind="session")
