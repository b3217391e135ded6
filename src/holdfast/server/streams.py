"""A run's events to one reader, for as long as both last.

A reader is a place in the journal and the bytes on their way to it. One that stalls costs no more
than that, and is hung up on in the end. A stream that has to be left while its run goes on is
never ended properly: whoever reads it must not take that for the end of the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from math import inf
from typing import Any

import anyio
from anyio.abc import TaskGroup

from holdfast.calls.tasks import task_group
from holdfast.ports import Clock
from holdfast.server.frames import CLOSED, KEEPALIVE, Projection, draining, retracted_attempts
from holdfast.server.service import Service

#: Seconds between two signs of life, and until a reader that takes nothing is given up.
ALIVE = 15.0
STALLED = 60.0

#: Bytes that are put together before they are sent, where there is more to tell.
PIECE = 64 * 1024

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Stream:
    """An ASGI app for one answer. `after` is what the reader has seen.

    Whoever serves it puts into the scope's state how to `hang_up` in the middle of an answer.
    """

    def __init__(
        self,
        service: Service,
        run_id: str,
        *,
        after: int,
        clock: Clock,
        alive: float = ALIVE,
        stalled: float = STALLED,
    ) -> None:
        self._service, self._run_id, self._after = service, run_id, after
        self._clock, self._alive, self._stalled = clock, alive, stalled
        self._busy = anyio.Lock()
        self._spoke = 0.0
        #: Since when something is being sent.
        self._began = inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stored = await self._service.journal(self._run_id)
        view = Projection(self._run_id, after=self._after, retracted=retracted_attempts(stored))
        known = stored[-1].seq
        # The reader may take its time over them, so they are read again as it goes.
        del stored
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._spoke, self._hang_up = anyio.current_time(), scope["state"]["hang_up"]
        async with task_group() as tasks:
            tasks.start_soon(_leave_with, receive, tasks)
            tasks.start_soon(self._keep_alive, send)
            tasks.start_soon(self._leave_when_draining, send)
            tasks.start_soon(self._lose_patience)
            await self._tell(view, known, send)
            # Never released: nothing can be said after this.
            await self._busy.acquire()
            await self._send(send, CLOSED, more=False)
            tasks.cancel_scope.cancel()

    async def _tell(self, view: Projection, known: int, send: Send) -> None:
        frames = bytearray()
        async with aclosing(self._service.follow(self._run_id)) as events:
            async for recorded in events:
                frames += view.frames(recorded)
                if recorded.seq >= known or len(frames) >= PIECE:
                    await self._put(send, bytes(frames))
                    frames.clear()

    async def _put(self, send: Send, frames: bytes) -> None:
        if not frames:
            return
        self._spoke = anyio.current_time()
        async with self._busy:
            await self._send(send, frames, more=True)

    async def _send(self, send: Send, frames: bytes, *, more: bool) -> None:
        self._began = anyio.current_time()
        await send({"type": "http.response.body", "body": frames, "more_body": more})
        self._began = inf

    async def _keep_alive(self, send: Send) -> None:
        while True:
            quiet = anyio.current_time() - self._spoke
            if quiet >= self._alive:
                await self._put(send, KEEPALIVE)
                quiet = 0.0
            await anyio.sleep(self._alive - quiet)

    async def _lose_patience(self) -> None:
        """Give up on a reader that takes nothing. One timer for all that is sent, not one each."""
        while True:
            now = anyio.current_time()
            if now >= self._began + self._stalled:
                await self._abandon()
            await anyio.sleep(min(self._began - now, 0.0) + self._stalled)

    async def _leave_when_draining(self, send: Send) -> None:
        await self._service.draining.wait()
        await self._put(send, draining(self._run_id, at=self._clock()))
        await self._service.left.wait()
        await self._abandon()

    async def _abandon(self) -> None:
        """Leave in the middle, which the reader is to notice. Then it is gone like any other."""
        self._hang_up()
        await anyio.sleep_forever()


async def _leave_with(receive: Receive, tasks: TaskGroup) -> None:
    """End when the reader does."""
    while (await receive())["type"] != "http.disconnect":
        pass
    tasks.cancel_scope.cancel()
