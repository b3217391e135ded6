"""One SQLite file, opened so that what is committed stays committed.

Write-ahead log, and a sync of it before a commit returns. Every setting is read back: SQLite
answers some that it cannot grant with silence. One connection writes and checkpoints, which
no other ever does; readers open the file read-only.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import apsw

from holdfast.errors import FileDamaged, SchemaTooNew, StoreError, StoreFull

#: "Hold", so that `file` and we know our own.
APPLICATION = 0x486F6C64

#: File systems on which locks and syncs are not what they are on a disk.
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs"})

#: Where Linux says what is mounted where. Elsewhere there is no telling.
_MOUNTS = Path("/proc/self/mountinfo")

#: What lies beside a journal that was once there.
REMAINS = (".reserve", "-wal")

#: How a list of mounts spells blanks.
_OCTAL = re.compile(r"\\([0-7]{3})")

#: Milliseconds to wait for whoever holds the file for a moment.
BUSY = 5000

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

#: Whatever a sync failed for, what the disk has kept is not known.
_SYNCS = frozenset({apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC})

#: What each connection is asked for, and has to answer.
WRITER = {
    "journal_mode": "wal",
    "synchronous": 2,
    "wal_autocheckpoint": 0,
    "mmap_size": 0,
    "foreign_keys": 1,
    "trusted_schema": 0,
    "cell_size_check": 1,
    # What is gone is overwritten: else its bytes stay in the file until their place is needed.
    "secure_delete": 1,
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
    make_folder(path.parent)
    new = not path.exists()
    if new:
        refuse_remains(path)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    # A reader that finds the log of a process that died holds the lock while it reads it.
    connection.set_busy_timeout(BUSY)
    try:
        _check_ours(connection, path)
        grant(connection, WRITER, path)
        migrate(connection, path, scripts())
    except apsw.Error as error:
        full = lacks_space(connection, error)
        connection.close()
        if full:
            raise no_space(path) from error
        raise
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
    connection.set_busy_timeout(BUSY)
    grant(connection, READER, path)
    try:
        connection.pragma("user_version")
    except apsw.Error as error:
        full = lacks_space(connection, error)
        connection.close()
        if full and not _has_log(path):
            return _open_as_it_lies(path)
        raise
    return connection


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _open_as_it_lies(path: Path) -> apsw.Connection:
    """Without the few pages that readers and a writer share: there is no space even for these.

    So nobody has the file open, and nobody can open it to write.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)
    grant(connection, READER, path)
    return connection


def lacks_space(connection: apsw.Connection, error: apsw.Error) -> bool:
    """Whether this failed for want of space, so that nothing is in doubt and more space helps."""
    if getattr(error, "extendedresult", 0) in _SYNCS:
        return False
    return isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError | apsw.CantOpenError) and connection.system_errno in FULL
    )


def no_space(path: Path) -> StoreFull:
    return StoreFull(
        f"there is no space left to go on with {path}; what is stored there can still be read"
    )


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


def refuse_remains(path: Path) -> None:
    """Raises FileDamaged if the journal is gone that left these: nobody begins anew over them."""
    for ending in REMAINS:
        left = path.with_name(path.name + ending)
        if left.exists() and left.stat().st_size:
            raise FileDamaged(
                f"{path} is gone, and {left.name} beside it is left; put the journal back, or"
                " move what is left away to begin a new one"
            )


def make_folder(folder: Path) -> None:
    """Make it, for its owner alone, and see that its name is kept as what it will hold."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync_directory(folder.parent)


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
        where = _OCTAL.sub(lambda found: chr(int(found[1], 8)), left.split()[4])
        inside = str(path.resolve()).startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):
            best, kind = where, right.split()[0]
    return kind
