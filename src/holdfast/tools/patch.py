"""A unified patch, read strictly and applied exactly.

A hunk goes where its line numbers say, or else to the one other place where all of its lines stand.
Nothing is guessed: lines that are not there are an error, and so are two such places. Lines are
compared as they are shown: one that stays keeps its end and its bytes, and one that is new gets those
of its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.errors import ToolError
from holdfast.tools.text import as_shown, count, unspelled

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
#: Lines of a file that is patched.
MOST_LINES = 1_000_000
#: Hunks that may stand elsewhere in a file than they say, those that follow from another not counted.
MOST_MOVED = 50
#: Characters of a line that are shown where it is not as a hunk has it.
_WIDTH = 200


class Hunk(NamedTuple):
    """Lines that stand somewhere, and those that take their place, each with its line end.

    `marks` has them in their order: a space is a line of both, - one of the old, + one of the new.
    """

    header: str
    start: int
    marks: str
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
    lines = _lines(patch)
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


def _lines(patch: str) -> list[str]:
    lines = patch.removesuffix("\n").split("\n")
    # If what names a file ends in CR, so do all lines, and it says nothing about the file.
    if next((line for line in lines if line.startswith("--- ")), "").endswith("\r"):
        return [line.removesuffix("\r") for line in lines]
    return lines


def _check_size(size: int, what: str, most: int) -> None:
    if size > most:
        raise ToolError(
            f"the patch is too long: it has {count(size, what)}, and at most {most:,} are taken; make"
            " several of it"
        )


def _check_between(line: str, at: int) -> None:
    if not line.strip() or line.startswith(_PASSED_OVER):
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
    marks = ""
    first = at
    at += 1
    while at < len(lines) and (len(old) < old_count or len(new) < new_count):
        marks += _take(lines[at], at, old, new)
        at += 1
        if at < len(lines) and lines[at].startswith(_NO_NEWLINE):
            _take_off_newline(marks[-1], old, new)
            at += 1
    if (len(old), len(new)) != (old_count, new_count):
        raise ToolError(
            f"the hunk in line {first + 1} of the patch announces {old_count} old and {new_count}"
            f" new lines and has {len(old)} and {len(new)}"
        )
    return Hunk(found[0], start, marks, tuple(old), tuple(new)), at


def _take(line: str, at: int, old: list[str], new: list[str]) -> str:
    # An empty line that stays is often sent without the space before it.
    mark, text = (" ", line) if line in ("", "\r") else (line[0], line[1:])
    if mark not in " -+":
        raise ToolError(
            f"line {at + 1} of the patch should begin with a space, - or +, as the @@ line before"
            f" it announces more lines: {line[:200]!r}"
        )
    if mark != "+":
        old.append(f"{text}\n")
    if mark != "-":
        new.append(f"{text}\n")
    return mark


def _take_off_newline(mark: str, old: list[str], new: list[str]) -> None:
    if mark != "+":
        old[-1] = old[-1].removesuffix("\n")
    if mark != "-":
        new[-1] = new[-1].removesuffix("\n")


def apply(file: FilePatch, text: str) -> Applied:
    """The text with all hunks in it. Raises ToolError if one of them has no place, or several."""
    if text.count("\n") > MOST_LINES:
        raise ToolError(f"{file.path} has too many lines for a patch: at most {MOST_LINES:,}")
    lines = _split(text)
    seen = _split(as_shown(text))
    result: list[str] = []
    notes: list[str] = []
    done, shift = 0, 0
    for hunk in file.hunks:
        # A hunk without old lines stands after the line it names.
        wanted = hunk.start - (1 if hunk.old else 0) + shift
        at = _place(file.path, hunk, seen, done, wanted)
        if at != wanted:
            notes.append(f"{hunk.header} was applied {at - wanted:+d} lines from where it said")
            # Each has been looked for in the whole file.
            if len(notes) > MOST_MOVED:
                raise ToolError(
                    f"{file.path}: more than {MOST_MOVED} hunks are not where they say; read the file"
                    " again first"
                )
        shift += at - wanted
        result += lines[done:at]
        result += _woven(hunk, lines, at, mixed="\r\n" in text)
        done = at + len(hunk.old)
    result += lines[done:]
    _check_ends(file.path, result)
    whole = "".join(result)
    if file.deletes and whole:
        raise ToolError(
            f"the patch deletes {file.path}, but has not all of its lines; nothing was changed"
        )
    return Applied(whole, tuple(notes))


def _woven(hunk: Hunk, lines: Sequence[str], at: int, *, mixed: bool) -> Iterator[str]:
    """What stands where the hunk was: of the file what stays, and what is new in its manner."""
    there = "".join(lines[at : at + len(hunk.old)])
    new = iter(hunk.new)
    # In a file whose lines end in several ways who wrote a CR has meant it, as in one that is new.
    meant = (mixed or not lines) and any("\r\n" in line for line in (*hunk.old, *hunk.new))
    for mark in hunk.marks:
        line = "" if mark == "-" else next(new)
        if mark == " ":
            yield lines[at]
        if mark == "+" and meant:
            yield unspelled(line, there)
        elif mark == "+":
            plain = unspelled(line.replace("\r\n", "\n"), there)
            yield plain.replace("\n", _end_near(lines, at)) if mixed else plain
        at += mark != "+"


def _end_near(lines: Sequence[str], at: int) -> str:
    """How the line before this place ends, or else the one after it, or the one before that."""
    near = (*lines[max(at - 1, 0) : at + 1], *lines[max(at - 2, 0) : at])
    ended = next((line for line in near if line.endswith("\n")), "\n")
    return "\r\n" if ended.endswith("\r\n") else "\n"


def _check_ends(path: str, lines: Sequence[str]) -> None:
    """Raise ToolError if two lines would become one."""
    for number, line in enumerate(lines[:-1], 1):
        if not line.endswith("\n"):
            raise ToolError(
                f"{path}: line {number} would have no newline and not be the last; give the lines"
                " before and after as context, each with the newline that it has or has not"
            )


def _split(text: str) -> list[str]:
    """By LF alone: to a file, other marks are just characters."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _place(path: str, hunk: Hunk, lines: Sequence[str], done: int, wanted: int) -> int:
    """The index at which the hunk's old lines stand, not before `done`."""
    size = len(hunk.old)
    old = [as_shown(line) for line in hunk.old]
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
    raise ToolError(f"{path}: {hunk.header} does not apply: {_difference(old, lines, wanted)}")


def _difference(old: Sequence[str], lines: Sequence[str], wanted: int) -> str:
    """The first line that is not as the hunk has it, where the hunk says it is."""
    for at, here in enumerate(old, wanted):
        if not 0 <= at < len(lines):
            return f"the file has {count(len(lines), 'line')}, and this would be line {at + 1}"
        there = lines[at]
        if there == here:
            continue
        if there.rstrip("\n") == here.rstrip("\n"):
            return f"line {at + 1} differs in whether a newline ends it"
        same = next(
            (n for n, pair in enumerate(zip(there, here, strict=False)) if len(set(pair)) > 1), 0
        )
        part = slice(max(0, same - _WIDTH // 2), same + _WIDTH)
        start = f" from character {part.start + 1} on" if part.start else ""
        return f"line {at + 1}{start} is {there[part]!r}, and the patch has {here[part]!r}"
    return "its lines stand before those of an earlier hunk"
