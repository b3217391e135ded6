"""One process owns a data directory at a time, and anyone can tell which.

Ownership is a lock on the directory's `owner` file, which the system takes away from a process
that dies, however it dies. What stands in the file says who holds the lock, and means nothing
while nobody does. Children do not inherit it.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from holdfast.errors import ConfigError, DataInUse

FILE = "owner"

#: How often to look again, and after how many seconds: whoever asks for the owner holds the lock
#: for an instant.
_LOOKS = 10
_PATIENT_LOOKS = 200
_PAUSE = 0.01


@dataclass(frozen=True)
class Owner:
    """`worker` is the name under which the owner carries runs; `address` is where it listens."""

    pid: int
    address: str = ""
    worker: str = ""


@asynccontextmanager
async def own(folder: Path, *, address: str = "", worker: str = "") -> AsyncIterator[None]:
    """Own the directory, made if need be. Raises DataInUse, or ConfigError if it is unfit."""
    _prepare(folder)
    try:
        lock = _Lock(folder / FILE)
    except OSError as error:
        raise _unfit(folder, error) from error
    try:
        await _take(lock, folder)
        lock.write(f"{os.getpid()}\n{address}\n{worker}\n")
        try:
            yield
        finally:
            lock.write("")
    finally:
        lock.close()


def owner(folder: Path) -> Owner | None:
    """Who owns the directory now, or None."""
    try:
        handle = os.open(folder / FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(handle)
    finally:
        os.close(handle)


class _Lock:
    """The file, open. A fork of this process closes its copy, which leaves the lock with us."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        ours = weakref.ref(self)

        def forget() -> None:
            if lock := ours():
                lock.close()

        os.register_at_fork(after_in_child=forget)

    def take(self) -> Owner | None:
        """Take the lock. Returns who has it if that is somebody else."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(self._handle)
        return None

    def write(self, text: str) -> None:
        if self._handle >= 0:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text.encode(), 0)

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


async def _take(lock: _Lock, folder: Path) -> None:
    looks = 0
    while other := lock.take():
        looks += 1
        # An owner has written who it is; one without a name merely looks, and is soon gone.
        if looks > (_LOOKS if other.pid else _PATIENT_LOOKS):
            raise DataInUse(str(folder), other.pid, other.address)
        await anyio.sleep(_PAUSE)


def _read(handle: int) -> Owner:
    """What the file says, as far as it can be read: it may be in the middle of being written."""
    lines = os.pread(handle, 4096, 0).decode(errors="replace").split("\n")
    pid, address, worker = (*lines, "", "")[:3]
    return Owner(int(pid) if pid.isdecimal() else 0, address, worker)


def _prepare(folder: Path) -> None:
    """Make the directory, for its owner alone. An empty one is made so; a used one is refused."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            if any(folder.iterdir()):
                raise ConfigError(
                    f"the data directory {folder} is open to others, and runs hold what nobody else"
                    f" should read; close it with: chmod 700 {folder}"
                )
            folder.chmod(0o700)
    except OSError as error:
        raise _unfit(folder, error) from error


def _unfit(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the data directory {folder} cannot be used: {error.strerror}")
