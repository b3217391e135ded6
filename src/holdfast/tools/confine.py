"""What it takes to confine root: a control group, and device files that are not the host's.

The limit that every user has (RLIMIT_NPROC) does not bind root, not even in a namespace. A control
group binds everybody, but only root may usually make one; so each is used where it works.

The host's /dev/null belongs to root, who may change its mode wherever it is mounted; bubblewrap
cannot mount a device such that it works and is read-only. So root's jail has a folder of others,
which belong to a user who is nobody there: root without capabilities can use and not change them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread

_PREFIX = "holdfast-"
#: What a jail finds in /dev, by its number. A file system for devices is gone with the next start.
DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
#: And what else, by where it leads.
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
#: There to be mounted over.
_SHARED = "shm"
_OWN = Path("/dev/holdfast")
#: Whom the kernel calls nobody. The folder around keeps those out who are that here.
_NOBODY = 65534

#: Groups of one process are told apart by a number.
_NUMBERS = count(1)


def find_groups(proc: Path = Path("/proc")) -> Path | None:
    """The folder in which groups with a limit of processes can be made, if there is one."""
    try:
        mounts = (proc / "self/mountinfo").read_text()
        own = (proc / "self/cgroup").read_text()
    except OSError:
        return None
    return next((one for one in _folders(mounts, own) if _works(one)), None)


def clear_groups(folder: Path) -> None:
    """Remove the groups that processes of ours have left behind which were killed."""
    for group in folder.glob(f"{_PREFIX}*"):
        pid = group.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                group.rmdir()


@contextmanager
def entered(group: Path) -> Iterator[None]:
    """Whatever this thread starts meanwhile is born in the group, if its kind allows that.

    A thread may move itself in no time, in groups of the older kind. Moving another process makes
    the kernel wait for all processors, for ten milliseconds and more.
    """
    if not _takes_threads(group):
        yield
        return
    _write(f"{group}/tasks", b"0")
    try:
        yield
    finally:
        _write(f"{group.parent}/tasks", b"0")


async def confine(pid: int, group: Path) -> None:
    """Put a process into a group, unless it was born there. In a thread, since it may take long."""
    if not _takes_threads(group):
        await anyio.to_thread.run_sync(_write, f"{group}/cgroup.procs", b"%d" % pid)


def _takes_threads(group: Path) -> bool:
    return os.access(f"{group}/tasks", os.F_OK)


def _write(file: str, words: bytes) -> None:
    """By plain calls: a file object takes four times as long, and every command waits for it."""
    opened = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o666)
    try:
        os.write(opened, words)
    finally:
        os.close(opened)


@asynccontextmanager
async def confined(folder: Path, processes: int) -> AsyncIterator[Path]:
    """A group for one command, and all that it starts."""
    group = folder / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    group.mkdir()
    try:
        _write(f"{group}/pids.max", b"%d" % processes)
        yield group
    finally:
        with anyio.CancelScope(shield=True):
            await _remove(group)


async def _remove(group: Path) -> None:
    # All in it are dead, but the kernel may take a moment to see it.
    for _ in range(50):
        if _removed(group):
            return
        await anyio.sleep(0.005)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def _folders(mounts: str, own: str) -> Iterator[Path]:
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split()
        root, mounted = fields[3], Path(fields[4])
        if kind == "cgroup" and "pids" in options.split(","):
            path = next((path for names, path in paths.items() if "pids" in names.split(",")), "/")
            yield mounted / os.path.relpath(path, root)
        elif kind == "cgroup2":
            here = mounted / os.path.relpath(paths.get("", "/"), root)
            # A group with processes of its own hands no controller on, so it is an ancestor.
            yield from (at for at in (here, *here.parents) if _hands_on(at, mounted))


def _hands_on(folder: Path, mounted: Path) -> bool:
    with suppress(OSError):
        inside = folder == mounted or mounted in folder.parents
        return inside and "pids" in (folder / "cgroup.subtree_control").read_text().split()
    return False


def _works(folder: Path) -> bool:
    trial = folder / f"{_PREFIX}{os.getpid()}-0"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        _write(f"{trial}/pids.max", b"16")
    except OSError:
        return False
    else:
        return True
    finally:
        with suppress(OSError):
            trial.rmdir()


# --- devices -------------------------------------------------------------------------------------


def owns_devices() -> bool:
    """Whether the host's devices are ours to change. In a container root may be somebody else."""
    return os.stat(os.devnull).st_uid == os.getuid()  # noqa: PTH116


def own_devices(folder: Path = _OWN) -> Path:
    """The folder that is /dev in jails, as it should be. Raises OSError if there can be none.

    One bind of all takes a tenth of the time of one for each, and every command waits for it.
    """
    # Looked at first: nearly always all is well, and every command waits for this.
    if not os.path.lexists(folder):
        folder.mkdir(0o700, exist_ok=True)
    _rights(str(folder), stat.S_IFDIR, os.getuid())
    inside = f"{folder}/dev"
    if not os.path.lexists(f"{inside}/{_SHARED}"):
        _furnish(inside)
    _mend(inside, stat.S_IFDIR, 0o755)
    for name, number in DEVICES.items():
        device = os.makedev(*number)
        path = f"{inside}/{name}"
        if not os.path.lexists(path):
            _place(path, partial(os.mknod, mode=stat.S_IFCHR, device=device))
        _mend(path, stat.S_IFCHR, 0o666, device)
    return Path(inside)


def _furnish(folder: str) -> None:
    if not os.path.lexists(folder):
        _place(folder, os.mkdir)
    for name, to in _LINKS.items():
        _place(f"{folder}/{name}", partial(os.symlink, to))
    _place(f"{folder}/{_SHARED}", os.mkdir)


def _place(path: str, make: Callable[[str], None]) -> None:
    """Whole or not at all, since others may be at it, too, or look."""
    new = f"{path}-{os.getpid()}-{next(_NUMBERS)}"
    make(new)
    os.chown(new, _NOBODY, _NOBODY, follow_symlinks=False)
    try:
        os.rename(new, path)  # noqa: PTH104 (as text, like all here)
    except OSError:
        os.rmdir(new)  # noqa: PTH106 (another was first, and has put something in it)


def _mend(path: str, kind: int, rights: int, device: int = 0) -> None:
    if _rights(path, kind, _NOBODY, device) != rights:
        os.chmod(path, rights)  # noqa: PTH101


def _rights(path: str, kind: int, owner: int, device: int = 0) -> int:
    """Who may do what with it. Raises OSError if it is something else than it should be."""
    found = os.lstat(path)
    if (stat.S_IFMT(found.st_mode), found.st_rdev, found.st_uid) != (kind, device, owner):
        raise OSError(f"{path} is not what it should be")
    return stat.S_IMODE(found.st_mode)
