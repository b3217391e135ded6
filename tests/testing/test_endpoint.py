"""The endpoint does what its scripts say, as seen by a client that knows nothing but sockets."""

import json
import socket
import time
from contextlib import asynccontextmanager

import anyio
import pytest

from holdfast.core.usage import Usage
from holdfast.testing.endpoint import (
    Answer,
    Drip,
    End,
    Finish,
    Hangup,
    NoHeaders,
    Pings,
    Raw,
    Reset,
    open_endpoint,
)
from holdfast.testing.scripted import Ack, Call, CutOff, Silence, Think

pytestmark = pytest.mark.real_time

#: The last thing in a proper stream, and the sign that the reason to finish is there.
LAST = {
    "/chat/completions": "data: [DONE]",
    "/responses": "event: response.completed",
    "/messages": "event: message_stop",
}
REASON = {
    "/chat/completions": '"finish_reason":"stop"',
    "/responses": "event: response.completed",
    "/messages": "event: message_delta",
}


each_wire = pytest.mark.parametrize("wire", LAST)


class Client:
    """One connection to the endpoint."""

    def __init__(self, stream):
        self.stream = stream
        self._read = b""

    async def ask(self, path="/chat/completions", *, method="POST", headers="", **body):
        data = (
            json.dumps({"model": "m", "stream": True} | body).encode() if method == "POST" else b""
        )
        head = f"{method} /v1{path} HTTP/1.1\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
        await self.stream.send(head.encode() + data)

    async def head(self):
        status, *lines = (await self._until(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(status.split(" ")[1]), headers

    async def chunk(self):
        """The next chunk of the body; b"" is its end."""
        size = int(await self._until(b"\r\n"), 16)
        return (await self._take(size + 2))[:-2]

    async def body(self):
        """All of the body, to its proper end."""
        chunks = []
        while chunk := await self.chunk():
            chunks.append(chunk)
        return b"".join(chunks).decode()

    async def until(self, text):
        """Read on until the body holds this text."""
        seen = ""
        while text not in seen:
            seen += (await self.chunk()).decode()

    async def answer(self):
        """A whole answer that tells its length."""
        status, headers = await self.head()
        return status, headers, await self._take(int(headers["Content-Length"]))

    async def byte(self):
        return await self._take(1)

    async def _until(self, mark):
        while mark not in self._read:
            self._read += await self.stream.receive()
        return await self._take(self._read.index(mark) + len(mark))

    async def _take(self, size):
        while len(self._read) < size:
            self._read += await self.stream.receive()
        taken, self._read = self._read[:size], self._read[size:]
        return taken


def address(endpoint):
    host, port = endpoint.url.removeprefix("http://").removesuffix("/v1").split(":")
    return host, int(port)


@asynccontextmanager
async def calling(endpoint):
    async with await anyio.connect_tcp(*address(endpoint)) as stream:
        with anyio.fail_after(5):
            yield Client(stream)


@asynccontextmanager
async def asking(*script, wire="/chat/completions", **asked):
    """An endpoint, and a client whose first request is on its way."""
    async with open_endpoint(script) as endpoint, calling(endpoint) as client:
        await client.ask(wire, **asked)
        yield endpoint, client


async def nothing_comes(client, seconds=0.05):
    with anyio.move_on_after(seconds) as scope:
        await client.byte()
    return scope.cancelled_caught


# --- a reply


@each_wire
async def test_a_script_without_an_end_ends_as_it_should(wire):
    async with asking("Hel", "lo", wire=wire) as (endpoint, client):
        status, headers = await client.head()
        body = await client.body()
        assert (status, headers["Content-Type"]) == (200, "text/event-stream")
        assert body.index("Hel") < body.index('"lo"') < body.index(REASON[wire])
        assert body.strip().split("\n\n")[-1].startswith(LAST[wire])
    assert endpoint.closed == [None]


@each_wire
async def test_thoughts_and_calls_are_put_in_the_words_of_the_wire(wire):
    async with asking(Think("hmm"), Call("pay", '{"euro":5}', "call_a"), wire=wire) as (_, client):
        await client.head()
        body = await client.body()
    for words in ("hmm", '"pay"', "call_a", '{\\"eur"', 'o\\":5}"'):
        assert words in body


@each_wire
async def test_without_a_stream_the_same_script_is_one_body(wire):
    script = [Think("hmm"), "Hel", Silence(0), "lo", Call("pay", '{"euro":5}')]
    async with asking(*script, wire=wire, stream=False) as (_, client):
        status, headers = await client.head()
        assert (status, headers["Content-Type"]) == (200, "application/json")
        body = json.loads(await client.body())
        assert "Hello" in str(body) and body["usage"]


async def test_what_was_used_is_what_the_script_says():
    for usage in (Finish(usage=Usage(input=7)), End(usage=Usage(input=7))):
        async with asking("a", usage, stream=False) as (_, client):
            await client.head()
            assert json.loads(await client.body())["usage"]["prompt_tokens"] == 7


async def test_what_stands_after_an_end_is_not_said():
    async with asking("a", End(), "b") as (_, client):
        await client.head()
        assert '"b"' not in await client.body()


async def test_an_acknowledgement_is_the_opening_alone():
    async with asking(Ack(), Silence()) as (_, client):
        await client.head()
        assert b'"role":"assistant"' in await client.chunk()
        assert await nothing_comes(client)


async def test_raw_bytes_go_into_the_body_as_they_are_and_no_bytes_do_not_end_it():
    async with asking(Raw(b"\xff\x00"), Raw(b""), Raw(b"more")) as (_, client):
        await client.head()
        assert await client.chunk() == b"\xff\x00"
        assert await client.chunk() == b"more"


# --- many calls


async def test_each_script_is_one_call_and_the_last_serves_all_others():
    async with open_endpoint(["one"], ["two"]) as endpoint, calling(endpoint) as client:
        for said in ("one", "two", "two"):
            await client.ask()
            await client.head()
            assert f'"{said}"' in await client.body()


async def test_a_script_may_depend_on_the_request():
    def echo(request):
        return [request.body["model"]]

    async with open_endpoint(echo) as endpoint, calling(endpoint) as client:
        for name in ("ada", "bob"):
            await client.ask(model=name, stream=False)
            await client.head()
            body = json.loads(await client.body())
            assert body["choices"][0]["message"]["content"] == name


async def test_requests_are_remembered_as_they_came():
    async with open_endpoint() as endpoint, calling(endpoint) as client:
        await client.ask("/responses?odd=1", headers="X-Api-Key: abc\r\n")
        request = await endpoint.received()
        assert (request.method, request.path) == ("POST", "/v1/responses?odd=1")
        assert request.headers["x-api-key"] == "abc"
        assert request.body == {"model": "m", "stream": True}
        assert endpoint.requests == [request]


async def test_calls_are_answered_at_the_same_time_and_counted_while_they_are_open():
    async with open_endpoint([Silence()]) as endpoint:
        async with calling(endpoint) as one, calling(endpoint) as two:
            await one.ask()
            await two.ask()
            await one.head()
            await two.head()
            assert endpoint.open == 2
        await endpoint.hung_up(0)
        await endpoint.hung_up(1)
        with anyio.fail_after(5):
            while endpoint.open:
                await anyio.sleep(0.01)


async def test_a_client_that_asks_for_it_is_hung_up_on_after_the_answer():
    async with asking("a", headers="Connection: close\r\n") as (_, client):
        await client.head()
        await client.body()
        with pytest.raises(anyio.EndOfStream):
            await client.byte()


# --- faults

PHASES = {
    "before the headers": [NoHeaders()],
    "after the headers": [],
    "after the first piece": ["Hel"],
    "in the arguments": [Call("pay", '{"eu')],
    "after the reason": ["Hello", Finish()],
}

#: What has arrived by then, beside the headers.
SEEN = {"after the first piece": "Hel", "in the arguments": '{\\"'}

each_phase = pytest.mark.parametrize("phase", PHASES)


async def reach(client, wire, phase):
    """Read what comes before the fault."""
    if phase == "before the headers":
        return
    await client.head()
    if phase == "after the reason":
        await client.until(REASON[wire])
    elif phase in SEEN:
        await client.until(SEEN[phase])


@each_wire
@each_phase
async def test_silence_falls_where_it_stands(wire, phase):
    async with asking(*PHASES[phase], Silence(), wire=wire) as (endpoint, client):
        await reach(client, wire, phase)
        with anyio.move_on_after(0.02):
            await client.body()
        assert await nothing_comes(client, 0.02)
        assert endpoint.open == 1


@each_wire
@each_phase
async def test_a_reset_strikes_where_it_stands(wire, phase):
    async with asking(*PHASES[phase], Reset(), wire=wire) as (_, client):
        await reach(client, wire, phase)
        with pytest.raises(anyio.BrokenResourceError) as broken:
            while await client.byte():
                pass
        assert isinstance(broken.value.__cause__, ConnectionResetError)


@each_wire
@each_phase
async def test_a_hang_up_comes_where_it_stands_without_an_end_of_the_body(wire, phase):
    async with asking(*PHASES[phase], Hangup(), wire=wire) as (_, client):
        await reach(client, wire, phase)
        seen = b""
        with pytest.raises(anyio.EndOfStream):
            while True:
                seen += await client.byte()
        assert not seen.endswith(b"0\r\n\r\n")


@each_wire
@each_phase
async def test_a_stream_that_is_cut_off_ends_politely_without_its_end_marker(wire, phase):
    async with asking(*PHASES[phase], CutOff(), wire=wire) as (_, client):
        if phase == "before the headers":
            await client.head()
        await reach(client, wire, phase)
        rest = await client.body()
        assert LAST[wire] not in rest
        await client.ask(wire)
        assert (await client.head())[0] == 200


@each_wire
async def test_after_a_reason_to_finish_comes_nothing_of_what_follows_it(wire):
    async with asking("a", Finish("length"), CutOff(), wire=wire) as (_, client):
        await client.head()
        body = await client.body()
        assert any(word in body for word in ('"length"', "max_output_tokens", "max_tokens"))
        assert "[DONE]" not in body and "message_stop" not in body


async def test_silence_may_pass():
    begun = time.monotonic()
    async with asking("a", Silence(0.05), "b") as (_, client):
        await client.head()
        await client.until('"b"')
        assert time.monotonic() - begun >= 0.05


@pytest.mark.parametrize("step", [CutOff(), Hangup()])
async def test_a_single_body_breaks_off_in_the_middle(step):
    async with asking("Hello", step, stream=False) as (_, client):
        await client.head()
        body = (await client.chunk()).decode()
        assert body.startswith('{"id"') and not body.endswith("}")


async def test_a_hang_up_before_the_headers_of_a_single_body_sends_nothing():
    async with asking(NoHeaders(), Hangup(), stream=False) as (_, client):
        with pytest.raises(anyio.EndOfStream):
            await client.byte()


@pytest.mark.parametrize(
    ("wire", "plain", "empty"),
    [
        ("/chat/completions", ": keep-alive\n\n", '"delta":{"content":""}'),
        ("/responses", ": keep-alive\n\n", "event: response.in_progress\n"),
        ("/messages", "event: ping\n", '"text_delta","text":""'),
    ],
)
async def test_pings_go_on_for_ever_and_say_nothing(wire, plain, empty):
    for pings, words in [(Pings(0.005), plain), (Pings(0.005, empty=True), empty)]:
        async with asking("Hel", pings, wire=wire) as (_, client):
            await client.head()
            await client.until("Hel")
            for _ in range(5):
                assert words in (await client.chunk()).decode()


async def test_a_single_body_is_kept_alive_by_empty_lines():
    async with asking(Pings(0.005), stream=False) as (_, client):
        await client.head()
        assert [await client.chunk() for _ in range(3)] == [b"\n"] * 3


async def test_a_drip_is_a_byte_at_a_time_and_loses_none():
    begun = time.monotonic()
    async with asking(Drip(0.003), Raw(b"data: x\n\n"), CutOff()) as (_, client):
        await client.head()
        assert await client.chunk() == b"data: x\n\n"
        # A wait for each byte, the five around the chunk included.
        assert time.monotonic() - begun >= 0.003 * 14


# --- answers that are no reply


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(429, '{"error":{}}', {"Retry-After": "3"}), "application/json"),
        (Answer(500, "oh"), "application/json"),
        (Answer(200, b"<p>hi", {"Content-Type": "text/html"}), "text/html"),
        (Answer(302, "", {"Location": "/elsewhere"}), "application/json"),
        (Answer(529), "application/json"),
    ],
)
async def test_an_answer_stands_in_for_the_reply_and_keeps_the_connection(answer, kind):
    async with (
        open_endpoint([Silence(0), answer], ["fine"]) as endpoint,
        calling(endpoint) as client,
    ):
        await client.ask()
        status, headers, body = await client.answer()
        assert (status, headers["Content-Type"]) == (answer.status, kind)
        assert headers.items() >= dict(answer.headers).items()
        assert body.decode() == (answer.body if isinstance(answer.body, str) else "<p>hi")
        await client.ask()
        assert (await client.head())[0] == 200


async def test_an_answer_without_content_tells_no_length():
    async with open_endpoint([Answer(204)], ["fine"]) as endpoint, calling(endpoint) as client:
        await client.ask()
        status, headers = await client.head()
        assert status == 204 and "Content-Length" not in headers
        await client.ask()
        assert (await client.head())[0] == 200


async def test_an_answer_in_the_middle_of_a_reply_is_an_error_of_the_script():
    with pytest.raises(ValueError, match="an Answer stands first"):
        async with asking("Hel", Answer(500)) as (_, client):
            await client.stream.receive()
            await anyio.sleep(1)


async def test_an_endpoint_that_cannot_stream_says_so_and_uses_up_no_script():
    async with (
        open_endpoint(["one"], ["two"], refuse_stream=True) as endpoint,
        calling(endpoint) as client,
    ):
        await client.ask()
        status, _, body = await client.answer()
        assert status == 400 and b"streaming is not supported" in body
        await client.ask(stream=False)
        await client.head()
        assert "one" in await client.body()
    assert len(endpoint.requests) == 2


async def test_it_lists_its_models():
    async with open_endpoint(models=["a", "b"]) as endpoint, calling(endpoint) as client:
        await client.ask("/models", method="GET")
        status, _, body = await client.answer()
        assert status == 200 and [one["id"] for one in json.loads(body)["data"]] == ["a", "b"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/models"), ("GET", "/responses")])
async def test_elsewhere_there_is_nothing(method, path):
    async with open_endpoint() as endpoint, calling(endpoint) as client:
        await client.ask(path, method=method)
        status, _, body = await client.answer()
        assert status == 404 and f"there is nothing at /v1{path}".encode() in body


async def test_what_is_no_request_is_refused_and_hung_up_on():
    async with open_endpoint() as endpoint, calling(endpoint) as client:
        await client.stream.send(b"hello\r\n\r\n")
        status, *_ = await client.answer()
        assert status == 400 and endpoint.requests == []
        with pytest.raises(anyio.EndOfStream):
            await client.byte()


# --- hanging up

BUSY = {
    "before the headers": [NoHeaders(), Silence()],
    "silent": ["Hel", Silence()],
    "pinging": [Pings(0.001)],
    "dripping": [Drip(0.001), "x" * 100_000],
    "flooding": [Raw(bytes(50_000_000))],
}


@pytest.mark.parametrize("script", BUSY.values(), ids=BUSY)
async def test_a_client_that_hangs_up_is_noticed_at_once(script):
    async with open_endpoint(script) as endpoint:
        async with calling(endpoint) as client:
            await client.ask()
            await endpoint.received()
            await anyio.sleep(0.02)
            assert endpoint.closed == [None]
        left = time.monotonic()
        with anyio.fail_after(5):
            at = await endpoint.hung_up()
        assert abs(at - left) < 0.5
        assert endpoint.closed == [at]


async def test_a_client_that_resets_has_hung_up_too():
    async with open_endpoint([Silence()]) as endpoint, calling(endpoint) as client:
        await client.ask()
        await client.head()
        raw = client.stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.stream._transport.abort()  # anyio itself knows only how to say good-bye
        with anyio.fail_after(5):
            await endpoint.hung_up()


async def test_a_hang_up_can_be_waited_for_before_the_call_has_come():
    async with (
        open_endpoint(["one"], [Silence()]) as endpoint,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(endpoint.hung_up, 1)
        async with calling(endpoint) as client:
            await client.ask()
            await client.head()
            await client.body()
            await client.ask()
            await client.head()
    assert endpoint.closed[0] is None and endpoint.closed[1] is not None


async def test_who_leaves_after_the_end_has_not_hung_up():
    async with asking("a") as (endpoint, client):
        await client.head()
        await client.until("[DONE]")
        await client.stream.aclose()
        await anyio.sleep(0.02)
        assert endpoint.closed == [None]


# --- leaving


@pytest.mark.parametrize("script", BUSY.values(), ids=BUSY)
async def test_an_endpoint_that_closes_takes_its_connections_with_it(script):
    async with open_endpoint(script) as endpoint:
        client = await anyio.connect_tcp(*address(endpoint))
        await Client(client).ask()
        await endpoint.received()
        await anyio.sleep(0.02)
    assert endpoint.open == 0
    async with client:
        with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            while True:
                await client.receive()
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp(*address(endpoint))


async def test_an_error_in_the_test_comes_through_as_it_is():
    with pytest.raises(KeyError):
        async with asking(Silence()):
            raise KeyError
