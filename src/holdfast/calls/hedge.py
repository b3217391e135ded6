"""A second connection for when the first is silent: whoever says something first is heard.

The loser is hung up on, and what it may have said does not exist. Losing is no failure; only
if both fail is there one, and it is the first's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
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


def _always() -> bool:
    return True


def _nothing() -> None:
    """There is nothing to give back."""


@dataclass(frozen=True)
class Entrant:
    """One who may be asked. Only if there is a place, which is given back in the end."""

    model: Model
    request: Request
    take_place: Callable[[], bool] = _always
    give_back: Callable[[], None] = _nothing


class Race:
    """Two calls with one ear. `lost` counts calls that were made and not heard."""

    def __init__(self, first: Entrant, second: Entrant, after: float, streams: _Streams) -> None:
        self._entrants, self._after = (first, second), after
        self._scopes = (anyio.CancelScope(), anyio.CancelScope())
        self._begun = self._failed = 0
        self._error: ModelError | None = None
        #: Whose words are heard, once there are any.
        self.winner: int | None = None
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
        entrant = self._entrants[1]
        if self._answered.is_set() or not entrant.take_place():
            return
        try:
            await self.run(1)
        finally:
            entrant.give_back()

    async def run(self, number: int) -> None:
        self._begun += 1
        with self._scopes[number]:
            try:
                await self._pump(number)
            except ModelError as error:
                await self._fail(number, error)

    async def _pump(self, number: int) -> None:
        entrant = self._entrants[number]
        chunks = entrant.model.stream(entrant.request)
        with no_stray_cancel(ModelUnavailable):
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._answered.set()
                    if self.winner is None and not isinstance(chunk, Heard | Unstreamed):
                        self._win(number)
                    # What the second is like is no reason to wait any longer for the first.
                    if number == 0 or not isinstance(chunk, Unstreamed):
                        await self._send.send(chunk)
        if self.winner in (None, number):
            raise ModelUnavailable("the reply broke off without its end marker", reason="truncated")

    def _win(self, number: int) -> None:
        self.winner = number
        self._scopes[1 - number].cancel()

    async def _fail(self, number: int, error: ModelError) -> None:
        """Nobody else is left to hear, or nobody else was asked: then it is the call's failure."""
        self._failed += 1
        self._error = self._error or error
        if self.winner == number or self._failed == self._begun:
            self._answered.set()
            await self._send.send(error if self.winner == number else self._error)


@asynccontextmanager
async def hedged(first: Entrant, second: Entrant, *, after: float) -> AsyncIterator[Race]:
    streams: _Streams = anyio.create_memory_object_stream(0)
    race = Race(first, second, after, streams)
    with streams[0], streams[1]:
        async with task_group() as tasks:
            tasks.start_soon(race.run, 0)
            tasks.start_soon(race.run_second)
            try:
                yield race
            finally:
                tasks.cancel_scope.cancel()
