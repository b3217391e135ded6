"""Writing one run's journal, and keeping the state it adds up to.

All that a worker records about a run goes through its scribe, one commit at a time. Gathered
text is written before anything else, in the same commit. Secrets are masked here, so that none is
in what others read or in the state. A commit that has begun is
not abandoned because its caller was cancelled; only a store that does not answer at all is
given up on, and then the run is dropped, since nobody knows what was written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce
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
    try:
        with anyio.fail_after(STORE_LIMIT):
            return await call
    except TimeoutError as error:
        raise StoreUnavailable(f"the store did not answer for {STORE_LIMIT:g} s") from error


def _at_once() -> float:
    return 0.0


class Scribe:
    """`limit` is how long a commit may take, in seconds; less when there is less time."""

    def __init__(
        self, store: Store, lease: Lease, state: RunState, secrets: Secrets = NO_SECRETS
    ) -> None:
        self._store, self._secrets = store, secrets
        self.lease = lease
        self.state = state
        self.limit = STORE_LIMIT
        #: Set, and replaced, whenever the state has moved on.
        self.news = anyio.Event()
        self._wishes = 0
        #: Seconds that what is said may gather between two commits. More where many share the store.
        self.pace: Callable[[], float] = _at_once
        self._one = anyio.Lock(fast_acquire=True)
        self._gathered = Coalescer(secrets)
        self._spoken = anyio.Event()
        self._room = anyio.Event()

    @classmethod
    async def open(cls, store: Store, lease: Lease, secrets: Secrets = NO_SECRETS) -> Self:
        return cls(store, lease, replay(await answered(store.read(lease.run_id))), secrets)

    async def record(self, *events: Event, blobs: Mapping[str, bytes] = {}) -> None:
        """Write these, after all that was said before. Raises what the store raises.

        A final event that would pass over an unseen wish is not written; the wish is in
        the state then, for a new plan.
        """
        wishes = self._wishes
        events = tuple(map(self._secrets.mask_event, events))
        with anyio.move_on_after(self.limit, shield=True) as limit:
            async with self._one:
                said = self._gathered.take()
                if any(isinstance(event, FINAL) for event in events):
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

    async def say(self, make: Maker, text: str) -> str:
        """Have this text written soon. Waits only when a great deal is waiting already.

        Returns what is written of it: what may be the beginning of a secret is held back until
        more is said, or `end`.
        """
        shown = self._gathered.add(make, text)
        self._spoken.set()
        while self._gathered.full:
            await self._room.wait()
        return shown

    def end(self, make: Maker, *, cut: bool = False) -> str:
        """No more of this will be said: returns what was held back, which is written soon.

        `cut`: more was to be said, so what is held back may be most of a secret and is masked.
        """
        shown = self._gathered.end(make, cut=cut)
        self._spoken.set()
        return shown

    async def keep_writing(self) -> None:
        """Write what is said as it is said, for as long as somebody keeps this task."""
        while True:
            await self._spoken.wait()
            self._spoken = anyio.Event()
            if self._gathered:
                await self.record()
            self._room.set()
            self._room = anyio.Event()
            if pause := self.pace():
                await anyio.sleep(pause)

    async def catch_up(self) -> None:
        """Learn what others have recorded since."""
        async with self._one:
            read = self._store.read(self.lease.run_id, after=self.state.seq)
            self._take(await answered(read))

    async def _append(self, events: Sequence[Event], blobs: Mapping[str, bytes]) -> None:
        # A bad event is refused before it is written, not after.
        reduce(_suppose, events, self.state)
        try:
            news = await self._store.append(self.lease, *events, seen=self.state.seq, blobs=blobs)
        except WishPending:
            news = await self._store.read(self.lease.run_id, after=self.state.seq)
        self._take(news)

    def _take(self, news: Sequence[Recorded]) -> None:
        self.state = reduce(fold, news, self.state)
        self._wishes += sum(isinstance(recorded.event, WISHES) for recorded in news)
        if news:
            self.news.set()
            self.news = anyio.Event()


def _suppose(state: RunState, event: Event) -> RunState:
    return fold(state, Recorded(state.seq + 1, state.at, event, b""))
