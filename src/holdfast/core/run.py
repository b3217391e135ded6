"""What a run is, as computed from its events.

`fold` is the only way a RunState comes to be, live or after a crash, so the two can never
differ. What may follow what is the lifecycle's to say; an event that cannot happen raises
IllegalEvent, and is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, cast

from msgspec.structs import replace

from holdfast.core.codec import canonical
from holdfast.core.events import (
    FINAL,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    Event,
    Final,
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
    RunCompleted,
    RunQueued,
    RunStarted,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    Unknown,
)
from holdfast.core.lifecycle import LIFECYCLE, Status
from holdfast.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from holdfast.core.pile import grow
from holdfast.core.retry import Failure
from holdfast.core.state import AttemptState, Grant, Pending, RunState, ToolState
from holdfast.errors import IllegalEvent


def fold(state: RunState, recorded: Recorded) -> RunState:
    """The state after one more event. An event of a newer version changes nothing.

    Raises IllegalEvent for one that cannot happen now.
    """
    event = recorded.event
    if isinstance(event, Unknown):
        return replace(state, seq=recorded.seq, unknown=state.unknown or event.tag)
    try:
        status = after(state, event)
        state = _FOLDS[type(event)](state, event, recorded)
    except IllegalEvent:
        if state.unknown:
            # It may well follow from what we did not understand.
            return replace(state, seq=recorded.seq, at=recorded.at)
        raise
    if state.pending and status in (Status.QUEUED, Status.RUNNING):
        status = Status.WAITING
    return replace(state, status=status, seq=recorded.seq, at=recorded.at)


def replay(journal: Iterable[Recorded]) -> RunState:
    return reduce(fold, journal, RunState())


def after(state: RunState, event: Event) -> Status:
    """The status the event leads to. Raises IllegalEvent if it cannot happen now."""
    status = LIFECYCLE[state.status].get(type(event))
    if status is None:
        raise IllegalEvent(
            f"{type(event).__name__} cannot happen to a run that is {state.status.value}"
        )
    if isinstance(event, RunCompleted) and (state.inputs or state.open_tools):
        raise IllegalEvent("a run cannot complete while a message or a tool call is left open")
    return status


def untold(state: RunState) -> tuple[Message, ...]:
    """What has happened that the model will hear of at its next call."""
    results = (_told(tool) for tool in state.tools if tool.result)
    return (*results, *state.inputs)


def effect(call: ToolCall, schema: str = "") -> str:
    """What a call does, in one spelling: equal effects are the same tool with equal arguments."""
    return f"{call.tool} {canonical(call.arguments, schema)}"


def effects(state: RunState, call: ToolCall) -> tuple[str, ...]:
    """What a call does, in each spelling in which it may come again.

    A tool that says apart what its calls depend on, such as a time limit, says in their subject
    what they do. Then another limit makes no other effect of it.
    """
    spec = state.spec(call.tool)
    spelled = effect(call, spec.schema if spec else "")
    return (
        (spelled, f"{call.tool}: {call.subject}") if call.binding and call.subject else (spelled,)
    )


# --- one function an event ---------------------------------------------------------------


def _accepted(state: RunState, event: RunAccepted, recorded: Recorded) -> RunState:
    first = UserMessage(parts=event.input, id=event.message_id)
    return replace(state, accepted=event, messages=grow(state.messages, (first,)))


def _queued(state: RunState, event: RunQueued, recorded: Recorded) -> RunState:
    return replace(state, worker="", rescues=state.rescues + (event.why != "drained"))


def _started(state: RunState, event: RunStarted, recorded: Recorded) -> RunState:
    return replace(state, worker=event.worker, epoch=event.epoch)


def _waiting(state: RunState, event: RunWaiting, recorded: Recorded) -> RunState:
    return replace(state, waiting=event, waiting_at=recorded.at)


def _called(state: RunState, event: ModelCalled, recorded: Recorded) -> RunState:
    last = state.attempt or AttemptState(number=0, model="", epoch=0, called=0, at=0.0)
    if (event.turn, event.attempt) != (state.replies + 1, last.number + 1):
        raise IllegalEvent(f"attempt {event.attempt} at turn {event.turn} is not the next one")
    if last.shown or state.open_tools:
        raise IllegalEvent("the model cannot be called over words that still stand or open calls")
    attempt = AttemptState(
        number=event.attempt,
        model=event.model,
        epoch=state.epoch,
        called=recorded.seq,
        at=recorded.at,
        patience=event.patience,
        late=state.stopping,
    )
    return replace(
        state,
        attempt=attempt,
        waiting=None,
        tools=(),
        inputs=(),
        messages=grow(state.messages, untold(state)),
    )


def _heard(state: RunState, event: ModelHeard, recorded: Recorded) -> RunState:
    attempt = _speaking(state, event)
    if event.unstreamed:
        return replace(state, attempt=replace(attempt, patience=attempt.patience.unstreamed))
    return replace(state, attempt=replace(attempt, heard=True, heard_at=recorded.at))


def _text(state: RunState, event: TextStreamed, recorded: Recorded) -> RunState:
    attempt = _speaking(state, event)
    text = grow(attempt.text, event.text)
    return replace(state, attempt=replace(attempt, text=text, heard=True, heard_at=recorded.at))


def _reasoning(state: RunState, event: ReasoningStreamed, recorded: Recorded) -> RunState:
    attempt = _speaking(state, event)
    thought = grow(attempt.reasoning, event.text)
    return replace(
        state, attempt=replace(attempt, reasoning=thought, heard=True, heard_at=recorded.at)
    )


def _retracted(state: RunState, event: ModelRetracted, recorded: Recorded) -> RunState:
    attempt = _current(state, event)
    return replace(state, attempt=replace(attempt, open=False, text=(), reasoning=()))


def _replied(state: RunState, event: ModelReplied, recorded: Recorded) -> RunState:
    _speaking(state, event)
    message = AssistantMessage(text=event.text, reasoning=event.reasoning, calls=event.calls)
    return replace(
        state,
        reply=event,
        replies=state.replies + 1,
        attempt=None,
        failures=(),
        tools=tuple(ToolState(call) for call in event.calls),
        messages=grow(state.messages, (message,)),
        usage=state.usage + event.usage,
        seconds=state.seconds + event.seconds,
        rescues=0,
    )


def _failed(state: RunState, event: ModelFailed, recorded: Recorded) -> RunState:
    attempt = _current(state, event)
    failure = Failure(
        model=attempt.model,
        reason=event.reason,
        message=event.message,
        status=event.status,
        retry_after=event.retry_after,
        waited=event.waited,
        spoke=attempt.shown,
        at=recorded.at,
    )
    return replace(
        state,
        attempt=replace(attempt, open=False),
        failures=(*state.failures, failure),
        seconds=state.seconds + event.seconds,
    )


def _tool_started(state: RunState, event: ToolStarted, recorded: Recorded) -> RunState:
    def start(tool: ToolState) -> ToolState:
        if state.stopping:
            return tool
        return replace(tool, starts=tool.starts + 1, epoch=state.epoch, at=recorded.at)

    return replace(state, waiting=None, tools=_change(state, event.call_id, start))


def _progressed(state: RunState, event: ToolProgressed, recorded: Recorded) -> RunState:
    _tool(state, event.call_id)
    return state


def _tool_finished(state: RunState, event: ToolFinished, recorded: Recorded) -> RunState:
    tool = _tool(state, event.call_id)
    doubts = state.doubts
    if event.outcome == "unknown":
        doubts = {**doubts, **dict.fromkeys(effects(state, tool.call), tool.call.id)}
    ran = event.outcome in ("ok", "error", "timeout")
    return replace(
        state,
        tools=_change(state, event.call_id, lambda tool: replace(tool, result=event)),
        pending=tuple(p for p in state.pending if p.request.call_id != event.call_id),
        doubts=doubts,
        seconds=state.seconds + event.seconds,
        rescues=0 if ran else state.rescues,
    )


def _requested(state: RunState, event: ApprovalRequested, recorded: Recorded) -> RunState:
    if state.stopping:
        return state
    tools = _change(state, event.call_id, lambda tool: _asked(tool, event))
    return replace(state, tools=tools, pending=(*state.pending, Pending(event, recorded.at)))


def _asked(tool: ToolState, event: ApprovalRequested) -> ToolState:
    """A yes is bound to what was shown. That may be more than what the call was when it was made."""
    bound = replace(tool.call, binding=event.binding) if event.binding else tool.call
    return replace(tool, call=bound, asked=True)


def _answered(state: RunState, event: ApprovalAnswered, recorded: Recorded) -> RunState:
    request = _pending(state, event.approval_id)
    if request is None or state.stopping:
        return state
    how = (
        f"was answered {event.choice} by {event.by}" if event.by else f"was answered {event.choice}"
    )
    state = _settle(state, request, how, lambda tool: replace(tool, answer=event.choice))
    if event.choice not in ("session", "always"):
        return state
    call = _tool(state, request.call_id).call
    return replace(state, grants=(*state.grants, Grant(call.tool, call.key, event.choice)))


def _expired(state: RunState, event: ApprovalExpired, recorded: Recorded) -> RunState:
    request = _pending(state, event.approval_id)
    if request is None:
        return state
    return _settle(state, request, "has expired", lambda tool: replace(tool, expired=True))


def _stop(state: RunState, event: StopRequested, recorded: Recorded) -> RunState:
    settled = {p.request.approval_id: "was withdrawn by a stop" for p in state.pending}
    return replace(
        state,
        stop=state.stop or event,
        stopped_at=state.stopped_at if state.stop else recorded.at,
        pending=(),
        settled={**state.settled, **settled},
    )


def _input(state: RunState, event: InputAdded, recorded: Recorded) -> RunState:
    if state.stopping or _said_before(state, event.message_id):
        return state
    message = UserMessage(parts=event.parts, id=event.message_id)
    return replace(state, inputs=(*state.inputs, message))


def _said_before(state: RunState, message_id: str) -> bool:
    """Whoever did not hear that a message was taken may send it again."""
    said = (*state.conversation, *state.inputs) if message_id else ()
    return any(isinstance(one, UserMessage) and one.id == message_id for one in said)


def _edited(state: RunState, event: InputEdited, recorded: Recorded) -> RunState:
    if state.stopping or state.epoch or state.accepted is None:
        return state
    accepted = replace(state.accepted, input=event.parts)
    first = UserMessage(parts=event.parts, id=accepted.message_id)
    return replace(state, accepted=accepted, messages=grow((), (first,)))


def _ended(state: RunState, event: Final, recorded: Recorded) -> RunState:
    return replace(state, ended=event, pending=())


_FOLDS: Mapping[type[Any], Callable[[RunState, Any, Recorded], RunState]] = {
    RunAccepted: _accepted,
    RunQueued: _queued,
    RunStarted: _started,
    RunWaiting: _waiting,
    ModelCalled: _called,
    ModelHeard: _heard,
    TextStreamed: _text,
    ReasoningStreamed: _reasoning,
    ModelRetracted: _retracted,
    ModelReplied: _replied,
    ModelFailed: _failed,
    ToolStarted: _tool_started,
    ToolProgressed: _progressed,
    ToolFinished: _tool_finished,
    ApprovalRequested: _requested,
    ApprovalAnswered: _answered,
    ApprovalExpired: _expired,
    StopRequested: _stop,
    InputAdded: _input,
    InputEdited: _edited,
    **dict.fromkeys(FINAL, _ended),
}


# --- finding and changing ----------------------------------------------------------------


def _current(state: RunState, event: Any) -> AttemptState:
    """The attempt an event speaks of. Anything but the latest one is a bug."""
    attempt = state.attempt
    if attempt is None or (event.turn, event.attempt) != (state.replies + 1, attempt.number):
        raise IllegalEvent(
            f"{type(event).__name__} speaks of attempt {event.attempt} at turn {event.turn},"
            " which is not under way"
        )
    return attempt


def _speaking(state: RunState, event: Any) -> AttemptState:
    """The same, and whoever made the call is still there to hear it."""
    attempt = _current(state, event)
    if not attempt.open or attempt.epoch != state.epoch:
        raise IllegalEvent(f"{type(event).__name__} comes from an attempt that is over")
    return attempt


def _tool(state: RunState, call_id: str) -> ToolState:
    for tool in state.tools:
        if tool.call.id == call_id and tool.result is None:
            return tool
    raise IllegalEvent(f"no tool call {call_id} is under way")


def _change(
    state: RunState, call_id: str, change: Callable[[ToolState], ToolState]
) -> tuple[ToolState, ...]:
    changed = change(_tool(state, call_id))
    return tuple(changed if tool.call.id == call_id else tool for tool in state.tools)


def _pending(state: RunState, approval_id: str) -> ApprovalRequested | None:
    for pending in state.pending:
        if pending.request.approval_id == approval_id:
            return pending.request
    return None


def _settle(
    state: RunState,
    request: ApprovalRequested,
    how: str,
    change: Callable[[ToolState], ToolState],
) -> RunState:
    return replace(
        state,
        tools=_change(state, request.call_id, change),
        pending=tuple(p for p in state.pending if p.request is not request),
        settled={**state.settled, request.approval_id: how},
    )


def _told(tool: ToolState) -> ToolMessage:
    result = cast(ToolFinished, tool.result)
    return ToolMessage(
        call_id=tool.call.id,
        tool=tool.call.tool,
        output=result.output,
        ok=result.outcome == "ok",
    )
