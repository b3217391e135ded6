"""What the engine needs from the outside world.

One protocol per neighbour, no wider than the engine's own use of it. The promises are made
here, once; `holdfast.testing.contracts` holds every implementation to them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from holdfast.core.codec import Link
from holdfast.core.events import Choice, Event, Recorded, RunAccepted, StopRequested, Wish
from holdfast.core.lease import Lease
from holdfast.core.luggage import Carried
from holdfast.core.messages import Chunk, Gate, Request, ToolCall, ToolSpec
from holdfast.core.session import Noted, SessionEvent, SessionState
from holdfast.core.state import Grant


class Once(Struct, frozen=True):
    """Says that a request is to be taken in once, however often it comes.

    Whoever asks names a `key` of their own; `fingerprint` tells whether it is the same request.
    `latest`: it may be taken in again, and the key then stands for the run it led to last.
    """

    principal: str
    key: str
    fingerprint: str
    latest: bool = False


class Entry(Struct, frozen=True):
    """A run in a list: how it began, and the last thing that happened to it."""

    run_id: str
    first: Recorded
    last: Recorded


class Member(Struct, frozen=True):
    """A run in its place in a session."""

    ordinal: int
    run_id: str
    ended: bool


class ListPlace(NamedTuple):
    """Where a session stands in a list. It may stand elsewhere later."""

    pinned: bool
    moved_at: float
    session_id: str


class SessionEntry(Struct, frozen=True):
    """A session in a list. `run` tells how it is: the one under way, or else the last. `live` are its
    runs that have not ended. It is `busy` unless all of these were set aside: for them nobody waits."""

    session_id: str
    state: SessionState
    run: Entry | None
    live: int
    busy: bool = False

    @property
    def place(self) -> ListPlace:
        return ListPlace(self.state.pinned, self.state.moved_at, self.session_id)


class Census(Struct, frozen=True):
    """How many runs have not ended: those that wait for their turn, and all others. Of those, `held` are
    carried by a worker and `stopping` are to end; the rest wait for an answer, or for what is missing."""

    queued: int
    running: int
    held: int = 0
    stopping: int = 0


class Journal(Protocol):
    """The append-only record of every run.

    What a call returned or raised is so: an append is finished or refused as a whole, and one that
    has begun is not abandoned because its caller was cancelled.
    """

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
        """Begin a run's journal; the run is ready to be claimed. Raises Conflict if it exists.

        `history` is the conversation whose last link `first` names, the oldest first. What of it came
        with an earlier run is not kept again.

        With `once`, raises AlreadyAccepted if that very request was, and KeyReused if another was
        under that key, for a day; neither if it is the `latest` that counts.

        In the same step a run of a session is added to it, which creates the session if there is none,
        and `stop` is wished for the one whose turn it is. It is not ready before every earlier run of it
        has ended; with `alone`, raises SessionBusy if one has not. Raises SessionGone.
        """
        ...

    async def accepted(self, once: Once) -> str | None:
        """The run that this request led to. Raises KeyReused if it was another request."""
        ...

    async def list(
        self, *, session: str = "", live: bool | None = None, before: str = "", limit: int = 20
    ) -> Sequence[Entry]:
        """Runs, the newest first: all, or of a session, or those that have (not) ended.

        `before` is the run after which to go on, be it deleted or not. Raises NotFound if there is none.
        """
        ...

    async def queue(self) -> Sequence[str]:
        """Runs that are ready and nobody has, in the order in which they will be claimed."""
        ...

    async def census(self) -> Census:
        """How many runs live. To be asked for each run that comes: it costs next to nothing.

        What is being written at this very moment may be counted or not.
        """
        ...

    async def append(
        self,
        lease: Lease,
        *events: Event,
        seen: int,
        blobs: Mapping[str, bytes] = {},
    ) -> Sequence[Recorded]:
        """Write at the end as the run's worker, and return everything past `seen`.

        What comes back includes wishes that slipped in, so whoever writes is caught up. With a final
        event the run is let go of. Raises LeaseLost if the lease's epoch is not the run's, RunFinished
        if it has ended, WishPending if a final event is among `events` and a wish stands past `seen`.
        """
        ...

    async def wish(
        self,
        run_id: str,
        wish: Wish,
        *,
        seen: int = 0,
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
    ) -> Sequence[Recorded]:
        """Write a wish at the end, and return everything past `seen`, the wish last.

        `blobs` are those it refers to, kept in the same transaction; `once` is as for a run that is
        accepted. A run that nobody holds becomes ready to be claimed. While a stop stands that came to
        this store, no other is written. Raises NotFound, RunFinished, and for a message RunStopping
        if a stop stands past `seen`: nobody would hear it.
        """
        ...

    async def delete(self, run_id: str, *, by: str = "") -> None:
        """Have nobody find the run by its id any more. Raises NotFound.

        One that has not ended is asked to stop, in the same step, and is carried to its end. What was
        said in a session stays said there: a run of one stays in its place, and goes with it.
        """
        ...

    async def read(
        self, run_id: str, *, after: int = 0, deleted: bool = False, most: float = inf
    ) -> Sequence[Recorded]:
        """Events with seq > after, in order; `most`: at least the first that make up so many bytes.

        Raises NotFound for an unknown run. One that was deleted, or whose session was, is unknown but
        to whoever says `deleted`: who carries it, or tells what was said in its session.
        """
        ...

    def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        """Like read, but waits for more until the run ends or is deleted. Any number may follow at once.

        Raises StoreUnavailable if nothing more will come, as when the store is closed.
        """
        ...

    def changes(self) -> AsyncGenerator[str, None]:
        """Ids of runs, as wishes for them are recorded or they become ready, from now on.

        A hint: it may come late, twice, or not at all, and nothing may depend on it but speed.
        Raises StoreUnavailable if nothing more will come.
        """
        ...


class Sessions(Protocol):
    """Conversations: which runs they are made of, and what people made of them."""

    async def note(self, session_id: str, *events: SessionEvent) -> Sequence[Noted]:
        """Write at the end of a session's journal, and return what was written.

        With its deletion a stop is wished for every run of it that has not ended, in the same step.
        Raises Conflict if a session is created that there is, NotFound if there is none, SessionGone
        if it was deleted and is not restored by this, and IllegalEvent.
        """
        ...

    async def notes(self, session_id: str, *, after: int = 0) -> Sequence[Noted]:
        """Events of a session with seq > after, in order. Raises NotFound."""
        ...

    async def session(self, session_id: str) -> SessionEntry:
        """How it is, be it deleted or not. Raises NotFound."""
        ...

    async def sessions(
        self,
        *,
        archived: bool | None = False,
        deleted: bool = False,
        text: str = "",
        before: ListPlace | None = None,
        limit: int = 20,
    ) -> Sequence[SessionEntry]:
        """Sessions: those that are pinned first, then by when somebody last said something in them.

        `text` is part of what they are called. `before` is where to go on: the place of a session in
        the list, as it was then.
        """
        ...

    async def members(
        self, session_id: str, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Member]:
        """Runs of a session, the last first: those with an ordinal < before."""
        ...

    def stirs(self, session_id: str) -> AsyncGenerator[None, None]:
        """Something, once and then whenever the session or a run of it may have been written to.

        Whoever reads after it came has read all that was there when it came. Raises StoreUnavailable
        if nothing more will come.
        """
        ...

    def session_changes(self) -> AsyncGenerator[str, None]:
        """Ids of sessions, as their place or how they are told in a list may have changed. A hint."""
        ...

    async def take_in(
        self, session_id: str, notes: Sequence[Noted], runs: Sequence[Carried]
    ) -> None:
        """Keep a session that comes from elsewhere, with its runs, all of it or nothing.

        Every run of it has ended, and stands in its place as `notes` tell. Raises Conflict if the
        session or one of the runs is there.
        """
        ...

    async def purge(self, *, before: float) -> Sequence[str]:
        """Remove sessions that were deleted before that time, with their runs, and runs of no session
        that were. Returns which.

        Not those that have not ended, or of which a run has not. What was asked for once stays known.
        """
        ...


class Leases(Protocol):
    """Who may write a run. Each grant has a higher epoch than any before it."""

    async def claim(self, worker: str, *, ttl: float, limit: int = 1) -> Sequence[Lease]:
        """Take up to `limit` runs that are ready, the longest ready first.

        A lease is `due` if the run was ready because the time it was resting for had come, by a
        clock that nobody can set back.
        """
        ...

    async def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        """Take this very run if nobody holds it, or its holder's time is up. None otherwise."""
        ...

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, int]:
        """Hold on for `ttl` more seconds. Returns the last seq of each run that is still held."""
        ...

    async def held(self, run_ids: Collection[str]) -> frozenset[str]:
        """Those of them that somebody holds, and whose time is not up."""
        ...

    async def release(
        self,
        lease: Lease,
        *,
        seen: int,
        ready_in: float | None,
        timed: bool = False,
        aside: bool = False,
    ) -> None:
        """Let go. The run is ready again after `ready_in` seconds; None: when a wish arrives.

        `timed`: whoever claims it then is told that it is `due`, since that is what it rests for.
        `aside`: nobody can make sense of it, so those behind it in its session need not wait for it.
        Raises WishPending if the run would sleep over a wish past `seen`. Does nothing if the lease
        is lost already.
        """
        ...

    async def next_ready(self) -> float | None:
        """Seconds until a run will be ready that is not yet, None if there is none."""
        ...

    async def orphans(self) -> Sequence[str]:
        """Runs whose holder's time is up."""
        ...


class Blobs(Protocol):
    """Bytes under the hash of their content, written with the event that refers to them."""

    async def blob(self, sha256: str) -> bytes:
        """Raises NotFound."""
        ...

    async def chain(self, sha256: str) -> Sequence[bytes]:
        """The blobs of a conversation up to this one, the oldest first, in one go.

        Raises NotFound, or StoreError if they are no conversation.
        """
        ...


class Store(Journal, Sessions, Leases, Blobs, Protocol):
    """All of them: they share one truth, and are one thing."""


class Model(Protocol):
    """An endpoint as configured."""

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """Yield what comes, then exactly one Done.

        Raises ModelError and nothing else. Closing the generator hangs up.
        """
        ...


class Review(Struct, frozen=True):
    """What a tool makes of a call before anything happens: see ToolCall.

    A review is asked for again when the call is about to start, perhaps after a restart with other
    settings. If it is another one then, to the byte, the call does not start.
    """

    gate: Gate = "auto"
    reason: str = ""
    subject: str = ""
    key: str = ""
    binding: str = ""


class Leaving(Protocol):
    def __call__(self, words: str, going: Callable[[], bool] | None = None) -> None: ...


def _nobody(words: str, going: Callable[[], bool] | None = None) -> None:
    """Who uses a tool outside of a run keeps no receipt."""


class ToolUse(Struct, frozen=True):
    """One execution of a call. `effect_id` is the same however often it is repeated after a crash,
    and no other call has it: a tool that can should hand it on as its idempotency key.

    A tool that is cut off says on its way out, in a sentence each, what of it `ended` and how, and what
    it `left` that goes on; with a function that says whether it does, it is on a later receipt, too.
    """

    arguments: str
    effect_id: str
    progress: Callable[[str], Awaitable[None]]
    ended: Callable[[str], None] = _nobody
    left: Leaving = _nobody


class Tool(Protocol):
    """A thing the model may use."""

    @property
    def spec(self) -> ToolSpec: ...

    def review(self, arguments: str) -> Review:
        """Check the arguments without doing anything. Raises ToolError, which the model is told."""
        ...

    async def run(self, use: ToolUse) -> str:
        """Do it. Raises ToolError for what the model should hear about."""
        ...


@runtime_checkable
class Looks(Protocol):
    """A tool whose calls depend on what lies about, such as the files that a command names."""

    async def contents(self, arguments: str) -> str:
        """What of that a yes to the call is given to, a line each. Raises ToolError.

        It is shown with the binding, and unless it is the same at the start the call does not start.
        """
        ...


class Rulebook(Protocol):
    """Standing answers that outlive a run, kept where people can read and revoke them."""

    def standing(self, run_id: str, accepted: RunAccepted) -> tuple[Grant, ...]:
        """Those that cover this run now."""
        ...

    async def grant(
        self, run_id: str, accepted: RunAccepted, call: ToolCall, scope: Choice, *, by: str
    ) -> None:
        """Have this answer stand: `session` for the run's session, `always` for its workspace.

        Raises StoreError if it cannot be kept.
        """
        ...

    async def forget(self, session_id: str) -> None:
        """Have no answer stand for this session any more: it is gone. Raises StoreError."""
        ...


class Clock(Protocol):
    """Wall time, for what outlives the process. Durations inside it are the event loop's."""

    def __call__(self) -> float: ...
