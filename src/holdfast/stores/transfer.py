"""Journals as lines of JSON, to be carried elsewhere.

For each run a header, then the blobs it refers to, then one line an event, body and checksum as
they are stored. What must not leave the machine is masked; the header says where, because a
masked body no longer matches its sum. Whoever takes a run in checks every sum that can be
checked, and takes all of it or nothing.

Lines may come from anybody. What they say has happened is history; what they would have happen
here is not obeyed, unless somebody says that they can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

import apsw
import msgspec
from msgspec import Struct

from holdfast.core.arrival import (
    LONGEST_ID,
    WORKER,
    check_blobs,
    check_names,
    check_story,
    closed,
    is_id,
    placed,
)
from holdfast.core.codec import recall
from holdfast.core.events import FINAL, Event, Recorded, RunAccepted, RunQueued, RunStarted
from holdfast.core.luggage import Carried
from holdfast.core.mask import Mask
from holdfast.core.refs import histories
from holdfast.core.run import replay
from holdfast.core.state import RunState
from holdfast.errors import InvalidRequest, JournalDamaged, SessionGone, StoreError
from holdfast.stores.archive import Archive
from holdfast.stores.database import open_writer
from holdfast.stores.intake import insert_run, refuse_known
from holdfast.stores.reading import link

VERSION = 1

#: Bytes. No line of ours is longer than this, and none that is longer is read to its end.
LONGEST_LINE = 128 * 1024 * 1024

_DELETED = "select 1 from session where id = ? and deleted_at is not null"
_BUSY = "select 1 from run where session = ? and session != '' and place != 'ended'"


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
    """The lines of one run. Raises JournalDamaged before the first of them."""
    archive.verify(run_id)
    rows = list(archive.rows(run_id))
    blobs = dict(archive.blobs(run_id))
    bodies = [row.body for row in rows]
    renamed: dict[str, tuple[str, int]] = {}
    if secrets:
        mask = Mask(secrets)
        try:
            first = recall(rows[0].seq, rows[0].at, rows[0].body).event
            said = [name for names in histories(first, blobs) for name in names]
            blobs, renamed = mask.blobs(blobs, said)
            bodies = mask.bodies(bodies, renamed)
        except (ValueError, RecursionError) as error:
            raise JournalDamaged(
                run_id, 1, f"it cannot be searched for secrets: {error}"
            ) from error
    header = Header(
        holdfast_journal=VERSION,
        run=run_id,
        events=len(rows),
        blobs=len(blobs),
        masked=tuple(r.seq for r, body in zip(rows, bodies, strict=True) if r.body != body),
        masked_blobs=tuple(sorted(name for name, _ in renamed.values())),
    )
    yield _line(header)
    for name, content in blobs.items():
        yield _line(BlobLine(name, content))
    for row, body in zip(rows, bodies, strict=True):
        yield _line(EventLine(row.seq, row.at, msgspec.Raw(body), row.sum.hex()))


def _line(value: Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


# --- in -------------------------------------------------------------------------------------


def read_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines in a file. Raises StoreError for one that does not end."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise StoreError("a line is longer than any of an exported journal; it was not read on")
        yield line


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


class Intake:
    """Open it with `open_intake`."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path, self._now = path, now
        self._db: apsw.Connection | None = None

    def take(self, parcel: Parcel, *, trust: bool = False) -> None:
        """Add the run to the journals in the file, all of it or nothing.

        Raises JournalDamaged if it is not what was exported, Conflict if it is there already, and
        InvalidRequest if it holds a yes that only `trust` lets stand. Without that its open calls
        are closed, so that nothing runs which was not reviewed here.
        """
        recorded = _check(parcel)
        if not trust:
            recorded = _distrust(parcel.header.run, recorded, self._now())
        try:
            self._db = self._db or open_writer(self._path)
            with self._db:
                _insert(self._db, parcel, recorded)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        if self._db is None:
            return
        try:
            # Somebody who reads may be in the way; whoever opens the file next sees to it then.
            with suppress(apsw.BusyError):
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._db.close()


@contextmanager
def open_intake(path: Path, *, now: Callable[[], float]) -> Iterator[Intake]:
    """Take runs into the journals in this file, which the caller owns. Raises StoreError."""
    intake = Intake(path, now)
    try:
        with closing(intake):
            yield intake
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


# --- is it what was exported? ---------------------------------------------------------------


def _check(parcel: Parcel) -> Sequence[Recorded]:
    """The events, each as it was when it left, or masked by whoever sent it."""
    run_id, masked = parcel.header.run, frozenset(parcel.header.masked)
    if not is_id(run_id):
        raise JournalDamaged(run_id[:LONGEST_ID] or "without an id", 1, "that is no id of a run")
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
    check_story(run_id, recorded)
    _check_blobs(parcel, recorded)
    return recorded


def _check_blobs(parcel: Parcel, recorded: Sequence[Recorded]) -> None:
    """Each is what its name says, and none that the run needs is missing."""
    run_id, here = parcel.header.run, {blob.blob: blob.data for blob in parcel.blobs}
    check_names(run_id, here)
    check_blobs(run_id, recorded, here)


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


# --- what is not obeyed ---------------------------------------------------------------------


def _distrust(run_id: str, recorded: Sequence[Recorded], at: float) -> Sequence[Recorded]:
    """The same, and what closes its open calls.

    How a call is gated, what a person was shown and what they said stands in the lines, and
    anybody can write lines. A model that is told that its call did not run asks again, and then
    the tool that is here reviews it.
    """
    state = replay(recorded)
    if state.status.final or state.stopping:
        return recorded
    if state.unknown:
        raise InvalidRequest(
            f"run {run_id} has not ended, and {state.unknown} in it was written by a newer version;"
            " --trust takes it in as it is"
        )
    if state.grants:
        tools = ", ".join(sorted({grant.tool for grant in state.grants}))
        raise InvalidRequest(
            f"run {run_id} has not ended, and a yes in it stands for whatever else {tools} is asked"
            " to do; --trust takes it in as it is"
        )
    if not state.open_tools:
        return recorded
    return [*recorded, *placed(state, at, _closing(state))]


def _closing(state: RunState) -> Iterator[Event]:
    """As a worker would write it that takes the run over and lets go of it."""
    yield RunStarted(worker=WORKER, epoch=state.epoch + 1)
    for tool in state.open_tools:
        yield closed(tool)
    yield RunQueued(why="drained", worker=WORKER, detail="it was taken in from elsewhere")


# --- rows -----------------------------------------------------------------------------------


def _insert(connection: apsw.Connection, parcel: Parcel, recorded: Sequence[Recorded]) -> None:
    run_id, session = parcel.header.run, _session(recorded)
    refuse_known(connection, run_id)
    if connection.execute(_DELETED, (session,)).get:
        raise SessionGone(session)
    place = "ended"
    if not isinstance(recorded[-1].event, FINAL):
        # One run of a session goes at a time.
        place = "behind" if connection.execute(_BUSY, (session,)).get else "ready"
    blobs = {blob.blob: blob.data for blob in parcel.blobs}
    insert_run(connection, Carried(run_id, recorded, blobs), place=place, session=session)


def _session(recorded: Sequence[Recorded]) -> str:
    first = recorded[0].event
    return first.session_id if isinstance(first, RunAccepted) else ""
