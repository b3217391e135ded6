"""Runs whose answer nobody has heard to its end, for when the same request comes again.

All of it is gone with the process, and nothing depends on it but whether a client that asks again by
itself is led to the run it began, or begins another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from holdfast.ports import Once

#: Seconds for which somebody may come back. OpenAI's clients wait for ten minutes before they take
#: a line for lost.
COME_BACK = 900.0

#: Requests of which something is remembered, and runs of each.
MOST_REQUESTS = 10_000
MOST_ALIKE = 100


@dataclass
class Answer:
    """What somebody is being told. `whole`: they have been told all of it."""

    whole: bool = False


class Unheard:
    """`inherited` are runs from before this server, which somebody has come back for."""

    def __init__(self, *, requests: int = MOST_REQUESTS, alike: int = MOST_ALIKE) -> None:
        self._requests, self._alike = requests, alike
        self._left: dict[Once, dict[str, float]] = {}
        self._under_way: dict[Once, dict[anyio.Event, None]] = {}
        self.inherited: set[str] = set()

    # --- taking in

    @contextmanager
    def taking(self, once: Once, *, again: bool) -> Iterator[Sequence[anyio.Event]]:
        """This request is being taken in. Yields the ends of those before it, if it came again."""
        under_way = self._under_way.setdefault(once, {})
        # Thousands may ask the same at once, so they are not looked through for nothing.
        before, over = tuple(under_way) if again else (), anyio.Event()
        under_way[over] = None
        try:
            yield before
        finally:
            over.set()
            del under_way[over]
            if not under_way:
                del self._under_way[once]

    # --- answering

    @contextmanager
    def answering(self, once: Once | None, run_id: str) -> Iterator[Answer]:
        """Somebody is told the answer. If not all of it, they may come back for it."""
        answer = Answer()
        try:
            yield answer
        finally:
            if not answer.whole:
                self.leave(once, run_id)

    def leave(self, once: Once | None, run_id: str) -> None:
        """Whoever asked has left. Who has a key is led to the run by that."""
        if once is None or not once.latest:
            return
        # Those of which something was heard last stand last.
        left = self._left.pop(once, {})
        left[run_id] = anyio.current_time()
        _shorten(left, self._alike)
        self._left[once] = left
        _shorten(self._left, self._requests)

    def claim(self, once: Once) -> str | None:
        """The last run of this request that was left, for one who comes back: it is theirs now."""
        left = self._left.pop(once, {})
        while left:
            run_id, at = left.popitem()
            if anyio.current_time() < at + COME_BACK:
                if left:
                    self._left[once] = left
                return run_id
        return None

    def forget(self, once: Once | None, run_id: str) -> bool:
        """Nobody is to be led to this run any more. Whether somebody might have been."""
        left = self._left.get(once, {}) if once else {}
        known = left.pop(run_id, None) is not None
        if once and known and not left:
            del self._left[once]
        return known

    def clear(self, once: Once) -> None:
        """The same is asked afresh: whoever comes back now has not asked for one of those before."""
        self._left.pop(once, None)


def _shorten(kept: dict[Any, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]
