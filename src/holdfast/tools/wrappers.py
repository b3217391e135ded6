"""The commands that other commands would run: behind wrappers, in shells, and for what is found.

This is a guess, good for finding what is to be refused. Whoever must be sure goes by the list of
what only reads, and no wrapper is on that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from posixpath import basename

from holdfast.tools.shell import MOST_WORK, Command, parse, roughly, work

#: Wrappers and shells within each other, before we stop looking.
DEEPEST = 5
#: Commands that are looked at, and words of a command behind a wrapper. Texts are hostile.
MOST = 1000
#: Characters of texts in texts.
_MOST_TEXT = 64 * 1024
#: Places in one command where another may begin.
_STARTS = 8

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
_WRAPPERS = frozenset(
    {"sudo", "doas", "env", "nice", "ionice", "nohup", "timeout", "time", "xargs", "stdbuf"}
    | {"setsid", "command", "builtin", "exec", "busybox", "chroot", "unshare", "watch", "parallel"}
)
_TAKEN = re.compile(r"-.*|\w+=.*|[\d.]+[smhd]?")


def revealed(commands: Iterable[Command]) -> tuple[list[Command], bool]:
    """The commands, each followed by those it would run, and whether each was followed to its end.

    Of very many only the first are there.
    """
    found: list[Command] = []
    reading = _Reading()
    for outer in commands:
        ahead = [(outer, 0)]
        while ahead:
            if len(found) == MOST:
                return found, True
            command, depth = ahead.pop()
            found.append(command)
            inside = _inside(command, reading)
            if inside is None or (inside and depth == DEEPEST):
                return found, False
            ahead.extend((each, depth + 1) for each in reversed(inside))
    return found, True


def _inside(command: Command, reading: _Reading) -> list[Command] | None:
    """None for a text that is too much to read."""
    seen = command.seen
    name = basename(seen[0]) if seen else ""
    if name == "eval":
        return reading.read(" ".join(seen[1:]))
    if name in _SHELLS:
        texts = (i for i, word in enumerate(seen) if re.fullmatch(r"-[a-z]*c", word))
        at = next(texts, len(seen)) + 1
        return reading.read(seen[at]) if at < len(seen) else []
    if name == "find":
        starts = [i for i, word in enumerate(seen) if re.fullmatch(r"-(exec|ok)(dir)?", word)]
        return [_from(command, i + 1) for i in starts[:_STARTS] if i + 1 < len(seen)]
    return [_from(command, i) for i in islice(_wrapped(seen), _STARTS)] if name in _WRAPPERS else []


def _wrapped(seen: Sequence[str]) -> Iterator[int]:
    """Where the command behind a wrapper may begin: a word after an option may be its value."""
    for i in range(1, len(seen)):
        if _TAKEN.fullmatch(seen[i]):
            continue
        yield i
        if not seen[i - 1].startswith("-"):
            return


def _from(command: Command, start: int) -> Command:
    seen = command.seen[start : start + MOST]
    same = len(command.words) == len(command.seen)
    return Command(command.words[start : start + MOST] if same else (None,) * len(seen), seen)


class _Reading:
    """Texts in texts: all of them together may take so long, and no longer."""

    def __init__(self) -> None:
        self._characters, self._work = _MOST_TEXT, MOST_WORK // 3

    def read(self, text: str) -> list[Command] | None:
        self._characters -= len(text)
        if self._characters < 0:
            return None
        cost = work(text)
        script = None
        if cost <= self._work:
            self._work -= cost
            script = parse(text)
        found = roughly(text) if script is None else script.commands
        return None if found is None else list(found)
