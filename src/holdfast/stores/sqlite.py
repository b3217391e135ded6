"""A store in one SQLite file, for a single machine.

What is committed is synced before anyone hears of it. All writes go through one thread, which
commits for everyone who waits; readers have connections of their own. What was committed lately is
read from memory, and the rest from the file. So are followers fed, a page at a time: each is a place
in the journal, and costs no more than that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from secrets import token_hex
from time import monotonic, time  # noqa: TID251 - a default; whoever cares gives their own
from typing import Any

import anyio
import anyio.to_thread
import apsw

from holdfast.core.codec import Link
from holdfast.core.events import FINAL, Event, Recorded, RunAccepted, StopRequested, Wish
from holdfast.core.lease import Lease
from holdfast.core.luggage import Carried
from holdfast.core.session import Noted, SessionEvent
from holdfast.errors import NotFound, StoreError, StoreFull, StoreUnavailable
from holdfast.ports import Census, Entry, ListPlace, Member, Once, SessionEntry
from holdfast.stores.batch import Stir, pack_events, stop_deleted
from holdfast.stores.database import grant, open_reader, open_writer
from holdfast.stores.keeping import look_up, look_up_chain
from holdfast.stores.ledger import Ledger
from holdfast.stores.reading import entries_of, find, find_once, read, read_page
from holdfast.stores.recent import MOST, Recent
from holdfast.stores.reserve import Reserve
from holdfast.stores.sessions import members_of, read_notes, session_entries, session_entry
from holdfast.stores.watchers import Feed, Watchers
from holdfast.stores.writer import CHECKPOINT, Writer

#: Events that a follower has in its hands at a time, and bytes of them but for the last.
PAGE = 512
PAGE_BYTES = 256 * 1024

#: Connections that read at the same time.
READERS = 4


class SqliteStore:
    """Open it with `open_sqlite`."""

    def __init__(
        self, path: Path, *, now: Callable[[], float], vfs: str | None, checkpoint: int, recent: int
    ) -> None:
        self._path, self._now, self._vfs = path, now, vfs
        reserve = Reserve(path.with_name(f"{path.name}.reserve"))
        self._writer = Writer(self._open, reserve, self._publish, self._lose, checkpoint=checkpoint)
        #: Why nothing more will come of it, once that is so.
        self._lost: StoreError | None = None
        self._closed = False
        self._recent: Recent[Recorded] = Recent(most=recent)
        self._recent_notes: Recent[Noted] = Recent(most=recent)
        self._feeds: dict[str, Feed] = {}
        self._watchers = Watchers()
        #: Those who follow sessions, and those who want to know of any.
        self._stirs: dict[str, Feed] = {}
        self._session_watchers = Watchers()
        self._idle: list[apsw.Connection] = []
        self._reading = anyio.CapacityLimiter(READERS)

    def _open(self) -> tuple[apsw.Connection, Ledger]:
        try:
            connection = open_writer(self._path, vfs=self._vfs)
        except (apsw.Error, OSError) as error:
            raise StoreError(f"{self._path} cannot be opened: {error}") from error
        try:
            ledger = Ledger(connection, now=self._now, clock=monotonic)
            # From here on every key in a row is one that the ledger has from this very file.
            grant(connection, {"foreign_keys": 0}, self._path)
            return connection, ledger
        except (apsw.Error, UnicodeDecodeError) as error:
            connection.close()
            raise StoreError(f"{self._path} is damaged: {error}") from error

    @property
    def broken(self) -> StoreError | None:
        """Why nothing is acknowledged any more, once that is so."""
        return self._writer.broken

    @property
    def full(self) -> bool:
        """There is no space now: nothing new begins, and what is under way may end."""
        return self._writer.full

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
        given = pack_events((first,), blobs, history)
        last = pack_events((stop,)) if stop else None
        recorded: Recorded = await self._writer.ask(Ledger.accept, run_id, given, once, alone, last)
        return recorded

    async def accepted(self, once: Once) -> str | None:
        run_id: str | None = await self._read(lambda db: find_once(db, once, now=self._now()))
        return run_id

    async def list(
        self, *, session: str = "", live: bool | None = None, before: str = "", limit: int = 20
    ) -> Sequence[Entry]:
        entries: Sequence[Entry] = await self._read(
            lambda db: entries_of(db, session=session, live=live, before=before, limit=limit)
        )
        return entries

    async def queue(self) -> Sequence[str]:
        ids: Sequence[str] = await self._writer.settle(Ledger.queue)
        return ids

    async def census(self) -> Census:
        return self._writer.look(Ledger.census)

    async def append(
        self, lease: Lease, *events: Event, seen: int, blobs: Mapping[str, bytes] = {}
    ) -> Sequence[Recorded]:
        given = pack_events(events, blobs)
        news: Sequence[Recorded] = await self._writer.ask(Ledger.append, lease, given, seen)
        return news

    async def wish(
        self,
        run_id: str,
        wish: Wish,
        *,
        seen: int = 0,
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
    ) -> Sequence[Recorded]:
        given = pack_events((wish,), blobs)
        news: Sequence[Recorded] = await self._writer.ask(Ledger.wish, run_id, given, seen, once)
        return news

    async def delete(self, run_id: str, *, by: str = "") -> None:
        await self._writer.ask(Ledger.delete, run_id, pack_events((stop_deleted(by),)), by)

    async def read(
        self, run_id: str, *, after: int = 0, deleted: bool = False, most: float = inf
    ) -> Sequence[Recorded]:
        self._check_open()
        events = self._recent.past(run_id, after, most=most)
        if events is None:
            events = await self._read(
                lambda db: read(db, find(db, run_id, deleted=deleted)[0], after=after, most=most)
            )
        return events

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        self._check_open()
        feed = self._feeds.setdefault(run_id, Feed())
        feed.followers += 1
        begun = False
        try:
            while True:
                news = feed.news
                page, ended = await self._page(run_id, after)
                begun, more = True, bool(page)
                while page:
                    after = page[0].seq
                    # It may be long, and whoever follows may take their time over it.
                    yield page.popleft()
                if ended:
                    return  # the end was among them, or whoever follows had seen it before
                if not more:
                    if self._lost:
                        raise self._lost
                    await news.wait()
        except NotFound:
            if not begun:
                raise  # else it was deleted meanwhile
        finally:
            feed.followers -= 1
            if not feed.followers:
                del self._feeds[run_id]

    def changes(self) -> AsyncGenerator[str, None]:
        return self._watchers.changes()

    # --- sessions

    async def note(self, session_id: str, *events: SessionEvent) -> Sequence[Noted]:
        written: Sequence[Noted] = await self._writer.ask(Ledger.note, session_id, events)
        return written

    async def notes(self, session_id: str, *, after: int = 0) -> Sequence[Noted]:
        self._check_open()
        notes = self._recent_notes.past(session_id, after)
        if notes is None:
            notes = await self._read(lambda db: read_notes(db, session_id, after=after))
        return notes

    async def session(self, session_id: str) -> SessionEntry:
        aside = self._aside()
        entry: SessionEntry = await self._read(
            lambda db: session_entry(db, session_id, aside=aside)
        )
        return entry

    async def sessions(
        self,
        *,
        archived: bool | None = False,
        deleted: bool = False,
        text: str = "",
        before: ListPlace | None = None,
        limit: int = 20,
    ) -> Sequence[SessionEntry]:
        how = {"archived": archived, "deleted": deleted, "text": text, "before": before}
        aside = self._aside()
        entries: Sequence[SessionEntry] = await self._read(
            lambda db: session_entries(db, **how, limit=limit, aside=aside)  # type: ignore[arg-type]
        )
        return entries

    async def members(
        self, session_id: str, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Member]:
        members: Sequence[Member] = await self._read(
            lambda db: members_of(db, session_id, before=before, limit=limit)
        )
        return members

    async def stirs(self, session_id: str) -> AsyncGenerator[None, None]:
        await self._read(lambda db: session_entry(db, session_id))
        feed = self._stirs.setdefault(session_id, Feed())
        feed.followers += 1
        try:
            while True:
                news = feed.news
                yield
                if self._lost:
                    raise self._lost
                await news.wait()
        finally:
            feed.followers -= 1
            if not feed.followers:
                del self._stirs[session_id]

    def session_changes(self) -> AsyncGenerator[str, None]:
        return self._session_watchers.changes()

    async def take_in(
        self, session_id: str, notes: Sequence[Noted], runs: Sequence[Carried]
    ) -> None:
        await self._writer.ask(Ledger.take_in, session_id, notes, runs)

    async def purge(self, *, before: float) -> Sequence[str]:
        gone: Mapping[str, Sequence[str]] = await self._writer.ask(Ledger.purge, before)
        for id, run_ids in gone.items():
            self._recent_notes.forget(id)
            for run_id in run_ids:
                self._recent.forget(run_id)
        return list(gone)

    # --- leases

    async def claim(self, worker: str, *, ttl: float, limit: int = 1) -> Sequence[Lease]:
        leases: Sequence[Lease] = await self._writer.settle(
            lambda ledger: ledger.claim(worker, ttl=ttl, limit=limit)
        )
        return leases

    async def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        lease: Lease | None = await self._writer.ask(
            lambda ledger: ledger.seize(run_id, worker, ttl=ttl)
        )
        return lease

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, int]:
        held: Mapping[str, int] = await self._writer.settle(
            lambda ledger: ledger.renew(leases, ttl=ttl)
        )
        return held

    async def held(self, run_ids: Collection[str]) -> frozenset[str]:
        return self._writer.look(lambda ledger: ledger.held(run_ids))

    async def release(
        self,
        lease: Lease,
        *,
        seen: int,
        ready_in: float | None,
        timed: bool = False,
        aside: bool = False,
    ) -> None:
        await self._writer.ask(
            lambda ledger: ledger.release(
                lease, seen=seen, ready_in=ready_in, timed=timed, aside=aside
            )
        )

    async def next_ready(self) -> float | None:
        return self._writer.look(Ledger.next_ready)

    async def orphans(self) -> Sequence[str]:
        ids: Sequence[str] = await self._writer.settle(Ledger.orphans)
        return ids

    # --- blobs

    async def blob(self, sha256: str) -> bytes:
        body: bytes = await self._read(lambda db: look_up(db, sha256))
        return body

    async def chain(self, sha256: str) -> Sequence[bytes]:
        bodies: Sequence[bytes] = await self._read(lambda db: look_up_chain(db, sha256))
        return bodies

    # --- the two threads

    async def _page(self, run_id: str, after: int) -> tuple[deque[Recorded], bool]:
        """What comes right after `after`, and whether nothing follows on it."""
        events = self._recent.past(run_id, after, limit=PAGE, most=PAGE_BYTES)
        ended = self._recent.ended(run_id)
        if events is None:
            events, ended = await self._read(
                lambda db: read_page(db, run_id, after=after, limit=PAGE, most=PAGE_BYTES)
            )
        return deque(events), isinstance(events[-1].event, FINAL) if events else ended

    async def _read(self, look: Callable[[apsw.Connection], Any]) -> Any:
        def work() -> Any:
            try:
                connection = self._idle_or_new()
                try:
                    # All of it as of one moment: what is found by one query may be purged before the next.
                    with connection:
                        return look(connection)
                finally:
                    self._idle.append(connection)
            except (apsw.Error, UnicodeDecodeError) as error:
                raise StoreError(f"the journal cannot be read: {error}") from error

        self._check_open()
        # Not abandoned on cancel: the connection has to come back.
        return await anyio.to_thread.run_sync(work, limiter=self._reading)

    def _idle_or_new(self) -> apsw.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return open_reader(self._path)

    def _aside(self) -> Collection[str]:
        """What is set aside, as far as that is known: what is stored can be read all the same."""
        with suppress(StoreUnavailable):
            return self._writer.look(Ledger.aside)
        return ()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the journal was closed")

    def _publish(
        self,
        written: Mapping[str, Sequence[Recorded]],
        changed: Iterable[str],
        stirred: Mapping[str, Stir],
    ) -> None:
        for run_id, events in written.items():
            if events:
                self._recent.keep(run_id, events)
            else:
                self._recent.forget(run_id)
            if feed := self._feeds.get(run_id):
                feed.ring()
        self._watchers.announce(changed)
        if stirred:
            self._stir(stirred)

    def _stir(self, stirred: Mapping[str, Stir]) -> None:
        for session_id, stir in stirred.items():
            self._recent_notes.keep(session_id, stir.notes)
            if feed := self._stirs.get(session_id):
                feed.ring()
        self._session_watchers.announce(id for id, stir in stirred.items() if stir.listed)

    def _lose(self, reason: StoreError) -> None:
        """Nothing more will come: whoever waits for it is told."""
        self._lost = self._lost or reason
        for feed in (*self._feeds.values(), *self._stirs.values()):
            feed.ring()
        self._watchers.close(reason)
        self._session_watchers.close(reason)

    async def _close(self) -> None:
        self._closed = True
        self._lose(StoreUnavailable("the journal was closed"))
        for _ in range(READERS):
            # Whoever is reading may finish.
            await self._reading.acquire_on_behalf_of(object())
        for connection in self._idle:
            connection.close()
        await self._writer.stop()


@asynccontextmanager
async def open_sqlite(
    path: Path,
    *,
    now: Callable[[], float] = time,
    vfs: str | None = None,
    checkpoint: int = CHECKPOINT,
    recent: int = MOST,
) -> AsyncIterator[SqliteStore]:
    """The store in this file, created if it is not there. One process at a time may write it.

    `checkpoint` is how many pages the log may have before it is copied into the database, `recent`
    how many bytes of what was committed lately are kept at hand. Raises StoreError if the file cannot
    be used, and StoreFull if that is for want of space.
    """
    store = SqliteStore(path, now=now, vfs=vfs, checkpoint=checkpoint, recent=recent)
    await store._writer.start()  # noqa: SLF001 - opening is this function's business
    try:
        with suppress(StoreFull):
            await store._writer.ask(Ledger.collect, token_hex(32))  # noqa: SLF001
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store._close()  # noqa: SLF001
