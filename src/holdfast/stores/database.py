"""One SQLite file, opened so that what is committed stays committed.

Write-ahead log, and a sync of it before a commit returns. Every setting is read back: SQLite
answers some that it cannot grant with silence. One connection writes and checkpoints, which
no other ever does; readers open the file read-only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import apsw

from holdfast.errors import SchemaTooNew, StoreError

#: "Hold", so that `file` and we know our own.
APPLICATION = 0x486F6C64

#: File systems on which locks and syncs are not what they are on a disk.
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs"})

#: Where Linux says what is mounted where. Elsewhere there is no telling.
_MOUNTS = Path("/proc/self/mountinfo")

#: What each connection is asked for, and has to answer.
WRITER = {
    "journal_mode": "wal",
    "synchronous": 2,
    "wal_autocheckpoint": 0,
    "mmap_size": 0,
    "foreign_keys": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    **({"fullfsync": 1, "checkpoint_fullfsync": 1} if sys.platform == "darwin" else {}),
}
READER = {"query_only": 1, "mmap_size": 0, "trusted_schema": 0}


def open_writer(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """The one connection that writes. Creates the file, or brings an older one up to date.

    Raises StoreError for a file that is not ours, is from a newer version, or lies where no
    promise could be kept.
    """
    if _MOUNTS.exists():
        refuse_network(path, _MOUNTS.read_text())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = not path.exists()
    if new:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    try:
        _check_ours(connection, path)
        grant(connection, WRITER, path)
        migrate(connection, path, scripts())
    except BaseException:
        connection.close()
        raise
    if new:
        # The name of the file is as worth keeping as what is in it.
        _sync_directory(path.parent)
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A connection that reads, beside whoever writes. Raises StoreError if there is no file."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.CantOpenError as error:
        raise StoreError(f"there is no journal at {path}") from error
    connection.set_busy_timeout(5000)
    grant(connection, READER, path)
    return connection


def grant(connection: apsw.Connection, wanted: Mapping[str, object], path: Path) -> None:
    """Ask for these settings, and see that they are granted. Raises StoreError if one is not."""
    for name, value in wanted.items():
        connection.pragma(name, value)
        got = connection.pragma(name)
        if got != value:
            raise StoreError(f"{path} cannot be used: {name} is {got!r} there, not {value!r}")


def _check_ours(connection: apsw.Connection, path: Path) -> None:
    try:
        found = connection.pragma("application_id")
        tables = connection.execute("select count(*) from sqlite_schema").get
    except apsw.NotADBError as error:
        raise StoreError(f"{path} is no database; it is left as it is") from error
    if found != APPLICATION and tables:
        raise StoreError(f"{path} is a database of something else; it is left as it is")


def migrate(connection: apsw.Connection, path: Path, scripts: Sequence[str]) -> None:
    """Bring the file up to date: forward only, in one transaction, after a copy.

    Rows of events are never rewritten; old shapes are understood when they are read.
    """
    version = connection.pragma("user_version")
    if version > len(scripts):
        raise SchemaTooNew(str(path), version, len(scripts))
    if version == len(scripts):
        return
    if version:
        _copy(connection, path.with_name(f"{path.name}.before-{len(scripts)}"))
    with connection:
        connection.pragma("application_id", APPLICATION)
        for script in scripts[version:]:
            connection.execute(script)
        connection.pragma("user_version", len(scripts))


def _copy(connection: apsw.Connection, target: Path) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600))
    with apsw.Connection(str(target)) as copy, copy.backup("main", connection, "main") as backup:
        backup.step()
    copy.close()


def _sync_directory(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def scripts() -> list[str]:
    """What makes the schema, one script a version."""
    folder = files("holdfast.stores").joinpath("sql/sqlite")
    return [script.read_text() for script in sorted(folder.iterdir(), key=lambda one: one.name)]


def refuse_network(path: Path, mounts: str) -> None:
    """Raises StoreError if the path is on a network file system, by this list of mounts."""
    kind = file_system(path, mounts)
    if kind in NETWORK:
        raise StoreError(
            f"{path} is on {kind}, a network file system, where a journal cannot be kept safe;"
            " choose a data directory on a disk of this machine"
        )


def file_system(path: Path, mounts: str) -> str:
    """The kind of file system the path is on, from a list in the form of Linux's mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        where = left.split()[4]
        inside = str(path.absolute()).startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, right.split()[0]
    return kind
