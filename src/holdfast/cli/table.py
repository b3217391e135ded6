"""Rows that fit the terminal. What is read by a program is not cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from holdfast.cli.terminal import Terminal
from holdfast.cli.visible import visible

_GAP = "  "

#: The last column is cut down to this before others are given up.
_LEAST = 12


def show_table(
    terminal: Terminal,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    spare: Sequence[str] = (),
) -> None:
    """The last column takes what room is left. Where there is none, the `spare` ones are left out,
    in this order."""
    cells = [[" ".join(visible(cell).split()) for cell in row] for row in (head, *rows)]
    columns = [list(column) for column in zip(*cells, strict=True)]
    if terminal.is_terminal:
        columns = _fit(columns, terminal.width - 1, spare)
    widths = [max(map(cell_len, column)) for column in columns]
    for number, line in enumerate(zip(*columns, strict=True)):
        padded = [set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True)]
        terminal.line(_GAP.join(padded).rstrip(), "bold" if number == 0 else "")


def _fit(columns: list[list[str]], room: int, spare: Sequence[str]) -> list[list[str]]:
    *fixed, last = columns
    left = room - sum(max(map(cell_len, column)) + len(_GAP) for column in fixed)
    if left < _LEAST and spare:
        kept = [column for column in columns if column[0] != spare[0]]
        return _fit(kept, room, spare[1:])
    return [*fixed, [_cut(cell, max(left, 1)) for cell in last]]


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"
