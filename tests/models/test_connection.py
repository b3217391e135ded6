"""What comes back on a connection, byte by byte, on real sockets."""

import asyncio
import gzip
import socket
import struct
import threading
import zlib
from contextlib import aclosing, asynccontextmanager

import anyio
import psutil
import pytest

from holdfast.errors import ModelUnavailable
from holdfast.models import connection, http
from holdfast.models.connection import Connection
from holdfast.models.http import open_transport

pytestmark = pytest.mark.real_time


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request, loop_of_c):
    """The server runs on the one, and whoever uses the library perhaps on the other."""
    return "asyncio", {"use_uvloop": request.param}


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


@asynccontextmanager
async def endpoint(*answers, stay=True):
    """Gives each request on a connection the next of these answers, in its pieces.

    It hangs up after the last, unless it is to `stay`. Yields its address, the heads of the
    requests, and for each connection when it has ended.
    """
    heads, met, left = [], [], []

    async def serve(reader, writer):
        met.append(writer)
        gone = anyio.Event()
        left.append(gone)
        try:
            while len(heads) < len(answers):
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                for piece in answers[len(heads) - 1]:
                    writer.write(piece)
                    await writer.drain()
                    await anyio.sleep(0.01)
            if stay:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            gone.set()
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1", heads, left


async def ask(transport, url, *, method="POST", headers=(), body=b""):
    async with (
        transport.send(method, url, dict(headers), body, connect=5.0) as answer,
        aclosing(answer.pieces()) as pieces,
    ):
        return answer.status, answer.headers, b"".join([piece async for piece in pieces])


async def answer_to(*pieces, stay=True):
    async with endpoint(pieces, stay=stay) as (url, _, _), open_transport() as transport:
        return await ask(transport, url)


@pytest.mark.parametrize(
    "pieces",
    [
        [SIZED + b"ok"],
        [SIZED, b"o", b"k"],
        [b"HTTP/1.1 2", b"00 OK\r\nContent-Le", b"ngth: 2\r", b"\n\r\nok"],
        [CHUNKED + b"2\r\nok\r\n0\r\n\r\n"],
        [CHUNKED, b"1\r\no\r", b"\n1;some=thing\r\nk\r\n0\r\nX-Late: yes\r\n", b"\r\n"],
        [b"HTTP/1.1 100 Continue\r\nX-Early: yes\r\n\r\n", SIZED, b"ok"],
        [b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + SIZED + b"ok"],
    ],
)
async def test_an_answer_is_the_same_however_it_is_cut(pieces):
    status, headers, body = await answer_to(*pieces)
    assert (status, body) == (200, b"ok")
    assert not headers.keys() & {"x-late", "x-early", "link"}


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
async def test_an_answer_that_says_not_how_long_it_is_ends_with_the_connection(head):
    assert (await answer_to(head, b"all ", b"of it", stay=False))[2] == b"all of it"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"],
        [CHUNKED + b"2\r\nok\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-"],
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
        [],
    ],
)
async def test_an_answer_that_breaks_off_is_never_taken_for_a_whole_one(pieces):
    with pytest.raises(ModelUnavailable, match=r"lost the connection.*it hung up"):
        await answer_to(*pieces, stay=False)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"SSH-2.0-OpenSSH_9.9\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok"],
        [CHUNKED + b"zz\r\nok\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"],
    ],
)
async def test_what_is_not_http_is_said_to_be_none(pieces):
    with pytest.raises(ModelUnavailable, match="is not HTTP"):
        await answer_to(*pieces)


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: of the same\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"more of the same"),
        (CHUNKED + b"2\r\nok\r\n0\r\nX-Late: ", b"more of the same"),
        (CHUNKED + b"2;x=", b"more of the same"),
    ],
)
async def test_what_never_comes_to_a_body_is_given_up_on(before, endless):
    flood = endless * (connection.MOST_BARE // len(endless))
    with pytest.raises(ModelUnavailable, match=r"nothing of a body|is not HTTP"):
        await answer_to(before, *[flood] * 8)


@pytest.mark.parametrize("more", [b"", b"Content-Length: 2\r\n"])
async def test_an_answer_that_would_be_another_protocol_is_an_answer_and_the_last(more):
    switch = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n" + more + b"\r\n"
    async with endpoint([switch], [SIZED + b"me"]) as (url, _, left):
        async with open_transport() as transport:
            status, _, body = await ask(transport, url)
            assert (status, body) == (101, b"")
            assert (await ask(transport, url))[2] == b"me"
            assert len(left) == 2


async def test_a_number_that_no_answer_has_is_the_end_all_the_same():
    with anyio.fail_after(5):
        assert (await answer_to(b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok"))[0] == 99


PACKED = {"gzip": gzip.compress(b"words " * 50_000), "deflate": zlib.compress(b"words " * 50_000)}


@pytest.mark.parametrize("packed", PACKED)
async def test_what_was_packed_unasked_is_unpacked_in_bounded_pieces(packed):
    body = PACKED[packed]
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    answer = head % (packed.encode(), len(body)) + body
    async with endpoint([answer]) as (url, _, _), open_transport() as transport:
        async with (
            transport.send("POST", url, {}, b"", connect=5.0) as answer,
            aclosing(answer.pieces()) as pieces,
        ):
            sizes = [len(piece) async for piece in pieces]
    assert sum(sizes) == 300_000 and max(sizes) <= connection.PIECE


def packed_as(kind, body):
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("br", b"ok", "packed as br"),
        ("gzip", b"ok", "lost"),
        ("gzip", gzip.compress(b"ok")[:-1], "breaks off"),
        ("gzip", gzip.compress(b"ok") + bytes(100), "lost"),
    ],
    ids=["unknown", "not packed", "cut", "with more behind it"],
)
async def test_what_cannot_be_unpacked_is_an_error(kind, body, why):
    with pytest.raises(ModelUnavailable, match=why):
        await answer_to(packed_as(kind, body))


@pytest.mark.parametrize(
    ("kind", "body", "unpacked"),
    [
        ("gzip", gzip.compress(b"one ") + gzip.compress(b"two"), b"one two"),
        ("gzip", gzip.compress(b"") * 5000 + gzip.compress(b"ok"), b"ok"),
        ("gzip", b"", b""),
        ("gzip \t", gzip.compress(b"ok"), b"ok"),
        ("", b"ok", b"ok"),
    ],
    ids=["two members", "many members", "nothing", "with a gap", "not packed"],
)
async def test_what_was_packed_is_unpacked_to_its_end(kind, body, unpacked):
    assert (await answer_to(packed_as(kind, body)))[2] == unpacked


@pytest.mark.parametrize(
    "first",
    [
        # It says that it will hang up.
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        # What nobody asked for came along, and might be taken for the next answer.
        SIZED + b"ok" + SIZED + b"no",
        SIZED + b"ok" + b"rubbish",
    ],
)
async def test_a_connection_that_is_not_clean_is_not_used_again(first):
    async with endpoint([first], [SIZED + b"me"]) as (url, _, left):
        async with open_transport() as transport:
            assert (await ask(transport, url))[2] == b"ok"
            assert (await ask(transport, url))[2] == b"me"
            assert len(left) == 2


async def test_an_answer_that_says_not_how_long_it_is_is_not_whole_when_the_line_breaks():
    def serve():
        line, _ = door.accept()
        line.recv(65536)
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        # Sooner, and the system would forget what it has not passed on.
        over.wait(20)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.close()

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with open_transport() as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve)
            url = f"http://127.0.0.1:{door.getsockname()[1]}"
            async with (
                transport.send("POST", url, {}, b"", connect=5.0) as answer,
                aclosing(answer.pieces()) as pieces,
            ):
                assert await anext(pieces) == b"half"
                over.set()
                with pytest.raises(ModelUnavailable, match="lost the connection"):
                    await anext(pieces)


async def test_a_connection_in_use_is_not_let_go_because_it_once_was_idle(monkeypatch):
    monkeypatch.setattr(http, "KEPT", 0.1)
    slow = [CHUNKED, *[b"1\r\na\r\n"] * 25, b"0\r\n\r\n"]
    async with endpoint([SIZED + b"ok"], slow) as (url, _, left), open_transport() as transport:
        await ask(transport, url)
        assert (await ask(transport, url))[2] == b"a" * 25
        assert len(left) == 1


async def test_a_connection_that_is_closing_is_not_used_again():
    async with endpoint([SIZED + b"ok"], [SIZED + b"me"]) as (url, _, left):
        async with open_transport() as transport:
            await ask(transport, url)
            (idle,) = transport._open
            idle.hang_up()
            assert (await ask(transport, url))[2] == b"me"
            assert len(left) == 2


def lines_to(url):
    port = int(url.split(":")[2].split("/")[0])
    lines = psutil.Process().net_connections()
    return [line for line in lines if line.raddr and line.raddr.port == port]


async def test_a_transport_that_was_closed_has_no_connections():
    async with endpoint([SIZED + b"ok"]) as (url, _, _):
        async with open_transport() as transport:
            await ask(transport, url)
            assert lines_to(url)
        assert lines_to(url) == []


async def test_a_call_ends_with_the_transport():
    async with endpoint([CHUNKED + b"2\r\nok\r\n"]) as (url, _, _):
        async with (
            open_transport() as transport,
            transport.send("POST", url, {}, b"", connect=5.0) as answer,
            aclosing(answer.pieces()) as pieces,
        ):
            await anext(pieces)
            await transport.close()
            with pytest.raises(ModelUnavailable):
                await anext(pieces)


async def test_what_comes_between_two_requests_ends_the_connection():
    async with endpoint([SIZED + b"ok", SIZED + b"no"], [SIZED + b"me"]) as (url, _, left):
        async with open_transport() as transport:
            assert (await ask(transport, url))[2] == b"ok"
            # Well before it would be let go for its age.
            with anyio.fail_after(5):
                await left[0].wait()
            assert (await ask(transport, url))[2] == b"me"


@pytest.mark.parametrize("stray", [SIZED + b"no", b""], ids=["an answer", "the end"])
async def test_what_a_busy_loop_has_not_told_of_is_not_taken_for_an_answer(stray):
    said = threading.Event()

    def serve():
        first, _ = door.accept()
        with first:
            first.recv(65536)
            first.sendall(SIZED + b"ok")
            said.wait(20)
            first.sendall(stray)
            first.shutdown(socket.SHUT_WR)
            said.clear()
            second, _ = door.accept()
            with second:
                second.recv(65536)
                second.sendall(SIZED + b"me")

    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(5)
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        async with open_transport() as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve)
            assert (await ask(transport, url))[2] == b"ok"
            said.set()
            while said.is_set():
                pass  # the loop hears of nothing
            assert (await ask(transport, url))[2] == b"me"


async def test_a_connection_that_the_other_side_closed_is_not_used_again():
    async with endpoint([SIZED + b"ok"], stay=False) as (url, heads, left):
        async with open_transport() as transport:
            await ask(transport, url)
            await left[0].wait()
            await anyio.sleep(0.05)
            with pytest.raises(ModelUnavailable):
                await ask(transport, url)
            # The second came on a connection of its own.
            assert len(left) == 2 and len(heads) == 1


async def test_an_idle_connection_is_let_go_after_its_time(monkeypatch):
    monkeypatch.setattr(http, "KEPT", 0.05)
    async with endpoint([SIZED + b"ok"], [SIZED + b"ok"]) as (url, _, left):
        async with open_transport() as transport:
            await ask(transport, url)
            with anyio.fail_after(5):
                await left[0].wait()
            assert not any(transport._idle.values())


async def test_a_request_that_is_answered_before_it_is_sent_does_not_lend_its_connection():
    large = b"a" * 32 * 1024 * 1024
    async with endpoint([SIZED + b"ok"], [SIZED + b"me"]) as (url, _, left):
        async with open_transport() as transport:
            assert (await ask(transport, url, body=large))[2] == b"ok"
            assert (await ask(transport, url))[2] == b"me"
            assert len(left) == 2


@pytest.mark.parametrize("whole", [True, False])
async def test_an_answer_ends_though_the_request_is_still_to_be_read(whole):
    over = threading.Event()

    def serve():
        with door.accept()[0] as line:
            line.recv(1024)
            line.sendall(b"HTTP/1.1 200 OK\r\n\r\nwhole" if whole else SIZED + b"o")
            line.shutdown(socket.SHUT_WR)
            over.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        async with open_transport() as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, serve)
            try:
                with anyio.fail_after(5):
                    said = (await ask(transport, url, body=b"a" * 32 * 1024 * 1024))[2]
            except ModelUnavailable as error:
                said = str(error)
            finally:
                over.set()
    assert said == b"whole" if whole else "it hung up" in said


async def test_a_request_on_a_line_that_is_no_more_fails_at_once():
    async with endpoint([SIZED + b"ok"]) as (url, _, _):
        loop, gone = asyncio.get_running_loop(), anyio.Event()
        address = ("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        _, line = await loop.create_connection(lambda: Connection(lambda _: gone.set()), *address)
        line.hang_up()
        await gone.wait()
        with anyio.fail_after(5), pytest.raises(ModelUnavailable, match="it hung up"):
            await line.ask(b"GET / HTTP/1.1\r\n\r\n", b"").begun()


class Line(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def is_closing(self):
        return False

    def writelines(self, list_of_data):
        self.parts += list_of_data


def test_nothing_is_never_written():
    # From 3.12 on asyncio would try again and again to send it, and never hear of the end.
    line, connection = Line(), Connection(lambda _: None)
    connection.connection_made(line)
    connection.ask(b"head", b"")
    assert line.parts == [b"head"]


async def test_the_request_is_one_that_every_server_understands():
    async with endpoint([SIZED + b"ok"], [SIZED + b"ok"]) as (url, heads, _):
        async with open_transport() as transport:
            odd = {"Transfer-Encoding": "chunked", "X-Name": "café", "User-Agent": "mine"}
            await ask(transport, f"{url}/a path/é?q=a b", headers=odd, body=b"{}")
            await ask(transport, url, method="GET")
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/a%20path/%C3%A9?q=a%20b HTTP/1.1"
    assert {"X-Name: café", "User-Agent: mine", "Content-Length: 2"} < set(lines)
    assert "chunked" not in heads[0].decode()
    assert b"User-Agent: holdfast" in heads[1] and b"Host: 127.0.0.1:" in heads[1]


@pytest.mark.parametrize(
    "headers",
    [{"X-A": "a\r\nX-B: b"}, {"X-A:": "a"}, {"": "a"}, {"X A": "a"}, {"X-A": "\udc80"}],
    ids=ascii,
)
async def test_a_header_that_is_none_is_not_sent(headers):
    async with endpoint([SIZED + b"ok"]) as (url, heads, _), open_transport() as transport:
        with pytest.raises(ModelUnavailable, match="cannot be sent"):
            await ask(transport, url, headers=headers)
        assert heads == []
