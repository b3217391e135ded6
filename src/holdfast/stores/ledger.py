"""What the writer thread knows and does: who holds which run, and how rows are written.

What writes runs in the one thread that does, so checking and writing are one step; what does not
may run beside it, where it says so, or elsewhere while that thread is idle. What is
not ended is kept in memory; a lease is a matter of this process, which alone owns the file,
and needs no row. A transaction that fails leaves memory as it was before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

import apsw

from holdfast.core.events import InputAdded, Recorded, RunAccepted, StopRequested
from holdfast.core.lease import Lease
from holdfast.core.luggage import Carried
from holdfast.core.messages import lone
from holdfast.core.session import Noted, SessionDeleted, SessionEvent, last_wish
from holdfast.errors import (
    AlreadyAccepted,
    Conflict,
    InvalidRequest,
    LeaseLost,
    NotFound,
    RunFinished,
    RunStopping,
    SessionBusy,
    StoreFull,
    WishPending,
)
from holdfast.ports import Census, Once
from holdfast.stores import sessions
from holdfast.stores.batch import LONG_BODY, Batch, Stir, pack_events, stopped
from holdfast.stores.intake import take_session
from holdfast.stores.keeping import collect, keep, purge_runs
from holdfast.stores.reading import KEPT, find, find_once, link, live_runs, read
from holdfast.stores.roster import Roster, Run

#: Seconds until whoever wants to carry a run may ask again while the disk is full.
FULL_PAUSE = 1.0

#: Rows that one statement writes.
_AT_ONCE = (64, 16, 4, 1)

_EVENTS = "insert into event (run, seq, at, body, long, sum) values {}"
_PLACES = "update run set place = column2, epoch = column3 from (values {}) where run.key = column1"


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
        self._roster = Roster()
        #: The disk is full: nothing new begins, and what is under way may end.
        self.full = False
        #: Written by the transaction under way: for whoever follows, once it is committed. Of a run
        #: that was deleted, or whose session was, nothing, so that they look for themselves.
        self.written: dict[str, Sequence[Recorded]] = {}
        self.changed: dict[str, None] = {}
        self.stirred: dict[str, Stir] = {}
        self._rows: list[tuple[object, ...]] = []
        #: Where runs are now, and under which lease they were held last, by their keys.
        self._places: dict[int, tuple[str, int]] = {}
        #: How many runs have ended since the file was opened.
        self.ended = 0
        self._load()

    # --- transactions

    def begin(self) -> None:
        self._roster.begin()
        self.written, self.changed, self.stirred = {}, {}, {}
        self._rows, self._places = [], {}

    def flush(self) -> None:
        """Put the rows of this transaction where they belong, all at once."""
        rows, self._rows = self._rows, []
        places, self._places = self._places, {}
        _put(self._db, _EVENTS, rows)
        _put(self._db, _PLACES, [(key, *where) for key, where in places.items()])

    def undo(self) -> None:
        """The transaction failed: nothing of it was."""
        self._roster.undo()
        self.begin()

    # --- the journal

    def accept(
        self,
        run_id: str,
        batch: Batch,
        once: Once | None = None,
        alone: bool = False,
        stop: Batch | None = None,
    ) -> Recorded:
        self._refuse_known(once)
        self._need_room(settles=batch.settles)
        if self._known(run_id):
            raise Conflict(f"run {run_id} already exists")
        first = batch.events[0]
        assert isinstance(first, RunAccepted)
        front = self._roster.front(first.session_id)
        ordinal = self._join(run_id, first, front if alone else None)
        if front and stop:
            self._wish(front, stop, front.seq)
        place = "behind" if front else "ready"
        self._db.execute(
            "insert into run (id, place, accepted_at, ready_at, ready_in, session, ordinal)"
            " values (?, ?, ?, ?, 0, ?, ?)",
            (run_id, place, self._now(), self._now(), first.session_id, ordinal),
        )
        if once:
            self._remember(once, run_id)
        run = Run(
            run_id,
            self._db.last_insert_rowid(),
            seq=0,
            sum=b"",
            epoch=0,
            place=place,
            ready_at=self._clock(),
            session=first.session_id,
            ordinal=ordinal,
        )
        self._roster.add(run)
        self.changed[run_id] = None
        return self._write(run, batch)[-1]

    def _join(self, run_id: str, first: RunAccepted, busy: Run | None) -> int:
        if not first.session_id:
            return 0
        self.flush()
        if busy:
            raise SessionBusy(first.session_id, busy.id)
        ordinal, notes = sessions.join(self._db, run_id, first, at=self._now())
        self._stir(first.session_id, notes)
        return ordinal

    def _refuse_known(self, once: Once | None) -> None:
        if once and not once.latest and (earlier := find_once(self._db, once, now=self._now())):
            raise AlreadyAccepted(earlier)

    def _remember(self, once: Once, run_id: str) -> None:
        now = self._now()
        self._db.execute("delete from once where at < ?", (now - KEPT,))
        self._db.execute(
            "insert or replace into once values (?, ?, ?, ?, ?)",
            (once.principal, once.key, once.fingerprint, run_id, now),
        )

    def append(self, lease: Lease, batch: Batch, seen: int) -> Sequence[Recorded]:
        run = self._live(lease.run_id, deleted=True)
        if not _holds(lease, run):
            raise LeaseLost(lease.run_id)
        if batch.final and run.seq > seen:
            raise WishPending(lease.run_id)
        self._need_room(settles=batch.settles)
        if run.place != "held":
            self._hold(run)
        return self._tell(run, batch, seen)

    def wish(
        self, run_id: str, batch: Batch, seen: int, once: Once | None = None
    ) -> Sequence[Recorded]:
        self._refuse_known(once)
        run = self._live(run_id)
        message = any(isinstance(event, InputAdded) for event in batch.events)
        if message and stopped(self._past(run, seen)):
            raise RunStopping(run_id)
        if once:
            self._remember(once, run_id)
        return self._wish(run, batch, seen)

    def _wish(self, run: Run, batch: Batch, seen: int) -> Sequence[Recorded]:
        self._roster.change(run)
        stops = any(isinstance(event, StopRequested) for event in batch.events)
        again = stops and run.stopping
        news = self._past(run, seen) if again else self._tell(run, batch, seen)
        run.wished, run.stopping = run.seq, run.stopping or stops
        # One that is to be stopped need not wait for its turn to end.
        if not run.holder and (run.place != "behind" or stops):
            self._ready(run, 0.0)
        self.changed[run.id] = None
        return news

    def delete(self, run_id: str, stop: Batch, by: str) -> None:
        key, _ = find(self._db, run_id)
        self._db.execute(
            "update run set deleted_at = ?, deleted_by = ? where key = ?", (self._now(), by, key)
        )
        if run := self._roster.runs.get(run_id):
            self._wish(run, stop, run.seq)
            run.deleted = True
        self.written[run_id] = ()

    # --- sessions

    def note(self, session_id: str, events: Sequence[SessionEvent]) -> Sequence[Noted]:
        self._need_room(settles=isinstance(events[0], SessionDeleted))
        self.flush()
        notes = sessions.write_notes(self._db, session_id, events, at=self._now())
        self._stir(session_id, notes)
        for deleted in events:
            if isinstance(deleted, SessionDeleted):
                for run in self._roster.of(session_id):
                    self._wish(run, pack_events((last_wish(deleted),)), run.seq)
                    run.gone = True
                self.written |= dict.fromkeys(sessions.run_ids(self._db, session_id), ())
        return notes

    def _stir(self, session_id: str, notes: Sequence[Noted] = (), *, listed: bool = True) -> None:
        stir = self.stirred.setdefault(session_id, Stir())
        stir.notes += notes
        stir.listed = stir.listed or listed

    def take_in(self, session_id: str, notes: Sequence[Noted], runs: Sequence[Carried]) -> None:
        self._need_room()
        self.flush()
        take_session(self._db, session_id, notes, runs)
        self._stir(session_id)

    def purge(self, before: float) -> Mapping[str, Sequence[str]]:
        """Returns what is gone: sessions with their runs, and runs that were in none."""
        # What was written just before is to go, too, and not to come after.
        self.flush()
        runs = purge_runs(self._db, before=before)
        return {**sessions.purge(self._db, before=before), **dict.fromkeys(runs, ())}

    def _promote(self, session_id: str) -> None:
        """Whose turn it is now may begin, if it has not."""
        front = self._roster.front(session_id)
        if front and front.place == "behind":
            self._roster.change(front)
            self._ready(front, 0.0)
            self.changed[front.id] = None

    # --- leases

    def claim(self, worker: str, *, ttl: float, limit: int) -> Sequence[Lease]:
        if self.full:
            return ()
        ready = self._roster.in_turn(self._clock())
        return [self._grant(run, worker, ttl) for run in ready[:limit]]

    def seize(self, run_id: str, worker: str, *, ttl: float) -> Lease | None:
        run = self._roster.runs.get(run_id)
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

    def held(self, run_ids: Collection[str]) -> frozenset[str]:
        """May be asked beside whatever else is done, like `next_ready` and `census`."""
        return self._roster.held(run_ids, self._clock())

    def release(
        self,
        lease: Lease,
        *,
        seen: int,
        ready_in: float | None,
        timed: bool = False,
        aside: bool = False,
    ) -> None:
        run = self._held(lease)
        if run is None:
            return
        if run.wished > seen and ready_in != 0:
            raise WishPending(lease.run_id)
        self._roster.change(run)
        run.holder, run.until = "", 0.0
        self._roster.set_aside(run, aside)
        if aside:
            self._promote(run.session)
        if ready_in is not None:
            self._ready(run, ready_in, timed=timed)
            self.changed[run.id] = None
        elif run.place != "resting":
            self._places[run.key] = ("resting", run.epoch)
            run.place = "resting"

    def next_ready(self) -> float | None:
        # While the disk is full nobody gets anything, and looking all the time would not help.
        return self._roster.next_ready(self._clock(), least=FULL_PAUSE if self.full else 0.0)

    def queue(self) -> Sequence[str]:
        return [run.id for run in self._roster.in_turn(self._clock())]

    def census(self) -> Census:
        return self._roster.census(self._clock())

    def aside(self) -> Collection[str]:
        """May be asked beside whatever else is done."""
        return self._roster.aside()

    def orphans(self) -> Sequence[str]:
        return () if self.full else self._roster.orphans(self._clock())

    def _need_room(self, *, settles: bool = False) -> None:
        if self.full and not settles:
            raise StoreFull("there is no space left for the journal; nothing new is begun")

    def collect(self, start: str) -> None:
        """Remove blobs that nobody uses, as many as can be looked at in one go."""
        collect(self._db, start)

    # --- rows

    def _tell(self, run: Run, batch: Batch, seen: int) -> Sequence[Recorded]:
        """Write it, and return everything past `seen`."""
        if run.seq == seen:
            return self._write(run, batch)
        past = self._past(run, seen)
        return [one for one in (*past, *self._write(run, batch)) if one.seq > seen]

    def _write(self, run: Run, batch: Batch) -> Sequence[Recorded]:
        self._roster.change(run)
        at, key, seq, chain = self._now(), run.key, run.seq, run.sum
        written = []
        for event, body in zip(batch.events, batch.bodies, strict=True):
            seq += 1
            chain = link(chain, seq, at, body)
            if len(body) > LONG_BODY:
                long = sha256(body).hexdigest()
                keep(self._db, key, {long: body})
                self._rows.append((key, seq, at, None, long, chain))
            else:
                self._rows.append((key, seq, at, body, None, chain))
            written.append(Recorded(seq, at, event, body))
        run.seq, run.sum = seq, chain
        if batch.blobs or batch.history:
            keep(self._db, key, batch.blobs, (batch.history,))
        if batch.final:
            self._places[key] = ("ended", run.epoch)
            # Nobody has anything more to do with it: whoever held it has let go.
            self._roster.drop(run)
            self.ended += 1
            self._promote(run.session)
        if run.session:
            self._stir(run.session, listed=batch.listed)
        earlier = self.written.get(run.id)
        told = [*earlier, *written] if earlier else written
        self.written[run.id] = () if run.deleted or run.gone else told
        return written

    def _hold(self, run: Run) -> None:
        self._roster.change(run)
        self._places[run.key] = ("held", run.epoch)
        run.place = "held"

    def _ready(self, run: Run, seconds: float, *, timed: bool = False) -> None:
        self._places.pop(run.key, None)
        self._db.execute(
            "update run set place = 'ready', ready_at = ?, ready_in = ?, timed = ? where key = ?",
            (self._now() + seconds, seconds, timed, run.key),
        )
        run.place, run.ready_at, run.timed = "ready", self._clock() + seconds, timed
        self._roster.waiting[run.id] = run

    def _grant(self, run: Run, worker: str, ttl: float) -> Lease:
        due = run.place == "ready" and run.timed and run.ready_at <= self._clock()
        self._roster.change(run)
        run.epoch += 1
        run.holder, run.until = worker, self._clock() + ttl
        self._roster.waiting.pop(run.id, None)
        return Lease(run.id, worker, run.epoch, due=due)

    # --- finding

    def _known(self, run_id: str) -> bool:
        if lone(run_id) is not None:
            raise InvalidRequest("the id of a run cannot hold half a character")
        found = self._db.execute("select 1 from run where id = ?", (run_id,)).get
        return run_id in self._roster.runs or found is not None

    def _live(self, run_id: str, *, deleted: bool = False) -> Run:
        run = self._roster.runs.get(run_id)
        if run is None or (run.deleted and not deleted):
            find(self._db, run_id, deleted=deleted)
            raise RunFinished(run_id)
        return run

    def _held(self, lease: Lease) -> Run | None:
        run = self._roster.runs.get(lease.run_id)
        return run if run and _holds(lease, run) else None

    def _past(self, run: Run, seen: int) -> Sequence[Recorded]:
        """What comes after `seen`. Read before anything is written: or it could not be told."""
        if run.seq < seen:
            return ()
        self.flush()
        return read(self._db, run.key, after=seen)

    def _load(self) -> None:
        """What had not ended when the file was last written. Whoever held a run then is gone."""
        # All at once: what was adopted half-way would be adopted again.
        with self._db:
            sessions.adopt(self._db)
        clock = self._clock()
        for run in live_runs(self._db, now=self._now(), clock=clock):
            self._roster.put(run)
        for run in self._roster.put_off():
            # It may have been set aside, and then nobody need wait for it once that is seen again.
            run.ready_at = clock
        with self._db:
            for session_id in self._roster.sessions():
                self._promote(session_id)
        self.begin()


def _put(db: apsw.Connection, statement: str, rows: list[tuple[object, ...]]) -> None:
    """By few statements: with each the interpreter changes hands twice, and a crowd has many rows."""
    for many in _AT_ONCE:
        while len(rows) >= many:
            values = [value for row in rows[:many] for value in row]
            db.execute(_worded(statement, len(rows[0]), many), values)
            del rows[:many]


@lru_cache
def _worded(statement: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.format(", ".join([row] * rows))


def _holds(lease: Lease, run: Run) -> bool:
    return bool(run.holder) and run.epoch == lease.epoch
