"""A run's events, as somebody at a terminal wants to read them.

What the model says goes to `words`, everything else to `notes`. At a terminal the two are one;
where the output is kept or piped on, it holds the words alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import localtime, strftime
from typing import IO, Any, Protocol

import msgspec

from holdfast.cli.terminal import Terminal
from holdfast.cli.visible import visible_json
from holdfast.cli.waiting import waiting
from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalExpired,
    InputAdded,
    InputEdited,
    ModelFailed,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    Receipt,
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
    ToolProgressed,
    ToolStarted,
    Unknown,
)
from holdfast.core.messages import ToolCall, plain
from holdfast.core.phase import Phase

#: What stands for a call that the journal speaks of and does not hold.
_NO_CALL = ToolCall(id="", tool="a tool that was not asked for")

_BREAK = "[connection lost; starting again]"

_QUEUED = {
    "drained": "the process that carried the run let go of it",
    "rescued": "the process that carried the run is gone",
    "tripped": "the run was dropped over trouble",
}


class Viewer(Protocol):
    """Whatever shows a run as it goes."""

    def begin(self, run_id: str, journal: Sequence[Recorded] = (), *, after: int = 0) -> None:
        """Turn to this run. Of what is recorded so far, show what is past `after`."""
        ...

    def show(self, recorded: Recorded) -> None: ...

    def skip(self, recorded: Recorded) -> None:
        """It happened and is not to be shown; what comes later may be about it."""
        ...

    def wait(self, phase: Phase | None, *, now: float) -> None:
        """Nothing has happened for a while, and this is why."""
        ...

    def warn(self, text: str) -> None:
        """Something is in the way that is no part of the run."""
        ...


class JsonLines:
    """One line of JSON an event, holding the bytes that were recorded."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._run = b'""'

    def begin(self, run_id: str, journal: Sequence[Recorded] = (), *, after: int = 0) -> None:
        self._run = msgspec.json.encode(run_id)
        for recorded in journal:
            if recorded.seq > after:
                self.show(recorded)

    def show(self, recorded: Recorded) -> None:
        at = msgspec.json.encode(recorded.at)
        place = b'{"run":%b,"seq":%d,"at":%b,' % (self._run, recorded.seq, at)
        line = b'%b"event":%b}\n' % (place, recorded.body)
        self._file.write(visible_json(line, self._file))
        self._file.flush()

    def skip(self, recorded: Recorded) -> None:
        pass

    def wait(self, phase: Phase | None, *, now: float) -> None:
        pass

    def warn(self, text: str) -> None:
        Terminal(sys.stderr).line(f"! {text}", "yellow")


class Screen:
    def __init__(self, words: Terminal, notes: Terminal) -> None:
        self._words, self._notes = words, notes
        self._calls: dict[str, ToolCall] = {}
        self._last: type[object] | None = None

    def begin(self, run_id: str, journal: Sequence[Recorded] = (), *, after: int = 0) -> None:
        self._last = None
        if journal and not after:
            self._notes.gap()
            self._notes.line(f"{run_id} · {moment(journal[0].at)}", "dim")
            if isinstance(first := journal[0].event, RunAccepted):
                # Whoever starts a run knows what they asked for; whoever comes later may not.
                self._notes.line(f"> {plain(first.input)}", "bold")
                self._notes.gap()
        for recorded in standing(journal):
            if recorded.seq > after:
                self.show(recorded)
            else:
                self.skip(recorded)

    def skip(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, ModelReplied):
            self._learn(recorded.event)

    def show(self, recorded: Recorded) -> None:
        event = recorded.event
        self._notes.clear()
        if show := _SHOW.get(type(event)):
            show(self, event)
            self._last = type(event)

    def wait(self, phase: Phase | None, *, now: float) -> None:
        if phase:
            self._notes.wait(waiting(phase, now=now))

    def warn(self, text: str) -> None:
        self._notes.line(f"! {text}", "yellow")

    # --- the model

    def text(self, event: TextStreamed) -> None:
        self._stream(self._words, event, event.text)

    def reasoning(self, event: ReasoningStreamed) -> None:
        self._stream(self._notes, event, event.text, "dim italic")

    def retracted(self) -> None:
        for terminal in {self._words, self._notes}:
            terminal.gap()
            terminal.line(_BREAK, "yellow")
            terminal.gap()

    def failed(self, event: ModelFailed) -> None:
        if event.reason != "interrupt_abort":
            self._note(f"! {event.message or event.reason}", "yellow")

    def replied(self, event: ModelReplied) -> None:
        self._learn(event)
        self._words.fresh()

    # --- tools

    def tool_started(self, event: ToolStarted) -> None:
        call = self._calls.get(event.call_id, _NO_CALL)
        what = call.subject or ("" if call.arguments == "{}" else call.arguments)
        by = f" (by {event.rule})" if event.rule else ""
        self._note(self._short(f"→ {call.tool}{by} {what}".rstrip()), "cyan")

    def tool_progressed(self, event: ToolProgressed) -> None:
        self._stream(self._notes, event, event.text, "dim")

    def tool_finished(self, event: ToolFinished) -> None:
        name = self._calls.get(event.call_id, _NO_CALL).tool
        if event.outcome == "ok":
            self._note(self._short(f"✓ {name}: {event.output}"), "green")
        else:
            said = f": {event.output}" if event.output else ""
            self._note(f"✗ {name}, {event.outcome.replace('_', ' ')}{said}", "red")

    # --- people

    def answered(self, event: ApprovalAnswered) -> None:
        self._note(f"  answered: {event.choice}", "dim")

    def expired(self) -> None:
        self._note("  nobody answered in time", "yellow")

    def added(self, event: InputAdded) -> None:
        self._note(f"+ {plain(event.parts)}", "bold")

    def edited(self, event: InputEdited) -> None:
        self._note(f"asked instead: {plain(event.parts)}", "bold")

    def stop(self) -> None:
        self._note("stopping …", "yellow")

    # --- the run

    def queued(self, event: RunQueued) -> None:
        detail = f": {event.detail}" if event.detail else ""
        self._note(f"! {_QUEUED[event.why]}; it is queued again{detail}", "yellow")

    def lacking(self, event: RunWaiting) -> None:
        if event.what != "place":
            self._note(f"! the {event.what} {event.name} is not here; waiting for it", "yellow")

    def unknown(self, event: Unknown) -> None:
        self._note(f"! {event.tag} was written by a newer version", "yellow")

    def completed(self, event: RunCompleted) -> None:
        self._words.fresh()
        if event.incomplete == "length":
            self._note("! the reply was cut short by the model's limit", "yellow")
        elif event.incomplete == "refusal":
            self._note("! the model declined to go on", "yellow")

    def run_failed(self, event: RunFailed) -> None:
        self._note(f"✗ the run failed: {event.message}", "bold red")

    def cancelled(self, event: RunCancelled) -> None:
        self._note(receipt(event.receipt, self._calls), "yellow")

    # --- on the page

    def _learn(self, event: ModelReplied) -> None:
        self._calls |= {call.id: call for call in event.calls}

    def _stream(self, terminal: Terminal, event: object, text: str, style: str = "") -> None:
        if self._last is not type(event):
            # They may be two streams and yet end up on the same screen.
            self._words.fresh()
            self._notes.fresh()
            terminal.gap()
        terminal.write(text, style)

    def _note(self, text: str, style: str) -> None:
        """A line among its like, apart from what was streamed."""
        self._words.fresh()
        if self._last in (TextStreamed, ReasoningStreamed, ModelReplied):
            self._notes.gap()
        self._notes.line(text, style)

    def _short(self, text: str) -> str:
        """One line of it."""
        line = " ".join(text.split())
        room = max(self._notes.width - 1, 20)
        return line if len(line) <= room else line[: room - 1] + "…"


def standing(journal: Iterable[Recorded]) -> list[Recorded]:
    """The journal without the words that were taken back, and without their being taken back."""
    events = list(journal)
    back = {
        (recorded.event.turn, recorded.event.attempt)
        for recorded in events
        if isinstance(recorded.event, ModelRetracted)
    }
    return [recorded for recorded in events if not _taken_back(recorded.event, back)]


def _taken_back(event: object, back: set[tuple[int, int]]) -> bool:
    match event:
        case (
            TextStreamed(turn=turn, attempt=attempt) | ReasoningStreamed(turn=turn, attempt=attempt)
        ):
            return (turn, attempt) in back
        case _:
            return isinstance(event, ModelRetracted)


def moment(at: float) -> str:
    """A wall time, for people."""
    try:
        return strftime("%Y-%m-%d %H:%M", localtime(at))
    except (OverflowError, OSError, ValueError):
        return f"{at:g} s since 1970"


def receipt(receipt: Receipt, calls: Mapping[str, ToolCall]) -> str:
    """What a stop cut off, in a sentence."""
    tools = (calls.get(id, _NO_CALL).tool for id in receipt.tool_calls)
    cut = [f"{tool}, which may have had effects" for tool in tools]
    if receipt.model_calls:
        may = ", which may still be billed" if receipt.may_bill else ""
        cut.insert(0, f"a model call{may}")
    told = f"stopped; cut off: {'; '.join(cut)}" if cut else "stopped; nothing was cut off"
    ended = (f"  ended: {words}" for words in receipt.ended)
    left = (f"! goes on: {words}" for words in receipt.left)
    return "\n".join((told, *ended, *left, *(f"! {problem}" for problem in receipt.problems)))


_SHOW: Mapping[type[object], Callable[[Screen, Any], None]] = {
    TextStreamed: Screen.text,
    ReasoningStreamed: Screen.reasoning,
    ModelRetracted: lambda screen, _: screen.retracted(),
    ModelFailed: Screen.failed,
    ModelReplied: Screen.replied,
    ToolStarted: Screen.tool_started,
    ToolProgressed: Screen.tool_progressed,
    ToolFinished: Screen.tool_finished,
    ApprovalAnswered: Screen.answered,
    ApprovalExpired: lambda screen, _: screen.expired(),
    InputAdded: Screen.added,
    InputEdited: Screen.edited,
    StopRequested: lambda screen, _: screen.stop(),
    RunQueued: Screen.queued,
    RunWaiting: Screen.lacking,
    RunCompleted: Screen.completed,
    RunFailed: Screen.run_failed,
    RunCancelled: Screen.cancelled,
    Unknown: Screen.unknown,
}
