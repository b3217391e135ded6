import socket
from contextlib import asynccontextmanager, contextmanager

import anyio
import msgspec
import pytest

from holdfast.testing.connection import Connection, Received, head

pytestmark = pytest.mark.real_time


@contextmanager
def ends():
    """Both ends of a connection: theirs is a plain socket, ours a line."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        theirs = socket.create_connection(door.getsockname())
        ours, _ = door.accept()
    with theirs, ours:
        yield theirs, Connection(ours)


@asynccontextmanager
async def heard(sent):
    with ends() as (theirs, line):
        theirs.sendall(sent)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.listen)
            yield theirs, line
            tasks.cancel_scope.cancel()


async def test_requests_are_read_one_after_another_however_they_arrive():
    first = b'POST /v1/x HTTP/1.1\r\nContent-Length: 8\r\nX-Odd:  a:b \r\n\r\n{"a": 1}'
    async with heard(first + b"GET /v1/models HT") as (theirs, line):
        assert await line.request() == Received(
            "POST", "/v1/x", {"content-length": "8", "x-odd": "a:b"}, {"a": 1}
        )
        theirs.sendall(b"TP/1.1\r\n\r\n")
        assert await line.request() == Received("GET", "/v1/models", {}, {})


async def test_a_body_is_waited_for():
    async with heard(b"POST /x HTTP/1.1\r\nContent-Length: 8\r\n\r\n") as (theirs, line):
        with anyio.move_on_after(0.02) as scope:
            await line.request()
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]",
        b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{x",
        b'POST /x HTTP/1.1\r\nContent-Length: 7\r\n\r\n{"\xff":1}',
    ],
)
async def test_what_is_no_request_is_refused(sent):
    async with heard(sent) as (_, line):
        with pytest.raises((ValueError, msgspec.DecodeError)):
            await line.request()


async def test_listening_ends_when_the_other_side_closes_or_resets():
    with ends() as (theirs, line):
        theirs.close()
        await line.listen()
    with ends() as (theirs, line):
        Connection(theirs).close_with_a_reset()
        theirs.close()
        await line.listen()


async def test_a_line_that_is_to_be_reset_is_when_it_closes():
    with ends() as (theirs, line):
        line.close_with_a_reset()
        line.sock.close()
        with pytest.raises(ConnectionResetError):
            theirs.recv(1)


async def test_sending_waits_for_a_slow_reader():
    size = 20_000_000
    got = 0
    with ends() as (theirs, line):
        theirs.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.send, bytes(size))
            while got < size:
                await anyio.wait_readable(theirs)
                got += len(theirs.recv(1 << 20))
    assert got == size


async def test_sending_to_who_is_gone_leaves_it_to_the_listener():
    with ends() as (theirs, line):
        Connection(theirs).close_with_a_reset()
        theirs.close()
        with anyio.move_on_after(0.02) as scope:
            await line.send(b"hello")
        assert scope.cancelled_caught


def test_a_status_nobody_has_heard_of_has_a_name_too():
    assert head(200, {"A": "b"}) == b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
    assert head(529, {}) == b"HTTP/1.1 529 Unknown\r\n\r\n"
