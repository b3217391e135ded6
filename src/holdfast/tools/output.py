"""Reading on in an output that was too long to be shown whole."""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Annotated

from anyio import to_thread
from msgspec import Meta

from holdfast.errors import NotFound, ToolError
from holdfast.ports import Tool
from holdfast.tools.function import tool

#: Places that one search names.
MOST_PLACES = 50

#: Bytes to decode in one go. Decoding lets nobody else run meanwhile, in whichever thread it is.
_PIECE = 256 * 1024

#: Characters shown before and after a place.
_AROUND = 60


def read_output(blob: Callable[[str], Awaitable[bytes]]) -> Tool:
    """The tool, over what a store keeps. `blob` raises NotFound for what it does not have."""

    @tool(reads=True, parallel=True, timeout=60.0)
    async def read_output(
        output: Annotated[
            str,
            Meta(pattern="^[0-9a-f]{64}$", description="the sha256 named in the shortened output"),
        ],
        offset: Annotated[int, Meta(ge=0, description="how many characters to skip")] = 0,
        limit: Annotated[int, Meta(ge=1, le=50_000, description="characters to show")] = 20_000,
        find: Annotated[
            str, Meta(max_length=1000, description="tell instead where this exact text stands")
        ] = "",
    ) -> str:
        """Reads on in the output of a tool that was shortened when it was shown to you.

        Shows `limit` characters from `offset` on and says how to read on. With `find` it names
        the places where that text stands, as offset and line, so that you can read there.
        """
        try:
            body = await blob(output)
        except NotFound as error:
            raise ToolError(f"there is no output {output}") from error
        if find:
            return await to_thread.run_sync(_places, body, find, offset, abandon_on_cancel=True)
        return await to_thread.run_sync(_part, body, offset, limit, abandon_on_cancel=True)

    return read_output


def _part(body: bytes, offset: int, limit: int, *, size: int = _PIECE) -> str:
    kept: list[str] = []
    total = 0
    for piece in _pieces(body, size):
        kept.append(piece[max(0, offset - total) : max(0, offset + limit - total)])
        total += len(piece)
    text = "".join(kept)
    if offset and not text:
        raise ToolError(f"this output has {total} characters; there are none past {offset}")
    end = offset + len(text)
    rest = f"{total - end} are left: read on with offset={end}" if end < total else "that is all"
    return f"{text}\n[characters {offset} to {end} of {total}; {rest}]"


def _places(body: bytes, find: str, offset: int) -> str:
    places = (place for place in _search(body, find) if place[0] >= offset)
    found = list(islice(places, MOST_PLACES))
    if not found:
        return f"that text does not stand in this output from character {offset} on"
    more = sum(1 for _ in places)
    times = "1 time" if len(found) == 1 else f"{len(found) + more} times"
    rest = f"; the first {MOST_PLACES}, find more with offset={found[-1][0] + 1}" if more else ""
    lines = (f"offset {at}, line {line}: {around}" for at, line, around in found)
    return "\n".join([f"found {times}{rest}", *lines])


def _search(body: bytes, find: str, *, size: int = _PIECE) -> Iterator[tuple[int, int, str]]:
    """Where each stands, its line, and what stands around it. A place may lie across two pieces."""
    window, start, line = "", 0, 1
    for piece in _pieces(body, size):
        # So little is held back that no place can be found twice.
        held = window[max(0, len(window) - len(find) + 1) :]
        line += window.count("\n", 0, len(window) - len(held))
        start += len(window) - len(held)
        window = held + piece
        at, counted, here = window.find(find), 0, line
        while at >= 0:
            here += window.count("\n", counted, at)
            counted = at
            around = window[max(0, at - _AROUND) : at + len(find) + _AROUND]
            yield start + at, here, " ".join(around.split())
            at = window.find(find, at + len(find))


def _pieces(body: bytes, size: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(body), size):
        yield decoder.decode(body[start : start + size])
    yield decoder.decode(b"", final=True)
