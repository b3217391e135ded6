"""What OpenAI's clients may send, for the schema. What is not described here is let be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Schema,
)

from holdfast.server.reference import SESSION_ID, SESSION_KEY, add

_TEXT, _FLAG, _NUMBER = OpenAPIType.STRING, OpenAPIType.BOOLEAN, OpenAPIType.NUMBER
_WHOLE, _LIST, _OBJECT = OpenAPIType.INTEGER, OpenAPIType.ARRAY, OpenAPIType.OBJECT

_MESSAGES = Schema(
    type=_LIST,
    min_items=1,
    items=Schema(
        type=_OBJECT,
        properties={
            "role": Schema(type=_TEXT, enum=["system", "developer", "user", "assistant"]),
            "content": Schema(type=_TEXT, min_length=1),
        },
        required=["role", "content"],
    ),
)

_BOTH: Mapping[str, Schema] = {
    "model": Schema(type=_TEXT, max_length=256, description="By its name here; the usual if none."),
    "stream": Schema(type=_FLAG, description="Tell it as it comes, as server-sent events."),
    "background": Schema(type=_FLAG, description="Carry it on when nobody reads it."),
    "store": Schema(type=_FLAG, description="Carry it on, and keep it."),
    "on_disconnect": Schema(
        type=_TEXT,
        enum=["stop", "continue"],
        description="What becomes of it 5 seconds after the last reader has left. It goes on if it"
        " is stored, in the background or part of a session, and is stopped if not.",
    ),
    "temperature": Schema(type=_NUMBER, minimum=0, maximum=2),
    "top_p": Schema(type=_NUMBER, minimum=0, maximum=1),
    "service_tier": Schema(type=_TEXT, max_length=256),
    "metadata": Schema(
        type=_OBJECT,
        additional_properties=Schema(type=_TEXT, max_length=512),
        property_names=Schema(type=_TEXT, max_length=64),
        max_properties=16,
        description="Words of your own.",
    ),
    "tools": Schema(
        type=_LIST, description="Not used: the tools are this server's. X-Holdfast-Ignored says so."
    ),
}

COMPLETION: Mapping[str, Schema] = {
    "messages": _MESSAGES,
    **_BOTH,
    "stream_options": Schema(type=_OBJECT, properties={"include_usage": Schema(type=_FLAG)}),
    "reasoning_effort": Schema(type=_TEXT, max_length=256),
    "max_completion_tokens": Schema(type=_WHOLE, minimum=1),
    "n": Schema(type=_WHOLE, enum=[1], description="A run comes to one end."),
    "response_format": Schema(
        type=_OBJECT, properties={"type": Schema(type=_TEXT)}, required=["type"]
    ),
}

RESPONSE: Mapping[str, Schema] = {
    "input": Schema(one_of=[Schema(type=_TEXT, min_length=1), _MESSAGES]),
    **_BOTH,
    "conversation_history": Schema(
        type=_LIST,
        items=_MESSAGES.items,
        description="All that was said before. It counts more than what is known here.",
    ),
    "instructions": Schema(
        type=_TEXT,
        description="Laid over those of the agent, for this one. What a system or developer says in"
        " the input holds for all that follows.",
    ),
    "previous_response_id": Schema(
        type=_TEXT, max_length=256, description="Go on from there: all that was said is known."
    ),
    "conversation": Schema(
        one_of=[
            Schema(type=_TEXT, max_length=256),
            Schema(type=_OBJECT, properties={"id": Schema(type=_TEXT)}, required=["id"]),
        ],
        description="The session it is part of, by its id.",
    ),
    "max_output_tokens": Schema(type=_WHOLE, minimum=1),
    "truncation": Schema(
        type=_TEXT,
        enum=["auto", "disabled"],
        description="Whether to go on with only the last 100 messages of what was said.",
    ),
}


def conversing(base: type[Operation]) -> type[Operation]:
    """An operation whose request may name the session it is part of, and a key of that."""

    @dataclass
    class Conversing(base):  # type: ignore[misc, valid-type]
        def __post_init__(self) -> None:
            super().__post_init__()
            add(self, SESSION_ID, SESSION_KEY)

    return Conversing


def telling(base: type[Operation] = Operation) -> type[Operation]:
    """An operation whose answer is an object or a stream, as was asked for."""

    @dataclass
    class Telling(base):  # type: ignore[misc, valid-type]
        def __post_init__(self) -> None:
            if hasattr(base, "__post_init__"):
                super().__post_init__()
            found = (self.responses or {}).get("200")
            if isinstance(found, OpenAPIResponse) and found.content is not None:
                stream = OpenAPIMediaType(Schema(type=_TEXT))
                found.content = {**found.content, "text/event-stream": stream}

    return Telling
