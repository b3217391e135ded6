"""An event loop on which waiting costs nothing.

Whenever every task is asleep the clock jumps to the next timer, so a test of a
fifteen-minute timeout takes a millisecond, and an assertion on time is exact.

Time stands still while anything is ready to run, while a socket has something to
say, and while a call made with `run_in_executor` is at work. Other threads and other
processes cannot be seen: a test that waits for those wants the ordinary loop.
"""

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_Ready = list[tuple[selectors.SelectorKey, int]]

#: A byte sent over loopback may take this long to arrive, in real seconds.
_IN_FLIGHT = 0.001


class Deadlock(BaseException):
    """Every task waits, and nothing can wake one. Not an Exception: it ends the test."""

    def __init__(self, waited: float, tasks: list[str]) -> None:
        waiting = "".join(f"\n  {task}" for task in tasks) or " nobody"
        super().__init__(
            f"nothing is scheduled and nothing has happened for {waited:g} real seconds; "
            f"if a thread or a process is at work, use the ordinary loop; waiting:{waiting}"
        )
        self.tasks = tasks


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock starts at 0 and moves only by jumping to a timer.

    Raises Deadlock when no timer is left and no I/O has come for `patience` real
    seconds. A timer at infinity is no timer: time never jumps there.
    """

    def __init__(self, *, patience: float = 5.0) -> None:
        self._now = 0.0
        self._patience = patience
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._working: set[asyncio.Future[Any]] = set()
        super().__init__(_JumpingSelector(self._wait))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if when < math.inf:
            heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def run_in_executor(
        self, executor: Any, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        future = super().run_in_executor(executor, func, *args)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (asyncio's own signature; a limit on this clock would pass at once)
        joining = self.create_future()
        self._working.add(joining)
        await super().shutdown_default_executor()
        self._working.remove(joining)

    def _wait(self, selector: selectors.BaseSelector, timeout: float | None) -> _Ready:
        """Stand in for a selector's `select`: what is ready, or nothing and a later clock."""
        if timeout == 0:
            return selector.select(0)
        # The loop's own wake-up socket is always there; any other may have a peer.
        others = len(selector.get_map()) > 1
        if ready := selector.select(_IN_FLIGHT if others else 0):
            return ready
        if self._working:
            return selector.select(self._patience)
        if self._jump():
            return []
        if ready := selector.select(self._patience):
            return ready
        raise Deadlock(self._patience, sorted(map(describe_task, asyncio.all_tasks(self))))

    def _jump(self) -> bool:
        """Move the clock to the next timer that is still wanted, if there is one."""
        while self._timers:
            when, _, handle = self._timers[0]
            if when > self._now and not handle.cancelled():
                self._now = when
                # The loop runs what is due within this much of now. Its usual nanosecond is
                # lost in rounding once the clock has gone on by months: nothing would be due.
                self._clock_resolution = max(1e-9, math.ulp(when))
                return True
            heapq.heappop(self._timers)
        return False


class _JumpingSelector(selectors.BaseSelector):
    """A real selector, except that `wait` decides how long it waits."""

    def __init__(self, wait: Callable[[selectors.BaseSelector, float | None], _Ready]) -> None:
        self._real = selectors.DefaultSelector()
        self._wait = wait

    def select(self, timeout: float | None = None) -> _Ready:
        return self._wait(self._real, timeout)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def describe_task(task: asyncio.Task[Any]) -> str:
    """A task's name and the calls it is waiting in, outermost first."""
    calls = " > ".join(
        f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        for frame in _frames(task.get_coro())
    )
    return f"{task.get_name()}: {calls or 'finished'}"


def _frames(awaited: Any) -> Iterator[FrameType]:
    while frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None):
        yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
