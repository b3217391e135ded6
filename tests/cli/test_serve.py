"""`holdfast serve` as whoever starts it sees it: one line, one sentence, one code."""

import json
import shlex
import signal
import socket
import stat
import subprocess
import time
from contextlib import suppress
from urllib.request import Request, urlopen

import apsw
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from holdfast.stores.owner import owner
from tests.cli.conftest import HOLDFAST, PATIENCE

pytestmark = pytest.mark.usefixtures("loop_of_c")


@pytest.fixture
def config(tmp_path):
    """The option that has these lines for a server read."""

    def write(lines):
        file = tmp_path / "holdfast.toml"
        file.write_text(f'[models.demo]\nwire = "demo"\n[server]\n{lines}\n')
        return "--config", str(file)

    return write


def test_it_says_where_it_listens_and_owns_its_directory_until_it_is_told_to_end(data, holdfast):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*HOLDFAST, "serve", "--port", "0"], **pipes) as server:
        try:
            line = server.stdout.readline()
            where = line.removeprefix("holdfast is listening on ").rstrip("\n")
            assert where.startswith("http://127.0.0.1:") and not where.endswith(":0")
            key = data / "api_key"
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
            headers = {"Authorization": f"Bearer {key.read_text().strip()}"}
            with urlopen(Request(f"{where}/v1/capabilities", headers=headers)) as answer:
                assert json.load(answer)["features"]["run_events_resumable"]
            # Another one is told whom to ask.
            second = holdfast("serve", "--port", "0", text=True)
            assert (second.returncode, second.stdout) == (75, "")
            assert second.stderr.startswith("holdfast: ") and where in second.stderr
            assert second.stderr.count("\n") == 1
        finally:
            server.send_signal(signal.SIGINT)
            rest, complaints = server.communicate(timeout=PATIENCE)
        assert (server.returncode, rest, complaints) == (0, "", "")


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_trouble(data, closed):
    """What a server opens must not get their numbers, as its loop closes none of those."""
    words = ["sh", "-c", f"exec {shlex.join(HOLDFAST)} serve --port 0 {closed}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        deadline = time.monotonic() + PATIENCE
        while not ((found := owner(data)) and answers(f"{found.address}/health")):
            assert time.monotonic() < deadline
            time.sleep(0.02)  # noqa: TID251 (another process has to get there)
        server.terminate()
        _, complaints = server.communicate(timeout=PATIENCE)
    assert (server.returncode, complaints) == (0, b"")


def answers(address):
    with suppress(OSError, ValueError), urlopen(address) as answer:
        return answer.status == 200
    return False


def test_runs_are_kept_in_the_file_that_is_named_and_found_there_by_every_command(
    data, holdfast, tmp_path, monkeypatch
):
    quick = tmp_path / "quick.toml"
    quick.write_text(
        '[models.demo]\nwire = "demo"\noptions = {pace = 0}\n[tools]\nterminal = false\n'
    )
    monkeypatch.setenv("HOLDFAST_CONFIG", str(quick))
    kept = tmp_path / "kept" / "mine.db"
    words = [*HOLDFAST, "serve", "--port", "0", "--store", f"sqlite:{kept}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        server.stdout.readline()
        assert holdfast("run", "hello").returncode == 0
        # Beside its owner the file is known, whoever named it.
        (row,) = holdfast("runs", "--json", text=True).stdout.splitlines()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=PATIENCE)
    assert kept.exists() and not (data / "journal.db").exists()
    assert holdfast("runs", "--json").stdout == b""
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:{kept}")
    assert holdfast("runs", "--json", text=True).stdout.splitlines() == [row]
    assert holdfast("run", "hello").returncode == 0
    assert holdfast("journal", "verify").returncode == 0
    assert len(holdfast("runs", "--json", text=True).stdout.splitlines()) == 2
    assert holdfast("stop", json.loads(row)["run"]).returncode == 2
    assert not (data / "journal.db").exists()


def test_a_store_that_cannot_be_had_is_refused_and_its_password_is_not_repeated(refused):
    complaint = refused("--store", "postgresql://ada:hunter2@127.0.0.1:1/runs")
    assert "--store names a PostgreSQL server, which is not supported yet" in complaint
    assert "hunter2" not in complaint


@pytest.fixture
def spoilt(keep, data):
    """A run that a server wants to take up and cannot read."""
    run_id = keep("cut off")
    connection = apsw.Connection(str(data / "journal.db"))
    connection.execute("update event set body = x'00' where seq = 2")
    connection.close()
    return run_id


def test_trouble_is_logged_as_a_line_of_json_that_names_the_run(spoilt):
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*HOLDFAST, "serve", "--port", "0"], **pipes) as server:
        told = json.loads(server.stderr.readline())
        server.terminate()
        server.communicate(timeout=PATIENCE)
    assert spoilt in told["message"] and "damaged" in told["message"] + told.get("traceback", "")
    assert told["level"] in ("warning", "error") and told["logger"].startswith("holdfast.")
    assert told["run_id"] == spoilt


@pytest.mark.parametrize(
    ("options", "found"), [((), " holdfast.engine."), (("--log-format", "json"), '{"time": "20')]
)
def test_at_a_terminal_trouble_is_told_to_people_unless_told_otherwise(
    spoilt, at_terminal, options, found
):
    server = at_terminal("serve", "--port", "0", *options).expect(found).expect(spoilt)
    assert server.send(signal.SIGTERM).end() == 0


def test_where_nobody_looks_it_can_be_told_to_people_all_the_same(spoilt):
    words = [*HOLDFAST, "serve", "--port", "0", "--log-format", "text"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
        line = server.stderr.readline().decode()
        server.terminate()
        server.communicate(timeout=PATIENCE)
    assert spoilt in line and " holdfast.engine." in line


@pytest.fixture
def refused(command):
    """What it complains of, in one sentence, when it does not even start."""

    def refused(*words, code=78):
        got, output, complaint = command("serve", *words)
        assert (got, output) == (code, ""), complaint
        assert complaint.startswith("holdfast: ") and complaint.count("\n") == 1
        return complaint

    return refused


def test_a_port_that_is_taken_is_named(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused(
            "--port", str(port)
        )


def test_what_others_can_reach_is_not_served_in_clear(refused, config):
    assert "others can reach: set tls_cert and tls_key" in refused("--host", "0.0.0.0")
    assert "others can reach" in refused(*config('host = "0.0.0.0"'))
    assert "others can reach" in refused("--host", "192.0.2.7", "--port", "0")


def test_a_certificate_that_nothing_can_be_said_with_is_named(refused, config, tmp_path):
    certs = [trustme.CA().issue_cert("127.0.0.1") for _ in range(2)]
    chain = certs[0].cert_chain_pems[0].bytes()
    key = load_pem_private_key(certs[0].private_key_pem.bytes(), None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a password")
    )
    cert, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    for written, kept in (
        (b"no certificate", locked),
        (chain, b"no key"),
        (chain, certs[1].private_key_pem.bytes()),
        (chain, locked),
    ):
        cert.write_bytes(written)
        private.write_bytes(kept)
        complaint = refused(*config(f'tls_cert = "{cert}"\ntls_key = "{private}"'), "--port", "0")
        assert f"tls_cert is {cert} and tls_key is {private}, which" in complaint


def test_only_this_machine_may_come_without_a_key(refused, config):
    assert "loopback" in refused(*config('host = "0.0.0.0"\nauth = "none"\nbehind_proxy = true'))
    assert "behind_proxy is true" in refused(*config('auth = "none"\nbehind_proxy = true'))


def test_a_key_that_can_be_guessed_is_refused_and_not_repeated(refused, monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", "changeme-changeme")
    complaint = refused("--port", "0")
    assert "HOLDFAST_API_KEY" in complaint and "changeme" not in complaint


def test_a_setting_that_is_none_is_refused(refused, config):
    assert "--port" in refused("--port", "many")
    assert "dra1n" in refused(*config("dra1n = 1"))
    assert "tls_key" in refused(*config('tls_cert = "cert.pem"'))


def test_an_option_that_is_none_is_refused(refused):
    assert "--prot" in refused("--prot", "1", code=2)
    assert "too many words" in refused("everything", code=2)
    assert "--log-format" in refused("--log-format", "xml", code=2)


def test_the_help_says_how_it_ends(command):
    code, output, complaints = command("serve", "--help")
    assert (code, complaints) == (0, "")
    assert "--port" in output and "SIGTERM" in output and "143" in output
