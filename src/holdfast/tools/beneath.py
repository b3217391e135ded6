"""Files beneath the workspace, and no others, whatever a path says and whoever changes it meanwhile.

A path is never checked first and opened afterwards. It is opened from the workspace down without
following a single link, by the kernel in one step where it can (openat2) and otherwise component
by component. A link met on the way is read, judged, and the path it leads to opened the same way;
so what was judged is what is open, and its real name is known.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread

from holdfast.errors import ToolError
from holdfast.tools.names import check_path, fold, why_reading_asks, why_writing_asks
from holdfast.tools.opening import FOLDER, LINK_MET, Opener, open_beneath
from holdfast.tools.text import shown

#: Threads that work on files at once, for all tools of a workspace.
MOST_THREADS = 4
#: Links on one path, and how often it is tried while somebody keeps changing it.
_MOST_LINKS = 40
_TRIES = 40

#: Neither a pipe without a writer nor a terminal must hold us up.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_Result = TypeVar("_Result")


class Stamp(NamedTuple):
    """Which file it was, and in which state: whoever writes by it overwrites nothing unseen."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


class Opened(NamedTuple):
    """An open file or folder, its real name beneath the workspace, and its state."""

    fd: int
    path: str
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class _Target(NamedTuple):
    """Where something is to be written: a name in an open folder, and what has it now."""

    folder: int
    name: str
    path: str
    status: os.stat_result | None


class Workspace:
    """The folder that the file tools work in. `hidden` is ours, and kept from them in it."""

    def __init__(
        self, root: Path, hidden: Sequence[Path] = (), *, opener: Opener | None = None
    ) -> None:
        self.root = root.resolve()
        self.hidden = tuple(path.resolve() for path in hidden)
        self._folded = tuple(fold(str(path)) for path in self.hidden)
        self._open = opener or open_beneath
        self._threads = anyio.CapacityLimiter(MOST_THREADS)

    async def aside(self, work: Callable[[], _Result], *, abandon: bool = False) -> _Result:
        """Do blocking work in a thread. What only reads may be abandoned when it is cancelled."""
        return await anyio.to_thread.run_sync(
            work, abandon_on_cancel=abandon, limiter=self._threads
        )

    # --- names

    def relative(self, path: str) -> str:
        """The path from the workspace on, "." for itself. Looks at no file.

        Raises ToolError if it cannot be a path, or leads out by what it says.
        """
        check_path(path)
        parts: list[str] = []
        for part in self._parts(path):
            if part != "..":
                parts.append(part)
            elif parts:
                parts.pop()
            else:
                raise _outside(path)
        return "/".join(parts) or "."

    def is_hidden(self, path: str) -> bool:
        """Whether this real path is ours."""
        whole = fold(f"{str(self.root).rstrip('/')}/{path}")
        return any(whole == ours or whole.startswith(f"{ours}/") for ours in self._folded)

    def _parts(self, path: str) -> tuple[str, ...]:
        """The names in a path, `..` among them: it means the folder that a link leads to."""
        parts = _split(path)
        if not path.startswith("/"):
            return parts
        above = _split(str(self.root))
        if parts[: len(above)] != above:
            raise _outside(path)
        return parts[len(above) :]

    # --- reading

    @contextmanager
    def reading(self, path: str, *, links: bool = True) -> Iterator[Opened]:
        """A file or a folder, open. Raises ToolError in words for a model."""
        asked = self.relative(path)
        with _told(asked), self._root() as root:
            fd, parts = self._find(root, self._parts(path), links=links)
            try:
                status = os.fstat(fd)
                real = "/".join(parts) or "."
                self._admit(asked, real, why_reading_asks)
                self._admit_file(asked, status)
                yield Opened(fd, real, status)
            finally:
                os.close(fd)

    @contextmanager
    def _root(self) -> Iterator[int]:
        fd = os.open(self.root, FOLDER)
        try:
            yield fd
        finally:
            os.close(fd)

    def _find(
        self, root: int, asked: tuple[str, ...], *, links: bool
    ) -> tuple[int, tuple[str, ...]]:
        """What the path leads to, open, and its name without links and `..`."""
        straight = ".." not in asked
        left = _TRIES
        while True:
            left -= 1
            try:
                parts = asked if straight else self._resolve(root, asked)
                return self._open(root, parts, _READ), parts
            except OSError as error:
                if error.errno not in LINK_MET or not (links and left):
                    raise
                straight = False

    def _resolve(self, root: int, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The path with its links read and followed by us. What is missing stays as it was asked."""
        done: list[str] = []
        todo = list(reversed(asked))
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                if not done:
                    raise _outside("/".join(asked))
                done.pop()
                continue
            target = self._link(root, done, name)
            if target is None:
                done.append(name)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise ToolError(f"{shown('/'.join(asked))} leads through too many links")
            todo.extend(reversed(self._parts_of_link("/".join(asked), target)))
            if target.startswith("/"):
                done.clear()
        return tuple(done)

    def _parts_of_link(self, asked: str, target: str) -> tuple[str, ...]:
        try:
            return self._parts(target)
        except ToolError:
            raise ToolError(
                f"{shown(asked)} is outside the workspace: a link on it leads to {shown(target)}"
            ) from None

    def _link(self, root: int, folder: Sequence[str], name: str) -> str | None:
        """Where a link leads; None for what is no link, or is not there."""
        try:
            fd = self._open(root, folder, FOLDER)
        except FileNotFoundError:
            return None
        try:
            return os.readlink(name, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise
        finally:
            os.close(fd)

    def _admit(self, asked: str, real: str, why_asks: Callable[[str], str]) -> None:
        """Raise ToolError unless the real path may be used under the name it was asked for by."""
        if self.is_hidden(real):
            raise _ours(asked)
        # Somebody may have been asked about the path as it was given, not about where it leads.
        if why_asks(real) and not why_asks(asked):
            raise ToolError(
                f"{shown(asked)} leads to {shown(real)}, and {why_asks(real)}; name that path itself"
            )

    def _admit_file(self, asked: str, status: os.stat_result) -> None:
        """Raise ToolError for what is neither a folder nor a file that is ours to use."""
        if stat.S_ISDIR(status.st_mode):
            return
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(
                f"{shown(asked)} is {_kind(status.st_mode)}; only files and folders are opened"
            )
        if any(os.path.samestat(status, ours) for ours in self._hidden_files()):
            raise _ours(asked)
        if status.st_nlink > 1 and not _harmless(status):
            raise ToolError(
                f"{shown(asked)} is a hard link: the same file has another name, perhaps outside"
                " the workspace, and it is not a file of ours that everybody may read"
            )

    def _hidden_files(self) -> Iterator[os.stat_result]:
        for path in self.hidden:
            with suppress(OSError):
                yield path.stat()

    # --- writing

    def write(self, path: str, data: bytes, *, expect: Stamp | None, parents: bool = True) -> str:
        """Put a file in its place, whole or not at all. Returns its real name.

        `expect` is the file as it was when it was read, None if there was none: if it is another
        by now, nothing is written. It keeps its permissions, and its owner where we may give it
        away; other names of the same file keep the old content. Raises ToolError.
        """
        asked = self.relative(path)
        with _told(asked), self._target(asked, path, parents=parents) as target:
            _check_writable(asked, target)
            temporary = f".holdfast-{token_hex(8)}.tmp"
            fd = os.open(temporary, _NEW, 0o666, dir_fd=target.folder)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    _dress(fd, target.status)
                    os.fsync(fd)
                _check_unchanged(asked, target, expect)
                os.rename(
                    temporary, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder
                )
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=target.folder)
                raise
            _settle(target.folder)
            return target.path

    def remove(self, path: str, *, expect: Stamp) -> str:
        """Take a file away, if it is still the one that was read. Returns its real name."""
        asked = self.relative(path)
        with _told(asked), self._target(asked, path, parents=False) as target:
            _check_writable(asked, target)
            _check_unchanged(asked, target, expect)
            os.unlink(target.name, dir_fd=target.folder)
            _settle(target.folder)
            return target.path

    @contextmanager
    def _target(self, asked: str, path: str, *, parents: bool) -> Iterator[_Target]:
        with self._root() as root:
            folder, parts = self._find_folder(root, asked, self._parts(path), parents=parents)
            try:
                target = _Target(folder, parts[-1], "/".join(parts), _look(folder, parts[-1]))
                if target.status:
                    self._admit_file(asked, target.status)
                yield target
            finally:
                os.close(folder)

    def _find_folder(
        self, root: int, asked: str, path: tuple[str, ...], *, parents: bool
    ) -> tuple[int, tuple[str, ...]]:
        """The folder that a file is or will be in, made on request, and the path without links."""
        left = _TRIES
        while True:
            left -= 1
            try:
                parts = self._resolve(root, path)
                if not parts:
                    raise ToolError(f"{shown(asked)} is a folder")
                # Before a folder is made for it.
                self._admit(asked, "/".join(parts), why_writing_asks)
                return self._enter(root, parts[:-1], make=parents), parts
            except OSError as error:
                if error.errno not in LINK_MET or not left:
                    raise

    def _enter(self, root: int, parts: tuple[str, ...], *, make: bool) -> int:
        try:
            return self._open(root, parts, FOLDER)
        except FileNotFoundError:
            if not make:
                raise
        fd = os.dup(root)
        for name in parts:
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                inner = self._open(fd, (name,), FOLDER)
            finally:
                os.close(fd)
            fd = inner
        return fd


def _split(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _harmless(status: os.stat_result) -> bool:
    """Whether a file with several names may be read under the one it has here.

    Where the others are cannot be told. Package managers link from a store of their own, so not
    all such files can be refused; but what is somebody else's, or kept from others, might be a
    secret that was given a name here.
    """
    return status.st_uid == os.geteuid() and bool(status.st_mode & stat.S_IROTH)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def _check_writable(asked: str, target: _Target) -> None:
    """Replacing a file takes no right to it, only to its folder: so its own mark is looked at."""
    if target.status is None:
        return
    if stat.S_ISDIR(target.status.st_mode):
        raise ToolError(f"{shown(asked)} is a folder")
    # For root everything is writable; what was marked read-only was marked for a reason.
    marked = not target.status.st_mode & 0o222
    if marked or not os.access(target.name, os.W_OK, dir_fd=target.folder):
        raise ToolError(f"{shown(asked)} is read-only, and stays as it is")


def _check_unchanged(asked: str, target: _Target, expect: Stamp | None) -> None:
    now = _look(target.folder, target.name)
    if (now and Stamp.of(now)) != expect:
        raise ToolError(
            f"{shown(asked)} changed meanwhile, and was left as it is now; read it again first"
        )


def _settle(folder: int) -> None:
    """It is done, and everybody sees it; not every file system can promise more."""
    with suppress(OSError):
        os.fsync(folder)


def _dress(fd: int, old: os.stat_result | None) -> None:
    """Give a new file the owner and the permissions of the one it is to replace."""
    if old is None:
        return
    # Not everybody may give files away, and not every owner has a number here.
    with suppress(OSError):
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def _outside(path: str) -> ToolError:
    return ToolError(
        f"{shown(path)} is outside the workspace; paths are relative to it and stay in it"
    )


def _ours(path: str) -> ToolError:
    return ToolError(f"{shown(path)} belongs to Holdfast itself, and no tool may touch it")


_TROUBLE = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a name on the way is that of a file, not of a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "the system does not permit it",
    errno.EROFS: "it is on a read-only file system",
    errno.ENOSPC: "the disk is full; what was there before is still there",
    errno.EDQUOT: "the disk quota is used up; what was there before is still there",
    errno.EFBIG: "the file would be larger than is allowed; what was there before is still there",
    errno.ENAMETOOLONG: "the path is too long for this file system",
    errno.ELOOP: "somebody keeps changing a link on the way",
    errno.ENXIO: "it is a socket or a device, and only files and folders are opened",
}


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = _TROUBLE.get(error.errno or 0) or error.strerror or str(error)
        raise ToolError(f"{shown(path)}: {why}") from error
