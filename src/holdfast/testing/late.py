"""A store whose writes become visible late, as a replica that lags or a disk that is far away.

    late = LateStore(store)
    late.hold("run_1", 3)       readers see its first three events
    late.hold("run_2", 0)       readers do not see it at all
    late.hold("ses_1", 2)       the same for the journal of a session
    late.show("run_1")          the rest has arrived

What is written goes through at once; it is readers who have to wait.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from math import inf
from typing import Any

import anyio

from holdfast.core.events import FINAL, Recorded
from holdfast.core.session import Noted, RunAdded, replay_session
from holdfast.errors import NotFound
from holdfast.ports import Entry, Member, SessionEntry, Store
from holdfast.stores.recent import beginning


class LateStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, int] = {}
        self._news = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold(self, id: str, seq: int) -> None:
        """Of this run or session, nothing past `seq` is to be seen."""
        self._held[id] = seq

    def show(self, id: str) -> None:
        """All of it is to be seen."""
        del self._held[id]
        self._news.set()
        self._news = anyio.Event()

    async def read(
        self, run_id: str, *, after: int = 0, deleted: bool = False, most: float = inf
    ) -> Sequence[Recorded]:
        whole = await self._store.read(run_id, deleted=deleted)
        visible = whole[: self._held.get(run_id, len(whole))]
        if not visible:
            raise NotFound("run", run_id)
        return beginning(visible[after:], most)

    async def notes(self, session_id: str, *, after: int = 0) -> Sequence[Noted]:
        whole = await self._store.notes(session_id)
        visible = whole[: self._held.get(session_id, len(whole))]
        if not visible:
            raise NotFound("session", session_id)
        return visible[after:]

    async def session(self, session_id: str) -> SessionEntry:
        state = replay_session(await self.notes(session_id))
        members = await self.members(session_id, limit=state.runs)
        live = [member for member in reversed(members) if not member.ended]
        telling = next((m for m in (*live, *members)), None)
        run = await self._entry(telling.run_id) if telling else None
        return SessionEntry(session_id, state, run, len(live), busy=bool(live))

    async def members(
        self, session_id: str, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Member]:
        events = [noted.event for noted in await self.notes(session_id)]
        added = [event for event in events if isinstance(event, RunAdded)]
        earlier = [one for one in reversed(added) if before is None or one.ordinal < before]
        return [
            Member(one.ordinal, one.run_id, await self._ended(one.run_id))
            for one in earlier[:limit]
        ]

    async def stirs(self, session_id: str) -> AsyncGenerator[None, None]:
        """What arrives is news as much as what is written."""
        await self.notes(session_id)
        while True:
            news = self._news
            yield
            with anyio.move_on_after(1.0):
                await news.wait()

    async def _ended(self, run_id: str) -> bool:
        entry = await self._entry(run_id)
        return entry is not None and isinstance(entry.last.event, FINAL)

    async def _entry(self, run_id: str) -> Entry | None:
        try:
            journal = await self.read(run_id, deleted=True)
        except NotFound:
            return None
        return Entry(run_id, journal[0], journal[-1])
