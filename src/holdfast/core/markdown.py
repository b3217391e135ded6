"""A transcript as a page to read: who said what, in Markdown.

Words of people and models are Markdown themselves, so they are shown as such, each in a
quotation that ends where they end: a heading in them is a heading in the quotation, and a fence
that nobody closed ends with it. What would reach further is made harmless: raw HTML, and links
that are defined for the whole page. What models thought is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.core.entries import Card, Entry, Mark, Notice, Question, Reply, Said
from holdfast.core.messages import Image, plain

#: Characters of arguments or of a result that are shown.
MOST_SHOWN = 2000

_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~#!$])")
#: A fence that every reader of Markdown takes for one, and what some may take for one elsewhere.
_FENCE = re.compile(r"(`{3,})[^`|]*|(~{3,})[^|]*")
_LIKE_A_FENCE = re.compile(r"```|~~~")
#: Code within a line, where nothing could part it.
_CODE = re.compile(r"(?<!`)(`+)(?!`)[^|]*?(?<!`)\1(?!`)")
#: What begins HTML, and what defines a link.
_HTML = re.compile(r"(?<!\\)((?:\\\\)*)<(?=[A-Za-z/!?])")
_DEFINITION = re.compile(r"\]:")


def to_markdown(title: str, entries: Iterable[Entry]) -> str:
    """The page. Nothing in an entry can pass for anything outside it."""
    blocks, speaker = [f"# {_inline(title) or 'Untitled'}"], ""
    for entry in entries:
        who = _SPEAKERS.get(type(entry), speaker)
        if who != speaker:
            blocks.append(f"## {who}")
            speaker = who
        blocks += _BLOCKS[type(entry)](entry)
    return "\n\n".join(blocks) + "\n"


# --- one function a kind ------------------------------------------------------------------


def _said(entry: Said) -> Iterator[str]:
    if entry.queued:
        yield _aside("Waits for its turn.")
    elif entry.steered:
        yield _aside("Added while the run was under way.")
    if words := plain(entry.parts):
        yield _quoted(words)
    for part in entry.parts:
        if isinstance(part, Image):
            yield _aside(f"A picture: {part.url or part.media_type or 'of unknown kind'}.")


def _reply(entry: Reply) -> Iterator[str]:
    if entry.text:
        yield _quoted(entry.text)
    if entry.partial:
        yield _aside("This reply has no end.")


def _card(entry: Card) -> Iterator[str]:
    yield f"**{_inline(entry.name) or 'unnamed'}** ({_outcome(entry)})"
    yield _fenced(entry.arguments)
    if entry.result:
        yield _fenced(entry.result)


def _outcome(entry: Card) -> str:
    if entry.outcome is None:
        return entry.state
    said = entry.outcome.replace("_", " ")
    return f"{said}, {entry.seconds:.1f} s" if entry.seconds else said


def _question(entry: Question) -> Iterator[str]:
    choice = f"answered {entry.choice}" if entry.choice else entry.state
    by = f" by {entry.by}" if entry.by else ""
    yield _aside(f"Asked for approval: {entry.subject or entry.tool} ({choice}{by}).")


def _told(entry: Notice | Mark) -> Iterator[str]:
    yield _aside(entry.words)


_SPEAKERS: Mapping[type[Any], str] = {Said: "Person", Reply: "Assistant", Card: "Assistant"}
_BLOCKS: Mapping[type[Any], Callable[[Any], Iterator[str]]] = {
    Said: _said,
    Reply: _reply,
    Card: _card,
    Question: _question,
    Notice: _told,
    Mark: _told,
}


# --- in its place -------------------------------------------------------------------------


def _inline(text: str) -> str:
    """One line of words that mean nothing but themselves."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _aside(text: str) -> str:
    return f"*{_inline(text)}*"


def _fenced(text: str) -> str:
    """As it is, behind a fence longer than any in it."""
    if len(text) > MOST_SHOWN:
        text = f"{text[:MOST_SHOWN]}\n[{len(text) - MOST_SHOWN} more characters]"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return "\n".join((fence, *_lines(text), fence))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in _tamed(_lines(text)))


def _lines(text: str) -> list[str]:
    """Split where a reader of Markdown would."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _tamed(lines: list[str]) -> Iterator[str]:
    """Code stays as it is wherever it is beyond doubt that it is code."""
    odd = any(_LIKE_A_FENCE.search(line) and not _FENCE.fullmatch(line) for line in lines)
    inside = [False] * len(lines) if odd else [bool(fence) for fence in _fences(lines)]
    outside = [line for line, fenced in zip(lines, inside, strict=True) if not fenced]
    # Where each line closes all it opens, no two lines can make code of what is between them.
    paired = not any("`" in _CODE.sub("", line) or "\\`" in line for line in outside)
    for line, fenced in zip(lines, inside, strict=True):
        yield line if fenced else _tame(line, code=paired)


def _fences(lines: list[str]) -> Iterator[str]:
    """For each line the fence it is behind, "" if none; a fence itself is behind itself."""
    fence = ""
    for line in lines:
        opens = _FENCE.fullmatch(line)
        if fence:
            yield fence
            if line.rstrip(" \t").strip(fence[0]) == "" and line.startswith(fence):
                fence = ""
        else:
            fence = (opens[1] or opens[2]) if opens else ""
            yield fence


def _tame(line: str, *, code: bool) -> str:
    kept = [match.span() for match in _CODE.finditer(line)] if code else []
    told, end = "", 0
    for start, stop in kept:
        told += _harmless(line[end:start]) + line[start:stop]
        end = stop
    return told + _harmless(line[end:])


def _harmless(text: str) -> str:
    return _DEFINITION.sub(r"]\\:", _HTML.sub(r"\1\\<", text))
