"""For whom a request is and from which page it comes, on a real server and real sockets."""

from pathlib import Path

import pytest

from tests.server.guarded import BEARER, EXPOSED, JSON, PAGE, SAFE, ask, call, length, serving

pytestmark = pytest.mark.real_time


# --- whom the request is for ---------------------------------------------------------------


async def test_only_our_own_names_are_answered_to():
    async with serving() as here:
        ours = ["127.0.0.1", "localhost", "[::1]", "LOCALHOST", "LocalHost"]
        for name in ours:
            for host in (name, f"{name}:{here.port}"):
                found = await ask(here, "/health", host=f"Host: {host}")
                assert found.status == 200, host
        assert (await ask(here, "/health", host="Host: \tlocalhost \t")).status == 200


async def test_another_name_is_misdirected_and_no_name_is_malformed():
    async with serving() as here:
        port = here.port
        others = {
            421: [
                "evil",
                f"evil:{port}",
                f"localhost.evil:{port}",
                f"evil.localhost:{port}",
                f"localhost.:{port}",
                "localhost.",
                f"127.0.0.1.:{port}",
                f"localhost:{port + 1}",
                "localhost:80",
                f"0.0.0.0:{port}",
                f"127.0.0.2:{port}",
                f"[::]:{port}",
                f"[0:0:0:0:0:0:0:1]:{port}",
            ],
            400: [
                "",
                f"user@localhost:{port}",
                f"localhost:{port}@evil",
                f"localhost:{port}/x",
                f"localhost:{port}?x",
                f"localhost:{port}#x",
                f"localhost:{port}\\x",
                f"evil/@localhost:{port}",
                f"http://localhost:{port}",
                f"localhost:{port},evil",
                f"localhost:{port} evil",
                "localhost:",
                "localhost:http",
                f"localhost:0{port}",
                "::1",
                "[::1",
                "löcalhost",
            ],
        }
        for status, hosts in others.items():
            for host in hosts:
                found = await ask(here, "/health", BEARER, host=f"Host: {host}")
                assert found.status == status, host
                assert found.error["code"] in ("wrong_host", "invalid_host")


async def test_there_is_one_host_and_no_other_in_the_address():
    async with serving() as here:
        twice = "Host: localhost\r\nHost: localhost"
        for host in (None, twice, "Host: localhost\r\nHost: evil", "Host: evil\r\nHost: localhost"):
            assert (await ask(here, "/health", BEARER, host=host)).status == 400, host
        for target in ("http://evil/health", "http://localhost/health", "http://evil", "*"):
            for host in ("Host: localhost", "Host: evil"):
                found = await ask(here, target, BEARER, host=host)
                assert found.status == 400, target
                assert found.error


async def test_a_path_that_looks_like_a_host_is_a_path():
    async with serving() as here:
        assert (await ask(here, "//evil/health", BEARER)).status == 404


async def test_names_that_were_configured_are_ours_too():
    names = ("Box.example", "192.0.2.7", "2001:db8::7")
    async with serving(hosts=names, host="box.lan") as here:
        for name in ("box.example", "192.0.2.7", "[2001:db8::7]", "box.lan", "localhost"):
            for host in (name, f"{name}:{here.port}"):
                assert (await ask(here, "/health", host=f"Host: {host}")).status == 200, host
        assert (await ask(here, "/health", host="Host: 2001:db8::7")).status == 400
        assert (await ask(here, "/health", host="Host: www.box.example")).status == 421


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "::"])
async def test_an_address_that_means_all_addresses_is_nobodys_name(anywhere):
    async with serving(host=anywhere) as here:
        for host in ("0.0.0.0", "[::]"):
            assert (await ask(here, "/health", host=f"Host: {host}")).status == 421


# --- from which page -----------------------------------------------------------------------


def shared(found):
    """The headers by which an answer is shared with a page."""
    return {name: value for name, value in found.pairs if name.startswith("access-control")}


async def test_pages_of_other_origins_get_nothing_unless_listed():
    async with serving() as here:
        origins = [PAGE, "null", "", "http://localhost.evil", f"https://localhost:{here.port}", "*"]
        for origin in origins:
            for method in ("GET", "POST", "OPTIONS"):
                found = await ask(here, "/health", BEARER, f"Origin: {origin}", method=method)
                assert (found.status, shared(found)) == (403, {}), origin
                assert (found.error["code"], found.headers["vary"]) == (
                    "origin_not_allowed",
                    "Origin",
                )
        assert (
            await ask(here, "/health", "Origin: http://localhost", f"Origin: {PAGE}")
        ).status == 400


async def test_our_own_pages_need_no_leave():
    async with serving() as here:
        for host in (f"localhost:{here.port}", f"127.0.0.1:{here.port}", "localhost"):
            found = await ask(here, "/echo", BEARER, f"Origin: http://{host}", host=f"Host: {host}")
            assert (found.status, shared(found)) == (200, {})
        # Another name of ours is another origin.
        origin = f"Origin: http://127.0.0.1:{here.port}"
        assert (await ask(here, "/echo", BEARER, origin, host="Host: localhost")).status == 403


@pytest.mark.parametrize(
    ("settings", "scheme", "status"),
    [
        ({}, b"http", 200),
        ({}, b"https", 403),
        ({"tls_cert": Path("cert")}, b"https", 200),
        ({"tls_cert": Path("cert")}, b"http", 403),
        ({"behind_proxy": True}, b"http", 200),
        ({"behind_proxy": True}, b"https", 200),
    ],
)
async def test_our_own_pages_are_served_the_way_we_are(settings, scheme, status):
    headers = [(b"host", b"localhost"), (b"origin", scheme + b"://localhost")]
    assert (await call({"headers": headers}, **settings))[0]["status"] == status


async def test_a_listed_page_may_read_every_answer():
    async with serving(cors_origins=(PAGE, "https://Other.example"), body_limit=10) as here:
        every = {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": EXPOSED,
        }
        origin = f"Origin: {PAGE}"
        for status, found in {
            200: await ask(here, "/events", BEARER, origin),
            401: await ask(here, "/echo", origin),
            404: await ask(here, "/nowhere", BEARER, origin),
            413: await ask(
                here, "/echo", BEARER, origin, JSON, length(11), method="POST", body=b"x" * 11
            ),
            414: await ask(here, "/" + "x" * 8_192, BEARER, origin),
            421: await ask(here, "/echo", BEARER, origin, host="Host: elsewhere"),
            431: await ask(here, "/echo", BEARER, origin, f"X: {'x' * 16_384}"),
            500: await ask(here, "/boom", BEARER, origin),
        }.items():
            assert (found.status, shared(found), found.headers["vary"]) == (status, every, "Origin")
        found = await ask(here, "/health", "Origin: https://other.example")
        assert shared(found)["access-control-allow-origin"] == "https://other.example"
        assert (await ask(here, "/health", "Origin: https://page.example.evil")).status == 403
        found = await ask(here, "/health")
        assert (found.status, shared(found), "vary" in found.headers) == (200, {}, False)


async def test_a_listed_page_is_told_beforehand_what_it_may_send():
    async with serving(cors_origins=(PAGE,)) as here:
        asks = (f"Origin: {PAGE}", "Access-Control-Request-Method: PATCH")
        found = await ask(here, "/v1/runs", *asks, method="OPTIONS")
        assert (found.status, found.body) == (204, b"")
        told = shared(found)
        taken = set(told.pop("access-control-allow-headers").split(", "))
        assert taken > {"Authorization", "Idempotency-Key", "X-Session-Id", "X-Stainless-os"}
        assert told == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "GET, POST, PATCH, DELETE, OPTIONS",
            "access-control-max-age": "600",
            "access-control-expose-headers": EXPOSED,
        }
        assert found.headers.items() >= SAFE.items()
        assert (await ask(here, "/v1/runs", method="OPTIONS")).status == 401
