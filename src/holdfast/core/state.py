"""Where a run stands: the value that `fold` computes, and nothing that could not be computed.

Frozen, so that a state can be kept, compared and reasoned about. Text and conversation are
piles, which grow without copying what is there.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.events import (
    ApprovalRequested,
    Choice,
    Final,
    ModelReplied,
    RunAccepted,
    RunWaiting,
    StopRequested,
    ToolFinished,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Message, ToolCall, ToolSpec, UserMessage
from holdfast.core.retry import Failure
from holdfast.core.usage import Usage
from holdfast.core.watchdog import Patience


class AttemptState(Struct, frozen=True):
    """The latest attempt at this turn's reply. `called` is the seq before its first word."""

    number: int
    model: str
    epoch: int
    called: int
    at: float
    patience: Patience = Patience()
    #: Recorded after a stop, so the call was never made.
    late: bool = False
    open: bool = True
    heard: bool = False
    heard_at: float = 0.0
    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()

    @property
    def shown(self) -> bool:
        """A viewer has words of it on the screen."""
        return bool(self.text or self.reasoning)


class ToolState(Struct, frozen=True):
    """A call of the last reply, and how far it got."""

    call: ToolCall
    #: Starts that took effect. One recorded after a stop did not, and is not among them.
    starts: int = 0
    epoch: int = 0
    at: float = 0.0
    asked: bool = False
    answer: Choice | None = None
    expired: bool = False
    result: ToolFinished | None = None


class Pending(Struct, frozen=True):
    """An approval that waits for an answer."""

    request: ApprovalRequested
    at: float


class Grant(Struct, frozen=True):
    """A standing yes: `key` is as far as it reaches, `scope` how long; `rule` is what it is listed as."""

    tool: str
    key: str
    scope: Choice
    rule: str = ""


class RunState(Struct, frozen=True):
    status: Status = Status.NEW
    seq: int = 0
    at: float = 0.0
    accepted: RunAccepted | None = None
    worker: str = ""
    epoch: int = 0
    waiting: RunWaiting | None = None
    waiting_at: float = 0.0
    #: Whole replies so far. The turn under way is the next one.
    replies: int = 0
    reply: ModelReplied | None = None
    attempt: AttemptState | None = None
    failures: tuple[Failure, ...] = ()
    tools: tuple[ToolState, ...] = ()
    pending: tuple[Pending, ...] = ()
    #: What each settled approval came to, for whoever answers late.
    settled: dict[str, str] = {}
    grants: tuple[Grant, ...] = ()
    #: Calls whose outcome a crash hid: what was called, and the id of that call.
    doubts: dict[str, str] = {}
    inputs: tuple[UserMessage, ...] = ()
    messages: tuple[tuple[Message, ...], ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    rescues: int = 0
    stop: StopRequested | None = None
    stopped_at: float = 0.0
    ended: Final | None = None
    unknown: str = ""

    @property
    def stopping(self) -> bool:
        return self.status is Status.STOPPING

    @property
    def open_tools(self) -> tuple[ToolState, ...]:
        """Calls of the last reply that have no result yet."""
        return tuple(tool for tool in self.tools if tool.result is None)

    @property
    def output(self) -> str:
        """The text of the last reply."""
        return self.reply.text if self.reply else ""

    @property
    def conversation(self) -> tuple[Message, ...]:
        """What the model is shown, but for a history that came with the request."""
        return tuple(message for piece in self.messages for message in piece)

    def running(self, tool: ToolState) -> bool:
        """It was started by the worker that holds the run now."""
        return bool(tool.starts) and tool.epoch == self.epoch and tool.result is None

    def in_doubt(self, tool: ToolState) -> bool:
        """It was started by a worker that is gone, and nobody knows how it ended."""
        return bool(tool.starts) and tool.epoch != self.epoch and tool.result is None

    def spec(self, name: str) -> ToolSpec | None:
        tools = self.accepted.tools if self.accepted else ()
        return next((spec for spec in tools if spec.name == name), None)
