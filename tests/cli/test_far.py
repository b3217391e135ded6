"""Commands that talk to a server, as processes beside a real one."""

import gc
import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import anyio
import apsw
import pytest
import trustme
from anyio.abc import SocketAttribute

from holdfast.calls.tasks import task_group
from holdfast.cli import far as module
from holdfast.cli.far import Far
from holdfast.core.codec import record
from holdfast.core.events import RunCompleted, RunStarted
from holdfast.errors import (
    ConfigError,
    Conflict,
    InvalidRequest,
    NotFound,
    RunFinished,
    StoreUnavailable,
)
from holdfast.stores.owner import own
from holdfast.testing.contracts import ACCEPTED
from tests.cli.conftest import HOLDFAST

pytestmark = pytest.mark.real_time

KEY = "hf_a_key_for_these_tests_0123456789"


@contextmanager
def serving(folder, port=0, *options):
    """`holdfast serve`. Yields its address and its process."""
    process = subprocess.Popen(
        [*HOLDFAST, "serve", "--port", str(port), "--data", str(folder), *options],
        stdout=subprocess.PIPE,
        env={**os.environ, "HOLDFAST_API_KEY": KEY},  # noqa: TID251 (to add to it)
    )
    try:
        line = process.stdout.readline().decode()
        assert line.startswith("holdfast is listening on "), line
        yield line.split()[-1], process
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One for all these tests. Yields its address and its data directory."""
    folder = tmp_path_factory.mktemp("served")
    config = folder / "holdfast.toml"
    config.write_text('[models.demo]\nwire = "demo"\noptions = { pace = 0.01 }\n')
    with serving(folder / "data", 0, "--config", str(config)) as (url, _):
        yield url, folder / "data"


@pytest.fixture
def server(served, data, monkeypatch):
    """Its address; commands find it by the data directory."""
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    monkeypatch.setenv("HOLDFAST_DATA", str(served[1]))
    return served[0]


@pytest.fixture
def elsewhere(server, tmp_path, monkeypatch):
    """Its address alone: the data directory here is another, and empty."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "elsewhere"))
    return server


@pytest.fixture(scope="module")
def done(served):
    """A run that has ended."""
    return anyio.run(_to_the_end, served[0])


async def _to_the_end(server):
    far = Far(server, KEY)
    run_id = far.submit("what now?", model="", approval="deny").run_id
    async for _ in far.follow(run_id):
        pass
    return run_id


def asking(server):
    """A run that waits for an answer."""
    far = Far(server, KEY)
    run_id = far.submit("hello", model="", approval="ask").run_id
    deadline = time.monotonic() + 15
    while run_id not in [told["run_id"] for told in far.runs(status="waiting_for_approval")]:
        assert time.monotonic() < deadline
        time.sleep(0.02)  # noqa: TID251 (another process has to get there)
    return run_id


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
    asking = far.submit("hello", model="", approval="ask").run_id
    deadline = time.monotonic() + 15
    while last(holdfast)["status"] != "waiting_for_approval":
        assert time.monotonic() < deadline
    done = holdfast("approve", asking[:12], "deny")
    assert (done.returncode, done.stdout) == (0, b"keep_note: deny\n"), done.stderr
    again = far.submit("hello", model="", approval="ask").run_id
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
    with pytest.raises(StoreUnavailable, match="does not answer"):
        Far("http://127.0.0.1:1", KEY).journal("run_1")


@pytest.mark.parametrize(
    "words", ["run hello", "runs", "show run_x", "tail run_x", "resume run_x", "stop run_x"]
)
def test_an_address_that_was_left_empty_is_none(holdfast, words):
    done = holdfast(*words.split(), "--url", "")
    assert (done.returncode, done.stdout) == (78, b"") and b"must be an address" in done.stderr


@pytest.mark.parametrize(
    "url", ["ftp://there", "http://", "http://[there", "http://there:port", "http://h:0"]
)
def test_what_is_no_address_is_said_to_be_none(url):
    with pytest.raises(ConfigError, match="it must be an address"):
        Far(url, KEY)


async def test_a_run_that_has_ended_cannot_be_stopped(server):
    far = Far(server, KEY)
    run_id = far.submit("hello", model="", approval="deny").run_id
    journal = [recorded async for recorded in far.follow(run_id)]
    assert [recorded.seq for recorded in journal] == list(range(1, len(journal) + 1))
    assert (await far.state(run_id)).status.final
    with pytest.raises(RunFinished):
        await far.stop(run_id)


async def test_an_answer_that_came_too_late_is_said_to_have(server):
    far = Far(server, KEY)
    run_id = await anyio.to_thread.run_sync(asking, server)
    assert len(await far.answer(run_id, "deny")) == 1
    with pytest.raises(Conflict):
        await far.answer(run_id, "deny")


def test_what_is_missing_there_may_come_and_time_is_that_of_people():
    far = Far("http://there", KEY)
    assert far.has("model", "any", None) and abs(far.clock() - time.time()) < 60  # noqa: TID251 (as above)


def test_no_word_means_no_run_though_there_is_but_one(tmp_path):
    """What a script left empty must not stop, nor approve, what happens to be there."""
    with serving(tmp_path / "one") as (url, _):
        far = Far(url, KEY)
        run_id = far.submit("hello", model="", approval="ask", session="solo").run_id
        for word in ("", "r", "run_"):
            with pytest.raises(NotFound, match="there is no run"):
                far.find(word)
        assert far.find(run_id[4:9]) == far.find(run_id[:9]) == run_id
        with pytest.raises(NotFound, match="there is no session"):
            far.find_session("")
        assert far.find_session("s") == "solo"


def test_ctrl_c_stops_the_run_on_the_server(server, at_terminal, holdfast):
    terminal = at_terminal("run", "hello")
    terminal.expect("A new conversation")
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.end() == 130
    assert last(holdfast)["status"] == "cancelled"


# --- looking at the runs of a server


def both(holdfast, server, served, *words):
    """What a command shows that asks the server, and what one shows that reads its directory."""
    asked = holdfast(*words, "--url", server)
    read = holdfast(*words, "--data", str(served[1]))
    assert asked.returncode == read.returncode == 0, asked.stderr
    return (asked.stdout, asked.stderr), (read.stdout, read.stderr)


@pytest.mark.parametrize(
    "words", ["show", "show --json", "tail", "tail --json", "tail --json --after 5"]
)
def test_a_run_looks_the_same_from_elsewhere(elsewhere, served, holdfast, done, words):
    name, *options = words.split()
    asked, read = both(holdfast, elsewhere, served, name, done, *options)
    assert asked == read
    assert len(asked[0]) > 100


def test_so_does_the_list_of_them(elsewhere, served, holdfast, done):
    asked, read = both(holdfast, elsewhere, served, "runs", "--all")
    assert asked == read
    asked, read = both(holdfast, elsewhere, served, "runs", "--all", "--json")
    assert asked == read
    (told,) = (json.loads(line) for line in asked[0].splitlines() if done.encode() in line)
    assert (told["input"], told["status"], told["interrupted"]) == ("what now?", "completed", False)


def test_a_list_comes_a_page_at_a_time(elsewhere, holdfast, done):
    far = Far(elsewhere, KEY)
    far.submit("hello", model="", approval="deny")
    ids = [told["run_id"] for told in far.runs()]
    assert [told["run_id"] for told in far.runs(page=1)] == ids and done in ids[1:]
    listed = holdfast("runs", "--url", elsewhere, "--limit", "1")
    assert listed.stdout.count(b"\n") == 2
    assert listed.stderr == b"and older ones; --all lists them\n"


def test_a_run_that_is_damaged_is_marked_and_the_others_are_listed(
    keep, data, holdfast, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    spoilt, fine = keep("cut off"), keep()
    connection = apsw.Connection(str(data / "journal.db"))
    connection.execute("update event set body = x'00' where seq = 2 and run = 1")
    connection.close()
    with serving(data) as (url, _):
        listed = holdfast("runs", "--url", url)
    first, second = (line.split() for line in listed.stdout.decode().splitlines()[1:])
    assert (first[0], second[0], second[2]) == (fine, spoilt, "damaged")
    assert listed.stderr == b"1 is damaged; holdfast journal verify says where\n"


def test_what_a_run_waits_for_is_listed(elsewhere, holdfast):
    run_id = asking(elsewhere)
    (line,) = holdfast("runs", "--url", elsewhere, "--limit", "1").stdout.splitlines()[1:]
    assert line.split()[0].decode() == run_id and b"waiting  your answer on keep_note" in line


@pytest.mark.parametrize(
    "words", ["runs", "show run_x", "tail run_x", "resume run_x", "stop run_x"]
)
def test_every_command_says_what_is_wrong_with_a_server(elsewhere, holdfast, monkeypatch, words):
    silent = holdfast(*words.split(), "--url", "http://127.0.0.1:1")
    assert silent.returncode == 74
    assert silent.stderr.startswith(b"holdfast: the server at http://127.0.0.1:1 does not answer")
    if words != "runs":
        unknown = holdfast(*words.split(), "--url", elsewhere)
        assert (unknown.returncode, unknown.stderr) == (2, b"holdfast: there is no run run_x\n")
    monkeypatch.setenv("HOLDFAST_API_KEY", "hf_another_key_0123456789")
    stranger = holdfast(*words.split(), "--url", elsewhere)
    assert stranger.returncode == 78
    assert b"set HOLDFAST_API_KEY" in stranger.stderr and stranger.stderr.count(b"\n") == 1


def test_a_run_is_followed_from_elsewhere_and_left_alone(elsewhere, at_terminal, holdfast):
    run_id = asking(elsewhere)
    leaving = at_terminal("tail", run_id, "--url", elsewhere).expect("I would like to keep")
    words = ("tail", run_id[:12], "--url", elsewhere)
    staying = at_terminal(*words, columns=120).expect("I would like to keep")
    staying.expect(f"once|session|always|deny --url {elsewhere}")
    assert leaving.type("\x03").end() == 130
    assert "Traceback" not in leaving.seen
    assert holdfast("approve", run_id, "once", "--url", elsewhere).returncode == 0
    staying.expect("✓ keep_note").expect("That was all I can show")
    assert staying.end() == 0


def test_a_run_of_a_server_is_taken_up_at_another_terminal(elsewhere, at_terminal, holdfast):
    run_id = asking(elsewhere)
    terminal = at_terminal("resume", run_id, "--url", elsewhere).expect("> hello")
    terminal.expect("keep_note needs your approval").type("once\n").expect("✓ keep_note")
    assert terminal.end() == 0
    ended = holdfast("resume", run_id, "--url", elsewhere)
    assert (ended.returncode, ended.stderr.count(b"already ended")) == (2, 1)


def test_where_nobody_can_be_asked_the_runs_of_a_server_are_left_waiting(
    tmp_path, holdfast, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    with serving(tmp_path / "data") as (url, _):
        first = Far(url, KEY).submit("hello", model="", approval="ask").run_id
        second = asking(url)
        assert Far(url, KEY).unfinished() == [first, second]
        left = holdfast("resume", "--data", str(tmp_path / "data"))
        assert left.returncode == 3
        assert left.stderr.count(b"left waiting; holdfast show") == 2
        for run_id in (first, second):
            assert holdfast("stop", run_id, "--data", str(tmp_path / "data")).returncode == 0
        none = holdfast("resume", "--url", url, "--data", str(tmp_path / "data"))
        assert (none.returncode, none.stderr.count(b"nothing to resume")) == (0, 1)


# --- servers that go away, and what is none


def test_a_server_that_was_killed_is_waited_for(tmp_path, at_terminal, holdfast, monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    with serving(tmp_path / "data") as (url, process):
        run_id = asking(url)
        follower = at_terminal("tail", run_id, "--url", url).expect("I would like to keep")
        process.kill()
        follower.expect(f"! the server at {url} does not answer").expect("it is asked again")
    with serving(tmp_path / "data", int(url.rpartition(":")[2])):
        follower.expect("! the server answers again")
        assert holdfast("approve", run_id, "deny", "--url", url).returncode == 0
        follower.expect("✗ keep_note, denied")
        assert follower.end() == 0
    assert follower.seen.count("I would like to keep") == 1


def test_who_leaves_while_the_server_is_gone_is_told_that_the_run_is_not(
    tmp_path, at_terminal, holdfast, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_API_KEY", KEY)
    with serving(tmp_path / "data") as (url, process):
        terminal = at_terminal("run", "hello", "--pace", "1", "--url", url)
        terminal.expect("I would like to keep")
        process.kill()
        terminal.expect("it is asked again").send(signal.SIGINT)
        assert terminal.end() == 74
    run_id = json.loads(holdfast("runs", "--json", "--data", str(tmp_path / "data")).stdout)["run"]
    told = " ".join(terminal.seen.split())
    assert f"! left to the server, which may go on with it: holdfast show {run_id[:12]}" in told


async def test_a_server_that_is_gone_for_good_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "GONE", 0.0)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        async for _ in Far("http://127.0.0.1:1", KEY).follow("run_1"):
            pass


def test_a_key_that_can_be_none_is_not_repeated(server, holdfast, monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", f"{KEY}\n")
    assert holdfast("runs", "--url", server).returncode == 0
    monkeypatch.setenv("HOLDFAST_API_KEY", "wrong\nX: hunter2")
    refused = holdfast("runs", "--url", server, text=True)
    assert (refused.returncode, refused.stderr) == (
        78,
        "holdfast: HOLDFAST_API_KEY holds blanks or signs that cannot be part of a key\n",
    )


async def test_a_file_that_holds_no_key_is_named(server, holdfast, tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_API_KEY")
    async with own(tmp_path / "data", address=server):
        (tmp_path / "data" / "api_key").write_bytes(b"\xff\xfe\xff")
        words = ("stop", "run_x", "--data", str(tmp_path / "data"))
        refused = await anyio.to_thread.run_sync(partial(holdfast, *words, text=True))
    complaint = "holds blanks or signs that cannot be part of a key\n"
    assert refused.stderr == f"holdfast: the key file {tmp_path}/data/api_key {complaint}"
    assert refused.returncode == 78


@pytest.fixture
def certified(tmp_path, monkeypatch):
    """Options for `holdfast serve` to speak TLS, by an authority that this process trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    config = tmp_path / "holdfast.toml"
    config.write_text(
        '[models.demo]\nwire = "demo"\n[server]\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n'
    )
    return "--config", str(config)


async def test_a_server_behind_tls_is_followed_too(tmp_path, certified):
    with serving(tmp_path / "data", 0, *certified) as (url, _):
        assert url.startswith("https://")
        far = Far(url, KEY)
        run_id = far.submit("hello", model="", approval="deny").run_id
        journal = [recorded async for recorded in far.follow(run_id)]
    assert [recorded.seq for recorded in journal] == list(range(1, len(journal) + 1))


@asynccontextmanager
async def strangers(answer):
    """The address of something that says what `answer` makes of a request, and hangs up."""

    async def meet(line):
        async with line:
            await answer(await line.receive(), line.send)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as door:
        async with task_group() as tasks:
            tasks.start_soon(door.serve, meet)
            yield f"http://127.0.0.1:{door.extra(SocketAttribute.local_port)}"
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nwelcome", "does not answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "does not answer"),
        (b"HTTP/1.1 502 No\r\n\r\noops", "the server answered 502"),
        (b"what?", "does not answer"),
    ],
)
async def test_what_is_no_server_of_ours_is_not_understood(answer, said):
    async with strangers(lambda _, send: send(answer)) as url:
        with pytest.raises(StoreUnavailable, match=said):
            await anyio.to_thread.run_sync(Far(url, KEY).journal, "run_1")


async def test_a_line_is_closed_also_when_the_answer_breaks_off():
    said = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nwell"
    async with strangers(lambda _, send: send(said)) as url:
        with pytest.raises(StoreUnavailable, match="does not answer") as raised:
            await anyio.to_thread.run_sync(Far(url, KEY).journal, "run_1")
    # The collector warns of what it finds open, and a warning is an error here.
    raised.value.held_by = raised.value
    del raised
    gc.collect()


async def test_nor_is_it_when_a_conversation_was_to_be_taken_in_there():
    async with strangers(lambda _, send: send(HEAD + b"welcome")) as url:
        take_in = partial(Far(url, KEY).import_session, b"{}", as_new=False)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await anyio.to_thread.run_sync(take_in)


@contextmanager
def mute():
    """The address of something that takes whatever is said to it, and never says a word. Whoever talks to
    it is interrupted, as by Ctrl-C, and hung up on if that did not get through to them."""

    def interrupt():
        line, _ = door.accept()
        with line:
            line.recv(1000)
            os.kill(os.getpid(), signal.SIGINT)
            line.settimeout(1)
            with suppress(TimeoutError):
                line.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=interrupt)  # noqa: TID251 (the command has the main one)
        thread.start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("words", ["approve 3f9a once", "stop 3f9a", "tail 3f9a", "resume 3f9a"])
def test_who_waits_for_a_server_that_says_nothing_leaves_by_ctrl_c(command, words):
    with mute() as url:
        assert command(*words.split(), "--url", url) == (130, "", "")


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def journal(request, upto):
    """What is asked for of a journal of three events that has come so far."""
    events = (ACCEPTED, RunStarted(worker="a", epoch=1), RunCompleted())
    lines = [
        {"seq": seq, "at": 0, "event": json.loads(record(seq, 0, event).body)}
        for seq, event in enumerate(events, start=1)
    ]
    after = int(request.split(b"after=")[1].split()[0])
    return HEAD + json.dumps({"data": lines[after:upto]}).encode()
