"""A line to a server, to somebody who is known to be it.

A server that is named is known by a certificate that this machine trusts. The owner of the data directory
may go by any name, and writes down there which certificate it shows: that one it has to be.
"""

from __future__ import annotations

import http.client
import io
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from urllib.parse import SplitResult

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute


class _Pinned(http.client.HTTPSConnection):
    pin = ""

    def connect(self) -> None:
        super().connect()
        _check(self.pin, self.sock.getpeercert(binary_form=True))


def connect(server: SplitResult, pin: str, patience: float) -> http.client.HTTPConnection:
    """`pin` is the SHA-256 of the certificate that it has to show, "" if that is not known."""
    host, port = server.hostname or "", server.port
    if server.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=patience)
    connection = _Pinned(host, port, timeout=patience, context=_trust(pin))
    connection.pin = pin
    return connection


async def dial(server: SplitResult, pin: str) -> ByteStream:
    """The same for who does not want to be held up. Raises OSError."""
    host = server.hostname or ""
    if server.scheme == "http":
        with _telling_why():
            return await anyio.connect_tcp(host, server.port or 80)
    with _telling_why():
        line = await anyio.connect_tcp(host, server.port or 443, ssl_context=_trust(pin))
    try:
        _check(pin, line.extra(TLSAttribute.peer_certificate_binary))  # noqa: S610 - no Django
    except ssl.SSLError:
        await anyio.aclose_forcefully(line)
        raise
    return line


@contextmanager
def _telling_why() -> Iterator[None]:
    """That all attempts failed says less than why the only one did."""
    try:
        yield
    except OSError as error:
        raise (error.__cause__ if isinstance(error.__cause__, OSError) else error) from None


class Patience:
    """How long a server may say nothing. Whoever waits already is told when that becomes shorter."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waits: set[anyio.CancelScope] = set()

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Raises TimeoutError."""
        with anyio.fail_after(self.seconds) as scope:
            self._waits.add(scope)
            try:
                yield
            finally:
                self._waits.discard(scope)

    def shorten(self, seconds: float) -> None:
        self.seconds = min(self.seconds, seconds)
        for scope in self._waits:
            scope.deadline = min(scope.deadline, anyio.current_time() + self.seconds)


class _Heard:
    """What came over a line, as http.client reads from one."""

    def __init__(self, told: bytes) -> None:
        self._told = told

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._told)


async def exchange(
    server: tuple[SplitResult, str],
    request: tuple[str, str, Mapping[str, str], bytes],
    patience: Patience,
) -> tuple[int, bytes]:
    """Ask one thing, on a line of its own: the status of the answer, and its body.

    Raises OSError or HTTPException.
    """
    (parts, pin), (method, target, headers, body) = server, request
    named = {
        "Host": parts.netloc.rpartition("@")[2],
        **headers,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    head = (f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()))
    told = bytearray()
    with patience.wait():
        line = await dial(parts, pin)
    try:
        with patience.wait():
            await line.send("\r\n".join((*head, "", "")).encode() + body)
        # Whether all of it has come is seen below.
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                with patience.wait():
                    told += await line.receive()
    finally:
        await anyio.aclose_forcefully(line)
    answer = http.client.HTTPResponse(_Heard(bytes(told)), method=method)  # type: ignore[arg-type]
    answer.begin()
    return answer.status, answer.read()


def _trust(pin: str) -> ssl.SSLContext:
    trust = ssl.create_default_context()
    if pin:
        # It is looked at below, before a word is said.
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


def _check(pin: str, certificate: bytes | None) -> None:
    """Raises OSError."""
    if pin and sha256(certificate or b"").hexdigest() != pin:
        raise ssl.SSLError("it does not show the certificate of the directory's owner")
