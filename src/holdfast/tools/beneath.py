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
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread

from holdfast.errors import ToolError
from holdfast.ports import Leaving
from holdfast.tools.jail_names import protected
from holdfast.tools.names import check_path, fold, is_obeyed, why_reading_asks, why_writing_asks
from holdfast.tools.opening import FOLDER, LINK_MET, Opener, open_beneath, told
from holdfast.tools.stamp import Stamp, dress, harmless, kind_of, look, same_as, settle
from holdfast.tools.text import shown
from holdfast.tools.thread import abandoned

#: Threads that work on files at once, for all tools of a workspace.
MOST_THREADS = 4
#: Links on one path, and how often it is tried while somebody keeps changing it.
_MOST_LINKS = 40
_TRIES = 40

#: Neither a pipe without a writer nor a terminal must hold us up.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

#: What is said of what is hidden, and of what is kept.
WHY_HIDDEN = "belongs to Holdfast itself, and no tool may touch it"
WHY_KEPT = "says what Holdfast may do: tools may read it, and none may change it"

_Result = TypeVar("_Result")


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
    """The folder that the file tools work in.

    In it `hidden` is ours and not for them at all, and what is `kept` they may read and not change.
    """

    def __init__(
        self,
        root: Path,
        hidden: Sequence[Path] = (),
        *,
        kept: Sequence[Path] = (),
        opener: Opener | None = None,
    ) -> None:
        self.root = root.resolve()
        self.hidden = tuple(path.resolve() for path in hidden)
        self.kept = tuple(path.resolve() for path in kept)
        self._hidden, self._kept = _folded(self.hidden), _folded(self.kept)
        self._open = opener or open_beneath
        self._threads = anyio.CapacityLimiter(MOST_THREADS)

    async def aside(self, work: Callable[[], _Result]) -> _Result:
        """Do blocking work in a thread, to its end."""
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def reading_aside(
        self, work: Callable[[], _Result], *, tool: str, left: Leaving
    ) -> _Result:
        """Do what only reads in a thread. It is left there on a cancel, and `left` is told."""
        return await abandoned(work, limiter=self._threads, tool=tool, left=left)

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
        return self._is_beneath(self._hidden, path)

    def is_kept(self, path: str) -> bool:
        """Whether this real path may be read and not changed."""
        return self._is_beneath(self._kept, path)

    def obeyed(self) -> Callable[[str], bool]:
        """Tells of a path whether programs outside obey it: by its name, or as git is set now."""
        try:
            gits = _folded([name.path for name in protected(self.root)])
        except (ToolError, OSError):
            # Then it could be anything.
            gits = _folded([self.root])
        return lambda path: is_obeyed(path) or self._is_beneath(gits, path)

    def _is_beneath(self, ours: tuple[str, ...], path: str) -> bool:
        return bool(ours) and fold(f"{str(self.root).rstrip('/')}/{path}/").startswith(ours)

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
        with told(asked), self._root() as root:
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
                f"{shown(asked)} is {kind_of(status.st_mode)}; only files and folders are opened"
            )
        if same_as(status, self.hidden):
            raise _ours(asked)
        if status.st_nlink > 1 and not harmless(status):
            raise ToolError(
                f"{shown(asked)} is a hard link: the same file has another name, perhaps outside"
                " the workspace, and it is not a file of ours that everybody may read"
            )

    # --- writing

    def check(self, path: str, *, expect: Stamp | None) -> str:
        """Raise ToolError if it can be told beforehand that this will not be written or removed.

        Returns its real name. Makes nothing, not even the folders it needs.
        """
        asked = self.relative(path)
        with told(asked):
            try:
                with self._target(asked, path, parents=False) as target:
                    _check_writable(asked, target)
                    _check_unchanged(asked, target, expect)
                    _check_folder(target.folder)
                    return target.path
            except FileNotFoundError:
                if expect is not None:
                    raise
            with self._root() as root:
                parts = self._resolve(root, self._parts(path))
                self._check_nearest(root, parts[:-1])
                return "/".join(parts)

    def _check_nearest(self, root: int, parts: tuple[str, ...]) -> None:
        try:
            folder = self._open(root, parts, FOLDER)
        except FileNotFoundError:
            return self._check_nearest(root, parts[:-1])
        try:
            _check_folder(folder)
        finally:
            os.close(folder)

    def write(
        self,
        path: str,
        data: bytes,
        *,
        expect: Stamp | None,
        parents: bool = True,
        like: os.stat_result | None = None,
    ) -> str:
        """Put a file in its place, whole or not at all. Returns its real name.

        `expect` is the file as it was when it was read, None if there was none: if it is another
        by now, nothing is written. It keeps its permissions, and its owner where we may give it
        away, or gets those of one it is `like`; other names of the same file keep the old content.
        Raises ToolError.
        """
        asked = self.relative(path)
        with told(asked), self._target(asked, path, parents=parents) as target:
            _check_writable(asked, target)
            old = target.status or like
            temporary = f".holdfast-{token_hex(8)}.tmp"
            # Who may not read the old one must not read the new one either, not even half of it.
            fd = os.open(temporary, _NEW, 0o600 if old else 0o666, dir_fd=target.folder)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    dress(fd, old)
                    os.fsync(fd)
                _check_unchanged(asked, target, expect)
                os.rename(
                    temporary, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder
                )
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=target.folder)
                raise
            settle(target.folder)
            return target.path

    def remove(self, path: str, *, expect: Stamp) -> str:
        """Take a file away, if it is still the one that was read. Returns its real name."""
        asked = self.relative(path)
        with told(asked), self._target(asked, path, parents=False) as target:
            _check_writable(asked, target)
            _check_unchanged(asked, target, expect)
            os.unlink(target.name, dir_fd=target.folder)
            settle(target.folder)
            return target.path

    @contextmanager
    def _target(self, asked: str, path: str, *, parents: bool) -> Iterator[_Target]:
        with self._root() as root:
            folder, parts = self._find_folder(root, asked, self._parts(path), parents=parents)
            try:
                target = _Target(folder, parts[-1], "/".join(parts), look(folder, parts[-1]))
                if target.status:
                    self._admit_file(asked, target.status)
                    if same_as(target.status, self.kept):
                        raise _kept(asked)
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
                self._admit(asked, "/".join(parts), partial(why_writing_asks, obeyed=self.obeyed()))
                if self.is_kept("/".join(parts)):
                    raise _kept(asked)
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


def _folded(paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(fold(f"{path}/") for path in paths)


def _split(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


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


def _check_folder(folder: int) -> None:
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_unchanged(asked: str, target: _Target, expect: Stamp | None) -> None:
    now = look(target.folder, target.name)
    if (now and Stamp.of(now)) != expect:
        raise ToolError(
            f"{shown(asked)} changed meanwhile, and was left as it is now; read it again first"
        )


def _outside(path: str) -> ToolError:
    return ToolError(
        f"{shown(path)} is outside the workspace; paths are relative to it and stay in it"
    )


def _ours(path: str) -> ToolError:
    return ToolError(f"{shown(path)} {WHY_HIDDEN}")


def _kept(path: str) -> ToolError:
    return ToolError(f"{shown(path)} {WHY_KEPT}")
