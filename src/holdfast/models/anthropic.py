"""The Messages protocol of Anthropic, which several other endpoints speak as well.

A conversation goes out as turns that alternate, each a list of blocks. A reply comes in as blocks
too, each begun, grown and closed by events of its own.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Chunk,
    Done,
    Heard,
    Image,
    Message,
    Reasoning,
    Request,
    Said,
    Text,
    Thought,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    mend,
)
from holdfast.core.usage import Usage
from holdfast.errors import BadReply, ModelRefused
from holdfast.models import failures
from holdfast.models.wire import Reader, ServerEvent, parse

NAME = "anthropic"

#: Tokens of a reply where no option names a number. The protocol will not do without one.
MOST_TOKENS = 8192
#: The options that may name it, the first one found counts.
_LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens")

#: Tokens to think with. The protocol takes no fewer than 1024.
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16384}

#: Options that never go out as they came: what is ours to say, and what has another name here.
_OURS = {"model", "messages", "stream", "tools", "system", "cache"}
_REWORDED = {"reasoning_effort", "response_format", "tool_choice", "stop", *_LIMITS}

#: Stands before the seal of a thought that came without its words. No signature has a colon.
_REDACTED = "redacted:"

#: Blocks of one reply that are kept: as many calls as a reply may have, a thought before each.
_MOST_BLOCKS = 256

_Block: TypeAlias = dict[str, Any]
_Stop: TypeAlias = Literal["stop", "length", "refusal"]

#: Why a reply ended, where it is not that all was said.
_STOPS: dict[str, _Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class Anthropic:
    """The wire. Its base URL ends in /v1."""

    name = NAME
    path = "/messages"

    def headers(self, key: str) -> dict[str, str]:
        return ({"x-api-key": key} if key else {}) | {"anthropic-version": "2023-06-01"}

    def body(self, request: Request, *, model: str, stream: bool) -> bytes:
        turns = _turns(request)
        body = _settings(request) | {"model": model, "messages": turns, "stream": stream}
        if request.instructions.strip():
            body["system"] = [{"type": "text", "text": request.instructions}]
        if request.tools:
            body["tools"] = [_offer(spec) for spec in request.tools]
        if request.options.get("cache") is not False:
            # The endpoint is to remember the instructions, and the conversation up to here.
            for blocks in (body.get("system"), turns and turns[-1]["content"]):
                if blocks:
                    blocks[-1]["cache_control"] = {"type": "ephemeral"}
        return msgspec.json.encode(body)

    def reader(self) -> Reader:
        return _Reader()


# --- what is asked -------------------------------------------------------------------------


def _settings(request: Request) -> dict[str, Any]:
    """The options, in the words of this wire."""
    options = request.options
    settings: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _OURS | _REWORDED
    }
    limits = (limit for name in _LIMITS if isinstance(limit := options.get(name), int))
    settings["max_tokens"] = next(limits, MOST_TOKENS) * request.stretch
    budget = _BUDGETS.get(str(options.get("reasoning_effort")))
    if budget and "thinking" not in settings:
        settings["thinking"] = {"type": "enabled", "budget_tokens": budget}
        # Thoughts count as output, and must leave room for what was to be said.
        settings["max_tokens"] += budget
    match settings.get("thinking"):
        case {"type": kind} if kind != "disabled":
            # Who thinks may not be told how to choose words.
            settings.pop("temperature", None)
            settings.pop("top_k", None)
    match options.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            given = settings.get("output_config")
            form = {"format": {"type": "json_schema", "schema": schema}}
            settings["output_config"] = given | form if isinstance(given, dict) else form
    match options.get("tool_choice"):
        # Without tools there is nothing to choose, and the protocol will not hear of it.
        case (str() | dict()) as choice if request.tools:
            word = "any" if choice == "required" else choice
            settings["tool_choice"] = {"type": word} if isinstance(word, str) else word
    if stop := options.get("stop"):
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return settings


def _offer(spec: ToolSpec) -> _Block:
    return {"name": spec.name, "description": spec.description, "input_schema": Raw(spec.schema)}


def _turns(request: Request) -> list[_Block]:
    """Messages of one side in a row are one turn, for the sides must alternate."""
    turns: list[_Block] = []
    for message in _paired(request.messages):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, request.blobs)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        # A turn that holds thoughts begins with them, even one made of several messages.
        turn["content"].sort(key=lambda block: "thinking" not in block["type"])
    return turns


def _paired(messages: Sequence[Message]) -> Iterator[Message]:
    """Each result right behind its call, where alone it is accepted; without a call, nowhere."""
    results = {each.call_id: each for each in messages if isinstance(each, ToolMessage)}
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        yield message
        if isinstance(message, AssistantMessage):
            yield from (results[call.id] for call in message.calls if call.id in results)


def _blocks(message: Message, blobs: Mapping[str, bytes]) -> list[_Block]:
    if isinstance(message, UserMessage):
        parts = (_text(p.text) if isinstance(p, Text) else _image(p, blobs) for p in message.parts)
        return [block for blocks in parts for block in blocks]
    if isinstance(message, AssistantMessage):
        said = [*_text(message.text), *map(_use, message.calls)]
        # Thoughts alone are no turn: the last block of one must be something said.
        return [*_thoughts(message.reasoning), *said] if said else []
    # A tool that failed must be said to have said something.
    output = message.output if message.output.strip() else "(no output)"
    block = {"type": "tool_result", "tool_use_id": message.call_id, "content": output}
    return [block if message.ok else {**block, "is_error": True}]


def _text(text: str) -> list[_Block]:
    """A block without a visible character would be refused, and the whole request with it."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _image(image: Image, blobs: Mapping[str, bytes]) -> list[_Block]:
    if image.blob is not None and image.blob.sha256 in blobs:
        data = b64encode(blobs[image.blob.sha256]).decode()
        source = {"type": "base64", "media_type": image.media_type, "data": data}
    elif image.url:
        source = {"type": "url", "url": image.url}
    else:
        raise ModelRefused("an image has neither its bytes at hand nor an address")
    return [{"type": "image", "source": source}]


def _thoughts(reasoning: Sequence[Reasoning]) -> Iterator[_Block]:
    """What this wire has sealed; it knows no other thoughts."""
    for thought in reasoning:
        if thought.wire != NAME or not thought.seal:
            continue
        if thought.seal.startswith(_REDACTED):
            yield {"type": "redacted_thinking", "data": thought.seal.removeprefix(_REDACTED)}
        else:
            yield {"type": "thinking", "thinking": thought.text, "signature": thought.seal}


def _use(call: ToolCall) -> _Block:
    # The arguments go back letter by letter: no number is spelled anew.
    arguments = call.arguments if _is_object(call.arguments) else "{}"
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": Raw(arguments)}


# --- what is answered ----------------------------------------------------------------------

#: A count of tokens that can be kept.
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**48)]


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


class _Tokens(Struct):
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


class _Error(_Kind):
    message: str | None = None


class _Whole(Struct):
    content: list[_Piece | None] | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: _Tokens | None = None
    error: _Error | None = None


class _Event(Struct):
    index: int | None = None
    delta: _Piece | None = None
    content_block: _Piece | None = None
    message: _Whole | None = None
    usage: _Tokens | None = None
    error: _Error | None = None


class _Kept(Struct):
    """A block of the reply that is wanted at its end."""

    kind: str
    name: str = ""
    id: str = ""
    #: The input as far as it was known at the start; pieces of it come instead.
    given: str = ""
    seal: str = ""
    pieces: list[str] = []
    closed: bool = False


_kinds = msgspec.json.Decoder(_Kind)
_events = msgspec.json.Decoder(_Event)
_wholes = msgspec.json.Decoder(_Whole)
_objects = msgspec.json.Decoder(dict[str, Any])


class _Reader:
    def __init__(self) -> None:
        self.complete = self._heard = False
        self._model = ""
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
                self._keep(event.index, _Kept("thinking", seal=_REDACTED + block.data))
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
        if len(self._kept) == _MOST_BLOCKS:
            raise BadReply(f"the reply has more than {_MOST_BLOCKS} calls and thoughts")
        self._kept.append(kept)
        self._open[index] = kept

    def _grow(self, event: _Event) -> Sequence[Chunk]:
        delta = event.delta or _Piece()
        if delta.type == "text_delta":
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

    def _count(self, tokens: _Tokens | None) -> None:
        """Each count is of all so far, so the highest is the last; some come only once."""
        for name, count in msgspec.structs.asdict(tokens or _Tokens()).items():
            self._tokens[name] = max(self._tokens[name], count or 0)

    def _done(self) -> Sequence[Chunk]:
        self.complete = True
        count = self._tokens
        cached = count["cache_read_input_tokens"]
        fresh = count["input_tokens"] + count["cache_creation_input_tokens"]
        done = Done(
            stop=self._stop,
            calls=tuple(self._calls()),
            reasoning=tuple(self._reasoning()),
            usage=Usage(fresh + cached, count["output_tokens"], cached),
            model=self._model,
        )
        return (done,)

    def _calls(self) -> Iterator[Asked]:
        for kept in self._kept:
            if kept.kind != "tool_use":
                continue
            arguments = _joined(kept.pieces) or kept.given
            if self._stop == "length" and not (kept.closed and _is_object(arguments)):
                raise BadReply(f"the reply was cut inside a call of {kept.name}", reason="length")
            if kept.closed:
                yield Asked(kept.name, arguments, model_id=kept.id)
            elif self._stop != "refusal":
                raise BadReply(f"the call of {kept.name} has no end", reason="truncated")

    def _reasoning(self) -> Iterator[Reasoning]:
        for kept in self._kept:
            # Half a seal would be refused for as long as the conversation lasts.
            text, seal = _joined(kept.pieces), kept.seal if kept.closed else ""
            if kept.kind == "thinking" and (text or seal):
                yield Reasoning(text, wire=NAME, seal=seal)


def _joined(pieces: Sequence[str]) -> str:
    return "".join(mend("".join(pieces)))


def _spelled(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise BadReply("the model sent something nested too deeply") from error


def _is_object(text: str) -> bool:
    try:
        _objects.decode(text)
    except (ValueError, RecursionError):
        return False
    return True
