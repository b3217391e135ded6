import asyncio
import socket
import time

import anyio
import hypothesis
import pytest
from hypothesis import strategies as st

from holdfast.testing.virtual_time import VirtualTimeLoop

# Set aside for documentation: nobody answers there.
ELSEWHERE = "192.0.2.1"


async def test_time_is_virtual_by_default():
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


@pytest.mark.real_time
async def test_a_test_can_ask_for_real_time():
    began = time.monotonic()
    await anyio.sleep(0.01)
    assert time.monotonic() - began >= 0.01


@hypothesis.given(st.integers(1, 1000))
async def test_each_example_of_a_property_starts_its_own_clock(seconds):
    await anyio.sleep(seconds)
    assert anyio.current_time() == seconds


def test_a_socket_may_not_leave_this_machine():
    with (
        socket.socket() as connection,
        pytest.raises(RuntimeError, match=r"may not reach 192\.0\.2\.1"),
    ):
        connection.connect((ELSEWHERE, 80))


def test_a_datagram_may_not_leave_this_machine():
    with (
        socket.socket(type=socket.SOCK_DGRAM) as connection,
        pytest.raises(RuntimeError, match="may not reach"),
    ):
        connection.sendto(b"hello", (ELSEWHERE, 80))


def test_a_name_may_not_be_looked_up():
    with pytest.raises(RuntimeError, match=r"may not reach example\.com"):
        socket.getaddrinfo("example.com", 80)


async def test_a_stream_may_not_leave_this_machine():
    with pytest.raises(RuntimeError, match="may not reach"):
        await asyncio.open_connection(ELSEWHERE, 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_open(host):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection((host, server.getsockname()[1])),
    ):
        pass


@pytest.mark.real_time
async def test_loopback_is_open_to_a_stream():
    listener = await anyio.create_tcp_listener(local_host="localhost", family=socket.AF_INET)
    async with listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        stream = await anyio.connect_tcp("::ffff:127.0.0.1", port)
        await stream.aclose()
