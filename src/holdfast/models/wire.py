"""What a wire is: how one protocol asks a model and how it answers. Pure; no wire does any I/O.

A wire turns a request into a body, and the events of a stream into chunks. Whoever carries the
bytes knows nothing of either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.core.messages import LENGTHS, AssistantMessage, Chunk, Reasoning, Request, ToolCall
from holdfast.errors import BadReply

#: Options of OpenAI's chat that no other wire has a word for. There they would have the whole
#: request refused, and clients send them unasked.
CHAT_ALONE = frozenset({"seed", "presence_penalty", "frequency_penalty", "logit_bias"})

T = TypeVar("T")


class ServerEvent(NamedTuple):
    """One server-sent event. `kind` is "" where the server named none."""

    kind: str
    data: bytes


class Reader(Protocol):
    """One reply as it arrives; it keeps what has come so far."""

    #: All has been said; what may follow is book-keeping, and not worth a failure.
    complete: bool

    def words(self, data: Sequence[bytes]) -> tuple[str, int]:
        """What the first of these events without a name say, as far as they say words and nothing else,
        and how many those are. It may leave any of them to `read`, which takes longer."""
        ...

    def read(self, event: ServerEvent) -> Sequence[Chunk]:
        """What this event says, nothing if it is not for us. Raises ModelError for a failure in it.

        May end with Done, and then nothing more is read.
        """
        ...

    def end(self) -> Sequence[Chunk]:
        """The stream is over: Done if the reply is `complete`. Raises BadReply, truncated."""
        ...

    def whole(self, body: bytes) -> Sequence[Chunk]:
        """A reply that came in one piece, Done last. Raises ModelError as `read` does."""
        ...


class Wire(Protocol):
    """`path` is what follows the base URL."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def headers(self, key: str) -> dict[str, str]:
        """What the protocol wants beside the content type. Without a key there is none to show."""
        ...

    def body(self, request: Request, *, model: str, stream: bool, origin: str = "") -> bytes:
        """`model` is the endpoint's own name for it, `origin` is its base URL.

        Raises ModelRefused for what it cannot say.
        """
        ...

    def reader(self) -> Reader: ...


def longest(options: Mapping[str, object]) -> tuple[str, int] | None:
    """How long a reply may be, and what that was called."""
    for name in LENGTHS:
        if isinstance(most := options.get(name), int):
            return name, most
    return None


def in_order(
    message: AssistantMessage, wire: str, origin: str
) -> Iterator[str | Reasoning | ToolCall]:
    """What a model said, thought and asked for, as it came in; of thoughts, those it can take back.

    A seal that another endpoint made, or one that has been moved, is refused.
    """
    said = asked = 0
    for thought in message.reasoning:
        if not thought.seal or thought.wire != wire or thought.origin not in ("", origin):
            continue
        until, first = max(said, thought.said), max(asked, thought.before)
        yield message.text[said:until]
        yield from message.calls[asked:first]
        yield thought
        said, asked = until, first
    yield message.text[said:]
    yield from message.calls[asked:]


def parse(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """One JSON value from a model. Raises BadReply.

    Bytes that are no UTF-8 become replacement characters, and half a character that was
    spelled as an escape is kept, for the other half may be in the next event.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            value = json.loads(data.decode("utf-8", "replace"))
            return msgspec.convert(value, decoder.type)
        except (ValueError, RecursionError) as error:
            raise BadReply(f"the model sent what is not what its wire speaks: {error}") from error
    except RecursionError as error:
        raise BadReply("the model sent something nested too deeply") from error
