"""A line is guarded before there is a request and behind one, on real sockets."""

import anyio
import pytest

from tests.server.guarded import (
    BEARER,
    JSON,
    SAFE,
    answer,
    connected,
    length,
    request,
    serving,
)

pytestmark = pytest.mark.real_time

CHUNKED = (JSON, "Transfer-Encoding: chunked")


async def slow(scope, receive, send):
    """Takes three times as long as a head may."""
    await anyio.sleep(0.3)
    await answer(send, 200, b"well")


@pytest.mark.parametrize("endless", [b"X: y\r\n" * 500, b"y" * 3000])
async def test_a_head_that_never_ends_is_not_held(endless):
    async with serving() as here, connected(here) as client:
        await client.write(b"GET /health HTTP/1.1\r\nX: ")
        with pytest.raises(anyio.BrokenResourceError):
            for _ in range(100):
                await client.write(endless)
                await anyio.sleep(0.005)


async def test_whoever_sends_too_long_a_head_is_told():
    async with serving() as here, connected(here) as client:
        await client.write(b"GET /health HTTP/1.1\r\nX: ")
        await anyio.sleep(0.05)
        await client.write(b"y" * 16_385)
        found = await client.read()
        assert (found.status, found.error["code"]) == (431, "headers_too_large")
        assert found.headers.items() >= SAFE.items()
        assert await client.closed()


@pytest.mark.parametrize("begun", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: local"])
async def test_a_head_that_does_not_arrive_is_not_waited_for(begun):
    async with serving(head=0.1) as here, connected(here) as client:
        if begun:
            await client.write(begun)
        found = await client.read()
        assert (found.status, found.error["code"]) == (408, "head_timeout")
        assert await client.closed()


async def test_a_second_head_on_a_line_has_as_long_as_the_first():
    async with serving(head=0.1) as here, connected(here) as client:
        await client.write(request("/health"))
        assert (await client.read()).status == 200
        await anyio.sleep(0.2)
        await client.write(request("/health") + b"GET /he")
        assert (await client.read()).status == 200
        assert (await client.read()).status == 408


async def test_blank_lines_are_no_head():
    async with serving(head=0.1) as here, connected(here) as client:
        await client.write(request("/health"))
        assert (await client.read()).status == 200
        await client.write(b"\r\n")
        found = await client.read()
        assert (found.status, found.error["code"]) == (408, "head_timeout")
        assert await client.closed()


async def test_half_a_head_behind_a_long_answer_is_not_waited_for_once_that_is_given():
    async with serving(served=slow, head=0.1) as here, connected(here) as client:
        await client.write(request("/", BEARER) + b"GET /he")
        assert (await client.read()).status == 200
        await client.write(b"a")
        assert (await client.read()).status == 408
        assert await client.closed()


async def test_half_a_head_does_not_end_a_stream():
    async with serving(head=0.1) as here, connected(here) as client:
        await client.write(request("/events?hold", BEARER) + b"GET /he")
        await client._until(b"data: 1\n\n")
        with anyio.move_on_after(0.3) as nothing_came:
            await client._more()
        assert nothing_came.cancelled_caught


async def test_rubbish_behind_a_request_is_not_answered_into_its_stream():
    async with serving() as here, connected(here) as client:
        await client.write(request("/events?hold", BEARER))
        await client._until(b"data: 1\n\n")
        await client.write(b"\0rubbish\r\n\r\n")
        with pytest.raises(EOFError) as cut:
            await client.read()
        assert cut.value.args == (b"data: 1\n\n",)


async def test_who_hangs_up_with_more_on_the_line_is_gone_for_what_is_being_answered():
    async with serving() as here:
        async with connected(here) as client:
            await client.write(request("/events?hold", BEARER) + request("/echo", BEARER))
            await client._until(b"data: 1\n\n")
            assert len(here.server.server_state.tasks) == 1
        with anyio.fail_after(5):
            while here.server.server_state.tasks:
                await anyio.sleep(0.01)


async def test_two_requests_on_one_line_are_two():
    async with serving() as here, connected(here) as client:
        posted = request("/echo", BEARER, JSON, length(2), method="POST", body=b"{}")
        await client.write(posted + request("/echo", BEARER) + request("/echo"))
        assert (await client.read()).told["body"] == 2
        assert (await client.read()).told["body"] == 0
        assert (await client.read()).status == 401
        await client.write(request("/health"))
        assert (await client.read()).status == 200


async def test_blanks_around_what_a_header_says_are_no_part_of_it():
    async with serving() as here, connected(here) as client:
        head = (f"{BEARER} \t", "X-Told:  a b \t ", "X-Empty: \t")
        await client.write(request("/headers", *head, host="Host: localhost\t"))
        found = (await client.read()).told
        assert found["host"] == "localhost" and found["x-told"] == "a b"
        assert found["x-empty"] == ""


# --- to speak something else


UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")


@pytest.mark.parametrize("pause", [0.0, 0.05])
@pytest.mark.parametrize(
    ("how", "body"), [(length(9), b'{"a": 12}'), (CHUNKED[1], b'9\r\n{"a": 12}\r\n0\r\n\r\n')]
)
async def test_a_request_that_would_rather_be_spoken_otherwise_keeps_its_body(how, body, pause):
    async with serving() as here, connected(here) as client:
        asked = request("/echo", BEARER, JSON, how, *UPGRADE, method="POST")
        for _ in range(2):
            await client.write(asked)
            await anyio.sleep(pause)
            await client.write(body)
            assert (await client.read()).told["body"] == 9


async def test_a_body_is_never_taken_for_the_next_request():
    async with serving() as here, connected(here) as client:
        hidden = request("/headers", BEARER)
        posted = request("/echo", BEARER, JSON, length(len(hidden)), *UPGRADE, method="POST")
        await client.write(posted + hidden + request("/health"))
        assert (await client.read()).told["body"] == len(hidden)
        assert (await client.read()).body == b"well"


async def test_many_such_requests_in_one_go_are_all_answered():
    async with serving() as here, connected(here) as client:
        await client.write(request("/headers", BEARER, *UPGRADE) * 200)
        for _ in range(200):
            assert (await client.read()).told["upgrade"] == "h2c"


@pytest.mark.parametrize("target", ["localhost:80", "/echo", "*"])
async def test_a_request_to_be_tunnelled_is_refused(target):
    async with serving() as here, connected(here) as client:
        await client.write(request(target, BEARER, method="CONNECT"))
        found = await client.read()
        assert (found.status, found.error["code"]) == (400, "invalid_http")
        assert await client.closed()


# --- behind a body


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_what_comes_behind_a_body_is_no_header_however_it_comes(pause):
    async with serving() as here, connected(here) as client:
        await client.write(request("/headers", BEARER, *CHUNKED, method="POST"))
        await client.write(b"2\r\n{}\r\n0\r\n")
        await anyio.sleep(pause)
        await client.write(b"Host: evil.example\r\nX-Told: late\r\n\r\n")
        found = await client.read()
        assert found.status == 200
        assert found.told["host"] == "localhost" and "x-told" not in found.told
        # And the line can be used again, by who has headers of their own.
        await client.write(request("/headers", BEARER, "X-Told: in time"))
        assert (await client.read()).told["x-told"] == "in time"


async def test_a_key_behind_the_body_opens_nothing():
    async with serving(linger=0.1) as here, connected(here) as client:
        body = f"2\r\n{{}}\r\n0\r\n{BEARER}\r\n\r\n".encode()
        await client.write(request("/echo", *CHUNKED, method="POST", body=body))
        assert (await client.read()).status == 401


@pytest.mark.parametrize("behind", [b"X: y\r\n" * 500, b"y" * 3000, b"2;" + b"y" * 3000])
@pytest.mark.parametrize(("key", "status"), [((BEARER,), 431), ((), 401)])
async def test_what_comes_behind_a_body_has_an_end(key, status, behind):
    async with serving() as here, connected(here) as client:
        await client.write(request("/echo", *key, *CHUNKED, method="POST"))
        await client.write(b"2\r\n{}\r\n" + (b"" if behind[:1] == b"2" else b"0\r\nX: "))
        with pytest.raises(anyio.BrokenResourceError):
            for _ in range(100):
                await client.write(behind)
                behind = behind.removeprefix(b"2;")
                await anyio.sleep(0.005)
        found = await client.read()
        assert found is None or found.status == status


# --- behind a request


@pytest.mark.parametrize("rubbish", [b"rubbish\r\n\r\n", b"\0", b"GET / HTTP/9.9\r\n\r\n"])
async def test_a_whole_request_is_answered_whatever_rubbish_is_behind_it(rubbish):
    async with serving() as here, connected(here) as client:
        whole = request("/echo", BEARER, JSON, length(2), method="POST", body=b"{}")
        await client.write(whole + rubbish)
        assert (await client.read()).told["body"] == 2
        assert await client.closed()


async def test_of_many_requests_those_before_the_rubbish_are_answered():
    async with serving() as here, connected(here) as client:
        await client.write(request("/echo", BEARER) * 3 + b"rubbish\r\n\r\n" * 1000)
        for _ in range(3):
            assert (await client.read()).status == 200
        assert await client.closed()


@pytest.mark.parametrize("whole", [1, 3])
async def test_a_request_that_is_rubbish_is_not_answered_before_those_ahead_of_it(whole):
    async with serving() as here, connected(here) as client:
        rubbish = request("/echo", BEARER, *CHUNKED, method="POST", body=b"rubbish\r\n")
        await client.write(request("/echo", BEARER) * whole + rubbish)
        for _ in range(whole):
            assert (await client.read()).status == 200
        assert await client.closed()


async def test_nor_is_it_answered_into_their_stream():
    async with serving() as here, connected(here) as client:
        await client.write(request("/events?hold", BEARER))
        await client._until(b"data: 1\n\n")
        await client.write(request("/echo", *CHUNKED, method="POST", body=b"rubbish\r\n"))
        with pytest.raises(EOFError) as cut:
            await client.read()
        assert cut.value.args == (b"data: 1\n\n",)


async def test_a_request_that_is_rubbish_itself_is_refused():
    async with serving() as here, connected(here) as client:
        await client.write(request("/echo", BEARER, *CHUNKED, method="POST", body=b"rubbish\r\n"))
        found = await client.read()
        assert (found.status, found.error["code"]) == (400, "invalid_http")
        assert await client.closed()
