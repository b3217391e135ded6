"""The Messages protocol of Anthropic, which several other endpoints speak as well.

A conversation goes out as turns that alternate, each a list of blocks.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from holdfast.core.messages import (
    LENGTHS,
    AssistantMessage,
    Image,
    Message,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from holdfast.errors import ModelRefused
from holdfast.models.anthropic_reader import NAME, REDACTED, AnthropicReader, is_object
from holdfast.models.catalog import Thinks, thinks
from holdfast.models.wire import CHAT_ALONE, in_order, longest

#: Tokens of a reply where no option names a number. The protocol will not do without one. Who
#: thinks as long as it sees fit thinks within it.
MOST_TOKENS = 8192
MOST_TOKENS_WITH_THOUGHTS = 32_000

#: Tokens to think with, for models that go by a budget. The protocol takes no fewer than 1024.
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16384}
#: What the others call an effort.
_EFFORTS = {effort: effort for effort in ("low", "medium", "high", "xhigh", "max")}
_EFFORTS["minimal"] = "low"

#: Options that never go out as they came: what is ours to say, what has another name here, and
#: what has none.
_OURS = {"model", "messages", "stream", "tools", "system", "cache"}
_REWORDED = {"reasoning_effort", "response_format", "tool_choice", "stop", "verbosity"}
_REWORDED |= {*LENGTHS, *CHAT_ALONE}

_Block: TypeAlias = dict[str, Any]


class Anthropic:
    """The wire. Its base URL ends in /v1."""

    name = NAME
    path = "/messages"

    def headers(self, key: str) -> dict[str, str]:
        return ({"x-api-key": key} if key else {}) | {"anthropic-version": "2023-06-01"}

    def body(self, request: Request, *, model: str, stream: bool, origin: str = "") -> bytes:
        turns = _turns(request, origin)
        body = _settings(request, thinks(model)) | {
            "model": model,
            "messages": turns,
            "stream": stream,
        }
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

    def reader(self) -> AnthropicReader:
        return AnthropicReader()


# --- options -------------------------------------------------------------------------------


def _settings(request: Request, how: Thinks) -> dict[str, Any]:
    """The options, in the words of this wire."""
    options = request.options
    settings: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _OURS | _REWORDED
    }
    usual = MOST_TOKENS_WITH_THOUGHTS if how in ("asked", "itself") else MOST_TOKENS
    _, most = longest(options) or ("", usual)
    settings["max_tokens"] = most * request.stretch
    effort = str(options.get("reasoning_effort"))
    if how == "budget":
        _think_within(settings, _BUDGETS.get(effort))
    elif effort in _EFFORTS:
        _think_as_hard(settings, _EFFORTS[effort], how)
    match options.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            form = {"format": {"type": "json_schema", "schema": schema}}
            settings["output_config"] = _table(settings.get("output_config")) | form
    match options.get("tool_choice"):
        # Without tools there is nothing to choose, and the protocol will not hear of it.
        case (str() | dict()) as choice if request.tools:
            word = "any" if choice == "required" else choice
            settings["tool_choice"] = {"type": word} if isinstance(word, str) else word
    if stop := options.get("stop"):
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return _permitted(settings, how)


def _think_within(settings: dict[str, Any], budget: int | None) -> None:
    if budget and "thinking" not in settings:
        settings["thinking"] = {"type": "enabled", "budget_tokens": budget}
        # Thoughts count as output, and must leave room for what was to be said.
        settings["max_tokens"] += budget


def _think_as_hard(settings: dict[str, Any], effort: str, how: Thinks) -> None:
    settings["output_config"] = {"effort": effort} | _table(settings.get("output_config"))
    if how == "asked":
        settings.setdefault("thinking", {"type": "adaptive"})


def _permitted(settings: dict[str, Any], how: Thinks) -> dict[str, Any]:
    """Without the options that would have the whole request refused."""
    kind = _table(settings.get("thinking")).get("type")
    thinking = how == "itself" if kind is None else kind != "disabled"
    # Who thinks may not be told how to choose words, and the newer ones never.
    newer = how in ("asked", "itself")
    if thinking or newer:
        settings.pop("temperature", None)
        settings.pop("top_k", None)
    if newer:
        settings.pop("top_p", None)
    choice = _table(settings.get("tool_choice"))
    if thinking and choice.get("type") in ("any", "tool"):
        # Nor which tool to use.
        kept = {name: value for name, value in choice.items() if name != "name"}
        settings["tool_choice"] = kept | {"type": "auto"}
    return settings


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# --- the conversation ----------------------------------------------------------------------


def _offer(spec: ToolSpec) -> _Block:
    return {"name": spec.name, "description": spec.description, "input_schema": Raw(spec.schema)}


def _turns(request: Request, origin: str) -> list[_Block]:
    """Messages of one side in a row are one turn, for the sides must alternate."""
    turns: list[_Block] = []
    for message in _paired(request.messages):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, request.blobs, origin)
        if blocks and turns and turns[-1]["role"] == role:
            # One that is made of several messages begins with the thoughts of all.
            turns[-1]["content"] += blocks
            turns[-1]["content"].sort(key=lambda block: "thinking" not in block["type"])
        elif blocks:
            turns.append({"role": role, "content": blocks})
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


def _blocks(message: Message, blobs: Mapping[str, bytes], origin: str) -> list[_Block]:
    if isinstance(message, UserMessage):
        parts = (_text(p.text) if isinstance(p, Text) else _image(p, blobs) for p in message.parts)
        return [block for blocks in parts for block in blocks]
    if isinstance(message, AssistantMessage):
        own = [block for each in in_order(message, NAME, origin) for block in _own(each)]
        # The last block must be something said, so thoughts that nothing follows stay here.
        while own and "thinking" in own[-1]["type"]:
            own.pop()
        return own
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


def _own(each: str | Reasoning | ToolCall) -> list[_Block]:
    match each:
        case str():
            return _text(each)
        case ToolCall():
            return [_use(each)]
        case Reasoning(seal=seal) if seal.startswith(REDACTED):
            return [{"type": "redacted_thinking", "data": seal.removeprefix(REDACTED)}]
    return [{"type": "thinking", "thinking": each.text, "signature": each.seal}]


def _use(call: ToolCall) -> _Block:
    # The arguments go back letter by letter: no number is spelled anew.
    arguments = call.arguments if is_object(call.arguments) else "{}"
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": Raw(arguments)}
