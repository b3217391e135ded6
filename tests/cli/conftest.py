"""Real processes: one that talks to pipes, and one that believes it is at a terminal.

Each test has a data directory of its own, which HOLDFAST_DATA names.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from contextlib import aclosing

import anyio
import pytest
from msgspec.structs import replace

from holdfast.app import open_app
from holdfast.cli import main
from holdfast.cli.shelf import open_shelf
from holdfast.core.events import ApprovalRequested, TextStreamed
from holdfast.engine.means import random_id
from holdfast.errors import ModelRefused
from holdfast.ports import Review
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence

PATIENCE = 10
HOLDFAST = (sys.executable, "-m", "holdfast")


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    monkeypatch.setenv("HOLDFAST_DATA", str(folder))
    return folder


@pytest.fixture(autouse=True)
def calm(tmp_path_factory, monkeypatch):
    """Settings by which nothing has to be made ready for commands, which few tests run."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "calm.toml").write_text("[tools]\nterminal = false\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(folder / "calm.toml"))


@pytest.fixture
def command(capfdbinary):
    """Run a command to its end in this process. Returns its code, output and complaints."""

    def run(*tokens):
        with pytest.raises(SystemExit) as exit:
            main(tokens)
        output, complaints = capfdbinary.readouterr()
        return exit.value.code, output.decode(), complaints.decode()

    return run


@pytest.fixture
def keep(data):
    """Have a run kept: to its end, cut off in mid-sentence, or waiting for an approval.

    Returns its id. What is cut off is as a killed process leaves it.
    """

    def keep(ending="completed", prompt="hello", *, script=None, run_id=""):
        return anyio.run(_keep, data, ending, prompt, script, run_id)

    return keep


SCRIPTS = {
    "completed": ([Call("pay")], ["Done, and ", "paid."]),
    "cut off": (["Once upon ", Silence()],),
    "asking": (["May I?", Call("ask", '{"sum":5}')],),
    "asking twice": ([Call("ask", '{"sum":5}'), Call("ask", '{"sum":6}')],),
}
LAST = {"cut off": TextStreamed, "asking": ApprovalRequested, "asking twice": ApprovalRequested}


async def _keep(data, ending, prompt, script, run_id):
    ask = ScriptedTool("ask", review=Review(gate="ask", reason="it asks"), parallel=True)
    tools = [ScriptedTool("pay"), ask]
    models = {"demo": ScriptedModel(*(script or SCRIPTS[ending]))}
    live = data.with_name("live")
    if data.exists():
        shutil.copytree(data, live)
    run_id = run_id or random_id("run")
    async with open_app(data=live, models=models, tools=tools, only=[run_id]) as app:
        await app.runs.accept(app.prepare(prompt), run_id=run_id)
        async with aclosing(app.runs.follow(run_id)) as journal:
            async for recorded in journal:
                if isinstance(recorded.event, LAST.get(ending, ())):
                    # What a process leaves that dies now; its lock dies with it.
                    _replace(data, live)
                    break
    if ending not in LAST:
        _replace(data, live)
    shutil.rmtree(live)
    return run_id


def _replace(data, live):
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(live, data)


TURNS = {
    "idle": (["Ferns."],),
    "failed": ([ModelRefused("no")],),
    "cut off": (["Sunf", Silence()],),
    "asking": ([Call("ask", '{"sum":5}')],),
}
REACHED = {"cut off": TextStreamed, "asking": ApprovalRequested}


@pytest.fixture
def talk(data):
    """Have a turn in a session kept as it is when it has come this far. Returns the run's id."""

    def talk(how="idle", text="shade?", session="ses_aa1", *, more=()):
        return anyio.run(_talk, data, how, text, session, more)

    return talk


class AllBut(list):
    """Every run there is but these."""

    def __contains__(self, run_id):
        return not super().__contains__(run_id)


async def _talk(data, how, text, session, more):
    live, left = data.with_name("live"), AllBut()
    if data.exists():
        shutil.copytree(data, live)
        with open_shelf(str(data)) as shelf:
            # What was left unfinished stays so.
            left += shelf.archive.unfinished()
    tools = [ScriptedTool("ask", review=Review(gate="ask"))]
    models = {"demo": ScriptedModel(*TURNS[how])}
    async with open_app(data=live, models=models, tools=tools, only=left) as app:
        sent = await app.sessions.send(replace(app.prepare(text), session_id=session))
        for later in more:
            await app.sessions.send(replace(app.prepare(later), session_id=session))
        async with aclosing(app.runs.follow(sent.run_id)) as journal:
            async for recorded in journal:
                if isinstance(recorded.event, REACHED.get(how, ())):
                    break
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(live, data)
    if how not in REACHED:
        shutil.rmtree(data)
        shutil.copytree(live, data)
    shutil.rmtree(live)
    return sent.run_id


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
            ["env", "-u", "COLUMNS", "TERM=xterm", *env, *HOLDFAST, *arguments],
            preexec_fn=take_the_terminal,  # noqa: PLW1509 (no threads here)
            stdout=stdout,
            pass_fds=[theirs],
        )
        self._theirs = theirs

    @property
    def pid(self):
        return self._process.pid

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
