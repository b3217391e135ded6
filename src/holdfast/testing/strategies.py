"""Random lives of runs, for property tests of whatever reads or carries them.

    from hypothesis import given
    from holdfast.testing.strategies import journals, prefixes

    @given(journals())
    def test_my_reader_takes_every_journal(journal): ...

`journals()` are whole runs, first event to last, and `prefixes()` is what a reader may find at
any earlier moment. They are legal by construction: a worker asks `plan` what to do and writes
it down, in a world where models stall and break off, workers vanish, and people stop, steer
and answer at any moment, twice or too late. `lives()` tell besides what happened outside the
journal. A world makes only so much trouble, so every run comes to an end.

Needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, TypeAlias, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.codec import record
from holdfast.core.events import (
    FINAL,
    ApprovalAnswered,
    ApprovalRequested,
    Choice,
    Event,
    InputAdded,
    InputEdited,
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelHeard,
    ModelReplied,
    Outcome,
    ReasoningStreamed,
    Recorded,
    RunAccepted,
    RunQueued,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    Wish,
)
from holdfast.core.messages import Gate, Message, Text, ToolCall, ToolSpec
from holdfast.core.plan import (
    AskPerson,
    CallModel,
    Record,
    Rest,
    Rules,
    RunTools,
    Step,
    Timer,
    may_start,
    plan,
)
from holdfast.core.retry import REASONS
from holdfast.core.run import fold
from holdfast.core.state import Grant, RunState
from holdfast.core.usage import Budget, Usage

#: Picks one of so many, from 0 on; 0 is the dullest.
Choose: TypeAlias = Callable[[int], int]

#: Steps after which a run counts as one that does not come to an end.
TOO_LONG = 1000

#: Alike but for what decides: may it be repeated, may it run beside others, does it write.
TOOLS = (
    ToolSpec(name="pay"),
    ToolSpec(name="look", writes=False, parallel=True),
    ToolSpec(name="put", repeatable=True),
    ToolSpec(name="copy", repeatable=True, parallel=True),
)
_ARGUMENTS = ('{"a":1}', '{ "a" : 1.0 }', "not json")
_GATES: tuple[Gate, ...] = ("auto", "ask", "auto", "ask", "refuse")
_CHOICES: tuple[Choice, ...] = ("once", "deny", "session", "always")
_OUTCOMES: tuple[Outcome, ...] = ("ok", "error", "timeout")
_LEAVES: tuple[Literal["rescued", "tripped", "drained"], ...] = ("rescued", "tripped", "drained")
_WORDS = ("Hello", " ", "\u2028", "\U0001f600", "x" * 50)
_STATUSES = (None, 400, 401, 404, 429, 503)
_STANDING = Grant("put", "k2", "always")

_T = TypeVar("_T")


@dataclass
class Life:
    """A run from its first event to its last, and what happened beside its journal."""

    journal: list[Recorded] = field(default_factory=list)
    #: What tools really did: the seq of the start, and the call.
    effects: list[tuple[int, ToolCall]] = field(default_factory=list)
    #: What models were really shown: the seq of the call, and the conversation.
    calls: list[tuple[int, tuple[Message, ...]]] = field(default_factory=list)
    #: Rules of the workspace that stood at one time or another.
    standing: tuple[Grant, ...] = (_STANDING,)


def lives() -> st.SearchStrategy[Life]:
    """Lives of runs, each to its end."""
    return _lives()


def journals() -> st.SearchStrategy[list[Recorded]]:
    """The journals of runs that have ended."""
    return lives().map(lambda life: life.journal)


def prefixes() -> st.SearchStrategy[list[Recorded]]:
    """What a reader finds at any moment: the first events of a journal, at least one."""
    return journals().flatmap(
        lambda journal: st.integers(1, len(journal)).map(lambda length: journal[:length])
    )


@st.composite
def _lives(draw: st.DrawFn) -> Life:
    return live(lambda n: draw(st.integers(0, n - 1)))


def live(choose: Choose) -> Life:
    """One life, whose every turn is decided by `choose`."""
    return _World(choose).live()


class _Gone(Exception):
    """The worker vanished, stumbled or was told to leave."""


class _World:
    """One run, its store, the workers that carry it one after another, and the people about.

    `_truth` is the state by all that is on record; `_seen` is what the worker knows of it.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._trouble = choose(24)
        self._appetite = choose(12)
        #: Workers vanish once in so many records.
        self._frailty = self._one((24, 6))
        self._ids = count(1)
        self._steps = 0
        self._now = 0.0
        self._epoch = 0
        self._truth = self._seen = RunState()
        self._running: dict[str, ToolCall] = {}
        self._approvals: list[str] = []
        self._asked: ToolCall | None = None
        self._life = Life()
        self._rules = self._worker()

    def live(self) -> Life:
        self._write(self._accepted())
        while self._going:
            try:
                self._carry()
            except _Gone:
                self._lose()
        return self._life

    # --- what may happen

    @property
    def _going(self) -> bool:
        self._steps += 1
        return self._truth.status.live and self._steps < TOO_LONG

    def _one(self, options: tuple[_T, ...]) -> _T:
        return options[self._choose(len(options))]

    def _mishap(self, one_in: int) -> bool:
        """Something goes wrong, or comes between; only so often in one life."""
        if self._trouble and self._choose(one_in) == one_in - 1:
            self._trouble -= 1
            return True
        return False

    def _new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._ids)}"

    def _accepted(self) -> RunAccepted:
        names = self._one((("main", "backup"), ("main",)))
        return RunAccepted(
            input=(Text("hi"),),
            models=tuple(ModelChoice(name) for name in names),
            attempts=self._one((2, 3, 1)),
            retry_total=self._one((600.0, 600.0, 0.0, 5.0)),
            message_id="m_0",
            tools=TOOLS,
            approval=self._one(("ask", "ask", "ask", "deny")),
            approval_timeout=self._one((0.0, 50.0)),
            budget=self._one((*[Budget()] * 6, Budget(turns=2), Budget(seconds=9.0))),
        )

    # --- people

    def _people(self) -> None:
        """Somebody may wish for something, at any moment while the run lives."""
        if self._truth.status.live and self._mishap(8):
            self._write(self._wish())

    def _wish(self) -> Wish:
        match self._choose(9):
            case 8:
                return InputEdited(parts=(Text("or rather this"),), by="ada")
            case 7:
                removed = not self._truth.epoch and bool(self._choose(2))
                return StopRequested(by="ada", removed=removed)
            case 4 | 5 | 6:
                return InputAdded(parts=(Text("by the way"),), message_id=self._new("m"))
            case _:
                known = (*self._approvals, "apr_nobody_asked")
                return self._answer(self._one(known))

    def _answer(self, approval_id: str) -> ApprovalAnswered:
        return ApprovalAnswered(approval_id=approval_id, choice=self._one(_CHOICES), by="ada")

    def _wait(self, timer: Timer | None) -> None:
        """The run rests. Time passes, or somebody answers."""
        if timer and (self._choose(3) == 2 or not self._truth.pending):
            self._now = max(self._now, timer.since + timer.seconds)
        elif self._truth.pending:
            pending = self._one(self._truth.pending)
            self._write(self._answer(pending.request.approval_id))

    # --- a worker

    def _worker(self) -> Rules:
        """A worker that may lack something, and may find a rule withdrawn."""
        tools = {spec.name for spec in TOOLS}
        return Rules(
            worker=f"worker_{self._epoch}",
            epoch=self._epoch,
            models={"main"} if self._mishap(8) else {"main", "backup"},
            tools=tools - {"pay"} if self._mishap(8) else tools,
            grants=() if self._mishap(4) else self._life.standing,
            spread=self._one((1.0, 0.0)),
        )

    def _carry(self) -> None:
        """Take the run, and plan and perform until it rests or ends."""
        self._epoch += 1
        self._rules = self._worker()
        self._seen = self._truth
        while self._going:
            self._people()
            if self._truth.seq > self._seen.seq and self._choose(2):
                self._seen = self._truth
            if self._told_to_stop():
                self._cut_off_tools()
            step = plan(self._seen, self._rules)
            # A wish may come between the decision and its record.
            self._people()
            if isinstance(step, Rest) and not self._due(step.timer):
                if self._truth.seq == self._seen.seq:
                    self._wait(step.timer)
                    return
                self._seen = self._truth
            else:
                self._perform(step)

    def _told_to_stop(self) -> bool:
        return self._seen.stopping

    def _due(self, timer: Timer | None) -> bool:
        return timer is not None and self._now >= timer.since + timer.seconds

    def _perform(self, step: Step) -> None:
        match step:
            case Record(events):
                self._record(*events)
            case CallModel():
                self._call(step)
            case RunTools(calls):
                self._start(calls)
            case AskPerson():
                self._ask(step)
            case _:
                self._pause(step.timer)

    def _record(self, *events: Event) -> None:
        """Write as the worker, and catch up. A final event is held back by a wish it has not seen."""
        if self._mishap(self._frailty):
            raise _Gone
        unseen = self._truth.seq > self._seen.seq
        if not (unseen and any(isinstance(event, FINAL) for event in events)):
            for event in events:
                self._write(event)
        self._seen = self._truth
        if self._mishap(self._frailty):
            raise _Gone

    def _write(self, event: Event) -> None:
        self._now += 1.0
        recorded = record(self._truth.seq + 1, self._now, event)
        self._truth = fold(self._truth, recorded)
        self._life.journal.append(recorded)

    def _lose(self) -> None:
        """The worker is gone, and with it all it had under way; the run is queued again."""
        self._running.clear()
        if self._truth.status.live:
            self._write(RunQueued(why=self._one(_LEAVES), worker=self._rules.worker))

    # --- the model

    def _call(self, step: CallModel) -> None:
        turn, attempt = step.turn, step.attempt
        assert step.model in self._rules.models, f"the worker does not have {step.model}"
        self._record(ModelCalled(turn=turn, attempt=attempt, model=step.model))
        if self._told_to_stop():
            return
        self._life.calls.append((self._truth.seq, self._seen.conversation))
        said = ""
        for _ in range(self._choose(5)):
            self._people()
            word = self._one(_WORDS)
            match self._choose(4):
                case 0 | 1:
                    said += word
                    self._record(TextStreamed(turn=turn, attempt=attempt, text=word))
                case 2:
                    self._record(ReasoningStreamed(turn=turn, attempt=attempt, text=word))
                case _:
                    unstreamed = bool(self._choose(2))
                    self._record(ModelHeard(turn=turn, attempt=attempt, unstreamed=unstreamed))
            if self._told_to_stop() and self._choose(2):
                return
        self._people()
        if self._mishap(4):
            self._record(self._failure(turn, attempt))
        else:
            self._record(self._reply(turn, attempt, said))

    def _failure(self, turn: int, attempt: int) -> ModelFailed:
        return ModelFailed(
            turn=turn,
            attempt=attempt,
            reason=self._one(tuple(sorted(REASONS))),
            status=self._one(_STATUSES),
            retry_after=self._one((None, 2.0, 90.0)),
            waited=self._one((0.0, 4.0, 700.0)),
            seconds=1.0,
        )

    def _reply(self, turn: int, attempt: int, said: str) -> ModelReplied:
        asks = min(self._choose(4), self._appetite)
        self._appetite -= asks
        return ModelReplied(
            turn=turn,
            attempt=attempt,
            text=said,
            calls=tuple(self._tool_call() for _ in range(asks)),
            stop=self._one(("stop", "length")),
            usage=Usage(input=3, output=1),
            seconds=1.0,
        )

    # --- tools

    def _tool_call(self) -> ToolCall:
        """A call of some tool; as often as not the one it asked for last, as models will."""
        if self._asked and self._choose(2):
            self._asked = replace(
                self._asked, id=self._new("call"), arguments=self._one(_ARGUMENTS)
            )
        else:
            self._asked = self._fresh_call()
        return self._asked

    def _fresh_call(self) -> ToolCall:
        name = self._one((*[spec.name for spec in TOOLS] * 2, "fly"))
        return ToolCall(
            id=self._new("call"),
            tool=name,
            arguments=self._one(_ARGUMENTS),
            problem="there is no tool 'fly'" if name == "fly" else "",
            gate=self._one(_GATES),
            key=self._one(("", "k1", "k2")),
        )

    def _start(self, calls: tuple[ToolCall, ...]) -> None:
        assert all(call.tool in self._rules.tools for call in calls), "the worker lacks a tool"
        self._record(*(ToolStarted(call_id=call.id) for call in calls))
        first = self._seen.seq - len(calls) + 1
        for seq, call in enumerate(calls, first):
            if may_start(self._seen, call.id, self._rules):
                self._life.effects.append((seq, call))
                self._running[call.id] = call

    def _finish(self) -> None:
        call = self._one(tuple(self._running.values()))
        if self._mishap(6):
            self._record(ToolProgressed(call_id=call.id, text=self._one(_WORDS)))
        outcome = self._one(_OUTCOMES)
        del self._running[call.id]
        self._record(
            ToolFinished(call_id=call.id, outcome=outcome, output=self._one(_WORDS), seconds=1.0)
        )

    def _cut_off_tools(self) -> None:
        """A stop was seen. What has just ended may still be recorded; the rest is cut off."""
        while self._running and self._choose(2):
            self._finish()
        self._running.clear()

    def _ask(self, step: AskPerson) -> None:
        assert self._seen.accepted is not None
        requests = [
            ApprovalRequested(
                approval_id=self._new("apr"),
                call_id=call.id,
                tool=call.tool,
                reason=ask.reason,
                doubt=ask.doubt,
                expires=self._seen.accepted.approval_timeout,
            )
            for call, ask in step.asks
        ]
        # Known beforehand, so that somebody can be quicker than the question.
        self._approvals += [request.approval_id for request in requests]
        self._people()
        self._record(*requests)

    def _pause(self, timer: Timer | None) -> None:
        """Something comes to its end: a tool, or the wait for somebody or for the next attempt."""
        self._people()
        if self._mishap(6):
            raise _Gone
        if self._truth.stopping:
            self._seen = self._truth
        elif timer and (not self._running or self._due(timer) or self._choose(4) == 3):
            self._now = max(self._now, timer.since + timer.seconds)
            self._perform(timer.then)
        else:
            self._finish()
