"""A server's door, and its life in the process that opened it."""

import asyncio
import gc
import socket
import ssl
import struct
import urllib.request
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import monotonic

import aiohttp
import anyio
import pytest
import trustme
from anyio import to_thread
from anyio.abc import SocketAttribute
from uvicorn.protocols.utils import get_remote_addr

from holdfast.app import open_app
from holdfast.calls.tasks import task_group
from holdfast.config import Settings
from holdfast.config.settings import ServerSettings
from holdfast.errors import ConfigError
from holdfast.server.about import About
from holdfast.server.callers import Callers
from holdfast.server.connection import Connection
from holdfast.server.keys import load_key
from holdfast.server.metrics import Metrics
from holdfast.server.serve import Corked, Serving, address, bind
from holdfast.server.service import Service
from holdfast.server.streams import PIECE
from holdfast.testing.scripted import ScriptedModel, Silence

pytestmark = pytest.mark.real_time

HERE = ServerSettings(port=0, key="the-key-of-this-test")
BEARER = {"Authorization": f"Bearer {HERE.key}"}


# --- the door ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "begins"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("localhost", "http://127.0.0.1:"),
        ("::1", "http://[::1]:"),
    ],
)
def test_a_door_of_any_free_port_says_where_it_is(host, begins):
    settings = replace(HERE, host=host)
    with bind(settings) as door:
        where = address(door, settings)
        assert where == f"{begins}{door.getsockname()[1]}" and door.getsockname()[1] > 0
    cert = replace(settings, tls_cert=Path("cert.pem"), tls_key=Path("key.pem"))
    with bind(cert) as door:
        assert address(door, cert).startswith("https://")


def test_two_doors_on_one_port_are_one_too_many():
    with bind(HERE) as door:
        port = door.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Addr.* in use"
        ):
            bind(replace(HERE, port=port))
    # Once it is closed, another may open there, though its last connections linger.
    with bind(replace(HERE, port=port)):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "a.name.example"])
def test_beyond_this_machine_there_is_tls_or_something_that_speaks_it(host):
    with pytest.raises(ConfigError, match="others can reach"):
        bind(replace(HERE, host=host))
    half = replace(HERE, host=host, tls_cert=Path("cert.pem"))
    with pytest.raises(ConfigError, match="others can reach"):
        bind(half)


@pytest.mark.parametrize(
    "safe", [{"behind_proxy": True}, {"tls_cert": Path("c.pem"), "tls_key": Path("k.pem")}]
)
def test_what_is_safe_may_be_reached_from_beyond_this_machine(safe):
    with bind(replace(HERE, host="0.0.0.0", **safe)) as door:
        assert door.getsockname()[0] == "0.0.0.0"


def test_who_needs_no_key_is_on_this_machine():
    with bind(replace(HERE, auth="none")):
        pass
    with pytest.raises(ConfigError, match="loopback"):
        bind(replace(HERE, host="0.0.0.0", auth="none", behind_proxy=True))


# --- its life ----------------------------------------------------------------------------


@asynccontextmanager
async def serving(folder, settings=HERE, *script, callers=None):
    """A server in this process, how to ask it, and a life that this waits for in the end."""
    whole = Settings(data=folder, server=settings)
    with bind(settings) as door:
        models = {"demo": ScriptedModel(script or ["hello"])}
        async with open_app(whole, models=models) as app:
            service = Service(app.runs, app.means, whole)
            about = About(service, whole, app.means, "0", Metrics())
            keys = load_key(folder, settings.key)
            server = Serving(service, about, settings, keys, door, callers)
            ready = anyio.Event()
            async with task_group() as tasks, aiohttp.ClientSession() as http:
                tasks.start_soon(server.serve, ready.set)
                await ready.wait()
                yield server, http, address(door, settings)
                server.leave()


async def test_a_server_is_there_when_it_says_so_and_gone_when_it_has_left(tmp_path):
    async with serving(tmp_path) as (server, http, where):
        async with http.get(f"{where}/health") as answer:
            assert (answer.status, (await answer.json())["status"]) == (200, "ok")
    with pytest.raises(ConnectionRefusedError), socket.socket() as line:
        line.connect(("127.0.0.1", int(where.rpartition(":")[2])))


async def test_who_has_all_connections_that_an_address_may_have_is_told_so_until_one_has_gone(
    tmp_path,
):
    everybody = Callers(lambda client: "here", most=2)
    async with serving(tmp_path, callers=everybody) as (server, http, where):
        port = int(where.rpartition(":")[2])
        lines = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(2)]
        async with await anyio.connect_tcp("127.0.0.1", port) as third:
            said = await third.receive()
            assert said.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1\r\n" in said
            with pytest.raises(anyio.EndOfStream):
                await third.receive()
        await lines.pop().aclose()
        with anyio.fail_after(10):
            while True:
                async with http.get(f"{where}/health") as answer:
                    if answer.status == 200:
                        break
        await lines.pop().aclose()


async def test_a_server_with_a_certificate_speaks_tls_alone(tmp_path):
    authority = trustme.CA()
    (tmp_path / "cert.pem").write_bytes(
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    )
    tls = replace(HERE, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "cert.pem")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with serving(tmp_path, tls) as (server, http, where):
        assert where.startswith("https://")
        async with http.get(f"{where}/v1/capabilities", headers=BEARER, ssl=trusting) as answer:
            assert answer.status == 200 and "Strict-Transport-Security" in answer.headers
        with pytest.raises(aiohttp.ClientError):
            await http.get(where.replace("https", "http") + "/health")
        port = int(where.rpartition(":")[2])
        async with await anyio.connect_tcp("127.0.0.1", port, ssl_context=trusting) as line:
            await line.send(b"rubbish\r\n\r\n")
            assert b"strict-transport-security: max-age=31536000" in await line.receive()


async def test_who_comes_to_a_server_that_speaks_tls_and_says_nothing_is_not_waited_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Connection, "patience", 0.2)
    cert = trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    (tmp_path / "cert.pem").write_bytes(cert.bytes())
    tls = replace(HERE, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "cert.pem")
    async with serving(tmp_path, tls) as (_, _, where):
        port = int(where.rpartition(":")[2])
        with anyio.fail_after(5):
            async with await anyio.connect_tcp("127.0.0.1", port) as line:
                with pytest.raises(anyio.EndOfStream):
                    await line.receive()


async def test_a_stream_that_is_left_breaks_off_and_the_server_goes_at_once(tmp_path):
    async with serving(tmp_path, HERE, "half ", Silence()) as (server, http, where):
        async with http.post(f"{where}/v1/runs", json={"input": "hi"}, headers=BEARER) as answer:
            run_id = answer.headers["X-Run-Id"]
        async with http.get(f"{where}/v1/runs/{run_id}/events", headers=BEARER) as stream:
            while b"half" not in await stream.content.readline():
                pass
            server.drain()
            while b"server.draining" not in await stream.content.readline():
                pass
            began = monotonic()
            server.leave()
            with pytest.raises(aiohttp.ClientPayloadError):
                await stream.content.read()
            assert monotonic() - began < 5


async def heard(line):
    """All that comes before the other end closes the line."""
    told = b""
    with anyio.fail_after(5), suppress(anyio.EndOfStream):
        while True:
            told += await line.receive()
    return told


async def test_a_line_that_was_kept_is_answered_while_the_server_drains_and_then_closed(tmp_path):
    async with serving(tmp_path) as (server, _, where), AsyncExitStack() as stack:
        port = int(where.rpartition(":")[2])
        head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {HERE.key}\r\n"
        head += "Content-Type: application/json\r\n"
        lines = [
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
            for _ in range(3)
        ]
        for line in lines:
            await line.send(f"GET /health HTTP/1.1\r\n{head}\r\n".encode())
            assert b"connection: close" not in await line.receive()
        server.drain()
        told = []
        for line, (asked, body) in zip(
            lines,
            [("GET /health", ""), ("POST /v1/runs", '{"input":"a"}'), ("POST /v1/runs", "{")],
            strict=True,
        ):
            length = f"Content-Length: {len(body)}"
            await line.send(f"{asked} HTTP/1.1\r\n{head}{length}\r\n\r\n{body}".encode())
            told.append(await heard(line))
        assert [answer.split(b" ")[1] for answer in told] == [b"200", b"503", b"400"]
        assert [answer.count(b"connection: close") for answer in told] == [1, 1, 1]
        assert b"\r\nretry-after: 1\r\n" in told[1]


@pytest.mark.usefixtures("loop_of_c")
def test_no_reader_takes_a_stream_that_is_left_for_a_whole_one(tmp_path):
    """Python's own client reads lines to the end of a connection, whatever was still to come."""
    heard = []

    def read(address):
        asked = urllib.request.Request(address, headers=BEARER)
        try:
            with urllib.request.urlopen(asked, timeout=30) as stream:
                heard.extend(iter(stream.readline, b""))
        except ConnectionResetError:
            heard.append(b"reset")
        else:
            heard.append(b"whole")

    async def until(word):
        while not any(word in line for line in heard):
            await anyio.sleep(0.01)

    async def leave():
        async with serving(tmp_path, HERE, "half ", Silence()) as (server, http, where):
            address = f"{where}/v1/runs/{await begun(http, where)}/events"
            async with task_group() as tasks:
                tasks.start_soon(to_thread.run_sync, read, address)
                await until(b"half")
                server.drain()
                await until(b"server.draining")
                server.leave()

    anyio.run(leave, backend_options={"use_uvloop": True})
    assert heard[-1] == b"reset"


async def begun(http, where):
    async with http.post(f"{where}/v1/runs", json={"input": "a"}, headers=BEARER) as answer:
        return (await answer.json())["run_id"]


async def test_whoever_waits_with_a_key_that_is_taken_off_the_list_is_sent_away(tmp_path):
    listed, phone = tmp_path / "keys", "the-key-of-the-phone"
    listed.write_text(f"phone {sha256(phone.encode()).hexdigest()}\n")
    listed.chmod(0o600)
    async with serving(tmp_path, HERE, "half ", Silence()) as (_, http, where):
        waited = f"{where}/v1/runs/{await begun(http, where)}?wait=60"
        async with task_group() as tasks:

            async def ask():
                bearer = {"Authorization": f"Bearer {phone}"}
                with anyio.fail_after(20):
                    async with http.get(waited, headers=bearer) as answer:
                        error = (await answer.json())["error"]
                        assert (answer.status, error["code"]) == (401, "invalid_api_key")

            tasks.start_soon(ask)
            # It has begun by then, or is refused all the same.
            await anyio.sleep(0.1)
            listed.write_text("")


async def test_whoever_does_not_read_is_still_being_told(tmp_path):
    async with serving(tmp_path, HERE, "word " * 800_000) as (_, http, where):
        run_id, port = await begun(http, where), int(where.rpartition(":")[2])
        async with http.get(f"{where}/v1/runs/{run_id}?wait=30", headers=BEARER) as answer:
            assert (await answer.json())["status"] == "completed"
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", port))
            head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            line.sendall(f"{head}Authorization: Bearer {HERE.key}\r\n\r\n".encode())
            await anyio.wait_readable(line)
            assert line.recv(12) == b"HTTP/1.1 200"
            await anyio.sleep(0.2)
            # Had all of it been put somewhere for them, they would not be waited for any more.
            async with http.get(f"{where}/metrics", headers=BEARER) as answer:
                assert "holdfast_subscribers 1.0" in await answer.text()


async def test_a_server_that_leaves_at_once_says_so_all_the_same(tmp_path):
    async with serving(tmp_path, HERE, "half ", Silence()) as (server, http, where):
        run_id = await begun(http, where)
        async with http.get(f"{where}/v1/runs/{run_id}/events", headers=BEARER) as stream:
            while b"half" not in await stream.content.readline():
                pass
            server.drain()
            server.leave()
            while b"server.draining" not in await stream.content.readline():
                pass


async def break_off(where, path):
    """Ask, hear the beginning of the answer, and break the line."""
    port = int(where.rpartition(":")[2])
    async with await anyio.connect_tcp("127.0.0.1", port) as line:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        await line.send(f"{head}Authorization: Bearer {HERE.key}\r\n\r\n".encode())
        while b"data: " not in await line.receive():
            pass
        raw = line.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_readers_whose_lines_break_leave_no_task_behind(tmp_path):
    async with serving(tmp_path, HERE, "half ", Silence()) as (_, http, where):
        body = {"input": "a", "session_id": "s"}
        async with http.post(f"{where}/v1/runs", json=body, headers=BEARER) as answer:
            run_id = (await answer.json())["run_id"]
        paths = (f"/v1/runs/{run_id}/events", "/v1/sessions/s/events")
        for path in paths:
            await break_off(where, path)
        before = len(asyncio.all_tasks())
        async with task_group() as tasks:
            for path in paths * 10:
                tasks.start_soon(break_off, where, path)
        with anyio.fail_after(5):
            while len(asyncio.all_tasks()) > before:
                await anyio.sleep(0.01)
        async with http.get(f"{where}/metrics", headers=BEARER) as answer:
            assert "holdfast_subscribers 0.0" in await answer.text()


def circles():
    """The kinds of our things that only the collector finds."""
    gc.collect()
    return {type(one) for one in gc.garbage if type(one).__module__.startswith("holdfast.")}


async def test_a_run_that_was_read_to_its_end_leaves_nothing_for_the_collector(tmp_path):
    async with serving(tmp_path, HERE, "word") as (_, http, where):
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            run_id = await begun(http, where)
            async with http.get(f"{where}/v1/runs/{run_id}/events", headers=BEARER) as stream:
                assert b"run.completed" in await stream.read()
            await http.close()
            await anyio.sleep(0.1)
            assert circles() == set()
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


# --- what is written in one go -------------------------------------------------------------


@asynccontextmanager
async def corked():
    """One that is corked, the other end of it, and what goes wrong behind everybody's back."""
    loop, (near, far) = asyncio.get_running_loop(), socket.socketpair()
    trouble = []
    loop.set_exception_handler(lambda _, context: trouble.append(context))
    with far:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
        try:
            yield Corked(transport, loop), far, trouble
        finally:
            transport.abort()
            await anyio.sleep(0.01)


async def test_what_is_written_in_one_go_is_sent_in_one_go():
    async with corked() as (line, far, trouble):
        line.write(b"one ")
        line.write(b"two")
        far.setblocking(False)
        with pytest.raises(BlockingIOError):
            far.recv(100)
        await anyio.sleep(0.01)
        assert far.recv(100) == b"one two"
        line.write(b"three")
        line.close()
        await anyio.sleep(0.01)
        assert far.recv(100) == b"three" and far.recv(100) == b"" and not trouble


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_it_is_known_who_is_at_the_other_end(family):
    """Whoever guesses keys is known by that."""
    loop, met = asyncio.get_running_loop(), asyncio.Queue()

    class Meeting(asyncio.Protocol):
        def connection_made(self, transport):
            met.put_nowait(transport)

    here = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    async with await loop.create_server(Meeting, here, 0) as server:
        with socket.create_connection(server.sockets[0].getsockname()[:2]) as far:
            near = await met.get()
            line = Corked(near, loop)
            assert get_remote_addr(line) == far.getsockname()[:2]
            near.abort()
            await anyio.sleep(0.01)


async def test_much_is_sent_at_once_so_that_it_is_seen_when_nobody_takes_it():
    async with corked() as (line, _, _):
        line.write(b"x" * PIECE)
        line.write(b"x" * 10 * PIECE)
        assert line.get_write_buffer_size() > 0


async def test_a_line_that_is_hung_up_is_gone_though_nobody_took_what_was_sent():
    async with corked() as (line, far, _):
        line.write(b"x" * 10 * PIECE)
        line.abort()
        assert line.get_write_buffer_size() == 0
        await anyio.sleep(0.01)
        # What the system had taken may be there still; all else is dropped.
        far.settimeout(5)
        heard = 0
        while piece := far.recv(PIECE):
            heard += len(piece)
        assert heard < 10 * PIECE


@pytest.mark.usefixtures("loop_of_c")
def test_what_was_written_to_who_has_left_is_forgotten():
    async def leave():
        async with corked() as (line, _, trouble):
            line.write(b"one")
            line.abort()
            await anyio.sleep(0.01)
            line.write(b"two")
            await anyio.sleep(0.01)
            assert line.is_closing() and not trouble

    # The loop that servers run on takes offence at it.
    anyio.run(leave, backend_options={"use_uvloop": True})
