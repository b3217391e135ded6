"""What has not ended, kept in memory: where each run is, who holds it, and whose turn it is.

Changed by the writer's thread alone, inside its transactions; one that fails leaves it as it was
before. What says so may be asked beside that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy

from msgspec import Struct

from holdfast.ports import Census


class Run(Struct, gc=False):
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
    session: str = ""
    ordinal: int = 0
    #: Nobody can make sense of it, and those behind it need not wait for it.
    aside: bool = False
    #: It is carried to its end, and nobody else is to find it.
    deleted: bool = False
    #: Its session was deleted meanwhile. Should that come back, this one is being stopped all the same.
    gone: bool = False
    #: It is to end. What was to before the file was opened is ended at once, and not marked.
    stopping: bool = False


class Roster:
    def __init__(self) -> None:
        #: All of them, those that wait to be claimed, and those of each session.
        self.runs: dict[str, Run] = {}
        self.waiting: dict[str, Run] = {}
        self._sessions: dict[str, dict[str, Run]] = {}
        #: Those that were set aside.
        self._aside: dict[str, Run] = {}
        self._before: dict[str, Run | None] = {}

    # --- transactions

    def begin(self) -> None:
        self._before = {}

    def undo(self) -> None:
        """The transaction failed: nothing of it was."""
        for run_id, run in self._before.items():
            if gone := self.runs.get(run_id):
                self.drop(gone)
            if run:
                self.put(run)
        self.begin()

    def add(self, run: Run) -> None:
        """A run that was not there before this transaction."""
        self._before[run.id] = None
        self.put(run)

    def change(self, run: Run) -> None:
        """To be called before a run is changed, so that it can be changed back."""
        if run.id not in self._before:
            self._before[run.id] = copy(run)

    def put(self, run: Run) -> None:
        self.runs[run.id] = run
        if run.session:
            self._sessions.setdefault(run.session, {})[run.id] = run
        if run.place == "ready" and not run.holder:
            self.waiting[run.id] = run
        self.set_aside(run, run.aside)

    def drop(self, run: Run) -> None:
        """It has ended."""
        del self.runs[run.id]
        self.waiting.pop(run.id, None)
        self._aside.pop(run.id, None)
        if run.session:
            live = self._sessions[run.session]
            del live[run.id]
            if not live:
                del self._sessions[run.session]

    def set_aside(self, run: Run, aside: bool) -> None:
        """Nobody can make sense of it, or somebody can again."""
        run.aside = aside
        if aside:
            self._aside[run.id] = run
        else:
            self._aside.pop(run.id, None)

    # --- looking

    def aside(self) -> Collection[str]:
        """Those that were set aside. May be asked at any time: a copy is made in one step."""
        return self._aside.copy()

    def of(self, session_id: str) -> Sequence[Run]:
        """Those of a session, in no order."""
        return list(self._sessions.get(session_id, {}).values())

    def front(self, session_id: str) -> Run | None:
        """The run of the session whose turn it is."""
        live = self._sessions.get(session_id, {}).values() if session_id else ()
        turns = (run for run in live if not run.aside)
        return min(turns, key=lambda run: run.ordinal, default=None)

    def sessions(self) -> Sequence[str]:
        """Those with runs that have not ended."""
        return list(self._sessions)

    def put_off(self) -> Sequence[Run]:
        """Runs that were put off for a while, though it is their turn, and others come after them."""
        fronts = map(self.front, self._sessions)
        return [run for run in fronts if run and run.place == "ready" and not run.timed]

    def in_turn(self, now: float) -> list[Run]:
        """What is ready, the longest ready first."""
        ready = (run for run in self.waiting.values() if run.ready_at <= now)
        return sorted(ready, key=lambda run: (run.ready_at, run.key))

    def orphans(self, now: float) -> Sequence[str]:
        """Those that are in somebody's hands whose time is up."""
        taken = (run for run in self.runs.values() if run.holder or run.place == "held")
        return [run.id for run in taken if run.until <= now]

    def held(self, run_ids: Collection[str], now: float) -> frozenset[str]:
        """Those that are in living hands. May be asked at any time."""
        runs = (self.runs.get(id) for id in run_ids)
        return frozenset(run.id for run in runs if run and run.holder and run.until > now)

    def next_ready(self, now: float, *, least: float) -> float | None:
        """May be asked at any time: a copy is made in one step."""
        waits = (max(run.ready_at - now, least) for run in self.waiting.copy().values())
        return min(waits, default=None)

    def census(self, now: float) -> Census:
        """May be asked at any time."""
        ready = (run for run in self.waiting.copy().values() if not run.stopping)
        queued = sum(run.ready_at <= now for run in ready)
        for live in self._sessions.copy().values():
            if len(live) > 1:
                # One that is to be stopped does not wait behind the others any more.
                queued += sum(run.place == "behind" and not run.holder for run in [*live.values()])
        runs = self.runs.copy().values()
        stopping = sum(run.stopping for run in runs)
        held = sum(bool(run.holder) and not run.stopping for run in runs)
        return Census(queued, max(len(runs) - queued, held + stopping), held, stopping)
