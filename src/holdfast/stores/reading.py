"""Reading the file: a run by its id, its events, the newest first, and what was asked for once.

Only the ends of a journal are read for a list. An entry whose ends cannot be read is left out:
to say what is wrong with it is what verifying is for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import blake2b
from struct import pack
from typing import Any

import apsw

from holdfast.core.codec import recall
from holdfast.core.events import Recorded
from holdfast.core.messages import lone
from holdfast.errors import InvalidRequest, JournalDamaged, KeyReused, NotFound, StoreError
from holdfast.ports import Entry, Once

#: Seconds for which a key stands for the request it came with.
KEPT = 24 * 3600.0

_ENDS = (
    "select seq, at, coalesce(event.body, blob.body) from event"
    " left join blob on blob.sha256 = event.long"
    " where run = ?1 and seq in (1, (select max(seq) from event where run = ?1)) order by seq"
)


def find(connection: apsw.Connection, run_id: str) -> tuple[int, str]:
    """The run's key, and where it is. Raises NotFound."""
    if lone(run_id) is not None:
        raise InvalidRequest("the id of a run cannot hold half a character")
    found: tuple[int, str] | None = connection.execute(
        "select key, place from run where id = ?", (run_id,)
    ).get
    if found is None:
        raise NotFound("run", run_id)
    return found


def entries_of(
    connection: apsw.Connection, *, session: str, live: bool | None, before: str, limit: int
) -> Sequence[Entry]:
    """What cannot be read is left out, and hides nothing that comes after it."""
    clauses, values = ["key < ?"], list[object]()
    clauses.append("session not in (select id from session where deleted_at is not null)")
    if session:
        # The second of them says that the index will do.
        clauses.append("session = ? and session != ''")
        values.append(session)
    if live is not None:
        clauses.append("place != 'ended'" if live else "place = 'ended'")
    # Of our own words; what was asked for is bound.
    query = f"select key, id from run where {' and '.join(clauses)} order by key desc limit ?"  # noqa: S608
    key = find(connection, before)[0] if before else sys.maxsize
    found: list[Entry] = []
    while missing := limit - len(found):
        rows: list[Any] = connection.execute(query, (key, *values, missing)).fetchall()
        for key, run_id in rows:
            if entry := entry_of(connection, key, run_id):
                found.append(entry)
        if len(rows) < missing:
            break
    return found


def entry_of(connection: apsw.Connection, key: int, run_id: str) -> Entry | None:
    """The ends of a journal; None if they cannot be read."""
    try:
        rows: list[Any] = connection.execute(_ENDS, (key,)).fetchall()
        ends = [recall(*row) for row in rows]
    except (StoreError, TypeError):
        return None
    return Entry(run_id, ends[0], ends[-1]) if ends else None


def find_once(connection: apsw.Connection, once: Once, *, now: float) -> str | None:
    """The run that this request led to. Raises KeyReused if it was another request."""
    row: tuple[str, str] | None = connection.execute(
        "select fingerprint, run from once where principal = ? and key = ? and at >= ?",
        (once.principal, once.key, now - KEPT),
    ).get
    if row is None:
        return None
    if row[0] != once.fingerprint:
        raise KeyReused(once.key)
    return row[1]


def link(before: bytes, seq: int, at: float, body: bytes) -> bytes:
    """The sum of an event: made of the one before it, so that none can be changed or left out."""
    return blake2b(before + pack(">Qd", seq, at) + body, digest_size=16).digest()


def read(
    connection: apsw.Connection, key: int, *, after: int, limit: int = -1
) -> Sequence[Recorded]:
    """Events of a run past `after`, from the file.

    Raises JournalDamaged at the first that is not what was written, or is missing.
    """
    rows: list[Any] = connection.execute(
        "select seq, at, coalesce(event.body, blob.body), sum from event"
        " left join blob on blob.sha256 = event.long"
        " where run = ? and seq > ? order by seq limit ?",
        (key, after, limit),
        # All at once: a reader that gave up half-way would see the file as of that moment for ever.
    ).fetchall()
    query = "select sum from event where run = ? and seq = ?"
    chain = connection.execute(query, (key, after)).get if after else b""
    events = []
    for expected, (seq, at, body, sum) in enumerate(rows, after + 1):
        if seq != expected or not _follows(chain, seq, at, body, sum):
            run_id = connection.execute("select id from run where key = ?", (key,)).get
            raise JournalDamaged(run_id, expected, "it is missing or is not what was written")
        chain = sum
        events.append(recall(seq, at, body))
    return events


def _follows(before: object, seq: int, at: object, body: object, sum: object) -> bool:
    """Whether this is what was written there; each may have become anything."""
    if isinstance(before, bytes) and isinstance(at, float) and isinstance(body, bytes):
        return link(before, seq, at, body) == sum
    return False
