"""Short ways to say what happened to a run, for tests that tell it."""

from holdfast.core.codec import record
from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelReplied,
    Recorded,
    RunAccepted,
    RunQueued,
    RunStarted,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import Text, ToolCall, ToolSpec
from holdfast.core.plan import Rules
from holdfast.core.run import RunState, fold, replay

PAY = ToolSpec(name="pay")
PUT = ToolSpec(name="put", repeatable=True)
LOOK = ToolSpec(name="look", writes=False, parallel=True)


def accepted(*models, **fields):
    choices = tuple(ModelChoice(name) for name in models or ("main", "backup"))
    given = {"input": (Text("hi"),), "models": choices, "tools": (PAY, PUT, LOOK), **fields}
    return RunAccepted(**given)


def started(epoch=1, worker="ada"):
    return RunStarted(worker=worker, epoch=epoch)


def rescued(why="rescued"):
    return RunQueued(why=why)


def lost(epoch):
    """The worker vanishes, and another one takes over with this epoch."""
    return (rescued(), started(epoch))


def called(turn=1, attempt=1, model="main", **fields):
    return ModelCalled(turn=turn, attempt=attempt, model=model, **fields)


def said(text, turn=1, attempt=1):
    return TextStreamed(turn=turn, attempt=attempt, text=text)


def failed(reason="reset", turn=1, attempt=1, **fields):
    return ModelFailed(turn=turn, attempt=attempt, reason=reason, **fields)


def replied(*calls, turn=1, attempt=1, **fields):
    return ModelReplied(turn=turn, attempt=attempt, calls=calls, **fields)


def call(id="c1", tool="pay", arguments='{"sum": 1}', **fields):
    return ToolCall(id=id, tool=tool, arguments=arguments, **fields)


def begun(id="c1"):
    return ToolStarted(call_id=id)


def done(id="c1", outcome="ok", **fields):
    return ToolFinished(call_id=id, outcome=outcome, **fields)


def asked(id="c1", approval="a1", tool="pay", **fields):
    return ApprovalRequested(approval_id=approval, call_id=id, tool=tool, **fields)


def answer(choice="once", approval="a1", by=""):
    return ApprovalAnswered(approval_id=approval, choice=choice, by=by)


def asking(*calls, **fields):
    """A first turn that ends in these calls."""
    return (accepted(**fields), started(), called(), replied(*calls))


def journal(*events) -> list[Recorded]:
    """The events in their places, one a second."""
    return [record(seq, float(seq), event) for seq, event in enumerate(events, 1)]


def state(*events) -> RunState:
    return replay(journal(*events))


def go_on(before, *events) -> RunState:
    """The state after some more events, one a second."""
    for event in events:
        before = fold(before, record(before.seq + 1, before.seq + 1.0, event))
    return before


def rules(epoch=1, **fields):
    given = {"models": {"main", "backup"}, "tools": {"pay", "put", "look"}, **fields}
    return Rules(worker="ada", epoch=epoch, **given)
