"""Room for runs: as many are let in as can be carried or may wait, however many come at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.ports import Census
from holdfast.server.problems import too_many

#: Runs that are let in between two looks at how many wait: each look costs more the more wait.
TAKEN_ON_TRUST = 100


class Room:
    """For as many as there are `places` with the workers, and `most` more that wait. `census` tells how
    many there are."""

    def __init__(self, places: int, most: int, census: Callable[[], Awaitable[Census]]) -> None:
        self._room, self._census = places + most, census
        #: How many may be let in before it is looked again.
        self._free = 0
        #: Those that were let in and are not on record yet, so that a look may miss them.
        self._coming = 0
        # asyncio's own, as these cost next to nothing where nobody wants them.
        self._arrived = asyncio.Event()
        self._looking = asyncio.Lock()

    @asynccontextmanager
    async def for_one(self) -> AsyncGenerator[None, None]:
        """Whoever is let in goes on record or is refused within this. Raises Problem if it is full."""
        if not self._free:
            async with self._looking:
                await self._look()
        self._free -= 1
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
            self._arrived.set()
            self._arrived = asyncio.Event()

    async def _look(self) -> None:
        """Until there is room. Nobody is let in meanwhile, so nobody comes who is not counted."""
        while not self._free:
            coming, arrived = self._coming, self._arrived
            census = await self._census()
            # What is to end has its place until it has; what is about to be carried waits for an
            # instant, and for a place that is there.
            carried = census.held + census.stopping
            free = self._room - carried - census.queued
            if free <= 0:
                text = f"{carried} runs are carried and {census.queued} wait for their turn already"
                raise too_many(text, retry_after=1)
            # Some of those who come may be counted as waiting already: that will be seen.
            self._free = max(0, min(free - coming, TAKEN_ON_TRUST))
            if not self._free:
                await arrived.wait()
