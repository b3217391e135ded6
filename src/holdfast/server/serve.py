"""The life of a server: it binds, says that it is ready, serves, drains, and goes.

uvicorn serves; when to begin and to end is decided here, since it knows nothing of runs.
"""

from __future__ import annotations

import socket
import ssl
import struct
from asyncio import AbstractEventLoop, Protocol, Transport, get_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from typing import Any, cast

import anyio
import uvicorn

from holdfast.calls.tasks import task_group
from holdfast.config import ServerSettings
from holdfast.errors import ConfigError
from holdfast.server.about import About
from holdfast.server.callers import Callers, stranger
from holdfast.server.connection import Connection
from holdfast.server.guard import App, Guard
from holdfast.server.keys import Keys
from holdfast.server.lane import Lane
from holdfast.server.later import Later
from holdfast.server.openai.streams import see_off_the_deserted
from holdfast.server.problems import too_many
from holdfast.server.service import Service
from holdfast.server.streams import PIECE, leave_all, look_after

#: Connections that may wait to be taken up.
BACKLOG = 4096

#: Seconds for answers under way to be finished once all streams have been left.
LAST_WORDS = 2.0

#: Have a connection that is closed be reset, and what is still unsent be dropped.
_RESET = struct.pack("ii", 1, 0)


def bind(settings: ServerSettings) -> socket.socket:
    """The door, so that everyone can be told where it is. Raises ConfigError."""
    _check_exposure(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((settings.host, settings.port))
        door.listen(BACKLOG)
    except OSError as error:
        door.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from error
    return door


def address(door: socket.socket, settings: ServerSettings) -> str:
    host, port = door.getsockname()[:2]
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _check_exposure(settings: ServerSettings) -> None:
    """Beyond this machine nothing is said in clear, nor to anybody who asks."""
    try:
        loopback = settings.host == "localhost" or ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if loopback:
        return
    if settings.auth == "none":
        raise ConfigError(
            f'auth is "none", which is for loopback alone, and host is {settings.host}'
        )
    if not (settings.tls_cert and settings.tls_key) and not settings.behind_proxy:
        raise ConfigError(
            f"host is {settings.host}, which others can reach: set tls_cert and tls_key, or"
            " behind_proxy if something in front speaks TLS"
        )


def check_certificate(settings: ServerSettings) -> None:
    """Before anybody is told that they can come. Raises ConfigError."""
    if settings.tls_cert is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Nobody is there to be asked for a password.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except OSError as error:
        raise ConfigError(
            f"tls_cert is {settings.tls_cert} and tls_key is {settings.tls_key}, which are no"
            f" certificate and its key without a password, both in PEM: {error}"
        ) from error


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Whoever runs the server hears them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does, but that it would wait a minute for a line to become a safe one, and who
        is slow at that is no better than who is slow to say what they want."""
        await self.lifespan.startup()
        config, loop = self.config, get_running_loop()
        make = partial(
            cast("Callable[..., Protocol]", config.http_protocol_class),
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self.servers = [
            await loop.create_server(
                make,
                sock=door,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=Connection.patience if config.ssl else None,
            )
            for door in sockets or ()
        ]
        self.started = True


class Corked:
    """A transport that sends at once what is written in one go.

    To hand bytes to the system costs more than all else that is done for a short answer.
    """

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is asked for each connection and looked at by nobody is not looked up: it costs as
        much as reading a request. Where the other end is, is told in two parts, as for any socket."""
        if name in ("socket", "sockname"):
            return default
        found = self._transport.get_extra_info(name, default)
        return found[:2] if name == "peername" and found else found

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._size += len(data)
        # Not so much that it would be too late to find that nobody takes it.
        if self._size >= PIECE:
            self._flush()

    def abort(self) -> None:
        """Some readers take a connection that is merely closed for the end of what was sent."""
        self._flush()
        line = self._transport.get_extra_info("socket")
        if line is not None and not self._transport.is_closing():
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        data = b"".join(self._held)
        self._held.clear()
        self._size = 0
        # Whoever has left meanwhile takes nothing any more.
        if data and not self._transport.is_closing():
            self._transport.write(data)


class _Caller:
    """Who is at the other end of a connection, for the routes. It knows nothing of the connection
    itself, which would then be there until somebody looks for what is garbage."""

    def __init__(self, line: Corked) -> None:
        self._line = line
        self._leave: Callable[[], None] | None = None

    def hang_up(self) -> None:
        """An answer that is not to look like a whole one can end in no other way."""
        self._line.abort()

    def when_gone(self, leave: Callable[[], None]) -> None:
        if self._line.is_closing():
            leave()
        else:
            self._leave = leave

    def has_gone(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None


class _Connection(Connection):
    """uvicorn's, with a caller for the routes."""

    _caller: _Caller

    def __init__(self, callers: Callers, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._callers = callers

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        line = Corked(transport, self.loop)
        self._caller = _Caller(line)
        super().connection_made(cast("Transport", line))
        if why_not := self._callers.come(self.client):
            self.refuse(too_many(why_not))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["caller"] = self._caller

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._caller.has_gone()
        self._callers.go(self.client)


class Serving:
    """One server, from ready to gone."""

    def __init__(
        self,
        service: Service,
        about: About,
        settings: ServerSettings,
        keys: Keys,
        door: socket.socket,
        callers: Callers | None = None,
    ) -> None:
        self._service, self._settings, self._door = service, settings, door
        self._routes = Later(partial(_routes, service, about))
        guarded = Guard(
            Lane(service, about, self._routes),
            settings=settings,
            keys=keys,
            port=lambda: int(door.getsockname()[1]),
            secrets=service.secrets,
            leaving=service.draining.is_set,
        )
        callers = callers or Callers(partial(stranger, proxied=settings.behind_proxy))
        self._server = _Server(
            uvicorn.Config(
                guarded,
                http=cast("type[Protocol]", partial(_Connection, callers)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=True,
                proxy_headers=False,
                timeout_keep_alive=75,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )
        self._drained = anyio.Event()

    async def serve(self, ready: Callable[[], None]) -> None:
        """Until `drain` has been called and is done, or `leave`."""
        async with task_group() as tasks:
            tasks.start_soon(self._server.serve, [self._door])
            tasks.start_soon(look_after, self._service)
            while not self._server.started:  # noqa: ASYNC110 (it has no event for it)
                await anyio.sleep(0.002)
            ready()
            tasks.start_soon(see_off_the_deserted, self._service)
            await self._drained.wait()
            self._service.draining.set()
            self._service.left.set()
            self._server.should_exit = True
            with anyio.move_on_after(LAST_WORDS):
                while self._server.server_state.connections:  # noqa: ASYNC110 (nor for this)
                    await anyio.sleep(0.01)
            self._server.force_exit = True

    async def load(self) -> None:
        """All that nobody has needed so far."""
        await self._routes.load()

    def drain(self) -> None:
        """Take nothing new; whoever follows is told."""
        self._service.draining.set()

    def leave(self) -> None:
        """What is under way has ended, or may not take longer."""
        self._drained.set()

    def break_off(self) -> None:
        """What is being told has no end, as the process is about to be gone."""
        leave_all(self._service)


def _routes(service: Service, about: About) -> App:
    from holdfast.server.asgi import make_routes

    return make_routes(service, about)
