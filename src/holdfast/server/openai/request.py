"""What clients of OpenAI ask for, whichever of its ways they ask in: a run, and how to tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.core.events import RunAccepted
from holdfast.core.messages import LENGTHS
from holdfast.server.content import Instruction, laid_over
from holdfast.server.openai.fields import Given, number, one_of, table, whole
from holdfast.server.problems import malformed
from holdfast.server.requests import RunRequest

Disconnect: TypeAlias = Literal["", "stop", "continue"]

MOST_TOKENS = 100_000_000
MOST_STOPS = 16
LONGEST_STOP = 1000
MOST_BIASES = 1000
LONGEST_TOKEN = 100
#: Of metadata.
LONGEST_KEY = 64
#: Bytes.
LARGEST_SHAPE = 200_000


class Echo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request said of itself, and its response says again. The run does not depend on it.

    `conversation` is the session that was named, if one was. Two things no response says: `attended`,
    that the run is for its readers alone and ends with the last of them; and `instructed`, what holds for
    whatever goes on from here, None if that is not known.
    """

    attended: bool = False
    background: bool = False
    conversation: str = ""
    instructed: tuple[Instruction, ...] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    store: bool = True
    temperature: float | None = None
    text: dict[str, Any] = {}
    top_p: float | None = None
    truncation: str = "disabled"
    user: str | None = None

    def told(self) -> Mapping[str, Any]:
        said = asdict(self)
        effort = said.pop("reasoning_effort")
        del said["attended"], said["instructed"]
        return {
            **said,
            "conversation": {"id": self.conversation} if self.conversation else None,
            "reasoning": {"effort": effort, "summary": None},
            "text": self.text or {"format": {"type": "text"}},
        }


class OpenAIRequest(Struct, frozen=True, kw_only=True):
    """A run somebody asked for. `options` are for the model, in the names that all wires know.

    `told` are instructions among what was said, which come after all others. `store` is None where
    nothing was said of it. `ignored` are fields that nobody obeys here.
    """

    run: RunRequest
    told: tuple[Instruction, ...] = ()
    options: dict[str, Any] = {}
    stream: bool = False
    include_usage: bool = False
    background: bool = False
    store: bool | None = None
    on_disconnect: Disconnect = ""
    ignored: tuple[str, ...] = ()
    echo: Echo = Echo()

    @property
    def goes_on(self) -> bool:
        """Also when nobody reads it any more."""
        if self.on_disconnect:
            return self.on_disconnect == "continue"
        return bool(self.run.session_id or self.background or self.store)


def finish(request: OpenAIRequest, run: RunAccepted) -> RunAccepted:
    """The run as it will stand in its journal: as any other, and its options with its models."""
    models = tuple(
        replace(choice, options=_laid_over(choice.options, request.options))
        for choice in run.models
    )
    echo = replace(request.echo, attended=not request.goes_on)
    instructions = laid_over(run.instructions, request.told)
    return replace(run, models=models, instructions=instructions, asked=msgspec.to_builtins(echo))


def _laid_over(usual: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A length that is asked for counts, whatever the usual one is called."""
    if not own.keys().isdisjoint(LENGTHS):
        usual = {name: value for name, value in usual.items() if name not in LENGTHS}
    return {**usual, **own}


def read_echo(run: RunAccepted | None) -> Echo:
    """What the request said of itself. One that came another way said nothing."""
    try:
        return msgspec.convert(run.asked if run else {}, Echo)
    except msgspec.ValidationError:
        return Echo()


# --- what both ways have in common -----------------------------------------------------


def sampling(fields: Given) -> dict[str, Any]:
    """How to choose the next word."""
    options = {
        "temperature": number(fields, "temperature", 0, 2),
        "top_p": number(fields, "top_p", 0, 1),
    }
    return {name: value for name, value in options.items() if value is not None}


def length(fields: Given, name: str) -> int | None:
    """Tokens of one reply."""
    return whole(fields, name, 1, MOST_TOKENS)


def on_disconnect(fields: Given) -> Disconnect:
    match one_of(fields, "on_disconnect", "stop", "continue"):
        case "stop":
            return "stop"
        case "continue":
            return "continue"
        case _:
            return ""


def shape(value: object, name: str) -> dict[str, Any] | None:
    """What a reply should look like, None if like any. Only its type is looked at here."""
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise malformed(f"'{name}' must be an object with a 'type'", param=name)
    if len(msgspec.json.encode(value)) > LARGEST_SHAPE:
        raise malformed(
            f"'{name}' is larger than {LARGEST_SHAPE} bytes", param=name, code="text_too_long"
        )
    return None if value["type"] == "text" else value


def biases(fields: Given) -> dict[str, object] | None:
    """How much more or less each token is wanted."""
    wanted = table(fields, "logit_bias")
    if wanted and (len(wanted) > MOST_BIASES or not all(map(_bias, wanted, wanted.values()))):
        raise malformed(
            f"'logit_bias' must be an object of at most {MOST_BIASES} tokens with a number each,"
            " -100 to 100",
            param="logit_bias",
        )
    return wanted


def _bias(token: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return len(token) <= LONGEST_TOKEN and -100 <= value <= 100


def stops(value: object) -> str | list[str] | None:
    """Words to stop before."""
    if value is None:
        return None
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list)
        or len(words) > MOST_STOPS
        or not all(isinstance(word, str) and len(word) <= LONGEST_STOP for word in words)
    ):
        raise malformed(
            f"'stop' must be a string, or an array of at most {MOST_STOPS} strings", param="stop"
        )
    return value if isinstance(value, str) else words
