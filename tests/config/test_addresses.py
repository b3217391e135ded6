import pytest

from holdfast.config.addresses import (
    base_url,
    is_loopback,
    is_loopback_url,
    origin,
    same_place,
    web_address,
)
from holdfast.config.tables import Setting, shown
from holdfast.errors import ConfigError


def refusal(what, value):
    with pytest.raises(ConfigError) as caught:
        what(Setting("x", value))
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1"),
        ("HTTP://[::1]:1", "HTTP://[::1]:1"),
        ("https://example.org", "https://example.org"),
    ],
)
def test_an_address_loses_nothing_but_its_last_slash(written, meant):
    assert base_url(Setting("x", written)) == meant


@pytest.mark.parametrize(
    "value",
    [
        "",
        "api.openai.com/v1",
        "ftp://example.org",
        "https://",
        "https:///v1",
        "http://[::1",
        "http://h:port",
        "http://h:99999",
        "http://a b/",
        "http://a\\b",
        " https://h",
        "https://h\n",
        5,
    ],
)
def test_an_address_begins_with_http_and_has_a_host(value):
    assert refusal(base_url, value) == (
        f"x is {shown(value)};"
        " it must be an address with a host that begins with http:// or https://"
    )


@pytest.mark.parametrize(
    "value",
    ["https://ada:hunter2@h/v1", "ftp://hunter2@h", "hunter2@h", " https://ada:hunter2@h", "hunter2@h\n"],
)  # fmt: skip
def test_a_password_is_refused_and_not_repeated(value):
    assert refusal(base_url, value) == (
        "x has an @ in it; an address must not hold a name or a password"
    )


@pytest.mark.parametrize(
    "value", ["https://h/v1?key=hunter2", "https://h/v1#hunter2", " https://h?k=hunter2"]
)
def test_what_is_asked_with_an_address_is_refused_and_not_repeated(value):
    assert refusal(base_url, value) == "x has a ? or # in it; it must end with the path"


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_what_a_wire_adds_is_to_be_left_off(path):
    said = f"x ends in {path}; leave that off, it is added to each call"
    assert refusal(base_url, f"https://h/v1{path}") == said
    assert refusal(base_url, f"https://h/v1{path}/") == said
    assert web_address(Setting("x", f"https://h/v1{path}"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://c.d:443", "https://c.d"),
        ("http://c.d:80/", "http://c.d"),
        ("https://c.d:", "https://c.d"),
        ("HTTPS://C.d:0443", "https://c.d"),
        ("https://[::1]:443", "https://[::1]"),
        ("https://c.d:80", "https://c.d:80"),
        ("http://c.d:443", "http://c.d:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_spelled_as_a_browser_spells_it(written, meant):
    assert origin(Setting("x", written)) == meant


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://127.0.0.1:8642", "http://127.0.0.1:8642", True),
        ("HTTP://127.0.0.1:8642/", "http://127.0.0.1:8642", True),
        ("http://127.0.0.1:80", "http://127.0.0.1", True),
        ("https://H:443", "https://h", True),
        ("http://127.0.0.1:8642", "http://127.0.0.1:8643", False),
        ("http://127.0.0.1:8642", "https://127.0.0.1:8642", False),
        ("http://127.0.0.1:8642", "http://localhost:8642", False),
        ("http://127.0.0.1:8642", "http://127.0.0.1.example.org:8642", False),
        ("http://127.0.0.1:8642", "", False),
        ("http://127.0.0.1:8642", "what?", False),
        ("what?", "what?", False),
        ("http://127.0.0.1:8642", "http://127.0.0.1:many", False),
    ],
)
def test_a_place_is_a_scheme_a_host_and_a_port(one, other, same):
    assert same_place(one, other) == same_place(other, one) == same


def test_an_origin_has_no_path():
    assert origin(Setting("x", "https://h:8443/")) == "https://h:8443"
    assert refusal(origin, "https://h/app") == (
        'x is "https://h/app"; it must be an origin, as in https://example.org, without a path'
    )


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
    ],
)
def test_loopback_is_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "h"])
def test_other_hosts_are_not_loopback(host):
    assert not is_loopback(host)


def test_an_address_is_loopback_by_its_host():
    assert is_loopback_url("http://localhost:11434/v1")
    assert not is_loopback_url("https://api.openai.com/127.0.0.1")
    assert not is_loopback_url("")
