"""Searching the workspace: for lines that match an expression, or for files by name.

An expression from a model can be made to take for ever, and Python's own engine cannot be
interrupted; so the matching is done by a process that is killed when the time is up. It is sent
text and opens nothing. Files are opened here, each from the workspace down and through no link, a
batch at a time in a thread, so that a stop is heard in between.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from subprocess import DEVNULL
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Meta, Struct

from holdfast.core.messages import ToolSpec
from holdfast.errors import ToolError
from holdfast.ports import Leaving, Review, ToolUse
from holdfast.tools.arguments import read_arguments, schema
from holdfast.tools.beneath import Workspace
from holdfast.tools.changes import read
from holdfast.tools.names import is_secret, matches_glob
from holdfast.tools.text import HEAD, as_shown, count, decode, kind, shown

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

#: Seconds of one search, files it looks at, and bytes of one that is searched.
MOST_SECONDS, MOST_FILES, MOST_BYTES = 20.0, 50_000, 5_000_000
#: Characters of a line that are shown, and of all.
MOST_WIDE, MOST_SHOWN = 300, 60_000
#: Of a batch: bytes, files, seconds.
_BATCH_BYTES, _BATCH_FILES, _BATCH_SECONDS = 4_000_000, 500, 0.2
#: Of a .gitignore: bytes; lines, together with those above it; and characters of a path they are
#: tried on. What they cost is their product.
_IGNORE_BYTES, _IGNORE_LINES, _MOST_DEEP = 256 * 1024, 1_000, 1_000
#: Stars in a line of one. A file name can be made for which each more takes 50 times as long.
_MOST_STARS = 3

#: Compiles the expression of its first line, then for each further line, some texts and how many
#: hits are wanted, tells the numbers of the lines that match. Dies by itself if it is forgotten.
_MATCHER = """
import json, re, signal, sys
signal.alarm(60)
try:
    find = re.compile(json.loads(sys.stdin.buffer.readline())).search
except Exception as error:
    print(json.dumps(str(error) or type(error).__name__), flush=True)
    sys.exit()
print('""', flush=True)
for request in sys.stdin.buffer:
    texts, most = json.loads(request)
    reply = []
    for text in texts:
        hits = []
        for number, line in enumerate(text.split("\\n")):
            if most > 0 and find(line):
                hits.append(number)
                most -= 1
        reply.append(hits)
    print(json.dumps(reply), flush=True)
"""

_Answer = TypeVar("_Answer")


class SearchFiles:
    """Finds lines or files, and says where they are."""

    class Arguments(Struct, forbid_unknown_fields=True):
        pattern: Annotated[
            str,
            Meta(
                min_length=1,
                max_length=1_000,
                description="content: a Python regular expression, tried on each line, (?i) in front"
                " to ignore case; files: a glob such as *.py or src/**/*.ts",
            ),
        ]
        target: Annotated[
            Literal["content", "files"], Meta(description="search in files, or for files by name")
        ] = "content"
        path: Annotated[str, Meta(description="where to search, relative to the workspace")] = "."
        glob: Annotated[
            str, Meta(max_length=1_000, description="only files whose name is like *.py")
        ] = ""
        limit: Annotated[int, Meta(ge=1, le=500, description="how many to show")] = 50
        offset: Annotated[int, Meta(ge=0, description="how many to leave out first")] = 0
        context: Annotated[int, Meta(ge=0, le=10, description="lines to show around each")] = 0

    spec = ToolSpec(
        name="search_files",
        description="Searches the files of the workspace, in the order of their paths, and shows"
        " path:line: text for each line that matches, or the paths. Leaves out what .gitignore"
        " and .git/info/exclude name, .git, links, binary files, large files and files that look like secrets.",
        schema=schema(Arguments),
        writes=False,
        repeatable=True,
        parallel=True,
        timeout=60.0,
    )

    def __init__(
        self, files: Workspace, *, seconds: float = MOST_SECONDS, most: int = MOST_FILES
    ) -> None:
        self._files, self._seconds, self._most = files, seconds, most
        self.workspace = str(files.root)

    def review(self, arguments: str) -> Review:
        asked = read_arguments(self.spec.name, self.Arguments, arguments)
        path = self._files.relative(asked.path)
        where = "the workspace" if path == "." else shown(path)
        return Review(subject=f"search {where} for {shown(asked.pattern)}")

    async def run(self, use: ToolUse) -> str:
        asked = read_arguments(self.spec.name, self.Arguments, use.arguments)
        walk = _Walk(self._files, asked, self._most, self._seconds)
        hits = _Hits(asked)
        with anyio.move_on_after(self._seconds) as time:
            if asked.target == "files":
                await self._find_names(walk, hits, use.left)
            else:
                await self._find_lines(walk, hits, asked.pattern, use.left)
        remarks = list(walk.remarks())
        if time.cancelled_caught:
            remarks.append(
                f"stopped after {self._seconds:g} s: name a folder, or simplify the pattern"
            )
        return hits.told(remarks)

    async def _find_names(self, walk: _Walk, hits: _Hits, left: Leaving) -> None:
        while not (hits.enough or walk.over):
            for path, _ in await self._batch(walk, left):
                hits.add([shown(path)])

    async def _find_lines(self, walk: _Walk, hits: _Hits, pattern: str, left: Leaving) -> None:
        async with _matcher(pattern) as matcher:
            while not (hits.enough or walk.over):
                batch = await self._batch(walk, left)
                found = await matcher.match([text for _, text in batch], hits.wanted)
                for (path, text), numbers in zip(batch, found, strict=True):
                    hits.add_lines(path, text, numbers)

    async def _batch(self, walk: _Walk, left: Leaving) -> list[tuple[str, str]]:
        return await self._files.reading_aside(walk.batch, tool=self.spec.name, left=left)


class _Hits:
    """What was found, in order: the page that was asked for, and one more to know of."""

    def __init__(self, asked: SearchFiles.Arguments) -> None:
        self._asked = asked
        self._shown: list[str] = []
        self._count = 0
        self._size = 0

    @property
    def wanted(self) -> int:
        return self._asked.offset + self._asked.limit + 1 - self._count

    @property
    def enough(self) -> bool:
        return self.wanted <= 0 or self._size > MOST_SHOWN

    @property
    def _page(self) -> int:
        """How many were shown."""
        return max(0, min(self._count - self._asked.offset, self._asked.limit))

    def add(self, lines: Sequence[str]) -> None:
        if self.enough:
            return
        self._count += 1
        if self._asked.offset < self._count <= self._asked.offset + self._asked.limit:
            self._shown += lines
            self._size += sum(len(line) + 1 for line in lines)

    def add_lines(self, path: str, text: str, numbers: Sequence[int]) -> None:
        lines = text.split("\n") if numbers else []
        around = self._asked.context
        for number in numbers:
            first = max(0, number - around)
            self.add(
                [
                    _hit(path, at + 1, line, ":" if at == number else "-")
                    for at, line in enumerate(lines[first : number + around + 1], first)
                ]
                + (["--"] if around else []),
            )

    def told(self, remarks: Sequence[str]) -> str:
        more = self._count > self._asked.offset + self._asked.limit or self._size > MOST_SHOWN
        what = "line" if self._asked.target == "content" else "file"
        if self._page:
            notes = [f"{count(self._page, what)} shown"]
        else:
            notes = [f"no {what} found" + (" past the offset" if self._count else "")]
        if more:
            notes.append(f"there are more: go on with offset={self._asked.offset + self._page}")
        return "\n".join([*self._shown, f"[{'; '.join([*notes, *remarks])}]"])


def _hit(path: str, number: int, line: str, mark: str) -> str:
    text = line if len(line) <= MOST_WIDE else f"{line[:MOST_WIDE]} [… {len(line):,} characters]"
    return f"{shown(path)}{mark}{number}{mark} {text}"


# --- matching


class _Matcher:
    def __init__(self, process: Process) -> None:
        assert process.stdin and process.stdout
        self._asking, self._answers = process.stdin, BufferedByteReceiveStream(process.stdout)

    async def compile(self, pattern: str) -> None:
        if problem := await self._ask(pattern, str):
            raise ToolError(f"the pattern is not a regular expression: {problem}")

    async def match(self, texts: Sequence[str], most: int) -> list[list[int]]:
        return await self._ask((texts, most), list[list[int]])

    async def _ask(self, question: object, answer: type[_Answer]) -> _Answer:
        try:
            await self._asking.send(msgspec.json.encode(question) + b"\n")
            line = await self._answers.receive_until(b"\n", 64 * 1024 * 1024)
        except (anyio.BrokenResourceError, anyio.IncompleteRead) as error:
            raise ToolError("the search failed: the process that matches has ended") from error
        return msgspec.json.decode(line, type=answer)


@asynccontextmanager
async def _matcher(pattern: str) -> AsyncIterator[_Matcher]:
    """A process that has compiled the pattern, and is killed if this is left before it has ended."""
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _MATCHER]
    async with await anyio.open_process(command, stderr=DEVNULL) as process:
        matcher = _Matcher(process)
        await matcher.compile(pattern)
        yield matcher


# --- walking


class _Ignore(NamedTuple):
    """What a .gitignore says, and the folder it says it of."""

    folder: str
    spec: GitIgnoreSpec

    def about(self, path: str) -> bool | None:
        inside = path if self.folder == "." else path[len(self.folder) + 1 :]
        return self.spec.check_file(inside).include


class _Place(NamedTuple):
    """A file or a folder to be looked at, and what was said about ignoring on the way to it."""

    path: str
    is_folder: bool
    ignores: tuple[_Ignore, ...]


class _Walk:
    """All files beneath a folder in the order of their paths, some at a time.

    Between two batches it holds names and nothing open: a folder that is changed for a link
    meanwhile is not entered.
    """

    def __init__(
        self, files: Workspace, asked: SearchFiles.Arguments, most: int, seconds: float
    ) -> None:
        self._files, self._asked, self._most = files, asked, most
        self._ends = monotonic() + seconds
        self._start = files.relative(asked.path)
        self._todo: list[_Place] | None = None
        self._looked = self._secret = self._large = self._unread = self._wild = 0

    @property
    def over(self) -> bool:
        return self._todo is not None and (not self._todo or self._looked >= self._most)

    def remarks(self) -> Iterator[str]:
        """What the reader should know about what was left out."""
        stopped = "stopped after looking at" if self._todo and self.over else "looked at"
        yield f"{stopped} {count(self._looked, 'file')}"
        if self._secret:
            yield f"left out {count(self._secret, 'file')} that may hold secrets"
        if self._large:
            yield f"left out {count(self._large, 'file')} of more than {count(MOST_BYTES, 'byte')}"
        if self._unread:
            yield f"{self._unread:,} could not be read"
        if self._wild:
            yield f"did not heed {count(self._wild, 'line')} of .gitignore with too many wildcards, or too many"

    def batch(self) -> list[tuple[str, str]]:
        """The next files and their text, "" if only their names are asked for."""
        if self._todo is None:
            self._todo = [self._first()]
        until = monotonic() + _BATCH_SECONDS
        batch: list[tuple[str, str]] = []
        size = 0
        while self._todo and not self.over:
            place = self._todo.pop()
            if place.is_folder:
                self._enter(place)
            elif (text := self._text(place.path)) is not None:
                batch.append((place.path, text))
                size += len(text)
            if size > _BATCH_BYTES or len(batch) >= _BATCH_FILES or monotonic() > until:
                break
        return batch

    def _first(self) -> _Place:
        with self._files.reading(self._start) as opened:
            path, is_folder = opened.path, opened.is_folder
        ignores: tuple[_Ignore, ...] = ()
        above = path.split("/")[:-1] if path != "." else []
        for depth in range(len(above) + (path != ".")):
            ignores += self._ignores("/".join(above[:depth]) or ".", ignores)
        # Who names an ignored folder wants it searched.
        if _ignored(f"{path}/" if is_folder else path, ignores):
            ignores = ()
        return _Place(path, is_folder, ignores)

    def _enter(self, place: _Place) -> None:
        try:
            if len(place.path) > _MOST_DEEP:
                raise ToolError("it is too deep down")
            with (
                self._files.reading(f"./{place.path}", links=False) as opened,
                os.scandir(opened.fd) as entries,
            ):
                found = sorted(
                    (entry.name, entry.is_dir(follow_symlinks=False))
                    for entry in islice(entries, 2 * MOST_FILES)
                    if not entry.is_symlink()
                )
        except ToolError:
            self._unread += 1
            return
        ignores = place.ignores
        if (".gitignore", False) in found or (".git", True) in found:
            ignores += self._ignores(place.path, ignores)
        prefix = "" if place.path == "." else f"{place.path}/"
        assert self._todo is not None
        for name, is_folder in reversed(found):
            path = f"{prefix}{name}"
            # Whoever asked may be gone, and each of these can be made to take its time.
            if monotonic() > self._ends:
                return
            passed_over = _ignored(f"{path}/" if is_folder else path, ignores)
            if name != ".git" and not passed_over and not self._files.is_hidden(path):
                self._todo.append(_Place(path, is_folder, ignores))

    def _ignores(self, folder: str, above: tuple[_Ignore, ...]) -> tuple[_Ignore, ...]:
        """What is said in this folder. What stands in the repository's own file counts less."""
        found: tuple[_Ignore, ...] = ()
        for name in (".git/info/exclude", ".gitignore"):
            if lines := self._ignore_lines(f"./{folder}/{name}", (*above, *found)):
                # Takes longer to load than all the tools together, and is needed where something is
                # ignored.
                from pathspec import GitIgnoreSpec

                found += (_Ignore(folder, GitIgnoreSpec.from_lines(lines)),)
        return found

    def _ignore_lines(self, path: str, above: Sequence[_Ignore]) -> list[str]:
        try:
            with self._files.reading(path, links=False) as opened:
                if opened.is_folder:
                    return []
                data = read(opened.fd, _IGNORE_BYTES)
        except ToolError:
            return []
        if len(data) == _IGNORE_BYTES:
            # What is left of the last line may mean much more than the line.
            data = data[: data.rfind(b"\n") + 1]
        # As git reads it: names are bytes, and only LF ends a line.
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
        each = (line.removesuffix("\r") for line in text.split("\n"))
        lines = [line for line in each if line.strip() and not line.startswith("#")]
        room = _IGNORE_LINES - sum(len(ignore.spec) for ignore in above)
        tame = [line for line in lines[:room] if _stars(line) <= _MOST_STARS]
        self._wild += len(lines) - len(tame)
        return tame

    def _text(self, path: str) -> str | None:
        """What is to be searched of a file; None if it is left out."""
        if not self._meant(path):
            return None
        self._looked += 1
        if self._asked.target == "files":
            return ""
        if is_secret(path):
            self._secret += 1
            return None
        try:
            with self._files.reading(f"./{path}", links=False) as opened:
                size = opened.status.st_size
                if size > MOST_BYTES:
                    self._large += 1
                    return None
                data = read(opened.fd, size)
            if not data or kind(data[:HEAD]):
                return None
            return as_shown(decode(data)[0]).removesuffix("\n")
        except (ToolError, UnicodeDecodeError):
            self._unread += 1
            return None

    def _meant(self, path: str) -> bool:
        inside = path.removeprefix(f"{self._start}/")
        globs = [self._asked.glob, self._asked.pattern if self._asked.target == "files" else ""]
        return all(matches_glob(inside, glob) for glob in globs if glob)


def _stars(line: str) -> int:
    return line.count("*") - line.count("**")


def _ignored(path: str, ignores: Sequence[_Ignore]) -> bool:
    """Whether it is to be passed over: the nearest .gitignore that says anything decides."""
    said = (ignore.about(path) for ignore in reversed(ignores))
    return next((one for one in said if one is not None), False)
