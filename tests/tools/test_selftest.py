import os
from time import perf_counter

import pytest
from msgspec.structs import replace

from holdfast.tools import jail as module
from holdfast.tools.jail import Jail, open_jail
from holdfast.tools.selftest import self_test

pytestmark = pytest.mark.real_time


@pytest.fixture
async def jail(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/secret").touch()
    (tmp_path / "work/settings.toml").write_text("secret")
    hidden = (tmp_path / "data", tmp_path / "work/settings.toml")
    found = await open_jail(tmp_path / "work", hidden=hidden)
    if isinstance(found, str):
        pytest.fail(f"there is no jail to test: {found}")
    return found


async def failed(jail):
    return {probe.name for probe in await self_test(jail) if not probe.ok}


async def test_a_jail_holds_and_is_tried_in_no_time(jail):
    begun = perf_counter()
    probes = await self_test(jail)
    assert [probe for probe in probes if not probe.ok] == []
    assert len(probes) >= 11
    assert perf_counter() - begun < 2
    assert [path.name for path in jail.workspace.iterdir()] == ["settings.toml"]


async def test_a_jail_with_holes_is_found_out(jail, monkeypatch):
    options = Jail.options

    def leaky(jail, names, *, network):
        told = options(jail, names, network=True)
        # Nothing is covered, hidden or protected, and a folder outside can be written.
        outside = str(jail.workspace.parent)
        return [*told[: told.index("--ro-bind") + 7], "--bind", outside, outside]

    monkeypatch.setattr(Jail, "options", leaky)
    broken = await failed(jail)
    assert {
        "no write outside",
        "host's loopback out of reach",
        "protected names",
        "no sockets of services",
        "data hidden",
        "settings.toml hidden",
    } <= broken
    assert not (jail.workspace.parent / ".holdfast-probe").exists()


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
    assert len(await failed(jail)) == len(await self_test(jail)) - 1, "no file has appeared"


@pytest.mark.skipif(os.getuid() != 0, reason="others are limited without control groups")
async def test_where_processes_are_not_limited_it_says_so(jail):
    last = (await self_test(replace(jail, groups=None)))[-1]
    assert (last.ok, last.detail) == (False, "processes are not limited on this system")
