"""What was committed lately, at hand for whoever reads it a moment later.

Of each journal the newest events, without a gap up to the last that was committed: whoever asks for
more is referred to the file. All of it has a bound; the journals that were written to longest ago are
forgotten first, and a long one keeps only its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import inf
from typing import Generic, TypeVar

from msgspec import Struct

from holdfast.core.events import FINAL, Recorded
from holdfast.core.session import Noted

#: Events of runs, or of sessions.
Kept = TypeVar("Kept", Recorded, Noted)

#: Bytes of all that is kept, about; the part of them that one run may take up; and what was written
#: at once, which may be a long reply: whoever reads it shares this one, or has one of their own.
MOST = 32 * 1024 * 1024
SHARE = 1 / 8
LARGEST = 1 / 2

#: Bytes that a run and an event take up, about, beside the bodies. A body counts twice: as bytes,
#: and as the event in it.
_RUN = 500
_EVENT = 300


def beginning(events: Sequence[Kept], most: float) -> Sequence[Kept]:
    """Those that make up `most` bytes, or all of them."""
    for count, recorded in enumerate(events, 1) if most < inf else ():
        most -= len(recorded.body)
        if most <= 0:
            return events[:count]
    return events


class _Tail(Struct, Generic[Kept], gc=False):
    """The newest events of a journal."""

    events: list[Kept]
    size: int


class Recent(Generic[Kept]):
    def __init__(self, *, most: int = MOST) -> None:
        self._most, self._share, self._largest = most, most * SHARE, most * LARGEST
        self._tails: OrderedDict[str, _Tail[Kept]] = OrderedDict()
        #: Bytes of all that is kept, about.
        self.size = 0

    def keep(self, run_id: str, events: Sequence[Kept]) -> None:
        """These were committed, right after what was kept of this run before."""
        if not events:
            return
        size = sum(_EVENT + 2 * len(recorded.body) for recorded in events)
        tail = self._tails.get(run_id)
        if tail is None or tail.size + size > self._share:
            self.forget(run_id)
            if _RUN + size > self._largest:
                return
            tail = self._tails[run_id] = _Tail([], _RUN)
            self.size += _RUN
        tail.events += events
        tail.size += size
        self.size += size
        self._tails.move_to_end(run_id)
        while self.size > self._most:
            self.forget(next(iter(self._tails)))

    def past(
        self, run_id: str, after: int, *, limit: int | None = None, most: float = inf
    ) -> Sequence[Kept] | None:
        """Everything past `after`, or the first of it, or None if that is not all at hand. The first
        are `limit`, or those that make up `most` bytes."""
        tail = self._tails.get(run_id)
        if tail is None or (first := tail.events[0].seq) > after + 1:
            return None
        start = after + 1 - first
        return beginning(tail.events[start : None if limit is None else start + limit], most)

    def ended(self, run_id: str) -> bool:
        """Whether the run is known here to have ended."""
        tail = self._tails.get(run_id)
        return tail is not None and isinstance(tail.events[-1].event, FINAL)

    def forget(self, run_id: str) -> None:
        """Keep nothing of it."""
        if tail := self._tails.pop(run_id, None):
            self.size -= tail.size
