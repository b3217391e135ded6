"""Where conversations come in: say something in a session, look at it, follow it, put it away.

Nothing of a session is kept here. What is shown is folded from its journal and its runs' journals each
time, and looking changes neither.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.entries import Entry
from holdfast.core.events import FINAL, RunAccepted, RunFailed, StopRequested
from holdfast.core.lifecycle import Status
from holdfast.core.marker import marked, marker, unseen
from holdfast.core.messages import Message
from holdfast.core.place import WHOLE, Heard, Place
from holdfast.core.session import (
    RunAdded,
    SessionCreated,
    SessionDeleted,
    SessionEvent,
    SessionRestored,
)
from holdfast.core.state import RunState
from holdfast.core.transcript import Transcript, grow
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.errors import (
    Conflict,
    IllegalEvent,
    JournalDamaged,
    NotFound,
    RunBegun,
    RunFinished,
    RunStopping,
    SessionGone,
)
from holdfast.ports import Member, Once, SessionEntry

#: What becomes of a message while a run of its session is under way.
Busy: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]

#: How a session is, at a glance.
Badge: TypeAlias = Literal["idle", "running", "waiting", "failed", "damaged"]

#: Messages that may wait in one session.
MOST_WAITING = 100

#: Runs that are looked at together.
_STRIDE = 32

_INTERRUPTED = "another message came first"


class Sent(Struct, frozen=True):
    """What became of a message: the run that carries it, and whether that could begin."""

    run_id: str
    how: Literal["started", "queued", "steered"]


class Page(Struct, frozen=True):
    """Part of a transcript, in order.

    `earlier` is where to go on for what came before, "" at the beginning. `place` is where to follow
    on from what is told here.
    """

    entries: tuple[Entry, ...]
    earlier: str
    place: Place


class Waiting(Struct, frozen=True):
    """A message that waits for its turn. `behind` is the run whose turn it is."""

    run_id: str
    state: RunState
    behind: str


class _Seen(Struct, frozen=True):
    """A run as far as it is to be seen: `seq` is where, or WHOLE."""

    member: Member
    entries: tuple[Entry, ...]
    seq: int


class Sessions:
    """`workers` tells whether anyone lives who carries runs."""

    def __init__(self, means: Means, runs: Runs, *, workers: Callable[[], bool]) -> None:
        self._means, self._store, self._runs = means, means.store, runs
        self._workers = workers

    # --- saying something

    async def send(
        self,
        accepted: RunAccepted,
        *,
        busy: Busy = "queue",
        history: tuple[Message, ...] = (),
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
    ) -> Sent:
        """Take a message in. Raises as `Runs.accept`, and Conflict where too many wait already."""
        entry = await self._find(accepted.session_id)
        if entry and entry.run and entry.live:
            if busy == "steer" and await self._steer(entry.run.run_id, accepted):
                return Sent(entry.run.run_id, "steered")
            if entry.live > MOST_WAITING:
                raise Conflict(f"{entry.live - 1} messages wait in this session already")
        stop = StopRequested(by=accepted.principal, reason=_INTERRUPTED)
        run_id = await self._runs.accept(
            accepted,
            history=history,
            blobs=blobs,
            once=once,
            alone=busy == "reject",
            stop=stop if busy == "interrupt" else None,
        )
        return Sent(run_id, "queued" if entry and entry.live else "started")

    async def _steer(self, run_id: str, accepted: RunAccepted) -> bool:
        """Say it to the run under way. False if that takes no more."""
        try:
            await self._runs.add(
                run_id, accepted.input, message_id=accepted.message_id, by=accepted.principal
            )
        except (RunFinished, RunStopping):
            return False
        return True

    async def waiting(self, session_id: str) -> Sequence[Waiting]:
        """What waits for its turn, the next first."""
        entry = await self.entry(session_id)
        if not entry.run or not entry.live:
            return ()
        found = []
        for member in await self._live(session_id, entry.live):
            state = await self._runs.state(member.run_id)
            if not state.epoch and state.status is Status.QUEUED:
                found.append(Waiting(member.run_id, state, entry.run.run_id))
        return [one for one in found if one.run_id != entry.run.run_id]

    async def find_waiting(self, session_id: str, word: str) -> str:
        """The run that carries this message, by the id of either. Raises NotFound or RunBegun."""
        entry = await self.entry(session_id)
        for member in await self._live(session_id, entry.live):
            accepted = (await self._runs.state(member.run_id)).accepted
            if word == member.run_id or (accepted and word == accepted.message_id):
                return member.run_id
        members = await self._store.members(session_id, limit=_STRIDE)
        if any(member.run_id == word for member in members):
            raise RunBegun(word)
        raise NotFound("message", word)

    async def _live(self, session_id: str, count: int) -> list[Member]:
        """Those that have not ended, the first first."""
        members = await self._store.members(session_id, limit=count + _STRIDE)
        return [member for member in reversed(members) if not member.ended]

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
            except RunFinished:
                pass  # it was quicker

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

    async def _find(self, session_id: str) -> SessionEntry | None:
        try:
            entry = await self._store.session(session_id) if session_id else None
        except NotFound:
            return None
        if entry and entry.state.deleted_at is not None:
            raise SessionGone(session_id)
        return entry

    async def badge(self, entry: SessionEntry) -> Badge:
        if entry.run is None:
            return "idle"
        last = entry.run.last.event
        if isinstance(last, FINAL):
            return "failed" if isinstance(last, RunFailed) else "idle"
        try:
            state = await self._runs.state(entry.run.run_id)
        except (JournalDamaged, IllegalEvent):
            return "damaged"
        return "waiting" if state.status is Status.WAITING else "running"

    async def page(self, session_id: str, *, earlier: str = "", limit: int = 50) -> Page:
        """The end of the transcript, or what came before a page of it."""
        entry = await self.entry(session_id)
        runs, kept = entry.state.runs, None
        if earlier:
            runs, kept = _read_earlier(earlier, runs)
        seen: list[_Seen] = []
        told, before = 0, runs + 1
        while before > 1 and (told < limit or len(seen) < (0 if earlier else entry.live)):
            for member in await self._store.members(session_id, before=before, limit=_STRIDE):
                before = member.ordinal
                one = await self._see(member, entry)
                if kept is not None and member.ordinal == runs:
                    one = _Seen(member, one.entries[:kept], one.seq)
                seen.append(one)
                told += len(one.entries)
                if told >= limit and len(seen) >= (0 if earlier else entry.live):
                    break
            else:
                continue
            break
        seen.reverse()
        return Page(*_cut(seen, limit), _place(entry.state.seq, runs, seen))

    async def _see(self, member: Member, entry: SessionEntry) -> _Seen:
        """A run with its marker. One that cannot be seen yet has nothing else."""
        now, workers = self._means.clock(), self._workers()
        run_id, ordinal = member.run_id, member.ordinal
        try:
            journal = await self._store.read(run_id)
        except NotFound:
            hidden = unseen(entry.state.moved_at, workers=workers, now=now)
            return _Seen(member, marked((), hidden, run_id=run_id, ordinal=ordinal), 0)
        transcript = Transcript(run_id, ordinal)
        for recorded in journal:
            transcript = grow(transcript, recorded)
        leased = bool(await self._store.held([run_id])) if not member.ended else False
        mark = marker(transcript.state, leased=leased, workers=workers, now=now)
        entries = marked(transcript.entries, mark, run_id=run_id, ordinal=ordinal)
        state = transcript.state
        return _Seen(member, entries, WHOLE if state.status.final else state.seq)

    # --- following

    async def follow(self, session_id: str, *, after: Place) -> AsyncGenerator[Heard, None]:
        """What is on record of the session and its runs past that place, and what comes.

        Each comes with the place after it. Ends when the session is deleted. Raises NotFound. A place
        that is none of this session is taken for the beginning.
        """
        place, ids = await self._begin(session_id, after)
        async with aclosing(self._store.stirs(session_id)) as stirs:
            async for _ in stirs:
                more = True
                while more:
                    more = False
                    async for heard in self._news(session_id, place, ids):
                        place, more = heard.place, True
                        yield heard
                        if isinstance(heard.event, SessionDeleted):
                            return

    async def _begin(self, session_id: str, after: Place) -> tuple[Place, dict[int, str]]:
        """The place, and the runs that were heard of by then, by their ordinals."""
        notes = await self._store.notes(session_id)
        events = [noted.event for noted in notes[: after.session]]
        ids = {one.ordinal: one.run_id for one in events if isinstance(one, RunAdded)}
        known = len(ids) == after.runs and after.session <= len(notes)
        return (after, ids) if known else (Place(), {})

    async def _news(
        self, session_id: str, place: Place, ids: dict[int, str]
    ) -> AsyncGenerator[Heard, None]:
        """What can be read right now: each run in turn, after the note that added it."""
        for ordinal in place.open:
            async for heard in self._run_news(place, ordinal, ids):
                place = heard.place
                yield heard
        for noted in await self._store.notes(session_id, after=place.session):
            place = place.noted(noted)
            yield Heard(place, noted.at, noted.event)
            if isinstance(noted.event, RunAdded):
                ids[noted.event.ordinal] = noted.event.run_id
                async for heard in self._run_news(place, noted.event.ordinal, ids):
                    place = heard.place
                    yield heard

    async def _run_news(
        self, place: Place, ordinal: int, ids: dict[int, str]
    ) -> AsyncGenerator[Heard, None]:
        run_id = ids[ordinal]
        try:
            journal = await self._store.read(run_id, after=place.seq(ordinal))
        except NotFound:
            return  # it may still arrive
        for recorded in journal:
            place = place.heard(ordinal, recorded)
            yield Heard(place, recorded.at, recorded.event, run_id, ordinal, recorded)


def _read_earlier(token: str, runs: int) -> tuple[int, int]:
    """The run in which a page began, and how many entries of it came before. Raises NotFound."""
    ordinal, _, kept = token.partition(".")
    if not (ordinal.isdecimal() and kept.isdecimal()) or not 0 < int(ordinal) <= runs:
        raise NotFound("place", token)
    return int(ordinal), int(kept)


def _cut(seen: Sequence[_Seen], limit: int) -> tuple[tuple[Entry, ...], str]:
    """The last entries, and where to go on for what came before them."""
    entries = tuple(entry for one in seen for entry in one.entries)
    if not seen:
        return (), ""
    surplus = max(len(entries) - limit, 0)
    left = surplus
    for one in seen:
        if left < len(one.entries) or (left == 0 and not one.entries):
            first = left == 0 and one.member.ordinal == 1
            return entries[surplus:], "" if first else f"{one.member.ordinal}.{left}"
        left -= len(one.entries)
    return entries[surplus:], ""


def _place(session: int, runs: int, seen: Sequence[_Seen]) -> Place:
    """Where whoever has seen these goes on: the runs before them have ended."""
    seqs = tuple(one.seq for one in seen)
    return Place(session, runs + 1 - len(seqs), seqs).shortened()
