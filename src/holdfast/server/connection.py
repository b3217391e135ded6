"""A line to somebody, guarded where no app can be: before there is a request, and behind one.

uvicorn holds a head of any length for any time, forgets a host that is named in the address itself,
takes what comes behind a body for headers, and the body of who would rather speak otherwise for the
next request, tells only the last request on a line that it is lost, and answers what is no HTTP in words
of its own.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from http import HTTPStatus
from typing import Any

from httptools import HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast.server.guard import HEAD_LIMIT, SAFE, TLS, head_too_large, headers_of
from holdfast.server.problems import Problem, malformed

#: Seconds for a head to arrive.
HEAD_PATIENCE = 10.0


class Connection(HttpToolsProtocol):
    """uvicorn's, to be given to it as `http`."""

    patience = HEAD_PATIENCE
    #: Bytes since there was something to pass on; and whether there was in what came last.
    _held = 0
    _passed = False
    #: Runs as long as a head is on its way.
    _slow: TimerHandle | None = None
    #: The request that is being answered, or was last; `cycle` is the one that came last.
    _begun: RequestResponseCycle

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser = _Parser(self)
        # What comes behind the last request is no reason to leave that unanswered.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_the_head()
        super().connection_lost(exc)
        if self.pipeline:
            # Or whoever answers an earlier one goes on for nobody.
            self._begun.disconnected = True
            self._begun.message_event.set()

    def data_received(self, data: bytes) -> None:
        self._passed = False
        super().data_received(data)
        # Where in its last piece something began is not known, so that piece does not count.
        self._held = 0 if self._passed else self._held + len(data)
        if self._held > HEAD_LIMIT:
            self.refuse(head_too_large())
        elif self._slow is None and not self._answering():
            # Blank lines begin nothing, and yet the line is not idle any more.
            self._expect_a_head()

    def on_message_begin(self) -> None:
        self._passed = True
        super().on_message_begin()
        self._expect_a_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes behind a body is passed over: by then the request has been judged.
        if self._slow is not None:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # it is said again in a moment
        self._have_the_head()
        if not self.url.startswith(b"/"):
            # Which of two names is meant is for nobody to guess.
            self.headers.append((b"host", self.url))
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._begun = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._passed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def plainly(self) -> bytes:
        """The head that has just come, without the wish to speak otherwise."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        # What is said of it elsewhere in the head means nothing without this.
        lines += [
            b"%b: %b" % (name, _unwished(value) if name == b"connection" else value)
            for name, value in self.headers
        ]
        return b"\r\n".join([*lines, b"", b""])

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (it says less than we do)
        self.refuse(malformed("what came is not a request of HTTP/1.1", code="invalid_http"))

    def _expect_a_head(self) -> None:
        self._have_the_head()
        self._slow = self.loop.call_later(self.patience, self._too_slow)

    def _have_the_head(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _too_slow(self) -> None:
        if self._answering():
            self._expect_a_head()
        else:
            late = f"no whole head of a request came within {self.patience:g} s"
            self.refuse(Problem(408, late, code="head_timeout"))

    def refuse(self, refusal: Problem) -> None:
        self._have_the_head()
        if self.pipeline and self.cycle.more_body:
            # It is not whole and its turn has not come: those before it are answered, and it is not.
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self._begun
        started = self._answering() and self.cycle.response_started
        if self._answering() and not started and not self.cycle.more_body:
            # The request before it is whole and is being carried out: whoever sent it is told of that.
            self.cycle.keep_alive = False
            return
        # Not into the middle of an answer.
        if not started:
            phrase = HTTPStatus(refusal.status).phrase
            lines = [b"HTTP/1.1 %d %b" % (refusal.status, phrase.encode())]
            safe = (*SAFE, TLS) if self.config.is_ssl else SAFE
            headers = [*headers_of(refusal, close=True), *safe]
            lines += [b"%b: %b" % header for header in headers]
            self.transport.write(b"\r\n".join([*lines, b"", refusal.body]))
        self.transport.close()


def _unwished(connection: bytes) -> bytes:
    return connection.lower().replace(b"upgrade", b"-")


class _Parser(HttpRequestParser):
    """Goes on in HTTP/1.1 with who asks for something else, as some clients do with all they send."""

    def __init__(self, line: Connection) -> None:
        super().__init__(line)
        self._line = line

    def feed_data(self, data: Any) -> None:
        while data:
            try:
                super().feed_data(data)
            except HttpParserUpgrade as wish:
                if self.get_method() == b"CONNECT":
                    raise HttpParserInvalidMethodError("nothing is tunnelled here") from wish
                # It has passed over the body.
                super().feed_data(self._line.plainly())
                data = memoryview(data)[wish.args[0] :]
            else:
                return
