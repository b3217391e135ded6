"""Real processes: one that talks to pipes, and one that believes it is at a terminal."""

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

PATIENCE = 10
HOLDFAST = (sys.executable, "-m", "holdfast")


@pytest.fixture
def holdfast():
    """Run a command to its end, without a terminal."""

    def run(*arguments, **options):
        options = {"stdin": subprocess.DEVNULL} | options if "input" not in options else options
        return subprocess.run(
            [*HOLDFAST, *arguments], capture_output=True, timeout=PATIENCE, check=False, **options
        )

    return run


@pytest.fixture
def at_terminal():
    """Start a command at a terminal of its own. What is left of it in the end is killed."""
    started = []

    def start(*arguments, **options):
        started.append(AtTerminal(*arguments, **options))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


class AtTerminal:
    """`raw` is all that was sent to the screen so far; `seen` is that without colours."""

    def __init__(self, *arguments, columns=80, env=(), stdout=None):
        self._ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        self.mode = termios.tcgetattr(theirs)
        self.raw = ""

        def take_the_terminal():
            kept = os.dup(1)
            os.login_tty(theirs)
            if stdout is not None:
                os.dup2(kept, 1)

        self._process = subprocess.Popen(
            ["env", "TERM=xterm", *env, *HOLDFAST, *arguments],
            preexec_fn=take_the_terminal,  # noqa: PLW1509 (no threads here)
            stdout=stdout,
            pass_fds=[theirs],
        )
        self._theirs = theirs

    @property
    def seen(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.raw)

    def expect(self, text):
        """Read on until this is on the screen."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            self._read(0.1)
        return self

    def type(self, text):
        os.write(self._ours, text.encode())
        return self

    def send(self, number):
        self._process.send_signal(number)
        return self

    def end(self):
        """Wait for the command to exit, and return its code."""
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"still running after {self.seen!r}"
            self._read(0.02)
        while self._read(0):
            pass
        return self._process.returncode

    @property
    def mode_now(self):
        return termios.tcgetattr(self._theirs)

    def close(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self, seconds):
        ready, _, _ = select.select([self._ours], [], [], seconds)
        if ready:
            self.raw += os.read(self._ours, 65536).decode()
        return bool(ready)
