"""Whether git can be run in a repository without running what the repository names.

The settings of a repository can name programs that even `git status` starts: a watcher of files, a
filter, a driver for differences. A repository may come from a stranger. So each of its settings
must be known to name none, and nothing else is let pass.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from stat import S_ISDIR, S_ISREG

_LARGEST_SETTINGS = 64 * 1024
_LARGEST_INDEX = 8 * 1024 * 1024

_SETTING = re.compile(
    r"core\.(repositoryformatversion=0|filemode=\w+|bare=false|logallrefupdates=\w+|ignorecase=\w+"
    r"|precomposeunicode=\w+|symlinks=\w+)|remote\.(url|fetch|tagopt)=.*"
    r"|branch\.(remote|merge|rebase)=.*|user\.(name|email)=.*",
    re.IGNORECASE,
)
_SECTION = re.compile(r'\[(core|remote|branch|user)(?: "[\w./@+-]+")?\]', re.IGNORECASE)
#: A module of another repository, which has settings of its own, as the index has it.
_GITLINK = b"\0\0\xe0\0"


def clean(directory: Path, workspace: Path) -> Path | str:
    """The root of the repository that git would find from here, or why git may not be run.

    It must be within the workspace and in the ordinary shape, tied to no other repository, for
    git would look into those as well.
    """
    try:
        root = _found(directory, workspace)
        return root if isinstance(root, str) else _tied(root) or root
    except (OSError, UnicodeDecodeError):
        return "its repository cannot be read"


def _found(directory: Path, workspace: Path) -> Path | str:
    for place in (directory, *directory.parents):
        if os.path.lexists(place / ".git"):
            return place
        if (place / "HEAD").exists():
            return "this directory looks like the inside of a repository"
        if place == workspace:
            break
    return "there is no repository within the workspace"


def _tied(root: Path) -> str:
    inside = root / ".git"
    if not S_ISDIR(inside.lstat().st_mode):
        return "its repository is somewhere else"
    odd = ("commondir", "config.worktree", "modules", "objects/info/alternates")
    if any(os.path.lexists(inside / each) for each in odd) or (root / ".gitmodules").exists():
        return "its repository is tied to others"
    return _settings(inside / "config") or _index(inside)


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
