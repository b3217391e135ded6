"""The line to one model: its endpoint as this process has come to know it, and one call on it.

A run and a call made alone call through the same `attempt`, so both are supervised alike.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import ceil

import anyio
from msgspec.structs import replace

from holdfast.calls.hedge import Entrant, Race, hedged
from holdfast.calls.listen import listen
from holdfast.core.breaker import Breaker, Pass
from holdfast.core.messages import Chunk, Done, Heard, Request, Unstreamed, characters
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
        if not self.take_place():
            assert self._places is not None
            await busy()
            await self._places.acquire()
        try:
            yield
        finally:
            self.give_back()

    def take_place(self) -> bool:
        """A place now, or none."""
        try:
            if self._places:
                self._places.acquire_nowait()
        except anyio.WouldBlock:
            return False
        return True

    def give_back(self) -> None:
        if self._places:
            self._places.release()


@dataclass(frozen=True)
class Line:
    """How to reach one model. `wire` is what it speaks.

    `hedge`: after so many silent seconds a second connection is opened, to `second` or again to the
    same model; 0 for never. `options` are its own, for when it is the second.
    """

    model: Model
    wire: str = ""
    endpoint: Endpoint = field(default_factory=Endpoint)
    hedge: float = 0.0
    second: Line | None = None
    options: Mapping[str, object] = field(default_factory=dict)


async def attempt(
    line: Line,
    request: Request,
    patience: Patience,
    hear: Callable[[Chunk], Awaitable[None]],
) -> Done:
    """One call on this line, every chunk passed to `hear`. Raises ModelError."""
    breaker = line.endpoint.breaker
    leave = breaker.admit(now=anyio.current_time())
    if leave.wait:
        raise ModelUnavailable(
            f"{request.model} failed {breaker.failures} times in a row and is left alone"
            f" for {leave.wait:.0f} s more",
            reason=BREAKER_OPEN,
            retry_after=leave.wait,
        )
    if breaker.open:
        hear = _telling(breaker, leave, hear)
    try:
        done, answered = await _call(line, request, patience, hear)
    except ModelError as error:
        if _speaks_against(request.model, error):
            breaker.fail(leave, now=anyio.current_time())
        else:
            # It answered, and what it did not like is of our making.
            breaker.succeed()
        raise
    except BaseException:
        breaker.leave(leave)
        raise
    if answered is line.endpoint:
        breaker.succeed()
    else:
        breaker.leave(leave)
        answered.breaker.succeed()
    return done


def _telling(
    breaker: Breaker, leave: Pass, hear: Callable[[Chunk], Awaitable[None]]
) -> Callable[[Chunk], Awaitable[None]]:
    """The first word of a call that tries for everyone is good news for everyone."""

    async def tell(chunk: Chunk) -> None:
        if not isinstance(chunk, Heard | Unstreamed):
            breaker.hear(leave)
        await hear(chunk)

    return tell


def _speaks_against(model: str, error: ModelError) -> bool:
    """A model that is not there says nothing against its neighbours at the same endpoint."""
    failure = Failure(model, error.reason, status=error.status)
    return failure.worth_moving and error.status != 404


async def _call(
    line: Line,
    request: Request,
    patience: Patience,
    hear: Callable[[Chunk], Awaitable[None]],
) -> tuple[Done, Endpoint]:
    """The reply, and who gave it."""
    if not line.hedge:
        done = await listen(line.model.stream(request), patience, hear, wire=line.wire)
        return done, line.endpoint
    second = line.second or line
    asked = replace(request, options=dict(line.second.options)) if line.second else request
    runners = (
        Entrant(line.model, request),
        Entrant(second.model, asked, second.endpoint.take_place, second.endpoint.give_back),
    )
    async with hedged(*runners, after=line.hedge) as race:
        done = await listen(race.chunks(), patience, hear, wire=line.wire)
    answered = second.endpoint if race.winner == 1 else line.endpoint
    return _with_what_was_lost(done, race, request), answered


def _with_what_was_lost(done: Done, race: Race, request: Request) -> Done:
    """Whoever lost the race has read the question, and nobody says what that cost: it is guessed."""
    if not race.lost:
        return done
    read = race.lost * ceil(characters(request) / CHARACTERS_A_TOKEN)
    used = done.usage
    cost = used.cost * read / used.total if used.cost and used.total else used.cost
    return replace(done, usage=used + Usage(input=read, estimated=read, cost=cost))
