"""A connection as a server has it: requests in, bytes out, and a hang-up noticed at once."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import responses
from typing import Any

import anyio
import msgspec


@dataclass(frozen=True)
class Received:
    """A request as it came in, its headers by their names in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Connection:
    """A connection. `answering` is the number of the request that is being answered, or None."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.answering: int | None = None
        self._heard = bytearray()
        self._news = anyio.Event()

    async def listen(self) -> None:
        """Until the other side hangs up, one way or another."""
        while True:
            await anyio.wait_readable(self.sock)
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionError:
                return
            if not data:
                return
            self._heard += data
            self._news.set()
            self._news = anyio.Event()

    async def request(self) -> Received:
        """The next request. Raises ValueError or DecodeError for what is none."""
        while (end := self._heard.find(b"\r\n\r\n")) < 0:
            await self._news.wait()
        first, *lines = self._take(end + 4).decode("latin-1").strip().split("\r\n")
        method, path, _ = first.split(" ")
        named = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in named}
        if "transfer-encoding" in headers:
            raise ValueError("a body of unknown length is beyond this endpoint")
        size = int(headers.get("content-length", 0))
        while len(self._heard) < size:
            await self._news.wait()
        body = msgspec.json.decode(self._take(size) or b"{}", type=dict[str, Any])
        return Received(method, path, headers, body)

    async def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self.sock.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self.sock)
            except ConnectionError:
                # The client is gone. Whoever listens hears of it too, and ends all this.
                await anyio.sleep_forever()

    def close_with_a_reset(self) -> None:
        """When it is closed, that is, and not with a good-bye."""
        # To linger, and for no time at all, throws away what is under way.
        lingering = struct.pack("ii", 1, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._heard[:size])
        del self._heard[:size]
        return taken


def head(status: int, headers: Mapping[str, str]) -> bytes:
    named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}\r\n{named}\r\n".encode("latin-1")
