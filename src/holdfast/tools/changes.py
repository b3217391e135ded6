"""Changes to several files: all of them are made, or none.

No file system does that for us. So what can be told beforehand is told before anything is written,
and if a write fails all the same those before it are taken back, from memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import ToolError
from holdfast.tools.beneath import Workspace
from holdfast.tools.stamp import Stamp
from holdfast.tools.text import shown


class Old(NamedTuple):
    """A file as it was read, or the beginning of it."""

    data: bytes
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        return Stamp.of(self.status)

    @property
    def other_names(self) -> str:
        return "; its other hard links keep the old content" if self.status.st_nlink > 1 else ""


class Change(NamedTuple):
    """What is to become of one file: `created`, `edited` or `deleted`."""

    verb: str
    path: str
    data: bytes
    old: Old | None
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.data) + (len(self.old.data) if self.old else 0)

    @property
    def told(self) -> str:
        notes = "".join(f"; {note}" for note in self.notes)
        return f"{self.verb} {shown(self.path)}{notes}{self.old.other_names if self.old else ''}"


def read(fd: int, most: int) -> bytes:
    """What is left to read of an open file, up to so many bytes."""
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(fd, min(most, 1024 * 1024))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def carry_out(files: Workspace, changes: Sequence[Change]) -> str:
    """Make them, and say so. Raises ToolError with what was wrong, and what stands if anything does."""
    _check(files, changes)
    done: list[Change] = []
    for change in changes:
        try:
            _make(files, change)
        except ToolError as error:
            raise ToolError("\n".join((str(error), *_take_back(files, done)))) from error
        done.append(change)
    return "\n".join(change.told for change in changes)


def _check(files: Workspace, changes: Sequence[Change]) -> None:
    names: dict[object, str] = {}
    for change in changes:
        real = files.check(change.path, expect=change.old and change.old.stamp)
        # Two names may be those of one file: by a link, or where case does not count.
        which = (change.old.stamp.device, change.old.stamp.inode) if change.old else real
        name = shown(change.path)
        if which in names:
            raise ToolError(
                f"{names[which]} and {name} are one file; put all changes to a file together"
            )
        names[which] = name


def _make(files: Workspace, change: Change) -> None:
    if change.old is None:
        files.write(change.path, change.data, expect=None)
    elif change.verb == "deleted":
        files.remove(change.path, expect=change.old.stamp)
    else:
        files.write(change.path, change.data, expect=change.old.stamp, parents=False)


def _take_back(files: Workspace, done: Sequence[Change]) -> Sequence[str]:
    """Undo what was done, the last first. Returns what there is to say about it."""
    stands: list[str] = []
    for change in reversed(done):
        try:
            _unmake(files, change)
        except ToolError as error:
            stands.append(f"{change.told}; this could not be taken back: {error}")
    if stands:
        return "before that, this was done and stands:", *reversed(stands)
    return ("what was done before that was taken back",) if done else ()


def _unmake(files: Workspace, change: Change) -> None:
    old, path = change.old, change.path
    if old and change.verb == "deleted":
        files.write(path, old.data, expect=None, parents=False, like=old.status)
        return
    with files.reading(path) as opened:
        now = Old(read(opened.fd, len(change.data) + 1), opened.status)
    if now.data != change.data:
        raise ToolError("somebody changed it meanwhile")
    if old:
        files.write(path, old.data, expect=now.stamp, parents=False)
    else:
        files.remove(path, expect=now.stamp)
