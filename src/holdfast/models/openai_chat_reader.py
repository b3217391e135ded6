"""A reply on the wire of chat completions, in pieces or in one.

Endpoints differ in small things: an index left out, arguments as an object, a field that is null.
Whatever can be understood in one way only is understood; what would change a reply is not
guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

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
    storable,
)
from holdfast.core.usage import Usage
from holdfast.errors import BadReply, ModelError
from holdfast.models import failures
from holdfast.models.wire import ServerEvent, parse

NAME = "openai-chat"

#: Tool calls of one reply, and blocks of sealed reasoning, that are taken in.
MOST_CALLS = 128
MOST_BLOCKS = 4096

#: Where most endpoints put plain reasoning, and some want it back. Who calls it otherwise refuses it.
FIELD = "reasoning_content"

Stop: TypeAlias = Literal["stop", "length", "refusal"]

_STOPS: dict[str, Stop] = {"length": "length", "content_filter": "refusal"}

#: How endpoints say that the reply stops here although the model was not done.
_BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource"})

#: Where a block of reasoning that arrives in pieces has its words.
_WORDS = {"reasoning.text": "text", "reasoning.summary": "summary"}

# --- what arrives ----------------------------------------------------------------------


class _Part(Struct):
    text: str | None = None


class _Function(Struct):
    name: str | None = None
    arguments: object = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: object = None


class _Delta(Struct):
    content: str | list[_Part] | None = None
    reasoning_content: object = None
    reasoning: object = None
    reasoning_details: list[dict[str, object]] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Error(Struct):
    message: object = None
    type: object = None
    code: object = None


class _Choice(Struct):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: _Error | str | None = None


class _UsageDetails(Struct):
    cached_tokens: object = None
    reasoning_tokens: object = None


class _Usage(Struct):
    prompt_tokens: object = None
    completion_tokens: object = None
    prompt_tokens_details: _UsageDetails | None = None
    completion_tokens_details: _UsageDetails | None = None


class _Chunk(Struct):
    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: _Error | str | None = None


class _PlainDelta(Struct, forbid_unknown_fields=True):
    content: str
    role: object = None
    refusal: None = None
    tool_calls: None = None


class _PlainChoice(Struct, forbid_unknown_fields=True):
    delta: _PlainDelta
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None


class _PlainChunk(Struct):
    """A chunk that says something and nothing else, as most of them are."""

    choices: tuple[_PlainChoice]
    object: Literal["chat.completion.chunk"]
    model: str = ""
    usage: None = None
    error: None = None


_plain_chunks = msgspec.json.Decoder(_PlainChunk)
_chunks = msgspec.json.Decoder(_Chunk)
_errors = msgspec.json.Decoder(_Error)


# --- the reply -------------------------------------------------------------------------


class _Begun:
    """A tool call that is still arriving."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.extra: object = None
        self.arguments: list[str] = []

    def take(self, call: _Call) -> bool:
        """Whether it was any news."""
        before, function = (self.id, self.name), call.function or _Function()
        # The first id and name count: some repeat them with every piece.
        self.id = self.id or call.id or ""
        self.name = self.name or function.name or ""
        self.extra = self.extra or call.extra_content
        more = function.arguments
        if more is not None:
            self.arguments.append(more if isinstance(more, str) else _json(more))
        return bool(more) or (self.id, self.name) != before

    def asked(self) -> Asked:
        return Asked(tool=self.name, arguments=_joined(self.arguments), model_id=self.id)


class _Block:
    """A block of reasoning in the endpoint's own form, of which more may arrive."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields
        self._field = _WORDS.get(str(fields.get("type")), "")
        self._words = [self.words(fields)]

    def words(self, fields: dict[str, object]) -> str:
        words = fields.get(self._field)
        return words if isinstance(words, str) else ""

    def goes_on(self, fields: dict[str, object]) -> bool:
        if not self._field or fields.get("index") is None:
            return False
        return all(self._fields.get(key) == fields.get(key) for key in ("type", "index"))

    def take(self, fields: dict[str, object]) -> None:
        self._words.append(self.words(fields))
        # The signature comes with the last piece.
        self._fields |= {key: value for key, value in fields.items() if value is not None}

    def whole(self) -> dict[str, object]:
        words = {self._field: _joined(self._words)} if self._field else {}
        return self._fields | words


class ChatReader:
    def __init__(self) -> None:
        self.complete = self._heard = self._spoke = self._refused = False
        self._stop: Stop = "stop"
        self._thoughts: list[str] = []
        #: The thoughts have a field that goes back with calls, even without a word in it.
        self._returns = False
        self._blocks: list[_Block] = []
        self._calls: list[_Begun] = []
        self._by_index: dict[int, _Begun] = {}
        self._usage, self._model = Usage(), ""

    def words(self, data: Sequence[bytes]) -> tuple[str, int]:
        said: list[str] = []
        if self._spoke:
            try:
                for one in data:
                    chunk = _plain_chunks.decode(one)
                    said.append(chunk.choices[0].delta.content)
                    self._model = chunk.model or self._model
            except (ValueError, RecursionError):
                pass  # It says something else, or the same in other words.
        return "".join(said), len(said)

    def read(self, event: ServerEvent) -> Sequence[Chunk]:
        kind, data = event
        if data == b"[DONE]":
            return [self._done()]
        return self._hear(data, kind) if data else ()

    def end(self) -> Sequence[Chunk]:
        if not self.complete:
            raise BadReply("the reply broke off before its end", reason="truncated")
        return [self._done()]

    def whole(self, body: bytes) -> Sequence[Chunk]:
        self._heard = True
        return [*self._hear(body, ""), self._done()]

    def _hear(self, data: bytes, kind: str) -> Sequence[Chunk]:
        chunk = parse(data, _chunks)
        if chunk.error is not None:
            raise _failure(chunk.error)
        if kind == "error" or chunk.object == "error":
            raise _failure(parse(data, _errors))
        if chunk.model:
            self._model = chunk.model
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        for choice in chunk.choices or ():
            if not choice.index:
                return self._choose(choice)
        return ()

    def _choose(self, choice: _Choice) -> Sequence[Chunk]:
        if choice.error is not None:
            raise _failure(choice.error)
        delta = choice.delta or choice.message
        chunks = [] if delta is None else self._take(delta)
        if choice.finish_reason:
            if choice.finish_reason in _BROKEN_OFF:
                raise failures.from_event("", f"the reply broke off: {choice.finish_reason}")
            self._stop = _STOPS.get(choice.finish_reason, "stop")
            self.complete = True
        if chunks:
            self._spoke = self._heard = True
        elif not self._heard:
            self._heard = True
            return [Heard()]
        return chunks

    def _take(self, delta: _Delta) -> list[Chunk]:
        chunks: list[Chunk] = []
        thought = self._think(delta)
        said = delta.content
        if isinstance(said, list):
            said = "".join(part.text or "" for part in said)
        if thought:
            self._thoughts.append(thought)
            chunks.append(Thought(thought))
        if said:
            chunks.append(Said(said))
        if delta.refusal:
            self._refused = True
            chunks.append(Said(delta.refusal))
        if delta.tool_calls:
            for call in delta.tool_calls:
                chunks += self._call(call)
        return chunks

    def _think(self, delta: _Delta) -> str:
        """What this piece adds to the reasoning. Where it stands twice, it counts once."""
        words = ""
        for fields in delta.reasoning_details or ():
            words += self._keep(fields)
        self._returns = self._returns or isinstance(delta.reasoning_content, str)
        plainly = delta.reasoning_content or delta.reasoning
        return plainly if plainly and isinstance(plainly, str) else words

    def _keep(self, fields: dict[str, object]) -> str:
        """Endpoints take a block back only whole, so its pieces are put together again."""
        if self._blocks and self._blocks[-1].goes_on(fields):
            self._blocks[-1].take(fields)
        elif len(self._blocks) == MOST_BLOCKS:
            raise BadReply(f"the reasoning has over {MOST_BLOCKS} blocks", reason="too_large")
        else:
            self._blocks.append(_Block(fields))
        return self._blocks[-1].words(fields)

    def _call(self, call: _Call) -> Sequence[Chunk]:
        """A piece of a call is progress, unless there is nothing in it."""
        begun = self._begun(call)
        if begun is None:
            if len(self._calls) == MOST_CALLS:
                raise BadReply(f"the model asked for over {MOST_CALLS} calls at once")
            begun = _Begun()
            self._calls.append(begun)
            if call.index is not None:
                self._by_index[call.index] = begun
        return (Calling(begun.name),) if begun.take(call) else ()

    def _begun(self, call: _Call) -> _Begun | None:
        """The call that this is a piece of, or None if it begins one.

        Some endpoints leave the index out or give every call the same, some give each piece
        another id. A name under another id, or with neither, is always a new call.
        """
        if call.index is not None:
            begun = self._by_index.get(call.index)
        else:
            begun = self._calls[-1] if self._calls else None
        if begun is None or call.function is None or not call.function.name:
            return begun
        another = call.id != begun.id if call.id and begun.id else call.index is None
        return None if another else begun

    def _done(self) -> Done:
        if not (self.complete or self._spoke):
            raise BadReply("the reply ended before anything was said", reason="truncated")
        # What a filter has cut is not done by halves.
        calls = () if self._stop == "refusal" else tuple(begun.asked() for begun in self._calls)
        cut = self._stop == "length" or not self.complete
        if cut and not all(is_object(call.arguments) for call in calls):
            reason = "length" if self.complete else "truncated"
            raise BadReply("the reply was cut in the middle of a tool call", reason=reason)
        if not all(call.tool for call in calls):
            raise BadReply("the model asked for a tool without naming it")
        return Done(
            stop="refusal" if self._refused else self._stop,
            calls=calls,
            reasoning=tuple(self._reasoning(len(calls))),
            usage=self._usage,
            model=self._model,
        )

    def _reasoning(self, calls: int) -> Iterator[Reasoning]:
        """The thoughts, and whatever else the endpoint may want back with the calls."""
        text, seal = _joined(self._thoughts), ""
        if self._blocks:
            seal = _seal([block.whole() for block in self._blocks])
        elif self._returns and calls:
            seal = _seal({"field": FIELD})
        if text or seal:
            yield Reasoning(text=text, wire=NAME, seal=seal)
        for place, begun in enumerate(self._calls[:calls]):
            if begun.extra is not None:
                yield Reasoning(wire=NAME, seal=_seal({"extra": begun.extra}), before=place)


def _seal(value: object) -> str:
    return storable(_joined([_json(value)]))


def _failure(error: _Error | str) -> ModelError:
    if isinstance(error, str):
        error = _Error(message=error)
    words = error.message if isinstance(error.message, str) else ""
    kind = str(error.code or error.type or "")
    if len(kind) == 3 and kind.isdecimal() and 400 <= int(kind) < 600:
        name = error.type if isinstance(error.type, str) else ""
        told = {"error": {"message": storable(words), "type": storable(name)}}
        return failures.from_answer(int(kind), {}, msgspec.json.encode(told), now=0.0)
    return failures.from_event(kind, words)


def _usage(usage: _Usage) -> Usage:
    read, written = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input=_count(usage.prompt_tokens),
        output=_count(usage.completion_tokens),
        cached=_count(read and read.cached_tokens),
        reasoning=_count(written and written.reasoning_tokens),
    )


def _count(number: object) -> int:
    """Book-keeping that makes no sense counts as none."""
    return number if type(number) is int and 0 <= number < 2**53 else 0


def _joined(pieces: Sequence[str]) -> str:
    """The pieces in one, with characters whole again that were cut in two."""
    return "".join(mend("".join(pieces)))


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise BadReply(f"the model sent something that cannot be written down: {error}") from error


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
