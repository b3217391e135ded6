import pytest

from holdfast.config.settings import ServerSettings
from holdfast.server.names import Names
from holdfast.server.problems import Problem

HOSTS = ("Box.example", "cafe:8443", "2001:db8::7", "[2001:db8::8]:9")


def status(host, **settings):
    """What a request for this host is answered, 200 if it goes on."""
    try:
        Names(ServerSettings(hosts=HOSTS, **settings), 8642).check(host.encode())
    except Problem as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    "host", ["box.example", "[2001:db8::7]", "127.0.0.1", "localhost", "[::1]"]
)
def test_a_name_is_ours_alone_or_with_the_port_we_listen_at(host):
    assert status(host) == status(f"{host}:8642") == 200
    assert status(f"{host}:8643") == 421


def test_a_name_with_a_port_is_ours_with_that_port():
    assert status("cafe:8443") == status("[2001:db8::8]:9") == 200
    for host in ("cafe", "cafe:8642", "cafe:84431", "[2001:db8::8]", "[cafe:8443]"):
        assert status(host) == status(host, behind_proxy=True) == 421, host


def test_behind_a_proxy_a_name_is_ours_at_whatever_port_that_listens():
    assert status("box.example:443", behind_proxy=True) == 200
    assert status("[2001:db8::7]:8443", behind_proxy=True) == 200
    # These are no names of a proxy.
    assert status("localhost:443", behind_proxy=True) == 421
    assert status("evil.example:443", behind_proxy=True) == 421
    assert status("www.box.example", behind_proxy=True) == 421


def test_what_is_no_host_at_all_is_malformed():
    for host in ("", "2001:db8::7", "a b", "box.example:", "box.example:x"):
        assert status(host) == 400, host
