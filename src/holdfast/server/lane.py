"""The requests that come with every run, to start, follow and stop it; and whether we live.

Asked as they usually are, they are answered here. Routing them and finding out what their handlers
want takes the framework an eighth of all that a short run costs, and loading it half of a server's
start. Asked in any other way they are for the routes, which describe them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.server import requests
from holdfast.server.about import About
from holdfast.server.guard import OPEN, App, Header
from holdfast.server.openai.going_on import take_run
from holdfast.server.service import Service
from holdfast.server.streams import Receive, RunStream, Scope, Send

_OF_ONE = re.compile(r"/v1/runs/([^/]{1,256})/(events|stop)")


class Started(Struct, frozen=True):
    run_id: str
    status: str = "started"
    replayed: bool = False


class Stopping(Struct, frozen=True):
    run_id: str
    status: str


async def start(
    service: Service, body: bytes, *, principal: str, headers: Mapping[str, str]
) -> tuple[Started, dict[str, str]]:
    """A run, and the headers to tell of it with. Raises Problem or HoldfastError."""
    key, session_key = headers.get("Idempotency-Key"), requests.session_key(headers)
    begun = await take_run(service, body, principal=principal, key=key, headers=headers)
    submitted = begun.submitted
    told = {"X-Run-Id": submitted.run_id}
    if begun.ignored:
        told["X-Holdfast-Ignored"] = ", ".join(begun.ignored)
    if submitted.replayed:
        told["Idempotency-Replayed"] = "true"
    if session_key:
        told["X-Hermes-Session-Key"] = service.secrets.mask(session_key)
    return Started(submitted.run_id, submitted.how, submitted.replayed), told


class Lane:
    """An ASGI app beside the routes. What it raises is for whoever guards both to answer."""

    def __init__(self, service: Service, about: About, routes: App) -> None:
        self._service, self._about, self._routes = service, about, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        of_one = _OF_ONE.fullmatch(path)
        match scope.get("method"), of_one[2] if of_one else path:
            case "POST", "/v1/runs":
                await self._start(scope, receive, send)
            case "GET", "events" if of_one and not scope["query_string"]:
                seen = (value for name, value in scope["headers"] if name == b"last-event-id")
                after = requests.cursor(next(seen, b"").decode("latin-1"), None)
                await RunStream(self._service, of_one[1], after=after)(scope, receive, send)
            case "POST", "stop" if of_one:
                await self._stop(of_one[1], scope, receive, send)
            case "GET" | "HEAD", open_path if open_path in OPEN:
                await _answer(send, 200, self._about.health())
            case _:
                await self._routes(scope, receive, send)

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, told = await start(
            self._service,
            await _body(receive),
            principal=scope["state"]["principal"],
            headers=_Headers(scope["headers"]),
        )
        # Of headers that came as bytes, and go as they came.
        more = [(name.lower().encode(), value.encode("latin-1")) for name, value in told.items()]
        await _answer(send, 202, started, *more)

    async def _stop(self, run_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        principal = scope["state"]["principal"]
        stands = await self._service.stop(run_id, await _body(receive), principal=principal)
        await _answer(send, 200, Stopping(run_id, stands))


class _Headers(dict[str, str]):
    """Of a request, to be asked for in any spelling. Of one that came twice the first counts."""

    def __init__(self, raw: Sequence[Header]) -> None:
        super().__init__((name.decode("latin-1"), v.decode("latin-1")) for name, v in raw[::-1])

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


async def _body(receive: Receive) -> bytes:
    """Whoever guards this has read it, so it comes in one piece."""
    body: bytes = (await receive()).get("body", b"")
    return body


async def _answer(send: Send, status: int, said: object, *more: Header) -> None:
    body = msgspec.json.encode(said)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
