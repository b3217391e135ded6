"""A model endpoint on a real socket that misbehaves as it is told.

    async with open_endpoint([Silence()], ["Hel", Reset()], ["Hel", "lo"]) as endpoint:
        ...  # point an agent at endpoint.url
        await endpoint.hung_up(0)

It speaks chat completions, responses and messages, by the path it is asked at, as a stream or in
one body, as the request wants it. Each script is one call, or a function of the request that
gives one; the last serves all further calls. In a script a string is said, Think is thought, Call
asks for a tool, and a fault strikes where it stands:

    [NoHeaders(), Reset()]              before the headers
    [Reset()]                           after the headers
    ["Hel", Reset()]                    after the first piece
    [Call("pay", '{"eu'), Reset()]      in the arguments of a call
    ["Hello", Finish(), Reset()]        after the reason to finish

A script without an end of its own ends as it should.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from holdfast.calls.tasks import task_group
from holdfast.core.usage import Usage
from holdfast.testing.connection import Connection, Received, head
from holdfast.testing.dialects import DIALECTS
from holdfast.testing.replies import USAGE, Reply, encoded
from holdfast.testing.scripted import Ack, Call, CutOff, Silence, Think

# --- what a script is made of ----------------------------------------------------------------


@dataclass(frozen=True)
class NoHeaders:
    """The headers are held back until there is something to send."""


@dataclass(frozen=True)
class Pings:
    """For ever nothing but signs of life, as the wire has them.

    `empty` ones are dressed up as events of the reply, and say nothing either.
    """

    every: float = 0.05
    empty: bool = False


@dataclass(frozen=True)
class Drip:
    """From here on everything comes byte by byte."""

    every: float = 0.01


@dataclass(frozen=True)
class Reset:
    """The connection is torn down."""


@dataclass(frozen=True)
class Hangup:
    """The connection is closed in the middle of the body."""


@dataclass(frozen=True)
class Answer:
    """A whole answer of HTTP instead of a reply. Nothing may have been sent before it."""

    status: int
    body: str | bytes = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes that go into the body as they are."""

    data: bytes


@dataclass(frozen=True)
class Finish:
    """Why the reply ends, without what follows: stop, length, refusal, tools, or the wire's word.

    On the responses wire this is the last event of all.
    """

    reason: str = ""
    usage: Usage | None = None


@dataclass(frozen=True)
class End:
    """A proper end, the reason included if none was given."""

    usage: Usage | None = None


Step: TypeAlias = (
    str
    | Think
    | Call
    | Ack
    | Silence
    | NoHeaders
    | Pings
    | Drip
    | Raw
    | Finish
    | End
    | CutOff
    | Hangup
    | Reset
    | Answer
)


Script: TypeAlias = Sequence[Step] | Callable[[Received], Sequence[Step]]

#: How a script ended: the connection may serve another request, or is done for. None: not yet.
_Over: TypeAlias = Literal["kept", "gone"] | None


# --- the endpoint ----------------------------------------------------------------------------


class Endpoint:
    """Remembers what a test may ask.

    `requests` is all it received; `closed` tells for each when its client was seen to hang up
    before the answer was over, in the time of the event loop, or None; `open` is how many calls
    are being answered now, `connections` how many were made in all.
    """

    def __init__(
        self, url: str, scripts: Sequence[Script], *, refuse_stream: bool, models: Sequence[str]
    ) -> None:
        self.url = url
        self.requests: list[Received] = []
        self.closed: list[float | None] = []
        self.open = 0
        self.connections = 0
        self._scripts = list(scripts)
        self._refuse_stream, self._models = refuse_stream, models
        self._news = anyio.Event()

    async def received(self, number: int = 0) -> Received:
        """The request of that number, as soon as it is there."""
        while len(self.requests) <= number:
            await self._news.wait()
        return self.requests[number]

    async def hung_up(self, number: int = 0) -> float:
        """When the client of that request hung up. Waits until it does."""
        await self.received(number)
        while (at := self.closed[number]) is None:
            await self._news.wait()
        return at

    async def _serve(self, door: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.wait_readable(door)
            self.connections += 1
            tasks.start_soon(self._converse, Connection(door.accept()[0]))

    async def _converse(self, line: Connection) -> None:
        """Answer one request after another, until either side has had enough."""
        with line.sock:
            async with task_group() as tasks:
                tasks.start_soon(self._listen, line, tasks.cancel_scope)
                while await self._exchange(line) == "kept":
                    pass
                tasks.cancel_scope.cancel()

    async def _listen(self, line: Connection, conversation: anyio.CancelScope) -> None:
        """Someone always listens, so that a hang-up is noticed whatever the script is doing."""
        await line.listen()
        if line.answering is not None:
            self.closed[line.answering] = anyio.current_time()
            self._tell()
        conversation.cancel()

    async def _exchange(self, line: Connection) -> _Over:
        try:
            request = await line.request()
        except (ValueError, msgspec.DecodeError):
            await _answered(line.send, _refusal(400, "this is no request that I understand"))
            return "gone"
        line.answering = len(self.requests)
        self.requests.append(request)
        self.closed.append(None)
        self._tell()
        self.open += 1
        try:
            over = await self._respond(line, request)
        finally:
            self.open -= 1
        line.answering = None
        return "gone" if request.headers.get("connection", "").lower() == "close" else over

    async def _respond(self, line: Connection, request: Received) -> _Over:
        path = request.path.partition("?")[0]
        if request.method == "GET" and path.endswith("/models"):
            return await _answered(line.send, _list(self._models))
        kinds = [kind for ending, kind in DIALECTS.items() if path.endswith(ending)]
        if request.method != "POST" or not kinds:
            return await _answered(line.send, _refusal(404, f"there is nothing at {path}"))
        if self._refuse_stream and request.body.get("stream"):
            return await _answered(line.send, _refusal(400, "streaming is not supported here"))
        script = chosen(self._scripts, request)
        return await _played(_Exchange(line, kinds[0](request.body, usage(script))), script)

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


@asynccontextmanager
async def open_endpoint(
    *scripts: Script, refuse_stream: bool = False, models: Sequence[str] = ("model",)
) -> AsyncIterator[Endpoint]:
    """An endpoint on a free port of this machine, gone with all its connections at the end.

    `refuse_stream` makes it one that cannot stream: it says so and uses up no script. `models`
    are those it lists.
    """
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        url = f"http://127.0.0.1:{door.getsockname()[1]}/v1"
        endpoint = Endpoint(url, scripts, refuse_stream=refuse_stream, models=models)
        async with task_group() as tasks:
            tasks.start_soon(endpoint._serve, door, tasks)  # noqa: SLF001 (its maker)
            yield endpoint
            tasks.cancel_scope.cancel()


def chosen(scripts: list[Script], request: Received) -> Sequence[Step]:
    """The script for this request. All but the last are used up."""
    if not scripts:
        return []
    script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
    return script(request) if callable(script) else script


# --- one answer ------------------------------------------------------------------------------


class _Exchange:
    """One answer on its way out. It begins with the headers, whenever that is."""

    def __init__(self, line: Connection, reply: Reply) -> None:
        self.line, self.reply = line, reply
        #: Seconds before each byte; 0 for all at once.
        self.drip = 0.0
        self._begun = False

    async def begin(self) -> None:
        if not self._begun:
            self._begun = True
            kind = "text/event-stream" if self.reply.streamed else "application/json"
            await self._send(head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"}))

    async def put(self, pieces: Sequence[bytes]) -> None:
        """Each as a chunk of its own."""
        # A chunk of no bytes would be the end of the body.
        for piece in filter(None, pieces):
            await self.begin()
            await self._send(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def ping(self, pings: Pings) -> None:
        while True:
            await self.put(self.reply.ping(empty=pings.empty))
            await anyio.sleep(pings.every)

    async def close(self) -> _Over:
        await self.begin()
        await self._send(b"0\r\n\r\n")
        return "kept"

    async def hang_up(self) -> _Over:
        if self._begun:
            await self.put(self.reply.cut())
        return "gone"

    async def instead(self, answer: Answer) -> _Over:
        if self._begun:
            raise ValueError("an Answer stands first in its script, or after a wait")
        return await _answered(self._send, answer)

    async def _send(self, data: bytes) -> None:
        # Nobody gets a word in between the end of a reply and the end of its body: a client that
        # leaves on the one was answered.
        if not self.drip:
            await self.line.send(data)
            return
        for place in range(len(data)):
            await anyio.sleep(self.drip)
            await self.line.send(data[place : place + 1])


# --- what each step does ---------------------------------------------------------------------


async def _played(exchange: _Exchange, script: Sequence[Step]) -> _Over:
    if not any(isinstance(step, NoHeaders | Answer) for step in script):
        await exchange.begin()
    steps = iter((*script, End()))
    over: _Over = None
    while over is None:
        await anyio.lowlevel.checkpoint()
        over = await _perform(exchange, next(steps))
    return over


async def _perform(exchange: _Exchange, step: Step) -> _Over:
    match step:
        case Silence(seconds):
            await anyio.sleep(seconds)
        case Pings():
            await exchange.ping(step)
        case Drip(every):
            exchange.drip = every
        case End() | CutOff() | Hangup() | Reset() | Answer():
            return await _end(exchange, step)
        case _:
            await exchange.put(words(exchange.reply, step))
    return None


def words(reply: Reply, step: str | Think | Call | Ack | Finish | Raw | NoHeaders) -> list[bytes]:
    match step:
        case str():
            return reply.say(step)
        case Think(text):
            return reply.think(text)
        case Call(tool, arguments, model_id):
            return reply.call(tool, arguments, model_id)
        case Ack():
            return reply.begin()
        case Finish(reason):
            return reply.finish(reason)
        case Raw(data):
            return [data]
        case NoHeaders():
            return []
        case other:
            assert_never(other)


async def _end(exchange: _Exchange, step: End | CutOff | Hangup | Reset | Answer) -> _Over:
    match step:
        case End():
            await exchange.put(exchange.reply.end())
            return await exchange.close()
        case CutOff():
            await exchange.put(exchange.reply.cut())
            return await exchange.close()
        case Hangup():
            return await exchange.hang_up()
        case Reset():
            exchange.line.close_with_a_reset()
            return "gone"
        case Answer():
            return await exchange.instead(step)
        case other:
            assert_never(other)


def usage(script: Sequence[Step]) -> Usage:
    """What the script will say was used. Some wires want to know at the beginning."""
    told = (step.usage for step in script if isinstance(step, Finish | End))
    return next((usage for usage in told if usage is not None), USAGE)


# --- answers of HTTP -------------------------------------------------------------------------


async def _answered(send: Callable[[bytes], Awaitable[None]], answer: Answer) -> _Over:
    body = answer.body.encode() if isinstance(answer.body, str) else answer.body
    # These two have no body, and say nothing of its length either.
    length = {} if answer.status in (204, 304) else {"Content-Length": str(len(body))}
    headers = {"Content-Type": "application/json", **length, **answer.headers}
    await send(head(answer.status, headers) + body)
    return "kept"


def _refusal(status: int, words: str) -> Answer:
    error = {"type": "invalid_request_error", "message": words}
    return Answer(status, encoded({"type": "error", "error": error}))


def _list(models: Sequence[str]) -> Answer:
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": ""} for name in models]
    return Answer(200, encoded({"object": "list", "data": listed, "has_more": False}))
