"""What the system knows of a file: which one it is, what kind of thing, whose, and for whom."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


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


def look(folder: int, name: str) -> os.stat_result | None:
    """What has this name in an open folder, be it a link; None if nothing has."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def same_as(status: os.stat_result, paths: Sequence[Path]) -> bool:
    """Whether it is one of these files, by whatever name."""
    for path in paths:
        with suppress(OSError):
            if os.path.samestat(status, path.stat()):
                return True
    return False


def harmless(status: os.stat_result) -> bool:
    """Whether a file with several names may be read under the one it has here.

    Where the others are cannot be told. Package managers link from a store of their own, so not
    all such files can be refused; but what is somebody else's, or kept from others, might be a
    secret that was given a name here.
    """
    return status.st_uid == os.geteuid() and bool(status.st_mode & stat.S_IROTH)


def kind_of(mode: int) -> str:
    """What is neither a file nor a folder, in words."""
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def dress(fd: int, old: os.stat_result | None) -> None:
    """Give a new file the owner and the permissions of the one it is to replace."""
    if old is None:
        return
    # Not everybody may give files away, and not every owner has a number here.
    with suppress(OSError):
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def settle(folder: int) -> None:
    """It is done, and everybody sees it; not every file system can promise more."""
    with suppress(OSError):
        os.fsync(folder)
