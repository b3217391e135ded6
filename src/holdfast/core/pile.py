"""A long thing made of many small ones, grown without changing what was there.

A pile is a tuple of strings (or of tuples) whose lengths at least halve from
one to the next. Growing it merges the small end, so n pieces cost n log n copies in
all, no pile has more than a few dozen members, and every earlier pile stays
valid. That keeps `fold` both pure and linear enough for a reply of 50,000 deltas.
"""

from __future__ import annotations

from typing import Any, TypeVar

Piece = TypeVar("Piece", str, tuple[Any, ...])


def grow(pile: tuple[Piece, ...], piece: Piece) -> tuple[Piece, ...]:
    """The pile with one more piece at its end."""
    if not piece:
        return pile
    kept: int = len(pile)
    while kept and len(pile[kept - 1]) < 2 * len(piece):
        kept -= 1
        piece = pile[kept] + piece
    return pile[:kept] + (piece,)  # noqa: RUF005 - a starred tuple loses its type
