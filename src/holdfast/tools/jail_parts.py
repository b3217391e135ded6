"""Repositories that become parts of the one in a workspace while a jailed command runs.

A command may make a repository further down and add it to the index. A `git status` outside then
obeys the settings that it was given, which can name programs. That cannot be kept from a command
that works with git; but it is told, so that whoever is outside knows before they look.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.tools.repository import parts
from holdfast.tools.text import shown

#: That are named.
_MOST_NAMED = 10


class Parts:
    """What is in the index of a workspace, from now on. Two looks at its status is all that most
    commands pay for this."""

    def __init__(self, workspace: Path) -> None:
        self._workspace, self._index = workspace, f"{workspace}/.git/index"
        self._before = self._status()

    def told(self) -> Sequence[str]:
        """A sentence for each that is there, if a command has changed the index."""
        if self._status() == self._before:
            return ()
        return [
            f"{shown(part)} is part of this repository and has settings of its own, which a command"
            " could write; git obeys them outside, too: have a look at them before you use it there"
            for part in parts(self._workspace)[:_MOST_NAMED]
        ]

    def _status(self) -> tuple[int, int, int] | None:
        try:
            found = os.lstat(self._index)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
