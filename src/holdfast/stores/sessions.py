"""Sessions in the file: their journals, their place in a list, and the runs they are made of.

What writes runs in the writer's thread, inside its transaction; what reads, anywhere. What a
session's journal adds up to stands beside it, so that a list need not read journals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from holdfast.core.codec import note, recall_note
from holdfast.core.events import RunAccepted
from holdfast.core.messages import lone
from holdfast.core.session import (
    Noted,
    RunAdded,
    SessionCreated,
    SessionEvent,
    SessionRestored,
    SessionState,
    first_words,
    fold_session,
)
from holdfast.errors import (
    Conflict,
    InvalidRequest,
    JournalDamaged,
    NotFound,
    SessionGone,
)
from holdfast.ports import ListPlace, Member, SessionEntry
from holdfast.stores.keeping import name_of, remove_run
from holdfast.stores.reading import entry_of, link

#: One that has not begun waits for those before it, as if they had been there when it came.
_FALL_IN = (
    "update run set place = 'behind' where id = ? and place = 'ready' and epoch = 0 and exists"
    " (select 1 from run as first where first.session = run.session and first.session != ''"
    " and first.ordinal between 1 and run.ordinal - 1 and first.place != 'ended')"
)

_states = msgspec.json.Decoder(SessionState)


class _Row(Struct, frozen=True):
    key: int
    sum: bytes
    state: SessionState


# --- writing ---------------------------------------------------------------------------


def write_notes(
    db: apsw.Connection, session_id: str, events: Sequence[SessionEvent], *, at: float
) -> Sequence[Noted]:
    """Raises Conflict, NotFound, SessionGone or IllegalEvent, and has written nothing then."""
    found = _look(db, session_id)
    begins = isinstance(events[0], SessionCreated)
    if begins and found:
        raise Conflict(f"session {session_id} already exists")
    if not begins and found is None:
        raise NotFound("session", session_id)
    if found and not isinstance(events[0], SessionRestored):
        _check_there(session_id, found)
    return _write(db, session_id, found, events, at=at)


def join(
    db: apsw.Connection, run_id: str, first: RunAccepted, *, at: float
) -> tuple[int, Sequence[Noted]]:
    """Add the run to its session, which begins with it if there is none. Returns its ordinal, and
    what was noted.

    Raises SessionGone.
    """
    session_id = first.session_id
    events: list[SessionEvent] = []
    found = _look(db, session_id)
    if found is None:
        events.append(SessionCreated(surface=first.surface, principal=first.principal))
    else:
        _check_there(session_id, found)
    state = found.state if found else SessionState()
    words = "" if state.name else first_words(first.input)
    events.append(RunAdded(run_id=run_id, ordinal=state.runs + 1, words=words))
    return state.runs + 1, _write(db, session_id, found, events, at=at)


def _check_there(session_id: str, found: _Row) -> None:
    if found.state.deleted_at is not None:
        raise SessionGone(session_id)


def _write(
    db: apsw.Connection,
    session_id: str,
    found: _Row | None,
    events: Sequence[SessionEvent],
    *,
    at: float,
) -> Sequence[Noted]:
    state, chain = (found.state, found.sum) if found else (SessionState(), b"")
    batch, rows = [], []
    for event in events:
        noted = note(state.seq + 1, at, event)
        state = fold_session(state, noted)
        chain = link(chain, noted.seq, at, noted.body)
        batch.append(noted)
        rows.append((noted.seq, at, noted.body, chain))
    key = _put(db, session_id, found.key if found else None, state, chain)
    _insert_notes(db, key, rows)
    return batch


def insert_session(
    db: apsw.Connection,
    session_id: str,
    state: SessionState,
    rows: Sequence[tuple[int, float, bytes, bytes]],
) -> None:
    """Keep a journal that comes from elsewhere, row by row, and what it adds up to."""
    key = _put(db, session_id, None, state, rows[-1][-1])
    _insert_notes(db, key, rows)


def _insert_notes(
    db: apsw.Connection, key: int, rows: Sequence[tuple[int, float, bytes, bytes]]
) -> None:
    db.executemany("insert into session_event values (?, ?, ?, ?, ?)", [(key, *r) for r in rows])


def _put(
    db: apsw.Connection, session_id: str, key: int | None, state: SessionState, chain: bytes
) -> int:
    told = (state.name.casefold(), state.pinned, state.archived, state.moved_at, state.deleted_at)
    row = (session_id, *told, msgspec.json.encode(state), chain)
    if key is None:
        db.execute(
            "insert into session (id, name, pinned, archived, moved_at, deleted_at, state, sum)"
            " values (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return db.last_insert_rowid()
    db.execute(
        "update session set id = ?, name = ?, pinned = ?, archived = ?, moved_at = ?,"
        " deleted_at = ?, state = ?, sum = ? where key = ?",
        (*row, key),
    )
    return key


def adopt(db: apsw.Connection) -> None:
    """Make sessions of what runs say they belong to, where an older version has made none."""
    rows: list[Any] = db.execute(
        "select id, session, accepted_at from run where session != '' and ordinal = 0 order by key"
    ).fetchall()
    for run_id, session_id, at in rows:
        # What was asked stands in the run's journal, which may be damaged; a name can be given.
        first = RunAccepted(input=(), models=(), session_id=session_id)
        ordinal, _ = join(db, run_id, first, at=at)
        db.execute("update run set ordinal = ? where id = ?", (ordinal, run_id))
        db.execute(_FALL_IN, (run_id,))


def purge(db: apsw.Connection, *, before: float, limit: int = 20) -> Mapping[str, Sequence[str]]:
    """Remove sessions that were deleted before that time, and whose runs have all ended.

    Returns them, and their runs.
    """
    rows: list[Any] = db.execute(
        "select key, cast(id as blob) from session where deleted_at < ? and not exists"
        " (select 1 from run where run.session = session.id and run.session != ''"
        " and place != 'ended') limit ?",
        (before, limit),
    ).fetchall()
    gone: dict[str, Sequence[str]] = {}
    for key, session_id in rows:
        runs: list[Any] = db.execute(
            "select key, cast(id as blob) from run where session != ''"
            " and session = (select id from session where key = ?)",
            (key,),
        ).fetchall()
        for run, _ in runs:
            remove_run(db, run)
        db.execute("delete from session_event where session = ?", (key,))
        db.execute("delete from session where key = ?", (key,))
        gone[name_of(session_id)] = [name_of(run_id) for _, run_id in runs]
    return gone


# --- reading ---------------------------------------------------------------------------


def read_notes(db: apsw.Connection, session_id: str, *, after: int = 0) -> Sequence[Noted]:
    """Raises NotFound, or JournalDamaged at the first that is not what was written."""
    key = _find(db, session_id).key
    rows: list[Any] = db.execute(
        "select seq, at, body, sum from session_event where session = ? and seq > ? order by seq",
        (key, after),
    ).fetchall()
    query = "select sum from session_event where session = ? and seq = ?"
    chain = db.execute(query, (key, after)).get if after else b""
    notes = []
    for expected, (seq, at, body, sum) in enumerate(rows, after + 1):
        whole = isinstance(at, float) and isinstance(body, bytes) and isinstance(chain, bytes)
        if seq != expected or not whole or link(chain, seq, at, body) != sum:
            said = "it is missing or is not what was written"
            raise JournalDamaged(session_id, expected, said, kind="session")
        chain = sum
        notes.append(recall_note(seq, at, body))
    return notes


def run_ids(db: apsw.Connection, session_id: str) -> Sequence[str]:
    """All its runs, in no order."""
    query = "select cast(id as blob) from run where session = ? and session != ''"
    return [name_of(run_id) for (run_id,) in db.execute(query, (session_id,))]


def session_entry(
    db: apsw.Connection, session_id: str, *, aside: Collection[str] = ()
) -> SessionEntry:
    """`aside`: runs whose turn it is not, since nobody can make sense of them."""
    return _entry(db, session_id, _find(db, session_id).state, aside)


def session_entries(
    db: apsw.Connection,
    *,
    archived: bool | None,
    deleted: bool,
    text: str,
    before: ListPlace | None,
    limit: int,
    aside: Collection[str] = (),
) -> Sequence[SessionEntry]:
    clauses, values = [f"deleted_at is {'not null' if deleted else 'null'}"], list[object]()
    if archived is not None:
        clauses.append("archived = ?")
        values.append(archived)
    if text:
        clauses.append("instr(name, ?)")
        values.append(text.casefold())
    if before:
        clauses.append("(pinned, moved_at, id) < (?, ?, ?)")
        values += before
    # Of our own words; what was asked for is bound.
    rows: list[Any] = db.execute(
        f"select id, state from session where {' and '.join(clauses)}"  # noqa: S608
        " order by pinned desc, moved_at desc, id desc limit ?",
        (*values, limit),
    ).fetchall()
    entries = []
    for id, state in rows:
        # What cannot be read is left out, and hides nothing that comes after it.
        with suppress(JournalDamaged):
            entries.append(_entry(db, id, _decode(id, state), aside))
    return entries


def members_of(
    db: apsw.Connection, session_id: str, *, before: int | None, limit: int
) -> Sequence[Member]:
    _find(db, session_id)
    rows: list[Any] = db.execute(
        "select ordinal, id, place = 'ended' from run where session = ? and session != ''"
        " and ordinal < ? order by ordinal desc limit ?",
        (session_id, 2**62 if before is None else before, limit),
    ).fetchall()
    return [Member(ordinal, run_id, bool(ended)) for ordinal, run_id, ended in rows]


def _entry(
    db: apsw.Connection, session_id: str, state: SessionState, aside: Collection[str]
) -> SessionEntry:
    live: list[Any] = db.execute(
        "select key, id from run where session = ? and session != '' and place != 'ended'"
        " order by ordinal",
        (session_id,),
    ).fetchall()
    last: Any = db.execute(
        "select key, id from run where session = ? and session != '' order by ordinal desc limit 1",
        (session_id,),
    ).get
    front = next((run for run in live if run[1] not in aside), None)
    told = entry_of(db, *(front or last)) if last else None
    return SessionEntry(session_id, state, told, len(live), busy=front is not None)


def _find(db: apsw.Connection, session_id: str) -> _Row:
    found = _look(db, session_id)
    if found is None:
        raise NotFound("session", session_id)
    return found


def _look(db: apsw.Connection, session_id: str) -> _Row | None:
    if lone(session_id) is not None:
        raise InvalidRequest("the id of a session cannot hold half a character")
    row: Any = db.execute("select key, sum, state from session where id = ?", (session_id,)).get
    return _Row(row[0], row[1], _decode(session_id, row[2])) if row else None


def _decode(session_id: str, state: bytes) -> SessionState:
    try:
        return _states.decode(state)
    except (msgspec.DecodeError, TypeError) as error:
        said = f"what is listed of it cannot be read: {error}"
        raise JournalDamaged(session_id, 1, said, kind="session") from error
