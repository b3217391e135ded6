"""A run's journal as its event stream: for each event the frames that a reader is sent.

Only the last frame of an event has an id, its seq, so whoever is cut off between two frames of
one event gets both again. A frame without an id belongs to the next one that has it.

What a reader gets depends on the journal and the reader's cursor alone, never on what this process
sent before: a stream may be picked up anywhere, from another machine. So what parts
the words of a turn from those of an earlier one goes with each attempt at it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    InputAdded,
    InputEdited,
    ModelCalled,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunStarted,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)
from holdfast.core.messages import ToolCall, plain
from holdfast.core.phase import phase
from holdfast.core.run import fold
from holdfast.core.state import Pending, RunState, ToolState
from holdfast.core.usage import Usage
from holdfast.server.one_line import one_line

#: What each event is called on the stream.
NAMES: Mapping[type[Any], str] = {
    RunAccepted: "run.queued",
    RunQueued: "run.queued",
    RunStarted: "run.started",
    RunWaiting: "run.phase",
    ModelCalled: "run.phase",
    ModelHeard: "run.phase",
    ModelFailed: "run.phase",
    TextStreamed: "message.delta",
    ReasoningStreamed: "reasoning.delta",
    ModelRetracted: "message.retracted",
    ModelReplied: "message.completed",
    ToolStarted: "tool.started",
    ToolProgressed: "tool.progress",
    ToolFinished: "tool.completed",
    ApprovalRequested: "approval.request",
    ApprovalAnswered: "approval.responded",
    ApprovalExpired: "approval.expired",
    StopRequested: "run.stopping",
    InputAdded: "run.steered",
    InputEdited: "run.edited",
    RunCompleted: "run.completed",
    RunFailed: "run.failed",
    RunCancelled: "run.cancelled",
}

#: Comments, which no reader takes for an event.
KEEPALIVE = b": keepalive\n\n"
CLOSED = b": stream closed\n\n"

#: Words as they arrive: there are many of them, and they change nothing else.
DELTAS = (TextStreamed, ReasoningStreamed)

#: For readers that cannot take words back: they see a break rather than words twice.
BREAK = "\n\n[connection lost; starting again]\n\n"
#: Between the words of two turns.
_BLANK = "\n\n"

_MOST_PREVIEW = 120
_MOST_RESULT = 500

#: An attempt at a turn's reply: the turn, and the attempt's number in it.
Try: TypeAlias = tuple[int, int]
Fields: TypeAlias = Mapping[str, Any]


class Used(Struct, frozen=True):
    """Usage, in the words of this API. `cost` is None where a price is not known."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None


class _Delta(Struct, frozen=True):
    """Words, as they are told. Almost all frames are of these, so they get the quickest way out."""

    event: str
    run_id: str
    timestamp: float
    delta: str
    turn: int
    attempt: int


class Projection:
    """One reader's view of a run whose last frame was that of seq `after`.

    It is fed the journal from its first event on, one after another. `retracted` are the
    attempts taken back in what is stored already, as `retracted_attempts` finds them. A reader
    who has seen nothing of them never will; one who has is told to forget it.
    """

    def __init__(
        self, run_id: str, *, after: int = 0, retracted: AbstractSet[Try] = frozenset[Try]()
    ) -> None:
        self._run_id, self._after, self._retracted = run_id, after, retracted
        self._state = RunState()
        #: The last words since then: of many in a row, only when the last came makes a difference.
        self._words: Recorded | None = None
        #: The last reply that had words.
        self._said: Try = (0, 0)
        #: The attempt whose words are arriving.
        self._speaking: Try = (0, 0)
        #: The last attempt of which the reader saw something before it came here.
        self._seen: Try = (0, 0)

    def frames(self, recorded: Recorded) -> bytes:
        """What the reader is sent for the journal's next event; often nothing."""
        event = recorded.event
        if isinstance(event, DELTAS):
            return self._delta(event, recorded)
        before = fold(self._state, self._words) if self._words else self._state
        # Where the run stands does not depend on the conversation, which may be long.
        self._state, self._words = replace(fold(before, recorded), messages=()), None
        if isinstance(event, ModelReplied) and event.text:
            self._said = (event.turn, event.attempt)
        tell = _TELL.get(type(event))
        if tell is None or recorded.seq <= self._after or self._unheard_of(event):
            return b""
        told = tell(_Moment(event, recorded.at, before, self._state))
        if not told:
            return b""
        early = b"".join(self._early(recorded, fields) for fields in told[:-1])
        return early + self._own(recorded, told[-1])

    def _delta(self, event: TextStreamed | ReasoningStreamed, recorded: Recorded) -> bytes:
        self._words = recorded
        this = (event.turn, event.attempt)
        blank = self._opens(this) if isinstance(event, TextStreamed) else False
        if recorded.seq <= self._after:
            self._seen = this
            return b""
        if this in self._retracted:
            return b""
        name, at = NAMES[type(event)], recorded.at
        told = _Delta(name, self._run_id, at, event.text, event.turn, event.attempt)
        own = b"id: %d\ndata: %b\n\n" % (recorded.seq, one_line(told))
        return self._early(recorded, _delta(_BLANK, *self._said)) + own if blank else own

    def _opens(self, this: Try) -> bool:
        """These are the attempt's first words, and an earlier turn had some."""
        if this == self._speaking:
            return False
        self._speaking = this
        return self._said > (0, 0)

    def _unheard_of(self, event: object) -> bool:
        """It takes back what this reader has not seen."""
        if not isinstance(event, ModelRetracted):
            return False
        this = (event.turn, event.attempt)
        return this in self._retracted and this != self._seen

    def _own(self, recorded: Recorded, fields: Fields) -> bytes:
        frame = _frame(self._run_id, NAMES[type(recorded.event)], recorded.at, fields)
        return b"id: %d\n%b" % (recorded.seq, frame)

    def _early(self, recorded: Recorded, fields: Fields) -> bytes:
        """A frame ahead of the event's own, under a name of its own."""
        return _frame(self._run_id, fields["event"], recorded.at, fields)


def retracted_attempts(journal: Iterable[Recorded]) -> frozenset[Try]:
    """The attempts that are taken back in this part of a journal."""
    events = (recorded.event for recorded in journal)
    return frozenset((e.turn, e.attempt) for e in events if isinstance(e, ModelRetracted))


def draining(run_id: str, *, at: float) -> bytes:
    """The server is about to close the stream, and the run goes on. Not of the journal: no id."""
    return _frame(run_id, "server.draining", at, {})


def approval(pending: Pending, tool: ToolState) -> Fields:
    """What a person is asked."""
    request, call = pending.request, tool.call
    asked = {
        "approval_id": request.approval_id,
        "id": request.approval_id,
        "request_id": request.approval_id,
        "call_id": request.call_id,
        "tool": request.tool,
        "command": request.subject,
        "description": _description(request),
        "pattern_key": call.key,
        "pattern_keys": [call.key] if call.key else [],
        "args": _arguments(call),
        "choices": _choices(request, call),
        # A standing yes never covers a doubt.
        "allow_permanent": bool(call.key) and not request.doubt,
        "details": request.binding,
        "digest": request.digest,
    }
    return {**asked, "expires_at": pending.at + request.expires} if request.expires else asked


def used(usage: Usage) -> Used:
    return Used(
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.total,
        cached_tokens=usage.cached,
        reasoning_tokens=usage.reasoning,
        cost=usage.cost,
    )


def find_tool(state: RunState, call_id: str) -> ToolState:
    """The call of this id, or a blank: what a newer version did may hide it from us."""
    found = (tool for tool in state.tools if tool.call.id == call_id)
    return next(found, ToolState(ToolCall(id=call_id, tool="unknown")))


# --- what is told of each event -----------------------------------------------------------


class _Moment(NamedTuple):
    """An event, when it was recorded, and where the run stood before it and stands now."""

    event: Any
    at: float
    before: RunState
    now: RunState

    def pending(self, state: RunState) -> Pending | None:
        """The approval the event speaks of, if it waits for an answer then."""
        waiting = (p for p in state.pending if p.request.approval_id == self.event.approval_id)
        return next(waiting, None)


_Told: TypeAlias = tuple[Fields, ...]


def _choices(request: ApprovalRequested, call: ToolCall) -> Sequence[str]:
    if not call.key:
        # No rule could ever cover it.
        return ("once", "deny")
    return ("once", "session", "deny") if request.doubt else ("once", "session", "always", "deny")


def _phase(moment: _Moment) -> _Told:
    waiting = phase(moment.now)
    return (msgspec.to_builtins(waiting),) if waiting else ()


def _failed(moment: _Moment) -> _Told:
    event = moment.event
    failure = {"reason": event.reason, "message": event.message, "status": event.status}
    return tuple({**waiting, "failure": failure} for waiting in _phase(moment))


def _retracted(moment: _Moment) -> _Told:
    event = moment.event
    back = {"turn": event.turn, "attempt": event.attempt, "after": event.after}
    return _delta(BREAK, event.turn, event.attempt), back


def _replied(moment: _Moment) -> _Told:
    event = moment.event
    reply = {
        "turn": event.turn,
        "text": event.text,
        "model": event.model,
        "stop": event.stop,
        "usage": used(event.usage),
    }
    thought = "\n\n".join(reasoning.text for reasoning in event.reasoning if reasoning.text)
    if not thought:
        return (reply,)
    # For readers that know of no deltas of reasoning.
    return {"event": "reasoning.available", "text": short(thought, _MOST_RESULT)}, reply


def _tool_started(moment: _Moment) -> _Told:
    if moment.before.stopping:
        # The stop stands before the intent, so it did not start.
        return ()
    call = find_tool(moment.now, moment.event.call_id).call
    line = " ".join((call.subject or call.arguments).split())
    preview = short(line, _MOST_PREVIEW)
    told = {**_named(call), "args": _arguments(call), "preview": preview}
    return ({**told, "rule": moment.event.rule} if moment.event.rule else told,)


def _tool_progressed(moment: _Moment) -> _Told:
    call = find_tool(moment.now, moment.event.call_id).call
    return ({"tool": call.tool, "call_id": call.id, "text": moment.event.text},)


def _tool_finished(moment: _Moment) -> _Told:
    event, tool = moment.event, find_tool(moment.before, moment.event.call_id)
    # A call that was cut off was measured by nobody.
    seconds = event.seconds or (moment.at - tool.at if tool.starts else 0.0)
    end = {
        "duration": round(max(seconds, 0.0), 3),
        "error": event.outcome != "ok",
        "outcome": event.outcome,
        "result": short(event.output, _MOST_RESULT),
        "truncated": bool(event.blob) or len(event.output) > _MOST_RESULT,
    }
    return ({**_named(tool.call), **end},)


def _requested(moment: _Moment) -> _Told:
    # One that came after a stop is put to nobody.
    pending = moment.pending(moment.now)
    return (approval(pending, find_tool(moment.now, moment.event.call_id)),) if pending else ()


def _answered(moment: _Moment) -> _Told:
    # One that nobody waited for changed nothing.
    event = moment.event
    told = {
        "approval_id": event.approval_id,
        "request_id": event.approval_id,
        "choice": event.choice,
        "resolved": 1,
    }
    return (told,) if moment.pending(moment.before) else ()


def _expired(moment: _Moment) -> _Told:
    return ({"approval_id": moment.event.approval_id},) if moment.pending(moment.before) else ()


def _edited(moment: _Moment) -> _Told:
    # One that came when the run had begun changed nothing.
    event = moment.event
    return () if moment.before.epoch else ({"input": short(plain(event.parts), _MOST_RESULT)},)


def _completed(moment: _Moment) -> _Told:
    done = {"output": moment.now.output, "usage": used(moment.now.usage)}
    return ({**done, "incomplete": moment.event.incomplete},)


_TELL: Mapping[type[Any], Callable[[_Moment], _Told]] = {
    RunAccepted: lambda _: ({},),
    RunQueued: lambda moment: ({"why": moment.event.why},),
    RunStarted: lambda _: ({},),
    RunWaiting: _phase,
    ModelCalled: _phase,
    ModelHeard: _phase,
    ModelFailed: _failed,
    ModelRetracted: _retracted,
    ModelReplied: _replied,
    ToolStarted: _tool_started,
    ToolProgressed: _tool_progressed,
    ToolFinished: _tool_finished,
    ApprovalRequested: _requested,
    ApprovalAnswered: _answered,
    ApprovalExpired: _expired,
    StopRequested: lambda moment: ({"reason": moment.event.reason},),
    InputAdded: lambda moment: ({"message_id": moment.event.message_id},),
    InputEdited: _edited,
    RunCompleted: _completed,
    RunFailed: lambda moment: ({"error": moment.event.message, "code": moment.event.code},),
    RunCancelled: lambda moment: ({"receipt": asdict(moment.event.receipt)},),
}


# --- on the wire ------------------------------------------------------------------------


def frame(name: str, at: float, fields: Fields) -> bytes:
    return b"data: %b\n\n" % one_line({"event": name, **fields, "timestamp": at})


def _frame(run_id: str, name: str, at: float, fields: Fields) -> bytes:
    told = {"event": name, "run_id": run_id, "timestamp": at, **fields}
    return b"data: %b\n\n" % one_line(told)


def _delta(text: str, turn: int, attempt: int) -> Fields:
    return {"event": "message.delta", "delta": text, "turn": turn, "attempt": attempt}


def _named(call: ToolCall) -> Fields:
    """A call by its name and its id, in both spellings of the latter."""
    return {"tool": call.tool, "call_id": call.id, "toolCallId": call.id}


def _description(request: ApprovalRequested) -> str:
    return f"{request.reason} ({request.doubt})" if request.doubt else request.reason


def _arguments(call: ToolCall) -> Raw:
    """The arguments on one line if they are an object. Models send other things, too."""
    try:
        return Raw(msgspec.json.encode(msgspec.json.decode(call.arguments, type=dict[str, Any])))
    except (ValueError, RecursionError):
        return Raw(b"{}")


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
