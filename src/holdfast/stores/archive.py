"""The journals in a data directory, read without owning it.

Whoever owns the directory may be writing meanwhile; a reader sees what is committed and is in
nobody's way. Nothing here changes what is stored.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

import apsw

from holdfast.core.codec import recall
from holdfast.core.events import FINAL, Recorded
from holdfast.core.messages import lone
from holdfast.core.refs import needs, refs
from holdfast.errors import (
    FileDamaged,
    InvalidRequest,
    JournalDamaged,
    NotFound,
    SchemaTooNew,
    StoreError,
)
from holdfast.stores.database import lacks_space, open_reader, refuse_remains, scripts
from holdfast.stores.packing import unpress
from holdfast.stores.reading import THERE, Stored, ends, has_packs, stored

#: How many candidates are named when it is not clear which run is meant.
_NAMED = 3

#: Where a run can be when nobody is looking.
_PLACES = ("ready", "held", "resting", "behind", "ended")

#: The blobs that a run uses, and whether they are links, for these need others.
_HELD = (
    "with recursive chain (link) as (select link from link_use where run = ?1"
    " union select before from chain join link on key = link where before is not null)"
    " select sha256, body, pressed, 1 from chain join link on key = link"
    " union all select sha256, body, pressed, 0 from"
    " (select sha256 from blob_use where run = ?1"
    " union select sha256 from chain join link_blob using (link)) left join blob using (sha256)"
    " order by sha256"
)
_ONCE_HELD = (
    "select sha256, body, 0, 0 from blob_use left join blob using (sha256) where run = ?"
    " order by sha256"
)

#: An id as it is stored, if it is a text: whether it can be read is another matter.
_ID = "case when typeof(id) = 'text' then cast(id as blob) end"

#: The version in which runs could first be deleted.
_SINCE = 5

#: Pages copied at a time, between which whoever copies can be told to end.
_PAGES = 500


@dataclass(frozen=True)
class Entry:
    """A run in the list: how it began, and the last thing that happened to it."""

    id: str
    first: Recorded
    last: Recorded

    @property
    def ended(self) -> bool:
        return isinstance(self.last.event, FINAL)


@dataclass(frozen=True)
class Row:
    """An event as it is stored."""

    seq: int
    at: float
    body: bytes
    sum: bytes


class Archive:
    """Open it with `open_archive`."""

    def __init__(self, connection: apsw.Connection | None) -> None:
        self._db = connection
        self._packs = connection is not None and has_packs(connection)
        deletes = connection is not None and connection.pragma("user_version") >= _SINCE
        #: What is told of a session is read by the ids of its runs, be they found or not.
        self._there = THERE if deletes else "true"

    @property
    def connection(self) -> apsw.Connection | None:
        """None if there is no file yet."""
        return self._db

    # --- runs

    def count(self) -> int:
        return self._one(self._found("count(*)")) or 0

    def newest(self, *, limit: int = -1) -> list[str]:
        """Runs, the newest first."""
        return self._ids(self._found(_ID, "order by key desc limit ?"), limit)

    def entry(self, run_id: str) -> Entry:
        """Raises NotFound, or JournalDamaged if there is no telling how it began or where it is."""
        recorded: list[Recorded] = []
        for one in self._ends(run_id):
            _check_row(run_id, one.seq if recorded else 1, one)
            recorded.append(_recall(run_id, one.seq, one.at, one.body))
        if not recorded:
            raise JournalDamaged(run_id, 1, "it is missing")
        return Entry(run_id, recorded[0], recorded[-1])

    def length(self, run_id: str) -> int:
        """The seq of the last event there is. Raises NotFound."""
        return self._one("select max(seq) from event where run = ?", self._key(run_id)) or 0

    def unfinished(self) -> list[str]:
        """Runs that have not ended, the oldest first."""
        return self._ids(self._found(_ID, "and place != 'ended' order by key"))

    def ids(self, *, deleted: bool = False) -> list[str]:
        """Every run, the oldest first, or even those that were deleted by themselves or with their session."""
        every = f"select {_ID} from run order by key"  # noqa: S608 (of our own words)
        return self._ids(every if deleted else self._found(_ID, "order by key"))

    def find(self, word: str) -> str:
        """The id that is meant by this one, or by the beginning of one, with or without `run_`."""
        if lone(word) is not None:
            raise NotFound("run", word)
        whole = word if word.startswith("run_") else f"run_{word}"
        for start in (word, whole):
            if self._one(self._found("id", "and id = ?"), start):
                return start
        beginning = self._found(_ID, "and substr(id, 1, ?) = ? order by key desc")
        ids = self._ids(beginning, len(whole), whole)
        if not ids or whole == "run_":
            raise NotFound("run", word)
        if len(ids) > 1:
            some = ", ".join(ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")
            raise InvalidRequest(f"{len(ids)} runs begin with {word}: {some}; type more of it")
        return ids[0]

    # --- events

    def events(self, run_id: str, *, after: int = 0) -> Iterator[Recorded]:
        """What is recorded past `after`, in order. Raises NotFound, or JournalDamaged."""
        for row in self.rows(run_id, after=after):
            yield _recall(run_id, row.seq, row.at, row.body)

    def rows(self, run_id: str, *, after: int = 0) -> Iterator[Row]:
        """The same, as it is stored."""
        for expected, one in enumerate(self._stored(run_id, after), after + 1):
            _check_row(run_id, expected, one)
            yield Row(one.seq, one.at, one.body, one.sum)

    def blobs(self, run_id: str) -> Iterator[tuple[str, bytes]]:
        """What the run's events refer to, and what that needs, but for bodies that are merely long."""
        longs = "select long from event where run = ? and long is not null"
        long = {name for (name,) in self._all(longs, self._key(run_id))}
        for name, body, _ in self._held(run_id):
            if name not in long and isinstance(body, bytes):
                yield name, body

    def verify(self, run_id: str) -> int:
        """Check every event against its sum, and return how many there are.

        Raises JournalDamaged at the first that is not as it was written, or is missing.
        """
        # Seen as of one moment: the run may be going on.
        with self._db or nullcontext():
            return self._verify(run_id)

    def _verify(self, run_id: str) -> int:
        expected, last = 1, None
        needed: set[str] = set()
        try:
            for one in self._stored(run_id, 0):
                _check_row(run_id, expected, one)
                if one.long and sha256(one.body).hexdigest() != one.long:
                    raise JournalDamaged(run_id, one.seq, "its body is not what was written")
                if not one.sound:
                    raise JournalDamaged(run_id, one.seq, "it does not match its checksum")
                last = _recall(run_id, one.seq, one.at, one.body)
                needed |= {one.long} if one.long else set()
                needed |= {ref.sha256 for ref in refs(last.event)}
                expected = one.seq + 1
            self._verify_end(run_id, expected, last)
            self._verify_blobs(run_id, expected - 1, needed)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise JournalDamaged(run_id, expected, f"it cannot be read ({error})") from error
        return expected - 1

    def _verify_end(self, run_id: str, expected: int, last: Recorded | None) -> None:
        if last is None:
            raise JournalDamaged(run_id, 1, "it is missing")
        ended = isinstance(last.event, FINAL)
        place = self._one("select place from run where id = ?", run_id)
        if place not in _PLACES:
            raise JournalDamaged(run_id, expected - 1, "there is no telling where the run was left")
        if (place == "ended") != ended:
            what = "it is missing" if not ended else "it is an end, and the run counts as live"
            raise JournalDamaged(run_id, expected if not ended else expected - 1, what)

    def _verify_blobs(self, run_id: str, seq: int, needed: set[str]) -> None:
        """What the run needs is there, is the run's, and is what its name says."""
        here: set[str] = set()
        for name, body, linked in self._held(run_id):
            if not isinstance(body, bytes):
                raise JournalDamaged(run_id, seq, f"blob {name} is gone")
            if sha256(body).hexdigest() != name:
                raise JournalDamaged(run_id, seq, f"blob {name} is not what it was")
            here.add(name)
            needed |= set(needs(body)) if linked else set()
        for name in sorted(needed - here):
            raise JournalDamaged(
                run_id, seq, f"blob {name} is gone, or nobody keeps it for the run"
            )

    def verify_file(self) -> None:
        """Check the file itself, below what the events say. Raises FileDamaged."""
        try:
            problem = self._one("pragma integrity_check(1)")
            loose = self._all("select [table], parent from pragma_foreign_key_check() limit 1")
            odd = (self._one("select count(*) from run") or 0) - len(self.ids(deleted=True))
            for table, parent in loose:
                raise FileDamaged(f"the file is damaged: a row of {table} has lost its {parent}")
        except apsw.Error as error:
            raise FileDamaged(f"the file is damaged: {error}") from error
        if problem not in (None, "ok"):
            raise FileDamaged(f"the file is damaged: {problem}")
        if odd:
            raise FileDamaged("the file is damaged: the id of a run is no text")

    # --- a copy

    def back_up(self, target: Path, *, force: bool = False) -> None:
        """Write a copy of everything, as of now. It appears under its name when it is whole."""
        if self._db is None:
            raise StoreError("there is no journal to back up yet")
        if not target.name or lone(str(target.parent)) is not None:
            raise InvalidRequest(f"{target} is no name that a copy can have")
        if _same(target.parent, Path(self._db.filename).parent):
            raise InvalidRequest(f"{target} is in the data directory; write the copy elsewhere")
        if not force and os.path.lexists(target):
            raise InvalidRequest(f"{target} is there already; --force replaces it")
        partial = target.with_name(f".holdfast-{token_hex(4)}")
        try:
            _create(partial)
            _copy(self._db, partial)
            _sync(partial)
            partial.replace(target)
            _sync(target.parent)
        except OSError as error:
            raise StoreError(f"{target} cannot be written: {error.strerror}") from error
        except apsw.Error as error:
            raise StoreError(f"{target} cannot be written: {error}") from error
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    # --- rows

    def _stored(self, run_id: str, after: int) -> Iterator[Stored]:
        key = self._key(run_id)
        assert self._db is not None
        return stored(self._db, run_id, key, after=after, packs=self._packs)

    def _ends(self, run_id: str) -> Sequence[Stored]:
        key = self._key(run_id)
        assert self._db is not None
        return ends(self._db, run_id, key, packs=self._packs)

    def _held(self, run_id: str) -> Iterator[tuple[str, Any, int]]:
        """The blobs that are kept for the run, by name. Each may have become anything."""
        rows = self._all(_HELD if self._packs else _ONCE_HELD, self._key(run_id))
        return ((name, unpress(body, pressed), linked) for name, body, pressed, linked in rows)

    def _key(self, run_id: str) -> int:
        key: int | None = self._one("select key from run where id = ?", run_id)
        if key is None:
            raise NotFound("run", run_id)
        return key

    def _found(self, what: str, rest: str = "") -> str:
        """A query for runs that are there to be found. Of our own words: what is asked is bound."""
        return f"select {what} from run where {self._there} {rest}"  # noqa: S608

    def _ids(self, query: str, *values: object) -> list[str]:
        """Those that can be read: one may have become anything."""
        return [id for (raw,) in self._all(query, *values) if (id := _text(raw))]

    def _one(self, query: str, *values: object) -> Any:
        return None if self._db is None else self._db.execute(query, values).get

    def _all(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        return iter(()) if self._db is None else iter(self._db.execute(query, values))


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The journals in this file, or none if there is no file yet. Raises StoreError."""
    connection = _open(path)
    try:
        yield Archive(connection)
    except apsw.Error as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise FileDamaged(f"{path} is damaged: {error}") from error
    finally:
        if connection:
            connection.close()


def _open(path: Path) -> apsw.Connection | None:
    """None if there is nothing in it yet: whoever made the file may have died over it."""
    if not _is_there(path):
        return None
    connection = None
    try:
        connection = open_reader(path)
        version, known = connection.pragma("user_version"), len(scripts())
        tables = connection.execute("select count(*) from sqlite_schema").get
    except apsw.Error as error:
        if connection:
            connection.close()
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY_ROLLBACK:
            # Half-way to being a journal with a log of its own, which it is ever after.
            return None
        raise _unreadable(path, error) from error
    if 0 < version <= known:
        return connection
    connection.close()
    if version:
        raise SchemaTooNew(str(path), version, known)
    if tables:
        raise FileDamaged(f"{path} is damaged: it no longer says which version wrote it")
    return None


def _is_there(path: Path) -> bool:
    """Raises StoreError if there is no telling, and FileDamaged if it is gone."""
    if lone(str(path)) is not None:
        raise StoreError(f"{path} cannot be read: its name is not UTF-8")
    try:
        there = path.exists()
        if not there:
            refuse_remains(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    if there and not os.access(path, os.R_OK):
        # Asked, not opened: closing it again would take away locks that this process holds on it.
        raise StoreError(f"{path} cannot be read: Permission denied")
    return there


def _unreadable(path: Path, error: apsw.Error) -> StoreError:
    said = f"{path} cannot be read: {error}"
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
    return FileDamaged(said) if damaged else StoreError(said)


def _text(raw: bytes | None) -> str:
    """ "" for what is no text any more."""
    try:
        return raw.decode() if raw else ""
    except UnicodeDecodeError:
        return ""


def _check_row(run_id: str, expected: int, one: Stored) -> None:
    """Raises JournalDamaged. Whatever stands there may have become anything."""
    if one.seq != expected:
        raise JournalDamaged(run_id, expected, "it is missing")
    if not isinstance(one.body, bytes):
        raise JournalDamaged(run_id, one.seq, "its body is gone")
    if not isinstance(one.at, float):
        raise JournalDamaged(run_id, one.seq, "its time is gone")


def _recall(run_id: str, seq: int, at: float, body: bytes) -> Recorded:
    try:
        return recall(seq, at, body)
    except StoreError as error:
        raise JournalDamaged(run_id, seq, str(error)) from error


def _copy(source: apsw.Connection, partial: Path) -> None:
    copy = apsw.Connection(str(partial))
    try:
        # All of it as of one moment, however long it takes.
        with source, copy.backup("main", source, "main") as backup:
            source.execute("select count(*) from run").fetchall()
            while not backup.done:
                backup.step(_PAGES)
    except apsw.Error as error:
        if lacks_space(copy, error):
            # Its own words are those of a connection that knows of no error.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
    finally:
        copy.close()


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
