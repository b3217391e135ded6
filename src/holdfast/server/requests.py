"""What was asked for over HTTP: bytes in, a checked request out, or a Problem.

Nothing is guessed at and nothing is kept. What a client of this wire may leave out, misname or
send in addition is taken as it always was; whatever could not be stored, or could be understood
in two ways, is refused with the name of the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias, TypeGuard, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.config import ModelSettings, Settings
from holdfast.core.events import Choice, RunAccepted
from holdfast.core.messages import Message, Part, Text, ToolSpec
from holdfast.lines import choices
from holdfast.server.content import few, read_earlier, read_history, read_input, short
from holdfast.server.problems import malformed

#: Characters.
LONGEST_INSTRUCTIONS = 200_000
LONGEST_NAME = 256
LONGEST_REASON = 1000
MOST_TOOLS = 1000
MOST_TURNS = 1_000_000
MOST_METADATA = 16
LONGEST_METADATA = 512
DEEPEST = 64
#: Far more than any request has, and few enough to be looked at while others wait.
MOST_TOKENS = 200_000

#: The reason that stands in the journal when a stop came with none.
STOPPED = "Stop requested via API"

#: A text, or a sign that another value comes. A text that is never closed reaches to the end, so
#: that no byte is looked at twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
_PROVIDER = re.compile(r"\A@([^:]*):")
_KEY = re.compile(r"[!-~]{1,255}")
_PLACE = re.compile(r"[0-9]{1,18}")

_CHOICES: Mapping[str, Choice] = {
    **{choice: choice for choice in get_args(Choice)},
    **dict.fromkeys(("approve", "approved", "allow", "yes"), "once"),
    **dict.fromkeys(("reject", "denied", "no"), "deny"),
}
_SAID = ("input", "message", "text")
_YES = frozenset({"1", "true", "yes", "on"})


# --- what is asked for -----------------------------------------------------------------


class RunRequest(Struct, frozen=True, kw_only=True):
    """A run somebody asked for. "" and None are what was left out.

    `blobs` holds the bytes of the images in `parts` and `history`. `continues`: the history was
    given as such, and counts more than what `previous_response_id` stands for.
    """

    parts: tuple[Part, ...]
    history: tuple[Message, ...] = ()
    blobs: dict[str, bytes] = {}
    continues: bool = False
    instructions: str = ""
    previous_response_id: str = ""
    session_id: str = ""
    model: str = ""
    provider: str = ""
    reasoning_effort: str = ""
    service_tier: str = ""
    metadata: dict[str, str] = {}
    max_turns: int | None = None
    approval: Literal["ask", "deny"] | None = None
    tools: tuple[str, ...] | None = None


#: Makes what a model is told first of its tools, and of whether anyone can be asked.
Brief: TypeAlias = Callable[[Sequence[ToolSpec], Literal["ask", "deny"]], str]


class ApprovalRequest(Struct, frozen=True):
    choice: Choice
    approval_id: str = ""
    everything: bool = False
    digest: str = ""


class Admission(NamedTuple):
    """A run that may be taken in, and what has to be kept beside it."""

    run: RunAccepted
    history: tuple[Message, ...]
    blobs: dict[str, bytes]


def read_run(body: bytes) -> RunRequest:
    """Raises Problem, as everything here that reads."""
    fields = _object(body)
    blobs: dict[str, bytes] = {}
    given = fields.get("conversation_history")
    parts, earlier = read_input(fields.get("input"), blobs)
    before = read_history(given, blobs) if given else read_earlier(earlier, blobs)
    instructions = "\n\n".join(filter(None, (_string(fields, "instructions"), *before.told)))
    return RunRequest(
        parts=parts,
        history=before.messages,
        blobs=blobs,
        continues=bool(given),
        instructions=short(instructions, "instructions", LONGEST_INSTRUCTIONS),
        previous_response_id=_text(fields, "previous_response_id"),
        session_id=_session_id(fields),
        model=_text(fields, "model"),
        provider=_text(fields, "provider"),
        reasoning_effort=_text(fields, "reasoning_effort"),
        service_tier=_text(fields, "service_tier"),
        metadata=_metadata(fields.get("metadata")),
        max_turns=_max_turns(fields.get("max_turns")),
        approval=_approval(fields.get("approval")),
        tools=_tools(fields.get("tools")),
    )


def accept(
    request: RunRequest,
    *,
    settings: Settings,
    tools: Sequence[ToolSpec],
    principal: str,
    brief: Brief | None = None,
) -> Admission:
    """The run as it will stand in its journal. Raises Problem for a tool there is not.

    A caller may ask for less than the settings allow, never for more.
    """
    chosen = settings.models[_chosen(request, settings)]
    wanted = {"reasoning_effort": request.reasoning_effort, "service_tier": request.service_tier}
    options = {name: value for name, value in wanted.items() if value}
    denied = "deny" in (request.approval, settings.tools.approval)
    approval: Literal["ask", "deny"] = "deny" if denied else "ask"
    offered = _allowed(request.tools, tools)
    own = brief(offered, approval) if brief else settings.agent.instructions
    # It is laid over the agent's own, which the caller does not know.
    instructions = filter(None, (own, request.instructions))
    run = RunAccepted(
        input=request.parts,
        models=tuple(
            replace(choice, options=choice.options | options)
            for choice in choices(settings.models, chosen.name)
        ),
        attempts=chosen.attempts,
        retry_total=chosen.total,
        session_id=request.session_id,
        instructions="\n\n".join(instructions),
        tools=offered,
        approval=approval,
        approval_timeout=settings.tools.approval_timeout,
        budget=replace(settings.budget, turns=_turns(request.max_turns, settings.budget.turns)),
        workspace=str(settings.workspace),
        surface="http",
        principal=principal,
        asked_model=request.model,
        metadata=request.metadata,
    )
    return Admission(run, request.history, request.blobs)


def read_approval(body: bytes) -> ApprovalRequest:
    fields = _object(body)
    asked = fields.get("choice")
    choice = _CHOICES.get(asked.strip().lower()) if isinstance(asked, str) else None
    if choice is None:
        expected = ", ".join(get_args(Choice))
        raise malformed(
            f"Invalid approval choice; expected one of: {expected}",
            param="choice",
            code="invalid_approval_choice",
        )
    return ApprovalRequest(
        choice,
        _approval_id(fields, "approval_id") or _approval_id(fields, "request_id"),
        _says_yes(fields.get("all")) or _says_yes(fields.get("resolve_all")),
        _approval_id(fields, "digest"),
    )


def read_steer(body: bytes) -> tuple[Part, ...]:
    """What is said to a run that is under way: words, under any of three names."""
    fields = _object(body)
    said = next((fields[name] for name in _SAID if name in fields), None)
    if not isinstance(said, str) or not said.strip():
        raise malformed(
            "'input' must be a string with something in it",
            param="input",
            code="invalid_steer_input",
        )
    return (Text(said),)


def read_stop(body: bytes) -> str:
    """The reason to keep. A stop is never refused for what came with it."""
    try:
        value = _decode(body)
    except (ValueError, RecursionError):
        return STOPPED
    reason = value.get("reason") if isinstance(value, dict) else None
    if not isinstance(reason, str) or not reason.strip() or "\0" in reason:
        return STOPPED
    return reason[:LONGEST_REASON]


def idempotency_key(value: str | None) -> str | None:
    if value is None or _KEY.fullmatch(value):
        return value
    raise malformed(
        "an Idempotency-Key is 1 to 255 visible ASCII characters", code="invalid_idempotency_key"
    )


def fingerprint(body: bytes) -> str:
    """The same for every way to write the same JSON."""
    try:
        body = msgspec.json.encode(_decode(body), order="sorted")
    except (ValueError, RecursionError):
        pass
    return sha256(body).hexdigest()


def cursor(last_event_id: str | None, after: str | None) -> int:
    """The place to go on from: 0, the start, if nobody says a usable one.

    What a reader saw last is newer than the address it began with.
    """
    said = (text for text in (last_event_id, after) if text and _PLACE.fullmatch(text))
    return int(next(said, "0"))


# --- the body --------------------------------------------------------------------------


def _object(body: bytes) -> dict[str, object]:
    try:
        value = _decode(body)
    except (ValueError, RecursionError) as error:
        raise malformed("Invalid JSON") from error
    if not isinstance(value, dict):
        raise malformed("Invalid JSON: the body must be an object")
    _look_through(value)
    return value


def _decode(body: bytes) -> object:
    """Raises ValueError, or RecursionError for what is nested very deeply.

    A body of nothing but brackets would take seconds, in which nobody else is served.
    """
    if next(islice(_TOKEN.finditer(body), MOST_TOKENS, None), None):
        raise ValueError(f"there are more than {MOST_TOKENS} texts, commas and brackets")
    return msgspec.json.decode(body)


def _look_through(value: object) -> None:
    """Refuse what a store or a model further down may choke on, wherever it stands."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
        if any(isinstance(each, str) and "\0" in each for each in level):
            raise malformed("Invalid JSON: no text may contain NUL")
    if any(isinstance(each, dict | list) for each in level):
        raise malformed(f"Invalid JSON: nested more than {DEEPEST} deep")


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


# --- the other fields ------------------------------------------------------------------


def _string(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise malformed(f"'{name}' must be a string", param=name)
    return value or ""


def _text(fields: Mapping[str, object], name: str) -> str:
    return short(_string(fields, name), name, LONGEST_NAME)


def _session_id(fields: Mapping[str, object]) -> str:
    """It may name a folder one day, so it cannot lead out of one."""
    value = fields.get("session_id")
    if value is None or value == "":
        return ""
    if not _is_name(value) or any(bad in value for bad in ("/", "\\", "..")):
        raise malformed(
            f"'session_id' must be 1 to {LONGEST_NAME} visible characters without /, \\ and ..",
            param="session_id",
            code="invalid_session_id",
        )
    return value


def _is_name(value: object) -> TypeGuard[str]:
    """Nothing in it is invisible, and what is at its ends can be seen."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return False
    return value.isprintable() and value == value.strip()


def _metadata(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if (
        not isinstance(value, dict)
        or len(value) > MOST_METADATA
        or not all(isinstance(text, str) for text in value.values())
        or not all(len(text) <= LONGEST_METADATA for pair in value.items() for text in pair)
    ):
        raise malformed(
            f"'metadata' must be an object of at most {MOST_METADATA} strings of at most"
            f" {LONGEST_METADATA} characters",
            param="metadata",
            code="invalid_metadata",
        )
    return value


def _max_turns(value: object) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= MOST_TURNS):
        return value
    raise malformed(f"'max_turns' must be a whole number, 1 to {MOST_TURNS}", param="max_turns")


def _approval(value: object) -> Literal["ask", "deny"] | None:
    match value:
        case None | "ask" | "deny":
            return value
    raise malformed("'approval' must be 'ask' or 'deny'", param="approval")


def _tools(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(map(_is_name, value)):
        raise malformed("'tools' must be an array of names of tools", param="tools")
    return tuple(few(value, "tools", MOST_TOOLS))


def _approval_id(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None or value == "":
        return ""
    if not _is_name(value):
        raise malformed(
            f"'{name}' must be at most {LONGEST_NAME} visible characters",
            param=name,
            code="invalid_approval_request",
        )
    return value


def _says_yes(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _YES
    return isinstance(value, int | float) and bool(value)


# --- what it comes to ------------------------------------------------------------------


def _chosen(request: RunRequest, settings: Settings) -> str:
    """The model meant by its name here, by the endpoint's name for it, or by who provides it.

    One that nobody configured means the usual one: clients send names of their own.
    """
    named = _PROVIDER.match(request.model)
    provider = request.provider or (named[1] if named else "")
    name = _PROVIDER.sub("", request.model)
    models = settings.models.values()
    fitting = [one for one in models if name in ("", one.name, one.model)]
    provided = [one for one in fitting if provider and _provides(provider, one)]
    if name in settings.models and settings.models[name] in (provided or fitting):
        return name
    found = provided or (fitting if name else [])
    return found[0].name if found else settings.default_model


def _provides(provider: str, model: ModelSettings) -> bool:
    """By its name here, or as part of its address: openai is at api.openai.com."""
    host = urlsplit(model.base_url).hostname or ""
    return provider.lower() in (model.name.lower(), *host.split("."))


def _allowed(names: tuple[str, ...] | None, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    if names is None:
        return tuple(tools)
    known = {tool.name for tool in tools}
    for name in names:
        if name not in known:
            raise malformed(f"there is no tool {name}", param="tools", code="unknown_tool")
    return tuple(tool for tool in tools if tool.name in names)


def _turns(asked: int | None, limit: int) -> int:
    return min((turns for turns in (asked, limit) if turns), default=0)
