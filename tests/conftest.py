import ipaddress
import os
import sys

import hypothesis
import pytest
import uvloop

from holdfast.testing.virtual_time import VirtualTimeLoop

pytest_plugins = ["holdfast.testing.leaks"]

hypothesis.settings.register_profile(
    "desk",
    deadline=None,
    # Our fixtures of function scope watch the test; they hold nothing an example could spoil.
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.register_profile(
    # The same examples each time, so more of them would find no more; at a desk they are new ones.
    "ci",
    hypothesis.settings.get_profile("desk"),
    derandomize=True,
    database=None,
    max_examples=30,
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")  # noqa: TID251 (not ours)


@pytest.fixture
def anyio_backend(request):
    """Virtual time, unless the test or its module is marked `real_time`."""
    if request.node.get_closest_marker("real_time"):
        return "asyncio", {}
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture(autouse=True, scope="session")
def only_the_demo(tmp_path_factory):
    """No test asks a model that this machine happens to have, by a key or on a port."""
    file = tmp_path_factory.mktemp("config") / "holdfast.toml"
    file.write_text('[models.demo]\nwire = "demo"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CONFIG", str(file))
        yield


class OffLoopback(RuntimeError):
    """A test tried to talk to another machine. Not an OSError: nobody may retry it."""


def refuse_other_machines(event, args):
    match event, args:
        case (("socket.connect" | "socket.sendto" | "socket.sendmsg"), (_, (str(host), *_))):
            pass
        case "socket.getaddrinfo", (str(host), *_):
            pass
        case _:
            return
    if not is_loopback(host):
        raise OffLoopback(f"a test may not reach {host}; only loopback is open to it")


def is_loopback(host):
    if host in ("", "localhost", "0.0.0.0", "::"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


# An audit hook sees every connection made from Python, whichever library makes it. It cannot
# be taken off again, which suits a guard.
sys.addaudithook(refuse_other_machines)


@pytest.fixture(scope="session")
def loop_of_c():
    """The first such loop of a process opens a pipe that all of them share and none closes."""
    uvloop.new_event_loop().close()
