"""What a response consists of: thoughts, words, calls of tools and what came of them.

Each item is opened, grows and is closed once. The words of an attempt are one item and its thoughts
another; they stay open until the attempt is over, so that an item which was called complete stands
for ever; only that it is the answer may prove wrong. What is told of an event are its frames without their numbers; no event has more than a
handful of them, since a call is told when something happens to it, and not with all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.core.events import (
    ApprovalRequested,
    ModelCalled,
    ModelReplied,
    ModelRetracted,
    ReasoningStreamed,
    Recorded,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import ToolCall
from holdfast.core.state import RunState
from holdfast.server.frames import Fields, find_tool
from holdfast.server.openai.ids import bare
from holdfast.server.openai.reading import BLANK, Reading

Standing: TypeAlias = Literal["in_progress", "completed", "incomplete"]
Kind: TypeAlias = Literal["message", "reasoning"]

#: The outcomes of calls that ran.
_RAN = ("ok", "error", "timeout")


# --- items -----------------------------------------------------------------------------


class Words(Struct):
    """What a model said or thought in one attempt."""

    id: str
    index: int
    kind: Kind
    pieces: list[str] = []
    status: Standing = "in_progress"
    phase: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def part(self) -> Fields:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def shape(self) -> Fields:
        content = [self.part] if self.pieces else []
        common = {"id": self.id, "type": self.kind, "status": self.status, "content": content}
        if self.kind == "reasoning":
            return {**common, "summary": []}
        said = {**common, "role": "assistant"}
        return {**said, "phase": self.phase} if self.phase else said


class Call(Struct, frozen=True):
    """Whole from the start: until a call is whole, nobody is told of it."""

    id: str
    index: int
    call: ToolCall
    status: Standing = "completed"

    def shape(self, arguments: str | None = None) -> Fields:
        return {
            "id": self.id,
            "type": "function_call",
            "status": self.status if arguments is None else "in_progress",
            "call_id": self.call.id,
            "name": self.call.tool,
            "arguments": self.call.arguments if arguments is None else arguments,
        }


class Result(Struct, frozen=True):
    id: str
    index: int
    call_id: str
    output: str
    status: Standing

    def shape(self) -> Fields:
        return {
            "id": self.id,
            "type": "function_call_output",
            "status": self.status,
            "call_id": self.call_id,
            "output": self.output,
        }


Item: TypeAlias = Words | Call | Result


# --- all of them -----------------------------------------------------------------------


class View:
    """A run as a response so far. Fed the journal from its first event on."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.reading = run_id, Reading()
        #: What stands, or is on its way.
        self.items: list[Item] = []
        self._open: dict[Kind, Words] = {}
        self._calls: set[str] = set()
        #: The last reply, if nothing was known that is to follow it.
        self._answer: Words | None = None
        #: How many there were, with those that were taken back.
        self._count = 0
        self._tell: Mapping[type[Any], Callable[[Recorded, RunState], Iterator[Fields]]] = {
            TextStreamed: self._text,
            ReasoningStreamed: self._thought,
            ModelCalled: self._asked,
            ModelReplied: self._replied,
            ModelRetracted: self._taken_back,
            ApprovalRequested: self._called,
            ToolStarted: self._called,
            ToolFinished: self._finished,
        }

    def take(self, recorded: Recorded) -> list[Fields]:
        """What is told of the items by this event."""
        before = self.reading.take(recorded)
        tell = self._tell.get(type(recorded.event))
        return list(tell(recorded, before)) if tell else []

    def close(self) -> list[Fields]:
        """The run is over, and with it whatever was under way."""
        return list(self._close("incomplete"))

    # --- words

    def _text(self, recorded: Recorded, _before: RunState) -> Iterator[Fields]:
        yield from self._grow("message", "msg", recorded)

    def _thought(self, recorded: Recorded, _before: RunState) -> Iterator[Fields]:
        yield from self._grow("reasoning", "rs", recorded)

    def _grow(self, kind: Kind, prefix: str, recorded: Recorded) -> Iterator[Fields]:
        event: Any = recorded.event
        item = self._open.get(kind)
        if item is None:
            id = f"{prefix}_{bare(self.run_id)}_{recorded.seq}"
            item = self._open[kind] = Words(id, self._index(), kind, phase=self._phase(kind))
            self.items.append(item)
            yield _item("added", item.index, item.shape())
            yield {"type": "response.content_part.added", **_place(item), "part": item.part}
        yield _grown(item, event.text)

    def _phase(self, kind: Kind) -> str:
        """What words are before it is known whether a call follows them, or they are taken back.

        Where a shape was asked for, clients read all words that are not called a commentary for it,
        and give up on those that do not have it.
        """
        return "commentary" if kind == "message" and self.reading.shaped else ""

    def _asked(self, _recorded: Recorded, _before: RunState) -> Iterator[Fields]:
        """Somebody spoke when the answer stood, so it was none. Who was told so sees it at the end."""
        if self._answer:
            self._answer.phase = "commentary"
        self._answer = None
        yield from ()

    def _replied(self, recorded: Recorded, before: RunState) -> Iterator[Fields]:
        event: Any = recorded.event
        message = self._open.get("message")
        if message and (event.calls or before.inputs):
            message.phase = "commentary"
            # OpenAI's clients put the texts of all messages together with nothing in between.
            yield _grown(message, BLANK)
        elif message:
            message.phase, self._answer = "final_answer", message
        yield from self._close("completed" if event.stop == "stop" else "incomplete")

    def _taken_back(self, _recorded: Recorded, _before: RunState) -> Iterator[Fields]:
        gone = tuple(self._open.values())
        yield from self._close("incomplete")
        self.items = [item for item in self.items if item not in gone]

    def _close(self, status: Standing) -> Iterator[Fields]:
        for item in self._open.values():
            item.status = status
            yield {**_at(item, "done"), "text": item.text}
            yield {"type": "response.content_part.done", **_place(item), "part": item.part}
            yield _item("done", item.index, item.shape())
        self._open = {}

    # --- tools

    def _called(self, recorded: Recorded, _before: RunState) -> Iterator[Fields]:
        event: Any = recorded.event
        yield from self._call(find_tool(self.reading.now, event.call_id).call)

    def _call(self, call: ToolCall) -> Iterator[Fields]:
        """Whatever happens to a call first brings it up."""
        if call.id in self._calls:
            return
        self._calls.add(call.id)
        item = Call(f"fc_{call.id}", self._index(), call)
        self.items.append(item)
        place = {"item_id": item.id, "output_index": item.index}
        about = "response.function_call_arguments"
        yield _item("added", item.index, item.shape(arguments=""))
        yield {"type": f"{about}.delta", **place, "delta": call.arguments}
        yield {"type": f"{about}.done", **place, "arguments": call.arguments}
        yield _item("done", item.index, item.shape())

    def _finished(self, recorded: Recorded, before: RunState) -> Iterator[Fields]:
        event: Any = recorded.event
        yield from self._call(find_tool(before, event.call_id).call)
        status: Standing = "completed" if event.outcome in _RAN else "incomplete"
        item = Result(f"fco_{event.call_id}", self._index(), event.call_id, event.output, status)
        self.items.append(item)
        yield _item("added", item.index, item.shape())
        yield _item("done", item.index, item.shape())

    def _index(self) -> int:
        self._count += 1
        return self._count - 1


def _item(what: Literal["added", "done"], index: int, shape: Fields) -> Fields:
    return {"type": f"response.output_item.{what}", "output_index": index, "item": shape}


def _place(item: Words) -> Fields:
    return {"item_id": item.id, "output_index": item.index, "content_index": 0}


def _grown(item: Words, text: str) -> Fields:
    item.pieces.append(text)
    return {**_at(item, "delta"), "delta": text}


def _at(item: Words, what: Literal["delta", "done"]) -> Fields:
    """How a piece of it, or all of it, is told."""
    if item.kind == "reasoning":
        return {"type": f"response.reasoning_text.{what}", **_place(item)}
    return {"type": f"response.output_text.{what}", **_place(item), "logprobs": []}
