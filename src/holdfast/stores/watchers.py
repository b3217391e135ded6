"""Hints that something has changed, for whoever listens.

A watcher that is slow gets each run's id once, however often it changed: what gathers is bounded by
the runs there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field

import anyio

from holdfast.errors import StoreError


@dataclass
class Feed:
    """Those who follow a journal, and what wakes them."""

    # Made anew with every commit, which an event of the loop's own takes a tenth of the time for.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    followers: int = 0

    def ring(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


@dataclass
class _Watcher:
    ids: dict[str, None] = field(default_factory=dict)
    bell: anyio.Event = field(default_factory=anyio.Event)


class Watchers:
    def __init__(self) -> None:
        self._watchers: list[_Watcher] = []
        self._closed: StoreError | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    def announce(self, ids: Iterable[str]) -> None:
        """Tell everyone who listens that these runs have changed."""
        changed = dict.fromkeys(ids)
        for watcher in self._watchers if changed else ():
            watcher.ids |= changed
            watcher.bell.set()

    def close(self, reason: StoreError) -> None:
        """Nothing more will change: whoever listens is told why, and so is whoever comes."""
        self._closed = self._closed or reason
        for watcher in self._watchers:
            watcher.bell.set()

    async def changes(self) -> AsyncGenerator[str, None]:
        """Ids of runs as they change, from now on. Raises what it was closed with."""
        watcher = _Watcher()
        self._watchers.append(watcher)
        try:
            while True:
                if self._closed:
                    raise self._closed
                await watcher.bell.wait()
                watcher.bell = anyio.Event()
                ids, watcher.ids = watcher.ids, {}
                for run_id in ids:
                    yield run_id
        finally:
            self._watchers.remove(watcher)
