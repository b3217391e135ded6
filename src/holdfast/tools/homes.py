"""Folders that are somebody's or the system's: empty for a jailed command, and no workspace.

A home holds keys, and files that programs obey wherever they are started. It is found in the list
of users rather than by a variable, which may say anything.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Covered by folders in memory: what others left there, and the sockets of services.
COVERED = ("/tmp", "/var/tmp", "/run", "/var/run", "/root", "/home", "/dev/shm")  # noqa: S108

_SYSTEM = ("/", "/proc", "/dev")


def covered_folders(mine: Path) -> Sequence[str]:
    """Folders that are replaced by empty ones in memory: each there is, and no two nested.

    `mine` is our home.
    """
    # As text, and one look at each: every command waits for this.
    there = [path for path in dict.fromkeys((*COVERED, str(mine))) if _is_folder(path)]
    return [path for path in there if not any(path.startswith(f"{one}/") for one in there)]


def _is_folder(path: str) -> bool:
    """Whether it is one itself, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def home() -> Path:
    """Our own, or a path at which there is nothing."""
    try:
        return resolved(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/nonexistent")


def no_workspace(folder: Path) -> str:
    """Why it cannot be a workspace, in a sentence for people; "" if it can."""
    real = resolved(folder)
    for other, what in _taken():
        if other == real:
            return f"{folder} cannot be a workspace: it is {what}"
        if other.is_relative_to(real):
            return f"{folder} cannot be a workspace: {other}, {what}, is in it"
    return ""


def _taken() -> Iterator[tuple[Path, str]]:
    yield from ((Path(path), "a folder of the system") for path in _SYSTEM)
    yield home(), "your home"
    for user in pwd.getpwall():
        # Many an account is nobody's, and names a folder that is not there.
        if os.path.isdir(user.pw_dir):  # noqa: PTH112
            yield resolved(user.pw_dir), f"the home of {user.pw_name}"
    yield from ((resolved(path), "a folder that commands find empty") for path in COVERED)


def resolved(path: str | Path) -> Path:
    """Where it really is."""
    return Path(os.path.realpath(path))
