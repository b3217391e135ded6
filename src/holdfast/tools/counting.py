"""How many files a command would delete, counted within bounds: everybody else waits meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from msgspec import Struct

from holdfast.tools.shell import Command

#: With these, a name that is looked for may decide nothing.
_COMPOUND = frozenset({"-o", "-or", "-not", "!", "(", ")", ","})


class Effort(Struct):
    """What is left to spend on one judgement, however much there is to judge."""

    looks: int = 4000
    operands: int = 100
    folders: int = 600
    entries: int = 10_000

    @property
    def spent(self) -> bool:
        return self.looks < 0

    def look(self, times: int) -> bool:
        """Whether so much may still be looked up."""
        self.looks -= times
        return not self.spent


def everything(_: str) -> bool:
    return True


def wanted(command: Command) -> Callable[[str], bool]:
    """Which names `find` would act on: all that could be, unless one simple name decides first."""
    seen: Sequence[str] = command.seen
    acts = (i for i, word in enumerate(seen) if word == "-delete" or word.startswith("-exec"))
    before = seen[: next(acts, 0)]
    named = [i for i, word in enumerate(before) if word in ("-name", "-iname")]
    known = tuple("{}" if word is None else word for word in command.words) == command.seen
    if not known or len(named) != 1 or not _COMPOUND.isdisjoint(seen):
        return everything
    pattern = "".join(before[named[0] + 1 : named[0] + 2])
    # Find and we would not read these alike.
    if not pattern or set(pattern) & set("[]\\"):
        return everything
    if before[named[0]] == "-name":
        return lambda name: fnmatchcase(name, pattern)
    return lambda name: fnmatchcase(name.lower(), pattern.lower())


def files(path: str, name: str, enough: int, effort: Effort, wants: Callable[[str], bool]) -> int:
    """How many files there are beneath what is wanted, counted until there are more than enough.

    `name` is what the path was called. No link is followed.
    """
    if not os.path.isdir(path) or os.path.islink(path):  # noqa: PTH112, PTH114 (text, and quick)
        return int(os.path.lexists(path))
    found = 0
    ahead = [(path, wants(name))]
    while ahead:
        folder, every = ahead.pop()
        effort.folders -= 1
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                effort.entries -= 1
                counts = every or wants(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    ahead.append((entry.path, counts))
                else:
                    found += counts
                if found > enough or len(ahead) > effort.folders or effort.entries < 0:
                    return enough + 1
    return found
