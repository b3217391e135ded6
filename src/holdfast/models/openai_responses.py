"""OpenAI's Responses API, as OpenAI and Codex-like backends speak it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from holdfast.core.messages import (
    LENGTHS,
    AssistantMessage,
    Message,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolSpec,
    UserMessage,
)
from holdfast.errors import ModelRefused
from holdfast.models.catalog import seals_thoughts
from holdfast.models.openai_responses_reader import NAME, ResponsesReader
from holdfast.models.wire import CHAT_ALONE, in_order, longest

#: Options that are said in other words here or cannot be said, or that are not for options to say.
_OURS = frozenset(
    {"model", "instructions", "input", "stream", "tools", "reasoning_effort", "response_format"}
    | {"stop", "verbosity", *LENGTHS, *CHAT_ALONE}
)

_Item: TypeAlias = dict[str, object] | msgspec.Raw


class OpenAIResponses:
    name = NAME
    path = "/responses"

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, request: Request, *, model: str, stream: bool, origin: str = "") -> bytes:
        said: dict[str, object] = {"store": False}
        if seals_thoughts(model):
            # Nothing is stored there, so the thoughts come to us sealed and go back with us.
            said["include"] = ["reasoning.encrypted_content"]
        said |= {key: value for key, value in request.options.items() if key not in _OURS}
        said |= _options(request)
        said |= {
            "model": model,
            "instructions": request.instructions,
            "input": [
                item for message in request.messages for item in _items(message, request, origin)
            ],
            "stream": stream,
        }
        if request.tools:
            said["tools"] = [_tool(spec) for spec in request.tools]
        return msgspec.json.encode(said)

    def reader(self) -> ResponsesReader:
        return ResponsesReader()


def _options(request: Request) -> dict[str, object]:
    """The options that have another name or shape here."""
    options, said = request.options, dict[str, object]()
    if most := longest(options):
        said["max_output_tokens"] = most[1] * request.stretch
    if effort := options.get("reasoning_effort"):
        said["reasoning"] = {"effort": effort, "summary": "auto"} | _table(options.get("reasoning"))
    text = dict[str, object]()
    if shape := _table(options.get("response_format")):
        text["format"] = {"type": shape.get("type")} | _table(shape.get("json_schema"))
    if verbosity := options.get("verbosity"):
        text["verbosity"] = verbosity
    if text:
        said["text"] = _table(options.get("text")) | text
    return said


def _tool(spec: ToolSpec) -> dict[str, object]:
    said = {"name": spec.name, "description": spec.description}
    schema = msgspec.Raw(spec.schema.encode())
    return {"type": "function", **said, "parameters": schema, "strict": False}


def _items(message: Message, request: Request, origin: str) -> Iterator[_Item]:
    if isinstance(message, AssistantMessage):
        yield from _own(message, origin)
    elif isinstance(message, UserMessage):
        content = [_content(part, request) for part in message.parts]
        yield {"type": "message", "role": "user", "content": content}
    else:
        told = {"call_id": message.call_id, "output": message.output}
        yield {"type": "function_call_output", **told}


def _own(message: AssistantMessage, origin: str) -> Iterator[_Item]:
    """What the model said itself. Thoughts that nothing follows are refused, so they stay here."""
    thoughts: list[_Item] = []
    for each in in_order(message, NAME, origin):
        if isinstance(each, Reasoning):
            thoughts.append(msgspec.Raw(each.seal.encode()))
        elif each:
            yield from thoughts
            yield _said(each)
            thoughts = []


def _said(each: str | ToolCall) -> _Item:
    if isinstance(each, str):
        content = [{"type": "output_text", "text": each}]
        return {"type": "message", "role": "assistant", "content": content}
    said = {"call_id": each.id, "name": each.tool, "arguments": each.arguments}
    return {"type": "function_call", **said}


def _content(part: Part, request: Request) -> dict[str, object]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    address = part.url
    if part.blob is not None and part.blob.sha256 in request.blobs:
        data = b64encode(request.blobs[part.blob.sha256]).decode()
        address = f"data:{part.media_type};base64,{data}"
    if not address:
        raise ModelRefused("a picture is neither at hand nor at an address")
    detail = {"detail": part.detail} if part.detail else {}
    return {"type": "input_image", "image_url": address, **detail}


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
