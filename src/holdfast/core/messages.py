"""What is said between people, models and tools, in nobody's dialect.

Each wire maps these to its own format and back. Images and other large things
stand in a message by reference: the bytes are blobs of the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.usage import Usage

# --- content ---------------------------------------------------------------------------


class BlobRef(Struct, frozen=True):
    """Bytes kept by the store under the hash of their content."""

    sha256: str
    size: int


class Text(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class Image(Struct, frozen=True, tag_field="type", tag="image", omit_defaults=True):
    """A picture, kept as a blob or found at an address. `detail` is how closely to look at it, where a
    wire has a word for that."""

    media_type: str = ""
    blob: BlobRef | None = None
    url: str = ""
    detail: str = ""


Part: TypeAlias = Text | Image


class Reasoning(Struct, frozen=True, omit_defaults=True):
    """What a model thought.

    `seal` is what the endpoint wants back with it, in the words of its wire. Nobody else can read
    it, so it goes back only to its `origin`, the base URL it came from. Its place in the reply is
    told by how many calls came `before` it, and how many characters had been `said`.
    """

    text: str = ""
    wire: str = ""
    seal: str = ""
    origin: str = ""
    before: int = 0
    said: int = 0


#: auto: runs unasked. ask: a person is asked. refuse: never runs, and the model is told.
Gate: TypeAlias = Literal["auto", "ask", "refuse"]


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """One use of a tool that a model asked for.

    `id` is ours and unique; `model_id` is what the model called it, for its ears only. What the
    tool made of the arguments is part of the record: a `problem` is told to the model and
    nothing runs; `gate` says whether a person is asked; `subject` is what exactly a yes is
    given to, and `binding` all else that it depends on, a line each; `key` is how far a standing
    yes would reach, "" if there can be none.
    """

    id: str
    tool: str
    arguments: str = "{}"
    model_id: str = ""
    problem: str = ""
    gate: Gate = "auto"
    reason: str = ""
    subject: str = ""
    key: str = ""
    binding: str = ""


# --- messages --------------------------------------------------------------------------


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", omit_defaults=True):
    parts: tuple[Part, ...]
    id: str = ""


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", omit_defaults=True):
    text: str = ""
    reasoning: tuple[Reasoning, ...] = ()
    calls: tuple[ToolCall, ...] = ()


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool", omit_defaults=True):
    """What came of one call, as the model is told."""

    call_id: str
    tool: str
    output: str
    ok: bool = True


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


# --- what a model is asked, and what it yields -----------------------------------------


class ToolSpec(Struct, frozen=True):
    """What a tool is and may do, as fixed when the run was accepted."""

    name: str
    description: str = ""
    schema: str = '{"type":"object"}'
    writes: bool = True
    network: bool = False
    #: Safe to run again when a crash left its outcome unknown.
    repeatable: bool = False
    #: May run at the same time as other parallel calls of one reply.
    parallel: bool = False
    timeout: float = 600.0
    #: Characters of output that a model is shown of one call. The whole is kept.
    output: int = 64 * 1024


#: What the options of a request call the longest reply, in tokens; the first that names a number counts.
LENGTHS = ("max_output_tokens", "max_completion_tokens", "max_tokens")


class Request(Struct, frozen=True):
    """One call to a model. `blobs` holds the bytes of the images in its messages."""

    model: str
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: dict[str, object] = {}
    blobs: dict[str, bytes] = {}
    #: Seconds to reach the endpoint in; 0 for as long as it takes.
    connect: float = 30.0
    #: How many times as long as usual the reply may be, because it was cut inside a tool call.
    stretch: int = 1


class Heard(Struct, frozen=True):
    """An acknowledgement that only the backend itself can send. Ends the wait for a first event."""


class Unstreamed(Struct, frozen=True):
    """The reply will come in one piece, so only the limit of the whole call applies."""


class Said(Struct, frozen=True):
    """`last`: the end came with it, so that it need not be told before that."""

    text: str
    last: bool = False


class Thought(Struct, frozen=True):
    text: str
    last: bool = False


class Calling(Struct, frozen=True):
    """A piece of a tool call: a sign of life, shown to nobody until the call is whole."""

    tool: str = ""


class Asked(Struct, frozen=True):
    """A whole tool call, in the model's words."""

    tool: str
    arguments: str
    model_id: str = ""


class Done(Struct, frozen=True):
    """The end marker. Without it there was no reply. `model` is what the endpoint says replied."""

    stop: Literal["stop", "length", "refusal"] = "stop"
    calls: tuple[Asked, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    usage: Usage = Usage()
    model: str = ""


Chunk: TypeAlias = Heard | Unstreamed | Said | Thought | Calling | Done


# --- text that arrives in pieces -------------------------------------------------------

_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udbff]\\Z")


def mend(text: str) -> tuple[str, str]:
    """Join surrogate halves: what is ready to use, and a trailing half to hold for the next piece.

    A half that no other half follows stays as it is; `lone` finds it.
    """
    if not _SURROGATE.search(text):
        return text, ""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    held = whole[-1:] if _HALF.search(whole) else ""
    return whole.removesuffix(held) if held else whole, held


def lone(text: str) -> int | None:
    """Where the first half of a character stands alone, or None. Such text cannot be stored."""
    # Most texts are plain, and in a long one the search takes long.
    found = None if text.isascii() else _SURROGATE.search(text)
    return found.start() if found else None


def storable(text: str) -> str:
    """The text with halves of characters spelled out, for words of which none may be lost."""
    return text.encode("utf-8", "backslashreplace").decode()


def plain(parts: Iterable[Part]) -> str:
    """The words among the parts."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def pictures(messages: Iterable[Message]) -> Iterator[BlobRef]:
    """The blobs that the images among these messages are kept in."""
    for message in messages:
        if isinstance(message, UserMessage):
            images = (part for part in message.parts if isinstance(part, Image))
            yield from (image.blob for image in images if image.blob)


def characters(request: Request) -> int:
    """How many there are to read, pictures not counted."""
    spoken = sum(length(message) for message in request.messages)
    return len(request.instructions) + spoken + sum(len(tool.schema) for tool in request.tools)


def length(message: Message) -> int:
    """Characters of it, pictures not counted."""
    match message:
        case UserMessage(parts=parts):
            return len(plain(parts))
        case AssistantMessage(text=text, calls=calls):
            return len(text) + sum(len(call.arguments) for call in calls)
        case ToolMessage(output=output):
            return len(output)
