"""A process that claims runs, carries them, and lets go of them in good order.

A worker holds each run by a lease that it keeps renewing. When it cannot, it drops the run
before anyone else may take it. Trouble with the store is waited out; it never ends the
worker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from holdfast.calls.tasks import task_group
from holdfast.core.lease import Tenure
from holdfast.engine.means import Means
from holdfast.engine.notify import pass_on
from holdfast.engine.rescue import rescue
from holdfast.engine.supervisor import Supervisor
from holdfast.errors import StoreError

#: Seconds between two looks for runs to claim when nothing hints at one.
POLL = 30.0

_log = logging.getLogger(__name__)


class Worker:
    """`only`: carry these runs and no others, for a worker that has its store to itself."""

    def __init__(
        self,
        means: Means,
        *,
        name: str,
        capacity: int = 1000,
        ttl: float = 10.0,
        drain: float = 30.0,
        only: Container[str] | None = None,
    ) -> None:
        self._means, self._store = means, means.store
        self.name = name
        self._capacity, self._ttl, self._drain = capacity, ttl, drain
        self._only = only
        self._bell = anyio.Event()
        #: More may be ready than there was room for, so that a run that ends leaves room to be used.
        self._full = False
        self._leaving = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Work until told to leave, then let go of everything that does not end in time."""
        async with task_group() as tasks:
            supervisor = Supervisor(self._means, tasks, self._look_again)
            claims, claimed = anyio.CancelScope(), anyio.Event()
            tasks.start_soon(self._keep_claiming, supervisor, claims, claimed)
            tasks.start_soon(self._keep_on, lambda: self._renew(supervisor), self._ttl / 3)
            tasks.start_soon(self._keep_on, lambda: self._rescue(supervisor), self._ttl / 2)
            tasks.start_soon(pass_on, self._store, supervisor, self._ring)
            task_status.started()
            await self._leaving.wait()
            claims.cancel()
            # What is being claimed right now has to be let go of, too.
            await claimed.wait()
            with anyio.move_on_after(self._drain):
                await supervisor.emptied()
            supervisor.let_go()
            await supervisor.emptied()
            tasks.cancel_scope.cancel()

    def leave(self, *, drain: float | None = None) -> None:
        """Take nothing more, and let go of what is left after `drain` seconds."""
        if drain is not None:
            self._drain = drain
        self._leaving.set()

    async def _keep_claiming(
        self, supervisor: Supervisor, scope: anyio.CancelScope, done: anyio.Event
    ) -> None:
        with scope:
            while True:
                bell = self._bell
                wait, self._full = POLL, True
                try:
                    self._full = await self._claim(supervisor)
                    if len(supervisor.live) < self._capacity:
                        soon = await self._store.next_ready()
                        wait = POLL if soon is None else min(soon, POLL)
                except StoreError as error:
                    _log.warning("cannot claim runs: %s", error)
                    wait = 1.0
                with anyio.move_on_after(wait):
                    await bell.wait()
        done.set()

    async def _claim(self, supervisor: Supervisor) -> bool:
        """Take what is ready. True if there may be more than there was room for."""
        room = self._capacity - len(supervisor.live)
        if room <= 0:
            return True
        asked = anyio.current_time()
        # Not cancelled half-way: a lease that was granted has to reach the supervisor. One
        # that takes longer than it would last is worth nothing.
        with anyio.move_on_after(self._ttl, shield=True):
            leases = await self._store.claim(self.name, ttl=self._ttl, limit=room)
            for lease in leases:
                # Any other is held and not touched: nothing on record says that it was taken.
                if self._only is None or lease.run_id in self._only:
                    supervisor.start(lease, Tenure(self._ttl, asked))
            return len(leases) >= room
        return True

    async def _renew(self, supervisor: Supervisor) -> None:
        live = list(supervisor.live.values())
        asked = anyio.current_time()
        held = None
        if live:
            with anyio.move_on_after(self._ttl / 3):
                held = await self._store.renew([run.lease for run in live], ttl=self._ttl)
        if held is None:
            return
        for run in live:
            seq = held.get(run.lease.run_id)
            if seq is None:
                supervisor.lose(run.lease.run_id)
                continue
            run.renewed(Tenure(self._ttl, asked))
            if run.scribe and seq > run.scribe.state.seq:
                supervisor.tell(run.lease.run_id)

    async def _rescue(self, supervisor: Supervisor) -> None:
        for run_id in await rescue(
            self._store, self.name, ttl=self._ttl, live=supervisor.live, only=self._only
        ):
            _log.info(
                "run %s was left by its worker and is queued again",
                run_id,
                extra={"run_id": run_id},
            )

    async def _keep_on(self, action: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await action()
            except StoreError as error:
                _log.warning("the store is in trouble: %s", error)
            await anyio.sleep(seconds)

    def _look_again(self, ended: bool) -> None:
        """A run that has ended leaves nothing to claim but its place, if that was wanting."""
        if self._full or not ended:
            self._ring()

    def _ring(self) -> None:
        self._bell.set()
        self._bell = anyio.Event()
