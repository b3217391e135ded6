"""A disk that breaks on command, and remembers what was done to it.

    with Disk() as disk:
        disk.break_at(7, "tear")                        the seventh operation from now
        disk.break_at(1, "eio", on={"sync"}, times=inf)  every sync from now on
        disk.slow(0.2)                                  every sync takes that long
        async with open_sqlite(path, vfs=disk.name) as store:
            ...
            disk.mark("seq 3 was acknowledged")
        disk.log                                        all of it, in order

It is a layer of SQLite's own over the real disk: whoever names it when opening a file goes
through it, and readers that do not name it see the same file. Needs apsw.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, Self, TypeAlias

import apsw

#: What can be counted, and can break.
Kind: TypeAlias = Literal["write", "sync", "truncate", "delete"]

#: kill: the process is gone before the operation. tear: it is gone in the middle of a write.
#: eio: the operation fails. full: there is no space for it, and half a write may be there.
How: TypeAlias = Literal["kill", "tear", "eio", "full"]

KINDS: frozenset[Kind] = frozenset({"write", "sync", "truncate", "delete"})

#: What SQLite calls an operation of each kind that failed.
_CODES: dict[Kind, int] = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}

#: Files whose first sync settles that they are in their folder, too.
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL


@dataclass(frozen=True)
class Operation:
    """One thing that was done to a file, or to the folder, whose name is empty.

    `offset` is where a write began, or the size a file was cut to. A file that had something
    in it before anyone looked is `found`. A `mark` is no operation: it is what a test said in
    between.
    """

    kind: Kind | Literal["found", "create", "mark"]
    file: str = ""
    offset: int = 0
    data: bytes = b""
    mark: Any = None


@dataclass
class _Fault:
    how: How
    on: Collection[Kind]
    first: int
    last: float
    count: int = 0

    def strikes(self, kind: Kind) -> bool:
        if kind in self.on:
            self.count += 1
        return kind in self.on and self.first <= self.count <= self.last


class Disk(apsw.VFS):
    """`counts` what was asked of it by kind. `broke` is how often it did not do that."""

    def __init__(self) -> None:
        self.name = f"disk-{token_hex(8)}"
        self.counts: Counter[Kind] = Counter()
        self.broke = 0
        self.log: list[Operation] = []
        #: How it waits. It does so in the thread that asked.
        self.sleep: Callable[[float], None] = time.sleep  # noqa: TID251 (no loop runs there)
        self._fault: _Fault | None = None
        self._seconds = 0.0
        self._errno = 0
        self._seen: set[str] = set()
        super().__init__(self.name, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    # --- for whoever breaks it

    def break_at(
        self, number: int, how: How, *, on: Collection[Kind] = KINDS, times: float = 1
    ) -> None:
        """Break at the n-th operation of these kinds from now, and at so many in a row."""
        self._fault = _Fault(how, on, number, number + times - 1)

    def break_for_good(self, how: How, *, on: Collection[Kind] = KINDS) -> None:
        self.break_at(1, how, on=on, times=inf)

    def slow(self, seconds: float) -> None:
        """From now on a sync takes that long."""
        self._seconds = seconds

    def mend(self) -> None:
        self._fault, self._seconds = None, 0.0

    def mark(self, what: object) -> None:
        """Put this into the log, between what was done before and what comes next."""
        self.log.append(Operation("mark", mark=what))

    # --- for SQLite

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        made = path is not None and self._look_at(path)
        return DiskFile(self, name, flags, unsettled=made and bool(flags[0] & _JOURNALS))

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 (SQLite's name)
        self.ask("delete")
        super().xDelete(filename, syncdir)
        file = Path(filename).name
        self._seen.discard(file)
        self.log.append(Operation("delete", file))
        if syncdir:
            self.log.append(Operation("sync"))

    def xGetLastError(self) -> tuple[int, str]:  # noqa: N802 (SQLite's name)
        return self._errno, os.strerror(self._errno)

    def ask(self, kind: Kind) -> How | None:
        """Before an operation. How a write is to break in the middle; raises if it fails at once."""
        self.counts[kind] += 1
        if kind == "sync" and self._seconds:
            self.sleep(self._seconds)
        if self._fault is None or not self._fault.strikes(kind):
            return None
        self.broke += 1
        how = self._fault.how
        if how == "kill" or (how == "tear" and kind != "write"):
            die()  # pragma: no cover (nobody is left to tell)
        if kind == "write" and how != "eio":
            return how
        raise self.error(kind, how)

    def error(self, kind: Kind, how: How) -> apsw.Error:
        """What SQLite is told when an operation of this kind breaks."""
        full = how == "full"
        self._errno = errno.ENOSPC if full else errno.EIO
        if full and kind == "write":
            return apsw.FullError("there is no space left on the disk")
        error = apsw.IOError(f"the disk broke at a {kind}")
        error.extendedresult = _CODES[kind]  # type: ignore[attr-defined] # SQLite is told by it
        return error

    def _look_at(self, path: str) -> bool:
        """Note a file that nobody has seen yet. True if it is new."""
        file = Path(path)
        if file.name in self._seen:
            return False
        self._seen.add(file.name)
        data = file.read_bytes() if file.exists() else b""
        self.log.append(Operation("found" if data else "create", file.name, data=data))
        return not data


class DiskFile(apsw.VFSFile):
    """A file on such a disk. What is not here, shared memory among it, is as on any other."""

    def __init__(self, disk: Disk, name: Any, flags: list[int], *, unsettled: bool) -> None:
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk, self._file = disk, Path(path or "").name
        self._unsettled = unsettled

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
        how = self._disk.ask("write")
        data = bytes(data[: len(data) // 2] if how else data)
        super().xWrite(data, offset)
        self._log("write", offset=offset, data=data)
        if how == "tear":
            die()  # pragma: no cover (as above)
        if how:
            raise self._disk.error("write", how)

    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        self._disk.ask("sync")
        super().xSync(flags)
        self._log("sync")
        if self._unsettled:
            self._unsettled = False
            self._disk.log.append(Operation("sync"))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 (SQLite's name)
        self._disk.ask("truncate")
        super().xTruncate(newsize)
        self._log("truncate", offset=newsize)

    def _log(self, kind: Kind, *, offset: int = 0, data: bytes = b"") -> None:
        self._disk.log.append(Operation(kind, self._file, offset, data))


def die() -> None:  # pragma: no cover (as above)
    """Leave at once, and let nothing tidy up."""
    os.kill(os.getpid(), signal.SIGKILL)
