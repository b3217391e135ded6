"""A reply in OpenAI's Responses API.

It is a list of output items. Backends differ in how they tell of one: some stream it, some send it
whole, some only in the last event, and some leave that one empty. So an item is drafted from
whatever comes first, and taken over once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.messages import (
    Asked,
    Calling,
    Chunk,
    Done,
    Heard,
    Reasoning,
    Said,
    Thought,
    mend,
)
from holdfast.core.usage import Usage
from holdfast.errors import BadReply, ModelUnavailable
from holdfast.models.failures import from_event
from holdfast.models.wire import ServerEvent, parse

NAME = "openai-responses"

#: Items in one reply. A model that sends more has lost its way.
MOST_ITEMS = 512

#: Signs of life from whatever stands in between. What they hold need not even be JSON.
_IDLE = frozenset({"ping", "keepalive"})


class _Words(Struct):
    text: str | None = None
    refusal: str | None = None


class _Item(Struct):
    type: Literal["message", "reasoning", "function_call"]
    id: str | None = None
    status: str | None = None
    content: list[_Words] | None = None
    summary: list[_Words] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None

    @property
    def label(self) -> str:
        return self.id or self.call_id or ""


class _Response(Struct):
    status: str | None = None
    model: str | None = None
    output: list[object] | None = None
    usage: object = None
    error: object = None
    incomplete_details: object = None


class _Event(Struct, gc=False):
    type: str | None = None
    delta: object = None
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int | None = None
    content_index: int | None = None
    item: object = None
    response: _Response | None = None
    error: object = None
    code: object = None
    message: object = None


_events = msgspec.json.Decoder(_Event)
_responses = msgspec.json.Decoder(_Response)


class _Draft(Struct, eq=False):
    """One output item as it comes in. `closed` once it has come whole."""

    kind: str
    index: int | None
    label: str
    pieces: list[str] = []
    closed: bool = False
    call_id: str = ""
    tool: str = ""
    reasoning: Reasoning | None = None

    @property
    def text(self) -> str:
        return "".join(mend("".join(self.pieces)))

    def fits(self, kind: str, index: int | None, label: str) -> bool:
        """The place decides: some backends change an id with every event. Others know one place."""
        if kind != self.kind:
            return False
        if index is not None and self.index is not None:
            return index == self.index and (not self.closed or label in ("", self.label))
        if label and self.label:
            return label == self.label
        return not self.closed

    def is_told_again(self, item: _Item, index: int) -> bool:
        """In the last event. There a call's own id decides, for no call may be made twice."""
        if item.type != self.kind:
            return False
        if item.call_id and self.call_id:
            return item.call_id == self.call_id
        if item.label and self.label == item.label:
            return True
        return self.index == index or (self.index is None and not (self.label and item.label))


class ResponsesReader:
    def __init__(self) -> None:
        self.complete = self._heard = self._refused = False
        self._drafts: list[_Draft] = []
        #: The part of a thought that is being told; None before the first.
        self._part: tuple[object, ...] | None = None

    def words(self, data: Sequence[bytes]) -> tuple[str, int]:  # noqa: ARG002 - every event has a name
        return "", 0

    def read(self, event: ServerEvent) -> Sequence[Chunk]:
        if self.complete or event.kind in _IDLE or event.data == b"[DONE]":
            return ()
        said = parse(event.data, _events)
        meaning = _MEANINGS.get(said.type or event.kind)
        return meaning(self, said) if meaning else ()

    def end(self) -> Sequence[Chunk]:
        if not self.complete:
            raise BadReply("the reply broke off without its last event", reason="truncated")
        return ()

    def whole(self, body: bytes) -> Sequence[Chunk]:
        response = parse(body, _responses)
        status = response.status or ("failed" if response.error else "")
        if status not in ("completed", "incomplete", "failed", "cancelled"):
            raise BadReply(f"the endpoint sent a reply that is {status or 'none'}")
        return _MEANINGS[f"response.{status}"](self, _Event(response=response))

    def acknowledge(self, _: _Event) -> Sequence[Chunk]:
        """Only the first is news. The rest would make silence look like progress."""
        if self._heard or self._drafts:
            return ()
        self._heard = True
        return (Heard(),)

    def grow(self, event: _Event, *, kind: str, refused: bool = False) -> Sequence[Chunk]:
        piece, self._refused = event.delta, self._refused or refused
        if not isinstance(piece, str) or not piece:
            return ()
        draft = self._draft(kind, event.output_index, event.item_id or "")
        draft.pieces.append(piece)
        if kind == "message":
            return (Said(piece),)
        if kind == "function_call":
            return (Calling(draft.tool),)
        return self._think(piece, (draft, event.summary_index, event.content_index))

    def open(self, event: _Event) -> Sequence[Chunk]:
        item = _known(event.item)
        if item is None or item.type != "function_call":
            return self.acknowledge(event)
        draft = self._draft(item.type, event.output_index, item.label)
        draft.tool, draft.call_id = item.name or "", item.call_id or ""
        return (Calling(draft.tool),)

    def close(self, event: _Event) -> Sequence[Chunk]:
        item = _known(event.item)
        if item is None:
            return ()
        return self._close(self._draft(item.type, event.output_index, item.label), item)

    def fail(self, event: _Event) -> Sequence[Chunk]:
        error = event.error or (event.response.error if event.response else None)
        told = _table(error) or {"code": event.code, "message": event.message}
        words, kinds = told.get("message"), (told.get("code"), told.get("type"))
        kind = next((kind for kind in kinds if kind and isinstance(kind, str)), "")
        raise from_event(kind, words if isinstance(words, str) else "")

    def cancel(self, _: _Event) -> Sequence[Chunk]:
        raise ModelUnavailable("the endpoint cancelled the reply")

    def _draft(self, kind: str, index: int | None, label: str) -> _Draft:
        for draft in reversed(self._drafts):
            if draft.fits(kind, index, label):
                return draft
        return self._begin(kind, index, label)

    def _begin(self, kind: str, index: int | None, label: str) -> _Draft:
        if len(self._drafts) >= MOST_ITEMS:
            raise BadReply(f"the model sent more than {MOST_ITEMS} items in one reply")
        self._drafts.append(_Draft(kind, index, label))
        return self._drafts[-1]

    def _think(self, text: str, part: tuple[object, ...]) -> Sequence[Chunk]:
        last, self._part = self._part, part
        if last is None or last == part:
            return (Thought(text),)
        return Thought("\n\n"), Thought(text)

    def _close(self, draft: _Draft, item: _Item) -> Sequence[Chunk]:
        if item.type == "reasoning":
            return self._close_thought(draft, item)
        if draft.closed:
            return ()
        draft.closed = item.status != "incomplete"
        if item.type == "message":
            return self._close_message(draft, item)
        draft.tool, draft.call_id = item.name or draft.tool, item.call_id or draft.call_id
        draft.pieces = [item.arguments or draft.text]
        return (Calling(draft.tool),)

    def _close_thought(self, draft: _Draft, item: _Item) -> Sequence[Chunk]:
        # Some backends show the seal only when they tell of the item again.
        if not draft.closed or item.encrypted_content:
            draft.reasoning = _reasoning(item)
        draft.closed = True
        if draft.pieces or draft.reasoning is None or not draft.reasoning.text:
            return ()
        draft.pieces.append(draft.reasoning.text)
        return self._think(draft.reasoning.text, (draft,))

    def _close_message(self, draft: _Draft, item: _Item) -> Sequence[Chunk]:
        """What was not streamed is said now."""
        words = item.content or []
        self._refused = self._refused or any(word.refusal for word in words)
        text, said = "".join(word.text or word.refusal or "" for word in words), draft.text
        if len(text) <= len(said) or not text.startswith(said):
            return ()
        draft.pieces.append(text[len(said) :])
        return (Said(draft.pieces[-1]),)

    def finish(self, event: _Event, *, cut: bool) -> Sequence[Chunk]:
        response = event.response or _Response()
        chunks = list(self._catch_up(response.output or []))
        reason = _table(response.incomplete_details).get("reason")
        stop: Literal["stop", "length", "refusal"] = "length" if cut else "stop"
        if self._refused or (cut and reason == "content_filter"):
            stop = "refusal"
        calls = [draft for draft in self._drafts if draft.kind == "function_call"]
        if cut and stop == "refusal":
            calls = []
        done = Done(
            stop=stop,
            calls=tuple(_asked(draft, cut=cut) for draft in calls),
            reasoning=tuple(self._reasoning()),
            usage=_usage(_table(response.usage)),
            model=response.model or "",
        )
        self.complete = True
        return [*chunks, done]

    def _reasoning(self) -> Iterator[Reasoning]:
        """Each thought with its place among the words and the calls."""
        said = calls = 0
        for draft in self._drafts:
            if draft.reasoning is not None:
                yield replace(draft.reasoning, before=calls, said=said)
            said += len(draft.text) if draft.kind == "message" else 0
            calls += draft.kind == "function_call"

    def _catch_up(self, output: list[object]) -> Iterator[Chunk]:
        """What the last event lists and no earlier one told."""
        told = list(self._drafts)
        for index, item in enumerate(map(_known, output)):
            if item is None:
                continue
            draft = next((draft for draft in told if draft.is_told_again(item, index)), None)
            if draft is None:
                yield from self._close(self._begin(item.type, index, item.label), item)
                continue
            told.remove(draft)
            # That there is a call was told before.
            yield from (c for c in self._close(draft, item) if not isinstance(c, Calling))


_MEANINGS: dict[str, Callable[[ResponsesReader, _Event], Sequence[Chunk]]] = {
    "response.created": ResponsesReader.acknowledge,
    "response.queued": ResponsesReader.acknowledge,
    "response.in_progress": ResponsesReader.acknowledge,
    "response.output_text.delta": partial(ResponsesReader.grow, kind="message"),
    "response.refusal.delta": partial(ResponsesReader.grow, kind="message", refused=True),
    "response.reasoning_summary_text.delta": partial(ResponsesReader.grow, kind="reasoning"),
    "response.reasoning_text.delta": partial(ResponsesReader.grow, kind="reasoning"),
    "response.reasoning.delta": partial(ResponsesReader.grow, kind="reasoning"),
    "response.function_call_arguments.delta": partial(ResponsesReader.grow, kind="function_call"),
    "response.output_item.added": ResponsesReader.open,
    "response.output_item.done": ResponsesReader.close,
    "response.completed": partial(ResponsesReader.finish, cut=False),
    "response.incomplete": partial(ResponsesReader.finish, cut=True),
    "response.failed": ResponsesReader.fail,
    "response.cancelled": ResponsesReader.cancel,
    "error": ResponsesReader.fail,
}


def _known(value: object) -> _Item | None:
    """An item of a kind that we asked for. Others may hold anything."""
    if _table(value).get("type") not in ("message", "reasoning", "function_call"):
        return None
    try:
        return msgspec.convert(value, _Item)
    except ValueError as error:
        raise BadReply(f"the model sent an item that cannot be read: {error}") from error


def _reasoning(item: _Item) -> Reasoning | None:
    """The item's id is left out: what is not stored there is not found there."""
    summary = [words.text or "" for words in item.summary or []]
    text = "\n\n".join(summary or [words.text or "" for words in item.content or []])
    if not item.encrypted_content:
        return Reasoning(text=text, wire=NAME) if text else None
    parts = [{"type": "summary_text", "text": part} for part in summary]
    sealed = {"type": "reasoning", "summary": parts, "encrypted_content": item.encrypted_content}
    return Reasoning(text=text, wire=NAME, seal=json.dumps(sealed, separators=(",", ":")))


def _asked(draft: _Draft, *, cut: bool) -> Asked:
    """A call that came whole is the tool's to judge, unless the reply was cut and may be why."""
    whole, reason = _is_object(draft.text), "length" if cut else "truncated"
    if not (whole and draft.closed if cut else whole or draft.closed):
        raise BadReply("the reply ended in the middle of a tool call", reason=reason)
    if not draft.tool:
        raise BadReply("the model called a tool without naming it")
    return Asked(tool=draft.tool, arguments=draft.text or "{}", model_id=draft.call_id)


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _usage(counts: dict[str, object]) -> Usage:
    return Usage(
        input=_count(counts.get("input_tokens")),
        output=_count(counts.get("output_tokens")),
        cached=_count(_table(counts.get("input_tokens_details")).get("cached_tokens")),
        reasoning=_count(_table(counts.get("output_tokens_details")).get("reasoning_tokens")),
    )


def _count(value: object) -> int:
    """A count that is none is not worth a failure."""
    return value if isinstance(value, int) and value > 0 else 0


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
