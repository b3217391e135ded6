"""Where a command is run: its three streams, whether anyone sits at them, and how to leave."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import Literal, NoReturn

import anyio

from holdfast.app import open_app
from holdfast.cli.attend import Attendant
from holdfast.cli.keyboard import Keyboard
from holdfast.cli.question import Question
from holdfast.cli.screen import JsonLines, Screen, Viewer
from holdfast.cli.terminal import Terminal
from holdfast.models.demo import DemoModel
from holdfast.tools.demo import KeepNote, LookAround


class Desk:
    def __init__(self, *, json: bool) -> None:
        words = Terminal(sys.stdout)
        #: Where questions are put, and notes go.
        self._notes = Terminal(sys.stderr) if json or not sys.stdout.isatty() else words
        self._viewer: Viewer = JsonLines(sys.stdout.buffer) if json else Screen(words, self._notes)
        self._keyboard = Keyboard()
        self.person = sys.stdin is not None and sys.stdin.isatty() and self._notes.is_terminal

    def run(self, prompt: str, *, approval: Literal["ask", "deny"], pace: float) -> int:
        """Carry one run from beginning to end. Returns the code to exit with."""
        # What goes wrong with a run is among its events; the screen is no place for a log.
        logging.getLogger("holdfast").addHandler(logging.NullHandler())
        return anyio.run(partial(self._run, prompt, approval=approval, pace=pace))

    async def _run(self, prompt: str, *, approval: Literal["ask", "deny"], pace: float) -> int:
        models = {"demo": DemoModel(pace=pace)}
        async with open_app(models=models, tools=(LookAround(), KeepNote())) as app:
            ask = partial(Question, terminal=self._notes, keyboard=self._keyboard)
            attendant = Attendant(app, self._viewer, ask=ask, leave=self._leave)
            return await attendant.attend(
                app.prepare(prompt, approval=approval, surface="terminal")
            )

    def _leave(self, code: int) -> NoReturn:
        """Go without waiting for anything; whatever hangs is left hanging."""
        self._keyboard.restore()
        if self._notes.is_terminal:
            os.write(2, b"\n")
        os._exit(code)
