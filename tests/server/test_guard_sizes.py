"""How large a request may be and how long it may take, on a real server and real sockets."""

import logging
from contextlib import suppress

import anyio
import pytest

from tests.server.guarded import (
    BEARER,
    JSON,
    ask,
    call,
    connected,
    length,
    noted,
    request,
    serving,
)

pytestmark = pytest.mark.real_time


async def test_a_head_has_limits():
    async with serving() as here:
        assert (await ask(here, "/echo", BEARER, f"X: {'x' * 16_000}")).status == 200
        found = await ask(here, "/echo", BEARER, f"X: {'x' * 16_384}")
        assert (found.status, found.error["code"]) == (431, "headers_too_large")
        assert (await ask(here, "/echo", BEARER, *(f"X{n}: y" for n in range(98)))).status == 200
        assert (await ask(here, "/echo", BEARER, *(f"X{n}: y" for n in range(99)))).status == 431
        assert (await ask(here, f"/echo?{'x' * 8_180}", BEARER)).status == 200
        for target in (f"/echo?{'x' * 8_192}", "/" + "x" * 8_192):
            found = await ask(here, target, BEARER)
            assert (found.status, found.error["code"]) == (414, "uri_too_long")


async def test_a_body_may_be_as_large_as_the_limit():
    async with serving(body_limit=1000) as here:
        for size in (0, 1, 1000):
            body = b"x" * size
            found = await ask(here, "/echo", BEARER, JSON, length(size), method="POST", body=body)
            assert found.told["body"] == size
        found = await ask(here, "/echo", BEARER, JSON, length(1001), method="POST")
        assert (found.status, found.error["code"]) == (413, "body_too_large")
        assert found.headers["connection"] == "close"


def chunked(*sizes):
    return b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in sizes)


async def test_a_body_in_chunks_is_counted_as_it_comes():
    async with serving(body_limit=1000) as here:
        head = (BEARER, JSON, "Transfer-Encoding: chunked")
        for sizes in ((), (1,), (500, 500), (1,) * 1000):
            body = chunked(*sizes) + b"0\r\n\r\n"
            found = await ask(here, "/echo", *head, method="POST", body=body)
            assert found.told["body"] == sum(sizes)
        for body in (chunked(500, 501), chunked(1001) + b"0\r\n\r\n"):
            found = await ask(here, "/echo", *head, method="POST", body=body)
            assert (found.status, found.error["code"]) == (413, "body_too_large")


async def test_whoever_is_still_sending_a_body_that_is_too_large_can_read_so():
    size = 20_000_000
    async with serving() as here:
        for encoding, body in (
            (length(size), b"x" * size),
            ("Transfer-Encoding: chunked", chunked(*[1_000_000] * 20) + b"0\r\n\r\n"),
        ):
            # All of it is written before anything is read.
            found = await ask(here, "/echo", BEARER, JSON, encoding, method="POST", body=body)
            assert found.status == 413


async def test_the_rest_of_an_unwanted_body_is_waited_for_a_short_while():
    async with serving(linger=0.1) as here, connected(here) as client:
        await client.write(request("/echo", JSON, length(1000), method="POST"))
        assert (await client.read()).status == 401
        began = anyio.current_time()
        assert await client.closed()
        assert anyio.current_time() - began < 5


@pytest.mark.parametrize("begun", [b"", b"abc"])
async def test_a_body_that_stops_arriving_is_given_up(begun):
    async with serving(patience=0.2) as here, connected(here) as client:
        await client.write(request("/echo", BEARER, JSON, length(10), method="POST", body=begun))
        found = await client.read()
        assert (found.status, found.error["code"]) == (408, "body_timeout")
        assert await client.closed()


async def test_a_slow_body_is_waited_for_as_long_as_it_keeps_coming():
    async with serving(patience=0.5) as here, connected(here) as client:
        await client.write(request("/echo", BEARER, JSON, length(8 * 1024), method="POST"))
        for _ in range(8):
            await anyio.sleep(0.1)
            await client.write(b"x" * 1024)
        assert (await client.read()).told["body"] == 8 * 1024


async def test_a_body_that_drips_is_not_waited_for_though_it_keeps_coming():
    async def drip(client):
        with suppress(anyio.BrokenResourceError):
            while True:
                await client.write(b"x")
                await anyio.sleep(0.1)

    async with serving(patience=0.5) as here, connected(here) as client:
        await client.write(request("/echo", BEARER, JSON, length(1000), method="POST"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, client)
            with anyio.fail_after(10):
                assert (await client.read()).error["code"] == "body_timeout"
            tasks.cancel_scope.cancel()


async def test_a_body_whose_sender_hangs_up_reaches_nobody(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    async with serving() as here:
        async with connected(here) as client:
            await client.write(request("/echo", BEARER, JSON, length(10), method="POST"))
            await anyio.sleep(0.05)
        while not noted(caplog):
            await anyio.sleep(0.01)
    assert [record.status for record in noted(caplog)] == [0]


async def test_an_app_that_had_its_body_still_learns_that_the_line_is_closed(caplog):
    caplog.set_level(logging.INFO, "holdfast.server")
    async with serving() as here:
        async with connected(here) as client:
            head = (BEARER, JSON, length(2))
            await client.write(request("/events?hold", *head, method="POST", body=b"{}"))
            await client._until(b"data: 1\n\n")
            await anyio.sleep(0.05)
            assert noted(caplog) == []
        while not noted(caplog):
            await anyio.sleep(0.01)


async def test_a_body_that_will_be_refused_is_not_asked_for():
    async with serving(body_limit=10, linger=0.1) as here:
        head = (JSON, "Expect: 100-continue")
        assert (await ask(here, "/echo", *head, length(5), method="POST")).status == 401
        assert (await ask(here, "/echo", BEARER, *head, length(11), method="POST")).status == 413
        async with connected(here) as client:
            await client.write(request("/echo", BEARER, *head, length(5), method="POST"))
            assert (await client.read()).status == 100
            await client.write(b"12345")
            assert (await client.read()).told["body"] == 5


async def test_a_body_is_json_or_none():
    async with serving() as here:
        good = ["application/json", "Application/JSON", "application/json; charset=utf-8"]
        good += ["application/json ;x", 'application/json; x="y"; charset="UTF-8"']
        good.append("application/json; x-charset=latin-1")
        bad = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
        bad += [
            "",
            "application/jsonx",
            "text/plain; application/json",
            "application/json, text/plain",
            "application/json; charset=latin-1",
            "application/json;x=y; Charset = utf-16",
        ]
        for method in ("POST", "PUT", "PATCH"):
            for kind in good + bad:
                head = (BEARER, f"Content-Type: {kind}", length(2))
                found = await ask(here, "/echo", *head, method=method, body=b"{}")
                assert found.status == (200 if kind in good else 415), kind
            assert (
                await ask(here, "/echo", BEARER, length(2), method=method, body=b"{}")
            ).status == 415
            assert (await ask(here, "/echo", BEARER, method=method)).told["body"] == 0
            assert (await ask(here, "/echo", BEARER, length(0), method=method)).told["body"] == 0
        for packed, status in (("gzip", 415), ("br, gzip", 415), ("Identity", 200), ("", 200)):
            head = (BEARER, JSON, f"Content-Encoding: {packed}", length(2))
            found = await ask(here, "/echo", *head, method="POST", body=b"{}")
            assert found.status == status, packed
        two = (BEARER, JSON, "Content-Type: text/plain", length(2))
        assert (await ask(here, "/echo", *two, method="POST", body=b"{}")).status == 400
        found = await ask(here, "/echo", BEARER, length(2), method="DELETE", body=b"{}")
        assert found.told["body"] == 2


async def test_a_stop_may_come_with_a_body_of_any_type_and_nothing_else_may():
    async with serving() as here:
        for path, status in [
            ("/v1/runs/run_1/stop", 404),
            ("/v1/runs/run_1/stop?x", 404),
            ("/v1/runs/run_1/stop/steer", 415),
            ("/v1/runs/run_1/steer", 415),
            ("/v1/runs/stop", 415),
            ("/v1/runs?/v1/runs/run_1/stop", 415),
        ]:
            for head in ((), ("Content-Type: text/plain",)):
                found = await ask(here, path, BEARER, *head, length(2), method="POST", body=b"no")
                # The app here knows no such path; what counts is that it was asked.
                assert found.status == status, path
            assert (
                await ask(here, path, *head, length(2), method="POST", body=b"no")
            ).status == 401


async def test_a_request_is_one_request_to_everyone():
    """Two ways to tell where a body ends would hide a second request in the first."""
    hidden = request("/echo", BEARER)
    shapes = [
        (length(len(hidden)), "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", length(len(hidden))),
        (length(0), length(len(hidden))),
        (length(len(hidden)), length(len(hidden))),
        (f"Content-Length: 0, {len(hidden)}",),
        ("Content-Length: +0",),
        ("Content-Length: -1",),
        ("Content-Length: 0x0",),
        ("Content-Length:",),
        ("Content-Length: 99999999999999999999999",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding:\x0bchunked",),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",),
        ("X: y\r\n Transfer-Encoding: chunked",),
        ("X: y\nTransfer-Encoding: chunked",),
        ("X: y\rTransfer-Encoding: chunked",),
        ("X: y\0",),
    ]
    async with serving(linger=0.1) as here:
        for shape in shapes:
            async with connected(here) as client:
                body = b"0\r\n\r\n" + hidden
                await client.write(request("/echo", BEARER, JSON, *shape, method="POST", body=body))
                found = await client.read()
                assert found.status == 400 and found.error, shape
                assert found.headers["connection"] == "close"
                assert await client.closed(), shape


async def test_what_reaches_the_guard_by_another_parser_is_judged_the_same():
    for headers in (
        [(b"content-length", b"+1")],
        [(b"content-length", b"\xb2")],
        [(b"content-length", b"1" * 5000)],
        [(b"content-length", b"")],
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"1"), (b"content-length", b"1")],
    ):
        sent = await call({"headers": [(b"host", b"localhost"), *headers]})
        assert sent[0]["status"] == 400, headers
