"""A setting as it was written, and the sentence that refuses it.

Each setting keeps the name its writer knows it by, so that whatever is wrong with it can be said
in those words: `holdfast.toml: server.port is 70000; it must be ...`. Nothing that looks like a
key is repeated in a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from holdfast.errors import ConfigError

T = TypeVar("T")

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
#: Beginnings that makers of keys use, or letters and digits run together as chance does it.
_KEY = re.compile(
    r"\b(sk|pk|rk|xai|gsk|gh[pousr]|hf|xox[a-z])[-_]|\bAIza|\bAKIA|\bBearer\b"
    r"|(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{12,}"
)
_KEY_NAMES = frozenset(
    {"api_key", "apikey", "api_token", "authorization", "key", "password", "secret", "token"}
)
_LONGEST_SHOWN = 200
_LARGEST = 10**12
_DEEPEST = 20

SECONDS = "a number of seconds, 0 to switch it off"


class Setting(NamedTuple):
    """`name` is what its writer calls it: with its file, or a variable, or a flag."""

    name: str
    value: object

    def refuse(self, why: str) -> ConfigError:
        return ConfigError(f"{self.name} {why}")

    def wrong(self, must: str) -> ConfigError:
        return self.refuse(f"is {shown(self.value)}; it must be {must}")

    def text(self, must: str = "a text") -> str:
        if not isinstance(self.value, str):
            raise self.wrong(must)
        return self.value

    def word(self, must: str) -> str:
        """A text that says something and has no blanks around it."""
        text = self.text(must)
        if not text or text != text.strip() or not text.isprintable():
            raise self.wrong(must)
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def one_of(self, *choices: T) -> T:
        for choice in choices:
            # Not by equality alone, which takes 1.0 for 1.
            if self.value == choice and type(self.value) is type(choice):
                return choice
        raise self.wrong(f"one of {', '.join(str(choice) for choice in choices)}")

    def count(self, least: int = 0, most: int = _LARGEST, must: str = "") -> int:
        value = self.value
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(must or f"a whole number, {least} or more")
        return value

    def number(self, must: str) -> float:
        """0 or more. What is not a number is not even that."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(must)
        if not 0 <= value <= _LARGEST:
            raise self.wrong(must)
        return float(value)

    def seconds(self) -> float:
        return self.number(SECONDS)

    def each(self, what: str) -> list[Setting]:
        """The items of a list, with their places counted from 1."""
        if not isinstance(self.value, list):
            raise self.wrong(f"a list of {what}")
        return [Setting(f"{self.name}[{place}]", item) for place, item in enumerate(self.value, 1)]

    def words(self, what: str) -> tuple[str, ...]:
        return tuple(item.word("a text without blanks around it") for item in self.each(what))

    def json(self, depth: int = 0) -> object:
        """Anything that can be said in JSON."""
        match self.value:
            case dict() | list() if depth == _DEEPEST:
                raise self.refuse(f"is nested more than {_DEEPEST} deep")
            case dict() as table:
                return {key: self._inner(key, each).json(depth + 1) for key, each in table.items()}
            case list():
                return [item.json(depth + 1) for item in self.each("anything")]
            case bool() | str():
                return self.value
            case int() | float() as number if -(2**63) <= number < 2**63:
                return number
        raise self.wrong("something that JSON can say")

    def _inner(self, key: str, value: object) -> Setting:
        return Setting(f"{self.name}.{_name(key)}", value)


class Table:
    """One table of the file. Raises ConfigError when opened with a key that it does not have."""

    def __init__(self, setting: Setting, keys: str, *, instead_of_a_key: str = "") -> None:
        if not isinstance(setting.value, Mapping):
            raise setting.wrong("a table")
        self._name = setting.name
        self._values: Mapping[str, object] = setting.value
        known = keys.split()
        for key in self._values:
            if key not in known:
                raise self._unknown(key, known, instead_of_a_key)

    def has(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, default: object) -> Setting:
        return Setting(self._called(key), self._values.get(key, default))

    def need(self, key: str, must: str) -> Setting:
        if key not in self._values:
            raise ConfigError(f"{self._called(key)} is missing; it must be {must}")
        return self.get(key, None)

    def table(self, key: str, keys: str, *, instead_of_a_key: str = "") -> Table:
        return Table(self.get(key, {}), keys, instead_of_a_key=instead_of_a_key)

    def named(self, key: str) -> Iterator[tuple[str, Setting]]:
        """The tables of a table, under names that their writer chose."""
        tables = self.get(key, {})
        if not isinstance(tables.value, Mapping):
            raise tables.wrong("a table")
        for name, value in tables.value.items():
            yield name, Setting(f"{tables.name}.{_name(name)}", value)

    def _called(self, key: str) -> str:
        # The file's own table has nothing but the file before its names.
        return f"{self._name}{'' if self._name.endswith(' ') else '.'}{_name(key)}"

    def _unknown(self, key: str, known: Sequence[str], instead_of_a_key: str) -> ConfigError:
        name = self._called(key)
        if instead_of_a_key and key.lower().replace("-", "_") in _KEY_NAMES:
            return ConfigError(f"{name} is set; a key never stands in the file: {instead_of_a_key}")
        # Takes longer to load than to use, and is seldom used.
        from difflib import get_close_matches

        near = get_close_matches(key.lower().replace("-", "_"), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the settings here are {', '.join(known)}"
        return ConfigError(f"{name} is not a setting; {hint}")


def chosen(flag: Setting, variable: str, environ: Mapping[str, str], file: Setting) -> Setting:
    """The flag if it is given, else the variable unless it is empty, else what the file has."""
    if flag.value is not None:
        return flag
    if value := environ.get(variable):
        return Setting(variable, value)
    return file


def spelled(text: str) -> object:
    """The number a text spells out, or the text itself."""
    plain = text.strip()
    if not _NUMBER.fullmatch(plain) or len(plain) > 30:
        return text
    return float(plain) if "." in plain else int(plain)


def shown(value: object) -> str:
    """A value as it stands in a file, unless it is long or nobody's business."""
    match value:
        case bool():
            return str(value).lower()
        case int() if abs(value) > _LARGEST:
            return "a very large number"
        case int() | float():
            return str(value)
        case str():
            return visible(json.dumps(value, ensure_ascii=False))
        case Mapping():
            return "a table"
        case Sequence():
            return "a list"
    return "a date or time"


def visible(text: str) -> str:
    """Text in one line that no terminal stumbles over."""
    if looks_like_a_key(text):
        return '"…"'
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "…"
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def looks_like_a_key(text: str) -> bool:
    # The folders of a path may well be named by chance.
    return "/" not in text and bool(_KEY.search(text))


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) and not looks_like_a_key(key) else shown(key)
