"""The bodies of requests: JSON that is safe to look at, and the fields that many of them have.

Whatever could not be stored, or would take long to look at while others wait, is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import TypeGuard

import msgspec

from holdfast.core.luggage import TAKEN, is_session_id
from holdfast.server.content import short
from holdfast.server.problems import malformed

#: Characters.
LONGEST_NAME = 256
DEEPEST = 64
#: Far more than any request has, and few enough to be looked at while others wait.
MOST_TOKENS = 200_000

#: A text, or a sign that another value comes. A text that is never closed reaches to the end, so
#: that no byte is looked at twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def read_object(body: bytes) -> dict[str, object]:
    """Raises Problem, as everything here that reads."""
    try:
        value = decode(body)
    except (ValueError, RecursionError) as error:
        raise malformed("Invalid JSON") from error
    if not isinstance(value, dict):
        raise malformed("Invalid JSON: the body must be an object")
    _look_through(value)
    return value


def decode(body: bytes) -> object:
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


# --- fields ----------------------------------------------------------------------------


def only(fields: Mapping[str, object], known: Collection[str], *, code: str) -> None:
    """Refuse a field that means nothing here: whoever sent it meant something by it."""
    for name in fields:
        if name not in known:
            names = ", ".join(known)
            shown = name if is_name(name) else "that"
            raise malformed(f"there is no field {shown} here, only {names}", param=shown, code=code)


def string(fields: Mapping[str, object], name: str, *, code: str | None = None) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise malformed(f"'{name}' must be a string", param=name, code=code)
    return value or ""


def text(fields: Mapping[str, object], name: str) -> str:
    return short(string(fields, name), name, LONGEST_NAME)


def flag(fields: Mapping[str, object], name: str) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise malformed(f"'{name}' must be true or false", param=name)
    return value


def session_id(fields: Mapping[str, object], name: str = "session_id") -> str:
    """It may name a folder one day, so it cannot lead out of one."""
    value = fields.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not is_session_id(value):
        raise malformed(
            f"'{name}' must be 1 to {LONGEST_NAME} visible characters without /, \\ and .., and not"
            f" {TAKEN}",
            param=name,
            code="invalid_session_id",
        )
    return value


def message_id(fields: Mapping[str, object]) -> str:
    """What whoever sends a message calls it, to know it again."""
    value = fields.get("message_id")
    if value is None:
        return ""
    if not is_name(value):
        raise malformed(
            f"'message_id' must be 1 to {LONGEST_NAME} visible characters",
            param="message_id",
            code="invalid_message_id",
        )
    return value


def is_name(value: object) -> TypeGuard[str]:
    """Nothing in it is invisible, and what is at its ends can be seen."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return False
    return value.isprintable() and value == value.strip()


def count(value: str | None, name: str, *, usual: int, most: int, least: int = 1) -> int:
    """A number in an address."""
    if not value:
        return usual
    if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
        raise malformed(f"{name} must be a number from {least} to {most}", param=name)
    return int(value)
