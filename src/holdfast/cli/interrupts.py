"""Being told to stop: politely once, then at once.

The handlers are Python's own and not the event loop's, so that the second signal works even
when the loop is stuck.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

import anyio

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """The first signal sets `came`; any further one calls `leave` with the code to exit with."""

    def __init__(self, leave: Callable[[int], object]) -> None:
        self._leave = leave
        self._first: signal.Signals | None = None
        self.came = anyio.Event()

    @property
    def code(self) -> int:
        """What a shell expects of a process that was told to end by this signal."""
        return 128 + (self._first or signal.SIGINT)

    @property
    def name(self) -> str:
        return "Ctrl-C" if self._first == signal.SIGINT else "SIGTERM"

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._first:
            self._leave(128 + number)
            return
        self._first = signal.Signals(number)
        self._loop.call_soon_threadsafe(self.came.set)
