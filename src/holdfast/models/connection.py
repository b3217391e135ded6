"""One connection to an endpoint, and what comes back on it for each request.

httptools parses. A client of the general kind would do for all of this, but took two and a half
times as long for a call, and an eighth of the server's start.
"""

from __future__ import annotations

import asyncio
import select
import ssl
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import cast

import httptools

from holdfast.errors import ModelUnavailable

#: Bytes that are unpacked at once, however small they were before.
PIECE = 64 * 1024

#: Bytes that are given to be unpacked at once.
FEW = 4 * 1024

#: Bytes of an answer among which there is nothing of its body: its head, mostly.
MOST_BARE = 256 * 1024

_PACKED = ("deflate", "gzip", "x-gzip")


class Exchange:
    """A request that was sent, and its answer as it arrives. httptools calls what begins with `on_`."""

    def __init__(self, line: asyncio.Transport) -> None:
        self._line = line
        self.status = 0
        self.headers: dict[str, str] = {}
        #: All of it has come, and the connection may be used again.
        self.over = self.reusable = False
        self._begun = False
        self._parts: list[bytes] = []
        # A list's own method is called without a detour, as often as a word comes.
        self.on_body: Callable[[bytes], None] = self._parts.append
        self._bare = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)

    async def begun(self) -> None:
        """Wait for the answer's head. Raises ModelUnavailable."""
        while not self._begun:
            await self._wait()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises ModelUnavailable."""
        unpacking = self._unpacking()
        while piece := await self._more():
            if unpacking is None:
                yield piece
                continue
            for part in unpacking.take(piece):
                yield part
        if unpacking and not unpacking.whole:
            raise lost(ValueError("what was packed breaks off"))

    async def _more(self) -> bytes:
        while not self._parts and not self.over:
            await self._wait()
        piece = b"".join(self._parts)
        self._parts.clear()
        return piece

    async def _wait(self) -> None:
        """For anything. Only meanwhile is the line read: what comes else waits where it costs nothing."""
        if self._error:
            raise lost(self._error) from self._error
        self._waiter = asyncio.get_running_loop().create_future()
        self._line.resume_reading()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _unpacking(self) -> _Unpacking | None:
        """Nobody asked for it to be packed, but some do it all the same."""
        packed = self.headers.get("content-encoding", "").lower()
        if packed in ("", "identity"):
            return None
        if packed not in _PACKED:
            raise ModelUnavailable(f"the answer came packed as {packed}, and nobody asked for that")
        return _Unpacking()

    # --- what the connection tells ---------------------------------------------------------

    def take(self, data: bytes) -> None:
        self._line.pause_reading()
        self._bare += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.over, self.reusable = True, False
        except httptools.HttpParserError as error:
            self.reusable = False
            self.fail(ValueError(f"what came back is not HTTP: {error}"))
        if self._parts:
            self._bare = 0
        elif self._bare > MOST_BARE:
            self.fail(ValueError(f"{self._bare} bytes came and nothing of a body"))
        self._wake()

    def end(self, error: Exception | None) -> None:
        """Nothing more will come. An answer that says not how long it is ends so."""
        coded = self.headers.get("transfer-encoding", "").lower()
        framed = "content-length" in self.headers or "chunked" in coded
        error = self._error or error
        if self._begun and not framed and error is None:
            self.over = True
        elif not self.over:
            self.fail(error or ConnectionError("it hung up"))
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error

    def close(self) -> None:
        """Nothing more will be told: the parser, which knows us, would keep us for longer."""
        del self._parser

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    # --- what the parser tells -------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.over:
            raise ValueError("more came than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        # Past the head they are a body's last words, which nobody needs.
        if not self._begun:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        # Others only say that the answer is still to come.
        self._begun = not 100 <= self.status < 200 or self.status == 101

    def on_message_complete(self) -> None:
        if self._begun:
            self.over, self.reusable = True, self._parser.should_keep_alive()
        else:
            self.headers.clear()


class _Unpacking:
    """What was packed, perhaps in several members, which follow each other."""

    def __init__(self) -> None:
        self._member: zlib._Decompress | None = None

    @property
    def whole(self) -> bool:
        return self._member is None or self._member.eof

    def take(self, piece: bytes) -> Iterator[bytes]:
        """Unpack these bytes, a few at once: what is left over is copied each time."""
        for start in range(0, len(piece), FEW):
            yield from self._take(piece[start : start + FEW])

    def _take(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if self._member is None or self._member.eof:
                # Either of the two kinds, as its first bytes say.
                self._member = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
            try:
                part = self._member.decompress(piece, PIECE)
            except zlib.error as error:
                raise lost(error) from error
            if part:
                yield part
            piece = self._member.unconsumed_tail or self._member.unused_data


class Connection(asyncio.Protocol):
    """`gone` is called with it when it is no more."""

    _line: asyncio.Transport

    def __init__(self, gone: Callable[[Connection], None]) -> None:
        self._gone = gone
        self._exchange: Exchange | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def secure(self, tls: ssl.SSLContext, name: str) -> None:
        """Speak TLS from now on, with nobody but who has this name. Raises OSError.

        The bare line is kept, for that is the one to hold: one loop throws away what it has
        deciphered for a line on hold when the other side closes. It knows what is unsent, too.
        """
        loop = asyncio.get_running_loop()
        if self.usable:
            try:
                line = await loop.start_tls(self._bare_line, self, tls, server_hostname=name)
            except BaseException:
                self.hang_up()
                raise
            self._line = line or self._line
        if not self.usable:
            raise ConnectionResetError("it hung up")

    @property
    def usable(self) -> bool:
        return not (self._line.is_closing() or self._bare_line.is_closing())

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that the loop has not told of: no good-bye, no stray answer.

        A busy loop tells late, and what came before a request would be taken for its answer.
        """
        poll = select.poll()
        poll.register(self._bare_line.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    def ask(self, *request: bytes) -> Exchange:
        if self._expiry:
            self._expiry.cancel()
        self._exchange = Exchange(self._bare_line)
        if self.usable:
            # An empty one is never sent, and never sent off either: some loops go on trying.
            self._line.writelines([part for part in request if part])
        else:
            self._exchange.fail(ConnectionError("it hung up"))
        return self._exchange

    def rest(self, seconds: float) -> bool:
        """Be there for another request for so long. False if that cannot be."""
        exchange = self._exchange
        if exchange is None or not (exchange.over and exchange.reusable):
            return False
        # It may have been answered before all of it was sent.
        if not self.usable or self._unsent:
            return False
        exchange.close()
        self._exchange = None
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.hang_up)
        # Only so it is noticed that the other side hangs up.
        self._bare_line.resume_reading()
        return True

    @property
    def _unsent(self) -> int:
        return self._line.get_write_buffer_size() + self._bare_line.get_write_buffer_size()

    def hang_up(self) -> None:
        """Without waiting for a good-bye, for which a peer behind TLS could hold the line."""
        if self._exchange:
            # The end that is to be told of is ours, and no end of an answer.
            self._exchange.fail(ConnectionError("we hung up"))
        self._line.abort()

    # --- what the loop tells ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's is a child of that class, but each has its methods.
        self._line = self._bare_line = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:
            self.hang_up()  # nobody has asked anything
        else:
            self._exchange.take(data)

    def eof_received(self) -> None:
        # A loop lets the line go only when all is sent, which a peer who reads nothing prevents.
        if self._exchange:
            self._exchange.end(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._expiry:
            self._expiry.cancel()
        if self._exchange:
            self._exchange.end(error)
            self._exchange.close()
        self._gone(self)


def lost(error: Exception) -> ModelUnavailable:
    return ModelUnavailable(f"lost the connection to the endpoint: {words(error)}")


def words(error: Exception) -> str:
    return str(error) or type(error).__name__
