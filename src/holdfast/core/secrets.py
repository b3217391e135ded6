"""Secrets that we hold, and text without them.

They are known by their exact value, as it is and as it is spelled in JSON, in addresses and in base64.
Text that arrives in pieces is shown as far as it cannot be
the beginning of one; the rest is held back until more has come, so that what is shown is the same
however the text was cut.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from string import ascii_letters, digits
from types import MappingProxyType
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import Choice, Outcome
from holdfast.core.messages import Gate, Reasoning
from holdfast.errors import InvalidRequest

T = TypeVar("T")

MASK = "[secret]"

#: Characters of the shortest that is worth hiding.
SHORTEST = 8

#: What stands in every address as it is; and what else some leave so: the strict nothing, others
#: what parts a path, what scripts of pages and Go's paths leave, and what may be part of an address.
_PLAIN = f"{ascii_letters}{digits}-._~"
_LEFT = ("", "/", "!'()*", "$&+=:@", "/?:@!$'()*,;", "/?:@!$'()*,;&=+#")

#: Characters by which a text is seen to be no beginning of a secret.
_SIGN = 4

#: Words by which the journal says what happened. None is a secret, whatever a variable may hold.
_OURS = (*get_args(Outcome), *get_args(Choice), *get_args(Gate))


class Secrets:
    """`known`: names that everyone may see. A value that is part of one is no secret, or nothing
    could be found by that name any more."""

    __slots__ = ("_begins", "_longest", "_recorded", "_spellings", "_whole")

    def __init__(self, values: Iterable[str] = (), *, known: Iterable[str] = ()) -> None:
        names = (*_OURS, *known)
        hidden = (value for value in values if not any(value in name for name in names))
        found = {each for value in hidden if len(value) >= SHORTEST for each in spellings(value)}
        # The longest first: a spelling may hold another.
        self._spellings = tuple(sorted(found, key=lambda spelling: (-len(spelling), spelling)))
        self._longest = len(self._spellings[0]) if found else 0
        self._recorded = tuple(map(_recorded, self._spellings))
        self._whole = re.compile("|".join(map(re.escape, self._spellings)))
        self._begins = re.compile(_beginning(self._spellings))

    def __bool__(self) -> bool:
        return bool(self._spellings)

    def found(self, text: str) -> bool:
        return _holds(text, self._spellings)

    def found_in(self, raw: bytes) -> bool:
        """Whether there is one in bytes that may be anything."""
        return any(spelling.encode("utf-8", "surrogatepass") in raw for spelling in self._spellings)

    def mask(self, text: str) -> str:
        """The text without them; the very same if there is none in it."""
        return self._whole.sub(MASK, text) if self.found(text) else text

    def held(self, text: str, *, start: int = 0) -> int:
        """How many characters at the end, past `start`, may turn out to begin a secret."""
        if not self._spellings:
            return 0
        start = max(start, len(text) - self._longest + 1)
        while begins := self._begins.search(text, start):
            start = begins.start()
            rest = text[start:]
            for spelling in self._spellings:
                if spelling.startswith(rest) and spelling != rest:
                    return len(rest)
            start += 1
        return 0

    def part(self, text: str) -> tuple[str, str]:
        """Of a text that goes on: what can be shown of it, masked, and the rest, to be held back."""
        begins = self._begins.search(text) if self._spellings else None
        if begins is None:
            return text, ""
        shown, done, start = "", 0, begins.start()
        while True:
            end = len(text) - self.held(text, start=start)
            whole = self._whole.search(text, start)
            if whole is None or whole.start() >= end:
                return shown + text[done:end], text[end:]
            shown += text[done : whole.start()] + MASK
            done = start = whole.end()

    def rest(self, held: str, *, cut: bool = False) -> str:
        """What was held back, when no more comes. `cut`: more was to come, so it may be most of a
        secret."""
        return MASK if cut and len(held) >= SHORTEST else self.mask(held)

    def mask_cut(self, text: str) -> str:
        """The text without them, and without what a cut has left of one at its end."""
        shown, held = self.part(text)
        return shown + self.rest(held, cut=True)

    def mask_event(self, event: T) -> T:
        """An event, or whatever else is made of text; the very same if there is none in it.

        Raises InvalidRequest for what is nested too deeply to be looked through.
        """
        if not self._spellings or self._clearly_without(event):
            return event
        try:
            return self._walk(event)  # type: ignore[no-any-return]
        except RecursionError:
            raise InvalidRequest("it is nested too deeply to be stored") from None

    def _clearly_without(self, event: object) -> bool:
        """All of it at once, as it would be recorded."""
        try:
            record = msgspec.json.encode(event).decode()
        except (TypeError, ValueError, RecursionError, OverflowError):
            return False
        return not _holds(record, self._recorded)

    def _walk(self, value: Any) -> Any:
        match value:
            case str():
                return self.mask(value)
            case Struct():
                return self._walk_fields(value)
            case tuple() | list():
                parts = [self._walk(part) for part in value]
                return type(value)(parts) if _differ(parts, value) else value
            case dict() | MappingProxyType():
                keys, values = map(self._walk, value), map(self._walk, value.values())
                masked = dict(zip(keys, values, strict=True))
                same = not _differ(masked, value) and not _differ(masked.values(), value.values())
                return value if same else masked
            case _:
                return value

    def _walk_fields(self, value: Struct) -> Struct:
        changed: dict[str, Any] = {}
        for field in value.__struct_fields__:
            part = getattr(value, field)
            masked = self._walk(part)
            if masked is not part:
                changed[field] = masked
        if changed and isinstance(value, Reasoning):
            # The seal vouches for what is not there any more.
            changed["seal"] = ""
        return replace(value, **changed) if changed else value


def spellings(secret: str) -> set[str]:
    """As it is, in an address, and in base64; each as it stands in JSON, too."""
    quoted = [_in_address(secret, _PLAIN + left) for left in _LEFT]
    written = [secret, *quoted, quoted[0].replace("%20", "+"), *map(_lower, quoted)]
    # What little is left of a short one may be part of anything.
    written += (part for part in _in_base64(secret) if len(part) >= SHORTEST)
    return set().union(*map(_in_json, written))


def _in_address(secret: str, plain: str) -> str:
    """With every byte spelled out that may mean something there."""
    raw = secret.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if chr(byte) in plain else f"%{byte:02X}" for byte in raw)


def _lower(quoted: str) -> str:
    return re.sub("%..", lambda byte: byte[0].lower(), quoted)


def _in_base64(secret: str) -> Iterator[str]:
    """What is the same of it whatever stands before and after it."""
    raw = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        # Of a sign that is made of a neighbour's bits as well, nobody can say which it is.
        start, end = (8 * before + 5) // 6, 8 * (before + len(raw)) // 6
        for spelled in (b64encode, urlsafe_b64encode):
            yield spelled(bytes(before) + raw).decode()[start:end]


def _in_json(text: str) -> set[str]:
    """As it is, as it stands in JSON, and as it stands in JSON that stands in JSON."""
    once = {text, *_spelled_out(text)}
    return once.union(*map(_quoted, once))


def _holds(text: str, spellings: Iterable[str]) -> bool:
    for spelling in spellings:  # noqa: SIM110 - half the time of any()
        if spelling in text:
            return True
    return False


def _recorded(spelling: str) -> str:
    """As it stands in an event. Half a character stands in none."""
    whole = spelling.encode("utf-8", "ignore").decode()
    return msgspec.json.encode(whole).decode()[1:-1]


def _quoted(text: str) -> set[str]:
    return {json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}


def _spelled_out(text: str) -> Iterator[str]:
    """In JSON, with no more than has to be spelled out, and with what PHP, Go and .NET spell out."""
    for quoted in _quoted(text):
        yield quoted
        yield quoted.replace("/", r"\/")
        yield re.sub("[<>&]", lambda sign: f"\\u{ord(sign[0]):04x}", quoted)
        yield re.sub(r"\\\"|[<>&'+`]", lambda sign: f"\\u{ord(sign[0][-1]):04X}", quoted)


def _beginning(spellings: Iterable[str], length: int = _SIGN) -> str:
    """A pattern for how they begin: with so many characters, or fewer at the end of a text."""
    rests: dict[str, list[str]] = {}
    for spelling in spellings:
        rests.setdefault(spelling[0], []).append(spelling[1:])
    if length == 1:
        return "|".join(map(re.escape, rests))
    return "|".join(
        rf"{re.escape(first)}(?:{_beginning(rest, length - 1)}|\Z)" for first, rest in rests.items()
    )


def _differ(masked: Iterable[object], parts: Iterable[object]) -> bool:
    return any(one is not other for one, other in zip(masked, parts, strict=False))


NO_SECRETS = Secrets()
