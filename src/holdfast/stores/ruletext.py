"""The rules of a file as text: read, added to and cut from, with the rest left byte for byte.

It fails closed: what cannot be read with certainty allows nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from holdfast.core.messages import lone
from holdfast.core.state import Grant
from holdfast.errors import StoreError

MOST_RULES = 1000

_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*(?:rule|\"rule\"|'rule')[ \t]*\]\]", re.MULTILINE)
_ANY_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)

#: A line as we write it, and a comment. Where all are like that they can be read one by one.
_LINE = re.compile(
    r"""
    (?:(?P<nothing>[ \t]*(?:\#[^\x00-\x08\x0a-\x1f\x7f]*)?)
    |(?P<header>\[\[rule\]\])
    |(?P<name>[a-z]+)\ =\ (?:
        "(?P<text>[^"\\\x00-\x1f\x7f]*)"
        |'(?P<literal>[^'\x00-\x1f\x7f]*)'
        |(?P<escaped>"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*")
        |(?P<moment>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)
    ))(?:\n|\Z)
    """,
    re.VERBOSE | re.ASCII,
)

#: A key that ends in a list of words: how far it reaches, perhaps where, and the list.
_LISTED = re.compile(
    r"""\s*([a-z]+)(?:\s+in\s+("(?:[^"\\]|\\.)*"))?\s*(\[(?:\s*["'].*|.*\]))\s*""", re.DOTALL
)

_PREFACE = """\
# Standing answers: what agents may do here without asking again.
#
# Each [[rule]] is one. It allows the calls of `tool` that its `key` covers, in runs of `workspace`:
# always if `session` is "", otherwise in that session alone. `subject` is what was shown to whoever
# agreed; it is there to be read and decides nothing.
#
# "..." as the last word of a key's list means: and whatever follows.
#
# To revoke a rule, delete its table, or: holdfast rules revoke ID
# What is changed here counts from the next decision on. A rule with a mistake in it allows nothing.
"""

_Word = Annotated[str, Meta(min_length=1)]


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """A standing yes as it is listed. `session` is "" for always, `workspace` for runs without one."""

    id: Annotated[str, Meta(pattern=r"^rule_[0-9A-Za-z_-]{1,64}\Z")]
    tool: _Word
    key: _Word
    session: str
    workspace: Annotated[str, Meta(pattern=r"^(/|\Z)")]
    subject: str
    by: str
    granted: Annotated[datetime, Meta(tz=True)]

    @property
    def grant(self) -> Grant:
        return Grant(self.tool, self.key, "session" if self.session else "always", self.id)

    def same(self, other: Rule) -> bool:
        """It allows the same."""
        here, there = (self.workspace, self.session), (other.workspace, other.session)
        return here == there and (self.tool, self.key) == (other.tool, other.key)


@dataclass(frozen=True)
class Book:
    """The file as it was found. `problems` are sentences; with a `refusal` nothing in it counts."""

    text: str = ""
    rules: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    refusal: StoreError | None = None
    #: By workspace and session.
    grants: Mapping[tuple[str, str], tuple[Grant, ...]] = field(default_factory=dict)


def parse(text: str, path: Path) -> Book:
    """Raises StoreError if it can be read only as a whole, and cannot."""
    found = _load(text, path)
    tables = found.pop("rule", [])
    if not isinstance(tables, list):
        raise StoreError(f"{path}: rule must stand in double brackets, as in [[rule]]")
    if len(tables) > MOST_RULES:
        raise StoreError(f"{path} holds more than {MOST_RULES} rules; delete some")
    rules: dict[str, Rule] = {}
    bad: dict[int, str] = {}
    for number, table in enumerate(tables):
        try:
            rule = _rule(table)
        except msgspec.DecodeError as error:
            bad[number] = str(error)
            continue
        if rules.setdefault(rule.id, rule) is not rule:
            bad[number] = f"another rule has the id {rule.id}"
    headers = _headers(text) if bad else []
    problems = (
        *(f"{path}: {name} means nothing here; a rule begins with [[rule]]" for name in found),
        *(
            f"{path}, {_place(text, headers, number)}: {why}; this rule does not stand"
            for number, why in bad.items()
        ),
    )
    return Book(text, tuple(rules.values()), problems, None, _grants(rules.values()))


def _rule(table: object) -> Rule:
    """Raises msgspec.DecodeError for what is none."""
    rule = msgspec.convert(table, Rule)
    found = _LISTED.fullmatch(rule.key)
    if not found:
        return rule
    # People put blanks where we do not, and keys are compared to the byte.
    reach, place, words = found.groups()
    try:
        where = f" in {_spelled(place, str)}" if place else ""
        key = f"{reach}{where} {_spelled(words, list[str])}"
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(
            f"the list of words in its key is not JSON: {error}"
        ) from None
    return rule if key == rule.key else msgspec.structs.replace(rule, key=key)


def _spelled(json: str, kind: type[object]) -> str:
    return msgspec.json.encode(msgspec.json.decode(json, type=kind)).decode()


def _grants(rules: Iterable[Rule]) -> Mapping[tuple[str, str], tuple[Grant, ...]]:
    found: dict[tuple[str, str], list[Grant]] = {}
    for rule in rules:
        found.setdefault((rule.workspace, rule.session), []).append(rule.grant)
    return {place: tuple(grants) for place, grants in found.items()}


def _load(text: str, path: Path) -> dict[str, object]:
    quickly = _load_quickly(text)
    if quickly is not None:
        return quickly
    try:
        # Some editors begin a file with a mark that says it is UTF-8.
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        # It says at which line.
        raise StoreError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} holds something too large to be a rule") from error


def _load_quickly(text: str) -> dict[str, object] | None:
    """The same, if each line stands for itself: it is read again while everybody waits."""
    tables: list[dict[str, object]] = []
    end = 0
    # The end matches as well, so that nothing is passed over unseen.
    for line in _LINE.finditer(text):
        kind = line.lastgroup
        if line.start() != end:
            return None
        end = line.end()
        if kind == "header":
            tables.append({})
        elif kind != "nothing":
            name = line["name"]
            if not tables or name in tables[-1]:
                return None
            try:
                tables[-1][name] = _value(line, kind)
            except ValueError:
                return None
    return {"rule": tables} if tables else {}


def _value(line: re.Match[str], kind: str | None) -> object:
    if kind == "moment":
        return datetime.fromisoformat(line["moment"])
    if kind == "escaped":
        # All other marks mean the same in JSON, which is read much faster.
        odd = any(mark in line["escaped"] for mark in (r"\u", r"\U", r"\/"))
        return tomllib.loads(line[0])[line["name"]] if odd else msgspec.json.decode(line["escaped"])
    return line["text"] if kind == "text" else line["literal"]


def _headers(text: str) -> list[int]:
    """Where each [[rule]] begins. Not one is taken that stands in the middle of a text."""
    found: list[int] = []
    for match in islice(_HEADER.finditer(text), MOST_RULES):
        try:
            tomllib.loads(text[found[-1] if found else 0 : match.start()].removeprefix("\ufeff"))
        except (ValueError, RecursionError):
            continue
        found.append(match.start())
    return found


def _place(text: str, headers: Sequence[int], number: int) -> str:
    """Where to look for a rule: its line, if it has one of its own."""
    if number >= len(headers):
        return f"rule {number + 1}"
    line = text.count("\n", 0, headers[number]) + 1
    return f"line {line}"


def add(book: Book, rule: Rule, path: Path) -> str:
    """The text with this rule at its end. Raises StoreError if it would not be read as one."""
    before = book.text or _PREFACE
    gap = "\n" if before.endswith("\n") else "\n\n"
    text = f"{before}{gap}{_table(rule)}"
    if not _reads(text, (*book.rules, rule), book.problems):
        raise StoreError(f"a rule for {rule.tool} cannot be added to {path} as it is")
    return text


def cut(book: Book, rule: Rule, path: Path) -> str:
    """The text without this rule's table. Raises StoreError if it has none of its own."""
    text = _without(book.text, rule)
    rest = tuple(other for other in book.rules if other != rule)
    if not _reads(text, rest, book.problems):
        raise StoreError(
            f"{rule.id} cannot be told from the rest of {path}; delete it there by hand"
        )
    return text


def _reads(text: str, rules: tuple[Rule, ...], problems: Sequence[str]) -> bool:
    """This text says that and nothing else. What was wrong before may have moved."""
    try:
        book = parse(text, Path())
    except StoreError:
        return False
    return book.rules == rules and len(book.problems) == len(problems)


def _without(text: str, rule: Rule) -> str:
    for start in _headers(text):
        following = _ANY_HEADER.search(text, text.find("]]", start))
        lines = text[start : following.start() if following else None].split("\n")
        # What is said just above the next table is about that one.
        while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):
            lines.pop()
        table = "\n".join(lines) + "\n"
        if _is(table, rule):
            before = text[: start - 1] if text[:start].endswith("\n\n") else text[:start]
            return before + text[start + len(table) :]
    return text


def _is(table: str, rule: Rule) -> bool:
    try:
        return _rule(tomllib.loads(table)["rule"][0]) == rule
    except (ValueError, RecursionError):
        return False


def _table(rule: Rule) -> str:
    """By hand, since the standard library only reads TOML."""
    values = {**msgspec.structs.asdict(rule), "granted": None}
    lines = [f"{name} = {_quoted(text)}" for name, text in values.items() if text is not None]
    granted = rule.granted.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "\n".join(("[[rule]]", *lines, f"granted = {granted}", ""))


def _quoted(text: str) -> str:
    """As plain as it can be: in single quotes nothing has to be escaped."""
    if lone(text) is not None:
        raise StoreError("a rule cannot hold half a character")
    if text.isprintable() and "'" not in text and ('"' in text or "\\" in text):
        return f"'{text}'"
    return '"' + "".join(_escaped(sign) for sign in text) + '"'


def _escaped(sign: str) -> str:
    if sign in '"\\':
        return f"\\{sign}"
    if sign == "\n":
        return "\\n"
    # What cannot be seen could deceive whoever reads the file.
    return sign if sign.isprintable() else f"\\U{ord(sign):08x}"
