"""Reading the file: a run by its id, its events, the newest first, and what was asked for once.

Only the ends of a journal are read for a list. An entry whose ends cannot be read is left out:
to say what is wrong with it is what verifying is for.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from math import inf
from struct import pack
from typing import Any, NamedTuple

import apsw

from holdfast.core.codec import recall
from holdfast.core.events import Recorded
from holdfast.core.lease import remaining
from holdfast.core.messages import lone
from holdfast.errors import InvalidRequest, JournalDamaged, KeyReused, NotFound, StoreError
from holdfast.ports import Entry, Once
from holdfast.stores.packing import unpack, unpress
from holdfast.stores.roster import Run

#: Seconds for which a key stands for the request it came with.
KEPT = 24 * 3600.0

#: The rows that hold what comes after a place, and the one before them: its sum is where the chain of
#: the others begins. In one statement, since what is being packed is in these rows or in those.
_ROWS = (
    "select seq, at, event.body, long, sum, {packed}"
    " from event left join blob on blob.sha256 = event.long{base}"
    " where run = ?1 and seq >="
    " (select coalesce(max(seq), 0) from event where run = ?1 and seq <= ?2)"
    " order by seq limit ?3"
)
_NOW = _ROWS.format(
    packed="event.packed, blob.body, blob.pressed, base.body, base.pressed",
    base=" left join base on base.key = event.base",
)
#: In a file that nobody has written to since events can be packed.
_ONCE = _ROWS.format(packed="0, blob.body, 0, null, 0", base="")


#: Neither the run nor its session was deleted. One of no session is not looked for among them.
THERE = (
    "deleted_at is null and (session = '' or not exists"
    " (select 1 from session where session.id = run.session and session.deleted_at is not null))"
)
_FIND = f"select key, place from run where id = ? and (? or {THERE})"  # noqa: S608 (of our own words)


class Stored(NamedTuple):
    """An event as it stands in the file, where each part may have become anything.

    `long` is the name of the blob that its body stands in, if it does. `before` is the sum of the
    event before it, as that stands there. `checked`: it came with others, and all were looked at.
    """

    seq: int
    at: Any
    body: Any
    long: str | None
    sum: Any
    before: Any
    checked: bool = False

    @property
    def sound(self) -> bool:
        """Whether it is what was written after the one before."""
        if self.checked:
            return True
        before, at, body = self.before, self.at, self.body
        if isinstance(before, bytes) and isinstance(at, float) and isinstance(body, bytes):
            return bool(link(before, self.seq, at, body) == self.sum)
        return False


def find(connection: apsw.Connection, run_id: str, *, deleted: bool = False) -> tuple[int, str]:
    """The run's key, and where it is. Raises NotFound, unless `deleted` also for one that was, or
    whose session was."""
    if lone(run_id) is not None:
        raise InvalidRequest("the id of a run cannot hold half a character")
    found: tuple[int, str] | None = connection.execute(_FIND, (run_id, deleted)).get
    if found is None:
        raise NotFound("run", run_id)
    return found


def entries_of(
    connection: apsw.Connection, *, session: str, live: bool | None, before: str, limit: int
) -> Sequence[Entry]:
    """What cannot be read is left out, and hides nothing that comes after it."""
    clauses, values = ["key < ?", THERE], list[object]()
    if session:
        # The second of them says that the index will do.
        clauses.append("session = ? and session != ''")
        values.append(session)
    if live is not None:
        clauses.append("place != 'ended'" if live else "place = 'ended'")
    # Of our own words; what was asked for is bound.
    query = f"select key, id from run where {' and '.join(clauses)} order by key desc limit ?"  # noqa: S608
    key = find(connection, before, deleted=True)[0] if before else sys.maxsize
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
        found = [recall(one.seq, one.at, one.body) for one in ends(connection, run_id, key)]
    except (StoreError, TypeError):
        return None
    return Entry(run_id, found[0], found[-1]) if found else None


def live_runs(connection: apsw.Connection, *, now: float, clock: float) -> Iterator[Run]:
    """What had not ended when the file was last written. Whoever held a run then is gone."""
    rows = connection.execute(
        "select run.key, id, place, epoch, ready_at, ready_in, timed, session, ordinal,"
        " deleted_at is not null,"
        " exists (select 1 from session"
        " where session.id = run.session and session.deleted_at is not null), seq, sum"
        " from run join event"
        " on event.run = run.key and seq ="
        " (select max(seq) from event as last where last.run = run.key)"
        " where place != 'ended'"
    )
    for key, id, place, epoch, ready_at, ready_in, timed, session, ordinal, *rest in rows:
        deleted, gone, seq, sum = rest
        wait = remaining(ready_at - ready_in, ready_in, now=now) if place == "ready" else 0.0
        yield Run(
            id=id,
            key=key,
            seq=seq,
            sum=sum,
            epoch=epoch,
            # Should it have become anything else, it is an orphan's, and somebody looks after it.
            place=place if place in ("ready", "resting", "behind") else "held",
            ready_at=clock + wait,
            timed=bool(timed),
            session=session,
            ordinal=ordinal,
            deleted=bool(deleted),
            gone=bool(gone),
        )


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


def ends(connection: apsw.Connection, run_id: str, key: int, *, packs: bool = True) -> list[Stored]:
    """The first and the last event there are, or the one that is both."""
    query = "select max(seq) from event where run = ? and typeof(seq) = 'integer'"
    last = connection.execute(query, (key,)).get or 0
    places = dict.fromkeys((0, max(last - 1, 0)))
    found = (stored(connection, run_id, key, after=at, limit=1, packs=packs) for at in places)
    return [one for events in found for one in [*events][:1]]


def stored(
    connection: apsw.Connection,
    run_id: str,
    key: int,
    *,
    after: int = 0,
    limit: int = -1,
    packs: bool = True,
) -> Generator[Stored, None, None]:
    """Events of a run past `after`, as they stand in the file. Whether they are sound is for whoever
    reads them to see, but for those that are packed: raises JournalDamaged if these are not.

    `limit` is how many rows are read, each of which holds an event or more. `packs`: see `has_packs`.
    """
    before: object = b""
    last = after
    values = (key, after, limit + 1 if limit >= 0 and after else limit)
    rows = connection.execute(_NOW if packs else _ONCE, values)
    try:
        for seq, at, body, long, sum, count, blob, blob_pressed, base, base_pressed in rows:
            if not isinstance(seq, int) or not isinstance(count, int):
                yield Stored(seq, at, None, long, sum, before)
            elif count and seq > after:
                events = _spread(before, seq, body, count, unpress(base, base_pressed))
                if not events or events[-1].sum != sum:
                    raise JournalDamaged(run_id, seq - count + 1, "it is not what was written")
                yield from (one for one in events if one.seq > after)
            elif seq > after:
                found = unpress(blob, blob_pressed) if body is None else body
                yield Stored(seq, at, found, long, sum, before)
            before, last = sum, seq if isinstance(seq, int) else last
    except UnicodeDecodeError as error:
        # What were bytes is text now, and no text.
        raise JournalDamaged(run_id, max(last, after) + 1, "it cannot be read") from error
    finally:
        # A reader that gave up half-way would see the file as of that moment for ever.
        rows.close()


def has_packs(connection: apsw.Connection) -> bool:
    """Whether this file was opened to be written since events can be packed."""
    found = "select 1 from pragma_table_info('event') where name = 'packed'"
    return connection.execute(found).get is not None


def _spread(before: object, last: int, body: object, count: int, base: object) -> Sequence[Stored]:
    """The events of a pack, each with the sum that follows from it, or none if it cannot be read."""
    events: list[Stored] = []
    if isinstance(before, bytes) and isinstance(body, bytes):
        with suppress(ValueError):
            dictionary = base if isinstance(base, bytes) else b""
            for seq, (at, one) in enumerate(unpack(body, count, dictionary), last - count + 1):
                sum = link(before, seq, at, one)
                events.append(Stored(seq, at, one, None, sum, before, checked=True))
                before = sum
    return events


def read(
    connection: apsw.Connection, key: int, *, after: int, limit: int = -1, most: float = inf
) -> Sequence[Recorded]:
    """Events of a run past `after`, from the file: so many, or what makes up so many bytes.

    Raises JournalDamaged at the first that is not what was written, or is missing.
    """
    run_id: str = connection.execute("select id from run where key = ?", (key,)).get
    events: list[Recorded] = []
    with closing(stored(connection, run_id, key, after=after, limit=limit)) as found:
        for expected, one in enumerate(found, after + 1):
            if one.seq != expected or not one.sound:
                raise JournalDamaged(run_id, expected, "it is missing or is not what was written")
            events.append(recall(one.seq, one.at, one.body))
            most -= len(one.body)
            if most <= 0:
                break
    return events if limit < 0 else events[:limit]


def read_page(
    connection: apsw.Connection, run_id: str, *, after: int, limit: int, most: float = inf
) -> tuple[Sequence[Recorded], bool]:
    """What comes right after `after`, and whether nothing follows if that is nothing."""
    # The place first: whatever it is, what led to it is in the events that are read after.
    key, place = find(connection, run_id)
    return read(connection, key, after=after, limit=limit, most=most), place == "ended"
