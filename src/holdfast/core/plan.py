"""What a run should do next.

`plan` looks only at the folded state and at what the worker brings, so it cannot tell a run
that has never stopped from one picked up by another machine after a crash. That is the point:
resuming is not a feature here, it is the absence of one.

Nothing here knows the time. A step that depends on it carries a Timer, and whoever performs
the step waits.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TypeAlias

from msgspec import Struct

from holdfast.core.approval import Allowed, Ask, Forbidden, verdict
from holdfast.core.events import (
    ApprovalExpired,
    Event,
    ModelFailed,
    ModelReplied,
    ModelRetracted,
    Outcome,
    Receipt,
    Recorded,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunWaiting,
    ToolFinished,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import ToolCall
from holdfast.core.retry import OVERFLOW, GiveUp, Next, RetryRules, Wait, next_attempt
from holdfast.core.run import fold
from holdfast.core.state import Grant, RunState, ToolState

_UNKNOWN = (
    "the worker was lost while this ran; whether it took effect is unknown."
    " Find out before doing it again"
)

#: How long a run that cannot go on here is left alone before it is looked at again.
LOOK_AGAIN = 60.0


class Rules(Struct, frozen=True):
    """What the worker brings: who it is, what it has, and the rules that stand."""

    worker: str
    epoch: int
    models: Container[str]
    tools: Container[str]
    #: None: those that were granted in the run itself.
    grants: tuple[Grant, ...] | None = None
    rescues: int = 5
    repeats: int = 3
    #: A fraction of this run's own, so that a crowd of runs does not retry at the same moment.
    spread: float = 1.0
    #: What tools that were cut off have said on their way out: see Receipt.
    problems: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class CallModel(Struct, frozen=True):
    turn: int
    attempt: int
    model: str


class Record(Struct, frozen=True):
    """A decision that needs no I/O beyond writing it down.

    `then` is what follows unless a wish comes first, so that its intent can be written with it.
    """

    events: tuple[Event, ...]
    then: CallModel | None = None


class RunTools(Struct, frozen=True):
    """Start these calls; more than one only where they may run side by side."""

    calls: tuple[ToolCall, ...]


class AskPerson(Struct, frozen=True):
    """Put these calls to a person, each by an approval of its own."""

    asks: tuple[tuple[ToolCall, Ask], ...]


class Timer(Struct, frozen=True):
    """`then`, once `seconds` have passed since wall time `since`."""

    since: float
    seconds: float
    then: Record | CallModel


class Pause(Struct, frozen=True):
    """Stay in memory until something is recorded or the timer runs out."""

    timer: Timer | None = None


class Rest(Struct, frozen=True):
    """Leave memory until a wish arrives or the timer runs out, or to look again after a while."""

    timer: Timer | None = None
    again: float = 0.0


Step: TypeAlias = Record | CallModel | RunTools | AskPerson | Pause | Rest


def plan(state: RunState, rules: Rules) -> Step:
    """The next step of a run that this worker holds."""
    if state.status.final or state.status is Status.NEW:
        return Rest()
    if state.unknown:
        return Rest(again=LOOK_AGAIN)
    if state.stopping:
        return _wind_down(state, rules)
    if state.epoch != rules.epoch:
        return _take_over(state, rules)
    if state.rescues > rules.rescues:
        return Record((*_cut_off(state, rules), _lost_too_often(state)))
    if state.open_tools:
        return _plan_tools(state, rules)
    if _answered(state) and state.reply:
        return Record((_completed(state.reply),))
    return _plan_call(state, rules)


def _take_over(state: RunState, rules: Rules) -> Step:
    """Start only if there is something to do; a run that would rest again is left as it is."""
    started = RunStarted(worker=rules.worker, epoch=rules.epoch)
    step = plan(fold(state, Recorded(state.seq + 1, state.at, started, b"")), rules)
    if isinstance(step, Rest):
        return step
    return Record((started,), then=step if isinstance(step, CallModel) else None)


# --- the model ---------------------------------------------------------------------------


def _plan_call(state: RunState, rules: Rules) -> Step:
    assert state.accepted is not None
    spent = state.accepted.budget.spent(
        turns=state.replies, seconds=state.seconds, usage=state.usage
    )
    if spent:
        return Record((RunFailed(code="budget", message=spent),))
    coming = following(state, spread=rules.spread)
    if isinstance(coming, GiveUp):
        return Record((_given_up(state, coming.why),))
    model, pause = coming.model, coming.seconds if isinstance(coming, Wait) else 0.0
    if model not in rules.models:
        return _lacking(state, RunWaiting(what="model", name=model))
    turn, attempt = state.replies + 1, state.attempt
    if attempt and attempt.shown:
        retracted = ModelRetracted(turn=turn, attempt=attempt.number, after=attempt.called)
        return Record((retracted,))
    call = CallModel(turn=turn, attempt=attempt.number + 1 if attempt else 1, model=model)
    return Pause(Timer(state.failures[-1].at, pause, call)) if pause else call


def _given_up(state: RunState, why: str) -> RunFailed:
    if not state.failures or state.failures[-1].reason != OVERFLOW:
        return RunFailed(code="model", message=why)
    words = "the conversation is longer than the model can take"
    if state.accepted and state.accepted.session_id:
        words += "; it stays as it is, and another session can be begun"
    return RunFailed(code="context", message=f"{words} ({why})")


def following(state: RunState, *, spread: float = 1.0) -> Next:
    """Which attempt comes next in this turn, and after what wait."""
    assert state.accepted is not None
    accepted = state.accepted
    rules = RetryRules(
        models=tuple(choice.name for choice in accepted.models),
        attempts=accepted.attempts,
        total=accepted.retry_total,
    )
    return next_attempt(state.failures, rules, spread=spread)


def ending(state: RunState, reply: ModelReplied) -> RunCompleted | None:
    """How the run ends with this reply, which is about to be recorded; None if it goes on."""
    goes_on = reply.calls or state.inputs or state.stopping or state.unknown
    return None if goes_on else _completed(reply)


def _completed(reply: ModelReplied) -> RunCompleted:
    return RunCompleted(incomplete="" if reply.stop == "stop" else reply.stop)


def _answered(state: RunState) -> bool:
    """The last reply asked for nothing more, and nobody has said anything since."""
    reply, attempt = state.reply, state.attempt
    return reply is not None and attempt is None and not reply.calls and not state.inputs


# --- tools -------------------------------------------------------------------------------


def _plan_tools(state: RunState, rules: Rules) -> Step:
    verdicts = [(tool, verdict(state, tool, rules.grants)) for tool in state.open_tools]
    told = tuple(
        told
        for tool, said in verdicts
        if (told := _untouched(state, tool, said, rules)) is not None
    )
    if told:
        return Record(told)
    due = tuple(_askable(state))
    asks = tuple(
        (tool.call, said) for tool, said in verdicts if isinstance(said, Ask) and tool in due
    )
    # What a tool has not looked at is not for a person to look at either.
    known = tuple((call, said) for call, said in asks if call.tool in rules.tools)
    if known:
        return AskPerson(known)
    ready = _startable(state, [tool for tool, said in verdicts if isinstance(said, Allowed)])
    here = tuple(call for call in ready if call.tool in rules.tools)
    if here:
        return RunTools(here)
    wanted = (*(call for call, _ in asks), *ready)
    return _wait(state, RunWaiting(what="tool", name=wanted[0].tool) if wanted else None)


def _wait(state: RunState, lack: RunWaiting | None) -> Step:
    """For what is under way, for an answer, or for a tool that is missing."""
    if not any(state.running(tool) for tool in state.open_tools):
        return _lacking(state, lack) if lack else Rest(_expiry(state))
    if lack and state.waiting != lack:
        return Record((lack,))
    return Pause(_expiry(state))


def _untouched(state: RunState, tool: ToolState, said: object, rules: Rules) -> ToolFinished | None:
    """The result of a call that will not be run, or None if it may be."""
    call = tool.call
    if state.running(tool):
        return None
    if state.in_doubt(tool):
        return _in_doubt(state, tool, said, rules)
    if call.problem:
        return ToolFinished(call_id=call.id, outcome="error", output=call.problem)
    if isinstance(said, Forbidden):
        return ToolFinished(call_id=call.id, outcome=said.outcome, output=said.why)
    return None


def changed(tool: ToolState, why: str) -> ToolFinished:
    """The end of a call that would not be what was looked at before. It may have been begun as it was."""
    call_id = tool.call.id
    if tool.starts:
        return ToolFinished(call_id=call_id, outcome="unknown", output=f"{_UNKNOWN} ({why})")
    return ToolFinished(call_id=call_id, outcome="refused", output=why)


def _in_doubt(state: RunState, tool: ToolState, said: object, rules: Rules) -> ToolFinished | None:
    spec = state.spec(tool.call.tool)
    again = spec and spec.repeatable and tool.starts < rules.repeats
    if again and not isinstance(said, Forbidden):
        return None
    return ToolFinished(
        call_id=tool.call.id,
        outcome="unknown",
        output=_UNKNOWN,
    )


def _startable(state: RunState, allowed: list[ToolState]) -> tuple[ToolCall, ...]:
    """Calls to start now: side by side where every call before them allows it, else in order."""
    ready: list[ToolCall] = []
    for tool in state.open_tools:
        spec = state.spec(tool.call.tool)
        alone = not (spec and spec.parallel)
        first = tool is state.open_tools[0]
        if tool in allowed and not state.running(tool) and (first or not alone):
            ready.append(tool.call)
        if alone:
            break
    return tuple(ready)


def _askable(state: RunState) -> Iterator[ToolState]:
    """Calls that a person may be asked about now: what writes ahead of them has ended.

    Else the person would look at one thing, and the yes be for what another call made of it.
    """
    written, side_by_side = False, True
    for tool in state.open_tools:
        spec = state.spec(tool.call.tool)
        side_by_side = side_by_side and bool(spec and spec.parallel)
        if side_by_side or not written:
            yield tool
        written = written or not spec or spec.writes


def _expiry(state: RunState) -> Timer | None:
    """The first pending approval to run out."""
    timers = [
        Timer(
            pending.at,
            pending.request.expires,
            Record((ApprovalExpired(approval_id=pending.request.approval_id),)),
        )
        for pending in state.pending
        if pending.request.expires
    ]
    return min(timers, key=lambda timer: timer.since + timer.seconds, default=None)


def _lacking(state: RunState, lack: RunWaiting) -> Step:
    """Say once what is missing, then look again from time to time."""
    return Rest(_expiry(state), LOOK_AGAIN) if state.waiting == lack else Record((lack,))


def may_start(state: RunState, call_id: str, rules: Rules) -> bool:
    """The last look: its start is on record, and nothing that came before forbids the effect."""
    tool = next(tool for tool in state.tools if tool.call.id == call_id)
    allowed = isinstance(verdict(state, tool, rules.grants), Allowed)
    return allowed and not state.stopping and state.running(tool)


# --- the end -----------------------------------------------------------------------------


def _wind_down(state: RunState, rules: Rules) -> Record:
    return Record((*_cut_off(state, rules), RunCancelled(receipt=_receipt(state, rules))))


def _cut_off(state: RunState, rules: Rules) -> tuple[Event, ...]:
    """Whatever is still open gets its end on record before the run does."""
    events: list[Event] = []
    if (attempt := state.attempt) and attempt.open:
        said = "not made, a stop came first" if attempt.late else "cut off when the run ended"
        events.append(
            ModelFailed(
                turn=state.replies + 1,
                attempt=attempt.number,
                reason="interrupt_abort",
                message=said,
            )
        )
    events += [_cut(tool, here=tool.epoch == rules.epoch) for tool in state.open_tools]
    return tuple(events)


def _cut(tool: ToolState, *, here: bool) -> ToolFinished:
    outcome: Outcome = "unknown"
    told = "the worker was lost while this ran; whether it took effect is unknown"
    if not tool.starts:
        outcome, told = "not_started", "the run was ended before this could start"
    elif here:
        outcome, told = "cancelled", "cut off when the run was stopped; it may have had effects"
    return ToolFinished(call_id=tool.call.id, outcome=outcome, output=told)


def _receipt(state: RunState, rules: Rules) -> Receipt:
    called = bool(state.attempt and state.attempt.open and not state.attempt.late)
    cut = tuple(t.call.id for t in state.open_tools if t.starts)
    return Receipt(
        model_calls=int(called),
        tool_calls=cut,
        may_bill=called,
        problems=rules.problems,
        ended=rules.ended,
        left=rules.left,
    )


def _lost_too_often(state: RunState) -> RunFailed:
    return RunFailed(
        code="rescues",
        message=f"the run was lost or set aside {state.rescues} times in a row and got no further",
    )
