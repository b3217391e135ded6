"""Blocking work in a thread, which goes on there if whoever waits for it is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, get_native_id
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

from holdfast.ports import Leaving

_Result = TypeVar("_Result")


async def abandoned(
    work: Callable[[], _Result], *, limiter: anyio.CapacityLimiter, tool: str, left: Leaving
) -> _Result:
    """What comes of work that only reads. On a cancel its thread is left, and `left` is told so."""
    watched = _Watched(work)
    try:
        return await anyio.to_thread.run_sync(watched, abandon_on_cancel=True, limiter=limiter)
    finally:
        if thread := watched.leave():
            left(f"thread {thread} of tool {tool}: still running", watched.going)


class _Watched(Generic[_Result]):
    """Work that knows which thread is at it."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work, self._lock = work, Lock()
        self._thread, self._left = 0, False

    def __call__(self) -> _Result:
        with self._lock:
            if self._left:
                # Nobody is told of a thread that begins so late.
                raise InterruptedError
            self._thread = get_native_id()
        try:
            return self._work()
        finally:
            self._thread = 0

    def leave(self) -> int:
        """Nobody waits for it any more. The thread that goes on, 0 if none does or will."""
        with self._lock:
            self._left = True
            return self._thread

    def going(self) -> bool:
        return bool(self._thread)
