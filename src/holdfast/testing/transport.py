"""The scripts of `endpoint` without a socket, for tests in virtual time.

    transport = ScriptedTransport([Silence()], ["Hel", "lo"])
    model = open_remote("openai-chat", transport, base_url="http://model/v1", model="m")

It does to the bytes what the endpoint would do to them; what a socket does besides is for tests
with the endpoint.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import msgspec

from holdfast.errors import ModelUnavailable
from holdfast.testing.connection import Received
from holdfast.testing.dialects import DIALECTS
from holdfast.testing.endpoint import (
    Answer,
    Drip,
    End,
    Hangup,
    NoHeaders,
    Pings,
    Reset,
    Script,
    Step,
    chosen,
    usage,
    words,
)
from holdfast.testing.replies import Reply
from holdfast.testing.scripted import CutOff, Silence


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: AsyncGenerator[bytes, None]
    first: bytes = b""
    #: Whether more comes is in the script, and not known before.
    over = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        if self.first:
            yield self.first
        async for piece in self.body:
            yield piece


class ScriptedTransport:
    """`requests` is all it was sent, `open` how many answers are being read."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.requests: list[Received] = []
        self.open = 0

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, connect: float
    ) -> AsyncIterator[_Answer]:
        named = {name.lower(): value for name, value in headers.items()}
        request = Received(method, url, named, msgspec.json.decode(body or b"{}"))
        self.requests.append(request)
        script = chosen(self._scripts, request)
        kind = next(kind for ending, kind in DIALECTS.items() if url.endswith(ending))
        self.open += 1
        try:
            async with aclosing(_answer(kind(request.body, usage(script)), script)) as body_of:
                yield await _begun(script, body_of, streamed=bool(request.body.get("stream")))
        finally:
            self.open -= 1


async def _begun(
    script: Sequence[Step], body: AsyncGenerator[bytes, None], *, streamed: bool
) -> _Answer:
    """The answer once its headers are there: at once, or with the first bytes of its body."""
    await anyio.lowlevel.checkpoint()
    for step in script:
        match step:
            case Answer(status, _, headers):
                named = {name.lower(): value for name, value in headers.items()}
                first = await anext(body, b"")
                return _Answer(status, {"content-type": "application/json", **named}, body, first)
            case NoHeaders():
                first = await anext(body, b"")
                return _Answer(200, {"content-type": _kind(streamed=streamed)}, body, first)
    return _Answer(200, {"content-type": _kind(streamed=streamed)}, body)


def _kind(*, streamed: bool) -> str:
    return "text/event-stream" if streamed else "application/json"


async def _answer(reply: Reply, script: Sequence[Step]) -> AsyncGenerator[bytes, None]:
    """The body, piece by piece. Raises ModelUnavailable where the line breaks."""
    drip = 0.0
    for step in (*script, End()):
        await anyio.lowlevel.checkpoint()
        match step:
            case Silence(seconds):
                await anyio.sleep(seconds)
            case Drip(every):
                drip = every
            case Pings():
                async for piece in _pinging(reply, step):
                    yield piece
            case Reset() | Hangup():
                raise ModelUnavailable("lost the connection to the endpoint: as the script says")
            case _:
                async for piece in _dripping(_pieces(reply, step), drip):
                    yield piece
                if isinstance(step, End | CutOff | Answer):
                    return


async def _pinging(reply: Reply, pings: Pings) -> AsyncGenerator[bytes, None]:
    while True:
        for piece in reply.ping(empty=pings.empty):
            yield piece
        await anyio.sleep(pings.every)


def _pieces(reply: Reply, step: Step) -> Sequence[bytes]:
    match step:
        case End():
            return reply.end()
        case CutOff():
            return reply.cut()
        case Answer(_, body, _):
            return [body.encode() if isinstance(body, str) else body]
        case _:
            return words(reply, step)  # type: ignore[arg-type]


async def _dripping(pieces: Sequence[bytes], every: float) -> AsyncGenerator[bytes, None]:
    for piece in filter(None, pieces):
        if not every:
            yield piece
            continue
        for place in range(len(piece)):
            await anyio.sleep(every)
            yield piece[place : place + 1]
