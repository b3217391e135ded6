"""One process owns a data directory at a time, and anyone can tell which.

Ownership is a lock on the directory and on its `owner` file, which the system takes away from a
process that dies, however it dies. Removing the file lets nobody in. What stands in it says who
holds the lock, and means nothing while nobody does. Children do not inherit it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from holdfast.core.messages import lone
from holdfast.errors import ConfigError, DataInUse, HoldfastError
from holdfast.stores.database import FULL, make_folder, no_space

FILE = "owner"

#: As in `holdfast.app`, which knows the stores and is not known to them.
_JOURNAL = "journal.db"

#: How often to look again, and after how many seconds: whoever asks for the owner holds the lock
#: for an instant.
_LOOKS = 10
_PATIENT_LOOKS = 200
_PAUSE = 0.01

#: Somebody may have put a link or a pipe there: the first is not followed, nor the second waited for.
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True)
class Owner:
    """`worker` is the name under which the owner carries runs; `address` is where it listens.
    `journal` is the file of its runs, if it is not the usual one; `pin` is the SHA-256 of the
    certificate that it shows, if it speaks TLS."""

    pid: int
    address: str = ""
    worker: str = ""
    journal: str = ""
    pin: str = ""


@asynccontextmanager
async def own(
    folder: Path,
    *,
    address: str = "",
    worker: str = "",
    journal: Path | None = None,
    pin: str = "",
) -> AsyncIterator[None]:
    """Own the directory, made if need be, and that of the journal if it is elsewhere. Raises
    DataInUse, StoreFull, or ConfigError if one is unfit."""
    usual = folder / _JOURNAL
    file = journal or usual
    where = "" if file == usual else file
    said = f"{os.getpid()}\n{address}\n{worker}\n{where}\n{pin}\n"
    async with _own(folder, file, said):
        if _same(file.parent, folder):
            yield
            return
        # Whoever has another data directory may mean the same file.
        async with _own(file.parent, file, said):
            yield


@asynccontextmanager
async def _own(folder: Path, journal: Path, said: str) -> AsyncIterator[None]:
    prepare(folder, journal)
    try:
        lock = _Lock(folder)
    except OSError as error:
        raise _unfit(folder, error) from error
    try:
        await _take(lock, folder)
        try:
            lock.write(said)
        except OSError as error:
            raise _unfit(folder, error) from error
        try:
            yield
        finally:
            lock.write("")
    finally:
        lock.close()


def owner(folder: Path) -> Owner | None:
    """Who owns the directory now, or None."""
    handles: list[int] = []
    try:
        handles.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        handles.append(os.open(folder / FILE, os.O_RDONLY | _AS_IT_IS))
    except OSError:
        pass  # what is not there is nobody's
    try:
        for handle in handles:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(handles[-1])
    finally:
        for handle in handles:
            os.close(handle)


def living(owner: Owner | None) -> bool:
    """Whether the owner goes on with its work. One that was stopped holds its lock and does nothing."""
    if owner is None:
        return False
    try:
        told = Path(f"/proc/{owner.pid}/stat").read_text()
    except (OSError, ValueError):
        return True  # there is no telling here
    # What comes before may hold anything: it is what the program calls itself.
    return told.rpartition(") ")[2][:1] not in ("T", "t")


class _Lock:
    """Both, open. A fork of this process closes its copies, which leaves the lock with us."""

    def __init__(self, folder: Path) -> None:
        self._handles = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
        try:
            self._handles.append(_open(folder / FILE))
        except BaseException:
            self.close()
            raise
        ours = weakref.ref(self)

        def forget() -> None:
            if lock := ours():
                lock.close()

        os.register_at_fork(after_in_child=forget)

    def take(self) -> Owner | None:
        """Take the lock. Returns who has it if that is somebody else."""
        try:
            for handle in self._handles:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(self._handles[-1])
        return None

    def write(self, text: str) -> None:
        if self._handles:
            os.ftruncate(self._handles[-1], 0)
            os.pwrite(self._handles[-1], text.encode(), 0)

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _open(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _AS_IT_IS, 0o600)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, f"{path.name} in it is no file")


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
    try:
        lines = os.pread(handle, 8192, 0).decode(errors="replace").split("\n")
    except OSError:
        return Owner(0)  # it is gone, or is no file
    pid, address, worker, journal, pin = (*lines, "", "", "", "")[:5]
    return Owner(int(pid) if pid.isdecimal() else 0, address, worker, journal, pin)


def prepare(folder: Path, journal: Path | None = None) -> None:
    """Make the directory, for its owner alone. An empty one is made so; a used one is refused."""
    if lone(str(folder)) is not None:
        raise ConfigError(f"the data directory {folder} cannot be used: its name is not UTF-8")
    try:
        # Or a power cut could take the directory, and all that was acknowledged in it.
        make_folder(folder)
        if folder.stat().st_mode & 0o077:
            if any(folder.iterdir()):
                raise ConfigError(
                    f"the data directory {folder} is open to others, and runs hold what nobody else"
                    f" should read; close it with: chmod 700 {folder}"
                )
            folder.chmod(0o700)
        file = journal or folder / _JOURNAL
        if file.is_symlink():
            raise ConfigError(
                f"the data directory {folder} cannot be used: its {file.name} is a link, and whoever"
                " owns the file it leads to would not be seen; use the directory that file is in"
            )
    except OSError as error:
        raise _unfit(folder, error) from error


def _unfit(folder: Path, error: OSError) -> HoldfastError:
    if error.errno in FULL:
        return no_space(folder)
    return ConfigError(f"the data directory {folder} cannot be used: {error.strerror}")
