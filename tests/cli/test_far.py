"""Commands that talk to a server, as processes beside a real one."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.cli.far import Far
from holdfast.errors import ConfigError, InvalidRequest, NotFound, RunFinished, StoreUnavailable

pytestmark = pytest.mark.real_time

KEY = "hf_a_key_for_these_tests_0123456789"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """`holdfast serve`, for all these tests. Yields its address and its data directory."""
    folder = tmp_path_factory.mktemp("served") / "data"
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--data", str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "HOLDFAST_API_KEY": KEY},  # noqa: TID251 (to add to it)
    )
    line = process.stdout.readline().decode()
    assert line.startswith("holdfast is listening on "), line
    yield line.split()[-1], folder
    process.kill()
    process.wait(10)
    process.stdout.close()


@pytest.fixture
def server(served, data, monkeypatch):
    """Its address; commands find it by the data directory."""
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    monkeypatch.setenv("HOLDFAST_DATA", str(served[1]))
    return served[0]


def last(holdfast):
    return json.loads(holdfast("runs", "--json", "--limit", "1").stdout)


def test_a_run_is_carried_by_the_server_that_owns_the_directory(server, holdfast):
    done = holdfast("run", "hello", "--pace", "0")
    assert done.returncode == 0, done.stderr
    assert "I am the built-in demo" in done.stdout.decode()
    assert last(holdfast)["status"] == "completed"


def test_a_server_may_be_named(server, holdfast, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "elsewhere"))
    done = holdfast("run", "hello", "--url", server)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_a_question_is_put_and_answered_where_the_run_was_started(server, at_terminal):
    terminal = at_terminal("run", "hello")
    terminal.expect("keep_note needs your approval").type("once\n")
    terminal.expect("keep_note says: kept")
    assert terminal.end() == 0


def test_a_run_of_the_server_is_stopped_and_answered_from_elsewhere(server, holdfast):
    far = Far(server, KEY)
    asking = far.submit("hello", model="", approval="ask")
    deadline = time.monotonic() + 15
    while last(holdfast)["status"] != "waiting_for_approval":
        assert time.monotonic() < deadline
    done = holdfast("approve", asking[:12], "deny")
    assert (done.returncode, done.stdout) == (0, b"keep_note: deny\n"), done.stderr
    again = far.submit("hello", model="", approval="ask")
    done = holdfast("stop", again)
    assert done.returncode == 0, done.stderr
    assert b"stopped" in done.stdout
    assert holdfast("stop", again).returncode == 2


def test_what_the_server_refuses_is_said_in_a_sentence(server):
    far = Far(server, KEY)
    with pytest.raises(NotFound):
        far.journal("run_that_never_was")
    with pytest.raises(NotFound):
        far.find("nothing")
    with pytest.raises(InvalidRequest):
        far.submit("", model="", approval="ask")
    with pytest.raises(ConfigError, match="HOLDFAST_API_KEY"):
        Far(server, "wrong").journal("run_1")
    with pytest.raises(ConfigError, match="it must be an address"):
        Far("ftp://there", KEY)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        Far("http://127.0.0.1:1", KEY).journal("run_1")


async def test_a_run_that_has_ended_cannot_be_stopped(server):
    far = Far(server, KEY)
    run_id = far.submit("hello", model="", approval="deny")
    journal = [recorded async for recorded in far.follow(run_id)]
    assert [recorded.seq for recorded in journal] == list(range(1, len(journal) + 1))
    assert (await far.state(run_id)).status.final
    with pytest.raises(RunFinished):
        await far.stop(run_id)


def test_the_beginning_of_an_id_must_mean_one_run(server):
    far = Far(server, KEY)
    first = far.submit("hello", model="", approval="deny")
    far.submit("hello", model="", approval="deny")
    assert far.find(first) == first
    with pytest.raises(InvalidRequest, match="type more of it"):
        far.find("run_")


def test_ctrl_c_stops_the_run_on_the_server(server, at_terminal, holdfast):
    terminal = at_terminal("run", "hello")
    terminal.expect("A new conversation")
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.end() == 130
    assert last(holdfast)["status"] == "cancelled"
