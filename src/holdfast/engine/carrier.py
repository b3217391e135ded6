"""Sessions carried elsewhere, and taken in from there: see `core.luggage`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

import anyio.to_thread

from holdfast.core.events import Recorded, RunAccepted
from holdfast.core.luggage import Carried, Luggage, pack, unpack, write_page
from holdfast.core.refs import needs, refs
from holdfast.core.session import RunAdded
from holdfast.engine.means import Means
from holdfast.errors import NotFound
from holdfast.ports import Store


class Carrier:
    """`workers` tells whether anyone lives who carries runs. `hidden` are secrets that stay here."""

    def __init__(
        self, means: Means, *, workers: Callable[[], bool], hidden: Sequence[str] = ()
    ) -> None:
        self._means, self._store = means, means.store
        self._workers, self._hidden = workers, hidden

    async def export(self, session_id: str) -> bytes:
        """One document of JSON. Raises NotFound; a session that was deleted is not found either."""
        luggage = await self._gather(session_id)
        return await anyio.to_thread.run_sync(partial(pack, luggage, secrets=self._hidden))

    async def export_page(self, session_id: str) -> str:
        """The transcript as a page of Markdown. Raises NotFound."""
        luggage = await self._gather(session_id)
        write = partial(
            write_page,
            luggage,
            leased=await self._store.held([run.run_id for run in luggage.runs]),
            workers=self._workers(),
            now=self._means.clock(),
            secrets=self._hidden,
        )
        return await anyio.to_thread.run_sync(write)

    async def _gather(self, session_id: str) -> Luggage:
        entry = await self._store.session(session_id)
        if entry.state.deleted_at is not None:
            raise NotFound("session", session_id)
        notes = await self._store.notes(session_id)
        # Those it told of by then: what is added meanwhile is for another time.
        added = [noted.event.run_id for noted in notes if isinstance(noted.event, RunAdded)]
        return Luggage(session_id, notes, [await _carried(self._store, id) for id in added])

    async def take_in(self, body: bytes, *, as_new: bool = False) -> Luggage:
        """Keep what is in the document, all of it or nothing, and say what it was.

        Raises InvalidRequest if it is no session that could be, and Conflict if the session or a run
        of it is here, unless it is taken in `as_new`, under other ids.
        """
        new_id = self._means.new_id if as_new else None
        check = partial(unpack, body, at=self._means.clock(), new_id=new_id)
        luggage = await anyio.to_thread.run_sync(check)
        if self._means.rulebook and not await self._is_here(luggage.session_id):
            # What was allowed here was not allowed to whoever wrote this.
            await self._means.rulebook.forget(luggage.session_id)
        await self._store.take_in(luggage.session_id, luggage.notes, luggage.runs)
        return luggage

    async def _is_here(self, session_id: str) -> bool:
        """Then nothing is taken in, and nothing of what was allowed in it is forgotten."""
        try:
            await self._store.session(session_id)
        except NotFound:
            return False
        return True


async def _carried(store: Store, run_id: str) -> Carried:
    journal = await store.read(run_id, deleted=True)
    blobs: dict[str, bytes] = {}
    for history in _histories(journal):
        blobs |= {sha256(body).hexdigest(): body for body in await store.chain(history)}
    named = [ref.sha256 for one in journal for ref in refs(one.event)]
    shown = [name for body in blobs.values() for name in needs(body)]
    for name in {*named, *shown} - blobs.keys():
        blobs[name] = await store.blob(name)
    return Carried(run_id, journal, dict(sorted(blobs.items())))


def _histories(journal: Sequence[Recorded]) -> Sequence[str]:
    first = journal[0].event
    return [ref.sha256 for ref in first.history] if isinstance(first, RunAccepted) else []
