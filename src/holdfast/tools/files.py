"""Reading, writing and editing files beneath the workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from holdfast.core.messages import ToolSpec
from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.tools.arguments import read_arguments, schema
from holdfast.tools.beneath import WHY_HIDDEN, WHY_KEPT, Opened, Workspace
from holdfast.tools.changes import Change, Old, carry_out, read
from holdfast.tools.names import is_obeyed, why_reading_asks, why_writing_asks
from holdfast.tools.passage import check_passage, replace_passage
from holdfast.tools.patch import FilePatch, apply, parse
from holdfast.tools.text import (
    HEAD,
    MOST_SCANNED,
    Form,
    Line,
    count,
    decode,
    encode,
    fitted,
    form,
    kind,
    lines_of,
    numbered,
    shown,
)

#: Bytes of a file that is edited, and of all files of a patch, which are held at once.
MOST_BYTES, MOST_TOGETHER = 10_000_000, 50_000_000
#: Characters that one call shows, below what a model is shown of any output, and of one line.
MOST_SHOWN, MOST_WIDE = 60_000, 2_000
#: Entries of a folder that are shown, and that are looked at.
MOST_ENTRIES, MOST_LOOKED = 500, 20_000
#: Characters that a person can be asked to agree to.
MOST_ASKED = 100_000

_Path = Annotated[str, Meta(description="relative to the workspace, such as src/main.py")]


class ReadFile:
    """Shows a page of a text file, or what is in a folder."""

    class Arguments(Struct, forbid_unknown_fields=True):
        path: _Path
        offset: Annotated[int, Meta(ge=1, description="the first line to show, from 1")] = 1
        limit: Annotated[int, Meta(ge=1, le=5_000, description="how many lines to show")] = 500

    spec = ToolSpec(
        name="read_file",
        description="Shows lines of a text file, each after its number and a tab, and at the end in"
        " brackets how many there are and how to read on. Of a folder it lists the entries. The"
        " numbers are not part of the file.",
        schema=schema(Arguments),
        writes=False,
        repeatable=True,
        parallel=True,
        timeout=60.0,
    )

    def __init__(self, files: Workspace) -> None:
        self._files = files
        self.workspace = str(files.root)

    def review(self, arguments: str) -> Review:
        asked = read_arguments(self.spec.name, self.Arguments, arguments)
        path = self._files.relative(asked.path)
        return _judge(self._files, (path,), f"read {shown(path)}")

    async def run(self, use: ToolUse) -> str:
        asked = read_arguments(self.spec.name, self.Arguments, use.arguments)
        show = partial(self._show, asked)
        return await self._files.reading_aside(show, tool=self.spec.name, left=use.left)

    def _show(self, asked: Arguments) -> str:
        with self._files.reading(asked.path) as opened:
            if opened.is_folder:
                return _entries(opened)
            head = read(opened.fd, HEAD)
            path, size = shown(opened.path), opened.status.st_size
            if what := kind(head):
                return f"[{path} is not text but {what}, {count(size, 'byte')}; it is not shown]"
            if not head:
                return f"[{path} is empty]"
            return _page(path, opened.fd, asked.offset, asked.limit)


class WriteFile:
    """Puts a file with this content in its place."""

    class Arguments(Struct, forbid_unknown_fields=True):
        path: _Path
        content: Annotated[str, Meta(description="the whole of the file")]

    spec = ToolSpec(
        name="write_file",
        description="Creates a file with this content, and the folders it needs, or replaces the"
        " whole of one. A file that is replaced keeps its encoding, permissions and line endings. To"
        " change a part of a file use edit_file.",
        schema=schema(Arguments),
        timeout=60.0,
    )

    def __init__(self, files: Workspace) -> None:
        self._files = files
        self.workspace = str(files.root)

    def review(self, arguments: str) -> Review:
        asked = read_arguments(self.spec.name, self.Arguments, arguments)
        path = self._files.relative(asked.path)
        if path == ".":
            raise ToolError("the path is that of the workspace itself, which is a folder")
        return _judge(self._files, (path,), f"write {shown(path)}:", asked.content)

    async def run(self, use: ToolUse) -> str:
        asked = read_arguments(self.spec.name, self.Arguments, use.arguments)
        self.review(use.arguments)
        return await self._files.aside(partial(self._write, asked.path, asked.content))

    def _write(self, path: str, content: str) -> str:
        there = _if_there(self._files, path)
        if there is None:
            data = content.encode()
            real = self._files.write(path, data, expect=None)
            return f"created {shown(real)}: {_size(content, data)}"
        old, was = there
        text, shape = fitted(content, was)
        notes = ""
        try:
            data = encode(text, shape)
        except UnicodeEncodeError:
            notes = f", now UTF-8, as {was.encoding} has not all of its characters"
            shape = shape._replace(encoding="utf-8", bom=False)
            data = encode(text, shape)
        real = self._files.write(path, data, expect=old.stamp)
        notes += f", {shape}" if str(shape) else ""
        return f"replaced {shown(real)}: {_size(content, data)}{notes}{old.other_names}"


class EditFile:
    """Changes parts of files: a passage of one, or whatever a patch says."""

    class Arguments(Struct, forbid_unknown_fields=True):
        path: Annotated[str, Meta(description="relative to the workspace; not with `patch`")] = ""
        old: Annotated[
            str, Meta(description="the passage to replace, exactly as it stands in the file")
        ] = ""
        new: Annotated[str, Meta(description="what is to stand there instead")] = ""
        all: Annotated[bool, Meta(description="replace each such passage, not just one")] = False
        patch: Annotated[
            str,
            Meta(description="instead of all others: a unified diff over one or several files"),
        ] = ""

    spec = ToolSpec(
        name="edit_file",
        description="Changes files. Either `path`, `old` and `new`: replaces a passage that must"
        " stand in the file exactly once, unless `all` is true. Or `patch`: a unified diff, which may"
        " create files (--- /dev/null) and delete them (+++ /dev/null); each hunk needs its @@ line"
        " and its lines exactly as they are, and if one does not fit nothing is changed.",
        schema=schema(Arguments),
        timeout=60.0,
    )

    def __init__(self, files: Workspace) -> None:
        self._files = files
        self.workspace = str(files.root)

    def review(self, arguments: str) -> Review:
        asked = read_arguments(self.spec.name, self.Arguments, arguments)
        if asked.patch:
            if asked.path or asked.old or asked.new:
                raise ToolError("give either `patch` or `path`, `old` and `new`, not both")
            paths = tuple(self._files.relative(file.path) for file in parse(asked.patch))
            return _judge(self._files, paths, "apply this patch:", asked.patch)
        if not asked.path:
            raise ToolError("give `path`, `old` and `new`, or `patch`")
        check_passage(asked.old, asked.new)
        path = self._files.relative(asked.path)
        each = "each of these passages" if asked.all else "this passage"
        title = f"in {shown(path)} replace {each}:"
        return _judge(self._files, (path,), title, asked.old, "by this:", asked.new)

    async def run(self, use: ToolUse) -> str:
        asked = read_arguments(self.spec.name, self.Arguments, use.arguments)
        self.review(use.arguments)
        # All is worked out before anything is written: what does not fit costs nothing. And what
        # takes long may be stopped, which a write may not.
        work_out = partial(self._work_out, asked)
        changes = await self._files.reading_aside(work_out, tool=self.spec.name, left=use.left)
        return await self._files.aside(partial(carry_out, self._files, changes))

    def _work_out(self, asked: Arguments) -> list[Change]:
        if asked.patch:
            return self._patched_all(parse(asked.patch))
        old = _whole(self._files, asked.path)
        text, shape = _text(asked.path, old)
        passage, new = (
            words if shape.mixed or shape.end == "\n" else words.replace("\r\n", "\n")
            for words in (asked.old, asked.new)
        )
        name = shown(asked.path)
        text, places, lines = replace_passage(name, text, passage, new, every=asked.all)
        also = f" and {count(places - 1, 'other place')}" if places > 1 else ""
        notes = (f"at line {lines[0]}{also}",)
        return [Change("edited", asked.path, _bytes(name, text, shape), old, notes)]

    def _patched_all(self, files: Sequence[FilePatch]) -> list[Change]:
        changes: list[Change] = []
        room = MOST_TOGETHER
        for file in files:
            changes.append(self._patched(file))
            room -= changes[-1].size
            if room < 0:
                raise ToolError(
                    f"the files of the patch are too large: at most {count(MOST_TOGETHER, 'byte')}"
                    " together, before and after; make several patches of it"
                )
        return changes

    def _patched(self, file: FilePatch) -> Change:
        name = shown(file.path)
        if file.creates:
            if _if_there(self._files, file.path):
                raise ToolError(f"the patch creates {name}, which is there already")
            text, notes = apply(file, "")
            return Change("created", file.path, text.encode(), None, notes)
        old = _whole(self._files, file.path)
        text, shape = _text(file.path, old)
        text, notes = apply(file, text)
        verb = "deleted" if file.deletes else "edited"
        return Change(verb, file.path, _bytes(name, text, shape), old, notes)


# --- what they share


def _judge(files: Workspace, paths: tuple[str, ...], title: str, *shown_too: str) -> Review:
    """Whether a call that reads these paths may run unasked, or one that writes what is shown too."""
    obeyed = files.obeyed() if shown_too else is_obeyed
    why_asks = partial(why_writing_asks, obeyed=obeyed) if shown_too else why_reading_asks
    for path in paths:
        hidden = files.is_hidden(path)
        if hidden or (shown_too and files.is_kept(path)):
            why = f"{shown(path)} {WHY_HIDDEN if hidden else WHY_KEPT}"
            return Review(gate="refuse", reason=why, subject=title)
    asking = [path for path in paths if why_asks(path)]
    if not asking:
        return Review(subject=title)
    subject = "\n".join((title, *shown_too))
    if len(subject) > MOST_ASKED:
        raise ToolError(
            f"a person would be asked about {shown(asking[0])}, and this is too long to be read: at"
            f" most {MOST_ASKED:,} characters"
        )
    reason = "; ".join(f"{shown(path)}: {why_asks(path)}" for path in asking)
    # A yes to what programs obey is for what it says, and the next time it may say anything.
    once = shown_too and any(map(obeyed, asking))
    key = "" if once else "\n".join(sorted(asking))
    return Review(gate="ask", reason=reason, subject=subject, key=key)


def _if_there(files: Workspace, path: str) -> tuple[Old, Form] | None:
    """A file without its text but with the form of it, None if there is none."""
    try:
        with files.reading(path) as opened:
            is_text = not opened.is_folder and not kind(read(opened.fd, HEAD))
            return Old(b"", opened.status), form(_chunks(opened.fd)) if is_text else Form()
    except ToolError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _whole(files: Workspace, path: str) -> Old:
    with files.reading(path) as opened:
        name = shown(opened.path)
        if opened.is_folder:
            raise ToolError(f"{name} is a folder")
        data = read(opened.fd, MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ToolError(f"{name} is too large to edit: at most {count(MOST_BYTES, 'byte')}")
        if what := kind(data[:HEAD]):
            raise ToolError(f"{name} is not text but {what}; it cannot be edited")
        return Old(data, opened.status)


def _text(path: str, old: Old) -> tuple[str, Form]:
    try:
        return decode(old.data)
    except UnicodeDecodeError as error:
        raise ToolError(f"{shown(path)} cannot be read as text: {error}") from error


def _bytes(name: str, text: str, shape: Form) -> bytes:
    try:
        data = encode(text, shape)
    except UnicodeEncodeError as error:
        odd = error.object[error.start : error.start + 1]
        raise ToolError(
            f"{name} is kept in {shape.encoding}, which has no {odd!r}; write the whole file with"
            " write_file to make it UTF-8"
        ) from error
    if len(data) > MOST_BYTES:
        raise ToolError(f"{name} would be too large: at most {count(MOST_BYTES, 'byte')}")
    return data


def _size(content: str, data: bytes) -> str:
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    return f"{count(lines, 'line')}, {count(len(data), 'byte')}"


def _entries(opened: Opened) -> str:
    with os.scandir(opened.fd) as entries:
        names = sorted(
            f"{shown(entry.name)}{'/' if entry.is_dir(follow_symlinks=False) else ''}"
            f"{' (a link)' if entry.is_symlink() else ''}"
            for entry in islice(entries, MOST_LOOKED)
        )
    some = names[:MOST_ENTRIES]
    left_out = len(names) - len(some)
    more = f", of which {left_out:,} are not shown" if left_out else ""
    at_least = "at least " if len(names) == MOST_LOOKED else ""
    entries_told = f"{len(names):,} {'entry' if len(names) == 1 else 'entries'}"
    return "\n".join([*some, f"[{shown(opened.path)} is a folder: {at_least}{entries_told}{more}]"])


def _chunks(fd: int) -> Iterator[bytes]:
    """A file from its beginning, as far as it is looked at."""
    os.lseek(fd, 0, os.SEEK_SET)
    for _ in range(MOST_SCANNED // HEAD):
        if not (chunk := read(fd, HEAD)):
            return
        yield chunk


def _page(path: str, fd: int, offset: int, limit: int) -> str:
    """The lines that were asked for, as far as there is room. The rest are only counted."""
    shape = form(_chunks(fd))
    page: list[str] = []
    size, total, last = 0, 0, Line("", 0, ended=True)
    for total, last in enumerate(lines_of(_chunks(fd), shape, MOST_WIDE), 1):
        if total >= offset and len(page) < limit and size < MOST_SHOWN:
            page.append(numbered(total, last))
            size += len(page[-1]) + 1
    cut = bool(os.read(fd, 1))
    if not total:
        return f"[{path} is empty, {shape}]"
    if not page:
        raise ToolError(
            f"line {offset:,} of {path} is past the first {count(MOST_SCANNED, 'byte')}, which is as"
            " far as read_file looks"
            if cut
            else f"{path} has {count(total, 'line')}, and the offset is {offset:,}"
        )
    final = offset + len(page) - 1
    notes = [f"lines {offset:,} to {final:,} of {'more than ' if cut else ''}{total:,}"]
    if final < total:
        notes.append(f"read on with offset={final + 1}")
    elif cut:
        notes.append(
            f"the rest is past the first {count(MOST_SCANNED, 'byte')}, where read_file ends"
        )
    elif not last.ended:
        notes.append("the last one has no newline")
    return "\n".join([*page, f"[{'; '.join([*notes, *filter(None, [str(shape)])])}]"])
