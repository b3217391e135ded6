"""One passage of a text for another, where it stands once, or everywhere if that is asked for.

A model knows a text as it was shown it, which is not always as it is: a line's CR is left out there,
and a byte that is no character is spelled. So a passage is looked for in what is shown and replaced in
what is there, and what stays the same of it stays the same to the byte.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice, takewhile, zip_longest
from typing import NamedTuple

from holdfast.errors import ToolError
from holdfast.tools.text import as_shown, count, unspelled

#: Characters of a text in which passages were replaced, and in which is looked for what is similar.
MOST_TEXT, MOST_COMPARED = 10_000_000, 1_000_000
#: Places that are named where a passage stands in several.
_MOST_NAMED = 10
#: Places at which a passage is compared word by word.
_MOST_TRIED = 100
#: What is shown as something else.
_OTHERWISE = re.compile("\r\n|[\udc80-\udcff]")
_END = re.compile("(\r?\n)")


class Replaced(NamedTuple):
    """The text as it is then, how often a passage stood in it, and in which lines the first did."""

    text: str
    places: int
    lines: tuple[int, ...]


def replace_passage(path: str, text: str, old: str, new: str, *, every: bool) -> Replaced:
    """The text with one passage in place of another. Raises ToolError if it is not clear where."""
    check_passage(old, new)
    # Who wrote a CR that stands there has meant it.
    meant = ("\r" in old or "\r" in new) and old in text
    seen = text if meant else as_shown(text)
    same = seen == text
    if not same:
        old, new = (words.replace("\r\n", "\n") for words in (old, new))
    lines = _lines(text, _places(text, seen, old, 1))
    if not lines:
        raise ToolError(f"{path} does not have that passage{_nearest(seen, old)}")
    if len(lines) > 1 and not every:
        some = ", ".join(str(line) for line in lines[:_MOST_NAMED])
        many = len(lines) > _MOST_NAMED
        times, more = (f"more than {_MOST_NAMED}", ", …") if many else (f"{len(lines)}", "")
        raise ToolError(
            f"{path} has that passage {times} times, at lines {some}{more}; give more context, or"
            " all=true to replace each"
        )
    places = text.count(old) if same else sum(1 for _ in _places(text, seen, old))
    # Before it is made: there may not be the memory for it.
    if len(text) + places * (len(new) - len(old)) > MOST_TEXT:
        raise ToolError(f"{path} would be too large: at most {count(MOST_TEXT, 'character')}")
    if same:
        return Replaced(text.replace(old, new), places, lines)
    return Replaced("".join(_woven(text, seen, old, new)), places, lines)


def check_passage(old: str, new: str) -> None:
    """Raise ToolError if there is nothing to replace, whatever the file says."""
    if not old:
        raise ToolError("`old` is empty: give the passage to replace; write_file makes a new file")
    if old == new:
        raise ToolError("`old` and `new` are the same: nothing to change")


class _Place(NamedTuple):
    """From where to where a passage stands in a text."""

    start: int
    end: int


def _places(text: str, seen: str, passage: str, step: int | None = None) -> Iterator[_Place]:
    """Where all of a text is that is shown as this passage, each so far after the one before."""
    start_of, end_of = _Index(text), _Index(text)
    at = seen.find(passage)
    while at >= 0:
        start, end = start_of.there(at), end_of.there(at + len(passage))
        further = 1
        if start is not None and end is not None:
            yield _Place(start, end)
            further = step or len(passage)
        at = seen.find(passage, at + further)


class _Index:
    """Finds in a text what is shown at some place, from the first place to the last."""

    def __init__(self, text: str) -> None:
        self._others = _OTHERWISE.finditer(text)
        self._shift = 0
        self._next()

    def there(self, at: int) -> int | None:
        """None if the place is in the middle of what is shown for one thing."""
        while at + self._shift >= self._start + self._length:
            self._shift += self._more
            self._next()
        return None if self._start < at + self._shift else at + self._shift

    def _next(self) -> None:
        """Where the next thing begins that is shown as another, how long that is, and how much longer it."""
        found = next(self._others, None)
        self._start = found.start() if found else sys.maxsize
        self._length = 4 if found and len(found[0]) == 1 else 1
        self._more = len(found[0]) - self._length if found else 0


def _lines(text: str, places: Iterator[_Place]) -> tuple[int, ...]:
    """The lines, from 1, in which the first few begin. One may begin in the middle of another."""
    numbers: list[int] = []
    number, done = 1, 0
    for place in islice(places, _MOST_NAMED + 1):
        number += text.count("\n", done, place.start)
        numbers.append(number)
        done = place.start
    return tuple(numbers)


# --- where what is there is not what is shown


def _woven(text: str, seen: str, old: str, new: str) -> Iterator[str]:
    """The pieces of the text, with the new passage where it showed the old one."""
    done = 0
    # There may be very many, and hardly two kinds of them.
    fit = cache(partial(_fitted, old, new))
    for start, end in _places(text, seen, old):
        yield text[done:start]
        yield fit(text[start:end], _end_near(text, start))
        done = end
    yield text[done:]


def _fitted(old: str, new: str, there: str, end: str) -> str:
    """The new passage, with the bytes and the line ends of what is there where it is the same."""
    olds, news = old.split("\n"), new.split("\n")
    pieces = _END.split(there)
    lines, ends = pieces[::2], pieces[1::2]
    first = _alike(olds, news)
    last = _alike(olds[first:][::-1], news[first:][::-1])
    changed = [unspelled(line, there) for line in news[first : len(news) - last]]
    lines = [*lines[:first], *changed, *lines[len(lines) - last :]]
    # What stays at the end keeps its ends; any other line has that of the line in its place.
    kept = max(last - 1, 0)
    before, after = ends[: len(ends) - kept], ends[len(ends) - kept :]
    more = before[-1:] or [end]
    ends = [*before, *more * (len(lines) - 1 - len(ends))][: len(lines) - 1 - kept] + after
    return "".join(chain.from_iterable(zip_longest(lines, ends, fillvalue="")))


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many are the same from the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _end_near(text: str, at: int) -> str:
    """How the line ends in which this place is, or else the one before it."""
    found = text.find("\n", at)
    if found < 0:
        found = text.rfind("\n", 0, at)
    return "\r\n" if found > 0 and text[found - 1] == "\r" else "\n"


# --- what there is instead


def _nearest(text: str, passage: str) -> str:
    """What there is instead, for whoever remembered it not quite right."""
    lines = text[:MOST_COMPARED].split("\n")
    wanted = [line.split() for line in passage.strip("\n").split("\n")]
    words = [line.split() for line in lines]
    # Of lines that are all the same each would be compared with each.
    begins = (at for at in range(len(lines) - len(wanted) + 1) if words[at] == wanted[0])
    for at in islice(begins, _MOST_TRIED):
        if words[at : at + len(wanted)] == wanted:
            there = "\n".join(lines[at : at + len(wanted)])[:500]
            return f"; at line {at + 1} the same words stand with other white space: {there!r}"
    alike, number = max(
        (_likeness(set(wanted[0]), set(line)), -number) for number, line in enumerate(words)
    )
    if alike < 0.5:
        return "; read the file first, and give the passage exactly as it stands there"
    return f"; the most similar line to its first is {-number + 1}: {lines[-number][:500]!r}"


def _likeness(one: set[str], other: set[str]) -> float:
    return len(one & other) / (len(one | other) or 1)
