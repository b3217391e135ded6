"""A reply in the Messages protocol of Anthropic: blocks, each begun, grown and closed by events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

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
from holdfast.errors import BadReply
from holdfast.models import failures
from holdfast.models.wire import ServerEvent, parse

NAME = "anthropic"

#: Stands before the seal of a thought that came without its words. No signature has a colon.
REDACTED = "redacted:"

#: Blocks of one reply that are kept: as many calls as a reply may have, a thought before each.
MOST_BLOCKS = 256

#: What is counted of a reply, and how far.
_COUNTED = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_MOST_TOKENS = 2**48

_Stop: TypeAlias = Literal["stop", "length", "refusal"]

#: Why a reply ended, where it is not that all was said.
_STOPS: dict[str, _Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Kind(Struct):
    type: str | None = None


class _Piece(_Kind):
    """How a block begins, what it grows by, or how the message ends."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Error(_Kind):
    message: str | None = None


class _Whole(Struct):
    content: list[_Piece | None] | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: object = None
    error: _Error | None = None


class _Event(Struct):
    index: int | None = None
    delta: _Piece | None = None
    content_block: _Piece | None = None
    message: _Whole | None = None
    usage: object = None
    error: _Error | None = None


class _Kept(Struct):
    """A block of the reply that is wanted at its end."""

    kind: str
    name: str = ""
    id: str = ""
    #: The input as far as it was known at the start; pieces of it come instead.
    given: str = ""
    seal: str = ""
    #: How much had been said before it.
    said: int = 0
    pieces: list[str] = []
    closed: bool = False


_kinds = msgspec.json.Decoder(_Kind)
_events = msgspec.json.Decoder(_Event)
_wholes = msgspec.json.Decoder(_Whole)
_objects = msgspec.json.Decoder(dict[str, Any])


class AnthropicReader:
    def __init__(self) -> None:
        self.complete = self._heard = False
        self._model, self._said = "", 0
        self._stop: _Stop = "stop"
        self._tokens: Counter[str] = Counter()
        self._kept: list[_Kept] = []
        # Those that still grow, by their place in the reply.
        self._open: dict[int | None, _Kept] = {}
        self._read: dict[str, Callable[[_Event], Sequence[Chunk]]] = {
            "message_start": self._begin,
            "content_block_start": self._start,
            "content_block_delta": self._grow,
            "content_block_stop": self._close,
            "message_delta": self._settle,
            "message_stop": lambda _: self._done(),
            "error": self._fail,
        }

    def words(self, data: Sequence[bytes]) -> tuple[str, int]:  # noqa: ARG002 - every event has a name
        return "", 0

    def read(self, event: ServerEvent) -> Sequence[Chunk]:
        kind = event.kind or parse(event.data, _kinds).type or ""
        read = self._read.get(kind)
        return read(parse(event.data, _events)) if read else ()

    def end(self) -> Sequence[Chunk]:
        if not self.complete:
            raise BadReply("the reply broke off without its end marker", reason="truncated")
        return self._done()

    def whole(self, body: bytes) -> Sequence[Chunk]:
        found = parse(body, _wholes)
        if found.error is not None:
            self._fail(_Event(error=found.error))
        if found.content is None:
            raise BadReply("the model sent something that is no message")
        chunks = list(self._begin(_Event(message=found)))
        for place, block in enumerate(found.content):
            chunks += self._start(_Event(index=place, content_block=block))
            self._close(_Event(index=place))
        self._settle(_Event(delta=_Piece(stop_reason=found.stop_reason)))
        return (*chunks, *self._done())

    def _begin(self, event: _Event) -> Sequence[Chunk]:
        if event.message is not None:
            self._model = event.message.model or self._model
            self._count(event.message.usage)
        heard, self._heard = self._heard, True
        return () if heard else (Heard(),)

    def _start(self, event: _Event) -> Sequence[Chunk]:
        self._open.pop(event.index, None)
        block = event.content_block or _Piece()
        match block.type:
            case "thinking":
                self._keep(event.index, _Kept("thinking", seal=block.signature or ""))
            case "redacted_thinking" if block.data:
                self._keep(event.index, _Kept("thinking", seal=REDACTED + block.data))
            case "tool_use":
                if not block.name:
                    raise BadReply("the model called a tool without naming it")
                given = _spelled(block.input or {})
                self._keep(event.index, _Kept("tool_use", block.name, block.id or "", given))
                return (Calling(block.name),)
        # It may begin with words in it.
        words = _Piece(f"{block.type}_delta", text=block.text, thinking=block.thinking)
        return self._grow(_Event(event.index, delta=words))

    def _keep(self, index: int | None, kept: _Kept) -> None:
        if len(self._kept) == MOST_BLOCKS:
            raise BadReply(f"the reply has more than {MOST_BLOCKS} calls and thoughts")
        kept.said = self._said
        self._kept.append(kept)
        self._open[index] = kept

    def _grow(self, event: _Event) -> Sequence[Chunk]:
        delta = event.delta or _Piece()
        if delta.type == "text_delta":
            self._said += len(delta.text or "")
            return (Said(delta.text),) if delta.text else ()
        kept = self._open.get(event.index, _Kept("nothing"))
        match kept.kind, delta.type:
            case "thinking", "thinking_delta" if delta.thinking:
                kept.pieces.append(delta.thinking)
                return (Thought(delta.thinking),)
            case "thinking", "signature_delta":
                kept.seal += delta.signature or ""
            case "tool_use", "input_json_delta":
                kept.pieces.append(delta.partial_json or "")
                return (Calling(),) if delta.partial_json else ()
        return ()

    def _close(self, event: _Event) -> Sequence[Chunk]:
        if kept := self._open.pop(event.index, None):
            kept.closed = True
        return ()

    def _settle(self, event: _Event) -> Sequence[Chunk]:
        self._count(event.usage)
        if event.delta is not None and event.delta.stop_reason:
            self._stop = _STOPS.get(event.delta.stop_reason, "stop")
            self.complete = True
        return ()

    def _fail(self, event: _Event) -> Sequence[Chunk]:
        error = event.error or _Error()
        raise failures.from_event(error.type or "", error.message or "")

    def _count(self, tokens: object) -> None:
        """Each count is of all so far, so the highest is the last; some come only once."""
        if not isinstance(tokens, dict):
            return
        for name in _COUNTED:
            count = tokens.get(name)
            # One that makes no sense is not worth a failure.
            if isinstance(count, int | float) and 0 <= count < _MOST_TOKENS:
                self._tokens[name] = max(self._tokens[name], int(count))

    def _done(self) -> Sequence[Chunk]:
        self.complete = True
        count = self._tokens
        cached, written = count["cache_read_input_tokens"], count["cache_creation_input_tokens"]
        whole = count["input_tokens"] + cached + written
        done = Done(
            stop=self._stop,
            calls=tuple(self._calls()),
            reasoning=tuple(self._reasoning()),
            usage=Usage(whole, count["output_tokens"], cached, written=written),
            model=self._model,
        )
        return (done,)

    def _calls(self) -> Iterator[Asked]:
        for kept in self._kept:
            if kept.kind != "tool_use":
                continue
            arguments = _joined(kept.pieces) or kept.given
            if self._stop == "length" and not (kept.closed and is_object(arguments)):
                raise BadReply(f"the reply was cut inside a call of {kept.name}", reason="length")
            if kept.closed:
                yield Asked(kept.name, arguments, model_id=kept.id)
            elif self._stop != "refusal":
                raise BadReply(f"the call of {kept.name} has no end", reason="truncated")

    def _reasoning(self) -> Iterator[Reasoning]:
        calls = 0
        for kept in self._kept:
            if kept.kind == "tool_use":
                calls += kept.closed
                continue
            # Half a seal would be refused for as long as the conversation lasts.
            text, seal = _joined(kept.pieces), kept.seal if kept.closed else ""
            if text or seal:
                yield Reasoning(text, wire=NAME, seal=seal, before=calls, said=kept.said)


def _joined(pieces: Sequence[str]) -> str:
    return "".join(mend("".join(pieces)))


def _spelled(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise BadReply("the model sent something nested too deeply") from error


def is_object(text: str) -> bool:
    try:
        _objects.decode(text)
    except (ValueError, RecursionError):
        return False
    return True
