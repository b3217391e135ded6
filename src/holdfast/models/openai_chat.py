"""The wire of chat completions, as OpenAI made it and many others speak it."""

from __future__ import annotations

import json
import re
from base64 import b32encode, b64encode
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct

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
    plain,
)
from holdfast.errors import ModelRefused
from holdfast.models.catalog import counts_thoughts
from holdfast.models.openai_chat_reader import FIELD, NAME, ChatReader, is_object
from holdfast.models.wire import in_order, longest

#: What no option may change.
_OURS = frozenset({"model", "messages", "tools", "stream", "stream_options"})

_MISTRAL = re.compile(r"https?://([^/@]+\.)?mistral\.ai([:/]|\Z)", re.IGNORECASE)


class _Seal(Struct):
    """The `field` that a thought goes back in, or what is `extra` to the call after it."""

    field: str = ""
    extra: object = None


_seals = msgspec.json.Decoder(_Seal)


class OpenAIChat:
    name = NAME
    path = "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, request: Request, *, model: str, stream: bool, origin: str = "") -> bytes:
        fields = {key: value for key, value in request.options.items() if key not in _OURS}
        if said := longest(fields):
            name, most = said
            # Two of them are refused together.
            fields = {key: value for key, value in fields.items() if key not in LENGTHS}
            fields[_length(name, model)] = most * request.stretch
        messages = [_message(message, request.blobs, origin) for message in request.messages]
        if request.instructions:
            messages.insert(0, {"role": "system", "content": request.instructions})
        fields |= {"model": model, "messages": messages}
        if request.tools:
            fields["tools"] = [_tool(spec) for spec in request.tools]
        if stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return msgspec.json.encode(fields)

    def reader(self) -> ChatReader:
        return ChatReader()


def _length(name: str, model: str) -> str:
    """Who thinks knows the newer name alone; many other endpoints know only the older one."""
    newer = name == "max_completion_tokens" or counts_thoughts(model)
    return "max_completion_tokens" if newer else "max_tokens"


def _message(message: Message, blobs: dict[str, bytes], origin: str) -> dict[str, object]:
    if isinstance(message, AssistantMessage):
        return _assistant(message, origin)
    if isinstance(message, ToolMessage):
        id = _id(message.call_id, origin)
        return {"role": "tool", "tool_call_id": id, "content": message.output}
    if all(isinstance(part, Text) for part in message.parts):
        return {"role": "user", "content": plain(message.parts)}
    return {"role": "user", "content": [_part(part, blobs) for part in message.parts]}


def _part(part: Text | Image, blobs: dict[str, bytes]) -> dict[str, object]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    detail = {"detail": part.detail} if part.detail else {}
    return {"type": "image_url", "image_url": {"url": _address(part, blobs), **detail}}


def _address(image: Image, blobs: dict[str, bytes]) -> str:
    if image.url and image.blob is None:
        return image.url
    picture = blobs.get(image.blob.sha256) if image.blob else None
    if picture is None:
        raise ModelRefused("an image of the conversation is not at hand")
    return f"data:{image.media_type or 'image/png'};base64,{b64encode(picture).decode()}"


def _assistant(message: AssistantMessage, origin: str) -> dict[str, object]:
    told: dict[str, object] = {"role": "assistant", "content": message.text}
    calls = [_call(call, origin) for call in message.calls]
    if calls:
        told |= {"content": message.text or None, "tool_calls": calls}
    details: list[str] = []
    for each in in_order(message, NAME, origin):
        if not isinstance(each, Reasoning):
            continue
        if each.seal.startswith("["):
            details.append(each.seal[1:-1])
            continue
        seal = _opened(each.seal)
        if seal.field == FIELD and calls:
            # Wanted back with calls, and by some refused without.
            told[FIELD] = each.text
        if seal.extra is not None and each.before < len(calls):
            calls[each.before]["extra_content"] = seal.extra
    if details:
        told["reasoning_details"] = Raw(f"[{','.join(details)}]".encode())
    return told


def _opened(seal: str) -> _Seal:
    try:
        return _seals.decode(seal)
    except msgspec.DecodeError:
        return _Seal()


def _call(call: ToolCall, origin: str) -> dict[str, object]:
    # Some endpoints read the arguments again, and would refuse all that follows.
    readable = is_object(call.arguments)
    arguments = call.arguments if readable else json.dumps({"unreadable": call.arguments})
    function = {"name": call.tool, "arguments": arguments}
    return {"id": _id(call.id, origin), "type": "function", "function": function}


def _id(ours: str, origin: str) -> str:
    """Our own: those of models are empty at times, or used twice. Mistral wants nine characters."""
    if not _MISTRAL.match(origin):
        return ours
    return b32encode(sha256(ours.encode()).digest()).decode()[:9]


@lru_cache(maxsize=1000)
def _tool(spec: ToolSpec) -> Raw:
    """As the wire has it: the same tools go along with each of thousands of calls."""
    try:
        schema = msgspec.json.decode(spec.schema)
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"the schema of the tool {spec.name} cannot be read") from error
    function = {"name": spec.name, "description": spec.description, "parameters": schema}
    return Raw(msgspec.json.encode({"type": "function", "function": function}))
