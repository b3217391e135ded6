"""The edge to the network: the only place that knows aiohttp and its errors.

Past this module there is ModelError and nothing else. An answer that is left is hung up on at
once: closing is how a call is cancelled.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler

from holdfast.errors import ModelError, ModelUnavailable, StreamStalled

#: Bytes that are held of an answer nobody has read yet.
BUFFER = 64 * 1024

#: Seconds an idle connection is kept for the next call.
KEPT = 30.0


class Answer(Protocol):
    """What came back; `headers` by their names in small letters."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

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


class _Answer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        read = self._response.content.readany
        try:
            while piece := await read():
                # What comes while this is being heard waits in the socket, where it costs nothing.
                line = self._hold()
                yield piece
                if line:
                    line.resume_reading()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise _lost(error) from error

    def _hold(self) -> asyncio.ReadTransport | None:
        """The line, on which nothing more is read for now. None if it is no longer ours."""
        connection = self._response.connection
        line = connection.transport if connection else None
        if line is None or line.is_closing():
            return None
        line.pause_reading()
        return line


class AiohttpTransport:
    """One pool of connections for every endpoint. Nothing is taken from the environment."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, connect: float
    ) -> AsyncIterator[Answer]:
        # Only the connection has a limit here: how long to listen is not for us to say.
        limits = aiohttp.ClientTimeout(total=None, sock_connect=None, connect=connect or None)
        try:
            response = await self._session.request(
                method, url, headers=headers, data=body, timeout=limits, allow_redirects=False
            )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreached(error, connect) from error
        try:
            yield _Answer(response)
            response.release()
        finally:
            response.close()


class _Connector(aiohttp.TCPConnector):
    """Hangs up without waiting for a good-bye, for which a peer behind TLS could hold the line."""

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        if should_close or protocol.should_close:
            protocol.abort()
        super()._release(key, protocol, should_close=should_close)


@asynccontextmanager
async def open_transport(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[AiohttpTransport]:
    """`tls`: whom to trust, if not the authorities that this machine trusts."""
    connector = _Connector(
        limit=0, ssl=tls or True, keepalive_timeout=KEPT, enable_cleanup_closed=False
    )
    session = aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        read_bufsize=BUFFER,
        auto_decompress=True,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent",),
        headers={"User-Agent": "holdfast"},
    )
    try:
        yield AiohttpTransport(session)
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()


#: What to look at first.
_CHECK = "is base_url right?"


def _unreached(error: Exception, connect: float) -> ModelError:
    match error:
        case aiohttp.ConnectionTimeoutError() | asyncio.TimeoutError():
            return StreamStalled(
                f"no connection to the endpoint within {connect:g} s (so no TTFB); hanging up"
            )
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return ModelUnavailable(f"the endpoint could not prove who it is: {_words(error)}")
        case aiohttp.ClientConnectorDNSError():
            return ModelUnavailable(f"the endpoint's name is not known ({_CHECK}): {_words(error)}")
        case aiohttp.InvalidURL():
            return ModelUnavailable(f"there is no such address ({_CHECK}): {_words(error)}")
        case aiohttp.ClientConnectorError():
            return ModelUnavailable(f"the endpoint cannot be reached ({_CHECK}): {_words(error)}")
        case _:
            return _lost(error)


def _lost(error: Exception) -> ModelUnavailable:
    return ModelUnavailable(f"lost the connection to the endpoint: {_words(error)}")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
