"""Events to one reader, for as long as both last: those of a run, or of whatever else is told.

A reader is a place in the journal and the bytes on their way to it, of which few are held in
memory. One that stalls costs no more than that, and is hung up on in the end. A stream that has to
be left while its run goes on is never ended properly: whoever reads it must not take that for the
end of the run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, aclosing, closing, suppress
from io import BytesIO
from math import inf
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

import anyio
from anyio.abc import TaskGroup

from holdfast.calls.tasks import task_group
from holdfast.core.events import FINAL, Recorded
from holdfast.server.frames import CLOSED, KEEPALIVE, Projection, draining, retracted_attempts
from holdfast.server.keys import Welcome, always
from holdfast.server.service import Service

#: Seconds between two signs of life, and until a reader that takes nothing is given up; and how
#: often it is looked whether either is due.
ALIVE = 15.0
STALLED = 30.0
LOOK = 1.0

#: Bytes that are put together before they are sent, where there is more to tell; and the most
#: that are sent at once, so that no more than this waits in the line of a reader that is slow.
PIECE = 64 * 1024

#: Bytes past which what is on its way is held in a file.
LONG = 256 * 1024

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Caller(Protocol):
    """Who is at the other end. Whoever serves a request puts them into the scope's state."""

    def hang_up(self) -> None:
        """Leave in the middle of an answer, so that nobody takes it for a whole one."""

    def when_gone(self, leave: Callable[[], None]) -> None:
        """Have this called when they have left; at once if they have already."""


class View(Protocol):
    """What a reader is shown of a run, which is fed its journal."""

    def frames(self, recorded: Recorded) -> bytes: ...


class Stream(ABC):
    """An ASGI app for one answer."""

    #: More than the usual ones.
    headers: Sequence[tuple[bytes, bytes]] = ()

    def __init__(self, service: Service) -> None:
        self._service = service
        # asyncio's own, as it costs next to nothing where nobody else wants it.
        self._busy, self._time = asyncio.Lock(), asyncio.get_running_loop().time
        #: Nothing more may be sent.
        self._over = False
        self._spoke = 0.0
        #: Since when something is being sent.
        self._began = inf
        self._opens: Welcome = always

    @abstractmethod
    async def prepare(self) -> None:
        """Look whether there is anything to tell. Raises NotFound."""

    @abstractmethod
    async def tell(self) -> None:
        """All there is, and all that comes."""

    @abstractmethod
    def farewell(self) -> bytes:
        """Says that the server is about to leave."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Raises NotFound, and has sent nothing then."""
        await self.prepare()
        self._ask, self._caller = send, scope["state"]["caller"]
        self._opens = scope["state"].get("welcome", self._opens)
        self._spoke = self._time()
        headers = [*_HEADERS, *self.headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with anyio.CancelScope() as reading:
            self._caller.when_gone(reading.cancel)
            self._service.readers.add(self)
            try:
                await self._tell_who_comes_late()
                await self.tell()
            except Exception:
                # Whoever serves would merely close the line.
                self.leave()
                raise
            finally:
                self._over = True
                self._service.readers.discard(self)

    async def _tell_who_comes_late(self) -> None:
        if self._service.draining.is_set():
            await self.warn()
        if self._service.left.is_set():
            self.leave()

    async def put(self, frames: bytes, *, last: bool = False) -> None:
        async with self._busy:
            left = len(frames)
            with closing(_pieces(frames, self._service.folder)) as pieces:
                # Whoever takes their time over what is long is not waited for with all of it in hand.
                del frames
                for piece in pieces:
                    if self._over:
                        return
                    self._spoke = self._began = self._time()
                    left -= len(piece)
                    more = not last or left > 0
                    await self._ask(
                        {"type": "http.response.body", "body": piece, "more_body": more}
                    )
            self._over, self._began = self._over or last, inf

    # --- what is done for all readers at once ------------------------------------------------

    def welcome(self) -> bool:
        return self._opens() is not None

    def stalls(self, now: float) -> bool:
        return now >= self._began + STALLED

    def quiet(self, now: float) -> bool:
        return self._began == inf and now >= self._spoke + ALIVE

    async def show_life(self) -> None:
        await self.put(KEEPALIVE)

    async def warn(self) -> None:
        await self.put(self.farewell())

    def leave(self) -> None:
        self._over = True
        self._caller.hang_up()


class RunStream(Stream):
    """A run's events. `after` is what the reader has seen."""

    def __init__(self, service: Service, run_id: str, *, after: int) -> None:
        super().__init__(service)
        self._run_id, self._after = run_id, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.attendance.reading(self._run_id):
            await super().__call__(scope, receive, send)

    async def prepare(self) -> None:
        stored = await self._service.journal(self._run_id)
        # The reader may take its time over them, so they are read again as it goes.
        self._known, self._view = stored[-1].seq, self.view(stored)

    def view(self, stored: Sequence[Recorded]) -> View:
        """Of the run, to a reader who comes when this much is on record."""
        # Nobody can have seen what has not been: it is not this run that they mean.
        after = self._after if self._after <= stored[-1].seq else 0
        return Projection(self._run_id, after=after, retracted=retracted_attempts(stored))

    async def tell(self) -> None:
        frames, ended = bytearray(), False
        async with aclosing(self._service.follow(self._run_id)) as events:
            async for recorded in events:
                frames += self._view.frames(recorded)
                late, ended = recorded.seq >= self._known, isinstance(recorded.event, FINAL)
                # It may be long, and is not needed while somebody takes their time.
                del recorded
                if ended:
                    frames += CLOSED
                    break
                if frames and (late or len(frames) >= PIECE):
                    await self.put(_taken(frames))
        await self.put(_taken(frames), last=ended)
        if not ended:
            # It was deleted in the middle, and half an answer is not to pass for a whole one.
            self.leave()
            # Who serves us notices a moment later that the line is gone, and would complain till then
            # of an answer that nobody finished.
            await anyio.sleep(LOOK)

    def farewell(self) -> bytes:
        return draining(self._run_id, at=self._service.clock())


def _taken(frames: bytearray) -> bytes:
    """What has gathered, which begins anew."""
    told = bytes(frames)
    frames.clear()
    return told


def _pieces(frames: bytes, folder: Path) -> Generator[bytes, None, None]:
    """As they are sent, and only the one on its way in memory if they are long."""
    with _held(frames, folder) as held:
        del frames
        while piece := held.read(PIECE):
            yield piece


def _held(frames: bytes, folder: Path) -> IO[bytes]:
    """What is long is in a file without a name. It is written at once, without another thread: that
    takes a tenth of what it took to put the frame together, and many who come at once are not all
    put together before the first is written. Without room on the disk, memory has to do."""
    if len(frames) > LONG:
        with suppress(OSError), ExitStack() as stack:
            file = stack.enter_context(TemporaryFile(dir=folder, buffering=0))
            if file.write(frames) == len(frames):
                file.seek(0)
                stack.pop_all()
                return file
    return BytesIO(frames)


async def look_after(service: Service) -> None:
    """Show all readers that we live, give up on who takes nothing or may not read any more, and leave
    with the server.

    One task does it for all of them: most come for a moment, and need none of it.
    """
    async with task_group() as tasks:
        tasks.start_soon(_warn, service, tasks)
        while not service.left.is_set():
            with anyio.move_on_after(LOOK):
                await service.left.wait()
            now = anyio.current_time()
            for stream in tuple(service.readers):
                if stream.stalls(now) or not stream.welcome():
                    stream.leave()
                elif stream.quiet(now):
                    tasks.start_soon(stream.show_life)
        leave_all(service)


def leave_all(service: Service) -> None:
    """At once, and without a word."""
    for stream in tuple(service.readers):
        stream.leave()


async def _warn(service: Service, tasks: TaskGroup) -> None:
    await service.draining.wait()
    for stream in tuple(service.readers):
        tasks.start_soon(stream.warn)
