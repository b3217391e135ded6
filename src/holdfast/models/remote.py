"""A model at the other end of a wire: asks, pumps the bytes of the answer through, hangs up.

Nothing here waits longer than it is let: whoever listens has the watch, and closes this.
"""

from __future__ import annotations

import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from time import time  # noqa: TID251 - a default; dates in answers are compared with it
from typing import cast

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.messages import Chunk, Done, Heard, Request, Said, Thought, Unstreamed
from holdfast.core.secrets import Secrets
from holdfast.errors import BadReply, ConfigError, ModelError, ModelRefused
from holdfast.models.catalog import WIRES, Price, cost, price_of
from holdfast.models.failures import from_answer
from holdfast.models.http import Answer, Transport, open_transport
from holdfast.models.sse import MOST_BYTES, Decoder
from holdfast.models.wire import Reader, ServerEvent, Wire, parse

#: Seconds to wait for the book-keeping of a reply that is complete.
GRACE = 2.0

#: Seconds to wait for the last bytes of an answer that has been heard: a connection that is read to
#: its end can be used again.
LAST_BYTES = 0.02

#: Bytes of an answer that are read before everyone else gets a turn.
TURN = 16 * 1024

#: Calls whose answers are read as they come; seconds that each one more lets words gather, and the
#: most of that. The first words of an answer wait for nobody.
FEW = 8
SHARE = 0.0005
LONGEST_PACE = 0.25

#: Not a union, which would be made anew for each chunk.
_WORDS = (Said, Thought)

#: How endpoints say that they do not stream: the thing, and that it is not to be had.
_NO_STREAMING = (
    re.compile(r"\bstream(ing)?\b", re.IGNORECASE),
    re.compile(r"\b(not|cannot|unsupported|disabled|unavailable|n't)\b|n't\b", re.IGNORECASE),
)

#: Characters of an endpoint's explanation that are passed on.
MOST_WORDS = 1000

#: Bytes of an answer that says why there is no reply.
EXPLANATION = 64 * 1024


@dataclass(frozen=True)
class Address:
    """Where a model is and what it is called there. The key is shown to nobody."""

    base_url: str
    model: str
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class _Offer(Struct):
    id: str


class _Offers(Struct):
    data: list[_Offer]


_offers = msgspec.json.Decoder(_Offers)


class RemoteModel:
    """`stream` off: the endpoint is not asked to. It is switched off by an endpoint that refuses it."""

    def __init__(
        self,
        wire: Wire,
        address: Address,
        transport: Transport,
        *,
        stream: bool = True,
        price: Price | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._wire, self._address, self._transport = wire, address, transport
        self._secrets = Secrets((address.key, *address.headers.values()))
        self._streams, self._price, self._clock = stream, price, clock
        self._open = 0

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        if self._streams:
            try:
                async with aclosing(self._ask(request, stream=True)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except _CannotStream:
                pass  # said before it said anything else
        yield Unstreamed()
        async with aclosing(self._ask(request, stream=False)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Done):
                    # Only now is it certain that this is what it had against the first.
                    self._streams = False
                yield chunk

    async def _ask(self, request: Request, *, stream: bool) -> AsyncGenerator[Chunk, None]:
        model = self._address.model or await self._first_offered(request.connect)
        body = self._wire.body(request, model=model, stream=stream, origin=self._url(""))
        url, headers = self._url(self._wire.path), self._headers(stream=stream)
        done: Chunk | None = None
        self._open += 1
        try:
            async with self._transport.send(
                "POST", url, headers, body, connect=request.connect
            ) as answer:
                if answer.status != 200:
                    error = await self._refusal(answer)
                    if stream and _cannot_stream(error):
                        raise _CannotStream from error
                    raise error
                async with aclosing(self._read(answer, stream=stream)) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Done):
                            done = self._priced(chunk)
                        else:
                            yield chunk
        except ModelError as error:
            raise self._masked(error) from error.__cause__
        finally:
            self._open -= 1
        # Last, so that whoever leaves at the end marker leaves a connection that can be used again.
        if done is not None:
            yield done

    def _read(self, answer: Answer, *, stream: bool) -> AsyncGenerator[Chunk, None]:
        if stream and _is_stream(answer):
            return _read_stream(answer, self._wire.reader(), self._pace)
        return _read_whole(answer, self._wire.reader())

    def _pace(self) -> float:
        """A crowd is read in larger pieces, for a piece costs the same however much is in it."""
        return min(max(self._open - FEW, 0) * SHARE, LONGEST_PACE)

    async def offered(self, connect: float) -> Sequence[str]:
        """The names of the models that the endpoint says it has. Raises ModelError."""
        url, headers = self._url("/models"), self._headers(stream=False)
        try:
            async with self._transport.send("GET", url, headers, b"", connect=connect) as answer:
                if answer.status != 200:
                    raise await self._refusal(answer)
                found = parse(await _gather(answer, MOST_BYTES), _offers)
        except ModelError as error:
            raise self._masked(error) from error.__cause__
        return [one.id for one in found.data]

    async def _first_offered(self, connect: float) -> str:
        names = await self.offered(connect)
        if not names:
            raise ModelRefused(f"{self._address.base_url} has no model; install one, or name one")
        return names[0]

    def _url(self, path: str) -> str:
        return self._address.base_url.rstrip("/") + path

    def _headers(self, *, stream: bool) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if stream else "application/json",
            "Accept-Encoding": "identity",
            **self._wire.headers(self._address.key),
            **self._address.headers,
        }

    async def _refusal(self, answer: Answer) -> ModelError:
        """What the status says, with as much of an explanation as there is to be had soon."""
        body = bytearray()
        try:
            with anyio.move_on_after(GRACE):
                async with aclosing(answer.pieces()) as pieces:
                    async for piece in pieces:
                        body += piece
                        if len(body) > EXPLANATION:
                            break
        except ModelError:
            pass
        explained = bytes(body[:EXPLANATION])
        return from_answer(answer.status, answer.headers, explained, now=self._clock())

    def _priced(self, done: Done) -> Done:
        usage = replace(done.usage, cost=cost(self._price, done.usage))
        # Whose thoughts they are: nobody else can make anything of their seals.
        reasoning = tuple(replace(one, origin=self._url("")) for one in done.reasoning)
        model = done.model or self._address.model
        return replace(done, usage=usage, reasoning=reasoning, model=model)

    def _masked(self, error: ModelError) -> ModelError:
        """The error without our secrets: an endpoint may well repeat what it was sent. And short."""
        words = self._secrets.mask(str(error))
        if len(words) > MOST_WORDS:
            words = f"{words[:MOST_WORDS]} …"
        if words == str(error):
            return error
        return type(error)(
            words, reason=error.reason, status=error.status, retry_after=error.retry_after
        )


async def _read_stream(
    answer: Answer, reader: Reader, pace: Callable[[], float]
) -> AsyncGenerator[Chunk, None]:
    decoder, patience, work, spoken = Decoder(), inf, 0, False
    async with aclosing(answer.pieces()) as pieces:
        while piece := await (anext(pieces, b"") if patience == inf else _next(pieces, patience)):
            for start in range(0, len(piece), TURN):
                for chunk in _understood(decoder, reader, piece[start : start + TURN]):
                    yield chunk
                    spoken = spoken or isinstance(chunk, _WORDS)
                    if isinstance(chunk, Done):
                        if not answer.over:
                            await _next(pieces, anyio.current_time() + LAST_BYTES)
                        return
                work += min(len(piece), TURN)
                if work >= TURN:
                    # Others want to live, though this answer never makes anybody wait.
                    work = 0
                    await anyio.lowlevel.checkpoint()
            if reader.complete:
                # What has been said is not lost by waiting for what is merely counted.
                patience = min(patience, anyio.current_time() + GRACE)
                continue
            if spoken and (pause := pace()):
                await anyio.sleep(pause)
    for chunk in reader.end():
        yield chunk


def _understood(decoder: Decoder, reader: Reader, piece: bytes) -> Iterator[Chunk]:
    """What these bytes say. A reply that is complete is not lost by what comes after it."""
    chunks: list[Chunk] = []
    try:
        plain = decoder.plain(piece)
        words, count = reader.words(plain) if plain else ("", 0)
        if words:
            chunks.append(Said(words))
        rest = (ServerEvent("", data) for data in plain[count:]) if plain else decoder.feed(piece)
        for event in rest:
            if event.data and (found := reader.read(event)):
                chunks += found
                if isinstance(found[-1], Done):
                    break
    except ModelError:
        if not reader.complete:
            yield from _joined(chunks)
            raise
        chunks += reader.end()
    yield from _joined(chunks)


def _joined(chunks: Sequence[Chunk]) -> Iterable[Chunk]:
    """What came at once is told at once: words of one kind are joined."""
    if len(chunks) < 2:
        return chunks
    if isinstance(chunks[0], Heard):
        # What follows is sign of life enough.
        chunks = chunks[1:]
    few: list[Chunk] = []
    for kind, same in groupby(chunks, type):
        if kind is Said or kind is Thought:
            said = cast(Iterator[Said | Thought], same)
            few.append(kind("".join(chunk.text for chunk in said)))
        elif kind is Done and few and isinstance(words := few[-1], _WORDS):
            few[-1:] = [replace(words, last=True), *same]
        else:
            few += same
    return few


async def _next(pieces: AsyncGenerator[bytes, None], until: float) -> bytes:
    """The next bytes, none at the end. Past the end of patience, none whatever happens."""
    try:
        with anyio.CancelScope(deadline=until):
            return await anext(pieces, b"")
    except ModelError:
        pass
    return b""


async def _read_whole(answer: Answer, reader: Reader) -> AsyncGenerator[Chunk, None]:
    body = await _gather(answer, MOST_BYTES)
    kind = answer.headers.get("content-type", "json")
    if "json" not in kind:
        raise BadReply(f"the endpoint answered with {kind}, which is no reply; is base_url right?")
    for chunk in reader.whole(body):
        yield chunk


def _is_stream(answer: Answer) -> bool:
    """Not every endpoint says so, but none that sends a document calls it anything else."""
    kind = answer.headers.get("content-type", "")
    return "json" not in kind and "html" not in kind


class _CannotStream(Exception):
    """The endpoint said so instead of answering."""


def _cannot_stream(error: ModelError) -> bool:
    """By its words, since there is no code for it. An upstream and stream_options are no stream."""
    refused = isinstance(error, ModelRefused) and error.status in (400, 422)
    return refused and all(word.search(str(error)) for word in _NO_STREAMING)


async def _gather(answer: Answer, limit: int) -> bytes:
    """The body. Raises BadReply if it has more bytes than that."""
    body = bytearray()
    async with aclosing(answer.pieces()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > limit:
                raise BadReply(f"the reply is longer than {limit} bytes", reason="too_large")
            await anyio.lowlevel.checkpoint()
    return bytes(body)


def open_remote(
    wire: str,
    transport: Transport,
    *,
    base_url: str,
    model: str,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    stream: bool = True,
    price: Price | None = None,
    clock: Callable[[], float] = time,
) -> RemoteModel:
    """The model at this address. Raises ConfigError for a wire that nobody speaks."""
    address = Address(base_url, model, key, headers or {})
    return RemoteModel(_wire(wire), address, transport, stream=stream, price=price, clock=clock)


@asynccontextmanager
async def open_model(
    wire: str,
    *,
    base_url: str,
    model: str,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    stream: bool = True,
) -> AsyncIterator[RemoteModel]:
    """A model with connections of its own, for as long as this is open. Raises ConfigError.

    `wire` is openai-chat, openai-responses or anthropic; `base_url` is all that comes before the
    wire's own path, as in https://api.openai.com/v1.
    """
    async with open_transport() as transport:
        yield open_remote(
            wire,
            transport,
            base_url=base_url,
            model=model,
            key=key,
            headers=headers,
            stream=stream,
            price=price_of(model),
        )


def _wire(name: str) -> Wire:
    match name:
        case "openai-chat":
            from holdfast.models.openai_chat import OpenAIChat

            return OpenAIChat()
        case "openai-responses":
            from holdfast.models.openai_responses import OpenAIResponses

            return OpenAIResponses()
        case "anthropic":
            from holdfast.models.anthropic import Anthropic

            return Anthropic()
        case _:
            known = ", ".join(wire for wire in WIRES if wire != "demo")
            raise ConfigError(f"{name!r} is no wire; there are: {known}")
