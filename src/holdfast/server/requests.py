"""What was asked for over HTTP: bytes in, a checked request out, or a Problem.

Nothing is guessed at and nothing is kept. What a client of this wire may leave out, misname or
send in addition is taken as it always was; whatever could not be stored, or could be understood
in two ways, is refused with the name of the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.config import ModelSettings, Settings
from holdfast.core.events import Choice, RunAccepted
from holdfast.core.messages import Message, Part, Text, ToolSpec
from holdfast.engine.sessions import Busy
from holdfast.lines import choices
from holdfast.server.bodies import (
    LONGEST_NAME,
    decode,
    is_name,
    message_id,
    read_object,
    session_id,
    string,
    text,
)
from holdfast.server.content import (
    LONGEST_INPUT,
    few,
    laid_over,
    read_earlier,
    read_history,
    read_input,
    short,
)
from holdfast.server.problems import malformed

#: Characters.
LONGEST_INSTRUCTIONS = 200_000
LONGEST_REASON = 1000
MOST_TOOLS = 1000
MOST_TURNS = 1_000_000
MOST_METADATA = 16
LONGEST_METADATA = 512

#: The reason that stands in the journal when a stop came with none.
STOPPED = "Stop requested via API"

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

    `blobs` holds the bytes of the images in `parts` and `history`. `continues`: the history is all that
    was said before, and counts more than what is known of a session or of `previous_response_id`.
    `recall` is how many messages of its session are told otherwise, None for all.
    """

    parts: tuple[Part, ...]
    history: tuple[Message, ...] = ()
    blobs: dict[str, bytes] = {}
    continues: bool = False
    recall: int | None = None
    instructions: str = ""
    previous_response_id: str = ""
    session_id: str = ""
    message_id: str = ""
    on_busy: Busy = "queue"
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
    fields = read_object(body)
    blobs: dict[str, bytes] = {}
    given = fields.get("conversation_history")
    parts, earlier = read_input(fields.get("input"), blobs)
    before = read_history(given, blobs) if given else read_earlier(earlier, blobs)
    instructions = laid_over(string(fields, "instructions"), before.told)
    return RunRequest(
        parts=parts,
        history=before.messages,
        blobs=blobs,
        continues=bool(given),
        instructions=short(instructions, "instructions", LONGEST_INSTRUCTIONS),
        previous_response_id=text(fields, "previous_response_id"),
        session_id=session_id(fields),
        message_id=message_id(fields),
        on_busy=_on_busy(fields.get("on_busy")),
        model=text(fields, "model"),
        provider=text(fields, "provider"),
        reasoning_effort=text(fields, "reasoning_effort"),
        service_tier=text(fields, "service_tier"),
        metadata=read_metadata(fields.get("metadata")),
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
        message_id=request.message_id,
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
        recall=0 if request.continues else request.recall,
    )
    return Admission(run, request.history, request.blobs)


def read_approval(body: bytes) -> ApprovalRequest:
    fields = read_object(body)
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
        _meant(fields),
        _says_yes(fields.get("all")) or _says_yes(fields.get("resolve_all")),
        _approval_id(fields, "digest"),
    )


def read_steer(body: bytes) -> tuple[tuple[Part, ...], str]:
    """What is said to a run that is under way: words, under any of three names, and their id."""
    fields = read_object(body)
    said = next((fields[name] for name in _SAID if name in fields), None)
    if not isinstance(said, str) or not said.strip():
        raise malformed(
            "'input' must be a string with something in it",
            param="input",
            code="invalid_steer_input",
        )
    return (Text(short(said, "input", LONGEST_INPUT)),), message_id(fields)


def read_stop(body: bytes) -> str:
    """The reason to keep. A stop is never refused for what it says."""
    try:
        value = decode(body)
    except (ValueError, RecursionError):
        return STOPPED
    reason = value.get("reason") if isinstance(value, dict) else None
    if not isinstance(reason, str) or not reason.strip() or "\0" in reason:
        return STOPPED
    return reason[:LONGEST_REASON]


def session_key(headers: Mapping[str, str]) -> str:
    """What a client calls the key of its session: it is said again, and means nothing here."""
    value = headers.get("X-Hermes-Session-Key", "")
    if len(value) > LONGEST_NAME:
        words = f"Session key too long: it has more than {LONGEST_NAME} bytes"
        raise malformed(words, code="invalid_session_key")
    return value


def idempotency_key(value: str | None) -> str | None:
    if value is None or _KEY.fullmatch(value):
        return value
    raise malformed(
        "an Idempotency-Key is 1 to 255 visible ASCII characters", code="invalid_idempotency_key"
    )


def fingerprint(body: bytes) -> str:
    """The same for every way to write the same JSON."""
    try:
        body = msgspec.json.encode(decode(body), order="sorted")
    except (ValueError, RecursionError):
        pass
    return sha256(body).hexdigest()


def cursor(last_event_id: str | None, after: str | None) -> int:
    """The place to go on from: 0, the start, if nobody says a usable one.

    What a reader saw last is newer than the address it began with.
    """
    said = (text for text in (last_event_id, after) if text and _PLACE.fullmatch(text))
    return int(next(said, "0"))


# --- the other fields ------------------------------------------------------------------


def read_metadata(value: object, *, longest_key: int = LONGEST_METADATA) -> dict[str, str]:
    if value is None:
        return {}
    if (
        not isinstance(value, dict)
        or len(value) > MOST_METADATA
        or not all(isinstance(text, str) for text in value.values())
        or not all(len(text) <= LONGEST_METADATA for text in value.values())
        or not all(len(key) <= longest_key for key in value)
    ):
        raise malformed(
            f"'metadata' must be an object of at most {MOST_METADATA} strings of at most"
            f" {LONGEST_METADATA} characters, with keys of at most {longest_key}",
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


def _on_busy(value: object) -> Busy:
    match value:
        case None:
            return "queue"
        case "queue" | "steer" | "interrupt" | "reject":
            return value
    expected = ", ".join(get_args(Busy))
    raise malformed(f"'on_busy' must be one of {expected}", param="on_busy")


def _tools(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(map(is_name, value)):
        raise malformed("'tools' must be an array of names of tools", param="tools")
    return tuple(few(value, "tools", MOST_TOOLS))


def _approval_id(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None or value == "":
        return ""
    if not is_name(value):
        raise malformed(
            f"'{name}' must be at most {LONGEST_NAME} visible characters",
            param=name,
            code="invalid_approval_request",
        )
    return value


def _meant(fields: Mapping[str, object]) -> str:
    """The approval that is answered, under either of its names."""
    ours, theirs = (_approval_id(fields, name) for name in ("approval_id", "request_id"))
    if ours and theirs and ours != theirs:
        raise malformed(
            "'approval_id' and 'request_id' name two approvals, where they mean the same",
            param="request_id",
            code="invalid_approval_request",
        )
    return ours or theirs


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
