"""The journals in a data directory, read without owning it.

Whoever owns the directory may be writing meanwhile; a reader sees what is committed and is in
nobody's way. Nothing here changes what is stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

import apsw

from holdfast.core.codec import decode, recall
from holdfast.core.events import FINAL, Recorded
from holdfast.errors import InvalidRequest, JournalDamaged, NotFound, SchemaTooNew, StoreError
from holdfast.stores.database import open_reader, scripts
from holdfast.stores.ledger import link

#: How many candidates are named when it is not clear which run is meant.
_NAMED = 3


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

    # --- runs

    def count(self) -> int:
        return self._one("select count(*) from run") or 0

    def entries(self, *, limit: int = -1) -> Iterator[Entry]:
        """Runs, the newest first."""
        for key, id in self._all("select key, id from run order by key desc limit ?", limit):
            yield self._entry(key, id)

    def entry(self, run_id: str) -> Entry:
        return self._entry(self._key(run_id), run_id)

    def unfinished(self) -> list[str]:
        """Runs that have not ended, the oldest first."""
        return [id for (id,) in self._all("select id from run where place != 'ended' order by key")]

    def ids(self) -> list[str]:
        """Every run, the oldest first."""
        return [id for (id,) in self._all("select id from run order by key")]

    def find(self, word: str) -> str:
        """The id that is meant by this one, or by the beginning of one, with or without `run_`."""
        whole = word if word.startswith("run_") else f"run_{word}"
        for start in (word, whole):
            if self._one("select id from run where id = ?", start):
                return start
        ids = [
            id
            for (id,) in self._all(
                "select id from run where substr(id, 1, ?) = ? order by key desc",
                len(whole),
                whole,
            )
        ]
        if not ids or whole == "run_":
            raise NotFound("run", word)
        if len(ids) > 1:
            some = ", ".join(ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")
            raise InvalidRequest(f"{len(ids)} runs begin with {word}: {some}; type more of it")
        return str(ids[0])

    # --- events

    def events(self, run_id: str, *, after: int = 0) -> Iterator[Recorded]:
        """What is recorded past `after`, in order. Raises NotFound."""
        for row in self.rows(run_id, after=after):
            yield recall(row.seq, row.at, row.body)

    def rows(self, run_id: str, *, after: int = 0) -> Iterator[Row]:
        """The same, as it is stored."""
        for seq, at, body, _, chain in self._stored(run_id, after):
            if not isinstance(body, bytes):
                raise JournalDamaged(run_id, seq, "its body is gone")
            yield Row(seq, at, body, chain)

    def blobs(self, run_id: str) -> Iterator[tuple[str, bytes]]:
        """What the run's events refer to, but for bodies that are merely long."""
        yield from self._all(
            "select sha256, blob.body from blob_use join blob using (sha256) where run = ?"
            " and sha256 not in (select long from event where run = ? and long is not null)"
            " order by sha256",
            *(self._key(run_id),) * 2,
        )

    def verify(self, run_id: str) -> int:
        """Check every event against its sum, and return how many there are.

        Raises JournalDamaged at the first that is not as it was written, or is missing.
        """
        # Seen as of one moment: the run may be going on.
        with self._db or nullcontext():
            return self._verify(run_id)

    def _verify(self, run_id: str) -> int:
        expected, before, last = 1, b"", None
        try:
            for seq, at, body, long, chain in self._stored(run_id, 0):
                if seq != expected:
                    raise JournalDamaged(run_id, expected, "it is missing")
                if not isinstance(body, bytes):
                    raise JournalDamaged(run_id, seq, "its body is gone")
                if long and sha256(body).hexdigest() != long:
                    raise JournalDamaged(run_id, seq, "its body is not what was written")
                if link(before, seq, at, body) != chain:
                    raise JournalDamaged(run_id, seq, "it does not match its checksum")
                expected, before, last = seq + 1, chain, body
            self._verify_end(run_id, expected, last)
            for name, body in self.blobs(run_id):
                if sha256(body).hexdigest() != name:
                    raise JournalDamaged(run_id, expected - 1, f"blob {name} is not what it was")
        except apsw.Error as error:
            raise JournalDamaged(run_id, expected, f"it cannot be read ({error})") from error
        return expected - 1

    def _verify_end(self, run_id: str, expected: int, last: bytes | None) -> None:
        if last is None:
            raise JournalDamaged(run_id, 1, "it is missing")
        ended = isinstance(decode(last), FINAL)
        place = self._one("select place from run where id = ?", run_id)
        if (place == "ended") != ended:
            what = "it is missing" if not ended else "it is an end, and the run counts as live"
            raise JournalDamaged(run_id, expected if not ended else expected - 1, what)

    def verify_file(self) -> None:
        """Check the file itself, below what the events say. Raises StoreError."""
        problem = self._one("pragma quick_check(1)")
        if problem not in (None, "ok"):
            raise StoreError(f"the file is damaged: {problem}")

    # --- a copy

    def back_up(self, target: Path, *, force: bool = False) -> None:
        """Write a copy of everything, as of now. It appears under its name when it is whole."""
        if self._db is None:
            raise StoreError("there is no journal to back up yet")
        if not force and os.path.lexists(target):
            raise InvalidRequest(f"{target} is there already; --force replaces it")
        partial = target.with_name(f".{target.name}.{token_hex(4)}")
        try:
            _create(partial)
            copy = apsw.Connection(str(partial))
            try:
                with copy.backup("main", self._db, "main") as backup:
                    backup.step()
            finally:
                copy.close()
            _sync(partial)
            partial.replace(target)
            _sync(target.parent)
        except OSError as error:
            raise StoreError(f"{target} cannot be written: {error.strerror}") from error
        except apsw.Error as error:
            raise StoreError(f"{target} cannot be written: {error}") from error
        finally:
            partial.unlink(missing_ok=True)

    # --- rows

    def _entry(self, key: int, id: str) -> Entry:
        ends = self._all(
            "select seq, at, coalesce(event.body, blob.body) from event"
            " left join blob on blob.sha256 = event.long"
            " where run = ? and seq in (1, (select max(seq) from event where run = ?))"
            " order by seq",
            key,
            key,
        )
        recorded = [recall(*row) for row in ends]
        if not recorded:
            raise JournalDamaged(id, 1, "it is missing")
        return Entry(id, recorded[0], recorded[-1])

    def _stored(self, run_id: str, after: int) -> Iterator[tuple[Any, ...]]:
        return self._all(
            "select seq, at, coalesce(event.body, blob.body), long, sum from event"
            " left join blob on blob.sha256 = event.long"
            " where run = ? and seq > ? order by seq",
            self._key(run_id),
            after,
        )

    def _key(self, run_id: str) -> int:
        key: int | None = self._one("select key from run where id = ?", run_id)
        if key is None:
            raise NotFound("run", run_id)
        return key

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
        raise StoreError(f"{path} cannot be read: {error}") from error
    finally:
        if connection:
            connection.close()


def _open(path: Path) -> apsw.Connection | None:
    """None if there is nothing in it yet: whoever made the file may have died over it."""
    if not path.exists():
        return None
    connection = None
    try:
        connection = open_reader(path)
        version, known = connection.pragma("user_version"), len(scripts())
    except apsw.Error as error:
        if connection:
            connection.close()
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY_ROLLBACK:
            # Half-way to being a journal with a log of its own, which it is ever after.
            return None
        raise StoreError(f"{path} cannot be read: {error}") from error
    if 0 < version <= known:
        return connection
    connection.close()
    if version:
        raise SchemaTooNew(str(path), version, known)
    return None


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
