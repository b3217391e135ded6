"""The fields of a request to OpenAI: each of the right kind, or refused by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from holdfast.server.problems import malformed

Given: TypeAlias = Mapping[str, object]

_TRUTHS: Mapping[bool, tuple[object, ...]] = {
    True: (True, "true", "1", "yes", "on"),
    False: (None, False, "false", "0", "no", "off", ""),
}


def number(fields: Given, name: str, least: float, most: float) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    # A bool is an int to this language, and to nobody else.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise malformed(f"'{name}' must be a number, {least:g} to {most:g}", param=name)
    return value


def whole(fields: Given, name: str, least: int, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise malformed(f"'{name}' must be a whole number, {least} to {most}", param=name)
    return value


def truth(fields: Given, name: str) -> bool:
    """A flag that some clients send as a word or a number. False if it was left out."""
    value = fields.get(name)
    said = value.strip().lower() if isinstance(value, str) else value
    for meant, words in _TRUTHS.items():
        # 1 is True to this language.
        if said in words:
            return meant
    raise malformed(f"'{name}' must be true or false", param=name)


def table(fields: Given, name: str) -> dict[str, object] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise malformed(f"'{name}' must be an object", param=name)
    return value


def inside(fields: Given, name: str) -> Given:
    """The fields of that field, under their full names."""
    return {f"{name}.{inner}": value for inner, value in (table(fields, name) or {}).items()}


def one_of(fields: Given, name: str, *allowed: str) -> str:
    """ "" if it was left out."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or value not in allowed:
        raise malformed(f"'{name}' must be one of {', '.join(allowed)}", param=name)
    return value


def given(fields: Given, names: Iterable[str]) -> tuple[str, ...]:
    """Those that say something."""
    return tuple(name for name in names if fields.get(name) not in (None, [], {}))
