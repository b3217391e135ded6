import os
import struct
from io import FileIO
from time import perf_counter

import pytest
from msgspec.structs import replace

from holdfast.tools import jail as module
from holdfast.tools.jail import Jail, open_jail
from holdfast.tools.process import run_process
from holdfast.tools.selftest import self_test

pytestmark = pytest.mark.real_time


@pytest.fixture
async def jail(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/secret").touch()
    for name in ("key.pem", "settings.toml"):
        (tmp_path / "work" / name).write_text("secret")
    hidden, kept = (tmp_path / "data", tmp_path / "work/key.pem"), tmp_path / "work/settings.toml"
    found = await open_jail(tmp_path / "work", hidden=hidden, kept=(kept,))
    if isinstance(found, str):
        pytest.fail(f"there is no jail to test: {found}")
    return found


async def failed(jail):
    return {probe.name for probe in await self_test(jail) if not probe.ok}


async def test_a_jail_holds_and_is_tried_in_no_time(jail):
    begun = perf_counter()
    probes = await self_test(jail)
    assert [probe for probe in probes if not probe.ok] == []
    assert len(probes) >= 16
    assert perf_counter() - begun < 5
    assert sorted(path.name for path in jail.workspace.iterdir()) == ["key.pem", "settings.toml"]


async def test_a_jail_with_holes_is_found_out(jail, monkeypatch):
    options = Jail.options

    def leaky(jail, names, *, network):
        told = options(jail, names, network=True)
        # Nothing is covered, hidden or protected, and a folder outside can be written.
        outside = str(jail.workspace.parent)
        system = told[: told.index("--proc") + 2]
        return [*system, "--dev", "/dev", "--bind", outside, outside]

    monkeypatch.setattr(Jail, "options", leaky)
    broken = await failed(jail)
    assert {
        "no write outside",
        "host's loopback out of reach",
        "protected names",
        "no sockets of services",
        "data hidden",
        "key.pem hidden",
        "settings.toml kept",
    } <= broken
    assert not (jail.workspace.parent / ".holdfast-probe").exists()


async def test_a_folder_of_ours_that_is_open_in_the_jail_is_found_out(jail, monkeypatch):
    folder = os.open("/", os.O_RDONLY)

    async def careless(argv, *, pass_fds, **more):
        return await run_process(argv, pass_fds=(*pass_fds, folder), **more)

    monkeypatch.setattr(module, "run_process", careless)
    try:
        assert await failed(jail) == {"no way out in /proc"}
    finally:
        os.close(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="the devices of the host are root's")
@pytest.mark.parametrize("name", ["options", "descriptor"])
async def test_a_device_of_the_host_that_can_be_changed_is_found_out(jail, monkeypatch, name):
    """Its mode is set to what it is, so that nothing changes but a time."""
    if name == "options":
        monkeypatch.setattr(Jail, "_devices", lambda jail: ("--dev", "/dev"))
    else:
        monkeypatch.setattr(module, "_nothing_to_read", lambda devices: FileIO(os.devnull))
    assert await failed(jail) == {"host's devices unchanged"}


async def test_a_filter_that_lets_all_through_is_found_out(jail, monkeypatch):
    monkeypatch.setattr(module, "_filter", lambda: struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))
    assert await failed(jail) == {"no program with our rights"}


async def test_variables_of_ours_are_found_out(jail, monkeypatch):
    monkeypatch.setattr(
        "holdfast.tools.selftest.jail_environment",
        lambda path, extra: Bag(module.jail_environment(path, extra=extra)),
    )
    assert await failed(jail) == {"no environment of ours"}


class Bag(dict):
    """Says that it has nothing, and has a secret when it is looked at for real."""

    def __iter__(self):
        return iter(())


async def test_a_jail_that_does_not_open_has_not_held(jail, tmp_path):
    (jail.workspace / ".vscode").symlink_to("/etc")
    held = {probe.name for probe in await self_test(jail) if probe.ok}
    assert held == {"no write outside", "host's devices unchanged"}, "nothing was done at all"


@pytest.mark.skipif(os.getuid() != 0, reason="others are limited without control groups")
async def test_where_processes_are_not_limited_it_says_so(jail):
    last = (await self_test(replace(jail, groups=None)))[-1]
    assert (last.ok, last.detail) == (True, "not limited on this system")
