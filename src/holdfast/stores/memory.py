"""A store in memory: the reference for what a store does, and gone with the process.

Every method does its work in one synchronous stretch, which is its transaction. The
checkpoint before it is where a real store would wait for its disk, and where a caller
may still be cancelled; past it nothing is abandoned.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from itertools import dropwhile
from math import inf
from time import time  # noqa: TID251 - a default; whoever cares gives their own

import anyio
import anyio.lowlevel

from holdfast.core.codec import Link, link_before, record
from holdfast.core.events import (
    FINAL,
    WISHES,
    Event,
    InputAdded,
    Recorded,
    RunAccepted,
    StopRequested,
    Wish,
)
from holdfast.core.lease import Lease
from holdfast.core.luggage import Carried
from holdfast.core.session import Noted, SessionDeleted, SessionEvent, last_wish
from holdfast.errors import (
    Conflict,
    LeaseLost,
    NotFound,
    RunFinished,
    RunStopping,
    SessionBusy,
    WishPending,
)
from holdfast.ports import Census, Entry, ListPlace, Member, Once, SessionEntry
from holdfast.stores.batch import stop_deleted, stopped
from holdfast.stores.memory_runs import Ready, Requests, Run
from holdfast.stores.memory_sessions import MemorySessions, Session
from holdfast.stores.recent import beginning
from holdfast.stores.watchers import Watchers


class MemoryStore:
    """`now` is wall time, for the record. Leases and readiness run on the loop's own clock."""

    def __init__(self, *, now: Callable[[], float] = time) -> None:
        self._now = now
        self._runs: dict[str, Run] = {}
        self._ready: dict[str, Ready] = {}
        self._held: dict[str, Run] = {}
        self._blobs: dict[str, bytes] = {}
        self._requests = Requests(now)
        self._watchers = Watchers()
        self._sessions = MemorySessions(now, self._stir)
        self._session_watchers = Watchers()
        #: Made anew whenever a session, or a run of it, is written to.
        self._stirs: dict[str, anyio.Event] = {}

    # --- journal

    async def accept(
        self,
        run_id: str,
        first: RunAccepted,
        *,
        blobs: Mapping[str, bytes] = {},
        history: Sequence[Link] = (),
        once: Once | None = None,
        alone: bool = False,
        stop: StopRequested | None = None,
    ) -> Recorded:
        await anyio.lowlevel.checkpoint()
        self._requests.refuse_known(once)
        if run_id in self._runs:
            raise Conflict(f"run {run_id} already exists")
        recorded = record(1, self._now(), first)
        front = self._front(first.session_id)
        if first.session_id:
            self._sessions.check_there(first.session_id)
            if front and alone:
                raise SessionBusy(first.session_id, front)
        if front and stop:
            self._wish(front, stop)
        self._requests.remember(once, run_id)
        self._runs[run_id] = Run([recorded], first.session_id, behind=bool(front))
        if first.session_id:
            self._sessions.join(run_id, first)
        self._blobs.update(blobs)
        self._blobs.update({link.name: link.body for link in history})
        if not front:
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
        run = self._find(lease.run_id, deleted=True)
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
            self._promote(run.session)
        return run.log[seen:]

    async def wish(
        self,
        run_id: str,
        wish: Wish,
        *,
        seen: int = 0,
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
    ) -> Sequence[Recorded]:
        await anyio.lowlevel.checkpoint()
        self._requests.refuse_known(once)
        run = self._runs.get(run_id)
        if run is None or run.ended or run.deleted_at is not None:
            self._find(run_id)
            raise RunFinished(run_id)
        if isinstance(wish, InputAdded) and stopped(run.log[seen:]):
            raise RunStopping(run_id)
        self._wish(run_id, wish)
        self._requests.remember(once, run_id)
        self._blobs.update(blobs)
        return run.log[seen:]

    async def delete(self, run_id: str, *, by: str = "") -> None:
        await anyio.lowlevel.checkpoint()
        run = self._find(run_id)
        if not run.ended:
            self._wish(run_id, stop_deleted(by))
        run.deleted_at = self._now()

    async def read(
        self, run_id: str, *, after: int = 0, deleted: bool = False, most: float = inf
    ) -> Sequence[Recorded]:
        await anyio.lowlevel.checkpoint()
        return beginning(self._find(run_id, deleted=deleted).log[after:], most)

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        run = self._find(run_id)
        while self._is_there(run):
            news = run.news
            for recorded in run.log[after:]:
                after = recorded.seq
                yield recorded
            if len(run.log) <= after:
                if run.ended:
                    return
                await news.wait()

    def changes(self) -> AsyncGenerator[str, None]:
        return self._watchers.changes()

    async def accepted(self, once: Once) -> str | None:
        await anyio.lowlevel.checkpoint()
        return self._requests.earlier(once)

    async def list(
        self, *, session: str = "", live: bool | None = None, before: str = "", limit: int = 20
    ) -> Sequence[Entry]:
        await anyio.lowlevel.checkpoint()
        if before:
            self._find(before, deleted=True)
        newest = reversed(self._runs.items())
        rest = dropwhile(lambda item: item[0] != before, newest) if before else newest
        entries = [
            Entry(run_id, run.log[0], run.log[-1])
            for run_id, run in rest
            if run_id != before
            and self._is_there(run)
            and (not session or run.session == session)
            and (live is None or run.ended is not live)
        ]
        return entries[:limit]

    # --- sessions

    async def note(self, session_id: str, *events: SessionEvent) -> Sequence[Noted]:
        await anyio.lowlevel.checkpoint()
        notes = self._sessions.note(session_id, *events)
        for deleted in events:
            if isinstance(deleted, SessionDeleted):
                for run_id in self._sessions[session_id].runs:
                    if not self._runs[run_id].ended:
                        self._wish(run_id, last_wish(deleted))
        return notes

    async def notes(self, session_id: str, *, after: int = 0) -> Sequence[Noted]:
        await anyio.lowlevel.checkpoint()
        return self._sessions.find(session_id).log[after:]

    async def session(self, session_id: str) -> SessionEntry:
        await anyio.lowlevel.checkpoint()
        return self._session_entry(session_id, self._sessions.find(session_id))

    async def sessions(
        self,
        *,
        archived: bool | None = False,
        deleted: bool = False,
        text: str = "",
        before: ListPlace | None = None,
        limit: int = 20,
    ) -> Sequence[SessionEntry]:
        await anyio.lowlevel.checkpoint()
        found = self._sessions.listed(archived=archived, deleted=deleted, text=text, before=before)
        return [self._session_entry(id, self._sessions[id]) for id in found[:limit]]

    async def members(
        self, session_id: str, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Member]:
        await anyio.lowlevel.checkpoint()
        ids = list(enumerate(self._sessions.find(session_id).runs, 1))
        earlier = ids if before is None else ids[: max(before - 1, 0)]
        return [Member(at, id, self._runs[id].ended) for at, id in earlier[::-1][:limit]]

    async def stirs(self, session_id: str) -> AsyncGenerator[None, None]:
        self._sessions.find(session_id)
        while True:
            stir = self._stirs.setdefault(session_id, anyio.Event())
            yield
            await stir.wait()

    def session_changes(self) -> AsyncGenerator[str, None]:
        return self._session_watchers.changes()

    async def take_in(
        self, session_id: str, notes: Sequence[Noted], runs: Sequence[Carried]
    ) -> None:
        await anyio.lowlevel.checkpoint()
        self._sessions.check_new(session_id)
        for run in runs:
            if run.run_id in self._runs:
                raise Conflict(f"run {run.run_id} already exists")
        self._sessions.take_in(session_id, notes, [run.run_id for run in runs])
        for run in runs:
            self._runs[run.run_id] = Run(list(run.journal), session_id)
            self._blobs.update(run.blobs)

    async def purge(self, *, before: float) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        gone = [id for id in self._sessions.deleted_before(before) if not self._front(id)]
        for id in gone:
            for run_id in self._sessions.pop(id).runs:
                del self._runs[run_id]
        lone = [
            id
            for id, run in self._runs.items()
            if run.deleted_at is not None
            and run.deleted_at < before
            and run.ended
            and not run.session
        ]
        for run_id in lone:
            del self._runs[run_id]
        return gone + lone

    async def queue(self) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        now = anyio.current_time()
        return [id for _, id in sorted((r.at, id) for id, r in self._ready.items() if r.at <= now)]

    async def census(self) -> Census:
        ready = sum(not self._runs[id].stopping for id in await self.queue())
        live = [run for run in self._runs.values() if not run.ended]
        behind = sum(run.behind and not run.holder for run in live)
        stopping = sum(run.stopping for run in live)
        held = sum(bool(run.holder) and not run.stopping for run in live)
        return Census(ready + behind, len(live) - ready - behind, held, stopping)

    # --- leases

    async def claim(self, worker: str, *, ttl: float, limit: int = 1) -> Sequence[Lease]:
        await anyio.lowlevel.checkpoint()
        now = anyio.current_time()
        due = sorted((ready.at, id) for id, ready in self._ready.items() if ready.at <= now)
        return [self._grant(run_id, worker, ttl) for _, run_id in due[:limit]]

    async def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        await anyio.lowlevel.checkpoint()
        run = self._find(run_id, deleted=True)
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

    async def held(self, run_ids: Collection[str]) -> frozenset[str]:
        await anyio.lowlevel.checkpoint()
        held, now = self._held, anyio.current_time()
        return frozenset(id for id in run_ids if id in held and held[id].until > now)

    async def release(
        self,
        lease: Lease,
        *,
        seen: int,
        ready_in: float | None,
        timed: bool = False,
        aside: bool = False,
    ) -> None:
        await anyio.lowlevel.checkpoint()
        run = self._runs.get(lease.run_id)
        if run is None or run.epoch != lease.epoch or not run.holder:
            return
        unseen = any(isinstance(recorded.event, WISHES) for recorded in run.log[seen:])
        if unseen and ready_in != 0:
            raise WishPending(lease.run_id)
        self._let_go(lease.run_id)
        run.aside = aside
        if aside:
            self._promote(run.session)
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

    async def chain(self, sha256: str) -> Sequence[bytes]:
        bodies: list[bytes] = []
        while sha256:
            bodies.append(await self.blob(sha256))
            sha256 = link_before(bodies[-1])
        return bodies[::-1]

    # --- in one stretch

    def _find(self, run_id: str, *, deleted: bool = False) -> Run:
        run = self._runs.get(run_id)
        if run is None or not (deleted or self._is_there(run)):
            raise NotFound("run", run_id)
        return run

    def _is_there(self, run: Run) -> bool:
        return run.deleted_at is None and not self._sessions.is_deleted(run.session)

    def _write(self, run: Run, events: Sequence[Event]) -> None:
        at = self._now()
        # Encode all before keeping any: what cannot be stored must leave nothing behind.
        batch = [record(seq, at, event) for seq, event in enumerate(events, len(run.log) + 1)]
        run.log += batch
        run.news.set()
        run.news = anyio.Event()
        if run.session:
            self._stir(run.session)

    def _wish(self, run_id: str, wish: Wish) -> None:
        run, stops = self._runs[run_id], isinstance(wish, StopRequested)
        if not (stops and run.stopping):
            self._write(run, (wish,))
        if stops:
            # What is to be stopped need not wait for its turn to end.
            run.behind, run.stopping = False, True
        if run.holder:
            self._watchers.announce([run_id])
        elif not run.behind:
            self._make_ready(run_id, 0.0)

    # --- sessions, in one stretch

    def _front(self, session_id: str) -> str:
        """The run of the session whose turn it is."""
        session = self._sessions.get(session_id)
        live = (id for id in session.runs if not self._runs[id].ended) if session else ()
        return next((id for id in live if not self._runs[id].aside), "")

    def _promote(self, session_id: str) -> None:
        """Whose turn it is now may begin, if it has not."""
        front = self._front(session_id)
        if front and self._runs[front].behind:
            self._runs[front].behind = False
            self._make_ready(front, 0.0)

    def _stir(self, session_id: str) -> None:
        if stir := self._stirs.pop(session_id, None):
            stir.set()
        self._session_watchers.announce([session_id])

    def _session_entry(self, session_id: str, session: Session) -> SessionEntry:
        front = self._front(session_id)
        telling = front or (session.runs[-1] if session.runs else "")
        log = self._runs[telling].log if telling else []
        return SessionEntry(
            session_id,
            session.state,
            Entry(telling, log[0], log[-1]) if log else None,
            sum(not self._runs[id].ended for id in session.runs),
            busy=bool(front),
        )

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
        self._ready[run_id] = Ready(anyio.current_time() + seconds, timed=timed)
        self._watchers.announce([run_id])
