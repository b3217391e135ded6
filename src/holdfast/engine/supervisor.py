"""Many runs at once, any one of which can be stopped, and none of which harms another.

A run is a cancel scope. Stopping it is: the wish is written down, then its scope is
cancelled. Nothing else closes a connection or ends a task, so when a stream breaks while no
scope was cancelled, it really was the network. The scope's deadline is the end of the
worker's tenure: a run that is not renewed in time is dropped before anyone else may have it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

import anyio
from anyio.abc import TaskGroup

from holdfast.calls.foreign import no_stray_cancel, told
from holdfast.core.lease import Lease, Tenure
from holdfast.engine.driver import Again, Driver
from holdfast.engine.means import Means
from holdfast.engine.rescue import LEFT_ALONE, UNSEEN
from holdfast.engine.scribe import Scribe
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    StoreError,
    StoreFull,
    StoreUnavailable,
    WishPending,
)

#: Runs that need not share; seconds that each one more lets words gather, and the most of that.
FEW = 8
SHARE = 0.0005
LONGEST_PACE = 0.1

#: Seconds after which a run for which there was no space is looked at again.
FULL_PAUSE = 1.0

#: Seconds for a run that was cut off to write its end.
LAST_WORDS = 5.0

_log = logging.getLogger(__name__)


class LiveRun:
    """A run this process holds. `lost` once it may no longer write."""

    def __init__(self, lease: Lease, tenure: Tenure) -> None:
        self.lease = lease
        self.scope = anyio.CancelScope(deadline=tenure.over_at)
        self.scribe: Scribe | None = None
        self.driver: Driver | None = None
        self.lost = False
        #: Set when something may have been wished for it; and whether somebody waits for that.
        self.told = asyncio.Event()
        self.heeded = False

    def renewed(self, tenure: Tenure) -> None:
        self.scope.deadline = tenure.over_at

    @property
    def over(self) -> bool:
        """It may belong to another worker by now."""
        return self.lost or anyio.current_time() >= self.scope.deadline


class Supervisor:
    """`left` is called whenever a run has left, with whether it has ended."""

    def __init__(self, means: Means, tasks: TaskGroup, left: Callable[[bool], None]) -> None:
        self._means, self._tasks, self._left = means, tasks, left
        self._live: dict[str, LiveRun] = {}
        self._gone = asyncio.Event()

    @property
    def live(self) -> Mapping[str, LiveRun]:
        return self._live

    def start(self, lease: Lease, tenure: Tenure) -> None:
        """Carry this run until it ends, rests or is lost."""
        live = LiveRun(lease, tenure)
        # It may still be on its way out under an older lease; that one writes nothing more.
        self._live[lease.run_id] = live
        self._tasks.start_soon(self._supervise, live, name=f"run {lease.run_id}")

    def tell(self, run_id: str) -> None:
        """Something may have been wished for this run. It finds out for itself, in its own time."""
        if live := self._live.get(run_id):
            live.told.set()
            self._listen(live)

    def lose(self, run_id: str) -> None:
        """The run may belong to another worker by now: drop it, unwritten."""
        if live := self._live.get(run_id):
            live.lost = True
            live.scope.cancel()

    def let_go(self) -> None:
        """Cut every run off where it is, to be taken up again by whoever comes next."""
        for live in self._live.values():
            live.scope.cancel()

    async def emptied(self) -> None:
        """Wait until there is no run left."""
        while self._live:
            await self._gone.wait()

    async def _supervise(self, live: LiveRun) -> None:
        try:
            with no_stray_cancel(RuntimeError):
                await self._carry(live)
        except (LeaseLost, StoreUnavailable) as error:
            # What was written last may not be known: its lease runs out, and whoever can write
            # again takes it up.
            _warn(live, "is left to be rescued: %s", error)
        except StoreFull as error:
            _warn(live, "waits for space: %s", error)
            await self._lay_down(live)
        except Exception as error:  # noqa: BLE001 - one run's trouble is its own
            _log.exception("run %s stumbled", live.lease.run_id, extra=_about(live))
            await self._set_aside(live, error)
        finally:
            if self._live.get(live.lease.run_id) is live:
                del self._live[live.lease.run_id]
            self._gone.set()
            self._gone = asyncio.Event()
            self._left(live.scribe is not None and live.scribe.state.status.final)

    async def _carry(self, live: LiveRun) -> None:
        with live.scope:
            scribe = live.scribe = await Scribe.open(
                self._means.store, live.lease, self._means.secrets
            )
            scribe.pace = self._pace
            driver = live.driver = Driver(scribe, self._means)
            begun = partial(self._listen, live)
            while not await self._release(scribe, await driver.drive(begun)):
                pass
            # Whatever is wished from now on is for others to see to.
            live.lost = True
            return
        if not live.over:
            with anyio.move_on_after(LAST_WORDS, shield=True):
                await self._last_words(live)

    def _pace(self) -> float:
        """Few see their words at once; a crowd gathers them, a little longer the more there are."""
        crowd = len(self._live) - FEW
        return min(crowd * SHARE, LONGEST_PACE) if crowd > 0 else 0.0

    def _listen(self, live: LiveRun) -> None:
        """Most runs end without a wish, and need nobody to wait for one."""
        if live.told.is_set() and live.driver and not live.heeded:
            live.heeded = live.driver.accompany(self._heed, live)

    async def _heed(self, live: LiveRun) -> None:
        """Learn what is wished for the run, as one hears of it. A stop takes effect here."""
        assert live.scribe is not None
        try:
            while True:
                await live.told.wait()
                live.told = asyncio.Event()
                await live.scribe.catch_up()
                if live.scribe.state.stopping:
                    live.scope.cancel()
        finally:
            live.heeded = False

    async def _last_words(self, live: LiveRun) -> None:
        """The scope was cancelled. What the journal says tells whether it was a stop or a farewell."""
        scribe = live.scribe or await Scribe.open(
            self._means.store, live.lease, self._means.secrets
        )
        scribe.limit = LAST_WORDS
        if not scribe.state.stopping:
            await scribe.catch_up()
        # The one that carried it knows what was ended on the way.
        await (live.driver or Driver(scribe, self._means)).wind_down()
        await scribe.give_back("drained", worker=live.lease.worker)
        await self._release(scribe, Again(0.0, seen=scribe.state.seq))

    async def _release(self, scribe: Scribe, again: Again) -> bool:
        """Let go, unless something was wished meanwhile; then it is in the state.

        Not abandoned half-way: nobody would know whose it is.
        """
        if scribe.state.status.final:
            return True  # its end has let go of it
        try:
            with anyio.move_on_after(scribe.limit, shield=True):
                await self._means.store.release(
                    scribe.lease,
                    seen=again.seen,
                    ready_in=again.seconds,
                    timed=again.timed,
                )
                return True
        except WishPending:
            await scribe.catch_up()
            return False
        raise StoreUnavailable(f"the store did not let go of it for {scribe.limit:g} s")

    async def _lay_down(self, live: LiveRun) -> None:
        """Let go of it, to be claimed as soon as there is space. If not even that fits, it is left
        to be rescued."""
        try:
            with anyio.move_on_after(LAST_WORDS, shield=True):
                await self._means.store.release(live.lease, seen=UNSEEN, ready_in=FULL_PAUSE)
        except StoreError as error:
            _warn(live, "is left to be rescued: %s", error)

    async def _set_aside(self, live: LiveRun, error: Exception) -> None:
        """Put a run that stumbled back in the queue, a little later each time."""
        words = f"{type(error).__name__}: {told(error)}"[:1000]
        detail = self._means.secrets.mask_cut(words)
        try:
            with anyio.move_on_after(LAST_WORDS, shield=True):
                scribe = await Scribe.open(self._means.store, live.lease, self._means.secrets)
                scribe.limit = LAST_WORDS
                await scribe.give_back("tripped", worker=live.lease.worker, detail=detail)
                while not await self._release(scribe, _later(scribe)):
                    pass
        except (LeaseLost, StoreFull, StoreUnavailable):
            _warn(live, "is left to be rescued")
        except HoldfastError:
            # Its very journal makes no sense. Nothing is added to it.
            await self._leave_alone(live)

    async def _leave_alone(self, live: LiveRun) -> None:
        try:
            with anyio.move_on_after(LAST_WORDS, shield=True):
                await self._means.store.release(
                    live.lease, seen=UNSEEN, ready_in=LEFT_ALONE, aside=True
                )
        except StoreError as error:
            _warn(live, "is left to be rescued: %s", error)


def _later(scribe: Scribe) -> Again:
    """A little later each time."""
    return Again(min(2.0**scribe.state.rescues, 60.0), seen=scribe.state.seq)


def _warn(live: LiveRun, words: str, *more: object) -> None:
    _log.warning(f"run %s {words}", live.lease.run_id, *more, extra=_about(live))


def _about(live: LiveRun) -> dict[str, str]:
    return {"run_id": live.lease.run_id}
