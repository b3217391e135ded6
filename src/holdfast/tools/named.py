"""The files that a command names, and what is in them: a yes to `bash deploy.sh` is for that script.

Only files of the workspace are looked at, each opened as the file tools open theirs. What such a file
reads or runs in its turn is not looked for, except for git, which obeys its repository. A word may turn
out to be no name, and what is only put together when the command runs is not seen; but a name too
many does no harm.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from posixpath import basename, join, normpath

from holdfast.errors import ToolError
from holdfast.tools.beneath import Opened, Workspace
from holdfast.tools.names import is_secret
from holdfast.tools.repository import obedience
from holdfast.tools.shell import Command, parse, roughly
from holdfast.tools.text import shown
from holdfast.tools.wrappers import revealed

#: Files of one command that are named to a person, and words that are tried as the name of one.
MOST_FILES = 24
MOST_WORDS = 500

#: Bytes of one file, and of all files of a command, up to which contents are summed up.
LARGEST = 8 * 1024 * 1024
MOST_BYTES = 32 * 1024 * 1024

_PIECE = 256 * 1024
#: Characters of what a repository says.
_LONGEST = 300
_TOO_MANY = (
    "not all of the files that it names can be told to be the same later: there are too many"
)


def names(command: str, directory: str) -> Sequence[str]:
    """Paths that its words may stand for. `directory` is where it runs, from the workspace on."""
    found = dict[str, None]()
    for one, places in _followed(command, directory):
        for name in _names(one):
            found.update(dict.fromkeys(join(place, name) for place in places))
        if len(found) > MOST_WORDS:
            break
    return tuple(found)


def gits(command: str, directory: str) -> Sequence[str]:
    """Directories in which it may run git."""
    found = dict[str, None]()
    for one, places in _followed(command, directory):
        if "git" in map(basename, one.seen):
            to = join("", *(b for a, b in pairwise(one.seen) if a == "-C"))
            found.update(dict.fromkeys(normpath(join(place, to)) for place in places))
    return tuple(found)[:MOST_FILES]


def _followed(command: str, directory: str) -> Iterator[tuple[Command, Sequence[str]]]:
    """The commands in it, each with where it may run: after a `cd` in one place or the other."""
    script = parse(command)
    commands, _ = revealed((roughly(command) or ()) if script is None else script.commands)
    places = [directory]
    for one in commands:
        yield one, tuple(places)
        if one.seen[:1] == ("cd",) and len(one.seen) == 2 and len(places) < MOST_FILES:
            places.append(join(places[-1], one.seen[1]))


def _names(command: Command) -> Iterator[str]:
    for word in (
        *command.seen,
        *(each.seen for each in command.redirections),
        *command.assignments,
    ):
        # As in --file=deploy.sh, too.
        yield from filter(None, (word, word.partition("=")[2]))


def obeyed(files: Workspace, places: Sequence[str]) -> str:
    """A line for each of these directories in which git obeys what a repository says."""
    lines: list[str] = []
    for place in places:
        at = Path(os.path.realpath(files.root / place))
        if at.is_relative_to(files.root) and (what := obedience(at, files.root)):
            lines.append(f"git in {shown(place)}: {shown(what)[:_LONGEST]}")
    return "\n".join(lines)


def contents(files: Workspace, paths: Sequence[str]) -> str:
    """A line for each file among them, by which it is known to be the same later."""
    look = _Look(files)
    lines = list(dict.fromkeys(filter(None, map(look.line, paths[:MOST_WORDS]))))
    told, rest = lines[:MOST_FILES], lines[MOST_FILES:]
    if rest:
        told.append(f"and {len(rest)} more: sha256 {sha256(repr(rest).encode()).hexdigest()}")
    if len(paths) > MOST_WORDS:
        told.append(_TOO_MANY)
    return "\n".join(told)


class _Look:
    """One look at the files of a command, at so many bytes and no more."""

    def __init__(self, files: Workspace) -> None:
        self._files, self._left = files, MOST_BYTES

    def line(self, path: str) -> str:
        """ "" for what is no file of the workspace."""
        try:
            with self._files.reading(self._real(path)) as opened:
                if opened.is_folder:
                    return ""
                return f"file {shown(opened.path)}: {self._sum(opened)}"
        except ToolError:
            return self._outline(path)

    def _real(self, path: str) -> str:
        """The workspace may have other names, by a link on the way to it."""
        root = str(self._files.root)
        if not path.startswith("/") or path.startswith(f"{root}/") or "\0" in path:
            return path
        real = os.path.realpath(path)
        return real if real.startswith(f"{root}/") else path

    def _sum(self, opened: Opened) -> str:
        size = opened.status.st_size
        # The sum of something short that nobody is to know would give it away.
        if size > min(LARGEST, self._left) or is_secret(opened.path):
            return _stamp(opened.status)
        self._left -= size
        total, left = sha256(), size
        while left > 0 and (piece := os.read(opened.fd, min(_PIECE, left))):
            total.update(piece)
            left -= len(piece)
        return f"sha256 {total.hexdigest()}"

    def _outline(self, path: str) -> str:
        """Of a file that no tool may open, as where a link leads out, what can be told from outside."""
        try:
            name = self._files.relative(path)
            status = (self._files.root / name).stat()
        except (ToolError, OSError, ValueError):
            return ""
        return f"file {shown(name)}: {_stamp(status)}" if stat.S_ISREG(status.st_mode) else ""


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} bytes, number {status.st_ino}, changed at {status.st_ctime_ns} ns"
