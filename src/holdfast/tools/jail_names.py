"""Names in a workspace that a jailed command must not write, because a program outside obeys them.

A hook, an editor's task or a shell's start-up file that was planted in the jail would run outside
of it later. So each of them is bound over itself, read-only. One that is not there must not come
into being either, and something has to be there to mount over: an empty folder is made, and removed
again. Git does not see empty folders, no program runs one, and `rmdir` cannot remove anything of
value; so one that a crash leaves behind does no harm, and is removed after the next command.

The folders on the way to a name are bound over themselves as well, writable, because a mount point
cannot be renamed and its parent could.

Not covered: repositories further down. Whoever runs git in a repository that a jailed command could
write, trusts that command, as if it were a script of its making.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from errno import EACCES, EEXIST, EPERM, EROFS
from pathlib import Path

import anyio
from msgspec import Struct

from holdfast.errors import ToolError

#: Read by programs wherever they are started, some of them without asking.
NAMES = ("holdfast.toml", ".vscode", ".envrc", ".mcp.json", ".claude")

#: Read in a home only. They are protected where they are, and when absent only in a home.
START_UP = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile")

#: In a folder of git's, with what stands in for it when it is absent: a folder, or these words.
#: `commondir` names another folder with hooks and settings; "." says that it is this one.
GIT_NAMES: tuple[tuple[str, str | None], ...] = (
    ("config", ""),
    ("hooks", None),
    ("commondir", ".\n"),
)

#: Hardly anybody sets the sticky bit of an empty folder, so a stand-in is known by it.
_STICKY = 0o1000
_SETTING = re.compile(r"^[^#;\n]*?\b(hookspath|path)\s*=\s*(.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_MOST_SETTINGS = 1024 * 1024


class Name(Struct, frozen=True):
    """A path to protect, and what stands in for it while it is absent: a folder, or these words."""

    path: Path
    stand_in: str | None = None


def protected(workspace: Path) -> Sequence[Name]:
    """All that must not be written. A repository that is not there must not be made either:

    its settings would be the jail's, and git obeys them. `git init` says that it cannot write; one
    level further down it works.
    """
    names = [Name(workspace / name) for name in NAMES]
    home = workspace.parent == Path("/home")
    start_up = (workspace / name for name in START_UP)
    names += [Name(path) for path in start_up if home or os.path.lexists(path)]
    names.append(Name(workspace / ".git"))
    folders = _git_folders(workspace)
    for folder in folders:
        names += [Name(folder / name, words) for name, words in GIT_NAMES]
        names += _named_in(folder / "config", workspace)
    # The folders of git themselves have to be written, and a name may have been given twice.
    reachable = (_reachable(name, workspace) for name in reversed(names))
    unique = {name.path: name for name in reachable}
    return [name for path, name in unique.items() if path not in folders]


def _reachable(name: Name, workspace: Path) -> Name:
    """The name, or the first folder on the way to it that is not there."""
    way = reversed(name.path.relative_to(workspace).parents[:-1])
    missing = (workspace / part for part in way if not os.path.lexists(workspace / part))
    first = next(missing, None)
    return name if first is None else Name(first)


def bound(workspace: Path, names: Sequence[Name], done: set[Path]) -> list[str]:
    """The arguments that tell bwrap to protect them. Raises ToolError if one cannot be.

    `done` is filled with what has been bound so far, so that nothing is bound over it.
    """
    arguments: list[str] = []
    for name in sorted(names, key=lambda name: name.path):
        arguments += pinned(workspace, name.path, done)
        if os.path.lexists(name.path):
            done.add(name.path)
            arguments += _bound(name.path)
    return arguments


def _bound(path: Path) -> Sequence[str]:
    if _is_stand_in(path):
        # Nothing is seen in it or gets out of it, and it is mounted in a tenth of the time.
        return ("--size", "4096", "--perms", "0555", "--tmpfs", str(path))
    return ("--ro-bind", str(path), str(path))


def pinned(workspace: Path, path: Path, done: set[Path]) -> list[str]:
    """Bind the folders on the way over themselves, so that none of them can be renamed."""
    arguments = []
    way = path.relative_to(workspace).parts
    for depth in range(1, len(way) + 1):
        at = workspace.joinpath(*way[:depth])
        if at.is_symlink():
            # A link cannot be mounted over, only what it leads to; it could be replaced.
            raise ToolError(
                f"no command can be run in the jail: {at.relative_to(workspace)} is a link, and"
                " could not be protected"
            )
        if at != path and at not in done:
            done.add(at)
            arguments += ["--bind", str(at), str(at)]
    return arguments


def identities(names: Sequence[Name]) -> dict[Path, tuple[int, int]]:
    """What each name stands for. Replacing a file outside takes the mount over it away."""
    found = {}
    for name in names:
        with suppress(OSError):
            status = name.path.lstat()
            found[name.path] = (status.st_dev, status.st_ino)
    return found


# --- stand-ins -----------------------------------------------------------------------------------


@asynccontextmanager
async def stand_ins(workspace: Path, opened: int) -> AsyncIterator[Sequence[Name]]:
    """Every protected name exists while this lasts. Yields the names.

    Several commands may run at once, in several processes. Each holds a lock on the workspace, which
    it has `opened`, with others, and whoever can have it alone afterwards is the last, and removes
    what was made.
    """
    lock = os.dup(opened)
    names: Sequence[Name] = ()
    try:
        await _lock(lock)
        names = protected(workspace)
        for name in names:
            _make(name)
        yield names
    finally:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in names:
                _remove(name)
        os.close(lock)


async def _lock(lock: int) -> None:
    for _ in range(100):
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            # Somebody is removing stand-ins just now; that takes no time.
            await anyio.sleep(0.01)
        else:
            return
    raise ToolError("no command can be run in the jail: another program has locked the workspace")


def _make(name: Name) -> None:
    try:
        if name.stand_in is None:
            name.path.mkdir(_STICKY | 0o755)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(name.path, flags, _STICKY | 0o644), "w") as file:
                file.write(name.stand_in)
    except OSError as error:
        # Where we may make nothing, nobody in the jail may.
        if error.errno not in (EEXIST, EACCES, EPERM, EROFS):
            raise ToolError(
                f"no command can be run in the jail: {name.path} cannot be protected: {error}"
            ) from error


def _remove(name: Name) -> None:
    with suppress(OSError):
        if not _is_ours(name.path):
            return
        if name.stand_in is None:
            name.path.rmdir()
        elif name.path.read_text() == name.stand_in:
            name.path.unlink()


# --- git -----------------------------------------------------------------------------------------


def _git_folders(workspace: Path) -> Sequence[Path]:
    """Where git keeps the settings and hooks of this workspace, as far as that is inside it."""
    start = workspace / ".git"
    if start.is_file():
        # A second working tree: the file says where its folder is.
        start = workspace / _first_line(start).removeprefix("gitdir:").strip()
    elif not start.is_dir() or _is_stand_in(start):
        return ()
    common = start / "commondir"
    found = [start, start / _first_line(common)] if common.is_file() else [start]
    inside = (Path(os.path.normpath(path)) for path in found)
    return tuple(dict.fromkeys(path for path in inside if workspace in path.parents))


def _is_stand_in(folder: Path) -> bool:
    with suppress(OSError):
        return _is_ours(folder) and not os.listdir(folder)  # noqa: PTH208
    return False


def _is_ours(path: Path) -> bool:
    return bool(path.lstat().st_mode & _STICKY)


def _named_in(settings: Path, workspace: Path, depth: int = 4) -> Iterator[Name]:
    """Hooks and further settings in the workspace that these settings tell git to use."""
    for key, value in _SETTING.findall(_text(settings)):
        hooks = key.lower() == "hookspath"
        path = Path(os.path.normpath((workspace if hooks else settings.parent) / value.strip('"')))
        if workspace not in path.parents:
            continue
        yield Name(path, None if hooks else "")
        if not hooks and depth:
            yield from _named_in(path, workspace, depth - 1)


def _text(file: Path) -> str:
    with suppress(OSError), file.open(errors="replace") as opened:
        return opened.read(_MOST_SETTINGS)
    return ""


def _first_line(file: Path) -> str:
    return _text(file).partition("\n")[0].strip()
