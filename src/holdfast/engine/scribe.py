"""Writing one run's journal, and keeping the state it adds up to.

All that a worker records about a run goes through its scribe, one commit at a time. Gathered
text is written before anything else, in the same commit. Secrets are masked here, so that none is
in what others read or in the state. A commit that has begun is
not abandoned because its caller was cancelled; only a store that does not answer at all is
given up on, and then the run is dropped, since nobody knows what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce
from math import inf
from typing import Literal, Self, TypeVar

import anyio

from holdfast.core.events import FINAL, WISHES, Event, Recorded, RunQueued
from holdfast.core.lease import Lease
from holdfast.core.run import fold, replay
from holdfast.core.secrets import NO_SECRETS, Secrets
from holdfast.core.state import RunState
from holdfast.engine.coalesce import Coalescer, Maker
from holdfast.errors import StoreUnavailable, WishPending
from holdfast.ports import Store

T = TypeVar("T")

#: Seconds a commit may take before the store counts as gone.
STORE_LIMIT = 30.0


async def answered(call: Awaitable[T]) -> T:
    """What the store answers, if it does so in time. Raises StoreUnavailable if it does not."""
    with anyio.move_on_after(STORE_LIMIT):
        return await call
    raise StoreUnavailable(f"the store did not answer for {STORE_LIMIT:g} s")


def _at_once() -> float:
    return 0.0


def nobody() -> None:
    """What is said is written with the next event."""


class Scribe:
    """`limit` is how long a commit may take, in seconds; less when there is less time."""

    def __init__(
        self, store: Store, lease: Lease, state: RunState, secrets: Secrets = NO_SECRETS
    ) -> None:
        self._store, self._secrets = store, secrets
        self.lease = lease
        self.state = state
        self.limit = STORE_LIMIT
        self._news: asyncio.Event | None = None
        self._wishes = 0
        #: Seconds that what is said may gather between two commits. More where many share the store.
        self.pace: Callable[[], float] = _at_once
        self._due = -inf
        #: Has `keep_writing` begin. Called when there is something to write that nobody waits for.
        self.begin: Callable[[], object] = nobody
        self._kept = False
        # asyncio's own, as these cost next to nothing where nobody wants them.
        self._one = asyncio.Lock()
        self._gathered = Coalescer(secrets)
        self._spoken = asyncio.Event()
        self._room = asyncio.Event()

    @classmethod
    async def open(cls, store: Store, lease: Lease, secrets: Secrets = NO_SECRETS) -> Self:
        journal = await answered(store.read(lease.run_id, deleted=True))
        return cls(store, lease, replay(journal), secrets)

    @property
    def news(self) -> asyncio.Event:
        """Set as soon as the state has moved on from where it is now."""
        self._news = self._news or asyncio.Event()
        return self._news

    async def record(
        self, *events: Event, end: Event | None = None, blobs: Mapping[str, bytes] = {}
    ) -> None:
        """Write these, after all that was said before. Raises what the store raises.

        A final event that would pass over an unseen wish is not written; the wish is in
        the state then, for a new plan. `end` is one that the others do not depend on.
        """
        wishes = self._wishes
        events = tuple(map(self._secrets.mask_event, events))
        with anyio.move_on_after(self.limit, shield=True) as limit:
            async with self._one:
                said = self._gathered.take()
                if end is not None:
                    if self._wishes == wishes and await self._append((*said, *events, end), blobs):
                        return
                elif any(isinstance(event, FINAL) for event in events):
                    if said:
                        await self._append(said, {})
                        said = ()
                    if self._wishes != wishes:
                        return
                await self._append((*said, *events), blobs)
        if limit.cancelled_caught:
            raise StoreUnavailable(f"the store took nothing for {self.limit:g} s")

    async def give_back(
        self, why: Literal["drained", "rescued", "tripped"], *, worker: str, detail: str = ""
    ) -> None:
        """Put the run back in the queue, unless it has ended or is not ours to understand."""
        if self.state.status.live and not self.state.unknown:
            await self.record(RunQueued(why=why, worker=worker, detail=detail))

    async def dictate(self, make: Maker, text: str) -> str:
        """Write this text at once, or soon if something was written a moment ago.

        Returns what is written of it: what may be the beginning of a secret is held back until
        more is said, or `end`.
        """
        shown = self.gather(make, text)
        if not self._gathered:
            return shown
        now = anyio.current_time()
        if now < self._due:
            await self._leave()
        else:
            self._due = now + self.pace()
            await self.record()
        return shown

    def gather(self, make: Maker, text: str) -> str:
        """Have this text written with what is recorded next. Returns as `dictate`."""
        return self._gathered.add(make, text)

    async def say(self, make: Maker, text: str) -> str:
        """Have this text written soon, for one who has other things to do. Returns as `dictate`."""
        shown = self.gather(make, text)
        await self._leave()
        return shown

    async def _leave(self) -> None:
        """Leave what gathered to who keeps writing. Waits only when a great deal is waiting already."""
        self._spoken.set()
        if not self._kept:
            self._kept = True
            self.begin()
        while self._gathered.full:
            await self._room.wait()

    def end(self, make: Maker, *, cut: bool = False) -> str:
        """No more of this will be said: returns what was held back, which is written soon.

        `cut`: more was to be said, so what is held back may be most of a secret and is masked.
        """
        shown = self._gathered.end(make, cut=cut)
        self._spoken.set()
        return shown

    async def keep_writing(self) -> None:
        """Write what is said as it is said, for as long as somebody keeps this task."""
        try:
            while True:
                await self._spoken.wait()
                await anyio.sleep_until(self._due)
                self._spoken = asyncio.Event()
                if self._gathered:
                    self._due = anyio.current_time() + self.pace()
                    await self.record()
                self._room.set()
                self._room = asyncio.Event()
        finally:
            self._kept = False

    async def catch_up(self) -> None:
        """Learn what others have recorded since."""
        async with self._one:
            read = self._store.read(self.lease.run_id, after=self.state.seq, deleted=True)
            self._take(await answered(read))

    async def _append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> bool:
        """False if nothing was written, because a wish stands before what would be the end."""
        # A bad event is refused before it is written, not after.
        reduce(_suppose, events, self.state)
        try:
            news = await self._store.append(self.lease, *events, seen=self.state.seq, blobs=blobs)
        except WishPending:
            news = await self._store.read(self.lease.run_id, after=self.state.seq, deleted=True)
            self._take(news)
            return False
        self._take(news)
        return True

    def _take(self, news: Sequence[Recorded]) -> None:
        self.state = reduce(fold, news, self.state)
        self._wishes += sum(isinstance(recorded.event, WISHES) for recorded in news)
        if news and self._news:
            self._news.set()
            self._news = None


def _suppose(state: RunState, event: Event) -> RunState:
    return fold(state, Recorded(state.seq + 1, state.at, event, b""))
