"""Who may come in, on a real server and real sockets: the client here writes what it likes."""

import logging
import socket
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import anyio
import msgspec
import pytest
import uvicorn

from holdfast.config.settings import ServerSettings
from holdfast.core.secrets import NO_SECRETS, Secrets
from holdfast.errors import InvalidRequest
from holdfast.server.cors import SHARED
from holdfast.server.guard import Connection, Guard
from holdfast.server.keys import Keys

pytestmark = pytest.mark.real_time

KEY = "a-key-that-nobody-knows"
KEYS = Keys(
    (("local", sha256(KEY.encode()).digest()), ("phone", sha256(b"the key of the phone").digest()))
)
BEARER = f"Authorization: Bearer {KEY}"
JSON = "Content-Type: application/json"
EXPOSED = dict(SHARED)[b"access-control-expose-headers"].decode()
PAGE = "https://page.example"
SAFE = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


# --- a server ----------------------------------------------------------------------------


async def answer(send, status, body, *headers, more=False):
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def app(scope, receive, send):
    """Tells what reached it."""
    match scope["path"]:
        case "/health":
            await answer(send, 200, b"well", (b"content-length", b"4"))
        case "/echo":
            message = await receive()
            told = {"principal": scope["state"]["principal"], "body": len(message["body"])}
            assert not message["more_body"]
            await answer(send, 200, msgspec.json.encode(told))
        case "/events":
            await answer(
                send, 200, b"data: 1\n\n", (b"content-type", b"text/event-stream"), more=True
            )
            if b"hold" in scope["query_string"]:
                while (await receive())["type"] != "http.disconnect":
                    pass
            await send({"type": "http.response.body", "body": b"data: 2\n\n"})
        case "/own":
            own = (
                (b"Content-Security-Policy", b"default-src 'self'"),
                (b"cache-control", b"private"),
            )
            await answer(send, 200, b"", *own)
        case "/boom":
            raise ValueError("with a secret in it")
        case "/wrong":
            raise InvalidRequest("that will not do")
        case "/half":
            await answer(send, 200, b"half", more=True)
            raise ValueError("in the middle")
        case _:
            await answer(send, 404, b"")


@asynccontextmanager
async def serving(
    *, served=app, patience=30.0, linger=1.0, head=10.0, secrets=NO_SECRETS, **settings
):
    """A server of uvicorn with a guard before the app, and what its client needs to know."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        guard = Guard(
            served,
            settings=ServerSettings(**settings),
            keys=KEYS,
            port=lambda: port,
            patience=patience,
            linger=linger,
            secrets=secrets,
        )
        config = uvicorn.Config(
            guard,
            http=type("Connection", (Connection,), {"patience": head}),
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
        )
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            while not server.started:
                await anyio.sleep(0.01)
            try:
                yield SimpleNamespace(port=port, server=server)
            finally:
                server.should_exit = True


# --- a client that writes what it likes ----------------------------------------------------


class Answer(SimpleNamespace):
    @property
    def error(self):
        """The envelope of a refusal, which must be one."""
        assert self.headers["content-type"] == "application/json"
        error = msgspec.json.decode(self.body)["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return error

    @property
    def told(self):
        return msgspec.json.decode(self.body)


class Client:
    def __init__(self, stream):
        self._stream, self._held = stream, b""

    async def write(self, data):
        await self._stream.send(data)

    async def read(self):
        """One answer, or None if the line is closed instead."""
        with anyio.fail_after(10):
            if not await self._until(b"\r\n\r\n"):
                assert self._held == b""
                return None
            first, *lines = self._take(b"\r\n\r\n").decode("latin-1").split("\r\n")
            pairs = [tuple(line.split(": ", 1)) for line in lines]
            found = Answer(status=int(first.split()[1]), pairs=pairs, headers=dict(pairs), body=b"")
            if found.headers.get("transfer-encoding") == "chunked":
                found.body = await self._chunks()
            while len(found.body) < int(found.headers.get("content-length", 0)):
                assert self._held or await self._more()
                found.body, self._held = found.body + self._held, b""
            return found

    async def closed(self):
        """Whether the line is closed, and nothing came before."""
        with anyio.fail_after(10):
            return not self._held and not await self._more()

    async def _chunks(self):
        body = b""
        while await self._until(b"\r\n"):
            size = int(self._take(b"\r\n"), 16)
            while len(self._held) < size + 2 and await self._more():
                pass
            body, self._held = body + self._held[:size], self._held[size + 2 :]
            if not size:
                return body
        raise EOFError(body)

    async def _until(self, mark):
        while mark not in self._held:
            if not await self._more():
                return False
        return True

    def _take(self, mark):
        taken, _, self._held = self._held.partition(mark)
        return taken

    async def _more(self):
        try:
            self._held += await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return False
        return True


@asynccontextmanager
async def connected(here):
    async with await anyio.connect_tcp("127.0.0.1", here.port) as stream:
        yield Client(stream)


def request(target, *headers, method="GET", host="Host: localhost", body=b""):
    lines = [f"{method} {target} HTTP/1.1", *([host] if host is not None else []), *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def ask(here, target, *headers, **how):
    async with connected(here) as client:
        await client.write(request(target, *headers, **how))
        return await client.read()


def length(size):
    return f"Content-Length: {size}"


def noted(caplog):
    """What the guard wrote to the log."""
    return [record for record in caplog.records if record.name == "holdfast.server"]


# --- whom the request is for ---------------------------------------------------------------


async def test_only_our_own_names_are_answered_to():
    async with serving() as here:
        ours = ["127.0.0.1", "localhost", "[::1]", "LOCALHOST", "LocalHost"]
        for name in ours:
            for host in (name, f"{name}:{here.port}"):
                found = await ask(here, "/health", host=f"Host: {host}")
                assert found.status == 200, host
        assert (await ask(here, "/health", host="Host: \tlocalhost \t")).status == 200


async def test_another_name_is_misdirected_and_no_name_is_malformed():
    async with serving() as here:
        port = here.port
        others = {
            421: [
                "evil",
                f"evil:{port}",
                f"localhost.evil:{port}",
                f"evil.localhost:{port}",
                f"localhost.:{port}",
                "localhost.",
                f"127.0.0.1.:{port}",
                f"localhost:{port + 1}",
                "localhost:80",
                f"0.0.0.0:{port}",
                f"127.0.0.2:{port}",
                f"[::]:{port}",
                f"[0:0:0:0:0:0:0:1]:{port}",
            ],
            400: [
                "",
                f"user@localhost:{port}",
                f"localhost:{port}@evil",
                f"localhost:{port}/x",
                f"localhost:{port}?x",
                f"localhost:{port}#x",
                f"localhost:{port}\\x",
                f"evil/@localhost:{port}",
                f"http://localhost:{port}",
                f"localhost:{port},evil",
                f"localhost:{port} evil",
                "localhost:",
                "localhost:http",
                f"localhost:0{port}",
                "::1",
                "[::1",
                "löcalhost",
            ],
        }
        for status, hosts in others.items():
            for host in hosts:
                found = await ask(here, "/health", BEARER, host=f"Host: {host}")
                assert found.status == status, host
                assert found.error["code"] in ("wrong_host", "invalid_host")


async def test_there_is_one_host_and_no_other_in_the_address():
    async with serving() as here:
        twice = "Host: localhost\r\nHost: localhost"
        for host in (None, twice, "Host: localhost\r\nHost: evil", "Host: evil\r\nHost: localhost"):
            assert (await ask(here, "/health", BEARER, host=host)).status == 400, host
        for target in ("http://evil/health", "http://localhost/health", "http://evil", "*"):
            for host in ("Host: localhost", "Host: evil"):
                found = await ask(here, target, BEARER, host=host)
                assert found.status == 400, target
                assert found.error


async def test_a_path_that_looks_like_a_host_is_a_path():
    async with serving() as here:
        assert (await ask(here, "//evil/health", BEARER)).status == 404


async def test_names_that_were_configured_are_ours_too():
    names = ("Box.example", "192.0.2.7", "2001:db8::7")
    async with serving(hosts=names, host="box.lan") as here:
        for name in ("box.example", "192.0.2.7", "[2001:db8::7]", "box.lan", "localhost"):
            for host in (name, f"{name}:{here.port}"):
                assert (await ask(here, "/health", host=f"Host: {host}")).status == 200, host
        assert (await ask(here, "/health", host="Host: 2001:db8::7")).status == 400
        assert (await ask(here, "/health", host="Host: www.box.example")).status == 421


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "::"])
async def test_an_address_that_means_all_addresses_is_nobodys_name(anywhere):
    async with serving(host=anywhere) as here:
        for host in ("0.0.0.0", "[::]"):
            assert (await ask(here, "/health", host=f"Host: {host}")).status == 421


# --- who asks ------------------------------------------------------------------------------


async def test_a_key_opens_and_tells_who_came():
    async with serving() as here:
        for scheme in ("Bearer", "bearer", "BEARER"):
            found = await ask(here, "/echo", f"Authorization: {scheme}  {KEY} ")
            assert (found.status, found.told["principal"]) == (200, "local"), scheme
        found = await ask(here, "/echo", "Authorization: Bearer the key of the phone")
        assert found.told["principal"] == "phone"


async def test_what_was_opened_with_a_key_can_be_closed_when_that_is_taken_away():
    keys = [("phone", sha256(b"the key of the phone").digest())]
    seen = []

    async def served(scope, _receive, send):
        seen.append(scope["state"]["welcome"])
        await answer(send, 200, b"")

    class List:
        def hashes(self):
            return tuple(keys)

    guard = Guard(served, settings=ServerSettings(), keys=Keys((), List()), port=lambda: 8642)

    async def send(_message):
        pass

    head = [(b"host", b"localhost"), (b"authorization", b"Bearer the key of the phone")]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": head}
    await guard(scope, None, send)
    assert seen[0]() == "phone"
    keys.clear()
    assert seen[0]() is None


async def test_without_a_key_there_is_nothing_but_health():
    async with serving() as here:
        wrong = [
            "X: y",
            "Authorization:",
            "Authorization: Bearer",
            "Authorization: Bearer ",
            f"Authorization: {KEY}",
            f"Authorization: Bearer{KEY}",
            f"Authorization: Basic {KEY}",
            f"Authorization: Bearer {KEY}x",
            f"Authorization: Bearer {KEY[:-1]}",
            f"Authorization: Bearer {KEY.upper()}",
            "Authorization: Bearer ÿ\x80\xff",
            f"Authorization: Bearer {KEY}, Bearer {KEY}",
            f"{BEARER}\r\n{BEARER}",
            f"{BEARER}\r\nAuthorization: Bearer x",
            f"X-Api-Key: {KEY}",
            f"Cookie: token={KEY}",
        ]
        for header in wrong:
            found = await ask(here, "/echo", header)
            assert found.status == 401, header
            assert found.headers["www-authenticate"] == "Bearer"
            assert found.error["code"] == "invalid_api_key"
            assert found.error["message"] == "Invalid API key"
        for path in (
            "/",
            "/nowhere",
            "/boom",
            "/health/",
            "/health/detailed",
            "/Health",
            "/events",
        ):
            for method in ("GET", "POST", "DELETE", "OPTIONS", "HEAD", "TRACE"):
                assert (await ask_head(here, path, method)) == 401, (path, method)


async def ask_head(here, path, method):
    """The status alone: an answer to HEAD has no body, whatever its length says."""
    async with connected(here) as client:
        await client.write(request(path, "Connection: close", method=method))
        await client._until(b"\r\n\r\n")
        return int(client._take(b"\r\n").split()[1])


async def test_health_is_open_but_takes_a_body_from_nobody():
    async with serving() as here:
        assert (await ask(here, "/health")).body == b"well"
        assert (await ask(here, "/health", "Authorization: Bearer wrong")).status == 200
        assert (await ask(here, "/%68ealth")).status == 200
        assert (await ask(here, "/v1/health")).status == 404
        for method in ("GET", "POST"):
            found = await ask(here, "/health", JSON, length(2), method=method, body=b"{}")
            assert found.status == 401
        assert (await ask(here, "/health", method="POST")).status == 401


async def test_a_key_in_the_address_opens_nothing():
    async with serving() as here:
        for name in ("token", "api_key", "key", "access_token", "Authorization"):
            assert (await ask(here, f"/echo?{name}={KEY}")).status == 401


async def test_without_authentication_everyone_is_local():
    async with serving(auth="none") as here:
        assert (await ask(here, "/echo")).told["principal"] == "local"
        assert (await ask(here, "/echo", host="Host: evil")).status == 421
        assert (await ask(here, "/echo", f"Origin: {PAGE}")).status == 403


# --- how much ------------------------------------------------------------------------------


async def test_a_head_has_limits():
    async with serving() as here:
        assert (await ask(here, "/echo", BEARER, f"X: {'x' * 16_000}")).status == 200
        found = await ask(here, "/echo", BEARER, f"X: {'x' * 16_384}")
        assert (found.status, found.error["code"]) == (431, "headers_too_large")
        assert (await ask(here, "/echo", BEARER, *(f"X{n}: y" for n in range(98)))).status == 200
        assert (await ask(here, "/echo", BEARER, *(f"X{n}: y" for n in range(99)))).status == 431
        assert (await ask(here, f"/echo?{'x' * 8_180}", BEARER)).status == 200
        for target in (f"/echo?{'x' * 8_192}", "/" + "x" * 8_192):
            found = await ask(here, target, BEARER)
            assert (found.status, found.error["code"]) == (414, "uri_too_long")


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


async def test_a_body_may_be_as_large_as_the_limit():
    async with serving(body_limit=1000) as here:
        for size in (0, 1, 1000):
            body = b"x" * size
            found = await ask(here, "/echo", BEARER, JSON, length(size), method="POST", body=body)
            assert found.told["body"] == size
        found = await ask(here, "/echo", BEARER, JSON, length(1001), method="POST")
        assert (found.status, found.error["code"]) == (413, "body_too_large")
        assert found.headers["connection"] == "close"


def chunked(*sizes):
    return b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in sizes)


async def test_a_body_in_chunks_is_counted_as_it_comes():
    async with serving(body_limit=1000) as here:
        head = (BEARER, JSON, "Transfer-Encoding: chunked")
        for sizes in ((), (1,), (500, 500), (1,) * 1000):
            body = chunked(*sizes) + b"0\r\n\r\n"
            found = await ask(here, "/echo", *head, method="POST", body=body)
            assert found.told["body"] == sum(sizes)
        for body in (chunked(500, 501), chunked(1001) + b"0\r\n\r\n"):
            found = await ask(here, "/echo", *head, method="POST", body=body)
            assert (found.status, found.error["code"]) == (413, "body_too_large")


async def test_whoever_is_still_sending_a_body_that_is_too_large_can_read_so():
    size = 20_000_000
    async with serving() as here:
        for encoding, body in (
            (length(size), b"x" * size),
            ("Transfer-Encoding: chunked", chunked(*[1_000_000] * 20) + b"0\r\n\r\n"),
        ):
            # All of it is written before anything is read.
            found = await ask(here, "/echo", BEARER, JSON, encoding, method="POST", body=body)
            assert found.status == 413


async def test_the_rest_of_an_unwanted_body_is_waited_for_a_short_while():
    async with serving(linger=0.1) as here, connected(here) as client:
        await client.write(request("/echo", JSON, length(1000), method="POST"))
        assert (await client.read()).status == 401
        began = anyio.current_time()
        assert await client.closed()
        assert anyio.current_time() - began < 5


@pytest.mark.parametrize("begun", [b"", b"abc"])
async def test_a_body_that_stops_arriving_is_given_up(begun):
    async with serving(patience=0.2) as here, connected(here) as client:
        await client.write(request("/echo", BEARER, JSON, length(10), method="POST", body=begun))
        found = await client.read()
        assert (found.status, found.error["code"]) == (408, "body_timeout")
        assert await client.closed()


async def test_a_slow_body_is_waited_for_as_long_as_it_keeps_coming():
    async with serving(patience=0.5) as here, connected(here) as client:
        await client.write(request("/echo", BEARER, JSON, length(8 * 1024), method="POST"))
        for _ in range(8):
            await anyio.sleep(0.1)
            await client.write(b"x" * 1024)
        assert (await client.read()).told["body"] == 8 * 1024


async def test_a_body_that_drips_is_not_waited_for_though_it_keeps_coming():
    async def drip(client):
        with suppress(anyio.BrokenResourceError):
            while True:
                await client.write(b"x")
                await anyio.sleep(0.1)

    async with serving(patience=0.5) as here, connected(here) as client:
        await client.write(request("/echo", BEARER, JSON, length(1000), method="POST"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, client)
            with anyio.fail_after(10):
                assert (await client.read()).error["code"] == "body_timeout"
            tasks.cancel_scope.cancel()


async def test_a_body_whose_sender_hangs_up_reaches_nobody(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    async with serving() as here:
        async with connected(here) as client:
            await client.write(request("/echo", BEARER, JSON, length(10), method="POST"))
            await anyio.sleep(0.05)
        while not noted(caplog):
            await anyio.sleep(0.01)
    assert [record.status for record in noted(caplog)] == [0]


async def test_an_app_that_had_its_body_still_learns_that_the_line_is_closed(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    async with serving() as here:
        async with connected(here) as client:
            head = (BEARER, JSON, length(2))
            await client.write(request("/events?hold", *head, method="POST", body=b"{}"))
            await client._until(b"data: 1\n\n")
            await anyio.sleep(0.05)
            assert noted(caplog) == []
        while not noted(caplog):
            await anyio.sleep(0.01)


async def test_a_body_that_will_be_refused_is_not_asked_for():
    async with serving(body_limit=10, linger=0.1) as here:
        head = (JSON, "Expect: 100-continue")
        assert (await ask(here, "/echo", *head, length(5), method="POST")).status == 401
        assert (await ask(here, "/echo", BEARER, *head, length(11), method="POST")).status == 413
        async with connected(here) as client:
            await client.write(request("/echo", BEARER, *head, length(5), method="POST"))
            assert (await client.read()).status == 100
            await client.write(b"12345")
            assert (await client.read()).told["body"] == 5


async def test_a_body_is_json_or_none():
    async with serving() as here:
        good = ["application/json", "Application/JSON", "application/json; charset=utf-8"]
        good.append("application/json ;x")
        bad = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
        bad += [
            "",
            "application/jsonx",
            "text/plain; application/json",
            "application/json, text/plain",
        ]
        for method in ("POST", "PUT", "PATCH"):
            for kind in good + bad:
                head = (BEARER, f"Content-Type: {kind}", length(2))
                found = await ask(here, "/echo", *head, method=method, body=b"{}")
                assert found.status == (200 if kind in good else 415), kind
            assert (
                await ask(here, "/echo", BEARER, length(2), method=method, body=b"{}")
            ).status == 415
            assert (await ask(here, "/echo", BEARER, method=method)).told["body"] == 0
            assert (await ask(here, "/echo", BEARER, length(0), method=method)).told["body"] == 0
        two = (BEARER, JSON, "Content-Type: text/plain", length(2))
        assert (await ask(here, "/echo", *two, method="POST", body=b"{}")).status == 400
        found = await ask(here, "/echo", BEARER, length(2), method="DELETE", body=b"{}")
        assert found.told["body"] == 2


async def test_a_stop_may_come_with_a_body_of_any_type_and_nothing_else_may():
    async with serving() as here:
        for path, status in [
            ("/v1/runs/run_1/stop", 404),
            ("/v1/runs/run_1/stop?x", 404),
            ("/v1/runs/run_1/stop/steer", 415),
            ("/v1/runs/run_1/steer", 415),
            ("/v1/runs/stop", 415),
            ("/v1/runs?/v1/runs/run_1/stop", 415),
        ]:
            for head in ((), ("Content-Type: text/plain",)):
                found = await ask(here, path, BEARER, *head, length(2), method="POST", body=b"no")
                # The app here knows no such path; what counts is that it was asked.
                assert found.status == status, path
            assert (
                await ask(here, path, *head, length(2), method="POST", body=b"no")
            ).status == 401


async def test_a_request_is_one_request_to_everyone():
    """Two ways to tell where a body ends would hide a second request in the first."""
    hidden = request("/echo", BEARER)
    shapes = [
        (length(len(hidden)), "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", length(len(hidden))),
        (length(0), length(len(hidden))),
        (length(len(hidden)), length(len(hidden))),
        (f"Content-Length: 0, {len(hidden)}",),
        ("Content-Length: +0",),
        ("Content-Length: -1",),
        ("Content-Length: 0x0",),
        ("Content-Length:",),
        ("Content-Length: 99999999999999999999999",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding:\x0bchunked",),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",),
        ("X: y\r\n Transfer-Encoding: chunked",),
        ("X: y\nTransfer-Encoding: chunked",),
        ("X: y\rTransfer-Encoding: chunked",),
        ("X: y\0",),
    ]
    async with serving(linger=0.1) as here:
        for shape in shapes:
            async with connected(here) as client:
                body = b"0\r\n\r\n" + hidden
                await client.write(request("/echo", BEARER, JSON, *shape, method="POST", body=body))
                found = await client.read()
                assert found.status == 400 and found.error, shape
                assert found.headers["connection"] == "close"
                assert await client.closed(), shape


async def test_what_reaches_the_guard_by_another_parser_is_judged_the_same():
    for headers in (
        [(b"content-length", b"+1")],
        [(b"content-length", b"\xb2")],
        [(b"content-length", b"1" * 5000)],
        [(b"content-length", b"")],
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"1"), (b"content-length", b"1")],
    ):
        sent = await call({"headers": [(b"host", b"localhost"), *headers]})
        assert sent[0]["status"] == 400, headers


async def call(given, received=({"type": "http.disconnect"},), sent=None, **settings):
    """What the guard sends, without a server."""
    sent, coming = [] if sent is None else sent, iter(received)

    async def receive():
        return next(coming)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", **given}
    guard = Guard(app, settings=ServerSettings(**settings), keys=KEYS, port=lambda: 8642)
    await guard(scope, receive, send)
    return sent


def trying_keys(**settings):
    """To ask a guard with a key, from an address: what it begins its answer with."""
    guard = Guard(app, settings=ServerSettings(**settings), keys=KEYS, port=lambda: 8642)
    ports = count(1)

    async def ask(key, address):
        head = [(b"host", b"localhost"), (b"authorization", b"Bearer " + key)]
        scope = {"type": "http", "method": "GET", "path": "/echo", "query_string": b""}
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        # Whoever tries again comes by another line, and so from another port.
        client = (address, next(ports)) if address else None
        await guard({**scope, "headers": head, "client": client}, receive, send)
        return sent[0]

    return ask


async def test_who_keeps_trying_keys_from_elsewhere_is_not_listened_to_for_a_while():
    ask = trying_keys()
    here = ("127.0.0.1", "::1", "::ffff:127.0.0.1", None)
    for client in ("192.0.2.7", *here):
        assert [(await ask(b"wrong", client))["status"] for _ in range(10)] == [401] * 10
    refused = await ask(KEY.encode(), "192.0.2.7")
    assert refused["status"] == 429
    assert 0 < int(dict(refused["headers"])[b"retry-after"]) <= 60
    for client in ("192.0.2.8", *here):
        assert (await ask(KEY.encode(), client))["status"] == 200


async def test_who_tries_keys_through_a_proxy_shuts_out_nobody_else():
    ask = trying_keys(behind_proxy=True)
    assert [(await ask(b"wrong", "192.0.2.7"))["status"] for _ in range(11)] == [401] * 11
    assert (await ask(KEY.encode(), "192.0.2.7"))["status"] == 200


async def test_two_requests_on_one_line_are_two():
    async with serving() as here, connected(here) as client:
        posted = request("/echo", BEARER, JSON, length(2), method="POST", body=b"{}")
        await client.write(posted + request("/echo", BEARER) + request("/echo"))
        assert (await client.read()).told["body"] == 2
        assert (await client.read()).told["body"] == 0
        assert (await client.read()).status == 401
        await client.write(request("/health"))
        assert (await client.read()).status == 200


# --- from which page -----------------------------------------------------------------------


def shared(found):
    """The headers by which an answer is shared with a page."""
    return {name: value for name, value in found.pairs if name.startswith("access-control")}


async def test_pages_of_other_origins_get_nothing_unless_listed():
    async with serving() as here:
        origins = [PAGE, "null", "", "http://localhost.evil", f"https://localhost:{here.port}", "*"]
        for origin in origins:
            for method in ("GET", "POST", "OPTIONS"):
                found = await ask(here, "/health", BEARER, f"Origin: {origin}", method=method)
                assert (found.status, shared(found)) == (403, {}), origin
                assert (found.error["code"], found.headers["vary"]) == (
                    "origin_not_allowed",
                    "Origin",
                )
        assert (
            await ask(here, "/health", "Origin: http://localhost", f"Origin: {PAGE}")
        ).status == 400


async def test_our_own_pages_need_no_leave():
    async with serving() as here:
        for host in (f"localhost:{here.port}", f"127.0.0.1:{here.port}", "localhost"):
            found = await ask(here, "/echo", BEARER, f"Origin: http://{host}", host=f"Host: {host}")
            assert (found.status, shared(found)) == (200, {})
        # Another name of ours is another origin.
        origin = f"Origin: http://127.0.0.1:{here.port}"
        assert (await ask(here, "/echo", BEARER, origin, host="Host: localhost")).status == 403


@pytest.mark.parametrize(
    ("settings", "scheme", "status"),
    [
        ({}, b"http", 200),
        ({}, b"https", 403),
        ({"tls_cert": Path("cert")}, b"https", 200),
        ({"tls_cert": Path("cert")}, b"http", 403),
        ({"behind_proxy": True}, b"http", 200),
        ({"behind_proxy": True}, b"https", 200),
    ],
)
async def test_our_own_pages_are_served_the_way_we_are(settings, scheme, status):
    headers = [(b"host", b"localhost"), (b"origin", scheme + b"://localhost")]
    assert (await call({"headers": headers}, **settings))[0]["status"] == status


async def test_a_listed_page_may_read_every_answer():
    async with serving(cors_origins=(PAGE, "https://Other.example"), body_limit=10) as here:
        every = {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": EXPOSED,
        }
        origin = f"Origin: {PAGE}"
        for status, found in {
            200: await ask(here, "/events", BEARER, origin),
            401: await ask(here, "/echo", origin),
            404: await ask(here, "/nowhere", BEARER, origin),
            413: await ask(
                here, "/echo", BEARER, origin, JSON, length(11), method="POST", body=b"x" * 11
            ),
            500: await ask(here, "/boom", BEARER, origin),
        }.items():
            assert (found.status, shared(found), found.headers["vary"]) == (status, every, "Origin")
        found = await ask(here, "/health", "Origin: https://other.example")
        assert shared(found)["access-control-allow-origin"] == "https://other.example"
        assert (await ask(here, "/health", "Origin: https://page.example.evil")).status == 403
        found = await ask(here, "/health")
        assert (found.status, shared(found), "vary" in found.headers) == (200, {}, False)


async def test_a_listed_page_is_told_beforehand_what_it_may_send():
    async with serving(cors_origins=(PAGE,)) as here:
        asks = (f"Origin: {PAGE}", "Access-Control-Request-Method: PATCH")
        found = await ask(here, "/v1/runs", *asks, method="OPTIONS")
        assert (found.status, found.body) == (204, b"")
        told = shared(found)
        taken = set(told.pop("access-control-allow-headers").split(", "))
        assert taken > {"Authorization", "Idempotency-Key", "X-Session-Id", "X-Stainless-os"}
        assert told == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "GET, POST, PATCH, DELETE, OPTIONS",
            "access-control-max-age": "600",
            "access-control-expose-headers": EXPOSED,
        }
        assert found.headers.items() >= SAFE.items()
        assert (await ask(here, "/v1/runs", method="OPTIONS")).status == 401


# --- what is on every answer ---------------------------------------------------------------


async def test_every_answer_carries_what_keeps_a_browser_in_check():
    async with serving(body_limit=10) as here:
        large = (BEARER, JSON, length(11))
        for status, found in [
            (200, await ask(here, "/health")),
            (200, await ask(here, "/events", BEARER)),
            (400, await ask(here, "/health", host="Host: @")),
            (400, await ask(here, "/health", "Content-Length: no")),
            (401, await ask(here, "/echo")),
            (403, await ask(here, "/health", "Origin: null")),
            (404, await ask(here, "/nowhere", BEARER)),
            (413, await ask(here, "/echo", *large, method="POST", body=b"x" * 11)),
            (421, await ask(here, "/health", host="Host: evil")),
            (500, await ask(here, "/boom", BEARER)),
        ]:
            assert found.status == status
            assert found.headers.items() >= SAFE.items(), status
            assert len({name for name, _ in found.pairs}) == len(found.pairs)
            assert "strict-transport-security" not in found.headers


async def test_what_the_app_says_itself_is_not_said_again():
    async with serving() as here:
        found = await ask(here, "/own", BEARER)
        told = {name: value for name, value in found.pairs if name in SAFE}
        assert told == {
            **SAFE,
            "content-security-policy": "default-src 'self'",
            "cache-control": "private",
        }
        assert len({name for name, _ in found.pairs}) == len(found.pairs)


async def test_a_browser_is_held_to_tls_only_where_there_is_tls():
    sent = await call({"headers": [(b"host", b"localhost")]}, tls_cert=Path("cert"))
    hsts = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
    assert hsts in sent[0]["headers"]


# --- what else comes -----------------------------------------------------------------------


async def test_a_websocket_is_refused():
    async with serving() as here, connected(here) as client:
        upgrade = ("Upgrade: WebSocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
        await client.write(request("/echo", BEARER, *upgrade, "Sec-WebSocket-Key: eA=="))
        found = await client.read()
        assert (found.status, found.error["code"]) == (400, "websocket_not_supported")
        assert await client.closed()
    sent = await call({"type": "websocket"}, [{"type": "websocket.connect"}])
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_another_upgrade_is_passed_over():
    async with serving() as here:
        upgrade = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: x")
        assert (await ask(here, "/echo", BEARER, *upgrade)).status == 200


async def test_what_is_no_http_is_told_so():
    async with serving() as here:
        for rubbish in (
            b"rubbish\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\0\xa5",
        ):
            async with connected(here) as client:
                await client.write(rubbish)
                found = await client.read()
                assert (found.status, found.error["code"]) == (400, "invalid_http")
                assert found.headers.items() >= SAFE.items()
                assert await client.closed()
        async with connected(here) as client:
            await client.write(b"CONNECT evil:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await client.read()).status == 400


async def test_the_beginning_and_the_end_of_a_server_are_the_apps():
    seen = []

    async def served(scope, receive, send):
        seen.append((scope, receive, send))

    guard = Guard(served, settings=ServerSettings(), keys=KEYS, port=lambda: 8642)
    await guard({"type": "lifespan"}, "receive", "send")
    assert seen == [({"type": "lifespan"}, "receive", "send")]


async def test_an_error_of_ours_is_answered_without_details(caplog):
    async with serving() as here:
        found = await ask(here, "/boom", BEARER)
        assert (found.status, found.error["code"]) == (500, "internal_error")
        assert b"secret" not in found.body
        found = await ask(here, "/wrong", BEARER)
        assert (found.status, found.error["message"]) == (400, "that will not do")
    assert [record.getMessage() for record in noted(caplog)] == ["GET /boom failed"]
    assert noted(caplog)[0].exc_info[0] is ValueError


async def test_a_refusal_repeats_no_secret():
    async with serving(secrets=Secrets(["that will not do"])) as here:
        found = await ask(here, "/wrong", BEARER)
        assert (found.status, found.error["message"]) == (400, "[secret]")


async def test_an_answer_that_fails_halfway_is_cut_off():
    async with serving() as here, connected(here) as client:
        await client.write(request("/half", BEARER))
        with pytest.raises(EOFError) as cut:
            await client.read()
        assert cut.value.args == (b"half",)
    sent = []
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {KEY}".encode())]
    with pytest.raises(ValueError, match="in the middle"):
        await call({"headers": headers, "path": "/half"}, sent=sent)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


# --- the log -------------------------------------------------------------------------------


async def test_each_request_is_noted_without_what_is_secret(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    async with serving() as here:
        await ask(here, f"/echo?key={KEY}&x=%0d%0ay", BEARER, "User-Agent: odd")
        await ask(here, "/no%0d%0awhere", BEARER)
        await ask(here, "/echo", "Authorization: Bearer not-quite-the-key")
        await ask(here, "/" + "x" * 500, "Authorization: Bearer the key of the phone")
    told = [(one.method, one.path, one.status, one.principal) for one in noted(caplog)]
    assert told == [
        ("GET", "/echo", 200, "local"),
        ("GET", "/no%0d%0awhere", 404, "local"),
        ("GET", "/echo", 401, ""),
        ("GET", "/" + "x" * 199, 404, "phone"),
    ]
    assert all(0 < one.duration < 5 for one in noted(caplog))
    lines = [one.getMessage() for one in noted(caplog)]
    assert lines[0].startswith("GET /echo 200 in 0.") and lines[0].endswith(" s for 'local'")
    assert not any(secret in line for line in lines for secret in (KEY, "not-quite", "odd", "\n"))


async def test_no_sign_of_a_path_breaks_a_line_of_the_log(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    host = (b"host", b"localhost")
    await call({"headers": [host], "path": "/a\r\nb\x1b\u2028"})
    await call({"headers": [host], "path": "/", "raw_path": b"/a\r\nb\xff"})
    assert [one.path for one in caplog.records] == [
        "/a\\r\\nb\\x1b\\xe2\\x80\\xa8",
        "/a\\r\\nb\\xff",
    ]
