"""Whether git can be run in a repository without running what the repository names.

The settings of a repository can name programs that even `git status` starts: a watcher of files, a
filter, a driver for differences. A repository may come from a stranger. So each of its settings
must be known to name none, and nothing else is let pass.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG

_LARGEST_HEAD = 256
_LARGEST_SETTINGS = 64 * 1024
_LARGEST_INDEX = 8 * 1024 * 1024
#: Files in an index whose names are read.
MOST_TRACKED = 20_000

_SETTING = re.compile(
    r"core\.(repositoryformatversion=0|filemode=\w+|bare=false|logallrefupdates=\w+|ignorecase=\w+"
    r"|precomposeunicode=\w+|symlinks=\w+)|remote\.(url|fetch|tagopt)=.*"
    r"|branch\.(remote|merge|rebase)=.*|user\.(name|email)=.*",
    re.IGNORECASE,
)
_SECTION = re.compile(r'\[(core|remote|branch|user)(?: "[\w./@+-]+")?\]', re.IGNORECASE)
_HEAD = re.compile(rb"(?:ref: refs/\S+|[0-9a-f]{40})\n?")
#: The name of a remote, or another section.
_REMOTE = re.compile(r'\[(?:remote "([^"]+)"\])?', re.IGNORECASE)
_FAR = re.compile(r"(?:https?|ssh|git)://\w|[\w.][\w.-]*@[\w.][\w.-]*:")
#: Of the index, with names in full.
_VERSIONS = (b"\0\0\0\2", b"\0\0\0\3")
_EXTENDED = 0x40
_NONE = "there is no repository within the workspace"
#: A module of another repository, which has settings of its own, as the index has it.
_GITLINK = b"\0\0\xe0\0"


def clean(directory: Path, workspace: Path) -> Path | str:
    """The root of the repository that git would find from here, or why git may not be run.

    It must be within the workspace, whole and in the ordinary shape, and tied to no other
    repository, for git would look into those as well. The same goes for those further up: git
    takes the next one for a reason that we might not know of.
    """
    try:
        return _found(directory, workspace)
    except (OSError, UnicodeDecodeError):
        return "its repository cannot be read"


def _found(directory: Path, workspace: Path) -> Path | str:
    found: Path | None = None
    for place in (directory, *directory.parents):
        if os.path.lexists(place / ".git"):
            if why := _tied(place):
                return why
            found = found or place
        elif (place / "HEAD").exists():
            return "this directory looks like the inside of a repository"
        if place == workspace:
            break
    return found or _NONE


def _tied(root: Path) -> str:
    inside = root / ".git"
    if not S_ISDIR(inside.lstat().st_mode):
        return "its repository is somewhere else"
    odd = ("commondir", "config.worktree", "modules", "objects/info/alternates")
    if any(os.path.lexists(inside / each) for each in odd) or (root / ".gitmodules").exists():
        return "its repository is tied to others"
    if any(_linked(inside / each) for each in ("", "objects", "objects/pack")):
        return "its repository is tied to others"
    if not _whole(inside):
        return "its repository is not a whole one"
    return _settings(inside / "config") or _index(inside)


def _linked(folder: Path) -> bool:
    """Whether something in it is really somewhere else."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return any(entry.is_symlink() for entry in entries)
    return False


def _whole(inside: Path) -> bool:
    """What git passes over, if this is not so, to look further up."""
    head = inside / "HEAD"
    return (
        all(os.access(f"{inside}/{each}/", os.X_OK) for each in ("objects", "refs"))
        and head.is_file()
        and head.lstat().st_size < _LARGEST_HEAD
        and _HEAD.fullmatch(head.read_bytes()) is not None
    )


def _settings(file: Path) -> str:
    found = file.lstat()
    if not S_ISREG(found.st_mode) or found.st_size > _LARGEST_SETTINGS:
        return "the settings of its repository are not an ordinary file"
    section = ""
    for line in file.read_bytes().decode().split("\n"):
        text = line.strip()
        if not text or text.startswith(("#", ";")):
            continue
        if opened := _SECTION.fullmatch(text):
            section = opened[1]
            continue
        key, _, value = text.partition("=")
        if text.endswith("\\") or not _SETTING.fullmatch(
            f"{section}.{key.strip()}={value.strip()}"
        ):
            return f"a setting of its repository is not known to be harmless ({text})"
    return ""


def _index(inside: Path) -> str:
    names = [entry.name for entry in inside.iterdir()]
    if any(name.startswith("sharedindex") for name in names):
        return "its index is in several pieces"
    file = inside / "index"
    if "index" not in names:
        return ""
    found = file.lstat()
    if (
        not S_ISREG(found.st_mode)
        or found.st_size > _LARGEST_INDEX
        or _GITLINK in file.read_bytes()
    ):
        return "its index may hold other repositories"
    return ""


def obedience(directory: Path, workspace: Path) -> str:
    """What git would obey in the repository that it finds from here; "" if nothing is known of."""
    root = clean(directory, workspace)
    if isinstance(root, str):
        return "" if root == _NONE else root
    try:
        return "its repository has hooks" if _hooked(root) else ""
    except OSError:
        return "its repository cannot be read"


def _hooked(root: Path) -> bool:
    with suppress(FileNotFoundError):
        return any(hook.suffix != ".sample" for hook in (root / ".git/hooks").iterdir())
    return False


def remotes(directory: Path, workspace: Path) -> set[str] | None:
    """The other repositories that this one knows, by name. None where git may run something when
    it does more than look: a hook here, or those of a repository that is a folder."""
    root = clean(directory, workspace)
    if isinstance(root, str):
        return None
    found: set[str] = set()
    try:
        if _hooked(root):
            return None
        name = ""
        for line in (root / ".git/config").read_bytes().decode().split("\n"):
            if opened := _REMOTE.match(line.strip()):
                name = opened[1] or ""
            key, _, value = line.partition("=")
            if key.strip().lower() == "url":
                if not is_far(value.strip()):
                    return None
                found.add(name)
    except (OSError, UnicodeDecodeError):
        return None
    return found


def is_far(url: str) -> bool:
    """Whether this is a repository on another machine, as git would read it."""
    return _FAR.match(url) is not None


def tracked(root: Path) -> list[str] | None:
    """The names of the files in the index of a clean repository. None if they cannot be told."""
    try:
        data = (root / ".git/index").read_bytes()
    except FileNotFoundError:
        return []
    except OSError:
        return None
    found = _entries(data)
    return None if found is None else [name for name, _ in found]


def parts(root: Path) -> list[str]:
    """The repositories in the index of this one which lie where a command may write: git obeys their
    settings when it is asked about this one. Those it has made itself lie in its own folder."""
    inside = root / ".git"
    try:
        data = _read(inside / "index", _LARGEST_INDEX)
    except OSError:
        return []
    if data is not None and _GITLINK not in data:
        return []
    found = data and _entries(data)
    if not found:
        return ["something that its index does not tell"]
    return [name for name, mode in found if mode == _GITLINK and not _at_home(root / name, inside)]


def _read(file: Path, most: int) -> bytes | None:
    """None for what is no file, or a large one: whoever made it may want us to wait."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        whole = S_ISREG(status.st_mode) and status.st_size <= most
        return os.read(opened, most) if whole else None
    finally:
        os.close(opened)


def _at_home(part: Path, inside: Path) -> bool:
    """Whether its settings are kept with those of the repository that it is a part of."""
    try:
        words = _read(part / ".git", _LARGEST_HEAD)
    except (FileNotFoundError, NotADirectoryError):
        return True  # none are here
    except OSError:
        return False
    if not words or b"\0" in words:
        return False
    to = part / os.fsdecode(words.removeprefix(b"gitdir:").strip())
    return Path(os.path.realpath(to)).is_relative_to(inside / "modules")


def _entries(data: bytes) -> list[tuple[str, bytes]] | None:
    """Names and modes, None if they cannot be told."""
    count = int.from_bytes(data[8:12])
    if data[:4] != b"DIRC" or data[4:8] not in _VERSIONS or count > MOST_TRACKED:
        return None
    found: list[tuple[str, bytes]] = []
    at = 12
    try:
        for _ in range(count):
            start = at + (64 if data[at + 60] & _EXTENDED else 62)
            end = data.index(b"\0", start)
            found.append((os.fsdecode(data[start:end]), data[at + 24 : at + 28]))
            # Filled up to a multiple of eight, with one zero at least.
            at += (end - at + 8) // 8 * 8
    except (IndexError, ValueError):
        return None
    return found
