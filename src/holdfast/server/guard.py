"""Who may come in, and with what: every request is judged here, before anything is routed.

The guard trusts nothing but the head of a request as it came. Whoever a browser was tricked into
asking us for is known by the name it thinks we have (Host) or by the page it is on (Origin); all
others show a key. Only then is a body read, whole, so that one which is too large or never ends
is refused here and by no route. The same headers go on every answer, streams and refusals alike.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import cached_property, partial
from math import ceil
from time import perf_counter
from typing import Any, TypeAlias

import anyio

from holdfast.config.settings import ServerSettings
from holdfast.core.secrets import NO_SECRETS, Secrets
from holdfast.errors import HoldfastError
from holdfast.server.backoff import Backoff
from holdfast.server.callers import stranger
from holdfast.server.cors import PREFLIGHT, SHARED
from holdfast.server.keys import LOCAL, Keys
from holdfast.server.names import Names
from holdfast.server.problems import (
    Problem,
    malformed,
    problem,
    too_large,
    too_many,
    wrong_key,
    wrong_media_type,
)

#: What may be asked without a key.
OPEN = frozenset({"/health", "/v1/health"})
#: A stop is never refused for what came with it: some clients send no type, or that of a form.
_OF_ANY_TYPE = re.compile(r"/v1/runs/[^/]+/stop/?")

#: Bytes of a request's address, and of that and all headers.
TARGET_LIMIT = 8 * 1024
HEAD_LIMIT = 16 * 1024
MOST_HEADERS = 100

#: Seconds: for the next piece of a body, and for the rest of one that is not wanted. Whoever is
#: still sending when we hang up may never read why. And bytes a second, below which a body takes too
#: long in all.
BODY_PATIENCE = 30.0
LINGER = 1.0
LEAST_RATE = 1024

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

_JUDGED = frozenset(
    b"host origin authorization content-type content-encoding content-length transfer-encoding"
    b" upgrade".split()
)
#: A second one of these could mean something else to whoever else reads the request.
_SINGLE = _JUDGED - {b"authorization"}

SAFE: tuple[Header, ...] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_CHARSET = re.compile(rb"(?:^|;)\s*charset\s*=\s*\"?([^\";\s]*)")
_CLOSE: Header = (b"connection", b"close")
TLS: Header = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")

_log = logging.getLogger("holdfast.server")


class Guard:
    """An ASGI app around another. `port` is asked once there is a first request to judge; `leaving`
    says whether the server is about to go, so that nobody asks any more on a line that will break."""

    def __init__(
        self,
        app: App,
        *,
        settings: ServerSettings,
        keys: Keys,
        port: Callable[[], int],
        open_paths: frozenset[str] = OPEN,
        patience: float = BODY_PATIENCE,
        linger: float = LINGER,
        secrets: Secrets = NO_SECRETS,
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app, self._settings, self._keys, self._port = app, settings, keys, port
        self._open, self._patience, self._linger = open_paths, patience, linger
        self._secrets, self._leaving, self._backoff = secrets, leaving, Backoff()
        self._origins = {origin.lower().encode() for origin in settings.cors_origins}
        tls = settings.tls_cert is not None
        self._safe = (*SAFE, TLS) if tls else SAFE
        outside = (b"https://", b"http://") if settings.behind_proxy else ()
        self._schemes = {b"https://" if tls else b"http://", *outside}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            safe = (*self._safe, _CLOSE) if self._leaving() else self._safe
            await self._watch(scope, receive, _Sender(send, safe))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _watch(self, scope: Message, receive: Receive, sender: _Sender) -> None:
        began = perf_counter()
        scope.setdefault("state", {})["principal"] = ""
        try:
            await self._serve(scope, receive, sender, _Head(scope["headers"]))
        finally:
            _note(scope, sender.status, perf_counter() - began)

    async def _serve(self, scope: Message, receive: Receive, sender: _Sender, head: _Head) -> None:
        origin = head.values.get(b"origin", b"")
        listed = origin.lower() in self._origins
        if listed:
            # Whatever it is told, why it is refused included.
            sender.extra = ((b"access-control-allow-origin", origin), *SHARED)
        try:
            _check_head(scope, head)
            self._names.check(head.host)
            if listed and scope["method"] == "OPTIONS":
                await _send(sender, 204, PREFLIGHT, b"")
                return
            if not listed:
                self._check_origin(head)
            scope["state"]["principal"] = self._principal(scope, head)
            self._check_body(scope, head)
            body = await self._read(receive, head) if head.has_body else b""
        except Problem as refusal:
            await self._refuse(refusal, receive, sender, head)
            return
        if body is None:
            return  # hung up
        if head.has_body:
            receive, head.closes = _Replay(body, receive), False
        await self._admit(scope, receive, sender, head)

    async def _admit(self, scope: Message, receive: Receive, sender: _Sender, head: _Head) -> None:
        try:
            await self._app(scope, receive, sender)
        except Exception as error:  # the last place where one can still be answered
            if sender.status:
                raise  # half an answer: all that is left is to hang up
            refusal = problem(error)
            if not isinstance(error, Problem | HoldfastError):
                _log.error("%s %s failed", scope["method"], _path(scope), exc_info=error)
            await self._refuse(refusal, receive, sender, head)

    # --- judging: each raises Problem, or lets the request go on ---------------------------

    @cached_property
    def _names(self) -> Names:
        return Names(self._settings, self._port())

    def _check_origin(self, head: _Head) -> None:
        """Pages that are not listed may come only from here."""
        origin = head.values.get(b"origin")
        if origin is None or any(origin.lower() == own + head.host for own in self._schemes):
            return
        words = "pages of this origin may not use this server; see [server] cors_origins"
        raise Problem(403, words, code="origin_not_allowed", headers={"Vary": "Origin"})

    def _principal(self, scope: Message, head: _Head) -> str:
        if self._settings.auth == "none":
            return LOCAL
        # A body is taken from nobody without a key, not even here.
        asks = scope["method"] in ("GET", "HEAD") and not head.has_body
        if asks and scope["path"] in self._open:
            return ""
        if self._backoff and (seconds := self._backoff.wait(self._stranger(scope))):
            words = "too many wrong keys came from this address; it is not listened to for a while"
            raise too_many(words, retry_after=ceil(seconds))
        scheme, _, token = head.values.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and b"authorization" not in head.repeated:
            key = token.strip().decode("utf-8", "surrogateescape")
            if (found := self._keys.principal(key)) is not None:
                if found != LOCAL:  # which nobody can take off the list
                    scope["state"]["welcome"] = partial(self._keys.principal, key)
                return found
            if address := self._stranger(scope):
                self._backoff.note(address)
        raise wrong_key()

    def _stranger(self, scope: Message) -> str:
        return stranger(scope.get("client"), proxied=self._settings.behind_proxy)

    def _check_body(self, scope: Message, head: _Head) -> None:
        if int(head.values.get(b"content-length", 0)) > self._settings.body_limit:
            raise too_large(self._settings.body_limit)
        writes = head.has_body and scope["method"] in ("POST", "PUT", "PATCH")
        if writes and not head.is_json and not _OF_ANY_TYPE.fullmatch(scope["path"]):
            raise wrong_media_type()

    # --- bodies ----------------------------------------------------------------------------

    async def _read(self, receive: Receive, head: _Head) -> bytes | None:
        """The whole body, or None if whoever sent it hung up."""
        body, began = bytearray(), anyio.current_time()
        with anyio.CancelScope(deadline=began + self._patience) as scope:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                head.unread = message.get("more_body", False)
                if len(body) > self._settings.body_limit:
                    raise too_large(self._settings.body_limit)
                if not head.unread:
                    return bytes(body)
                now, slowest = anyio.current_time(), began + len(body) / LEAST_RATE
                scope.deadline = min(now, slowest) + self._patience
        head.unread = False
        late = f"the body came too slowly: {len(body)} bytes so far, and no more in time"
        raise Problem(408, late, code="body_timeout")

    async def _refuse(
        self, refusal: Problem, receive: Receive, sender: _Sender, head: _Head
    ) -> None:
        refusal.without(self._secrets)
        headers = headers_of(refusal, close=head.closes)
        await _send(sender, refusal.status, headers, refusal.body, more=head.unread)
        if head.unread:
            # All of the answer is there to be read, but it is not over before the rest has come.
            with anyio.move_on_after(self._linger):
                while (await receive()).get("more_body"):
                    pass
            await sender({"type": "http.response.body", "body": b"", "more_body": False})


class _Head:
    """The headers that are judged. `unread` is whether there is more of the body to come, `closes`
    whether the line is over after a refusal, as its end is not known."""

    __slots__ = ("closes", "count", "has_body", "repeated", "size", "unread", "values")

    def __init__(self, headers: Iterable[Header]) -> None:
        self.values: dict[bytes, bytes] = {}
        self.repeated: set[bytes] = set()
        self.size = self.count = 0
        for name, value in headers:
            self.count += 1
            self.size += len(name) + len(value) + 4
            if name in _JUDGED:
                if name in self.values:
                    self.repeated.add(name)
                self.values[name] = value.strip(b" \t")
        chunked = b"transfer-encoding" in self.values
        self.has_body = chunked or self.values.get(b"content-length", b"0").strip(b"0") != b""
        self.unread = self.closes = self.has_body

    @property
    def host(self) -> bytes:
        return self.values.get(b"host", b"").lower()

    @property
    def is_json(self) -> bool:
        """Of the one kind that is read: not packed, and in no other alphabet."""
        kind, _, more = self.values.get(b"content-type", b"").lower().partition(b";")
        charset = _CHARSET.search(more)
        plain = self.values.get(b"content-encoding", b"identity").lower() in (b"identity", b"")
        return (
            plain
            and kind.rstrip() == b"application/json"
            and (charset is None or charset[1] in (b"utf-8", b"utf8"))
        )


def _check_head(scope: Message, head: _Head) -> None:
    target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if target > TARGET_LIMIT:
        raise Problem(414, f"the address is longer than {TARGET_LIMIT} bytes", code="uri_too_long")
    if head.size + target > HEAD_LIMIT or head.count > MOST_HEADERS:
        raise head_too_large()
    if head.repeated & _SINGLE:
        raise malformed("a header came twice that may come but once", code="repeated_header")
    length = head.values.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) < 20):
        raise malformed("Content-Length is no number of bytes", code="invalid_content_length")
    encoding = head.values.get(b"transfer-encoding")
    if encoding is not None and (encoding.lower() != b"chunked" or length is not None):
        words = "a body has a Content-Length, or comes in chunks"
        raise malformed(words, code="invalid_transfer_encoding")
    if head.values.get(b"upgrade", b"").lower() == b"websocket":
        raise malformed("this server speaks no WebSocket", code="websocket_not_supported")


def head_too_large() -> Problem:
    return Problem(
        431,
        f"the head of the request is larger than {HEAD_LIMIT} bytes or {MOST_HEADERS} headers",
        code="headers_too_large",
    )


# --- sending and receiving -----------------------------------------------------------------


class _Sender:
    """Sends on what the app sends, with our headers on the beginning. `status` is 0 before it."""

    __slots__ = ("_safe", "_send", "extra", "status")

    def __init__(self, send: Send, safe: tuple[Header, ...]) -> None:
        self._send, self._safe = send, safe
        self.extra: tuple[Header, ...] = ()
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            set_already = {name.lower() for name, _ in headers}
            headers += [header for header in self._safe if header[0] not in set_already]
            message = {**message, "headers": [*headers, *self.extra]}
        await self._send(message)


class _Replay:
    """Gives out a body that has been read already, and then whatever comes."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _send(
    sender: _Sender, status: int, headers: Iterable[Header], body: bytes, *, more: bool = False
) -> None:
    await sender({"type": "http.response.start", "status": status, "headers": list(headers)})
    await sender({"type": "http.response.body", "body": body, "more_body": more})


def headers_of(refusal: Problem, *, close: bool) -> list[Header]:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(refusal.body)),
        *((name.lower().encode(), value.encode()) for name, value in refusal.headers.items()),
    ]
    return [*headers, _CLOSE] if close else headers


def _path(scope: Message) -> str:
    """For the log: without the query, which may hold anything, and with every odd sign spelled."""
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return ascii(raw[:200].decode("latin-1"))[1:-1]


def _note(scope: Message, status: int, seconds: float) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    said = {
        "method": scope["method"],
        "path": _path(scope),
        "status": status,
        "duration": seconds,
        "principal": scope["state"]["principal"],
    }
    _log.info(
        "%(method)s %(path)s %(status)d in %(duration).4f s for '%(principal)s'", said, extra=said
    )
