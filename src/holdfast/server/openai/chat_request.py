"""A request for a chat completion: bytes in, a checked request out, or a Problem.

Unknown fields are let be: clients send what the newest model of somebody takes.
"""

from __future__ import annotations

from typing import Any

from holdfast.server.bodies import flag, read_object, text
from holdfast.server.content import laid_over, short
from holdfast.server.openai.conversation import read_conversation
from holdfast.server.openai.fields import Given, given, inside, number, truth, whole
from holdfast.server.openai.request import (
    LONGEST_KEY,
    Echo,
    OpenAIRequest,
    biases,
    length,
    on_disconnect,
    sampling,
    shape,
    stops,
)
from holdfast.server.problems import malformed
from holdfast.server.requests import LONGEST_INSTRUCTIONS, RunRequest, read_metadata

#: What nobody obeys here: the tools are this server's own, and it tells of them in its own way.
_IGNORED = (
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "parallel_tool_calls",
    "logprobs",
    "top_logprobs",
    "modalities",
    "audio",
    "prediction",
    "web_search_options",
)


def read_chat(body: bytes) -> OpenAIRequest:
    """Raises Problem."""
    fields = read_object(body)
    blobs: dict[str, bytes] = {}
    messages = fields.get("messages")
    if messages and not isinstance(messages, list):
        raise malformed("'messages' must be an array of messages", param="messages")
    spoken = read_conversation(messages, "messages", blobs)
    instructions = laid_over("", spoken.told)
    _one(fields)
    store = flag(fields, "store")
    run = RunRequest(
        parts=spoken.parts,
        history=spoken.history,
        blobs=blobs,
        instructions=short(instructions, "messages", LONGEST_INSTRUCTIONS),
        model=text(fields, "model"),
        reasoning_effort=text(fields, "reasoning_effort"),
        service_tier=text(fields, "service_tier"),
        metadata=read_metadata(fields.get("metadata"), longest_key=LONGEST_KEY),
    )
    return OpenAIRequest(
        run=run,
        options=_options(fields),
        stream=truth(fields, "stream"),
        include_usage=_include_usage(fields),
        background=flag(fields, "background") or False,
        store=store,
        on_disconnect=on_disconnect(fields),
        ignored=given(fields, _IGNORED) + spoken.passed_over,
        # It is found as a response, and gone on from, only if it was to be stored.
        echo=Echo(store=store or False, instructed=spoken.told if store else None),
    )


def _one(fields: Given) -> None:
    if (whole(fields, "n", 1, 128) or 1) > 1:
        raise malformed("'n' must be 1: a run comes to one end", param="n", code="unsupported_n")


def _include_usage(fields: Given) -> bool:
    return flag(inside(fields, "stream_options"), "stream_options.include_usage") or False


def _options(fields: Given) -> dict[str, Any]:
    options = {
        **sampling(fields),
        "presence_penalty": number(fields, "presence_penalty", -2, 2),
        "frequency_penalty": number(fields, "frequency_penalty", -2, 2),
        "seed": whole(fields, "seed", -(2**63), 2**63 - 1),
        "max_tokens": length(fields, "max_tokens"),
        "max_completion_tokens": length(fields, "max_completion_tokens"),
        "logit_bias": biases(fields),
        "stop": stops(fields.get("stop")),
        "verbosity": text(fields, "verbosity") or None,
        "response_format": shape(fields.get("response_format"), "response_format"),
    }
    return {name: value for name, value in options.items() if value is not None}
