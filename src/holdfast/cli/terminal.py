"""A terminal, or what stands in for one: words as they come, and a line that says what is waited for.

Everything written here is made visible first. The waiting line stands below the words or, where
a line is not begun, in it; it is gone before the next word is written. Where there is no cursor to
move it is never shown.
"""

from __future__ import annotations

from typing import IO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from holdfast.cli.visible import visible

_ERASE_LINE = "\r\x1b[2K"
# Make room below without leaving the column, remember the place, and go down.
_BELOW = "\x1bD\x1b[A\x1b7\x1b[B"
_BACK = "\x1b8"


class Terminal:
    def __init__(self, file: IO[str]) -> None:
        self._console = _Console(file=file, highlight=False)
        #: Line breaks at the end of what was written. An untouched page counts as a gap.
        self._breaks = 2
        self._waiting = ""

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    @property
    def interactive(self) -> bool:
        """There is a cursor to move, and presumably somebody who watches it."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    @property
    def width(self) -> int:
        return self._console.width

    @property
    def fresh_line(self) -> bool:
        return self._breaks > 0

    def write(self, text: str, style: str = "") -> None:
        self.clear()
        shown = visible(text)
        if not shown:
            return
        self._put(shown, style)
        end = len(shown) - len(shown.rstrip("\n"))
        self._breaks = min(end + (self._breaks if end == len(shown) else 0), 2)

    def line(self, text: str, style: str = "") -> None:
        """A line of its own."""
        self.fresh()
        self.write(f"{text}\n", style)

    def fresh(self) -> None:
        """Be at the beginning of a line."""
        if not self._breaks:
            self.write("\n")

    def gap(self) -> None:
        """Be at the beginning of a line, below an empty one."""
        self.write("\n" * (2 - self._breaks))

    def returned(self) -> None:
        """Somebody pressed Enter, and the terminal has moved on to the next line."""
        self._breaks = 1

    def wait(self, text: str) -> None:
        """Show what is waited for, until something is written."""
        text = visible(text).replace("\n", " ")
        if not self.interactive or text == self._waiting:
            return
        self.clear()
        if cell_len(text) >= self.width:
            text = set_cell_size(text, self.width - 2) + "…"
        if self._breaks:
            self._put(text, "dim")
        else:
            self._control(_BELOW + "\r")
            self._put(text, "dim")
            self._control(_BACK)
        self._waiting = text

    def clear(self) -> None:
        """Take the waiting line away."""
        if not self._waiting:
            return
        self._waiting = ""
        self._control(_ERASE_LINE if self._breaks else "\x1b7\x1b[B" + _ERASE_LINE + _BACK)

    def _put(self, text: str, style: str) -> None:
        # Not as rich text, which would wrap it, and drop the space between two pieces.
        segment = Segment(text, Style.parse(style) if style else None)
        self._console.print(Segments([segment]), end="", soft_wrap=True)

    def _control(self, codes: str) -> None:
        self._console.file.write(codes)
        self._console.file.flush()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Called while the error is handled. Whoever runs us knows what to do."""
        raise  # noqa: PLE0704
