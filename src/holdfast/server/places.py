"""What no run's own journal tells: its place in the queue, and which run of its session is ahead.

It is looked once for all that are told of together: each look costs more the more of them wait.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core.run import replay
from holdfast.core.state import RunState
from holdfast.errors import IllegalEvent, JournalDamaged
from holdfast.ports import Store
from holdfast.server.status import Status, damaged, status, waits_behind


class Places:
    """As they are when they are first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: dict[str, int] | None = None
        self._fronts: dict[str, Status | None] = {}

    async def tell(self, told: Status, state: RunState) -> Status:
        """With its place if it waits for a worker, or with the run ahead of it in its session."""
        if told.waiting_for is UNSET or told.waiting_for.waiting_for != "worker":
            return told
        if self._places is None:
            self._places = {id: place for place, id in enumerate(await self._store.queue(), 1)}
        if place := self._places.get(told.run_id):
            return replace(told, place=place)
        if not state.accepted or not state.accepted.session_id or state.epoch:
            return told
        front = await self._front(state.accepted.session_id)
        if front is None or front.run_id == told.run_id:
            return told
        return waits_behind(told, state, front)

    async def _front(self, session_id: str) -> Status | None:
        if session_id not in self._fronts:
            self._fronts[session_id] = await self._look(session_id)
        return self._fronts[session_id]

    async def _look(self, session_id: str) -> Status | None:
        front = (await self._store.session(session_id)).run
        if front is None:
            return None
        try:
            journal = await self._store.read(front.run_id, deleted=True)
            return status(front.run_id, replay(journal), created_at=front.first.at)
        except (JournalDamaged, IllegalEvent) as error:
            return damaged(front, error)
