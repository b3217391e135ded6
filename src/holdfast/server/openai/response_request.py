"""A request for a response: bytes in, a checked request out, or a Problem.

The words of this wire are put into those that all wires know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.server.bodies import flag, read_object, session_id, string, text
from holdfast.server.content import Conversation, laid_over, read_history, short
from holdfast.server.openai.conversation import read_conversation
from holdfast.server.openai.fields import Given, given, inside, one_of, table, truth
from holdfast.server.openai.ids import run_id
from holdfast.server.openai.request import (
    LONGEST_KEY,
    Echo,
    OpenAIRequest,
    length,
    on_disconnect,
    sampling,
    shape,
)
from holdfast.server.problems import malformed
from holdfast.server.requests import LONGEST_INSTRUCTIONS, RunRequest, read_metadata

#: The type of an item that is only named.
REFERENCE = "item_reference"

#: What nobody obeys here: the tools are this server's own.
_IGNORED = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "prompt",
    "top_logprobs",
)


def read_response(body: bytes, *, known: Mapping[str, Any] | None = None) -> OpenAIRequest:
    """`known` are items that may be named by their ids alone. Raises Problem."""
    fields = read_object(body)
    blobs: dict[str, bytes] = {}
    spoken = read_conversation(_in_full(fields.get("input"), known or {}), "input", blobs)
    before = Conversation()
    if earlier := fields.get("conversation_history"):
        before = read_history(earlier, blobs)
    told = (*before.told, *spoken.told)
    own = string(fields, "instructions")
    short(laid_over(own, told), "instructions", LONGEST_INSTRUCTIONS)
    session, previous = _conversation(fields), _previous(fields)
    if session and previous:
        raise malformed(
            "'conversation' and 'previous_response_id' exclude each other: each says what came before",
            param="previous_response_id",
            code="mutually_exclusive_parameters",
        )
    effort = text(inside(fields, "reasoning"), "reasoning.effort")
    options, store = _options(fields), flag(fields, "store")
    passed_over: tuple[str, ...] = ()
    if earlier and previous:
        previous, passed_over = "", ("previous_response_id",)
    run = RunRequest(
        parts=spoken.parts,
        history=(*before.messages, *spoken.history),
        blobs=blobs,
        continues=bool(earlier),
        instructions=own,
        previous_response_id=previous,
        session_id=session,
        model=text(fields, "model"),
        reasoning_effort=effort,
        service_tier=text(fields, "service_tier"),
        metadata=read_metadata(fields.get("metadata"), longest_key=LONGEST_KEY),
    )
    background = flag(fields, "background") or False
    return OpenAIRequest(
        run=run,
        told=told,
        options=options,
        stream=truth(fields, "stream"),
        background=background,
        store=store is not False,
        on_disconnect=on_disconnect(fields),
        ignored=given(fields, _IGNORED) + passed_over + spoken.passed_over,
        echo=Echo(
            background=background,
            conversation=session,
            instructions=own or None,
            max_output_tokens=options.get("max_tokens"),
            previous_response_id=previous or None,
            reasoning_effort=effort or None,
            service_tier=run.service_tier or None,
            store=store is not False,
            temperature=options.get("temperature"),
            text=_text_config(fields),
            top_p=options.get("top_p"),
            truncation=one_of(fields, "truncation", "auto", "disabled") or "disabled",
            user=string(fields, "user") or None,
        ),
    )


def _in_full(items: object, known: Mapping[str, Any]) -> object:
    if not known or not isinstance(items, list):
        return items
    return [known.get(str(item.get("id")), item) if _refers(item) else item for item in items]


def _refers(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == REFERENCE


def _conversation(fields: Given) -> str:
    """A session by its name, or as an object that has an id."""
    named = fields.get("conversation")
    inner = named.get("id") if isinstance(named, dict) else named
    if isinstance(named, dict) and not inner:
        raise malformed("'conversation' must have an 'id'", param="conversation")
    return session_id({"conversation": inner}, "conversation")


def _previous(fields: Given) -> str:
    previous = text(fields, "previous_response_id")
    if previous:
        run_id(previous, named="previous_response")
    return previous


def _options(fields: Given) -> dict[str, Any]:
    options = sampling(fields)
    if (most := length(fields, "max_output_tokens")) is not None:
        options["max_tokens"] = most
    if wanted := _format(fields):
        options["response_format"] = wanted
    if verbosity := text(inside(fields, "text"), "text.verbosity"):
        options["verbosity"] = verbosity
    return options


def _text_config(fields: Given) -> dict[str, Any]:
    """What was said of the text, as it was said."""
    config = {
        "format": (table(fields, "text") or {}).get("format"),
        "verbosity": text(inside(fields, "text"), "text.verbosity"),
    }
    return {name: value for name, value in config.items() if value}


def _format(fields: Given) -> dict[str, Any] | None:
    """As chat completions have it: there a schema is a level further down."""
    flat = inside(fields, "text").get("text.format")
    if flat is None:
        return shape(fields.get("response_format"), "response_format")
    wanted = shape(flat, "text.format")
    if wanted is None or wanted["type"] != "json_schema":
        return wanted
    inner = {name: value for name, value in wanted.items() if name != "type"}
    return {"type": "json_schema", "json_schema": inner}
