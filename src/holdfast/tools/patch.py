"""Changes to a text: one passage for another, or a unified patch, read strictly and applied exactly.

A passage is replaced where it stands once, or everywhere if that is asked for. A hunk goes where its line numbers say, or else to the one other place where all of its lines
stand. Nothing is guessed: lines that are not there are an error, and so are two such places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import ToolError
from holdfast.tools.text import count

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_FILE = "/dev/null"
#: What git says before a file's lines and we can do without.
_PASSED_OVER = ("diff ", "index ", "new file mode ", "deleted file mode ")
_REFUSED = {
    "rename ": "renames a file; delete the one and create the other instead",
    "similarity ": "renames or copies a file; delete the one and create the other instead",
    "copy ": "copies a file; create it with its content instead",
    "old mode ": "changes permissions, which cannot be done here",
    "new mode ": "changes permissions, which cannot be done here",
    "GIT binary patch": "is for a binary file",
    "Binary files ": "is for a binary file",
}
_NO_NEWLINE = "\\"

#: Of a patch, which is read where everybody waits meanwhile: characters, lines, files.
MOST_PATCH, MOST_PATCH_LINES, MOST_PATCH_FILES = 128 * 1024, 10_000, 100
#: Lines of a file that is patched, and characters in which a passage is looked for that is not there.
MOST_LINES, MOST_COMPARED = 1_000_000, 1_000_000
#: Characters of a file in which passages were replaced.
MOST_TEXT = 10_000_000
#: Hunks that may stand elsewhere in a file than they say, those that follow from another not counted.
MOST_MOVED = 50
#: Places that are named where a passage stands in several.
_MOST_NAMED = 10


class Hunk(NamedTuple):
    """Lines that stand somewhere, and those that take their place. Each with its line end."""

    header: str
    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


class FilePatch(NamedTuple):
    """What happens to one file."""

    path: str
    creates: bool
    deletes: bool
    hunks: tuple[Hunk, ...]


class Applied(NamedTuple):
    """The text as it is then, and what there is to say about where the hunks went."""

    text: str
    notes: tuple[str, ...]


def parse(patch: str) -> tuple[FilePatch, ...]:
    """The files of a patch. Raises ToolError with what is wrong, and in which line."""
    _check_size(len(patch), "character", MOST_PATCH)
    _check_size(patch.count("\n"), "line", MOST_PATCH_LINES)
    lines = patch.replace("\r\n", "\n").removesuffix("\n").split("\n")
    files: list[FilePatch] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith("--- "):
            file, at = _file(lines, at)
            files.append(file)
            continue
        _check_between(lines[at], at)
        at += 1
    if not files:
        raise ToolError("the patch names no file; it needs lines --- a/path and +++ b/path")
    _check_size(len(files), "file", MOST_PATCH_FILES)
    paths: set[str] = set()
    for file in files:
        if file.path in paths:
            raise ToolError(f"the patch names {file.path} twice; put all hunks of a file together")
        paths.add(file.path)
    return tuple(files)


def _check_size(size: int, what: str, most: int) -> None:
    if size > most:
        raise ToolError(
            f"the patch is too long: it has {count(size, what)}, and at most {most:,} are taken; make"
            " several of it"
        )


def _check_between(line: str, at: int) -> None:
    if not line or line.startswith(_PASSED_OVER):
        return
    for start, what in _REFUSED.items():
        if line.startswith(start):
            raise ToolError(f"line {at + 1} of the patch {what}: {line[:200]}")
    raise ToolError(
        f"line {at + 1} of the patch is neither in a hunk nor the start of one: {line[:200]!r};"
        " perhaps the numbers in the @@ line before it are too small"
    )


def _file(lines: Sequence[str], at: int) -> tuple[FilePatch, int]:
    old = _path(lines[at], at)
    at += 1
    if at == len(lines) or not lines[at].startswith("+++ "):
        raise ToolError(f"line {at + 1} of the patch should begin with +++, after the line ---")
    new = _path(lines[at], at)
    path = _one_path(old, new, at)
    at += 1
    hunks: list[Hunk] = []
    while at < len(lines) and lines[at].startswith("@@"):
        hunk, at = _hunk(lines, at)
        hunks.append(hunk)
    if not hunks:
        raise ToolError(
            f"the patch has no hunk for {path}: a line like @@ -1,3 +1,4 @@ should follow"
        )
    return FilePatch(path, old == _NO_FILE, new == _NO_FILE, tuple(hunks)), at


def _path(line: str, at: int) -> str:
    path = line[4:].partition("\t")[0].rstrip()
    if path.startswith('"') or not path:
        raise ToolError(
            f"line {at + 1} of the patch should name a file, without quotes: {line[:200]}"
        )
    return path


def _one_path(old: str, new: str, at: int) -> str:
    if old == new == _NO_FILE:
        raise ToolError(f"line {at + 1} of the patch: {_NO_FILE} cannot become {_NO_FILE}")
    if old == _NO_FILE:
        return new.removeprefix("b/")
    if new == _NO_FILE:
        return old.removeprefix("a/")
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    if old != new:
        raise ToolError(
            f"line {at + 1} of the patch renames {old} to {new}; delete the one and create the"
            " other instead"
        )
    return new


def _hunk(lines: Sequence[str], at: int) -> tuple[Hunk, int]:
    header = lines[at]
    found = _HUNK.match(header)
    if not found:
        raise ToolError(
            f"line {at + 1} of the patch should be like @@ -12,3 +12,4 @@: {header[:200]!r}"
        )
    start, old_count, _, new_count = (1 if one is None else int(one) for one in found.groups())
    old: list[str] = []
    new: list[str] = []
    first = at
    at += 1
    while at < len(lines) and (len(old) < old_count or len(new) < new_count):
        _take(lines[at], at, old, new)
        at += 1
        if at < len(lines) and lines[at].startswith(_NO_NEWLINE):
            _take_off_newline(lines[at - 1], old, new)
            at += 1
    if (len(old), len(new)) != (old_count, new_count):
        raise ToolError(
            f"the hunk in line {first + 1} of the patch announces {old_count} old and {new_count}"
            f" new lines and has {len(old)} and {len(new)}"
        )
    return Hunk(found[0], start, tuple(old), tuple(new)), at


def _take(line: str, at: int, old: list[str], new: list[str]) -> None:
    mark, text = line[:1], line[1:] + "\n"
    # An empty line that stays is often sent without the space before it.
    if mark in ("", " ", "-"):
        old.append(text)
    if mark in ("", " ", "+"):
        new.append(text)
    if mark not in ("", " ", "-", "+"):
        raise ToolError(
            f"line {at + 1} of the patch should begin with a space, - or +, as the @@ line before"
            f" it announces more lines: {line[:200]!r}"
        )


def _take_off_newline(line: str, old: list[str], new: list[str]) -> None:
    for mark, side in (("-", old), ("+", new)):
        if line[:1] in ("", " ", mark):
            side[-1] = side[-1].removesuffix("\n")


def apply(file: FilePatch, text: str) -> Applied:
    """The text with all hunks in it. Raises ToolError if one of them has no place, or several."""
    if text.count("\n") > MOST_LINES:
        raise ToolError(f"{file.path} has too many lines for a patch: at most {MOST_LINES:,}")
    lines = _split(text)
    result: list[str] = []
    notes: list[str] = []
    done, shift = 0, 0
    for hunk in file.hunks:
        # A hunk without old lines stands after the line it names.
        wanted = hunk.start - (1 if hunk.old else 0) + shift
        at = _place(file.path, hunk, lines, done, wanted)
        if at != wanted:
            notes.append(f"{hunk.header} was applied {at - wanted:+d} lines from where it said")
            # Each has been looked for in the whole file.
            if len(notes) > MOST_MOVED:
                raise ToolError(
                    f"{file.path}: more than {MOST_MOVED} hunks are not where they say; read the file"
                    " again first"
                )
        shift += at - wanted
        result += [*lines[done:at], *hunk.new]
        done = at + len(hunk.old)
    result += lines[done:]
    whole = "".join(result)
    if file.deletes and whole:
        raise ToolError(
            f"the patch deletes {file.path}, but has not all of its lines; nothing was changed"
        )
    return Applied(whole, tuple(notes))


def _split(text: str) -> list[str]:
    """By LF alone: to a file, other marks are just characters."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _place(path: str, hunk: Hunk, lines: Sequence[str], done: int, wanted: int) -> int:
    """The index at which the hunk's old lines stand, not before `done`."""
    size = len(hunk.old)
    old = list(hunk.old)
    if done <= wanted <= len(lines) and lines[wanted : wanted + size] == old:
        return wanted
    if not old:
        raise ToolError(
            f"{path}: {hunk.header} has no lines to find its place by, and no such place"
        )
    places = [
        at
        for at in range(done, len(lines) - size + 1)
        if lines[at] == old[0] and lines[at : at + size] == old
    ]
    if len(places) == 1:
        return places[0]
    if places:
        numbers = ", ".join(str(at + 1) for at in places[:10])
        raise ToolError(
            f"{path}: the lines of {hunk.header} are not where it says, and stand in"
            f" {len(places)} other places, at lines {numbers}; give more context"
        )
    raise ToolError(f"{path}: {hunk.header} does not apply: {_difference(hunk, lines, wanted)}")


def _difference(hunk: Hunk, lines: Sequence[str], wanted: int) -> str:
    """The first line that is not as the hunk has it, where the hunk says it is."""
    for offset, old in enumerate(hunk.old):
        at = wanted + offset
        if not 0 <= at < len(lines):
            return f"the file has only {len(lines)} lines"
        if lines[at] != old:
            there, here = lines[at][:200], old[:200]
            if there.rstrip("\n") == here.rstrip("\n"):
                return f"line {at + 1} differs in whether a newline ends it"
            return f"line {at + 1} is {there!r}, and the patch has {here!r}"
    return "its lines stand before those of an earlier hunk"


class Replaced(NamedTuple):
    """The text as it is then, how often a passage stood in it, and in which lines the first did."""

    text: str
    places: int
    lines: tuple[int, ...]


def replace_passage(path: str, text: str, old: str, new: str, *, every: bool) -> Replaced:
    """The text with one passage in place of another. Raises ToolError if it is not clear where."""
    check_passage(old, new)
    lines = _lines_of(text, old)
    if not lines:
        raise ToolError(f"{path} does not have that passage{_nearest(text, old)}")
    if len(lines) > 1 and not every:
        some = ", ".join(str(line) for line in lines[:_MOST_NAMED])
        many = len(lines) > _MOST_NAMED
        times, more = (f"more than {_MOST_NAMED}", ", …") if many else (f"{len(lines)}", "")
        raise ToolError(
            f"{path} has that passage {times} times, at lines {some}{more}; give more context, or"
            " all=true to replace each"
        )
    places = text.count(old)
    # Before it is made: there may not be the memory for it.
    if len(text) + places * (len(new) - len(old)) > MOST_TEXT:
        raise ToolError(f"{path} would be too large: at most {count(MOST_TEXT, 'character')}")
    return Replaced(text.replace(old, new), places, lines)


def check_passage(old: str, new: str) -> None:
    """Raise ToolError if there is nothing to replace, whatever the file says."""
    if not old:
        raise ToolError("`old` is empty: give the passage to replace; write_file makes a new file")
    if old == new:
        raise ToolError("`old` and `new` are the same: nothing to change")


def _lines_of(text: str, passage: str) -> tuple[int, ...]:
    """The lines, from 1, in which the first few begin. One may begin in the middle of another."""
    numbers: list[int] = []
    number, at = 1, -1
    while len(numbers) <= _MOST_NAMED and (found := text.find(passage, at + 1)) >= 0:
        number += text.count("\n", max(at, 0), found)
        numbers.append(number)
        at = found
    return tuple(numbers)


def _nearest(text: str, passage: str) -> str:
    """What there is instead, for whoever remembered it not quite right."""
    if "\r" in text:
        return (
            "; some of its lines end in CR LF and some do not, so a passage over several may differ"
        )
    lines = text[:MOST_COMPARED].split("\n")
    wanted = [line.split() for line in passage.strip("\n").split("\n")]
    words = [line.split() for line in lines]
    for at in range(len(lines) - len(wanted) + 1):
        if words[at] == wanted[0] and words[at : at + len(wanted)] == wanted:
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
