"""Journals as lines of JSON, to be carried elsewhere.

For each run a header, then the blobs it refers to, then one line an event, body and checksum as
they are stored. What must not leave the machine is masked; the header says where, because a
masked body no longer matches its sum. Whoever takes a run in checks every sum that can be
checked, and takes all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec
from msgspec import Struct

from holdfast.core.codec import recall
from holdfast.core.events import FINAL, Recorded, RunAccepted
from holdfast.core.run import replay
from holdfast.errors import Conflict, IllegalEvent, JournalDamaged, StoreError
from holdfast.stores.archive import Archive, Row
from holdfast.stores.database import open_writer
from holdfast.stores.ledger import LONG_BODY, link

VERSION = 1
MASK = "[masked]"


class Header(Struct, frozen=True):
    """`masked` are the events, and `masked_blobs` the blobs, that hold a mask for a secret."""

    holdfast_journal: int
    run: str
    events: int
    blobs: int = 0
    masked: tuple[int, ...] = ()
    masked_blobs: tuple[str, ...] = ()


class BlobLine(Struct, frozen=True):
    blob: str
    data: bytes


class EventLine(Struct, frozen=True):
    seq: int
    at: float
    body: msgspec.Raw
    sum: str


class Parcel(Struct, frozen=True):
    """One run on its way: what its lines say."""

    header: Header
    blobs: Sequence[BlobLine]
    events: Sequence[EventLine]


_Line = TypeVar("_Line", Header, BlobLine, EventLine)


# --- out ------------------------------------------------------------------------------------


def export(archive: Archive, run_id: str, *, secrets: Sequence[str] = ()) -> Iterator[bytes]:
    """The lines of one run."""
    spellings = [spelling for secret in secrets for spelling in _spellings(secret)]
    rows = list(archive.rows(run_id))
    blobs = list(archive.blobs(run_id))
    bodies = [_mask(row.body, spellings) for row in rows]
    contents = [_mask(body, spellings) for _, body in blobs]
    header = Header(
        holdfast_journal=VERSION,
        run=run_id,
        events=len(rows),
        blobs=len(blobs),
        masked=tuple(r.seq for r, body in zip(rows, bodies, strict=True) if r.body != body),
        masked_blobs=tuple(b[0] for b, body in zip(blobs, contents, strict=True) if b[1] != body),
    )
    yield _line(header)
    for (name, _), content in zip(blobs, contents, strict=True):
        yield _line(BlobLine(name, content))
    for row, body in zip(rows, bodies, strict=True):
        yield _line(EventLine(row.seq, row.at, msgspec.Raw(body), row.sum.hex()))


def _line(value: Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _spellings(secret: str) -> Iterator[bytes]:
    """As it is, as it stands in JSON, and as it stands in JSON that stands in JSON."""
    text = secret
    seen = set()
    for _ in range(3):
        if text not in seen:
            seen.add(text)
            yield text.encode(errors="surrogateescape")
        text = msgspec.json.encode(text.encode(errors="replace").decode()).decode()[1:-1]


def _mask(body: bytes, spellings: Iterable[bytes]) -> bytes:
    for spelling in spellings:
        body = body.replace(spelling, MASK.encode())
    return body


# --- in -------------------------------------------------------------------------------------


def parcels(lines: Iterable[bytes]) -> Iterator[Parcel]:
    """The runs in these lines. Raises StoreError for lines that are no journal, or not all of it."""
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        header = _read(Header, number, line)
        if header.holdfast_journal > VERSION:
            raise StoreError(f"line {number} was written by a newer version of holdfast")
        blobs = [_next(BlobLine, numbered, header) for _ in range(header.blobs)]
        events = [_next(EventLine, numbered, header) for _ in range(header.events)]
        yield Parcel(header, blobs, events)


def take_in(path: Path, parcel: Parcel) -> None:
    """Add the run to the journals in this file, which the caller owns.

    Raises Conflict if it is there already, and JournalDamaged if it is not what was exported.
    """
    recorded = _check(parcel)
    try:
        connection = open_writer(path)
        try:
            with connection:
                _insert(connection, parcel, recorded)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be written: {error}") from error


def _next(kind: type[_Line], lines: Iterator[tuple[int, bytes]], header: Header) -> _Line:
    number, line = next(lines, (0, b""))
    if not number:
        raise StoreError(f"the lines end in the middle of run {header.run}")
    return _read(kind, number, line)


def _read(kind: type[_Line], number: int, line: bytes) -> _Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"line {number} is not a line of an exported journal: {error}") from error


def _check(parcel: Parcel) -> Sequence[Recorded]:
    """The events, each as it was when it left, or masked by whoever sent it."""
    run_id, masked = parcel.header.run, frozenset(parcel.header.masked)
    recorded: list[Recorded] = []
    before = b""
    for expected, line in enumerate(parcel.events, 1):
        body = bytes(line.body)
        if line.seq != expected:
            raise JournalDamaged(run_id, expected, "it is missing")
        sum = _unhex(line.sum)
        if line.seq not in masked and link(before, line.seq, line.at, body) != sum:
            raise JournalDamaged(run_id, line.seq, "it does not match its checksum")
        before = sum
        try:
            recorded.append(recall(line.seq, line.at, body))
        except StoreError as error:
            raise JournalDamaged(run_id, line.seq, str(error)) from error
    for blob in parcel.blobs:
        known = blob.blob in parcel.header.masked_blobs
        if not known and sha256(blob.data).hexdigest() != blob.blob:
            raise JournalDamaged(run_id, 1, f"blob {blob.blob} is not what it was")
    _check_story(run_id, recorded)
    return recorded


def _check_story(run_id: str, recorded: Sequence[Recorded]) -> None:
    if not recorded or not isinstance(recorded[0].event, RunAccepted):
        raise JournalDamaged(run_id, 1, "a run begins by being accepted, and this one does not")
    try:
        replay(recorded)
    except IllegalEvent as error:
        raise JournalDamaged(run_id, len(recorded), str(error)) from error


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _insert(connection: apsw.Connection, parcel: Parcel, recorded: Sequence[Recorded]) -> None:
    run_id = parcel.header.run
    if connection.execute("select 1 from run where id = ?", (run_id,)).get:
        raise Conflict(f"run {run_id} is here already")
    ended = isinstance(recorded[-1].event, FINAL)
    at = recorded[0].at
    connection.execute(
        "insert into run (id, place, epoch, accepted_at, ready_at, ready_in)"
        " values (?, ?, ?, ?, ?, 0)",
        (run_id, "ended" if ended else "ready", replay(recorded).epoch, at, at),
    )
    key = connection.last_insert_rowid()
    for blob in parcel.blobs:
        # What is masked is no longer what its name says, and is left out.
        if blob.blob not in parcel.header.masked_blobs:
            _keep(connection, key, blob.blob, blob.data)
    for row in _chained(recorded):
        long = sha256(row.body).hexdigest() if len(row.body) > LONG_BODY else None
        if long:
            _keep(connection, key, long, row.body)
        connection.execute(
            "insert into event (run, seq, at, body, long, sum) values (?, ?, ?, ?, ?, ?)",
            (key, row.seq, row.at, None if long else row.body, long, row.sum),
        )


def _chained(recorded: Iterable[Recorded]) -> Iterator[Row]:
    """With sums made anew, so that they hold for masked bodies too."""
    chain = b""
    for one in recorded:
        chain = link(chain, one.seq, one.at, one.body)
        yield Row(one.seq, one.at, one.body, chain)


def _keep(connection: apsw.Connection, key: int, name: str, body: bytes) -> None:
    connection.execute("insert or ignore into blob values (?, ?)", (name, body))
    connection.execute("insert or ignore into blob_use values (?, ?)", (name, key))
