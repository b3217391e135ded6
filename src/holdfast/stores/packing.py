"""Many events in few bytes, and back to the very bytes they were.

Neighbours are alike: pieces of a reply differ in a few letters in the middle. So of each event only
that middle is written, and how much of the one before stands before and behind it. Side by side the
middles are the reply's own text again, which the whole reply that follows repeats. All of it is
compressed then, with the zlib that comes with Python.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

#: Bytes of the largest blob that is compressed while others wait, and of the smallest worth it.
LARGEST = 256 * 1024
SMALLEST = 256

#: Bytes from which a blob is tried by its beginning first, and how many of it: pictures do not shrink.
_TRIED = 16 * 1024
_SAMPLE = 4 * 1024

#: What is left of something that compresses well.
_WELL = 0.9

#: Neighbours of which no two would have a letter in common by accident all the way.
_NEAR = 4

#: Bytes of the numbers of an event: its time, what stands before, what stands behind, the middle.
_TIME, _LENGTH = 8, 4
_NUMBERS = _TIME + 3 * _LENGTH

_WRAP = 2**64


def pack(events: Sequence[tuple[float, bytes]], dictionary: bytes = b"") -> bytes:
    """The times and bodies of these events. `dictionary` is what they are likely to repeat."""
    bodies = [body for _, body in events]
    pairs = [*zip([b"", *bodies], bodies, strict=False)]
    fronts = _steady([_alike(one, other, "big") for one, other in pairs])
    rests = [(one[at:], other[at:]) for (one, other), at in zip(pairs, fronts, strict=True)]
    backs = _steady([_alike(one, other, "little") for one, other in rests])
    middles = [rest[: len(rest) - back] for (_, rest), back in zip(rests, backs, strict=True)]
    columns = (
        _planes(struct.pack(f">{len(events)}I", *column), _LENGTH)
        for column in (fronts, backs, [*map(len, middles)])
    )
    times = _write_times(at for at, _ in events)
    return _deflate(b"".join((times, *columns, *middles)), dictionary)


def unpack(packed: bytes, count: int, dictionary: bytes = b"") -> list[tuple[float, bytes]]:
    """The times and bodies of so many events. Raises ValueError if that is not what it is."""
    plain = _inflate(packed, dictionary)
    if count < 1 or len(plain) < count * _NUMBERS:
        raise ValueError("it is too short")
    times = _read_times(plain[: count * _TIME])
    rest = count * _TIME
    columns = []
    for _ in range(3):
        column = _lines(plain[rest : rest + count * _LENGTH], _LENGTH)
        columns.append(struct.unpack(f">{count}I", column))
        rest += count * _LENGTH
    before, events = b"", []
    for at, front, back, length in zip(times, *columns, strict=True):
        if front + back > len(before):
            raise ValueError("it refers to more than there is")
        before = before[:front] + plain[rest : rest + length] + before[len(before) - back :]
        events.append((at, before))
        rest += length
    if rest != len(plain):
        raise ValueError("it is not as long as it says")
    return events


def press(body: bytes) -> tuple[bytes, bool]:
    """A blob as it is to be stored, and whether that is compressed."""
    if not SMALLEST <= len(body) <= LARGEST:
        return body, False
    if len(body) > _TRIED and len(zlib.compress(body[:_SAMPLE], 1)) > _WELL * _SAMPLE:
        return body, False
    pressed = zlib.compress(body)
    return (pressed, True) if len(pressed) <= _WELL * len(body) else (body, False)


def unpress(stored: Any, pressed: object) -> Any:
    """The blob as it was. What has become anything else stays that, for its sum to tell."""
    if not pressed or not isinstance(stored, bytes):
        return stored
    try:
        return _inflate(stored)
    except ValueError:
        return stored


# --- likeness -------------------------------------------------------------------------------


def _alike(one: bytes, other: bytes, order: Literal["big", "little"]) -> int:
    """How many bytes are the same from the front (big) or from the back (little)."""
    least = min(len(one), len(other))
    if order == "big":
        one, other = one[:least], other[:least]
    else:
        one, other = one[len(one) - least :], other[len(other) - least :]
    # As numbers: the highest bit in which they differ tells, and nothing is looked at twice.
    differ = int.from_bytes(one, order) ^ int.from_bytes(other, order)
    return least - (differ.bit_length() + 7) // 8


def _steady(numbers: Sequence[int]) -> list[int]:
    """The least of each and those next to it: what they have in common by accident is left out."""
    return [min(numbers[place : place + _NEAR]) for place in range(len(numbers))]


# --- numbers --------------------------------------------------------------------------------


def _write_times(times: Iterable[float]) -> bytes:
    """How far each is from the one before, counted in the smallest steps there are."""
    bits = [struct.unpack(">Q", struct.pack(">d", at))[0] for at in times]
    steps = [(bit - last) % _WRAP for last, bit in zip([0, *bits], bits, strict=False)]
    return _planes(struct.pack(f">{len(steps)}Q", *steps), _TIME)


def _read_times(planes: bytes) -> Sequence[float]:
    count = len(planes) // _TIME
    bit, bits = 0, []
    for step in struct.unpack(f">{count}Q", _lines(planes, _TIME)):
        bit = (bit + step) % _WRAP
        bits.append(bit)
    times: tuple[float, ...] = struct.unpack(f">{count}d", struct.pack(f">{count}Q", *bits))
    return times


def _planes(lines: bytes, width: int) -> bytes:
    """All first bytes, then all second ones, and so on: most of them are the same."""
    return b"".join(lines[place::width] for place in range(width))


def _lines(planes: bytes, width: int) -> bytes:
    count = len(planes) // width
    lines = bytearray(len(planes))
    for place in range(width):
        lines[place::width] = planes[place * count : (place + 1) * count]
    return bytes(lines)


# --- zlib -----------------------------------------------------------------------------------


def _deflate(plain: bytes, dictionary: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zdict=dictionary) if dictionary else zlib.compressobj(9)
    return squeeze.compress(plain) + squeeze.flush()


def _inflate(packed: bytes, dictionary: bytes = b"") -> bytes:
    spread = zlib.decompressobj(zdict=dictionary) if dictionary else zlib.decompressobj()
    try:
        plain = spread.decompress(packed)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not spread.eof or spread.unused_data:
        raise ValueError("it does not end where it should")
    return plain
