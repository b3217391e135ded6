"""Events on their way to the file, encoded before anything happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.codec import Link, encode
from holdfast.core.events import (
    FINAL,
    Event,
    ModelCalled,
    ModelHeard,
    ReasoningStreamed,
    Recorded,
    RunAccepted,
    RunStarted,
    StopRequested,
    TextStreamed,
    ToolProgressed,
    ToolStarted,
)
from holdfast.core.session import Noted
from holdfast.errors import InvalidRequest

#: Bytes of the largest body or blob. SQLite itself takes not much more.
MOST_BYTES = 256 * 1024 * 1024

#: Bytes of a body that stands in its row. A longer one stands among the blobs.
LONG_BODY = 64 * 1024

_ENDS = frozenset(FINAL)

#: What is not written to a full disk: the space that is left is for what is under way to end.
_GOES_ON = (
    RunAccepted,
    RunStarted,
    ModelCalled,
    ModelHeard,
    TextStreamed,
    ReasoningStreamed,
    ToolStarted,
    ToolProgressed,
)

#: What is told of a run in a list does not change with these.
_UNLISTED = (TextStreamed, ReasoningStreamed, ToolProgressed)


def stop_deleted(by: str) -> StopRequested:
    """What becomes of a run that is deleted before it has ended."""
    return StopRequested(by=by, reason="it was deleted")


def stopped(journal: Sequence[Recorded]) -> bool:
    """A stop stands in this part of a journal."""
    return any(isinstance(recorded.event, StopRequested) for recorded in journal)


class Stir(Struct):
    """What happened to a session: what was noted, and whether a list may tell of it."""

    notes: list[Noted] = []
    listed: bool = False


class Batch(Struct, frozen=True, gc=False):
    """Events on their way, with their bodies and the blobs they refer to."""

    events: Sequence[Event]
    bodies: Sequence[bytes]
    blobs: Mapping[str, bytes]
    #: One of them is an end.
    final: bool
    #: The conversation that came with a run.
    history: Sequence[Link] = ()

    @property
    def settles(self) -> bool:
        """It says how something ended, and starts or streams nothing more."""
        return not any(isinstance(event, _GOES_ON) for event in self.events)

    @property
    def listed(self) -> bool:
        """A list may tell of it."""
        return not all(isinstance(event, _UNLISTED) for event in self.events)


def pack_events(
    events: Sequence[Event], blobs: Mapping[str, bytes] = {}, history: Sequence[Link] = ()
) -> Batch:
    """Encoded, so that what cannot be stored is refused before anything happens."""
    bodies = [encode(event) for event in events]
    if len(bodies) == 1 and not blobs and not history and len(bodies[0]) <= MOST_BYTES:
        return Batch(events, bodies, blobs, type(events[0]) in _ENDS)
    parts = (*bodies, *blobs.values(), *(one.body for one in history))
    if max(map(len, parts), default=0) > MOST_BYTES:
        raise InvalidRequest(f"it is larger than {MOST_BYTES} bytes, which cannot be stored")
    return Batch(events, bodies, blobs, not _ENDS.isdisjoint(map(type, events)), history)
