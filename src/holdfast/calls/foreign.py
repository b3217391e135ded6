"""The edge to code that is not ours: models and tools.

Cancellation is ours alone. A CancelledError that comes out of foreign code while nobody of ours
has cancelled anything is that code's own accident, a future it awaited was cancelled
behind its back, and must not be taken for a stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import anyio

from holdfast.core.messages import storable

#: Characters of an error that are worth keeping.
MOST_WORDS = 4000


@contextmanager
def no_stray_cancel(make: Callable[[str], Exception]) -> Iterator[None]:
    """Turn a cancellation that nobody asked for into an error, made from a sentence."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise make("something it waited for was cancelled behind its back") from error


def cut_off() -> bool:
    """Whether we have cancelled what goes on here, and it was told so."""
    task = asyncio.current_task()
    told_so = task is not None and task.cancelling() > 0
    return told_so and anyio.current_effective_deadline() == -inf


def told(error: BaseException) -> str:
    """What an error says, in words that can be kept, whatever it is made of."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - foreign code, down to its errors
        words = "an error that cannot say what it is"
    return storable(words)[:MOST_WORDS]
