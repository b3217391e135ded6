"""Names in a workspace that a jailed command must not write, because a program outside obeys them.

A hook, an editor's task or a shell's start-up file that was planted in the jail would run outside
of it later. So each of them is bound over itself, read-only. One that is not there must not come
into being either. What is obeyed only when somebody starts a program is set aside if it does (see
`jail_arrivals`). What an editor or a shell's prompt obeys at once must not be there for a moment,
and something has to be there to mount over: an empty folder is made, and removed again. Git does
not see empty folders, no program runs one, and `rmdir` cannot remove anything of value; so one that
a crash leaves behind does no harm, and is removed after the next command.

The folders on the way to a name are bound over themselves as well, writable, because a mount point
cannot be renamed and its parent could.

Settings outside that name hooks inside are read, too: of a repository around the workspace, of the
one whose second working tree it is, and the user's own, but not what those include.

Not covered: repositories further down, and those that a repository names as its parts (gitlinks).
A `git status` outside, in the workspace itself or below it, obeys the settings of each repository
further down, and any folder can be made one; nor is git kept from looking for another where a
command has ruined `.git`. Whoever runs git where a jailed command could write, trusts that command,
as if it were a script of its making; of parts that came to be they are told (see `jail_parts`).
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from errno import EACCES, EEXIST, EPERM, EROFS
from io import FileIO
from operator import itemgetter
from pathlib import Path
from stat import S_ISREG

import anyio
from msgspec import Struct

from holdfast.errors import ToolError
from holdfast.tools.homes import resolved
from holdfast.tools.names import AT_ONCE
from holdfast.tools.text import shown

#: In a folder of git's, with what stands in for it when it is absent: a folder, or these words.
#: `commondir` names another folder with hooks and settings; "." says that it is this one.
GIT_NAMES: tuple[tuple[str, str | None], ...] = (
    ("config", ""),
    ("config.worktree", ""),
    ("hooks", None),
    ("commondir", ".\n"),
)

#: In a folder of git's, if they are there: settings and hooks of other working trees and of parts.
GIT_FOLDERS = ("worktrees", "modules")

#: The settings for all repositories.
_OF_ALL = ("~/.gitconfig", "~/.config/git/config", "/etc/gitconfig")

#: Hardly anybody sets the sticky bit of an empty folder, so a stand-in is known by it.
_STICKY = 0o1000
#: The name of a section may stand before it. A value goes on after a backslash at the line's end.
_SETTING = re.compile(
    r"""^[ \t]*(?:\[[^]"\n]*(?:"(?:[^"\\\n]|\\.)*"[^]"\n]*)?\][ \t]*)*"""
    r"""(hookspath|path)[ \t]*=((?:[^\\\n]|\\.|\\\n)*)""",
    re.IGNORECASE | re.MULTILINE,
)
#: More than this is no settings: characters in all files together, and paths named in them.
_MOST_SETTINGS, _MOST_FOUND = 1024 * 1024, 100
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}


class Name(Struct, frozen=True):
    """A path to protect, and what stands in for it while it is absent: a folder, or these words.

    Where it was `made` just now there is nothing to find out about it.
    """

    path: Path
    stand_in: str | None = None
    made: bool = False


def protected(workspace: Path, kept: Sequence[Path] = ()) -> Sequence[Name]:
    """All that must not be written, what is `kept` among it.

    A repository that is not there must not be made either: its settings would be the jail's, and
    git obeys them. `git init` says that it cannot write; one level further down it works.
    """
    names = [Name(workspace / name) for name in AT_ONCE]
    names += [Name(path) for path in kept if workspace in path.parents]
    names.append(Name(workspace / ".git"))
    top, gits = _repository(workspace)
    folders = [folder for folder in gits if workspace in folder.parents]
    if top != workspace or not gits:
        names += _bare(workspace)
    for folder in folders:
        names += [Name(folder / name, words) for name, words in GIT_NAMES]
        names += _further(folder, folders)
    settings = [f"{folder}/{name}" for folder in gits for name in ("config", "config.worktree")]
    settings += map(os.path.expanduser, _OF_ALL)
    for file in settings:
        names += _named_in(file, top, workspace, written=(workspace, *folders))
    # The folders of git themselves have to be written, and a name may have been given twice.
    reachable = (_reachable(name, workspace) for name in reversed(names))
    unique = {name.path: name for name in reachable}
    return [name for path, name in unique.items() if path not in folders]


def _reachable(name: Name, workspace: Path) -> Name:
    """The name, or the first folder on the way to it that is not there."""
    if os.path.lexists(name.path.parent):
        return name
    way = reversed(name.path.relative_to(workspace).parents[:-1])
    missing = (workspace / part for part in way if not os.path.lexists(workspace / part))
    first = next(missing, None)
    return name if first is None else Name(first)


def bound(workspace: Path, names: Sequence[Name], done: set[str]) -> list[str]:
    """The arguments that tell bwrap to protect them. Raises ToolError if one cannot be.

    `done` is filled with what has been bound so far, so that nothing is bound over it.
    """
    arguments: list[str] = []
    by_path = {str(name.path): name for name in names}
    for path, name in sorted(by_path.items(), key=itemgetter(0)):
        arguments += pinned(workspace, path, done)
        if name.made or os.path.lexists(path):
            done.add(path)
            arguments += _bound(name)
    return arguments


def _bound(name: Name) -> Sequence[str]:
    path = str(name.path)
    if (name.stand_in is None) if name.made else _is_stand_in(name.path):
        # Nothing is seen in it or gets out of it, and it is mounted in a fifth of the time.
        return ("--size", "4096", "--perms", "0555", "--tmpfs", path)
    return ("--ro-bind", path, path)


def pinned(workspace: Path, path: str, done: set[str]) -> list[str]:
    """Bind the folders on the way over themselves, so that none of them can be renamed."""
    # As text, and one look at each: every command waits for this.
    arguments, at = [], str(workspace)
    for part in path[len(at) :].lstrip("/").split("/"):
        at = f"{at}/{part}"
        if at in done:
            continue
        if os.path.islink(at):  # noqa: PTH114
            # A link cannot be mounted over, only what it leads to; it could be replaced.
            raise ToolError(
                f"no command can be run in the jail: {Path(at).relative_to(workspace)} is a link,"
                " which could not be protected; put what it leads to in its place, or remove it"
            )
        if at != path:
            done.add(at)
            arguments += ["--bind", at, at]
    return arguments


def identities(paths: Sequence[Path]) -> dict[Path, tuple[int, int] | None]:
    """What each path stands for. Replacing a file outside takes the mount over it away."""
    found: dict[Path, tuple[int, int] | None] = dict.fromkeys(paths)
    for path in found:
        with suppress(OSError):
            status = os.lstat(path)
            found[path] = (status.st_dev, status.st_ino)
    return found


# --- stand-ins -----------------------------------------------------------------------------------


async def _over() -> bool:
    return True


@asynccontextmanager
async def stand_ins(
    workspace: Path, kept: Sequence[Path] = (), *, over: Callable[[], Awaitable[bool]] = _over
) -> AsyncIterator[Sequence[Name]]:
    """Every protected name exists while this lasts. Yields the names.

    `over` is asked at the end whether nobody is left from whom they are protected. A mount goes
    with the folder that it covers, so if somebody is, all is left to whoever comes next.

    Several commands may run at once, in several processes. Each holds a lock on the workspace
    with others, and whoever can have it alone afterwards is the last, and removes what was made.
    The jail itself has no part in the lock, for it must have no folder of the host's open: that
    would be a way out. It need not, since it dies with us, within milliseconds.
    """
    try:
        lock = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ToolError(f"no command can be run in the jail: {error}") from error
    names: Sequence[Name] = ()
    try:
        await _lock(lock)
        names = protected(workspace, kept)
        names = [_make(name) for name in names]
        yield names
    finally:
        try:
            if await over():
                _remove_all(lock, names)
        finally:
            os.close(lock)


def _remove_all(lock: int, names: Sequence[Name]) -> None:
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in names:
            _remove(name)


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


def _make(name: Name) -> Name:
    try:
        if name.stand_in is None:
            os.mkdir(name.path, _STICKY | 0o755)  # noqa: PTH102
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with FileIO(os.open(name.path, flags, _STICKY | 0o644), "w") as file:
                file.write(name.stand_in.encode())
    except OSError as error:
        # Where we may make nothing, nobody in the jail may.
        if error.errno not in (EEXIST, EACCES, EPERM, EROFS):
            raise ToolError(
                f"no command can be run in the jail: {name.path} cannot be protected: {error}"
            ) from error
        return name
    return Name(name.path, name.stand_in, made=True)


def _remove(name: Name) -> None:
    with suppress(OSError):
        if not _is_ours(name.path):
            return
        if name.stand_in is None:
            os.rmdir(name.path)  # noqa: PTH106
        elif name.path.read_text() == name.stand_in:
            name.path.unlink()


# --- git -----------------------------------------------------------------------------------------


def _repository(workspace: Path) -> tuple[Path, Sequence[Path]]:
    """The folder in which git takes the workspace to lie, and those in which it keeps settings."""
    for top in (workspace, *workspace.parents):
        if os.path.lexists(f"{top}/.git") and (gits := _git_folders(top, workspace)):
            return top, gits
    return workspace, ()


def _git_folders(top: Path, workspace: Path) -> Sequence[Path]:
    start = top / ".git"
    if start.is_file():
        # A second working tree: the file says where its folder is.
        start = top / _first_line(start).removeprefix("gitdir:").strip()
    elif not start.is_dir() or _is_stand_in(start):
        return ()
    common = start / "commondir"
    found = [start, start / _first_line(common)] if common.is_file() else [start]
    meant = (_inside(Path(os.path.normpath(path)), workspace) for path in found)
    return tuple(dict.fromkeys(meant))


def _is_stand_in(folder: Path) -> bool:
    with suppress(OSError):
        return _is_ours(folder) and not os.listdir(folder)  # noqa: PTH208
    return False


def _is_ours(path: Path) -> bool:
    return bool(os.lstat(path).st_mode & _STICKY)


def _bare(workspace: Path) -> Iterator[Name]:
    """Git takes a folder with a HEAD for a repository, if some more is there."""
    head = workspace / "HEAD"
    yield Name(head)
    if head.is_file():
        yield from (Name(workspace / name, words) for name, words in GIT_NAMES)
        yield from _named_in(f"{workspace}/config", workspace, workspace, written=(workspace,))


def _further(folder: Path, folders: Sequence[Path]) -> Iterator[Name]:
    """Other working trees and parts as a whole, but for a folder that is ours to work in."""
    for name in GIT_FOLDERS:
        at = folder / name
        if at.is_symlink() or not at.is_dir():
            continue  # if a command made it a link, there was nothing to protect
        ours = any(at in path.parents for path in folders)
        inside = (path for path in at.iterdir() if path not in folders and not path.is_symlink())
        yield from map(Name, inside if ours else (at,))


def _named_in(settings: str, top: Path, workspace: Path, written: Sequence[Path]) -> Iterator[Name]:
    """Hooks and further settings in the workspace that these settings tell git to use in `top`.

    Raises ToolError if they cannot be protected: there are too many, or the folder of hooks is one
    that has to be `written`.
    """
    waiting, seen = [settings], {settings}
    left, found = _MOST_SETTINGS, 0
    while waiting:
        file = waiting.pop()
        text = _text(file)
        left -= len(text)
        for setting in _SETTING.finditer(text):
            found += 1
            hooks = setting[1].lower() == "hookspath"
            value = _value(setting[2])
            start = top if hooks else os.path.dirname(file)  # noqa: PTH120
            path = _inside(_meant(start, value), workspace)
            if hooks and path in written:
                raise ToolError(
                    f"no command can be run in the jail: core.hooksPath is {shown(value)}, which"
                    " commands have to write; give the hooks a folder of their own"
                )
            if workspace in path.parents and str(path) not in seen:
                yield Name(path, None if hooks else "")
                waiting += [] if hooks else [str(path)]
                seen.add(str(path))
            if found > _MOST_FOUND:
                break
        if left < 0 or found > _MOST_FOUND:
            raise ToolError(
                "no command can be run in the jail: the settings of git are too many to protect"
            )


def _meant(start: str | Path, value: str) -> Path:
    path = os.path.expanduser(value.removeprefix(":(optional)"))  # noqa: PTH111 (as git does it)
    # One beside git itself is outside, or in a home of nobody, and nothing means the root.
    away = not path or path.startswith(("~", "%(prefix)")) or "\0" in path
    return Path("/") if away else Path(os.path.normpath(os.path.join(start, path)))  # noqa: PTH118


def _inside(path: Path, workspace: Path) -> Path:
    """The path as it is called in the workspace, if a link outside leads there."""
    if path.is_relative_to(workspace):
        return path
    # From the top: past the first one inside there may be links that a command can change.
    for above in (*reversed(path.parents), path):
        real = resolved(above)
        if real.is_relative_to(workspace):
            return real / path.relative_to(above)
    return path


def _value(written: str) -> str:
    """As git reads it: without a remark, quotes and the blanks around."""
    taken: list[str] = []
    end, quoted, letters = 0, False, iter(written)
    for letter in letters:
        if letter == '"':
            quoted = not quoted
            continue
        if letter in "#;" and not quoted:
            break
        if letter == "\\":
            following = next(letters, "")
            taken.append(_ESCAPED.get(following, following))
        elif taken or quoted or not letter.isspace():
            taken.append(letter)
        if quoted or not letter.isspace():
            end = len(taken)
    return "".join(taken[:end])


def _text(file: str | Path) -> str:
    # What is no file, such as a pipe, may keep us waiting. A name with a NUL is a ValueError.
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        status = os.fstat(opened)
        # No more than there is, since room for the most takes longer to get than to fill.
        most = min(status.st_size, _MOST_SETTINGS) + 1
        data = os.read(opened, most) if S_ISREG(status.st_mode) else b""
    except OSError:
        return ""
    finally:
        os.close(opened)
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _first_line(file: Path) -> str:
    return _text(file).partition("\n")[0].strip()
