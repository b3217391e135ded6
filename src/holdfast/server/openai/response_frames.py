"""A run's journal as the events of a response.

A frame's number is the seq of its event times a hundred, and its place among that event's frames. So
each frame is a function of the journal and its number, and whoever saw one of them may go on behind
it, from any machine, at any time. An attempt that was given up leaves an item that is incomplete; the
last event lists what stands.
"""

from __future__ import annotations

from holdfast.core.events import (
    ApprovalRequested,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunStarted,
)
from holdfast.server.frames import Fields
from holdfast.server.openai.reading import comment, frame, waiting
from holdfast.server.openai.request import Echo
from holdfast.server.openai.response_items import View
from holdfast.server.openai.response_object import describe

#: Numbers that each event of a journal has for its frames.
ROOM = 100


class ResponseProjection:
    """One reader's view of a run whose last frame was that of number `after`.

    It is fed the journal from its first event on. `echo` is what the request said of itself.
    """

    def __init__(self, run_id: str, *, after: int = 0, echo: Echo | None = None) -> None:
        self._view, self._after, self._echo = View(run_id), after, echo or Echo()

    def frames(self, recorded: Recorded) -> bytes:
        """What the reader is sent for the journal's next event; often nothing."""
        first = recorded.seq * ROOM
        told = self._told(recorded)
        # A reader who was cut off between two frames of one event wants the rest.
        if first + ROOM <= self._after:
            return b""
        frames = [
            frame({**fields, "sequence_number": number}, name=fields["type"])
            for number, fields in enumerate(told, first)
            if number > self._after
        ]
        return b"".join(frames) + self._aside(recorded)

    def _told(self, recorded: Recorded) -> list[Fields]:
        told = self._view.take(recorded)
        if told:
            return told
        match recorded.event:
            case RunAccepted():
                return [self._run("created"), self._run("queued")]
            case RunQueued():
                return [self._run("queued")]
            case RunStarted():
                return [self._run("in_progress")]
            case RunCompleted(incomplete=why):
                return [*self._view.close(), self._run("incomplete" if why else "completed")]
            case RunFailed():
                return [*self._view.close(), self._run("failed")]
            case RunCancelled():
                # This wire has no event for it, but a status; what ends a stream short is this one.
                return [*self._view.close(), self._run("incomplete")]
            case _:
                return []

    def _run(self, what: str) -> Fields:
        return {"type": f"response.{what}", "response": describe(self._view, self._echo)}

    def _aside(self, recorded: Recorded) -> bytes:
        """What this wire has no event for."""
        state = self._view.reading.now
        if isinstance(recorded.event, ApprovalRequested) and state.pending:
            asked = {"run_id": self._view.run_id, "approval_id": recorded.event.approval_id}
            return comment("hermes.approval.request", asked)
        return waiting(recorded, state)
