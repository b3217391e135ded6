"""A script does the same to the bytes with a socket and without."""

from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from holdfast.errors import ModelUnavailable
from holdfast.models.http import open_transport
from holdfast.testing.endpoint import (
    Answer,
    Drip,
    Finish,
    Hangup,
    NoHeaders,
    Pings,
    Raw,
    Reset,
    open_endpoint,
)
from holdfast.testing.scripted import Ack, Call, CutOff, Silence, Think
from holdfast.testing.transport import ScriptedTransport

BODY = b'{"model": "m", "stream": true, "stream_options": {"include_usage": true}}'
PATHS = ("/chat/completions", "/responses", "/messages")


@asynccontextmanager
async def with_a_socket(*scripts):
    async with open_endpoint(*scripts) as endpoint, open_transport() as transport:
        yield transport, endpoint.url


@asynccontextmanager
async def without(*scripts):
    yield ScriptedTransport(*scripts), "http://model/v1"


async def read(transport, url, body=BODY):
    """All that can be read, and how it ended."""
    got = bytearray()
    try:
        async with transport.send("POST", url, {"X-Odd": "1"}, body, connect=5.0) as answer:
            kind = answer.headers.get("content-type")
            async with aclosing(answer.pieces()) as pieces:
                async for piece in pieces:
                    got += piece
            return answer.status, kind, bytes(got), "ended"
    except ModelUnavailable as error:
        return None, None, bytes(got), error.reason


@pytest.mark.real_time
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "script",
    [
        ["Hel", "lo"],
        [Think("Hm."), Call("pay", '{"euro": 5}'), Call("pay", "{}")],
        [Ack(), Silence(0.01), "a", Finish("length")],
        [NoHeaders(), Silence(0.01), "a"],
        [NoHeaders(), Reset()],
        [Reset()],
        ["a", CutOff()],
        ["a", Hangup()],
        [Raw(b"nonsense\n\n"), "a"],
        [Answer(429, "later", {"Retry-After": "1", "Content-Type": "text/plain"})],
        [Silence(0.01), Answer(500, b"{}")],
        [Answer(200, "<p>", {"Content-Type": "text/html"})],
    ],
    ids=str,
)
async def test_a_script_says_the_same_both_ways(path, script):
    heard = []
    for way in (with_a_socket, without):
        async with way(script) as (transport, url):
            heard.append(await read(transport, url + path))
    assert heard[0] == heard[1]


@pytest.mark.real_time
async def test_one_body_is_the_same_both_ways():
    whole = BODY.replace(b"true", b"false", 1)
    heard = []
    for way in (with_a_socket, without):
        async with way(["Hello"]) as (transport, url):
            heard.append(await read(transport, f"{url}/messages", whole))
    assert heard[0] == heard[1] and heard[0][1] == "application/json"


async def test_scripts_are_used_up_and_the_last_is_kept():
    transport = ScriptedTransport(["a"], ["b"])
    bodies = [(await read(transport, "http://m/v1/messages"))[2] for _ in range(3)]
    assert b'"a"' in bodies[0] and bodies[1] == bodies[2] and b'"b"' in bodies[1]
    assert [request.headers["x-odd"] for request in transport.requests] == ["1"] * 3


async def test_a_script_may_be_a_function_of_the_request():
    transport = ScriptedTransport(lambda request: [request.body["model"]])
    assert b'"m"' in (await read(transport, "http://m/v1/chat/completions"))[2]


async def test_without_a_script_there_is_an_empty_reply():
    assert (await read(ScriptedTransport(), "http://m/v1/messages"))[0] == 200


async def test_pings_go_on_until_somebody_leaves():
    transport = ScriptedTransport([Pings(every=1.0)])
    with anyio.move_on_after(10.5):
        await read(transport, "http://m/v1/chat/completions")
    assert (anyio.current_time(), transport.open) == (10.5, 0)


async def test_a_drip_is_a_byte_at_a_time():
    quick, slow = ScriptedTransport(["a"]), ScriptedTransport([Drip(0.5), "a"])
    whole = await read(quick, "http://m/v1/messages")
    assert await read(slow, "http://m/v1/messages") == whole
    assert anyio.current_time() == 0.5 * len(whole[2])
