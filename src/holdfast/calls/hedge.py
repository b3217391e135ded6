"""A second connection for when the first is silent: whoever says something first is heard.

The loser is hung up on, and what it may have said does not exist. Losing is no failure; only
if both fail is there one, and it is the first's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from holdfast.calls.foreign import no_stray_cancel
from holdfast.calls.tasks import task_group
from holdfast.core.messages import Chunk, Done, Heard, Request, Unstreamed
from holdfast.errors import ModelError, ModelUnavailable
from holdfast.ports import Model

_Streams: TypeAlias = tuple[
    MemoryObjectSendStream[Chunk | ModelError], MemoryObjectReceiveStream[Chunk | ModelError]
]


class Race:
    """Two calls with one ear. `lost` counts calls that were made and not heard."""

    def __init__(
        self, first: Model, second: Model, request: Request, after: float, streams: _Streams
    ) -> None:
        self._models = (first, second)
        self._request, self._after = request, after
        self._scopes = (anyio.CancelScope(), anyio.CancelScope())
        self._begun = self._failed = 0
        self._winner: int | None = None
        self._error: ModelError | None = None
        #: Somebody has answered at all, so that nobody else need be asked.
        self._answered = anyio.Event()
        self._send, self._receive = streams

    @property
    def lost(self) -> int:
        return max(self._begun - 1, 0)

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """What the winner says; before there is one, that somebody is there."""
        async for item in self._receive:
            if isinstance(item, ModelError):
                raise item
            yield item
            if isinstance(item, Done):
                return

    async def run_second(self) -> None:
        """Wait, and if nobody has answered by then, call once more."""
        with anyio.move_on_after(self._after):
            await self._answered.wait()
        if not self._answered.is_set():
            await self.run(1)

    async def run(self, number: int) -> None:
        self._begun += 1
        with self._scopes[number]:
            try:
                await self._pump(number)
            except ModelError as error:
                await self._fail(number, error)

    async def _pump(self, number: int) -> None:
        chunks = self._models[number].stream(self._request)
        with no_stray_cancel(ModelUnavailable):
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._answered.set()
                    if self._winner is None and not isinstance(chunk, Heard | Unstreamed):
                        self._win(number)
                    await self._send.send(chunk)
        if self._winner in (None, number):
            raise ModelUnavailable("the reply broke off without its end marker", reason="truncated")

    def _win(self, number: int) -> None:
        self._winner = number
        self._scopes[1 - number].cancel()

    async def _fail(self, number: int, error: ModelError) -> None:
        """Nobody else is left to hear, or nobody else was asked: then it is the call's failure."""
        self._failed += 1
        self._error = self._error or error
        if self._winner == number or self._failed == self._begun:
            self._answered.set()
            await self._send.send(error if self._winner == number else self._error)


@asynccontextmanager
async def hedged(
    first: Model, second: Model, request: Request, *, after: float
) -> AsyncIterator[Race]:
    streams: _Streams = anyio.create_memory_object_stream(0)
    race = Race(first, second, request, after, streams)
    with streams[0], streams[1]:
        async with task_group() as tasks:
            tasks.start_soon(race.run, 0)
            tasks.start_soon(race.run_second)
            try:
                yield race
            finally:
                tasks.cancel_scope.cancel()
