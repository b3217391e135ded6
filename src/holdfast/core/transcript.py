"""What a person is shown of one run: a pure fold of its journal, and nothing that is stored.

Whoever was said to have said something keeps that place: an entry stands where its first event
stands, under an id that no later event changes. Nothing is ever recognised by its words, so two
equal turns are two turns, and a result belongs to the call it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import pile
from holdfast.core.entries import Card, Entry, Notice, Question, Reply, Said, What
from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    InputAdded,
    InputEdited,
    ModelCalled,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.run import fold
from holdfast.core.state import RunState


class Transcript(Struct, frozen=True):
    """One run as shown so far, for whoever follows it while it grows.

    What lies before the last call of a model is settled. What came since may still change.
    """

    run_id: str
    ordinal: int
    state: RunState = RunState()
    settled: tuple[tuple[Entry, ...], ...] = ()
    recent: tuple[Entry, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All there is to show now, in order."""
        if taken_back(self.state):
            return ()
        return (*(entry for piece in self.settled for entry in piece), *self._standing())

    def _standing(self) -> Iterator[Entry]:
        for entry in self.recent:
            look = _LOOKS.get(type(entry))
            seen = look(entry, self.state) if look else entry
            if seen is not None:
                yield seen

    def add(self, *entries: Entry) -> Transcript:
        return replace(self, recent=(*self.recent, *entries))

    def change(self, kind: type[Entry], id: str, **changes: Any) -> Transcript:
        """With other fields in the entry of this id; there may be none, and that is no harm."""
        recent = tuple(
            replace(entry, **changes) if entry.id == id and isinstance(entry, kind) else entry
            for entry in self.recent
        )
        return replace(self, recent=recent)

    def without(self, *ids: str) -> Transcript:
        return replace(self, recent=tuple(entry for entry in self.recent if entry.id not in ids))

    def settle(self) -> Transcript:
        settled = pile.grow(self.settled, tuple(self._standing()))
        return replace(self, settled=settled, recent=())

    def place(self, recorded: Recorded, id: str = "") -> dict[str, Any]:
        """Where an entry stands whose first event this is."""
        return {
            "id": id or f"{self.run_id}.{recorded.seq}",
            "run_id": self.run_id,
            "ordinal": self.ordinal,
            "seq": recorded.seq,
            "at": recorded.at,
        }

    def reply_id(self, turn: int) -> str:
        return f"{self.run_id}.t{turn}"


def grow(transcript: Transcript, recorded: Recorded) -> Transcript:
    """The transcript after one more event of the run. Raises IllegalEvent as `fold` does."""
    before = transcript.state
    transcript = replace(transcript, state=fold(before, recorded))
    tell = _TELLS.get(type(recorded.event))
    return tell(transcript, _Moment(recorded, before)) if tell else transcript


def transcribe(run_id: str, ordinal: int, journal: Iterable[Recorded]) -> tuple[Entry, ...]:
    """All there is to show of a run with this journal, or with this much of it."""
    return reduce(grow, journal, Transcript(run_id, ordinal)).entries


def taken_back(state: RunState) -> bool:
    """Whoever asked took it back before the run began. It is as if nothing had been said.

    A worker may record that it took the run, or even that it is about to call, just after
    that; neither comes to anything.
    """
    began = state.replies or (state.attempt and not state.attempt.late)
    return bool(state.stop and state.stop.removed and not began)


# --- one function an event ---------------------------------------------------------------


class _Moment(NamedTuple):
    """An event in its place, and where the run stood before it."""

    recorded: Recorded
    before: RunState

    @property
    def event(self) -> Any:
        return self.recorded.event


def _accepted(told: Transcript, moment: _Moment) -> Transcript:
    event: RunAccepted = moment.event
    return told.add(Said(parts=event.input, **_given(told, moment, event.message_id)))


def _edited(told: Transcript, moment: _Moment) -> Transcript:
    now = told.state.accepted
    if now is None or now is moment.before.accepted:
        return told
    # Nothing of a run that has not begun is settled, and nothing in it is older.
    return told.change(Said, told.recent[0].id, parts=now.input)


def _added(told: Transcript, moment: _Moment) -> Transcript:
    event: InputAdded = moment.event
    unheard = told.state.inputs is moment.before.inputs
    if unheard and (not told.state.stopping or _is_shown(told, event.message_id)):
        # It was sent twice, under one id.
        return told
    place = _given(told, moment, event.message_id)
    return told.add(Said(parts=event.parts, steered=True, unheard=unheard, **place))


def _is_shown(told: Transcript, message_id: str) -> bool:
    return any(isinstance(entry, Said) and entry.id == message_id for entry in told.entries)


def _given(told: Transcript, moment: _Moment, id: str) -> dict[str, Any]:
    """A place under the id that the sender chose, unless that is taken or ours to give."""
    ours = id.startswith(f"{told.run_id}.") or any(entry.id == id for entry in told.entries)
    return told.place(moment.recorded, "" if ours else id)


def _called(told: Transcript, moment: _Moment) -> Transcript:
    # One that came after a stop is never made, and what became of the stop is still to be told.
    made = told.state.attempt is not moment.before.attempt and not told.state.stopping
    return told.settle() if made else told


def _streamed(told: Transcript, moment: _Moment) -> Transcript:
    """The first words take their place. What they are is looked up when somebody looks."""
    event: TextStreamed | ReasoningStreamed = moment.event
    before, attempt = moment.before.attempt, told.state.attempt
    if attempt is None or not attempt.shown or (before and before.shown):
        return told
    place = told.place(moment.recorded, told.reply_id(event.turn))
    return told.add(Reply(turn=event.turn, partial=True, model=attempt.model, **place))


def _retracted(told: Transcript, moment: _Moment) -> Transcript:
    event: ModelRetracted = moment.event
    return told.without(told.reply_id(event.turn))


def _replied(told: Transcript, moment: _Moment) -> Transcript:
    """The whole reply, in the place of its first words. One that only calls tools has no entry."""
    event: ModelReplied = moment.event
    if told.state.replies == moment.before.replies:
        # It follows from what a newer version did, and cannot be placed.
        return told
    id, attempt = told.reply_id(event.turn), moment.before.attempt
    # What was shown stays as it was shown.
    thought = "".join(attempt.reasoning) if attempt else ""
    whole: dict[str, Any] = {
        "text": event.text,
        "reasoning": thought or "\n\n".join(r.text for r in event.reasoning if r.text),
        "stop": event.stop,
        "model": event.model or (attempt.model if attempt else ""),
        "partial": False,
    }
    if any(entry.id == id for entry in told.recent):
        told = told.change(Reply, id, **whole)
    elif whole["text"] or whole["reasoning"]:
        told = told.add(Reply(turn=event.turn, **whole, **told.place(moment.recorded, id)))
    for call in event.calls:
        place = told.place(moment.recorded, call.id)
        card = Card(
            turn=event.turn, name=call.tool, arguments=call.arguments, state="pending", **place
        )
        told = told.add(card)
    return told


def _tool_started(told: Transcript, moment: _Moment) -> Transcript:
    event: ToolStarted = moment.event
    return told.change(Card, event.call_id, rule=event.rule) if event.rule else told


def _tool_finished(told: Transcript, moment: _Moment) -> Transcript:
    event: ToolFinished = moment.event
    # A call that was cut off was measured by nobody.
    begun = [t.at for t in moment.before.tools if t.call.id == event.call_id and t.starts]
    seconds = event.seconds or (moment.recorded.at - begun[0] if begun else 0.0)
    return told.change(
        Card,
        event.call_id,
        state="done",
        result=event.output,
        outcome=event.outcome,
        error=event.outcome != "ok",
        seconds=max(seconds, 0.0),
        blob=event.blob,
    )


def _requested(told: Transcript, moment: _Moment) -> Transcript:
    if told.state.pending is moment.before.pending:
        # It came after a stop, and is put to nobody.
        return told
    event: ApprovalRequested = moment.event
    return told.add(
        Question(
            call_id=event.call_id,
            tool=event.tool,
            subject=event.subject,
            reason=event.reason,
            doubt=event.doubt,
            expires_at=moment.recorded.at + event.expires if event.expires else 0.0,
            state="pending",
            **told.place(moment.recorded, event.approval_id),
        )
    )


def _answered(told: Transcript, moment: _Moment) -> Transcript:
    if told.state.pending is moment.before.pending:
        return told
    event: ApprovalAnswered = moment.event
    settled = {"state": "answered", "choice": event.choice, "by": event.by}
    return told.change(Question, event.approval_id, **settled)


def _expired(told: Transcript, moment: _Moment) -> Transcript:
    if told.state.pending is moment.before.pending:
        return told
    event: ApprovalExpired = moment.event
    return told.change(Question, event.approval_id, state="expired")


def _queued(told: Transcript, moment: _Moment) -> Transcript:
    event: RunQueued = moment.event
    if event.why == "rescued":
        words = "The worker of this run was not heard of any more, and the run was queued again."
        return _notice(told, moment, "lost", words)
    if event.why == "tripped":
        words = "The worker of this run stumbled over an error, and the run was queued again."
        return _notice(told, moment, "tripped", words)
    return told


def _waiting(told: Transcript, moment: _Moment) -> Transcript:
    event: RunWaiting = moment.event
    lack = "a place at" if event.what == "place" else f"a worker that has the {event.what}"
    told = told.without(*_notices(told, "waiting"))
    return _notice(told, moment, "waiting", f"The run waits for {lack} {event.name}.", event.what)


def _stop(told: Transcript, moment: _Moment) -> Transcript:
    if moment.before.stop:
        return told
    words = f"The run was asked to stop{_who(told.state.stop)}."
    return _notice(told, moment, "stopping", words)


def _cancelled(told: Transcript, _: _Moment) -> Transcript:
    words = f"The run was stopped{_who(told.state.stop)}."
    for id in _notices(told, "stopping"):
        told = told.change(Notice, id, what="stopped", words=words)
    return told


def _failed(told: Transcript, moment: _Moment) -> Transcript:
    event: RunFailed = moment.event
    words = f"The run failed: {event.message.rstrip('.')}."
    return _notice(told, moment, "failed", words, event.code)


def _completed(told: Transcript, moment: _Moment) -> Transcript:
    event: RunCompleted = moment.event
    if not event.incomplete:
        return told
    words = "The model declined to say more."
    if event.incomplete == "length":
        words = "The reply ended at a limit, and may not be all the model had to say."
    return _notice(told, moment, "incomplete", words, event.incomplete)


def _notice(
    told: Transcript, moment: _Moment, what: What, words: str, code: str = ""
) -> Transcript:
    return told.add(Notice(what=what, words=words, code=code, **told.place(moment.recorded)))


def _notices(told: Transcript, what: What) -> tuple[str, ...]:
    notices = (entry for entry in told.recent if isinstance(entry, Notice))
    return tuple(notice.id for notice in notices if notice.what == what)


def _who(stop: StopRequested | None) -> str:
    by = f" by {stop.by}" if stop and stop.by else ""
    return f"{by} ({stop.reason})" if stop and stop.reason else by


_TELLS: Mapping[type[Any], Callable[[Transcript, _Moment], Transcript]] = {
    RunAccepted: _accepted,
    RunQueued: _queued,
    RunWaiting: _waiting,
    ModelCalled: _called,
    TextStreamed: _streamed,
    ReasoningStreamed: _streamed,
    ModelRetracted: _retracted,
    ModelReplied: _replied,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    ApprovalRequested: _requested,
    ApprovalAnswered: _answered,
    ApprovalExpired: _expired,
    StopRequested: _stop,
    InputAdded: _added,
    InputEdited: _edited,
    RunCompleted: _completed,
    RunFailed: _failed,
    RunCancelled: _cancelled,
}


# --- what an entry is by now --------------------------------------------------------------


def _look_said(entry: Said, state: RunState) -> Entry:
    queued = state.status is Status.QUEUED and not state.epoch
    return replace(entry, queued=True) if queued else entry


def _look_reply(entry: Reply, state: RunState) -> Entry:
    if not entry.partial or state.attempt is None:
        return entry
    words = {"text": state.attempt.text, "reasoning": state.attempt.reasoning}
    return replace(entry, **{name: "".join(pieces) for name, pieces in words.items()})


def _look_card(entry: Card, state: RunState) -> Entry:
    if any(pending.request.call_id == entry.id for pending in state.pending):
        return replace(entry, state="asking")
    running = any(state.running(tool) for tool in state.open_tools if tool.call.id == entry.id)
    return replace(entry, state="running") if running else entry


def _look_question(entry: Question, state: RunState) -> Entry:
    asks = any(pending.request.approval_id == entry.id for pending in state.pending)
    return entry if asks or entry.state != "pending" else replace(entry, state="withdrawn")


def _look_notice(entry: Notice, state: RunState) -> Entry | None:
    """A wait is shown as long as it lasts."""
    over = state.waiting is None or not state.status.live
    return None if entry.what == "waiting" and over else entry


_LOOKS: Mapping[type[Any], Callable[[Any, RunState], Entry | None]] = {
    Said: _look_said,
    Reply: _look_reply,
    Card: _look_card,
    Question: _look_question,
    Notice: _look_notice,
}
