"""Events to bytes and back.

Encoding happens once, when an event is recorded. Decoding knows every shape that was ever
written: an event of an unknown tag is kept as such, for a newer version to understand.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from math import isfinite
from typing import Any

import msgspec

from holdfast.core.events import Event, ReasoningStreamed, Recorded, TextStreamed, Unknown
from holdfast.core.messages import BlobRef, Message, lone, pictures
from holdfast.core.session import Noted, SessionEvent
from holdfast.errors import InvalidRequest, StoreError

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(Event)
_notes = msgspec.json.Decoder(SessionEvent)
_messages = msgspec.json.Decoder(tuple[Message, ...])


class Link(msgspec.Struct, frozen=True):
    """One message of a conversation that came with a run, as a blob that names the one before it.

    `pictures` are the names of the blobs in the message.
    """

    name: str
    body: bytes
    pictures: tuple[str, ...] = ()


class _Linked(msgspec.Struct, frozen=True):
    """The bytes of a link. They name the one before, so the last name stands for all of them."""

    before: BlobRef | None
    message: Message


class _Before(msgspec.Struct):
    before: BlobRef | None


class _Tag(msgspec.Struct):
    type: str


def _number(text: str) -> int | float:
    """1 for 1.0: equal numbers are equal, however they are written."""
    value = float(text)
    return int(value) if value.is_integer() else value


class _Schema(msgspec.Struct):
    """What a tool takes, as far as it matters here."""

    properties: dict[str, Any] = {}


_tags = msgspec.json.Decoder(_Tag)
_links = msgspec.json.Decoder(_Linked)
_befores = msgspec.json.Decoder(_Before)
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


def link_messages(messages: Iterable[Message]) -> tuple[Link, ...]:
    """A conversation as blobs, a message each. One that goes on from another begins with its links."""
    links: list[Link] = []
    before: BlobRef | None = None
    for message in messages:
        body = _encode(_Linked(before, message))
        links.append(_link(body, message))
        before = BlobRef(sha256=links[-1].name, size=len(body))
    return tuple(links)


def read_link(body: bytes) -> Link | None:
    """The link in these bytes, or None: a conversation was one blob once. Raises StoreError."""
    if _is_whole(body):
        return None
    return _link(body, _read(_links, body).message)


def link_before(body: bytes) -> str:
    """The name of the link before this one, or "" if it is the first. Raises StoreError."""
    before = None if _is_whole(body) else _read(_befores, body).before
    return before.sha256 if before else ""


def decode_history(bodies: Iterable[bytes]) -> tuple[Message, ...]:
    """The conversation in these blobs, in order. Raises StoreError."""
    messages: list[Message] = []
    for body in bodies:
        if _is_whole(body):
            messages += _read(_messages, body)
        else:
            messages.append(_read(_links, body).message)
    return tuple(messages)


def _link(body: bytes, message: Message) -> Link:
    shown = tuple(ref.sha256 for ref in pictures((message,)))
    return Link(sha256(body).hexdigest(), body, shown)


def _is_whole(body: bytes) -> bool:
    """An array of messages, as a conversation was kept before it was a chain."""
    return body.startswith(b"[")


def _read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except _DAMAGE as error:
        raise StoreError(f"a stored conversation cannot be read: {error}") from error


def canonical(arguments: str, schema: str = "") -> str:
    """One spelling for equal arguments; anything that is no JSON stands for itself.

    With a `schema` those that were not given are what it says they are then.
    """
    try:
        value: Any = _arguments.decode(arguments)
        if schema and isinstance(value, dict):
            value = {**_defaults(schema), **value}
        return msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments


def _defaults(schema: str) -> dict[str, Any]:
    try:
        whole = msgspec.convert(_arguments.decode(schema), _Schema)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    fields = whole.properties.items()
    return {
        n: field["default"] for n, field in fields if isinstance(field, dict) and "default" in field
    }


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
