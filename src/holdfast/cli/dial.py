"""A line to a server, to somebody who is known to be it.

A server that is named is known by a certificate that this machine trusts. The owner of the data directory
may go by any name, and writes down there which certificate it shows: that one it has to be.
"""

from __future__ import annotations

import http.client
import ssl
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
        return await anyio.connect_tcp(host, server.port or 80)
    line = await anyio.connect_tcp(host, server.port or 443, ssl_context=_trust(pin))
    try:
        _check(pin, line.extra(TLSAttribute.peer_certificate_binary))  # noqa: S610 - no Django
    except ssl.SSLError:
        await anyio.aclose_forcefully(line)
        raise
    return line


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
