"""The reference: which bodies are taken, for the schema, and the schema as a page for people.

Bodies are read by `requests`, where the framework cannot see what they are made of. The page has
no script and nothing from afar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from litestar.openapi.spec import (
    Link,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
)

_TEXT, _FLAG, _NUMBER = OpenAPIType.STRING, OpenAPIType.BOOLEAN, OpenAPIType.INTEGER
_LIST, _OBJECT = OpenAPIType.ARRAY, OpenAPIType.OBJECT

_MESSAGE = Schema(
    type=_OBJECT,
    properties={
        "role": Schema(type=_TEXT),
        "content": Schema(description="A text, or an array of parts."),
    },
    required=["role", "content"],
)

_PART = Schema(
    type=_OBJECT,
    properties={
        "type": Schema(type=_TEXT, enum=["text", "image_url"]),
        "text": Schema(type=_TEXT),
        "image_url": Schema(type=_OBJECT, properties={"url": Schema(type=_TEXT)}),
    },
    required=["type"],
)

RUN: Mapping[str, Schema] = {
    "input": Schema(
        one_of=[Schema(type=_TEXT, min_length=1), Schema(type=_LIST, items=_MESSAGE, min_items=1)],
        description="What to do: a text, or messages of which the last says it.",
    ),
    "conversation_history": Schema(
        type=_LIST, items=_MESSAGE, description="What was said before, if not in the input."
    ),
    "previous_response_id": Schema(
        type=_TEXT,
        max_length=256,
        description="Go on from this response, if there is no conversation_history.",
    ),
    "instructions": Schema(type=_TEXT, description="Laid over those of the agent."),
    "session_id": Schema(type=_TEXT, max_length=256, description="The conversation it is part of."),
    "message_id": Schema(
        type=_TEXT, min_length=1, max_length=256, description="What you call the message."
    ),
    "on_busy": Schema(
        type=_TEXT,
        enum=["queue", "steer", "interrupt", "reject"],
        description="What becomes of it while a run of its session is under way: it waits for its"
        " turn, is said to that run, stops that run first, or is refused. It waits unless given.",
    ),
    "model": Schema(
        type=_TEXT,
        max_length=256,
        description="By its name in the settings, or by its endpoint's; the usual one unless it is"
        " known.",
    ),
    "provider": Schema(
        type=_TEXT, max_length=256, description="Whose model, where several have that name."
    ),
    "reasoning_effort": Schema(type=_TEXT, max_length=256, description="Passed on to the model."),
    "service_tier": Schema(type=_TEXT, max_length=256, description="Passed on to the model."),
    "max_turns": Schema(type=_NUMBER, minimum=1, description="Fewer than the settings allow."),
    "tools": Schema(
        type=_LIST, items=Schema(type=_TEXT), description="Those it may use, if not all."
    ),
    "approval": Schema(
        type=_TEXT, enum=["ask", "deny"], description="Whether anyone can be asked."
    ),
    "metadata": Schema(
        type=_OBJECT,
        additional_properties=Schema(type=_TEXT, max_length=512),
        max_properties=16,
        description="Words of your own, to be found in the status.",
    ),
}

APPROVAL: Mapping[str, Schema] = {
    "choice": Schema(type=_TEXT, enum=["once", "session", "always", "deny"]),
    "approval_id": Schema(type=_TEXT, max_length=256, description="Needed if several are pending."),
    "request_id": Schema(type=_TEXT, max_length=256, description="Means the same."),
    "all": Schema(type=_FLAG, description="Answer all that are pending."),
    "resolve_all": Schema(type=_FLAG, description="Means the same."),
    "digest": Schema(
        type=_TEXT,
        max_length=256,
        description="That of what was shown: should it be another by now, the answer is refused.",
    ),
}

STEER: Mapping[str, Schema] = {
    "input": Schema(type=_TEXT, description="What to say. `message` and `text` mean the same."),
    "message_id": Schema(
        type=_TEXT,
        min_length=1,
        max_length=256,
        description="What you call it. Said again under the same id, it is heard once.",
    ),
}

STOP: Mapping[str, Schema] = {
    "reason": Schema(type=_TEXT, description="To be kept with the run."),
}


_TITLE = Schema(type=_TEXT, max_length=200, description="What to call it.")
_MODEL = Schema(
    type=_TEXT, max_length=256, description="For runs of it that name none, by its name here."
)
_TOLD = Schema(type=_TEXT, description="For runs of it that bring none.")

NEW_SESSION: Mapping[str, Schema] = {
    "session_id": Schema(type=_TEXT, max_length=256, description="Made up unless given."),
    "title": _TITLE,
    "model": _MODEL,
    "instructions": _TOLD,
}

SESSION: Mapping[str, Schema] = {
    "title": _TITLE,
    "pinned": Schema(type=_FLAG, description="Whether it stands first in the list."),
    "archived": Schema(type=_FLAG, description="Whether it is out of the way."),
}

EDIT: Mapping[str, Schema] = {
    "input": Schema(type=_TEXT, min_length=1, description="What to do instead."),
}

COMPATIBLE_NEW: Mapping[str, Schema] = {
    "id": Schema(type=_TEXT, max_length=256, description="Made up unless given."),
    "title": _TITLE,
    "model": _MODEL,
    "system_prompt": _TOLD,
}

COMPATIBLE: Mapping[str, Schema] = {
    "title": _TITLE,
    "end_reason": Schema(
        type=_TEXT, description="A session that has ended is archived; the words are not kept."
    ),
}

CHAT: Mapping[str, Schema] = {
    "message": Schema(
        one_of=[Schema(type=_TEXT, min_length=1), Schema(type=_LIST, items=_PART, min_items=1)],
        description="What to say: a text, or parts. `input` means the same.",
    ),
    "system_message": Schema(
        type=_TEXT, description="Laid over the agent's. `instructions` means the same."
    ),
}

DOCUMENT: Mapping[str, Schema] = {
    "holdfast_session": Schema(type=_NUMBER, enum=[1], description="Which form it has."),
    "session_id": Schema(type=_TEXT, max_length=256),
    "title": Schema(type=_TEXT, description="For people; what counts stands in the notes."),
    "notes": Schema(type=_LIST, description="The session's journal: seq, at and event of each."),
    "runs": Schema(type=_LIST, description="Its runs: run_id, ordinal, and events like the notes."),
    "blobs": Schema(type=_OBJECT, description="What those refer to, in base64, by its SHA-256."),
}


_NAME = Schema(type=_TEXT, max_length=256)
SESSION_ID = Parameter(
    "X-Hermes-Session-Id",
    "header",
    _NAME,
    description="The session it is part of, if the body names none.",
)
SESSION_KEY = Parameter(
    "X-Hermes-Session-Key", "header", _NAME, description="Said again, and of no meaning here."
)

#: In the head of a refusal, by its status.
_REFUSED: Mapping[str, Mapping[str, str]] = {
    "401": {"WWW-Authenticate": "How to show the key."},
    "429": {"Retry-After": "Seconds to wait before it is asked again."},
    "503": {"Retry-After": "Seconds to wait before it is asked again."},
}
#: And where a run was to be started.
_NOT_STARTED: Mapping[str, Mapping[str, str]] = {
    "409": {
        "X-Run-Id": "The run under way, if its session is busy.",
        "X-Should-Retry": "false, if the same request would be refused again.",
    },
    "502": {"X-Run-Id": "The run that came to no answer."},
}

#: What can be asked about a run that was started, by what it is called here and in the routes.
_NEXT = {
    "status": "V1RunsRunIdReadRun",
    "events": "V1RunsRunIdEventsFollowRun",
    "journal": "V1RunsRunIdJournalReadJournal",
    "approval": "V1RunsRunIdApprovalAnswerApproval",
    "steer": "V1RunsRunIdSteerSteerRun",
    "stop": "V1RunsRunIdStopStopRun",
}


def add(operation: Operation, *parameters: Parameter) -> None:
    operation.parameters = [*(operation.parameters or ()), *parameters]


def starting(fields: Mapping[str, Schema], *needed: str) -> type[Operation]:
    """One that takes such a body and starts a run, with links to all that can be asked about it."""
    links: dict[str, Link | Reference] = {
        name: Link(operation_id=id, parameters={"run_id": "$response.body#/run_id"})
        for name, id in _NEXT.items()
    }

    @dataclass
    class Starting(taking(fields, *needed)):  # type: ignore[misc]
        def __post_init__(self) -> None:
            super().__post_init__()
            add(self, SESSION_KEY)
            started = (self.responses or {}).get("202")
            if isinstance(started, OpenAPIResponse):
                started.links = links

    return Starting


def taking(fields: Mapping[str, Schema], *needed: str) -> type[Operation]:
    """An operation that takes a body of these fields."""
    properties: dict[str, Reference | Schema] = dict(fields)
    schema = Schema(type=_OBJECT, properties=properties, required=list(needed) or None)
    body = RequestBody({"application/json": OpenAPIMediaType(schema)}, required=bool(needed))

    @dataclass
    class Taking(Operation):
        def __post_init__(self) -> None:
            self.request_body = body

    return Taking


def complete(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what stands in the heads of refusals, for which the framework has no place."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            starts = any("X-Run-Id" in answer.get("headers", ()) for answer in answers.values())
            for status, told in (*_REFUSED.items(), *(_NOT_STARTED.items() if starts else ())):
                if status in answers:
                    answers[status]["headers"] = {name: _head(told[name]) for name in told}
    return schema


def _head(description: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "description": description}


_STYLE = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}
code{background:#8882;padding:.1em .3em;border-radius:.2em}
h2{border-top:1px solid #8884;padding-top:1rem;margin-top:2rem}
dt{font-weight:600;margin-top:.5rem}dd{margin-left:1.5rem}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"""

_KEY = """\
<p>Every request but <code>/health</code> has to show the key:
<code>Authorization: Bearer …</code>. The same, for machines, is at
<code>/openapi.json</code>.</p>"""


def page(schema: Mapping[str, Any]) -> str:
    info = schema["info"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>",
        "<meta name=viewport content='width=device-width'>",
        f"<style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('description', ''))}</p>",
        _KEY,
    ]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts += _operation(path, method, operation)
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('summary') or '')}"
    if told := operation.get("description"):
        yield f" {escape(told)}"
    yield "</p><dl>"
    for one in operation.get("parameters", ()):
        where = f"{one['name']} ({one['in']})"
        yield f"<dt>{escape(where)}</dt><dd>{escape(one.get('description', ''))}</dd>"
    for name, field in _body(operation).items():
        told = escape(field.get("description") or ", ".join(field.get("enum", ())))
        yield f"<dt>{escape(name)} (body)</dt><dd>{told}</dd>"
    for status, answer in operation.get("responses", {}).items():
        told = answer.get("description", "")
        names = ", ".join(answer.get("headers", ()))
        yield f"<dt>{escape(status)}</dt><dd>{escape(f'{told} {names}'.strip())}</dd>"
    yield "</dl>"


def _body(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the body it takes, by their names."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    fields: Mapping[str, Any] = schema.get("properties", {})
    return fields
