"""A server under a limit of open files, of which each connection is one."""

import asyncio
import resource

import anyio
import pytest

from holdfast.server.files import MOST, RESERVED, allow_many, for_callers
from tests.server.conftest import SERVE


def limited(how):
    """The command of a server that begins with no more than this."""
    return ("/bin/bash", "-c", f'ulimit {how} && exec "$@"', "bash", *SERVE)


@pytest.fixture
def own_limit():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_files_are_allowed_as_the_system_lets_us(own_limit):
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, own_limit))
    many = allow_many()
    assert many == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(own_limit, MOST)
    # Who may have more already keeps it.
    assert allow_many() == many


def test_half_of_what_is_no_journal_is_for_who_calls():
    assert (for_callers(RESERVED + 200), for_callers(RESERVED + 1), for_callers(10)) == (100, 1, 1)


@pytest.mark.real_time
async def test_a_server_that_begins_with_few_files_takes_what_it_may_have(server):
    await server.start(command=limited("-Sn 80"))
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, MOST) and not server.log


@pytest.mark.real_time
async def test_who_comes_when_there_is_no_connection_left_is_told_so_and_runs_go_on(server):
    await server.start(command=limited(f"-n {RESERVED + 40}"))
    assert "no more than 104 files may be open" in server.log
    port = int(server.url.rpartition(":")[2])
    lines = []
    try:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lines.append(writer)
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines.append(writer)
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 429") and b"as many connections as it may have" in told
    finally:
        for writer in lines:
            writer.close()
            await writer.wait_closed()
    with anyio.fail_after(10):
        while (await server.get("/health")).status != 200:
            await anyio.sleep(0.01)
    await server.reached(await server.run(), "waiting_for_approval")
