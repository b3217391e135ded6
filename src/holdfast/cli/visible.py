"""Text from models and tools, made fit for a terminal.

A terminal obeys what it is sent: it can be told to hide text, to show it in another order, or to
type for its user. Nothing but letters, spaces, tabs and line breaks gets through unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from typing import IO

#: Control characters but for tab and line feed, separators that some terminals take for line
#: breaks, and everything that changes the direction of writing.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Letters and symbols, by their class, that show as nothing.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_NOT_PLAIN = re.compile("[^\n\x20-\x7e]")


def visible(text: str, *, exact: bool = False) -> str:
    """The text with harmful characters spelled out: an escape is shown as \\x1b.

    `exact` is for what somebody is asked to agree to. It spells out all that does not show as
    itself, on its own and in its place: odd spaces, joiners, marks that stack upon their
    neighbour, invisible and unassigned characters, and letters written from right to left.
    """
    if exact:
        return _NOT_PLAIN.sub(lambda found: _exact(found[0]), text)
    return _HARMFUL.sub(lambda found: _spell(found[0]), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text, visible, on one line: so that it cannot pass for several."""
    return " ".join(visible(text).split())


def visible_json(line: bytes, file: IO[bytes]) -> bytes:
    """A line of JSON for this file: at a terminal with harmful characters escaped, the same JSON."""
    if not file.isatty():
        return line
    text = line.decode(errors="replace")
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _exact(character: str) -> str:
    odd = unicodedata.category(character)[0] in "CZM" or character in _BLANK
    backwards = unicodedata.bidirectional(character) in ("R", "AL", "AN")
    return _spell(character) if odd or backwards else character


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
