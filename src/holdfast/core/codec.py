"""Events to bytes and back.

Encoding happens once, when an event is recorded. Decoding knows every shape that was ever
written: an event of an unknown tag is kept as such, for a newer version to understand.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from holdfast.core.events import Event, ReasoningStreamed, Recorded, TextStreamed, Unknown
from holdfast.core.messages import Message, lone
from holdfast.core.session import Noted, SessionEvent
from holdfast.errors import InvalidRequest, StoreError

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)
_notes = msgspec.json.Decoder(SessionEvent)
_messages = msgspec.json.Decoder(tuple[Message, ...])


class _Tag(msgspec.Struct):
    type: str


def _number(text: str) -> int | float:
    """1 for 1.0: equal numbers are equal, however they are written."""
    value = float(text)
    return int(value) if value.is_integer() else value


_tags = msgspec.json.Decoder(_Tag)
_arguments = msgspec.json.Decoder(float_hook=_number)
_WORDS = (TextStreamed, ReasoningStreamed)
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(event: Event) -> bytes:
    """The bytes to store. Raises InvalidRequest for what no reader could be given back."""
    body = _encode(event)
    if type(event) in _WORDS:
        # Most of what is ever written, and nothing in them could be read back as anything else.
        return body
    try:
        same = _events.decode(body) == event
    except _DAMAGE as error:
        _check_numbers(event)
        raise InvalidRequest(f"it could not be read back: {error}") from error
    if not same:
        _check_numbers(event)
    return body


def decode(body: bytes) -> Event | Unknown:
    """The event in these bytes. Raises StoreError if they are no event at all.

    One that does not fit is a newer version's, be its tag known or not: damage is for the
    store's checksums to find.
    """
    try:
        try:
            return _events.decode(body)  # type: ignore[no-any-return]
        except msgspec.ValidationError:
            return Unknown(_tags.decode(body).type)
    except _DAMAGE as error:
        raise StoreError(f"a stored event cannot be read: {error}") from error


def record(seq: int, at: float, event: Event) -> Recorded:
    """The event in its place, with the bytes that will stand there."""
    return Recorded(seq, at, event, encode(event))


def recall(seq: int, at: float, body: bytes) -> Recorded:
    """What was recorded, from the bytes that stand there."""
    return Recorded(seq, at, decode(body), body)


def note(seq: int, at: float, event: SessionEvent) -> Noted:
    """The event of a session in its place. Raises InvalidRequest for what could not be read back."""
    return Noted(seq, at, event, _encode(event))


def recall_note(seq: int, at: float, body: bytes) -> Noted:
    """As `recall`, for a session."""
    try:
        try:
            return Noted(seq, at, _notes.decode(body), body)
        except msgspec.ValidationError:
            return Noted(seq, at, Unknown(_tags.decode(body).type), body)
    except _DAMAGE as error:
        raise StoreError(f"a stored event cannot be read: {error}") from error


def encode_messages(messages: tuple[Message, ...]) -> bytes:
    """A conversation as a blob."""
    return _encode(messages)


def decode_messages(body: bytes) -> tuple[Message, ...]:
    try:
        return _messages.decode(body)
    except _DAMAGE as error:
        raise StoreError(f"a stored conversation cannot be read: {error}") from error


def canonical(arguments: str) -> str:
    """One spelling for equal arguments; anything that is no JSON stands for itself."""
    try:
        value: Any = _arguments.decode(arguments)
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments


def _encode(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidRequest(_explain(error)) from None
    except RecursionError:
        raise InvalidRequest("it is nested too deeply to be stored") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"it cannot be stored: {error}") from error


def _check_numbers(event: Event) -> None:
    """One that is not finite becomes null, which no reader takes for a number."""
    if not _finite(msgspec.to_builtins(event)):
        raise InvalidRequest("a number in it is infinite or none at all, which cannot be stored")


def _finite(value: Any) -> bool:
    match value:
        case float():
            return isfinite(value)
        case dict():
            return all(_finite(part) for part in value.values())
        case list() | tuple():
            return all(_finite(part) for part in value)
        case _:
            return True


def _explain(error: UnicodeEncodeError) -> str:
    half = error.object[error.start]
    where = lone(error.object)
    return f"the text holds half a character (U+{ord(half):04X} at {where}), which cannot be stored"
