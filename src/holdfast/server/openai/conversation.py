"""What was said, from a list of messages in which anything may stand anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.core.messages import Message, Part
from holdfast.server.content import (
    MOST_MESSAGES,
    Instruction,
    few,
    read_earlier,
    read_input,
)
from holdfast.server.problems import Problem, malformed

#: Kinds of things in a list that whoever sent it is told about, if they were passed over.
MOST_NAMED = 20

_PLAIN = re.compile(r"[a-z_]{1,40}", re.ASCII)

#: These speak, in turns. Whoever else there is gives instructions, or answers a call.
_SPEAKERS = ("user", "assistant")
_ROLES = (*_SPEAKERS, "system", "developer", "tool", "function")


class Spoken(NamedTuple):
    """The last thing a person said, what was said before, and what stood there as instructions.

    `passed_over` is what else stood there: calls of tools that are not ours, and what came of them.
    """

    parts: tuple[Part, ...]
    history: tuple[Message, ...]
    told: tuple[Instruction, ...]
    passed_over: tuple[str, ...] = ()


def read_conversation(value: object, name: str, blobs: dict[str, bytes]) -> Spoken:
    """`name` is what the field is called. Raises Problem."""
    try:
        return _read(value, blobs)._replace(passed_over=_passed_over(value, name))
    except Problem as problem:
        complaint = problem.complaint
        raise malformed(
            complaint.message.replace("input", name),
            param=complaint.param and complaint.param.replace("input", name),
            code=complaint.code,
        ) from problem


def _read(value: object, blobs: dict[str, bytes]) -> Spoken:
    """Here it is called input, as where it is shared with other wires."""
    if isinstance(value, str) or not value:
        return Spoken(read_input(value, blobs)[0], (), ())
    if not isinstance(value, list):
        raise malformed("'input' must be an array of messages", param="input")
    items = [_item(item, place) for place, item in enumerate(few(value, "input", MOST_MESSAGES))]
    last = _last(items)
    parts, _ = read_input(items[: last + 1], blobs)
    # Its place stays, so that what is wrong with another is told by the right number.
    items[last] = {}
    before = read_earlier(items, blobs)
    return Spoken(parts, before.messages, before.told)


def _passed_over(value: object, name: str) -> tuple[str, ...]:
    found = dict[str, None]()
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            found |= dict.fromkeys(_odd(item))
    return tuple(f"{name}.{what}" for what in found)[:MOST_NAMED]


def _odd(item: dict[str, object]) -> Iterator[str]:
    """What of it nobody here has a use for. A name goes into a header, so it has to be a plain one."""
    kind = item.get("type")
    if _role(item) in ("tool", "function"):
        yield _role(item)
    elif item.get("role") is not None:
        yield from ("tool_calls",) if item.get("tool_calls") else ()
    elif isinstance(kind, str) and _PLAIN.fullmatch(kind):
        yield kind


def _last(items: list[dict[str, object]]) -> int:
    """The place of what is asked."""
    spoken = [n for n, item in enumerate(items) if _role(item) == "user" or _speaks(item)]
    if not any(_speaks(items[n]) for n in spoken):
        raise malformed("No user message found in input", param="input")
    last = spoken[-1]
    if _role(items[last]) != "user":
        raise malformed("the last message in input must be a user's", param=f"input[{last}].role")
    if not _speaks(items[last]):
        raise malformed("the last message in input is empty", param=f"input[{last}].content")
    return last


def _item(item: object, place: int) -> dict[str, object]:
    if isinstance(item, str):
        return {"role": "user", "content": item}
    if not isinstance(item, dict):
        raise malformed(f"input[{place}] must be a message", param=f"input[{place}]")
    if item.get("type", "message") == "message" and not isinstance(item.get("role"), str):
        raise malformed(f"input[{place}].role must be a string", param=f"input[{place}].role")
    # What nobody here can be said to have said would be missed, and not noticed.
    if item.get("role") is not None and _role(item) not in _ROLES:
        raise malformed(
            f"input[{place}].role must be one of {', '.join(_ROLES)}", param=f"input[{place}].role"
        )
    return item


def _speaks(item: dict[str, object]) -> bool:
    """A message with something in it. One that only calls tools says nothing here."""
    content = item.get("content")
    if isinstance(content, list):
        # A text that says nothing is nothing; whatever else is no text is looked at later.
        content = [part for part in content if part != "" and _text(part) != ""]
    return _role(item) in _SPEAKERS and content not in (None, "", [])


def _text(part: object) -> object:
    return part.get("text") if isinstance(part, dict) else None


def _role(item: dict[str, object]) -> str:
    return str(item.get("role")).strip().lower()
