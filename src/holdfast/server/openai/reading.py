"""Where a run stands, for whoever tells its journal event by event.

Words as they arrive are almost all there is, and change nothing that is told elsewhere. So only the
last of many in a row is folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.events import (
    ModelCalled,
    ModelFailed,
    ModelHeard,
    Recorded,
    RunQueued,
    RunWaiting,
)
from holdfast.core.phase import phase
from holdfast.core.run import fold
from holdfast.core.state import RunState
from holdfast.server.frames import DELTAS
from holdfast.server.one_line import one_line

#: Between what is said before a call and after it.
BLANK = "\n\n"


#: After these a run may wait for something else than before.
_CHANGES = (RunQueued, RunWaiting, ModelCalled, ModelHeard, ModelFailed)


class Reading:
    """Fed the journal from its first event on. `now` knows nothing of the conversation."""

    def __init__(self) -> None:
        self.now = RunState()
        #: When the first event was recorded.
        self.created = 0
        self._words: Recorded | None = None

    def take(self, recorded: Recorded) -> RunState:
        """Where the run stood before this event."""
        if recorded.seq == 1:
            self.created = int(recorded.at)
        if isinstance(recorded.event, DELTAS):
            self._words = recorded
            return self.now
        before = fold(self.now, self._words) if self._words else self.now
        self.now, self._words = replace(fold(before, recorded), messages=()), None
        return before

    @property
    def model(self) -> str:
        """As it was asked for."""
        accepted = self.now.accepted
        return (accepted.asked_model or accepted.models[0].name) if accepted else ""

    @property
    def shaped(self) -> bool:
        """Whether the answer is to have a shape: then clients read it as such, or give up."""
        accepted = self.now.accepted
        models = accepted.models if accepted else ()
        return any("response_format" in choice.options for choice in models)


def waiting(recorded: Recorded, now: RunState) -> bytes:
    """What the run is waiting for now, if that may have changed."""
    awaited = phase(now) if isinstance(recorded.event, _CHANGES) else None
    return comment("run.phase", msgspec.to_builtins(awaited)) if awaited else b""


def comment(name: str, fields: Mapping[str, Any]) -> bytes:
    """A line that no client takes for an event, and a person finds in what came over the line."""
    return b": %b %b\n\n" % (name.encode(), one_line(fields))


def frame(fields: Mapping[str, Any], *, name: str = "") -> bytes:
    data = b"data: %b\n\n" % one_line(fields)
    return b"event: %b\n%b" % (name.encode(), data) if name else data
