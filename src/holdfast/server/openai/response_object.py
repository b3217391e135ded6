"""A run as a response: at any moment, whole, and computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from holdfast.core.events import InputAdded, Recorded, RunCancelled, RunCompleted, RunFailed
from holdfast.core.lifecycle import Status
from holdfast.core.messages import (
    AssistantMessage,
    Message,
    Part,
    Text,
    ToolMessage,
    UserMessage,
)
from holdfast.core.run import replay
from holdfast.core.state import RunState
from holdfast.core.usage import Usage
from holdfast.server.content import Instruction
from holdfast.server.frames import Fields
from holdfast.server.openai.ids import bare, response_id
from holdfast.server.openai.request import Echo
from holdfast.server.openai.response_items import Call, Result, View
from holdfast.server.problems import malformed

Order: TypeAlias = Literal["asc", "desc"]

#: Items in one page.
MOST_ITEMS = 100
USUAL_ITEMS = 20

#: Why a reply is not all there was to say, in the words of this wire.
_REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}
#: This wire has few codes for what went wrong; what it has none for is our own trouble.
_CODES = {"context": "invalid_prompt"}


def response_object(
    run_id: str, journal: Sequence[Recorded], *, echo: Echo | None = None
) -> Mapping[str, Any]:
    """The run as it stands by this journal. `echo` is what the request said of itself."""
    view = View(run_id)
    for recorded in journal:
        view.take(recorded)
    if view.reading.now.ended:
        view.close()
    return describe(view, echo or Echo())


def describe(view: View, echo: Echo) -> Mapping[str, Any]:
    state = view.reading.now
    completed = isinstance(state.ended, RunCompleted)
    return {
        "id": response_id(view.run_id),
        "object": "response",
        "created_at": view.reading.created,
        "completed_at": int(state.at) if completed else None,
        "status": _status(state),
        "error": _error(state),
        "incomplete_details": _incomplete(state),
        "model": view.reading.model,
        "output": [item.shape() for item in view.items],
        "usage": _spent(state.usage) if state.ended else None,
        "metadata": state.accepted.metadata if state.accepted else {},
        # What a run may use is this server's to say, and is not told.
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        **echo.told(),
    }


def _status(state: RunState) -> str:
    match state.ended:
        case RunCompleted(incomplete=why):
            return "incomplete" if why else "completed"
        case RunFailed():
            return "failed"
        case RunCancelled():
            return "cancelled"
        case None:
            waits = state.status in (Status.NEW, Status.QUEUED)
            return "queued" if waits else "in_progress"


def _error(state: RunState) -> Fields | None:
    if not isinstance(state.ended, RunFailed):
        return None
    code = _CODES.get(state.ended.code, "server_error")
    return {"code": code, "message": state.ended.message, "type": state.ended.code, "param": None}


def _incomplete(state: RunState) -> Fields | None:
    if not isinstance(state.ended, RunCompleted) or not state.ended.incomplete:
        return None
    return {"reason": _REASONS[state.ended.incomplete]}


def _spent(usage: Usage) -> Fields:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.written,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }


# --- what was asked ----------------------------------------------------------------------


def input_items(
    run_id: str,
    journal: Sequence[Recorded],
    *,
    instructed: Sequence[Instruction] = (),
    history: Sequence[Message] = (),
    after: str = "",
    limit: int = USUAL_ITEMS,
    order: Order = "desc",
) -> Mapping[str, Any]:
    """A page of what the run was given: what holds for it, its history, what it was asked, and what was
    added later. What holds is told before all else, wherever it stood.

    Raises Problem if there is no item `after`.
    """
    items = list(inputs(run_id, journal, instructed=instructed, history=history))
    if order == "desc":
        items.reverse()
    if after:
        place = next((n for n, item in enumerate(items, 1) if item["id"] == after), None)
        if place is None:
            raise malformed(f"there is no item {after} here", param="after")
        items = items[place:]
    page = items[: max(limit, 1)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(items) > len(page),
    }


def inputs(
    run_id: str,
    journal: Sequence[Recorded],
    *,
    instructed: Sequence[Instruction],
    history: Sequence[Message],
) -> Iterator[Fields]:
    """All of them, in order."""
    name = f"msg_{bare(run_id)}"
    for place, one in enumerate(instructed, 1):
        yield _message(f"{name}_i{place}", one.role, [_part(Text(one.text))])
    for place, message in enumerate(history, 1):
        yield from _earlier(f"{name}_h{place}", message)
    asked = replay(journal).accepted
    if asked:
        yield _user(f"{name}_1", asked.input)
    for recorded in journal:
        if isinstance(recorded.event, InputAdded):
            yield _user(f"{name}_{recorded.seq}", recorded.event.parts)


def _earlier(id: str, message: Message) -> Iterator[Fields]:
    """Calls, and what came of them, go by the names they had where they were made."""
    match message:
        case UserMessage(parts=parts):
            yield _user(id, parts)
        case AssistantMessage(text=text, calls=calls):
            if text:
                part = {"type": "output_text", "text": text, "annotations": []}
                yield _message(id, "assistant", [part])
            yield from (Call(f"fc_{call.id}", 0, call).shape() for call in calls)
        case ToolMessage(call_id=call_id, output=output):
            yield Result(f"fco_{call_id}", 0, call_id, output, "completed").shape()


def _user(id: str, parts: Sequence[Part]) -> Fields:
    return _message(id, "user", [_part(part) for part in parts])


def _message(id: str, role: str, content: list[Fields]) -> Fields:
    return {"id": id, "type": "message", "status": "completed", "role": role, "content": content}


def _part(part: Part) -> Fields:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    picture = {"type": "input_image", "detail": part.detail or "auto"}
    if part.blob:
        # Its bytes came with the request; here it goes by the hash of them.
        return {**picture, "file_id": part.blob.sha256}
    return {**picture, "image_url": part.url}
