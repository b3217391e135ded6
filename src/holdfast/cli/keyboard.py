"""Lines that a person types, read without a thread and without holding anyone up.

The terminal stays in its ordinary mode: it echoes, and lets a line be corrected. Only the escape
key is made to end a line, so that it takes effect when it is pressed.
"""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio


class Keyboard:
    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._before: list[Any] | None = None

    @contextmanager
    def attention(self) -> Iterator[None]:
        """From here on what is typed counts; what was typed before was not meant for us."""
        try:
            self._listen()
        except termios.error:
            pass  # the terminal is gone, which `line` will report
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """Leave the terminal as it was found. May be called at any time, and never waits."""
        before, self._before = self._before, None
        if before is None:
            return
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)
        except termios.error:
            pass

    async def line(self) -> str | None:
        """What was typed before Enter; None for an end of input or the escape key."""
        await anyio.wait_readable(self._fd)
        try:
            typed = os.read(self._fd, 4096)
            if not typed.endswith(b"\n"):
                # A key that sends an escape sends more after it.
                termios.tcflush(self._fd, termios.TCIFLUSH)
                return None
        except (OSError, termios.error):
            return None
        return typed.decode(errors="replace").strip()

    def _listen(self) -> None:
        before, mode = termios.tcgetattr(self._fd), termios.tcgetattr(self._fd)
        mode[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        mode[6][termios.VEOL] = b"\x1b"
        termios.tcflush(self._fd, termios.TCIFLUSH)
        termios.tcsetattr(self._fd, termios.TCSANOW, mode)
        self._before = before
