"""The edge to the network, on real sockets."""

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
import psutil
import pytest
import trustme

from holdfast.errors import ModelUnavailable, StreamStalled
from holdfast.models import http
from holdfast.models.connection import Connection
from holdfast.models.http import open_transport
from holdfast.testing.endpoint import Answer, Hangup, NoHeaders, Reset, open_endpoint
from holdfast.testing.scripted import Silence

pytestmark = pytest.mark.real_time


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request, loop_of_c):
    """The server runs on the one, and whoever uses the library perhaps on the other."""
    return "asyncio", {"use_uvloop": request.param}


async def ask(transport, url, *, connect=5.0, method="POST", path="/chat/completions"):
    async with (
        transport.send(method, url + path, {}, b'{"stream":true}', connect=connect) as answer,
        aclosing(answer.pieces()) as pieces,
    ):
        return answer.status, answer.headers, b"".join([piece async for piece in pieces])


async def test_an_answer_has_a_status_headers_in_small_letters_and_a_body():
    async with open_endpoint([Answer(418, "short", {"X-Odd": "yes"})]) as endpoint:
        async with open_transport() as transport:
            status, headers, body = await ask(transport, endpoint.url)
    assert (status, headers["x-odd"], body) == (418, "yes", b"short")


async def test_a_connection_that_was_read_to_its_end_is_used_again():
    async with open_endpoint(["a"]) as endpoint, open_transport() as transport:
        for _ in range(3):
            await ask(transport, endpoint.url)
        assert (len(endpoint.requests), endpoint.connections) == (3, 1)


@asynccontextmanager
async def raw(serve):
    """An endpoint that does with each connection as `serve` does, once it has read a request's head."""

    async def meet(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_nothing_is_taken_in_while_a_piece_is_being_heard():
    much, taken = 64, []

    async def serve(_reader, writer):
        writer.write(CHUNKED)
        for _ in range(much):
            writer.write(b"40000\r\n" + b"a" * 0x40000 + b"\r\n")
            await writer.drain()
            taken.append(1)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with raw(serve) as url, open_transport() as transport:
        async with (
            transport.send("POST", url, {}, b"", connect=5.0) as answer,
            aclosing(answer.pieces()) as pieces,
        ):
            size = len(await anext(pieces))
            await anyio.sleep(0.2)
            # What the system holds for both sides is a few megabytes.
            assert len(taken) < much
            size += sum([len(piece) async for piece in pieces])
    assert size == much * 0x40000


async def test_leaving_hangs_up_at_once():
    async with open_endpoint(["a", Silence()]) as endpoint, open_transport() as transport:
        url = f"{endpoint.url}/chat/completions"
        async with transport.send("POST", url, {}, b'{"stream":true}', connect=5.0) as answer:
            async with aclosing(answer.pieces()) as pieces:
                await anext(pieces)
            left = anyio.current_time()
        assert await endpoint.hung_up() - left < 0.5


@pytest.mark.parametrize("script", [[NoHeaders(), Silence()], [Silence()], ["a", Silence()]])
async def test_a_cancel_hangs_up_at_once_in_every_phase(script):
    async with open_endpoint(script) as endpoint, open_transport() as transport:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, transport, endpoint.url)
                await endpoint.received()
                await anyio.sleep(0.05)
                cancelled = anyio.current_time()
                scope.cancel()
        assert await endpoint.hung_up() - cancelled < 0.5


@pytest.mark.parametrize(
    "script", [[NoHeaders(), Reset()], [Reset()], ["a", Reset()], ["a", Hangup()]]
)
async def test_a_line_that_breaks_is_a_reset(script):
    async with open_endpoint(script) as endpoint, open_transport() as transport:
        with pytest.raises(ModelUnavailable, match="lost the connection") as lost:
            await ask(transport, endpoint.url)
    assert lost.value.reason == "reset"


async def test_a_host_that_does_not_answer_costs_the_limit_for_connecting():
    # A full backlog: the system takes no further connection, and refuses none.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        try:
            async with open_transport() as transport:
                began = anyio.current_time()
                with pytest.raises(StreamStalled, match=r"within 0.2 s") as stalled:
                    await ask(transport, f"http://127.0.0.1:{address[1]}", connect=0.2)
                assert anyio.current_time() - began < 5
            assert isinstance(stalled.value, TimeoutError) and "TTFB" in str(stalled.value)
        finally:
            for filler in fillers:
                filler.close()


async def test_nobody_there_is_said_in_a_sentence():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    async with open_transport() as transport:
        with pytest.raises(ModelUnavailable, match="cannot be reached"):
            await ask(transport, url)


def test_a_name_that_nobody_knows_is_said_in_a_sentence():
    # No test may ask another machine for a name.
    error = socket.gaierror(-2, "Name or service not known")
    said = str(http._unreached(error, http._Origin("nowhere.invalid", 443, tls=True)))
    assert "a name that is not known" in said and "nowhere.invalid:443" in said


async def test_a_name_is_looked_up():
    async with open_endpoint(["a"]) as endpoint, open_transport() as transport:
        status, _, _ = await ask(transport, endpoint.url.replace("127.0.0.1", "localhost"))
        assert (status, endpoint.requests[0].headers["host"].split(":")[0]) == (200, "localhost")


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "nonsense",
        "http://[::1",
        "http://a:99999",
        f"http://{'a' * 64}",
        "http://a/\udc80",
        "http://me:secret@127.0.0.1",
        "ftp://me:secret@127.0.0.1",
    ],
    ids=ascii,
)
async def test_what_is_no_address_is_said_in_a_sentence(url):
    async with open_transport() as transport:
        with pytest.raises(ModelUnavailable, match="no such address") as said:
            await ask(transport, url, path="")
    assert "secret" not in str(said.value)


@asynccontextmanager
async def secure(authority):
    """An endpoint behind TLS that answers 200 and nothing else; yields its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_endpoint_that_cannot_prove_who_it_is_is_not_spoken_to():
    async with secure(trustme.CA()) as url, open_transport() as transport:
        with pytest.raises(ModelUnavailable, match="could not prove who it is"):
            await ask(transport, url)


async def test_an_endpoint_that_can_is():
    authority, trust = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trust)
    async with secure(authority) as url, open_transport(tls=trust) as transport:
        assert (await ask(transport, url))[0] == 200


async def test_nothing_is_taken_from_the_environment(monkeypatch):
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{trap.getsockname()[1]}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{trap.getsockname()[1]}")
        async with open_endpoint(["a"]) as endpoint, open_transport() as transport:
            assert (await ask(transport, endpoint.url))[0] == 200


async def test_an_answer_that_points_elsewhere_is_not_followed():
    async with open_endpoint(["never"]) as other:
        there = {"Location": f"{other.url}/chat/completions"}
        async with (
            open_endpoint([Answer(307, "", there)]) as endpoint,
            open_transport() as transport,
        ):
            assert (await ask(transport, endpoint.url))[0] == 307
        assert other.requests == []


async def test_cookies_are_not_kept():
    async with (
        open_endpoint([Answer(200, "{}", {"Set-Cookie": "a=b"})], ["a"]) as endpoint,
        open_transport() as transport,
    ):
        await ask(transport, endpoint.url)
        await ask(transport, endpoint.url)
    assert "cookie" not in endpoint.requests[1].headers


def test_the_library_is_loaded_by_nobody_who_does_not_need_it():
    code = "import sys, holdfast.app; sys.exit('holdfast.models.http' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def both_sides():
    """What two who trust each other need to speak TLS: the one who asks, and the endpoint."""
    authority, trust = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trust)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return trust, context


async def test_a_line_that_is_cut_before_there_is_trust_is_an_error(caplog):
    trust, _ = both_sides()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(lambda _: None), *deaf.getsockname()
        )
        loop.call_later(0.05, connection.hang_up)
        for _ in range(2):
            with pytest.raises(OSError, match="hung up"):
                await connection.secure(trust, "127.0.0.1")
    assert caplog.text == ""


@pytest.mark.parametrize("polite", [True, False])
async def test_over_tls_nothing_is_lost_of_what_came_before_the_end(polite):
    trust, context = both_sides()
    much, said = 200_000, threading.Event()

    def serve(door):
        line = context.wrap_socket(door.accept()[0], server_side=True)
        line.recv(65536)
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        said.wait(20)
        line.sendall(b"a" * much)
        line.setblocking(False)
        # It says good-bye, or not, and waits for none.
        with suppress(ssl.SSLWantReadError), line if not polite else line.unwrap():
            pass
        line.close()

    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"https://127.0.0.1:{door.getsockname()[1]}"
        async with open_transport(tls=trust) as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve, door)
            async with (
                transport.send("POST", url, {}, b"", connect=5.0) as answer,
                aclosing(answer.pieces()) as pieces,
            ):
                assert await anext(pieces) == b"first"
                said.set()
                size = 0
                async for piece in pieces:
                    size += len(piece)
                    # Now the rest comes, and the end, while nobody reads.
                    await anyio.sleep(0.05)
    assert size == much


@pytest.mark.parametrize("turns", range(5))
async def test_over_tls_a_line_may_go_while_a_piece_is_being_heard(turns):
    trust, context = both_sides()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        await reader.read()
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with (
            open_transport(tls=trust) as transport,
            transport.send("POST", url, {}, b"", connect=5.0) as answer,
            aclosing(answer.pieces()) as pieces,
        ):
            assert await anext(pieces) == b"first"
            (line,) = transport._open
            line.hang_up()
            # The two layers of the line hear of it one after the other.
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            # It did not say how long it is, but it was not its end.
            with pytest.raises(ModelUnavailable, match="we hung up"):
                await anext(pieces)


async def test_over_tls_too_a_request_answered_before_it_is_sent_does_not_lend_its_connection():
    trust, context = both_sides()
    over = threading.Event()

    def serve(door):
        with context.wrap_socket(door.accept()[0], server_side=True) as line:
            line.recv(1024)
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            over.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"https://127.0.0.1:{door.getsockname()[1]}"
        async with open_transport(tls=trust) as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve, door)
            large = b"a" * 32 * 1024 * 1024
            async with transport.send("POST", url, {}, large, connect=5.0) as answer:
                assert [piece async for piece in answer.pieces()] == [b"ok"]
            over.set()
            assert not any(transport._idle.values())


@pytest.mark.parametrize("phase", ["headers", "body"])
async def test_over_tls_too_a_cancel_hangs_up_at_once(phase):
    trust, context = both_sides()
    over = threading.Event()

    def serve(door):
        with context.wrap_socket(door.accept()[0], server_side=True) as line:
            line.recv(65536)
            if phase == "body":
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hi\n\n")
            # It takes everything and says nothing, not even good-bye.
            over.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        async with open_transport(tls=trust) as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve, door)
            with anyio.move_on_after(0.3):
                await ask(transport, f"https://127.0.0.1:{port}")
            await anyio.sleep(0.1)
            left = [
                line
                for line in psutil.Process().net_connections()
                if line.raddr and line.raddr.port == port
            ]
            over.set()
    assert left == []
