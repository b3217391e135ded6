"""Being told to end in the middle of work that nothing else watches over: leave, by the way out.

What was begun is cleaned up on that way, and what is done stays done. Where a run is carried it is
`interrupts` that listens.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def leaving() -> Iterator[None]:
    """Signals raise here what ends the process, as a shell expects it."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        for number in heard:
            signal.signal(number, _leave)
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


def _leave(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
