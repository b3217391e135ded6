"""Many runs at once, any one of which can be stopped, and none of which harms another.

A run is a cancel scope. Stopping it is: the wish is written down, then its scope is
cancelled. Nothing else closes a connection or ends a task, so when a stream breaks while no
scope was cancelled, it really was the network.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from holdfast.core.lease import Lease, Tenure
from holdfast.core.messages import storable
from holdfast.engine.driver import Driver
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe
from holdfast.errors import LeaseLost, StoreError, StoreFull, StoreUnavailable, WishPending

#: Seconds for a run that was cut off to write its end, store permitting.
LAST_WORDS = 5.0

_log = logging.getLogger(__name__)


@dataclass
class LiveRun:
    """A run this process holds. `lost` once it may no longer write."""

    lease: Lease
    tenure: Tenure
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    scribe: Scribe | None = None
    lost: bool = False


class Supervisor:
    def __init__(self, means: Means, tasks: TaskGroup) -> None:
        self._means, self._tasks = means, tasks
        self._live: dict[str, LiveRun] = {}
        #: Set, and replaced, whenever a run has left.
        self.left = anyio.Event()

    @property
    def live(self) -> Mapping[str, LiveRun]:
        return self._live

    def start(self, lease: Lease, tenure: Tenure) -> None:
        """Carry this run until it ends, rests or is lost."""
        live = LiveRun(lease, tenure)
        self._live[lease.run_id] = live
        self._tasks.start_soon(self._supervise, live, name=f"run {lease.run_id}")

    async def look(self, run_id: str) -> None:
        """Something was wished for this run: learn what. A stop takes effect here."""
        live = self._live.get(run_id)
        if live is None or live.scribe is None:
            return
        await live.scribe.catch_up()
        if live.scribe.state.stopping:
            live.scope.cancel()

    def lose(self, run_id: str) -> None:
        """The run may belong to another worker by now: drop it, unwritten."""
        if live := self._live.get(run_id):
            live.lost = True
            live.scope.cancel()

    def let_go(self) -> None:
        """Cut every run off where it is, to be taken up again by whoever comes next."""
        for live in self._live.values():
            live.scope.cancel()

    async def _supervise(self, live: LiveRun) -> None:
        try:
            await self._carry(live)
        except (LeaseLost, StoreFull, StoreUnavailable) as error:
            # What was written last may not be known, or there is no room for more: its lease runs
            # out, and whoever can write again takes it up.
            _log.warning("run %s is left to be rescued: %s", live.lease.run_id, error)
        except Exception as error:  # noqa: BLE001 - one run's trouble is its own
            _log.exception("run %s stumbled", live.lease.run_id)
            await self._set_aside(live, error)
        finally:
            del self._live[live.lease.run_id]
            self.left.set()
            self.left = anyio.Event()

    async def _carry(self, live: LiveRun) -> None:
        again: float | None = None
        with live.scope:
            live.scribe = await Scribe.open(self._means.store, live.lease)
            driver = Driver(live.scribe, self._means)
            while True:
                again = await driver.drive()
                if await self._release(live, again):
                    return
        if not live.lost:
            with anyio.move_on_after(LAST_WORDS, shield=True):
                await self._last_words(live)

    async def _last_words(self, live: LiveRun) -> None:
        """The scope was cancelled. What the journal says tells whether it was a stop or a farewell."""
        scribe = live.scribe = live.scribe or await Scribe.open(self._means.store, live.lease)
        if not scribe.state.stopping:
            await scribe.catch_up()
        await Driver(scribe, self._means).wind_down()
        await scribe.give_back("drained", worker=live.lease.worker)
        await self._release(live, 0.0)

    async def _release(self, live: LiveRun, again: float | None) -> bool:
        """Let go, unless something was wished meanwhile; then it is in the state."""
        assert live.scribe is not None
        try:
            await self._means.store.release(live.lease, seen=live.scribe.state.seq, ready_in=again)
        except WishPending:
            await live.scribe.catch_up()
            return False
        return True

    async def _set_aside(self, live: LiveRun, error: Exception) -> None:
        """Put a run that stumbled back in the queue, a little later each time."""
        detail = storable(f"{type(error).__name__}: {error}")[:1000]
        try:
            with anyio.move_on_after(LAST_WORDS, shield=True):
                scribe = live.scribe = await Scribe.open(self._means.store, live.lease)
                await scribe.give_back("tripped", worker=live.lease.worker, detail=detail)
                while not await self._release(live, min(2.0**scribe.state.rescues, 60.0)):
                    pass
        except StoreError:
            _log.warning("run %s is left to be rescued", live.lease.run_id)
