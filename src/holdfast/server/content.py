"""What was said, as clients of this wire write it: texts, parts, pictures and whole conversations.

Other wires of ours are written the same way, so nothing here knows what a run is.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.messages import (
    AssistantMessage,
    BlobRef,
    Image,
    Message,
    Part,
    Text,
    UserMessage,
    plain,
)
from holdfast.server.problems import malformed

T = TypeVar("T")

#: Characters of one message, of an address, and of what says which kind of picture follows.
LONGEST_INPUT = 1_000_000
LONGEST_ADDRESS = 8192
LONGEST_HEAD = 256
#: Bytes.
LARGEST_IMAGE = 10_000_000
MOST_MESSAGES = 10_000
MOST_PARTS = 1000

_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")
#: How closely to look at a picture, where it is not left to the model.
_DETAILS = ("low", "high", "original")

_ADDRESS = re.compile(r"https?://[^\s/?#]\S*", re.IGNORECASE)
_DATA = re.compile(r"data:(image/[\w.+-]+)(?:;[^;,]+)*;base64", re.IGNORECASE | re.ASCII)
#: Half the world says jpg, and some models insist on the registered name.
_REGISTERED = {"image/jpg": "image/jpeg"}


class Instruction(Struct, frozen=True):
    """A message of a system or a developer, who do not take turns."""

    role: str
    text: str


class Conversation(NamedTuple):
    """What was said before. `told` are the instructions that stood among it."""

    messages: tuple[Message, ...] = ()
    told: tuple[Instruction, ...] = ()


def read_input(value: object, blobs: dict[str, bytes]) -> tuple[tuple[Part, ...], list[object]]:
    """What to do, and what came before it in the same list."""
    if not value:
        raise malformed("Missing 'input' field", param="input")
    earlier, last, name = list[object](), value, "input"
    if isinstance(value, list):
        *earlier, last = few(value, "input", MOST_MESSAGES)
        name = f"input[{len(earlier)}].content"
        last = last.get("content") if isinstance(last, dict) else None
    parts = read_parts(last, name, blobs) if isinstance(last, str | list) else ()
    if not parts:
        raise malformed("No user message found in input", param="input")
    return parts, earlier


def read_history(value: object, blobs: dict[str, bytes]) -> Conversation:
    name = "conversation_history"
    if not isinstance(value, list):
        raise malformed(f"'{name}' must be an array of message objects", param=name)
    for place, item in enumerate(few(value, name, MOST_MESSAGES)):
        if not isinstance(item, dict) or not {"role", "content"} <= item.keys():
            where = f"{name}[{place}]"
            raise malformed(f"{where} must have 'role' and 'content' fields", param=where)
    return _conversation(value, name, blobs)


def read_earlier(items: Sequence[object], blobs: dict[str, bytes]) -> Conversation:
    """All but the last of an input, which may hold other things than messages: they are skipped."""
    spoken = (
        {"role": "user", "content": item} if isinstance(item, str) else item for item in items
    )
    return _conversation(
        [item if isinstance(item, dict) else {} for item in spoken], "input", blobs
    )


def _conversation(
    items: Iterable[Mapping[str, object]], name: str, blobs: dict[str, bytes]
) -> Conversation:
    """Messages of tools are left out: without the calls they answer, no model takes them."""
    messages, told = list[Message](), list[Instruction]()
    for place, item in enumerate(items):
        content, where = item.get("content"), f"{name}[{place}].content"
        match str(item.get("role")).strip().lower():
            case "user":
                messages.append(UserMessage(read_parts(content, where, blobs)))
            case "assistant":
                messages.append(AssistantMessage(_spelled(content, where)))
            case "system" | "developer" as role:
                told.append(Instruction(role, _spelled(content, where)))
    empty = (UserMessage(()), AssistantMessage())
    return Conversation(
        tuple(one for one in messages if one not in empty),
        tuple(one for one in told if one.text),
    )


def read_parts(content: object, name: str, blobs: dict[str, bytes]) -> tuple[Part, ...]:
    """What a person said. What is empty is left out."""
    if not isinstance(content, list):
        text = _spelled(content, name)
        return (Text(text),) if text else ()
    items = enumerate(few(content, name, MOST_PARTS))
    parts = tuple(_part(item, f"{name}[{place}]", blobs) for place, item in items)
    short(plain(parts), name, LONGEST_INPUT)
    return tuple(part for part in parts if part != Text(""))


def _spelled(content: object, name: str) -> str:
    """Its words. What is neither text nor parts is taken as it was written."""
    match content:
        case None:
            text = ""
        case str():
            text = content
        case list():
            text = "\n".join(word for item in content for word in _words(item))
        case _:
            text = msgspec.json.encode(content).decode()
    return short(text, name, LONGEST_INPUT)


def _words(item: object) -> Iterator[str]:
    match item:
        case str(text) | {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            yield text


def _part(value: object, name: str, blobs: dict[str, bytes]) -> Part:
    if isinstance(value, str):
        return Text(value)
    if not isinstance(value, dict):
        raise malformed(f"{name} must be a part", param=name, code="invalid_content_part")
    if value.get("type") in _PICTURES:
        address = value.get("image_url")
        told = address if isinstance(address, dict) else {**value, "url": address}
        picture, detail = _image(told.get("url"), name, blobs), told.get("detail")
        return replace(picture, detail=detail) if detail in _DETAILS else picture
    if value.get("type") not in _TEXTS:
        raise malformed(
            f"{name} must be text or an image", param=name, code="unsupported_content_type"
        )
    if not isinstance(text := value.get("text"), str):
        raise malformed(f"{name} has no text", param=name, code="invalid_content_part")
    return Text(text)


def _image(address: object, name: str, blobs: dict[str, bytes]) -> Image:
    """Bytes that came with the request go to the blobs; an address stays one."""
    if isinstance(address, str):
        if _is_address(address):
            return Image(url=address)
        head, _, data = address.partition(",")
        kind = _DATA.fullmatch(head) if len(head) <= LONGEST_HEAD else None
        picture = _decoded(data) if kind else b""
        if kind and 0 < len(picture) <= LARGEST_IMAGE:
            ref = BlobRef(sha256(picture).hexdigest(), len(picture))
            blobs[ref.sha256] = picture
            media_type = kind[1].lower()
            return Image(_REGISTERED.get(media_type, media_type), ref)
    raise malformed(
        f"{name} must hold an http(s) URL, or data:image/...;base64 of at most"
        f" {LARGEST_IMAGE} bytes",
        param=name,
        code="invalid_image_url",
    )


def _is_address(text: str) -> bool:
    if len(text) > LONGEST_ADDRESS or not text.isprintable():
        return False
    return _ADDRESS.fullmatch(text) is not None


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError:
        return b""


def laid_over(own: str, told: Iterable[Instruction]) -> str:
    """Instructions, and those that stood among what was said."""
    return "\n\n".join(filter(None, (own, *(one.text for one in told))))


# --- limits ----------------------------------------------------------------------------


def short(text: str, name: str, most: int) -> str:
    if len(text) > most:
        raise malformed(
            f"'{name}' is longer than {most} characters", param=name, code="text_too_long"
        )
    return text


def few(items: list[T], name: str, most: int) -> list[T]:
    if len(items) > most:
        raise malformed(f"'{name}' has more than {most} items", param=name, code="list_too_long")
    return items
