"""What the server does, without HTTP: take requests in, tell how runs stand, pass wishes on."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from hashlib import sha256
from math import inf
from typing import Literal, NamedTuple, Protocol, TypeAlias

import anyio
from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.calls.tasks import task_group
from holdfast.config import Settings, secrets
from holdfast.core.events import FINAL, InputAdded, Recorded, RunAccepted
from holdfast.core.run import replay
from holdfast.core.session import SessionState
from holdfast.engine.carrier import Carrier
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.errors import (
    AlreadyAccepted,
    Conflict,
    IllegalEvent,
    JournalDamaged,
    KeyReused,
    NotFound,
    RunFinished,
    SessionBusy,
    SessionGone,
)
from holdfast.ports import Entry, Once
from holdfast.server import problems, repeats, requests
from holdfast.server.attendance import Attendance
from holdfast.server.bodies import count
from holdfast.server.keys import LOOK, Welcome, always
from holdfast.server.places import Places
from holdfast.server.problems import (
    draining,
    holds_a_secret,
    key_conflict,
    malformed,
    session_busy,
    too_many,
    wrong_key,
)
from holdfast.server.room import Room
from holdfast.server.status import Status, damaged, last_event, status
from holdfast.server.unheard import Unheard

#: Seconds that somebody may wait for a run to end in one request.
LONGEST_WAIT = 60.0

#: Runs in one page of a list.
MOST_LISTED = 100

_LIVE = {"queued": True, "running": True, "waiting_for_approval": True, "stopping": True}
_ENDED = {"completed": False, "failed": False, "cancelled": False}

How: TypeAlias = Literal["started", "queued", "steered"]


class Submitted(NamedTuple):
    run_id: str
    #: The same request was taken in before.
    replayed: bool
    how: How = "started"


class Page(Struct, frozen=True):
    """Of runs, the newest first. `next` is what to go on with, "" at the end. It may be shorter than
    was asked for though there is more: to find what few runs are takes long."""

    data: Sequence[Status]
    has_more: bool
    next: str
    object: str = "list"


class Reader(Protocol):
    """Somebody who follows a run."""

    def welcome(self) -> bool:
        """The key they came with still opens."""

    def stalls(self, now: float) -> bool:
        """They take nothing of what is sent to them, and have not for long."""

    def quiet(self, now: float) -> bool:
        """Nothing is on its way to them, and nothing was for a while."""

    async def show_life(self) -> None: ...

    async def warn(self) -> None:
        """Tell them that the server is about to leave, and the run goes on."""

    def leave(self) -> None:
        """In the middle, which they are to notice. Then they are gone like any other."""


class Service:
    """`settings.max_queued_runs` more than can be carried wait; what comes then is sent away."""

    def __init__(
        self,
        runs: Runs,
        means: Means,
        settings: Settings,
        *,
        sessions: Sessions | None = None,
        brief: requests.Brief | None = None,
    ) -> None:
        self._runs, self._means, self._settings, self._briefing = runs, means, settings, brief
        self._store, self.clock = means.store, means.clock
        #: What was taken in before is from another server, and so is whoever asked for it.
        self.began = means.clock()
        self.runs, self.store, self.secrets = runs, means.store, means.secrets
        self.folder = settings.data
        self.sessions = sessions or Sessions(means, runs, workers=lambda: True)
        self.carrier = Carrier(means, workers=lambda: True, hidden=secrets(settings=settings))
        #: Set when nothing new is begun any more, and when whoever still reads is left.
        self.draining, self.left = anyio.Event(), anyio.Event()
        #: Runs that are looked at for one page: where few fit a filter, it is short and has a next.
        self.most_looked = 1000
        self._room = Room(
            settings.max_concurrent_runs, settings.max_queued_runs, means.store.census
        )
        #: Those who follow a run just now.
        self.readers: set[Reader] = set()
        self.attendance, self.unheard = Attendance(), Unheard()

    # --- taking in

    def once(self, body: bytes, *, principal: str, key: str | None, of: str = "") -> Once | None:
        """The request as one that is taken in once, if it has a key. `of` is what it is part of."""
        key = requests.idempotency_key(key)
        if key is None:
            return None
        # Only the hash is kept: some clients send as a key what is a secret elsewhere.
        hashed = sha256(key.encode()).hexdigest()
        return Once(principal, hashed, f"{of} {requests.fingerprint(body)}".strip())

    async def take_in(
        self,
        asked: requests.RunRequest,
        *,
        principal: str,
        once: Once | None = None,
        finish: Callable[[RunAccepted], RunAccepted] = lambda run: run,
    ) -> Submitted:
        """Take a request in; `finish` adds what else it said.

        Raises Problem or HoldfastError, and then nothing was allocated.
        """
        steers = bool(asked.session_id) and asked.on_busy == "steer"
        if steers:
            asked = replace(asked, message_id=asked.message_id or repeats.named_after(once))
        # A request that was taken in is answered as it was, whatever the state of things now.
        if once and not once.latest and (earlier := await self.earlier(once)):
            return Submitted(earlier, True, await self._how(earlier, asked.message_id))
        self.keep_out(asked.session_id, *asked.blobs.values())
        entry = await self.sessions.find(asked.session_id)
        asked = _as_agreed(asked, entry.state if entry else None)
        run, history, blobs = requests.accept(
            asked,
            settings=self._settings,
            tools=[tool.spec for tool in self._means.tools.values()],
            principal=principal,
            brief=self._briefing,
        )
        run = finish(run)
        if steers and entry and (again := await self._again(run, once)):
            return again
        try:
            sent = await self.sessions.send(
                run,
                busy=asked.on_busy,
                history=history,
                blobs=blobs,
                once=once,
                entry=entry,
                room=self._room_for_one,
            )
        except AlreadyAccepted as error:
            return Submitted(error.run_id, True, await self._how(error.run_id, run.message_id))
        except KeyReused as error:
            raise key_conflict() from error
        except SessionBusy as error:
            raise session_busy(error) from error
        except SessionGone:
            raise
        except Conflict as error:
            # More wait in its session than may.
            raise too_many(str(error)) from error
        return Submitted(sent.run_id, replayed=False, how=sent.how)

    @asynccontextmanager
    async def _room_for_one(self) -> AsyncGenerator[None, None]:
        """In which a run is taken in. Raises Problem."""
        if self.draining.is_set():
            raise draining()
        async with self._room.for_one():
            yield

    def keep_out(self, session_id: str, *images: bytes) -> None:
        """Raises Problem if a secret is where it would be kept as it is."""
        if self.secrets.found(session_id):
            raise holds_a_secret("'session_id'", param="session_id")
        if any(map(self.secrets.found_in, images)):
            raise holds_a_secret("an image in 'input'", param="input")

    async def _how(self, run_id: str, message_id: str) -> How:
        """What a request is told that led to this run before."""
        try:
            journal = await self._store.read(run_id)
        except NotFound:
            return "started"  # it was purged since
        if isinstance(repeats.said(journal, message_id), InputAdded):
            return "steered"
        return "started" if (await self._status(run_id, journal)).behind is UNSET else "queued"

    async def _again(self, run: RunAccepted, once: Once | None) -> Submitted | None:
        """What became of a message to a run under way, if it came before under the same id."""
        found = await repeats.find(self._store, run.session_id, run.message_id)
        if found is None:
            return None
        if once and found.words != self._means.secrets.mask_event(run).input:
            raise key_conflict()
        return Submitted(found.run_id, True, "steered" if found.added else "started")

    async def earlier(self, once: Once) -> str | None:
        """The run that this request led to before. Raises Problem if it was another request, or if
        the run was deleted."""
        try:
            run_id = await self._store.accepted(once)
            if run_id:
                await self.exists(run_id)
        except KeyReused as error:
            raise key_conflict() from error
        except NotFound as error:
            raise problems.run_deleted() from error
        return run_id

    # --- how things stand

    async def status(
        self, run_id: str, *, wait: float = 0.0, deleted: bool = False, welcome: Welcome = always
    ) -> Status:
        """How the run stands, once it has ended or that many seconds have passed. Raises Problem for
        one who is no longer welcome."""
        journal = await self._store.read(run_id, deleted=deleted)
        if wait and not isinstance(journal[-1].event, FINAL):
            seconds = min(wait, LONGEST_WAIT)
            await self._end(run_id, after=journal[-1].seq, seconds=seconds, welcome=welcome)
            journal = await self._store.read(run_id)
        return await self._status(run_id, journal)

    async def outcome(self, run_id: str, *, welcome: Welcome = always) -> Status:
        """How the run ended, however long that takes; or how it stands when the server leaves."""
        await self._end(run_id, after=0, seconds=inf, welcome=welcome)
        return await self.status(run_id)

    async def _end(self, run_id: str, *, after: int, seconds: float, welcome: Welcome) -> None:
        """Until it has ended, that long, or as long as there is a server and who asks is welcome."""
        with anyio.move_on_after(seconds):
            async with task_group() as tasks:
                tasks.start_soon(self._leave, tasks.cancel_scope, welcome)
                async with aclosing(self._store.follow(run_id, after=after)) as events:
                    async for _ in events:
                        pass
                tasks.cancel_scope.cancel()
        if welcome() is None:
            raise wrong_key()

    async def _leave(self, waiting: anyio.CancelScope, welcome: Welcome) -> None:
        while not self.left.is_set() and welcome() is not None:
            with anyio.move_on_after(inf if welcome is always else LOOK):
                await self.left.wait()
        waiting.cancel()

    async def _status(
        self, run_id: str, journal: Sequence[Recorded], places: Places | None = None
    ) -> Status:
        state, places = replay(journal), places or Places(self._store)
        told = status(run_id, state, created_at=journal[0].at, last_event=last_event(journal))
        return await places.tell(told, state)

    async def list(self, query: Mapping[str, str]) -> Page:
        """Raises Problem for a filter that is none, NotFound for a cursor that is none."""
        wanted = query.get("status", "")
        limit = count(query.get("limit"), "limit", usual=20, most=MOST_LISTED)
        if wanted and wanted not in _LIVE | _ENDED:
            known = ", ".join(_LIVE | _ENDED)
            raise malformed(f"status must be one of {known}", param="status")
        found, places = list[Status](), Places(self._store)
        before, more, looked = query.get("after", ""), True, 0
        while more and len(found) <= limit and looked < self.most_looked:
            entries = await self._store.list(
                session=query.get("session_id", ""),
                live=(_LIVE | _ENDED).get(wanted),
                before=before,
                limit=limit + 1,
            )
            more = len(entries) > limit
            looked += len(entries)
            for entry in entries:
                before = entry.run_id
                told = await self._brief(entry, places)
                if not wanted or told.status == wanted:
                    found.append(told)
        page = found[:limit]
        last = page[-1].run_id if len(found) > limit else before
        rest = len(found) > limit or more
        return Page(data=page, has_more=rest, next=last if rest else "")

    async def _brief(self, entry: Entry, places: Places) -> Status:
        """As far as the ends of its journal tell, if it has ended; else as it stands."""
        if not isinstance(entry.last.event, FINAL):
            try:
                # It may have been deleted since it was found.
                journal = await self._store.read(entry.run_id, deleted=True)
                return await self._status(entry.run_id, journal, places)
            except (JournalDamaged, IllegalEvent) as error:
                return damaged(entry, error)
        told = status(
            entry.run_id,
            replay([entry.first]),
            created_at=entry.first.at,
            last_event=last_event([entry.last]),
        )
        ended = entry.last.event.__struct_config__.tag
        return replace(
            told,
            status=str(ended).removeprefix("run."),
            updated_at=entry.last.at,
            seq=entry.last.seq,
            waiting_for=UNSET,
            # Which model replied stands in between.
            effective_model=UNSET,
        )

    async def exists(self, run_id: str) -> None:
        """Raises NotFound unless it does."""
        await self._store.read(run_id, after=sys.maxsize)

    async def journal(self, run_id: str, *, after: int = 0) -> Sequence[Recorded]:
        return await self._store.read(run_id, after=after)

    def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        return self._store.follow(run_id, after=after)

    # --- wishes

    async def answer(
        self, run_id: str, body: bytes, *, principal: str
    ) -> tuple[str, Sequence[str], Sequence[str]]:
        """The choice as it was understood, the approvals it settled, and why it may hold but once."""
        # That there is no such run is said before anything is said of the answer.
        await self.exists(run_id)
        asked = requests.read_approval(body)
        problems: list[str] = []
        settled = await self._runs.answer(
            run_id,
            asked.choice,
            approval_id=asked.approval_id,
            everything=asked.everything,
            digest=asked.digest,
            by=principal,
            tell=problems.append,
        )
        return asked.choice, settled, problems

    async def steer(self, run_id: str, body: bytes, *, principal: str) -> None:
        """Say something to a run that is under way; the model hears it at its next call."""
        await self.exists(run_id)
        parts, message_id = requests.read_steer(body)
        try:
            await self._runs.add(run_id, parts, message_id=message_id, by=principal)
        except RunFinished:
            # Whoever did not hear that it was taken may ask again when the run has ended.
            if not message_id or not repeats.said(await self._store.read(run_id), message_id):
                raise

    async def stop(self, run_id: str, body: bytes, *, principal: str) -> str:
        """How the run stands then. Raises NotFound, and RunFinished unless that is no error here."""
        try:
            await self._runs.stop(run_id, by=principal, reason=requests.read_stop(body))
        except RunFinished:
            if self._settings.server.stop_ended == 200:
                return (await self.status(run_id)).status
            raise
        return "stopping"


def _as_agreed(asked: requests.RunRequest, state: SessionState | None) -> requests.RunRequest:
    """What was settled with the session counts for a run that brings nothing of its own."""
    if state is None:
        return asked
    return replace(
        asked,
        model=asked.model or state.model,
        instructions=asked.instructions or state.instructions,
    )
