"""Commands whose server takes whatever is said to it from some moment on, and never says a word more."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager, suppress

import anyio
import pytest

from holdfast.cli import far as module
from holdfast.cli.far import Far
from holdfast.cli.shelf import open_shelf
from holdfast.core.codec import record
from holdfast.core.events import RunStarted
from holdfast.errors import StoreUnavailable
from holdfast.testing.contracts import ACCEPTED
from tests.cli.conftest import HOLDFAST
from tests.cli.test_far import HEAD, KEY

pytestmark = pytest.mark.real_time

#: Seconds after which somebody who waits is hung up on, less than a server is waited for.
HUNG = 10

BEGUN = [record(1, 0.0, ACCEPTED), record(2, 0.0, RunStarted(worker="a", epoch=1))]


class Mute:
    """Answers each request but those that have this in their first line, and none after one of those, unless
    it has `spared` there. `met` is set when it falls silent, and `patient` are those who did not leave then."""

    def __init__(self, silent, spared, events, fallen):
        self._silent, self._spared, self._events = silent.encode(), spared.encode(), events
        self._fallen, self.patient = fallen, 0
        self.met, self.told_to_stop = threading.Event(), threading.Event()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]  # noqa: TID251 (beside a command)
        self._threads[0].start()

    def close(self):
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for thread in self._threads:
            thread.join()

    def _serve(self):
        with suppress(OSError):
            while True:
                line, _ = self._door.accept()
                self._threads.append(threading.Thread(target=self._meet, args=[line]))  # noqa: TID251 (as above)
                self._threads[-1].start()

    def _meet(self, line):
        with line:
            first = self._read(line)
            if b"/stop" in first:
                self.told_to_stop.set()
            if self._answers(first):
                line.sendall(HEAD + self._answer(first))
                if b"/events" not in first:
                    return
            elif not self.met.is_set():
                self.met.set()
                self._fallen()
            line.settimeout(HUNG)
            try:
                line.recv(1)
            except TimeoutError:
                self.patient += 1
            except OSError:
                pass

    def _answers(self, first):
        if self._spared and self._spared in first:
            return True
        return not self.met.is_set() and self._silent not in first

    def _read(self, line):
        """The first line of a request that is read to its end."""
        request = b""
        while b"\r\n\r\n" not in request:
            request += line.recv(65536)
        head, _, body = request.partition(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head.lower())
        while size and len(body) < int(size[1]):
            body += line.recv(65536)
        return head.splitlines()[0]

    def _answer(self, first):
        if b"/journal?" not in first:
            return b'{"run_id": "run_1"}' if b"/events" not in first else b""
        after = int(first.partition(b"after=")[2].split()[0])
        lines = [
            {"seq": one.seq, "at": one.at, "event": json.loads(one.body)}
            for one in self._events
            if one.seq > after
        ]
        return json.dumps({"data": lines}).encode()


@contextmanager
def mute(silent, *, spared="", events=BEGUN, fallen=lambda: os.kill(os.getpid(), signal.SIGINT)):
    server = Mute(silent, spared, events, fallen)
    try:
        yield server
    finally:
        server.close()
    assert server.met.is_set() and not server.patient


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    monkeypatch.setattr(module, "HURRY", 0.3)


@pytest.mark.parametrize(
    ("words", "silent", "unknown"),
    [
        ("tail run_1", "after=2", ""),
        ("stop run_1", "/stop", "! left: whether the run stops is not known\n"),
        (
            "stop run_1",
            "after=2",
            "! left: the run was told to stop, and whether it has is not known\n",
        ),
        ("run hello", "POST /v1/runs", "! left: whether the run has begun is not known\n"),
    ],
)
def test_ctrl_c_leaves_a_server_that_fell_silent_and_says_what_is_not_known(
    command, words, silent, unknown
):
    with mute(silent) as server:
        code, _, said = command(*words.split(), "--url", server.url)
    assert (code, said.partition("! left")[1:]) == (130, unknown.partition("! left")[1:])


def test_ctrl_c_leaves_a_server_that_says_nothing_to_an_answer(command, keep, data):
    run_id = keep("asking")
    with open_shelf(str(data)) as shelf:
        events = list(shelf.archive.events(run_id))
    with mute("/approval", events=events) as server:
        code, output, said = command("approve", "run_1", "once", "--url", server.url)
    assert (code, output) == (130, "")
    assert said.endswith("! left: whether the answer was taken is not known\n")


@pytest.mark.parametrize("silent", ["/journal?after=0", "/journal?after=2", "/events"])
def test_ctrl_c_does_not_wait_long_for_a_stop_that_nobody_answers(command, silent):
    with mute(silent) as server:
        code, _, said = command("run", "hello", "--url", server.url)
    assert code == 74
    assert said.endswith("; whether the run stops is not known\n")
    assert f"holdfast: the server at {server.url} does not answer" in said


@pytest.mark.parametrize("silent", ["/journal?after=2", "/events"])
def test_nor_for_the_end_of_a_run_whose_stop_was_the_last_thing_heard(command, silent, monkeypatch):
    # Long enough for the stop to be answered on a machine that is busy.
    monkeypatch.setattr(module, "HURRY", 0.8)
    with mute(silent, spared="/stop") as server:
        code, _, said = command("run", "hello", "--url", server.url)
    assert code == 74
    assert said.endswith("; the run was told to stop, and whether it has is not known\n")


def test_of_a_server_that_was_never_reached_nothing_is_in_doubt(command):
    code, _, said = command("run", "hello", "--url", "http://127.0.0.1:1")
    assert code == 74 and "Connection refused" in said and "not known" not in said
    with pytest.raises(StoreUnavailable, match="Connect call failed") as refused:
        anyio.run(Far("http://127.0.0.1:1", KEY).stop, "run_1")
    assert "not known" not in str(refused.value)


def test_a_second_ctrl_c_leaves_at_once():
    with mute("/journal?after=2", fallen=lambda: None) as server:
        words = [*HOLDFAST, "run", "hello", "--url", server.url]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            assert server.met.wait(HUNG)
            process.send_signal(signal.SIGINT)
            assert server.told_to_stop.wait(HUNG)
            process.send_signal(signal.SIGINT)
            assert process.wait(HUNG) == 130
        finally:
            process.kill()
            process.wait()
