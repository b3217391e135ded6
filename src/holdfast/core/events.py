"""The facts a run can record.

A run is its events, in order; everything else about it (its status, its conversation, what
to do next) is computed from them. So an event is named in the past tense and says only
what happened.

Events outlive the code that wrote them. A tag is chosen once and never reused; a field may be
added with a default, and is never renamed or retyped; a default that is left out of the bytes
is part of the format and never changes. Golden journals in `tests/fixtures/journals` hold
every shape that was ever written.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.core.messages import BlobRef, Part, Reasoning, ToolCall, ToolSpec
from holdfast.core.usage import Budget, Usage
from holdfast.core.watchdog import Patience


# Without the garbage collector: a tree of frozen values has no cycles to look for.
class _Event(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    pass


# --- the run ---------------------------------------------------------------------------


class ModelChoice(Struct, frozen=True):
    """A model by its configured name, and how it was to be called when the run was accepted.

    `grows` names the limits of its patience that nobody set: a longer conversation makes
    them longer.
    """

    name: str
    options: dict[str, Any] = {}
    patience: Patience = Patience()
    grows: tuple[str, ...] = ()


class Parent(Struct, frozen=True):
    """The run that started this one, and the event by which it did."""

    run_id: str
    seq: int


class RunAccepted(_Event, frozen=True, tag="run.accepted", omit_defaults=False):
    """Everything a worker needs to carry the run, today or on another machine next week.

    `models` are the first choice and its fallbacks, resolved; a resumed run uses these and
    not what has been configured since. `history` is a conversation that came with the request;
    without one, `recall` is how many messages of its session are told, the last ones, None for all;
    `asked_model` and `metadata` are the request's own words, for whoever asks what became of it;
    `asked` is what else the wire it came by has to know of it, and none of a worker's business.
    """

    input: tuple[Part, ...]
    models: tuple[ModelChoice, ...]
    attempts: int = 4
    retry_total: float = 600.0
    message_id: str = ""
    session_id: str = ""
    parent: Parent | None = None
    history: tuple[BlobRef, ...] = ()
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    approval: Literal["ask", "deny"] = "ask"
    approval_timeout: float = 86400.0
    budget: Budget = Budget()
    workspace: str = ""
    surface: str = ""
    principal: str = ""
    asked_model: str = ""
    metadata: dict[str, str] = {}
    asked: dict[str, Any] = {}
    recall: int | None = None


class RunQueued(_Event, frozen=True, tag="run.queued"):
    """The run is up for grabs again.

    `drained`: its worker let go in good order. `rescued`: its worker vanished. `tripped`: its worker
    lives but stumbled over it. The last two count towards giving up on the run.
    """

    why: Literal["drained", "rescued", "tripped"]
    worker: str = ""
    detail: str = ""


class RunStarted(_Event, frozen=True, tag="run.started"):
    """A worker took the run. Appears again each time another one takes over."""

    worker: str
    epoch: int


class RunWaiting(_Event, frozen=True, tag="run.waiting"):
    """The run cannot go on here, and this is what it lacks. `place`: its turn at a busy endpoint."""

    what: Literal["model", "tool", "place"]
    name: str


# --- the model -------------------------------------------------------------------------


class ModelCalled(_Event, frozen=True, tag="model.called"):
    """Written before the call. Attempts count from 1 in each turn and are never used twice."""

    turn: int
    attempt: int
    model: str
    patience: Patience = Patience()


class ModelHeard(_Event, frozen=True, tag="model.heard"):
    """The backend acknowledged the call; it is `between` that limits the wait now.

    `unstreamed`: the reply comes in one piece, and it is `whole`.
    """

    turn: int
    attempt: int
    unstreamed: bool = False


class TextStreamed(_Event, frozen=True, tag="model.text"):
    """Words as they arrived; superseded by the ModelReplied that follows, if one does."""

    turn: int
    attempt: int
    text: str


class ReasoningStreamed(_Event, frozen=True, tag="model.reasoning"):
    turn: int
    attempt: int
    text: str


class ModelRetracted(_Event, frozen=True, tag="model.retracted"):
    """The attempt is abandoned: forget what it streamed, which is all past seq `after`."""

    turn: int
    attempt: int
    after: int


class ModelReplied(_Event, frozen=True, tag="model.replied"):
    """A whole reply, end marker and all. Its text is exactly what the attempt streamed.

    `model` is what the endpoint says replied.
    """

    turn: int
    attempt: int
    text: str = ""
    reasoning: tuple[Reasoning, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    stop: Literal["stop", "length", "refusal"] = "stop"
    usage: Usage = Usage()
    seconds: float = 0.0
    model: str = ""


class ModelFailed(_Event, frozen=True, tag="model.failed"):
    """An attempt ended without a reply. `reason` is a close reason of `core.retry`."""

    turn: int
    attempt: int
    reason: str
    message: str = ""
    status: int | None = None
    retry_after: float | None = None
    waited: float = 0.0
    seconds: float = 0.0


# --- tools -----------------------------------------------------------------------------


class ToolStarted(_Event, frozen=True, tag="tool.started"):
    """Written before the tool runs, so that a crash leaves the doubt on record.

    `rule` is the standing yes by which nobody was asked, if it was one.
    """

    call_id: str
    rule: str = ""


class ToolProgressed(_Event, frozen=True, tag="tool.progress"):
    call_id: str
    text: str


#: ok, error, timeout: it ran. cancelled: it was cut off by a stop. unknown: a crash hid how it ended.
#: The others never started: not_started, denied and expired by a person, refused by policy.
Outcome: TypeAlias = Literal[
    "ok",
    "error",
    "timeout",
    "cancelled",
    "unknown",
    "not_started",
    "denied",
    "expired",
    "refused",
]


class ToolFinished(_Event, frozen=True, tag="tool.finished"):
    """What the model is told. When that is shortened, `blob` holds the whole output."""

    call_id: str
    outcome: Outcome
    output: str = ""
    blob: BlobRef | None = None
    seconds: float = 0.0


# --- approvals -------------------------------------------------------------------------


class ApprovalRequested(_Event, frozen=True, tag="approval.requested"):
    """A person is asked about one call. `doubt` names an earlier call that may have taken effect.

    `digest` is the sum of all that was shown: an answer that names another one is for something else.
    """

    approval_id: str
    call_id: str
    tool: str
    subject: str = ""
    reason: str = ""
    doubt: str = ""
    expires: float = 0.0
    binding: str = ""
    digest: str = ""
    key: str = ""


Choice: TypeAlias = Literal["once", "session", "always", "deny"]


class ApprovalAnswered(_Event, frozen=True, tag="approval.answered"):
    """An answer from outside. Means nothing unless that approval is pending at this point."""

    approval_id: str
    choice: Choice
    by: str = ""


class ApprovalExpired(_Event, frozen=True, tag="approval.expired"):
    approval_id: str


# --- wishes ----------------------------------------------------------------------------


class StopRequested(_Event, frozen=True, tag="stop.requested"):
    """`removed`: it was wished before the run began, by somebody who takes back what they asked."""

    by: str = ""
    reason: str = ""
    removed: bool = False


class InputAdded(_Event, frozen=True, tag="input.added"):
    """A message for the live run; the model sees it at its next call."""

    parts: tuple[Part, ...]
    message_id: str = ""
    by: str = ""


class InputEdited(_Event, frozen=True, tag="input.edited"):
    """What was asked, in other words. Means nothing once the run has begun."""

    parts: tuple[Part, ...]
    by: str = ""


# --- the end ---------------------------------------------------------------------------


class RunCompleted(_Event, frozen=True, tag="run.completed"):
    """`incomplete` says why the last reply is not all the model had to say."""

    incomplete: Literal["", "length", "refusal"] = ""


class RunFailed(_Event, frozen=True, tag="run.failed"):
    code: Literal["model", "context", "budget", "rescues"]
    message: str


class Receipt(Struct, frozen=True, omit_defaults=True):
    """What a stop cut off: model calls, tool calls by id, and whether a provider may still bill.

    `problems` are what went wrong meanwhile. `ended` tells of each process that was ended, and how; `left`
    of what goes on, such as a thread.
    """

    model_calls: int = 0
    tool_calls: tuple[str, ...] = ()
    may_bill: bool = False
    problems: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class RunCancelled(_Event, frozen=True, tag="run.cancelled"):
    receipt: Receipt = Receipt()


# --- all of them -----------------------------------------------------------------------


class Unknown(Struct, frozen=True):
    """An event written by a newer version. Kept, shown, and never acted upon."""

    tag: str


Wish: TypeAlias = ApprovalAnswered | StopRequested | InputAdded | InputEdited
Final: TypeAlias = RunCompleted | RunFailed | RunCancelled
Event: TypeAlias = (
    RunAccepted
    | RunQueued
    | RunStarted
    | RunWaiting
    | ModelCalled
    | ModelHeard
    | TextStreamed
    | ReasoningStreamed
    | ModelRetracted
    | ModelReplied
    | ModelFailed
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | ApprovalRequested
    | ApprovalExpired
    | Wish
    | Final
)

#: Written by anyone, at any moment, while a run lives; `fold` decides what they mean. All other
#: events are written only by the worker that holds the run.
WISHES = (ApprovalAnswered, StopRequested, InputAdded, InputEdited)

FINAL = (RunCompleted, RunFailed, RunCancelled)


class Recorded(Struct, frozen=True, gc=False):
    """An event in its place in the journal. `seq` counts from 1 without gaps.

    `body` is what was stored. It is never encoded again, so what a reader gets is what was
    written, byte for byte, whatever this version would have made of it.
    """

    seq: int
    at: float
    event: Event | Unknown
    body: bytes
