"""What the server does, without HTTP: take requests in, tell how runs stand, pass wishes on."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Literal, NamedTuple, Protocol

import anyio
from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.calls.tasks import task_group
from holdfast.config import Settings
from holdfast.core.events import FINAL, Recorded
from holdfast.core.run import replay
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.errors import AlreadyAccepted, IllegalEvent, JournalDamaged, KeyReused, RunFinished
from holdfast.ports import Entry, Once
from holdfast.server import requests
from holdfast.server.problems import draining, key_conflict, malformed, too_many
from holdfast.server.status import Status, damaged, last_event, status

#: Seconds that somebody may wait for a run to end in one request.
LONGEST_WAIT = 60.0

#: Runs that are taken in between two looks at how many wait: each look costs more the more wait.
TAKEN_ON_TRUST = 100

#: Runs in one page of a list.
MOST_LISTED = 100

_LIVE = {"queued": True, "running": True, "waiting_for_approval": True, "stopping": True}
_ENDED = {"completed": False, "failed": False, "cancelled": False}


class Submitted(NamedTuple):
    run_id: str
    #: The same request was taken in before.
    replayed: bool


class Page(Struct, frozen=True):
    """Of runs, the newest first. `next` is what to go on with, "" at the end. It may be shorter than
    was asked for though there is more: to find what few runs are takes long."""

    data: Sequence[Status]
    has_more: bool
    next: str
    object: str = "list"


class Reader(Protocol):
    """Somebody who follows a run."""

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
        self, runs: Runs, means: Means, settings: Settings, *, brief: requests.Brief | None = None
    ) -> None:
        self._runs, self._means, self._settings, self._briefing = runs, means, settings, brief
        self._store, self.clock = means.store, means.clock
        #: Set when nothing new is begun any more, and when whoever still reads is left.
        self.draining, self.left = anyio.Event(), anyio.Event()
        #: Runs that are looked at for one page: where few fit a filter, it is short and has a next.
        self.most_looked = 1000
        #: How many runs may be taken in before it is looked again how many wait.
        self._room = 0
        #: Those who follow a run just now.
        self.readers: set[Reader] = set()

    # --- taking in

    async def submit(self, body: bytes, *, principal: str, key: str | None) -> Submitted:
        """Take a request in. Raises Problem or HoldfastError, and then nothing was allocated."""
        key = requests.idempotency_key(key)
        asked = requests.read_run(body)
        admission = requests.accept(
            asked,
            settings=self._settings,
            tools=[tool.spec for tool in self._means.tools.values()],
            principal=principal,
            brief=self._briefing,
        )
        # Only the hash is kept: some clients send as a key what is a secret elsewhere.
        hashed = sha256(key.encode()).hexdigest() if key else ""
        once = Once(principal, hashed, requests.fingerprint(body)) if key else None
        # A request that was taken in is answered as it was, whatever the state of things now.
        if once and (earlier := await self._earlier(once)):
            return Submitted(earlier, replayed=True)
        await self._make_room()
        run, history, blobs = admission
        try:
            run_id = await self._runs.accept(run, history=history, blobs=blobs, once=once)
        except AlreadyAccepted as error:
            return Submitted(error.run_id, replayed=True)
        except KeyReused as error:
            raise key_conflict() from error
        return Submitted(run_id, replayed=False)

    async def _earlier(self, once: Once) -> str | None:
        try:
            return await self._store.accepted(once)
        except KeyReused as error:
            raise key_conflict() from error

    async def _make_room(self) -> None:
        if self.draining.is_set():
            raise draining()
        if not self._room:
            most = self._settings.max_queued_runs
            self._room = min(most - (await self._store.census()).queued, TAKEN_ON_TRUST)
            if self._room <= 0:
                self._room = 0
                raise too_many(f"{most} runs are waiting for their turn already", retry_after=1)
        self._room -= 1

    # --- how things stand

    async def status(self, run_id: str, *, wait: float = 0.0) -> Status:
        """How the run stands, once it has ended or that many seconds have passed."""
        journal = await self._store.read(run_id)
        if wait and not isinstance(journal[-1].event, FINAL):
            await self._end(run_id, after=journal[-1].seq, seconds=min(wait, LONGEST_WAIT))
            journal = await self._store.read(run_id)
        return await self._status(run_id, journal)

    async def _end(self, run_id: str, *, after: int, seconds: float) -> None:
        """Until it has ended, that long, or as long as there is a server."""
        with anyio.move_on_after(seconds):
            async with task_group() as tasks:
                tasks.start_soon(self._leave, tasks.cancel_scope)
                async with aclosing(self._store.follow(run_id, after=after)) as events:
                    async for _ in events:
                        pass
                tasks.cancel_scope.cancel()

    async def _leave(self, waiting: anyio.CancelScope) -> None:
        await self.left.wait()
        waiting.cancel()

    async def _status(self, run_id: str, journal: Sequence[Recorded]) -> Status:
        told = status(
            run_id, replay(journal), created_at=journal[0].at, last_event=last_event(journal)
        )
        if told.status != "queued":
            return told
        queue = await self._store.queue()
        return replace(told, place=queue.index(run_id) + 1) if run_id in queue else told

    async def list(self, query: Mapping[str, str]) -> Page:
        """Raises Problem for a filter that is none, NotFound for a cursor that is none."""
        limit, wanted = _limit(query.get("limit")), query.get("status", "")
        if wanted and wanted not in _LIVE | _ENDED:
            known = ", ".join(_LIVE | _ENDED)
            raise malformed(f"status must be one of {known}", param="status")
        found: list[Status] = []
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
                told = await self._brief(entry)
                if not wanted or told.status == wanted:
                    found.append(told)
        page = found[:limit]
        last = page[-1].run_id if len(found) > limit else before
        rest = len(found) > limit or more
        return Page(data=page, has_more=rest, next=last if rest else "")

    async def _brief(self, entry: Entry) -> Status:
        """As far as the ends of its journal tell, if it has ended; else as it stands."""
        if not isinstance(entry.last.event, FINAL):
            try:
                return await self._status(entry.run_id, await self._store.read(entry.run_id))
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
        await self._runs.add(run_id, requests.read_steer(body), by=principal)

    async def stop(
        self, run_id: str, body: bytes, *, principal: str
    ) -> Literal["stopping", "ended"]:
        """Raises NotFound; a run that has ended is said to have."""
        try:
            await self._runs.stop(run_id, by=principal, reason=requests.read_stop(body))
        except RunFinished:
            if self._settings.server.stop_ended == 200:
                return "ended"
            raise
        return "stopping"


def _limit(value: str | None) -> int:
    try:
        limit = int(value or 20)
    except ValueError:
        limit = 0
    if not 1 <= limit <= MOST_LISTED:
        raise malformed(f"limit must be a number from 1 to {MOST_LISTED}", param="limit")
    return limit
