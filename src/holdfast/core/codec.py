"""Events to bytes and back.

Encoding happens once, when an event is recorded. Decoding knows every shape that was ever
written: an event of an unknown tag is kept as such, for a newer version to understand.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from holdfast.core.events import Event, Recorded, Unknown
from holdfast.core.messages import Message, lone
from holdfast.errors import InvalidRequest, StoreError

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)  # type: ignore[var-annotated]
_messages = msgspec.json.Decoder(tuple[Message, ...])


class _Tag(msgspec.Struct):
    type: str


_tags = msgspec.json.Decoder(_Tag)
_TAGS = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


def encode(event: Event) -> bytes:
    """The bytes to store. Raises InvalidRequest for text that no reader could be given back."""
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError as error:
        raise InvalidRequest(_explain(error)) from None


def decode(body: bytes) -> Event | Unknown:
    """The event in these bytes. Raises StoreError if they are damaged."""
    try:
        return _events.decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        unknown = _unknown(body)
        if unknown is None:
            raise StoreError(f"a stored event cannot be read: {error}") from error
        return unknown


def record(seq: int, at: float, event: Event) -> Recorded:
    """The event in its place, with the bytes that will stand there."""
    return Recorded(seq, at, event, encode(event))


def recall(seq: int, at: float, body: bytes) -> Recorded:
    """What was recorded, from the bytes that stand there."""
    return Recorded(seq, at, decode(body), body)


def encode_messages(messages: tuple[Message, ...]) -> bytes:
    """A conversation as a blob."""
    try:
        return _encoder.encode(messages)
    except UnicodeEncodeError as error:
        raise InvalidRequest(_explain(error)) from None


def decode_messages(body: bytes) -> tuple[Message, ...]:
    try:
        return _messages.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"a stored conversation cannot be read: {error}") from error


def canonical(arguments: str) -> str:
    """One spelling for equal arguments; anything that is no JSON stands for itself."""
    try:
        value: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments
    return msgspec.json.encode(value, order="sorted").decode()


def _unknown(body: bytes) -> Unknown | None:
    try:
        tag = _tags.decode(body).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if tag in _TAGS else Unknown(tag)


def _explain(error: UnicodeEncodeError) -> str:
    half = error.object[error.start]
    where = lone(error.object)
    return f"the text holds half a character (U+{ord(half):04X} at {where}), which cannot be stored"
