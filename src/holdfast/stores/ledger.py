"""What the writer thread knows and does: who holds which run, and how rows are written.

What writes runs in the one thread that does, so checking and writing are one step; what does not
may run beside it, where it says so, or elsewhere while that thread is idle. What is
not ended is kept in memory; a lease is a matter of this process, which alone owns the file,
and needs no row. A transaction that fails leaves memory as it was before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from hashlib import sha256

import apsw
from msgspec import Struct

from holdfast.core.codec import encode
from holdfast.core.events import (
    FINAL,
    Event,
    ModelCalled,
    ModelHeard,
    ReasoningStreamed,
    Recorded,
    RunAccepted,
    RunStarted,
    TextStreamed,
    ToolProgressed,
    ToolStarted,
)
from holdfast.core.lease import Lease, remaining
from holdfast.core.messages import lone
from holdfast.errors import (
    AlreadyAccepted,
    Conflict,
    InvalidRequest,
    LeaseLost,
    NotFound,
    RunFinished,
    StoreFull,
    WishPending,
)
from holdfast.ports import Census, Once
from holdfast.stores.reading import KEPT, find_once, link, read

#: Bytes of a body that stands in its row. A longer one stands among the blobs.
LONG_BODY = 64 * 1024

#: Seconds until whoever wants to carry a run may ask again while the disk is full.
FULL_PAUSE = 1.0

#: Bytes of the largest body or blob. SQLite itself takes not much more.
MOST_BYTES = 256 * 1024 * 1024

#: Blobs that are looked at in one go, to see whether they are still used.
COLLECTED = 1000

_FROM_HERE_ON = (
    "select sha256 from blob where sha256 >= ? order by sha256 limit ?",
    "select sha256 from blob where sha256 < ? order by sha256 limit ?",
)

_FORGET = (
    "delete from blob where sha256 = ?"
    " and not exists (select 1 from blob_use where blob_use.sha256 = blob.sha256)"
    " and not exists (select 1 from event where event.long = blob.sha256)"
)

_INSERT = "insert into event (run, seq, at, body, long, sum) values (?, ?, ?, ?, ?, ?)"

_ENDS = frozenset(FINAL)

#: What is not written to a full disk: the space that is left is for what is under way to end.
_GOES_ON = (
    RunAccepted,
    RunStarted,
    ModelCalled,
    ModelHeard,
    TextStreamed,
    ReasoningStreamed,
    ToolStarted,
    ToolProgressed,
)


class Batch(Struct, frozen=True, gc=False):
    """Events on their way, with their bodies and the blobs they refer to."""

    events: Sequence[Event]
    bodies: Sequence[bytes]
    blobs: Mapping[str, bytes]
    #: One of them is an end.
    final: bool

    @property
    def settles(self) -> bool:
        """It says how something ended, and starts or streams nothing more."""
        return not any(isinstance(event, _GOES_ON) for event in self.events)


def pack_events(events: Sequence[Event], blobs: Mapping[str, bytes] = {}) -> Batch:
    """Encoded, so that what cannot be stored is refused before anything happens."""
    bodies = [encode(event) for event in events]
    if len(bodies) == 1 and not blobs and len(bodies[0]) <= MOST_BYTES:
        return Batch(events, bodies, blobs, type(events[0]) in _ENDS)
    if max(map(len, (*bodies, *blobs.values()) if blobs else bodies), default=0) > MOST_BYTES:
        raise InvalidRequest(f"it is larger than {MOST_BYTES} bytes, which cannot be stored")
    return Batch(events, bodies, blobs, not _ENDS.isdisjoint(map(type, events)))


class _Run(Struct, gc=False):
    """One run that has not ended, as last committed or as this transaction will leave it."""

    id: str
    key: int
    seq: int
    sum: bytes
    epoch: int
    place: str
    holder: str = ""
    until: float = 0.0
    ready_at: float = 0.0
    timed: bool = False
    #: The seq of the last wish, to tell whether its holder has seen it.
    wished: int = 0


class Ledger:
    """`now` is wall time; `clock` is monotonic, and what leases and readiness run on."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._db, self._now, self._clock = connection, now, clock
        #: What has not ended, and those of them that wait to be claimed.
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, _Run] = {}
        self._before: dict[str, _Run | None] = {}
        #: The disk is full: nothing new begins, and what is under way may end.
        self.full = False
        #: Written by the transaction under way: for whoever follows, once it is committed.
        self.written: dict[str, Sequence[Recorded]] = {}
        self.changed: dict[str, None] = {}
        self._rows: list[tuple[object, ...]] = []
        self._load()

    # --- transactions

    def begin(self) -> None:
        self._before = {}
        self.written, self.changed = {}, {}
        self._rows = []

    def flush(self) -> None:
        """Put the rows of this transaction where they belong, all at once."""
        if self._rows:
            self._db.executemany(_INSERT, self._rows)
            self._rows = []

    def undo(self) -> None:
        """The transaction failed: nothing of it was."""
        for run_id, run in self._before.items():
            self._runs.pop(run_id, None)
            self._waiting.pop(run_id, None)
            if run:
                self._put(run)
        self.begin()

    def _put(self, run: _Run) -> None:
        self._runs[run.id] = run
        if run.place == "ready" and not run.holder:
            self._waiting[run.id] = run

    def _change(self, run: _Run) -> None:
        """To be called before a run is changed, so that it can be changed back."""
        if run.id not in self._before:
            self._before[run.id] = copy(run)

    # --- the journal

    def accept(self, run_id: str, batch: Batch, once: Once | None = None) -> Recorded:
        if once and (earlier := find_once(self._db, once, now=self._now())):
            raise AlreadyAccepted(earlier)
        if self.full:
            self._need_room(batch)
        if self._known(run_id):
            raise Conflict(f"run {run_id} already exists")
        first = batch.events[0]
        session = first.session_id if isinstance(first, RunAccepted) else ""
        self._db.execute(
            "insert into run (id, place, accepted_at, ready_at, ready_in, session)"
            " values (?, 'ready', ?, ?, 0, ?)",
            (run_id, self._now(), self._now(), session),
        )
        if once:
            self._remember(once, run_id)
        key = self._db.last_insert_rowid()
        run = _Run(run_id, key, seq=0, sum=b"", epoch=0, place="ready", ready_at=self._clock())
        self._before[run_id] = None
        self._put(run)
        self.changed[run_id] = None
        return self._write(run, batch)[-1]

    def _remember(self, once: Once, run_id: str) -> None:
        now = self._now()
        self._db.execute("delete from once where at < ?", (now - KEPT,))
        self._db.execute(
            "insert or replace into once values (?, ?, ?, ?, ?)",
            (once.principal, once.key, once.fingerprint, run_id, now),
        )

    def append(self, lease: Lease, batch: Batch, seen: int) -> Sequence[Recorded]:
        run = self._live(lease.run_id)
        if not _holds(lease, run):
            raise LeaseLost(lease.run_id)
        if batch.final and run.seq > seen:
            raise WishPending(lease.run_id)
        if self.full:
            self._need_room(batch)
        if run.place != "held":
            self._hold(run)
        return self._tell(run, batch, seen)

    def wish(self, run_id: str, batch: Batch, seen: int) -> Sequence[Recorded]:
        run = self._live(run_id)
        news = self._tell(run, batch, seen)
        run.wished = run.seq
        if not run.holder:
            self._ready(run, 0.0)
        self.changed[run_id] = None
        return news

    # --- leases

    def claim(self, worker: str, *, ttl: float, limit: int) -> Sequence[Lease]:
        if self.full:
            return ()
        return [self._grant(run, worker, ttl) for run in self._in_turn()[:limit]]

    def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        run = self._runs.get(run_id)
        if run is None and not self._known(run_id):
            raise NotFound("run", run_id)
        if run is None or (run.holder and run.until > self._clock()):
            return None
        return self._grant(run, worker, ttl)

    def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, int]:
        held = {}
        for lease in leases:
            if run := self._held(lease):
                run.until = self._clock() + ttl
                held[run.id] = run.seq
        return held

    def release(
        self, lease: Lease, *, seen: int, ready_in: float | None, timed: bool = False
    ) -> None:
        run = self._held(lease)
        if run is None:
            return
        if run.wished > seen and ready_in != 0:
            raise WishPending(lease.run_id)
        self._change(run)
        run.holder, run.until = "", 0.0
        if ready_in is not None:
            self._ready(run, ready_in, timed=timed)
            self.changed[run.id] = None
        elif run.place != "resting":
            self._db.execute("update run set place = 'resting' where key = ?", (run.key,))
            run.place = "resting"

    def next_ready(self) -> float | None:
        """May be asked beside whatever else is done, like `census`."""
        # While the disk is full nobody gets anything, and looking all the time would not help.
        now, least = self._clock(), FULL_PAUSE if self.full else 0.0
        waits = (max(run.ready_at - now, least) for run in self._waiting.copy().values())
        return min(waits, default=None)

    def queue(self) -> Sequence[str]:
        return [run.id for run in self._in_turn()]

    def census(self) -> Census:
        """May be asked beside whatever else is done: a copy is made in one step."""
        now = self._clock()
        queued = sum(run.ready_at <= now for run in self._waiting.copy().values())
        return Census(queued, max(len(self._runs) - queued, 0))

    def _in_turn(self) -> list[_Run]:
        """What is ready, the longest ready first."""
        now = self._clock()
        ready = (run for run in self._waiting.values() if run.ready_at <= now)
        return sorted(ready, key=_by_turn)

    def orphans(self) -> Sequence[str]:
        if self.full:
            return ()
        now = self._clock()
        return [
            run.id
            for run in self._runs.values()
            if (run.holder or run.place == "held") and run.until <= now
        ]

    def _need_room(self, batch: Batch) -> None:
        if not batch.settles:
            raise StoreFull("there is no space left for the journal; nothing new is begun")

    def collect(self, start: str) -> None:
        """Remove blobs that no run uses. Looks at some, from this name on and then from the first.

        Names are hashes: whoever begins somewhere else each time has soon looked at all of them.
        """
        looked = [
            name
            for query in _FROM_HERE_ON
            for (name,) in self._db.execute(query, (start, COLLECTED)).fetchall()
        ]
        self._db.executemany(_FORGET, [(name,) for name in looked[:COLLECTED]])

    # --- rows

    def _tell(self, run: _Run, batch: Batch, seen: int) -> Sequence[Recorded]:
        """Write it, and return everything past `seen`."""
        if run.seq == seen:
            return self._write(run, batch)
        past = self._past(run, seen)
        return [one for one in (*past, *self._write(run, batch)) if one.seq > seen]

    def _write(self, run: _Run, batch: Batch) -> Sequence[Recorded]:
        self._change(run)
        at, key, seq, chain = self._now(), run.key, run.seq, run.sum
        written = []
        for event, body in zip(batch.events, batch.bodies, strict=True):
            seq += 1
            chain = link(chain, seq, at, body)
            if len(body) > LONG_BODY:
                long = sha256(body).hexdigest()
                self._keep(run, {long: body})
                self._rows.append((key, seq, at, None, long, chain))
            else:
                self._rows.append((key, seq, at, body, None, chain))
            written.append(Recorded(seq, at, event, body))
        run.seq, run.sum = seq, chain
        if batch.blobs:
            self._keep(run, batch.blobs)
        if batch.final:
            self._db.execute("update run set place = 'ended' where key = ?", (key,))
            # Nobody has anything more to do with it: whoever held it has let go.
            del self._runs[run.id]
        earlier = self.written.get(run.id)
        self.written[run.id] = [*earlier, *written] if earlier else written
        return written

    def _keep(self, run: _Run, blobs: Mapping[str, bytes]) -> None:
        for name, body in blobs.items():
            self._db.execute("insert or ignore into blob values (?, ?)", (name, body))
            self._db.execute("insert or ignore into blob_use values (?, ?)", (name, run.key))

    def _hold(self, run: _Run) -> None:
        self._change(run)
        self._db.execute(
            "update run set place = 'held', epoch = ? where key = ?", (run.epoch, run.key)
        )
        run.place = "held"

    def _ready(self, run: _Run, seconds: float, *, timed: bool = False) -> None:
        self._db.execute(
            "update run set place = 'ready', ready_at = ?, ready_in = ?, timed = ? where key = ?",
            (self._now() + seconds, seconds, timed, run.key),
        )
        run.place, run.ready_at, run.timed = "ready", self._clock() + seconds, timed
        self._waiting[run.id] = run

    def _grant(self, run: _Run, worker: str, ttl: float) -> Lease:
        due = run.place == "ready" and run.timed and run.ready_at <= self._clock()
        self._change(run)
        run.epoch += 1
        run.holder, run.until = worker, self._clock() + ttl
        self._waiting.pop(run.id, None)
        return Lease(run.id, worker, run.epoch, due=due)

    # --- finding

    def _known(self, run_id: str) -> bool:
        if lone(run_id) is not None:
            raise InvalidRequest("the id of a run cannot hold half a character")
        found = self._db.execute("select 1 from run where id = ?", (run_id,)).get
        return run_id in self._runs or found is not None

    def _live(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise RunFinished(run_id) if self._known(run_id) else NotFound("run", run_id)
        return run

    def _held(self, lease: Lease) -> _Run | None:
        run = self._runs.get(lease.run_id)
        return run if run and _holds(lease, run) else None

    def _past(self, run: _Run, seen: int) -> Sequence[Recorded]:
        """What comes after `seen`. Read before anything is written: or it could not be told."""
        if run.seq < seen:
            return ()
        self.flush()
        return read(self._db, run.key, after=seen)

    def _load(self) -> None:
        """What had not ended when the file was last written. Whoever held a run then is gone."""
        now, clock = self._now(), self._clock()
        rows = self._db.execute(
            "select run.key, id, place, epoch, ready_at, ready_in, timed, seq, sum"
            " from run join event"
            " on event.run = run.key and seq ="
            " (select max(seq) from event as last where last.run = run.key)"
            " where place != 'ended'"
        )
        for key, id, place, epoch, ready_at, ready_in, timed, seq, chain in rows:
            wait = remaining(ready_at - ready_in, ready_in, now=now) if place == "ready" else 0.0
            run = _Run(
                id=id,
                key=key,
                seq=seq,
                sum=chain,
                epoch=epoch,
                # Should it have become anything else, it is an orphan's, and somebody looks after it.
                place=place if place in ("ready", "resting") else "held",
                ready_at=clock + wait,
                timed=bool(timed),
            )
            self._put(run)


def _by_turn(run: _Run) -> tuple[float, int]:
    return run.ready_at, run.key


def _holds(lease: Lease, run: _Run) -> bool:
    return bool(run.holder) and run.epoch == lease.epoch
