"""A store in memory: the reference for what a store does, and gone with the process.

Every method does its work in one synchronous stretch, which is its transaction. The
checkpoint before it is where a real store would wait for its disk, and where a caller
may still be cancelled; past it nothing is abandoned.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from time import time  # noqa: TID251 - a default; whoever cares gives their own

import anyio
import anyio.lowlevel

from holdfast.core.codec import record
from holdfast.core.events import FINAL, WISHES, Event, Recorded, RunAccepted, Wish
from holdfast.core.lease import Lease
from holdfast.errors import (
    AlreadyAccepted,
    Conflict,
    KeyReused,
    LeaseLost,
    NotFound,
    RunFinished,
    WishPending,
)
from holdfast.ports import Census, Entry, Once
from holdfast.stores.watchers import Watchers

#: Seconds for which a key stands for the request it came with.
KEPT = 24 * 3600.0


@dataclass
class _Run:
    log: list[Recorded]
    epoch: int = 0
    holder: str = ""
    until: float = 0.0
    news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def ended(self) -> bool:
        return isinstance(self.log[-1].event, FINAL)


@dataclass(frozen=True)
class _Ready:
    at: float
    timed: bool


class MemoryStore:
    """`now` is wall time, for the record. Leases and readiness run on the loop's own clock."""

    def __init__(self, *, now: Callable[[], float] = time) -> None:
        self._now = now
        self._runs: dict[str, _Run] = {}
        self._ready: dict[str, _Ready] = {}
        self._held: dict[str, _Run] = {}
        self._blobs: dict[str, bytes] = {}
        self._once: dict[tuple[str, str], tuple[str, str, float]] = {}
        self._watchers = Watchers()

    # --- journal

    async def accept(
        self,
        run_id: str,
        first: RunAccepted,
        *,
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
    ) -> Recorded:
        await anyio.lowlevel.checkpoint()
        if once and (earlier := self._earlier(once)):
            raise AlreadyAccepted(earlier)
        if run_id in self._runs:
            raise Conflict(f"run {run_id} already exists")
        recorded = record(1, self._now(), first)
        if once:
            self._once[once.principal, once.key] = (once.fingerprint, run_id, self._now())
        self._runs[run_id] = _Run([recorded])
        self._blobs.update(blobs)
        self._make_ready(run_id, 0.0)
        return recorded

    async def append(
        self,
        lease: Lease,
        *events: Event,
        seen: int,
        blobs: Mapping[str, bytes] = {},
    ) -> Sequence[Recorded]:
        await anyio.lowlevel.checkpoint()
        run = self._find(lease.run_id)
        if run.ended:
            raise RunFinished(lease.run_id)
        if run.epoch != lease.epoch or not run.holder:
            raise LeaseLost(lease.run_id)
        final = any(isinstance(event, FINAL) for event in events)
        if final and len(run.log) > seen:
            raise WishPending(lease.run_id)
        self._write(run, events)
        self._blobs.update(blobs)
        if final:
            self._let_go(lease.run_id)
        return run.log[seen:]

    async def wish(self, run_id: str, wish: Wish, *, seen: int = 0) -> Sequence[Recorded]:
        await anyio.lowlevel.checkpoint()
        run = self._find(run_id)
        if run.ended:
            raise RunFinished(run_id)
        self._write(run, (wish,))
        if run.holder:
            self._watchers.announce([run_id])
        else:
            self._make_ready(run_id, 0.0)
        return run.log[seen:]

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Recorded]:
        await anyio.lowlevel.checkpoint()
        return self._find(run_id).log[after:]

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        run = self._find(run_id)
        while True:
            news = run.news
            for recorded in run.log[after:]:
                after = recorded.seq
                yield recorded
            if len(run.log) > after:
                continue
            if run.ended:
                return
            await news.wait()

    def changes(self) -> AsyncGenerator[str, None]:
        return self._watchers.changes()

    async def accepted(self, once: Once) -> str | None:
        await anyio.lowlevel.checkpoint()
        return self._earlier(once)

    async def list(
        self, *, session: str = "", live: bool | None = None, before: str = "", limit: int = 20
    ) -> Sequence[Entry]:
        await anyio.lowlevel.checkpoint()
        if before:
            self._find(before)
        newest = reversed(self._runs.items())
        rest = dropwhile(lambda item: item[0] != before, newest) if before else newest
        entries = [
            Entry(run_id, run.log[0], run.log[-1])
            for run_id, run in rest
            if run_id != before
            and (not session or _session(run) == session)
            and (live is None or run.ended is not live)
        ]
        return entries[:limit]

    async def queue(self) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        now = anyio.current_time()
        return [id for _, id in sorted((r.at, id) for id, r in self._ready.items() if r.at <= now)]

    async def census(self) -> Census:
        queued = len(await self.queue())
        live = sum(not run.ended for run in self._runs.values())
        return Census(queued, live - queued)

    # --- leases

    async def claim(self, worker: str, *, ttl: float, limit: int = 1) -> Sequence[Lease]:
        await anyio.lowlevel.checkpoint()
        now = anyio.current_time()
        due = sorted((ready.at, id) for id, ready in self._ready.items() if ready.at <= now)
        return [self._grant(run_id, worker, ttl) for _, run_id in due[:limit]]

    async def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        await anyio.lowlevel.checkpoint()
        run = self._find(run_id)
        if run.ended or (run.holder and run.until > anyio.current_time()):
            return None
        return self._grant(run_id, worker, ttl)

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, int]:
        await anyio.lowlevel.checkpoint()
        held = {}
        for lease in leases:
            run = self._runs.get(lease.run_id)
            if run and run.holder and run.epoch == lease.epoch:
                run.until = anyio.current_time() + ttl
                held[lease.run_id] = len(run.log)
        return held

    async def release(
        self, lease: Lease, *, seen: int, ready_in: float | None, timed: bool = False
    ) -> None:
        await anyio.lowlevel.checkpoint()
        run = self._runs.get(lease.run_id)
        if run is None or run.epoch != lease.epoch or not run.holder:
            return
        unseen = any(isinstance(recorded.event, WISHES) for recorded in run.log[seen:])
        if unseen and ready_in != 0:
            raise WishPending(lease.run_id)
        self._let_go(lease.run_id)
        if ready_in is not None:
            self._make_ready(lease.run_id, ready_in, timed=timed)

    async def next_ready(self) -> float | None:
        await anyio.lowlevel.checkpoint()
        now = anyio.current_time()
        return min((max(ready.at - now, 0.0) for ready in self._ready.values()), default=None)

    async def orphans(self) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        now = anyio.current_time()
        return [id for id, run in self._held.items() if run.until <= now]

    # --- blobs

    async def blob(self, sha256: str) -> bytes:
        await anyio.lowlevel.checkpoint()
        try:
            return self._blobs[sha256]
        except KeyError:
            raise NotFound("blob", sha256) from None

    # --- in one stretch

    def _earlier(self, once: Once) -> str | None:
        found = self._once.get((once.principal, once.key))
        if found is None or found[2] < self._now() - KEPT:
            return None
        if found[0] != once.fingerprint:
            raise KeyReused(once.key)
        return found[1]

    def _find(self, run_id: str) -> _Run:
        try:
            return self._runs[run_id]
        except KeyError:
            raise NotFound("run", run_id) from None

    def _write(self, run: _Run, events: Sequence[Event]) -> None:
        at = self._now()
        # Encode all before keeping any: what cannot be stored must leave nothing behind.
        batch = [record(seq, at, event) for seq, event in enumerate(events, len(run.log) + 1)]
        run.log += batch
        run.news.set()
        run.news = anyio.Event()

    def _grant(self, run_id: str, worker: str, ttl: float) -> Lease:
        run = self._runs[run_id]
        run.epoch += 1
        now = anyio.current_time()
        run.holder, run.until = worker, now + ttl
        ready = self._ready.pop(run_id, None)
        self._held[run_id] = run
        due = ready is not None and ready.timed and ready.at <= now
        return Lease(run_id, worker, run.epoch, due=due)

    def _let_go(self, run_id: str) -> None:
        self._held.pop(run_id).holder = ""

    def _make_ready(self, run_id: str, seconds: float, *, timed: bool = False) -> None:
        self._ready[run_id] = _Ready(anyio.current_time() + seconds, timed=timed)
        self._watchers.announce([run_id])


def _session(run: _Run) -> str:
    first = run.log[0].event
    return first.session_id if isinstance(first, RunAccepted) else ""
