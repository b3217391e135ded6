"""Who may come in, on a real server and real sockets: the client here writes what it likes."""

import logging
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from holdfast.config.settings import ServerSettings
from holdfast.core.secrets import Secrets
from holdfast.server.guard import Guard
from holdfast.server.keys import Keys
from tests.server.guarded import (
    BEARER,
    JSON,
    KEY,
    KEYS,
    PAGE,
    SAFE,
    answer,
    app,
    ask,
    call,
    connected,
    length,
    noted,
    request,
    serving,
)

pytestmark = pytest.mark.real_time


# --- who asks ------------------------------------------------------------------------------


async def test_a_key_opens_and_tells_who_came():
    async with serving() as here:
        for scheme in ("Bearer", "bearer", "BEARER"):
            found = await ask(here, "/echo", f"Authorization: {scheme}  {KEY} ")
            assert (found.status, found.told["principal"]) == (200, "local"), scheme
        found = await ask(here, "/echo", "Authorization: Bearer the key of the phone")
        assert found.told["principal"] == "phone"


async def test_what_was_opened_with_a_key_can_be_closed_when_that_is_taken_away():
    keys = [("phone", sha256(b"the key of the phone").digest())]
    seen = []

    async def served(scope, _receive, send):
        seen.append(scope["state"]["welcome"])
        await answer(send, 200, b"")

    class List:
        def hashes(self):
            return tuple(keys)

    guard = Guard(served, settings=ServerSettings(), keys=Keys((), List()), port=lambda: 8642)

    async def send(_message):
        pass

    head = [(b"host", b"localhost"), (b"authorization", b"Bearer the key of the phone")]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": head}
    await guard(scope, None, send)
    assert seen[0]() == "phone"
    keys.clear()
    assert seen[0]() is None


async def test_without_a_key_there_is_nothing_but_health():
    async with serving() as here:
        wrong = [
            "X: y",
            "Authorization:",
            "Authorization: Bearer",
            "Authorization: Bearer ",
            f"Authorization: {KEY}",
            f"Authorization: Bearer{KEY}",
            f"Authorization: Basic {KEY}",
            f"Authorization: Bearer {KEY}x",
            f"Authorization: Bearer {KEY[:-1]}",
            f"Authorization: Bearer {KEY.upper()}",
            "Authorization: Bearer ÿ\x80\xff",
            f"Authorization: Bearer {KEY}, Bearer {KEY}",
            f"{BEARER}\r\n{BEARER}",
            f"{BEARER}\r\nAuthorization: Bearer x",
            f"X-Api-Key: {KEY}",
            f"Cookie: token={KEY}",
        ]
        for header in wrong:
            found = await ask(here, "/echo", header)
            assert found.status == 401, header
            assert found.headers["www-authenticate"] == "Bearer"
            assert found.error["code"] == "invalid_api_key"
            assert found.error["message"] == "Invalid API key"
        for path in (
            "/",
            "/nowhere",
            "/boom",
            "/health/",
            "/health/detailed",
            "/Health",
            "/events",
        ):
            for method in ("GET", "POST", "DELETE", "OPTIONS", "HEAD", "TRACE"):
                assert (await ask_head(here, path, method)) == 401, (path, method)


async def ask_head(here, path, method):
    """The status alone: an answer to HEAD has no body, whatever its length says."""
    async with connected(here) as client:
        await client.write(request(path, "Connection: close", method=method))
        await client._until(b"\r\n\r\n")
        return int(client._take(b"\r\n").split()[1])


async def test_health_is_open_but_takes_a_body_from_nobody():
    async with serving() as here:
        assert (await ask(here, "/health")).body == b"well"
        assert (await ask(here, "/health", "Authorization: Bearer wrong")).status == 200
        assert (await ask(here, "/%68ealth")).status == 200
        assert (await ask(here, "/v1/health")).status == 404
        for method in ("GET", "POST"):
            found = await ask(here, "/health", JSON, length(2), method=method, body=b"{}")
            assert found.status == 401
        assert (await ask(here, "/health", method="POST")).status == 401


async def test_a_key_in_the_address_opens_nothing():
    async with serving() as here:
        for name in ("token", "api_key", "key", "access_token", "Authorization"):
            assert (await ask(here, f"/echo?{name}={KEY}")).status == 401


async def test_without_authentication_everyone_is_local():
    async with serving(auth="none") as here:
        assert (await ask(here, "/echo")).told["principal"] == "local"
        assert (await ask(here, "/echo", host="Host: evil")).status == 421
        assert (await ask(here, "/echo", f"Origin: {PAGE}")).status == 403


def trying_keys(**settings):
    """To ask a guard with a key, from an address: what it begins its answer with."""
    guard = Guard(app, settings=ServerSettings(**settings), keys=KEYS, port=lambda: 8642)
    ports = count(1)

    async def ask(key, address):
        head = [(b"host", b"localhost"), (b"authorization", b"Bearer " + key)]
        scope = {"type": "http", "method": "GET", "path": "/echo", "query_string": b""}
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        # Whoever tries again comes by another line, and so from another port.
        client = (address, next(ports)) if address else None
        await guard({**scope, "headers": head, "client": client}, receive, send)
        return sent[0]

    return ask


async def test_who_keeps_trying_keys_from_elsewhere_is_not_listened_to_for_a_while():
    ask = trying_keys()
    here = ("127.0.0.1", "::1", "::ffff:127.0.0.1", None)
    for client in ("192.0.2.7", *here):
        assert [(await ask(b"wrong", client))["status"] for _ in range(10)] == [401] * 10
    refused = await ask(KEY.encode(), "192.0.2.7")
    assert refused["status"] == 429
    assert 0 < int(dict(refused["headers"])[b"retry-after"]) <= 60
    for client in ("192.0.2.8", *here):
        assert (await ask(KEY.encode(), client))["status"] == 200


async def test_who_tries_keys_through_a_proxy_shuts_out_nobody_else():
    ask = trying_keys(behind_proxy=True)
    assert [(await ask(b"wrong", "192.0.2.7"))["status"] for _ in range(11)] == [401] * 11
    assert (await ask(KEY.encode(), "192.0.2.7"))["status"] == 200


# --- what is on every answer ---------------------------------------------------------------


async def test_every_answer_carries_what_keeps_a_browser_in_check():
    async with serving(body_limit=10) as here:
        large = (BEARER, JSON, length(11))
        for status, found in [
            (200, await ask(here, "/health")),
            (200, await ask(here, "/events", BEARER)),
            (400, await ask(here, "/health", host="Host: @")),
            (400, await ask(here, "/health", "Content-Length: no")),
            (401, await ask(here, "/echo")),
            (403, await ask(here, "/health", "Origin: null")),
            (404, await ask(here, "/nowhere", BEARER)),
            (413, await ask(here, "/echo", *large, method="POST", body=b"x" * 11)),
            (421, await ask(here, "/health", host="Host: evil")),
            (500, await ask(here, "/boom", BEARER)),
        ]:
            assert found.status == status
            assert found.headers.items() >= SAFE.items(), status
            assert len({name for name, _ in found.pairs}) == len(found.pairs)
            assert "strict-transport-security" not in found.headers


async def test_what_the_app_says_itself_is_not_said_again():
    async with serving() as here:
        found = await ask(here, "/own", BEARER)
        told = {name: value for name, value in found.pairs if name in SAFE}
        assert told == {
            **SAFE,
            "content-security-policy": "default-src 'self'",
            "cache-control": "private",
        }
        assert len({name for name, _ in found.pairs}) == len(found.pairs)


async def test_a_browser_is_held_to_tls_only_where_there_is_tls():
    sent = await call({"headers": [(b"host", b"localhost")]}, tls_cert=Path("cert"))
    hsts = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
    assert hsts in sent[0]["headers"]


# --- what else comes -----------------------------------------------------------------------


async def test_a_websocket_is_refused():
    async with serving() as here, connected(here) as client:
        upgrade = ("Upgrade: WebSocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
        await client.write(request("/echo", BEARER, *upgrade, "Sec-WebSocket-Key: eA=="))
        found = await client.read()
        assert (found.status, found.error["code"]) == (400, "websocket_not_supported")
        await client.write(request("/health"))
        assert (await client.read()).status == 200
    sent = await call({"type": "websocket"}, [{"type": "websocket.connect"}])
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_another_upgrade_is_passed_over():
    async with serving() as here:
        upgrade = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: x")
        assert (await ask(here, "/echo", BEARER, *upgrade)).status == 200


async def test_what_is_no_http_is_told_so():
    async with serving() as here:
        for rubbish in (
            b"rubbish\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\0\xa5",
        ):
            async with connected(here) as client:
                await client.write(rubbish)
                found = await client.read()
                assert (found.status, found.error["code"]) == (400, "invalid_http")
                assert found.headers.items() >= SAFE.items()
                assert await client.closed()
        async with connected(here) as client:
            await client.write(b"CONNECT evil:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await client.read()).status == 400


async def test_the_beginning_and_the_end_of_a_server_are_the_apps():
    seen = []

    async def served(scope, receive, send):
        seen.append((scope, receive, send))

    guard = Guard(served, settings=ServerSettings(), keys=KEYS, port=lambda: 8642)
    await guard({"type": "lifespan"}, "receive", "send")
    assert seen == [({"type": "lifespan"}, "receive", "send")]


async def test_an_error_of_ours_is_answered_without_details(caplog):
    async with serving() as here:
        found = await ask(here, "/boom", BEARER)
        assert (found.status, found.error["code"]) == (500, "internal_error")
        assert b"secret" not in found.body
        found = await ask(here, "/wrong", BEARER)
        assert (found.status, found.error["message"]) == (400, "that will not do")
        found = await ask(here, "/full", BEARER)
        assert (found.status, found.error["code"]) == (507, "journal_full")
    assert [record.getMessage() for record in noted(caplog)] == ["GET /boom failed"]
    assert noted(caplog)[0].exc_info[0] is ValueError


async def test_after_an_error_whose_request_was_read_whole_the_line_can_be_used_again():
    async with serving() as here, connected(here) as client:
        for _ in range(2):
            await client.write(request("/wrong", BEARER, JSON, length(2), method="POST") + b"{}")
            found = await client.read()
            assert (found.status, "connection" in found.headers) == (400, False)


async def test_a_refusal_repeats_no_secret():
    async with serving(secrets=Secrets(["that will not do"])) as here:
        found = await ask(here, "/wrong", BEARER)
        assert (found.status, found.error["message"]) == (400, "[secret]")


async def test_an_answer_that_fails_halfway_is_cut_off():
    async with serving() as here, connected(here) as client:
        await client.write(request("/half", BEARER))
        with pytest.raises(EOFError) as cut:
            await client.read()
        assert cut.value.args == (b"half",)
    sent = []
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {KEY}".encode())]
    with pytest.raises(ValueError, match="in the middle"):
        await call({"headers": headers, "path": "/half"}, sent=sent)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


# --- the log -------------------------------------------------------------------------------


async def test_each_request_is_noted_without_what_is_secret(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    async with serving() as here:
        await ask(here, f"/echo?key={KEY}&x=%0d%0ay", BEARER, "User-Agent: odd")
        await ask(here, "/no%0d%0awhere", BEARER)
        await ask(here, "/echo", "Authorization: Bearer not-quite-the-key")
        await ask(here, "/" + "x" * 500, "Authorization: Bearer the key of the phone")
    told = [(one.method, one.path, one.status, one.principal) for one in noted(caplog)]
    assert told == [
        ("GET", "/echo", 200, "local"),
        ("GET", "/no%0d%0awhere", 404, "local"),
        ("GET", "/echo", 401, ""),
        ("GET", "/" + "x" * 199, 404, "phone"),
    ]
    assert all(0 < one.duration < 5 for one in noted(caplog))
    lines = [one.getMessage() for one in noted(caplog)]
    assert lines[0].startswith("GET /echo 200 in 0.") and lines[0].endswith(" s for 'local'")
    assert not any(secret in line for line in lines for secret in (KEY, "not-quite", "odd", "\n"))


async def test_no_sign_of_a_path_breaks_a_line_of_the_log(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    host = (b"host", b"localhost")
    await call({"headers": [host], "path": "/a\r\nb\x1b\u2028"})
    await call({"headers": [host], "path": "/", "raw_path": b"/a\r\nb\xff"})
    assert [one.path for one in caplog.records] == [
        "/a\\r\\nb\\x1b\\xe2\\x80\\xa8",
        "/a\\r\\nb\\xff",
    ]
