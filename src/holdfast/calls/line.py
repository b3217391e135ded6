"""The line to one model: its endpoint as this process has come to know it, and one call on it.

A run and a call made alone call through the same `attempt`, so both are supervised alike.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import ceil

import anyio
from msgspec.structs import replace

from holdfast.calls.hedge import hedged
from holdfast.calls.listen import listen
from holdfast.core.breaker import Breaker
from holdfast.core.messages import Chunk, Done, Request, characters
from holdfast.core.retry import BREAKER_OPEN, Failure
from holdfast.core.usage import CHARACTERS_A_TOKEN, Usage
from holdfast.core.watchdog import Patience
from holdfast.errors import ModelError, ModelUnavailable
from holdfast.ports import Model


class Endpoint:
    """What is shared by all who call one endpoint: how it fared, and how many may call at once.

    `concurrency` 0 is as many as like.
    """

    def __init__(self, *, concurrency: int = 0) -> None:
        self.breaker = Breaker()
        self._places = anyio.Semaphore(concurrency) if concurrency else None

    @asynccontextmanager
    async def place(self, busy: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """A place to call from. `busy` is called first if there is none free."""
        if self._places is None:
            yield
            return
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            await busy()
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()


@dataclass(frozen=True)
class Line:
    """`hedge`: after so many silent seconds a second connection is opened, to `second` or again to
    the same model; 0 for never. `wire` is what it speaks."""

    model: Model
    wire: str = ""
    endpoint: Endpoint = field(default_factory=Endpoint)
    hedge: float = 0.0
    second: Model | None = None


async def attempt(
    line: Line,
    request: Request,
    patience: Patience,
    hear: Callable[[Chunk], Awaitable[None]],
) -> Done:
    """One call on this line, every chunk passed to `hear`. Raises ModelError."""
    breaker = line.endpoint.breaker
    if wait := breaker.admit(now=anyio.current_time()):
        raise ModelUnavailable(
            f"{request.model} failed {breaker.failures} times in a row and is left alone"
            f" for {wait:.0f} s more",
            reason=BREAKER_OPEN,
            retry_after=wait,
        )
    try:
        done = await _call(line, request, patience, hear)
    except ModelError as error:
        if Failure(request.model, error.reason, status=error.status).worth_moving:
            breaker.fail(now=anyio.current_time())
        else:
            # It answered, and what it did not like is of our making.
            breaker.succeed()
        raise
    except BaseException:
        breaker.leave()
        raise
    breaker.succeed()
    return done


async def _call(
    line: Line,
    request: Request,
    patience: Patience,
    hear: Callable[[Chunk], Awaitable[None]],
) -> Done:
    if not line.hedge:
        return await listen(line.model.stream(request), patience, hear, wire=line.wire)
    second = line.second or line.model
    async with hedged(line.model, second, request, after=line.hedge) as race:
        done = await listen(race.chunks(), patience, hear, wire=line.wire)
    if not race.lost:
        return done
    # Whoever lost the race has read the question, and nobody says what that cost.
    guess = race.lost * ceil(characters(request) / CHARACTERS_A_TOKEN)
    return replace(done, usage=done.usage + Usage(input=guess, estimated=guess, cost=None))
