"""Where conversations come in: say something in a session, look at it, follow it, put it away.

Nothing of a session is kept here. What is shown is folded from its journal and its runs' journals each
time, and looking changes neither.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.bookmark import Bookmark, Heard
from holdfast.core.events import FINAL, RunAccepted, RunFailed, StopRequested
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Message
from holdfast.core.run import replay
from holdfast.core.session import (
    RunAdded,
    SessionCreated,
    SessionDeleted,
    SessionEvent,
    SessionRestored,
)
from holdfast.core.state import RunState
from holdfast.engine.means import Means
from holdfast.engine.pages import Page, Pages
from holdfast.engine.runs import Runs
from holdfast.errors import (
    Conflict,
    IllegalEvent,
    JournalDamaged,
    NotFound,
    RunBegun,
    RunFinished,
    RunStopping,
    SessionBusy,
    SessionGone,
)
from holdfast.ports import Member, Once, SessionEntry

#: What becomes of a message while a run of its session is under way.
Busy: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]

#: How a session is, at a glance.
Badge: TypeAlias = Literal["idle", "running", "waiting", "failed", "damaged"]

#: Messages that may wait in one session.
MOST_WAITING = 100

#: Runs that are looked at together, and bytes of one that are told together.
_STRIDE = 32
_PAGE = 256 * 1024

#: What is raised where a run's journal makes no sense. Those around it go on.
_DAMAGE = (JournalDamaged, IllegalEvent)

_INTERRUPTED = "another message came first"


class Sent(Struct, frozen=True):
    """What became of a message: the run that carries it, and whether that could begin."""

    run_id: str
    how: Literal["started", "queued", "steered"]


class Waiting(Struct, frozen=True):
    """A message that waits for its turn. `behind` is the run whose turn it is."""

    run_id: str
    state: RunState
    behind: str


class Sessions:
    """`workers` tells whether anyone lives who carries runs."""

    def __init__(self, means: Means, runs: Runs, *, workers: Callable[[], bool]) -> None:
        self._means, self._store, self._runs = means, means.store, runs
        self._pages = Pages(means, workers=workers)

    # --- saying something

    async def send(
        self,
        accepted: RunAccepted,
        *,
        busy: Busy = "queue",
        history: tuple[Message, ...] = (),
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
        entry: SessionEntry | None = None,
        room: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> Sent:
        """Take a message in. Raises as `Runs.accept`, and Conflict where too many wait already.

        `entry` is the session as it was just now, for who has looked already. A run that begins is taken
        in within `room`, which may refuse it; what is said to one that is under way needs none.
        """
        entry = entry or await self.find(accepted.session_id)
        if entry and entry.state.deleted_at is not None:
            raise SessionGone(accepted.session_id)
        if entry and entry.run and entry.live:
            if busy == "steer" and await self._steer(entry.run.run_id, accepted, blobs, once):
                return Sent(entry.run.run_id, "steered")
            if busy == "reject" and entry.busy:
                raise SessionBusy(accepted.session_id, entry.run.run_id)
            if entry.live > MOST_WAITING:
                raise Conflict(f"{entry.live - 1} messages wait in this session already")
        stop = StopRequested(by=accepted.principal, reason=_INTERRUPTED)
        async with room():
            run_id = await self._runs.accept(
                accepted,
                history=history,
                blobs=blobs,
                once=once,
                alone=busy == "reject",
                stop=stop if busy == "interrupt" else None,
            )
        return Sent(run_id, "queued" if entry and entry.live else "started")

    async def _steer(
        self,
        run_id: str,
        accepted: RunAccepted,
        blobs: Mapping[str, bytes],
        once: Once | None,
    ) -> bool:
        """Say it to the run under way. False if that takes no more."""
        try:
            await self._runs.add(
                run_id,
                accepted.input,
                blobs=blobs,
                message_id=accepted.message_id,
                by=accepted.principal,
                once=once,
            )
        except (NotFound, RunFinished, RunStopping, *_DAMAGE):
            return False
        return True

    async def waiting(self, session_id: str) -> Sequence[Waiting]:
        """What waits for its turn, the next first."""
        entry = await self.entry(session_id)
        if not entry.run or not entry.live:
            return ()
        return [
            Waiting(run_id, state, entry.run.run_id)
            for run_id, state in await self._states(session_id, entry.live)
            if run_id != entry.run.run_id and not state.epoch and state.status is Status.QUEUED
        ]

    async def find_waiting(self, session_id: str, word: str) -> str:
        """The run that carries this message, by the id of either. Raises NotFound or RunBegun."""
        entry = await self.entry(session_id)
        states = await self._states(session_id, entry.live)
        # The last first: of two messages under one id it is the one that waits that is meant.
        for run_id, state in reversed(states):
            if word == run_id or (state.accepted and word == state.accepted.message_id):
                return run_id
        members = await self._store.members(session_id, limit=_STRIDE)
        if any(member.run_id == word for member in members):
            raise RunBegun(word)
        raise NotFound("message", word)

    async def _states(self, session_id: str, live: int) -> list[tuple[str, RunState]]:
        """Where each that has not ended stands, but for those that were deleted or make no sense."""
        found = []
        for member in await self._live(session_id, live):
            try:
                found.append((member.run_id, await self._runs.state(member.run_id)))
            except (NotFound, *_DAMAGE):
                continue  # it was deleted, or is for nobody to make sense of
        return found

    async def _live(self, session_id: str, count: int) -> list[Member]:
        """Those that have not ended, the first first."""
        live, before = list[Member](), None
        # One that was set aside may be far back.
        while page := await self._store.members(session_id, before=before, limit=count + _STRIDE):
            live += [member for member in page if not member.ended]
            if len(live) >= count:
                break
            before = page[-1].ordinal
        return live[::-1]

    # --- what is made of it

    async def create(self, session_id: str, begun: SessionCreated) -> str:
        """Raises Conflict if it is there already."""
        session_id = session_id or self._means.new_id("ses")
        await self._store.note(session_id, self._means.secrets.mask_event(begun))
        return session_id

    async def change(self, session_id: str, *events: SessionEvent) -> None:
        """Rename it, pin it, archive it. Raises NotFound or SessionGone."""
        mask = self._means.secrets.mask_event
        await self._store.note(session_id, *map(mask, events))

    async def delete(self, session_id: str, *, by: str = "") -> None:
        """It is gone for everyone, until it is restored. What is under way in it is stopped."""
        entry = await self.entry(session_id)
        await self._store.note(session_id, SessionDeleted(by=by))
        for member in await self._live(session_id, entry.live):
            try:
                await self._runs.stop(member.run_id, by=by, reason="its session was deleted")
            except (RunFinished, NotFound):
                pass  # it was quicker, or was deleted before and is asked to stop already

    async def restore(self, session_id: str, *, by: str = "") -> None:
        """Raises NotFound, or Conflict if it was not deleted."""
        try:
            await self._store.note(session_id, SessionRestored(by=by))
        except IllegalEvent as error:
            raise Conflict(f"session {session_id} was not deleted") from error

    # --- looking

    async def entry(self, session_id: str) -> SessionEntry:
        """How it is. Raises NotFound; one that was deleted is not found either."""
        entry = await self._store.session(session_id)
        if entry.state.deleted_at is not None:
            raise NotFound("session", session_id)
        return entry

    async def find(self, session_id: str) -> SessionEntry | None:
        """How it is, be it deleted or not, if there is such a session."""
        try:
            return await self._store.session(session_id) if session_id else None
        except NotFound:
            return None

    async def badge(self, entry: SessionEntry) -> Badge:
        if entry.run is None:
            return "idle"
        last = entry.run.last.event
        if isinstance(last, FINAL):
            return "failed" if isinstance(last, RunFailed) else "idle"
        try:
            state = replay(await self._store.read(entry.run.run_id, deleted=True))
        except _DAMAGE:
            return "damaged"
        return "waiting" if state.status is Status.WAITING else "running"

    async def page(self, session_id: str, *, earlier: str = "", limit: int = 50) -> Page:
        """The end of the transcript, or what came before a page of it. Raises NotFound."""
        return await self._pages.page(await self.entry(session_id), earlier=earlier, limit=limit)

    # --- following

    async def follow(self, session_id: str, *, after: Bookmark) -> AsyncGenerator[Heard, None]:
        """What is on record of the session and its runs past that bookmark, and what comes.

        Each comes with the bookmark after it. Ends when the session is deleted. Raises NotFound. A bookmark
        that is none of this session is taken for the beginning.
        """
        mark, ids = await self._begin(session_id, after)
        async with aclosing(self._store.stirs(session_id)) as stirs:
            async for _ in stirs:
                more = True
                while more:
                    more = False
                    async for heard in self._news(session_id, mark, ids):
                        mark, more = heard.bookmark, True
                        yield heard
                        if isinstance(heard.event, SessionDeleted) and await self._is_gone(
                            session_id
                        ):
                            return

    async def _is_gone(self, session_id: str) -> bool:
        """One that was deleted may have been restored since."""
        try:
            await self.entry(session_id)
        except NotFound:
            return True
        return False

    async def _begin(self, session_id: str, after: Bookmark) -> tuple[Bookmark, dict[int, str]]:
        """The bookmark, and the runs that were heard of by then, by their ordinals."""
        notes = await self._store.notes(session_id)
        events = [noted.event for noted in notes[: after.session]]
        ids = {one.ordinal: one.run_id for one in events if isinstance(one, RunAdded)}
        known = len(ids) == after.runs and after.session <= len(notes)
        return (after, ids) if known else (Bookmark(), {})

    async def _news(
        self, session_id: str, mark: Bookmark, ids: dict[int, str]
    ) -> AsyncGenerator[Heard, None]:
        """What can be read right now: each run in turn, after the note that added it."""
        for ordinal in mark.open:
            async for heard in self._run_news(mark, ordinal, ids):
                mark = heard.bookmark
                yield heard
        for noted in await self._store.notes(session_id, after=mark.session):
            mark = mark.noted(noted)
            yield Heard(mark, noted.at, noted.event)
            if isinstance(noted.event, RunAdded):
                ids[noted.event.ordinal] = noted.event.run_id
                async for heard in self._run_news(mark, noted.event.ordinal, ids):
                    mark = heard.bookmark
                    yield heard

    async def _run_news(
        self, mark: Bookmark, ordinal: int, ids: dict[int, str]
    ) -> AsyncGenerator[Heard, None]:
        run_id = ids[ordinal]
        try:
            while ordinal in mark.open and (
                journal := await self._store.read(
                    run_id, after=mark.seq(ordinal), deleted=True, most=_PAGE
                )
            ):
                for recorded in journal:
                    mark = mark.heard(ordinal, recorded)
                    yield Heard(mark, recorded.at, recorded.event, run_id, ordinal, recorded)
        except (NotFound, JournalDamaged):
            return  # it may still arrive, or never be read again
