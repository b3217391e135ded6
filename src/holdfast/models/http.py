"""The edge to the network: the only place where models meet sockets and their errors.

Past this module there is ModelError and nothing else. An answer that is left is hung up on at
once: closing is how a call is cancelled.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import anyio
from aiohappyeyeballs import start_connection

from holdfast.errors import ModelError, ModelUnavailable, StreamStalled
from holdfast.models.connection import Connection, words

#: Seconds an idle connection is kept for the next call.
KEPT = 30.0

#: Seconds between the tries of a host's several addresses, as browsers have them.
NEXT_ADDRESS = 0.25

#: Seconds in which connections that were hung up on are gone.
CLOSING = 2.0

#: What may stand in a path, or what is asked of it, as it is.
_PATH = "/?%:@!$&'()*+,;=~-._"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: What cannot stand in a header: signs that end it, and halves of signs.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


class Answer(Protocol):
    """What came back; `headers` by their names in small letters."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def over(self) -> bool:
        """All of it has come."""
        ...

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises ModelError."""
        ...


class Transport(Protocol):
    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, connect: float
    ) -> AbstractAsyncContextManager[Answer]:
        """Ask, and wait for the answer's headers. Raises ModelError; leaving hangs up.

        `connect` is the limit for reaching the endpoint, in seconds; 0 for none.
        """
        ...


class _Origin(NamedTuple):
    """Whom connections lead to."""

    host: str
    port: int
    tls: bool


class _Target(NamedTuple):
    origin: _Origin
    host: str
    path: str


class HttpTransport:
    """One pool of connections for every endpoint. Nothing is taken from the environment."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._open: set[Connection] = set()
        self._idle: dict[_Origin, dict[Connection, None]] = {}
        self._emptied = anyio.Event()

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, connect: float
    ) -> AsyncIterator[Answer]:
        target = _target(url)
        head = _head(method, target, tuple(headers.items()))
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        idle = self._idle.setdefault(target.origin, {})
        connection = _pick(idle) or await self._connect(target.origin, connect)
        try:
            exchange = connection.ask(head, body)
            await exchange.begun()
            yield exchange
            if connection.rest(KEPT):
                idle[connection] = None
        finally:
            if connection not in idle:
                connection.hang_up()

    async def _connect(self, origin: _Origin, limit: float) -> Connection:
        try:
            with anyio.move_on_after(limit or None) as scope:
                return await self._reach(origin)
        except (OSError, ValueError) as error:
            raise _unreached(error, origin) from error
        assert scope.cancelled_caught
        raise StreamStalled(
            f"no connection to the endpoint within {limit:g} s (so no TTFB); hanging up"
        )

    async def _reach(self, origin: _Origin) -> Connection:
        loop, tls = asyncio.get_running_loop(), await self._trust() if origin.tls else None
        host, port, _ = origin
        make = partial(Connection, partial(self._forget, origin))
        if _is_number(host):
            _, connection = await loop.create_connection(make, host, port)
        else:
            places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # The loop itself would try the second only when the first has been silent for minutes.
            line = await start_connection(places, happy_eyeballs_delay=NEXT_ADDRESS, loop=loop)
            try:
                _, connection = await loop.create_connection(make, sock=line)
            except BaseException:
                line.close()
                raise
        if tls:
            await connection.secure(tls, host)
        if connection.usable:
            self._open.add(connection)
        return connection

    async def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            # Reads a file of all the authorities there are, which takes its time.
            self._tls = await anyio.to_thread.run_sync(ssl.create_default_context)
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _forget(self, origin: _Origin, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.get(origin, {}).pop(connection, None)
        if not self._open:
            self._emptied.set()
            self._emptied = anyio.Event()

    async def close(self) -> None:
        with anyio.move_on_after(CLOSING, shield=True):
            for connection in tuple(self._open):
                connection.hang_up()
            while self._open:
                await self._emptied.wait()


@asynccontextmanager
async def open_transport(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpTransport]:
    """`tls`: whom to trust, if not the authorities that this machine trusts."""
    transport = HttpTransport(tls)
    try:
        yield transport
    finally:
        await transport.close()


#: What to look at first.
_CHECK = "is base_url right?"


def _pick(idle: dict[Connection, None]) -> Connection | None:
    """The one that was used last is the likeliest to be there still."""
    while idle:
        connection, _ = idle.popitem()
        if connection.usable and connection.quiet:
            return connection
        connection.hang_up()
    return None


@lru_cache(maxsize=256)
def _target(url: str) -> _Target:
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        query = f"?{parts.query}" if parts.query else ""
        path = quote((parts.path or "/") + query, safe=_PATH)
    except ValueError as error:
        raise _no_address(words(error)) from error
    if "@" in parts.netloc:
        raise _no_address("it must not hold a name or a password")
    if parts.scheme not in ("http", "https") or not host:
        raise _no_address(url)
    tls = parts.scheme == "https"
    usual = 443 if tls else 80
    shown = f"[{host}]" if ":" in host else host
    return _Target(_Origin(host, port or usual, tls), f"{shown}:{port}" if port else shown, path)


def _no_address(why: str) -> ModelUnavailable:
    return ModelUnavailable(f"there is no such address ({_CHECK}): {why}")


@lru_cache(maxsize=256)
def _head(method: str, target: _Target, headers: tuple[tuple[str, str], ...]) -> bytes:
    """All of it but how long the body is. The same for every call to a model, or nearly so."""
    fields = {"host": ("Host", target.host), "user-agent": ("User-Agent", "holdfast")}
    fields |= {name.lower(): (name, value) for name, value in headers}
    # That is said last, and then how it is transferred is said, too.
    for told in ("content-length", "transfer-encoding"):
        fields.pop(told, None)
    for name, value in fields.values():
        if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise ModelUnavailable(f"the header {name!r} cannot be sent: it is malformed")
    lines = [f"{name}: {value}\r\n" for name, value in fields.values()]
    return f"{method} {target.path} HTTP/1.1\r\n{''.join(lines)}".encode()


@lru_cache(maxsize=256)
def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _unreached(error: OSError | ValueError, origin: _Origin) -> ModelError:
    match error:
        case ssl.SSLError():
            problem = "could not prove who it is"
        case socket.gaierror() | UnicodeError():
            problem = f"has a name that is not known ({_CHECK})"
        case _:
            problem = f"cannot be reached ({_CHECK})"
    return ModelUnavailable(f"the endpoint {problem}: {origin.host}:{origin.port}: {words(error)}")
