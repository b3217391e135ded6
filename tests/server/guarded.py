"""A guard before an app that tells what reached it, and a client that writes what it likes."""

import socket
from contextlib import asynccontextmanager
from hashlib import sha256
from types import SimpleNamespace

import anyio
import msgspec
import uvicorn

from holdfast.config.settings import ServerSettings
from holdfast.core.secrets import NO_SECRETS
from holdfast.errors import InvalidRequest, StoreFull
from holdfast.server.connection import Connection
from holdfast.server.cors import SHARED
from holdfast.server.guard import Guard
from holdfast.server.keys import Keys

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


ERRORS = {
    "/boom": (ValueError, "with a secret in it"),
    "/wrong": (InvalidRequest, "that will not do"),
    "/full": (StoreFull, "not a byte left"),
}


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
        case "/headers":
            await receive()
            told = {name.decode(): value.decode() for name, value in scope["headers"]}
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
        case path if path in ERRORS:
            kind, words = ERRORS[path]
            raise kind(words)
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
            # Longer than a test waits: what is to be closed is seen to be.
            timeout_keep_alive=60,
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
