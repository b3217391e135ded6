"""JSON on one line, whoever counts the lines.

JSON spells out every sign that ends a line but three, at which some programs end one all the same.
"""

from __future__ import annotations

import msgspec

_ENCODER = msgspec.json.Encoder()
_ENDS = tuple((sign.encode(), b"\\u%04x" % ord(sign)) for sign in "\u0085\u2028\u2029")


def one_line(value: object) -> bytes:
    line = _ENCODER.encode(value)
    if not line.isascii():
        for sign, spelled in _ENDS:
            line = line.replace(sign, spelled)
    return line
