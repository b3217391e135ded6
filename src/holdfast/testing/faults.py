"""A process's line to its store, and all that can go wrong with it.

    line = FaultyStore(store)
    line.delay = 0.5        every call takes that long
    line.full = True        writes are refused for want of space
    line.cut = True         nothing gets through, and nobody says so
    line.down = True        nothing gets through, and every call says so
    line.crash_after(3)     the process is gone after its third write from now
    line.die()              the process is gone

Wrap one store several times and each wrapper is a process of its own. A dead line raises Crash
from every call: what the process would have done next never reaches anyone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

import anyio

from holdfast.core.codec import Link
from holdfast.core.events import Event, Recorded, RunAccepted, StopRequested, Wish
from holdfast.core.lease import Lease
from holdfast.core.luggage import Carried
from holdfast.core.messages import ToolSpec
from holdfast.core.session import Noted, SessionEvent
from holdfast.errors import StoreFull, StoreUnavailable
from holdfast.ports import (
    Census,
    Entry,
    Member,
    Once,
    Review,
    SessionEntry,
    Store,
    Tool,
    ToolUse,
)

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone. Not an Exception, so that nothing may tidy up after it."""


class FaultyStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.delay = 0.0
        self.full = False
        self.down = False
        self.dead = False
        self._cut = anyio.Event()
        self._cut.set()
        self._writes: int | None = None
        #: Called once, when the process dies.
        self.on_death: Callable[[], None] = lambda: None

    @property
    def cut(self) -> bool:
        return not self._cut.is_set()

    @cut.setter
    def cut(self, cut: bool) -> None:
        if cut and not self.cut:
            self._cut = anyio.Event()
        elif not cut:
            self._cut.set()

    def crash_after(self, writes: int) -> None:
        """Die as soon as this many more writes are on record; 0: before the next one is."""
        self._writes = writes

    def die(self) -> None:
        if not self.dead:
            self.dead = True
            self._cut.set()
            self.on_death()

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
        return await self._write(
            lambda: self._store.accept(
                run_id,
                first,
                blobs=blobs,
                history=history,
                once=once,
                alone=alone,
                stop=stop,
            )
        )

    async def accepted(self, once: Once) -> str | None:
        return await self._call(lambda: self._store.accepted(once))

    async def list(
        self, *, session: str = "", live: bool | None = None, before: str = "", limit: int = 20
    ) -> Sequence[Entry]:
        return await self._call(
            lambda: self._store.list(session=session, live=live, before=before, limit=limit)
        )

    async def queue(self) -> Sequence[str]:
        return await self._call(self._store.queue)

    async def census(self) -> Census:
        return await self._call(self._store.census)

    async def append(
        self, lease: Lease, *events: Event, seen: int, blobs: Mapping[str, bytes] = {}
    ) -> Sequence[Recorded]:
        return await self._write(lambda: self._store.append(lease, *events, seen=seen, blobs=blobs))

    async def wish(self, run_id: str, wish: Wish, **how: Any) -> Sequence[Recorded]:
        return await self._write(lambda: self._store.wish(run_id, wish, **how))

    async def delete(self, run_id: str, *, by: str = "") -> None:
        await self._write(lambda: self._store.delete(run_id, by=by))

    async def read(
        self, run_id: str, *, after: int = 0, deleted: bool = False, most: float = inf
    ) -> Sequence[Recorded]:
        return await self._call(
            lambda: self._store.read(run_id, after=after, deleted=deleted, most=most)
        )

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        async for recorded in self._store.follow(run_id, after=after):
            await self._pass()
            yield recorded

    async def changes(self) -> AsyncGenerator[str, None]:
        async for run_id in self._store.changes():
            await self._pass()
            yield run_id

    async def note(self, session_id: str, *events: SessionEvent) -> Sequence[Noted]:
        return await self._write(lambda: self._store.note(session_id, *events))

    async def notes(self, session_id: str, *, after: int = 0) -> Sequence[Noted]:
        return await self._call(lambda: self._store.notes(session_id, after=after))

    async def session(self, session_id: str) -> SessionEntry:
        return await self._call(lambda: self._store.session(session_id))

    async def sessions(self, **wanted: Any) -> Sequence[SessionEntry]:
        return await self._call(lambda: self._store.sessions(**wanted))

    async def members(
        self, session_id: str, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Member]:
        return await self._call(lambda: self._store.members(session_id, before=before, limit=limit))

    async def stirs(self, session_id: str) -> AsyncGenerator[None, None]:
        async for _ in self._store.stirs(session_id):
            await self._pass()
            yield

    async def session_changes(self) -> AsyncGenerator[str, None]:
        async for session_id in self._store.session_changes():
            await self._pass()
            yield session_id

    async def take_in(
        self, session_id: str, notes: Sequence[Noted], runs: Sequence[Carried]
    ) -> None:
        await self._write(lambda: self._store.take_in(session_id, notes, runs))

    async def purge(self, *, before: float) -> Sequence[str]:
        return await self._write(lambda: self._store.purge(before=before))

    async def held(self, run_ids: Collection[str]) -> frozenset[str]:
        return await self._call(lambda: self._store.held(run_ids))

    async def claim(self, worker: str, *, ttl: float, limit: int = 1) -> Sequence[Lease]:
        return await self._call(lambda: self._store.claim(worker, ttl=ttl, limit=limit))

    async def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        return await self._call(lambda: self._store.seize(run_id, worker, ttl=ttl))

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, int]:
        return await self._call(lambda: self._store.renew(leases, ttl=ttl))

    async def release(self, lease: Lease, **how: Any) -> None:
        await self._call(lambda: self._store.release(lease, **how))

    async def next_ready(self) -> float | None:
        return await self._call(self._store.next_ready)

    async def orphans(self) -> Sequence[str]:
        return await self._call(self._store.orphans)

    async def blob(self, sha256: str) -> bytes:
        return await self._call(lambda: self._store.blob(sha256))

    async def chain(self, sha256: str) -> Sequence[bytes]:
        return await self._call(lambda: self._store.chain(sha256))

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._pass()
        result = await call()
        self._check()
        return result

    async def _write(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._writes == 0:
            self.die()
        await self._pass()
        if self.full:
            raise StoreFull("there is no space left for the journal")
        result = await call()
        if self._writes is not None:
            self._writes -= 1
            if self._writes == 0:
                self.die()
        self._check()
        return result

    async def _pass(self) -> None:
        self._check()
        if self.delay:
            await anyio.sleep(self.delay)
        if self.cut:
            await self._cut.wait()
        self._check()
        if self.down:
            raise StoreUnavailable("the store refuses to talk")

    def _check(self) -> None:
        if self.dead:
            raise Crash


class MortalTool:
    """A tool that dies with its process: what has not begun by then never does."""

    def __init__(self, tool: Tool, line: FaultyStore) -> None:
        self._tool, self._line = tool, line

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def review(self, arguments: str) -> Review:
        return self._tool.review(arguments)

    async def run(self, use: ToolUse) -> str:
        if self._line.dead:
            raise Crash
        return await self._tool.run(use)
