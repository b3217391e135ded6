"""Names that must not come into being in a workspace, and are set aside when they do.

Programs obey them when somebody starts one: a shell in a home to which they are linked, an agent in
this folder. That is later, so nothing need stand in their place meanwhile, which would be seen by
every `ls` and every archive. They are looked for every now and then, and when all is over; what
was not there before is given another name, which nobody obeys. Nothing is deleted, for whoever is
outside may have made it.

What is there already is bound read-only, as the other names are (see `jail_names`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import ToolError
from holdfast.tools.names import LATER

#: Somebody who makes the same name again and again is at it on purpose.
_MOST_ASIDE = 9

_Identity = tuple[int, int, int]


class Arrivals:
    """What comes into being in a workspace, from now on. What is `there` already is to be bound.

    The workspace is held open, and all is done there, so that no link leads elsewhere. A link cannot
    be bound; what somebody puts in its place has come into being.
    """

    def __init__(self, workspace: Path) -> None:
        try:
            self._folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ToolError(f"no command can be run in the jail: {error}") from error
        self._before = {name: self._identity(name) for name in LATER}
        names = [name for name, found in self._before.items() if found and found[2] != stat.S_IFLNK]
        self.there = [workspace / name for name in names]
        for name in names:
            del self._before[name]
        self._told: list[str] = []

    def set_aside(self) -> str | None:
        """Give another name to what has come. Says why the command must be ended, if that fails."""
        for name, before in self._before.items():
            now = self._identity(name)
            if now not in (None, before) and (objection := self._rename(name)):
                return objection
        return None

    def close(self) -> Sequence[str]:
        """Look once more. Says what was set aside, in a sentence each."""
        objection = self.set_aside()
        os.close(self._folder)
        return [*self._told, objection] if objection else self._told

    def _rename(self, name: str) -> str | None:
        asides = (f"{name}.aside{number}" for number in range(1, _MOST_ASIDE + 1))
        aside = next((one for one in asides if self._identity(one) is None), None)
        if aside is None:
            return f"{name}, which programs outside obey, came into being again and again"
        try:
            os.rename(name, aside, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileNotFoundError:
            return None  # it is gone again
        except OSError as error:
            return f"{name}, which programs outside obey, came into being and stays: {error}"
        self._told.append(
            f"{name} came into being meanwhile; programs outside obey what is called so, and it is"
            f" called {aside} now"
        )
        return None

    def _identity(self, name: str) -> _Identity | None:
        try:
            found = os.lstat(name, dir_fd=self._folder)
        except OSError:
            return None
        return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode)
