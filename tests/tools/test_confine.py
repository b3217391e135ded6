import os
import stat
from pathlib import Path

import anyio
import pytest

from holdfast.tools.confine import (
    DEVICES,
    clear_groups,
    confine,
    confined,
    entered,
    find_groups,
    own_devices,
    owns_devices,
)

pytestmark = pytest.mark.real_time


def system(folder, mounts, own):
    """A /proc that tells of these mounts and of our own place in them."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mountinfo").write_text(mounts)
    (folder / "proc/self/cgroup").write_text(own)
    return folder / "proc"


def test_the_older_kind_is_found_by_its_controller(tmp_path):
    groups = tmp_path / "pids/box"
    groups.mkdir(parents=True)
    mounts = (
        f"30 25 0:26 / {tmp_path}/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
        f"31 25 0:27 / {tmp_path}/pids rw,relatime shared:9 - cgroup cgroup rw,pids\n"
    )
    assert find_groups(system(tmp_path, mounts, "4:cpu:/\n3:pids:/box\n0::/\n")) == groups


def test_of_the_newer_kind_it_is_the_nearest_that_hands_the_controller_on(tmp_path):
    service = tmp_path / "unified/system.slice/holdfast.service"
    service.mkdir(parents=True)
    (service / "cgroup.subtree_control").write_text("")
    (service.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (service.parent.parent / "cgroup.subtree_control").write_text("pids\n")
    mounts = f"31 25 0:27 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
    own = "0::/system.slice/holdfast.service\n"
    assert find_groups(system(tmp_path, mounts, own)) == service.parent


def test_where_no_controller_is_handed_on_there_is_none(tmp_path):
    (tmp_path / "unified").mkdir()
    mounts = f"31 25 0:27 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
    assert find_groups(system(tmp_path, mounts, "0::/\n")) is None


def test_where_nothing_can_be_made_there_is_none(tmp_path):
    mounts = f"31 25 0:27 / {tmp_path}/gone rw - cgroup cgroup rw,pids\n"
    assert find_groups(system(tmp_path, mounts, "3:pids:/\n")) is None


def test_a_group_that_is_there_already_is_none(tmp_path):
    trial = tmp_path / "pids" / f"holdfast-{os.getpid()}-0" / "pids.max"
    trial.mkdir(parents=True)
    mounts = f"31 25 0:27 / {tmp_path}/pids rw - cgroup cgroup rw,pids\n"
    assert find_groups(system(tmp_path, mounts, "3:pids:/\n")) is None


def test_a_system_that_tells_nothing_has_none(tmp_path):
    assert find_groups(tmp_path) is None


async def test_a_group_has_a_limit_and_is_gone_afterwards(tmp_path):
    async with confined(tmp_path, 7) as group:
        assert (group / "pids.max").read_text() == "7"
        await confine(4711, group)
        assert (group / "cgroup.procs").read_text() == "4711"
        for file in list(group.iterdir()):
            file.unlink()
    assert list(tmp_path.iterdir()) == []


async def test_of_the_older_kind_a_thread_enters_and_leaves_by_itself(tmp_path):
    group = tmp_path / "group"
    group.mkdir()
    (group / "tasks").touch()
    with entered(group):
        assert (group / "tasks").read_text() == "0"
        assert not (tmp_path / "tasks").exists()
    assert (tmp_path / "tasks").read_text() == "0"
    await confine(4711, group)
    assert not (group / "cgroup.procs").exists(), "it was born there"


def test_of_the_newer_kind_no_thread_enters_alone(tmp_path):
    with entered(tmp_path):
        assert list(tmp_path.iterdir()) == []


async def test_a_group_that_is_not_empty_yet_is_removed_when_it_is(tmp_path):
    async with anyio.create_task_group() as tasks:
        async with confined(tmp_path, 7) as group:
            tasks.start_soon(empty_later, group)
    assert list(tmp_path.iterdir()) == []


async def empty_later(group):
    await anyio.sleep(0.03)
    (group / "pids.max").unlink()


async def test_a_group_that_stays_in_use_is_left_to_the_next(tmp_path):
    async with confined(tmp_path, 7) as group:
        pass
    assert group.exists()


def test_groups_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    gone = 4_194_304  # no process has so high a number
    mine, dead = tmp_path / f"holdfast-{os.getpid()}-3", tmp_path / f"holdfast-{gone}-1"
    used, other = tmp_path / f"holdfast-{gone}-2", tmp_path / "other"
    for group in (mine, dead, used, other):
        group.mkdir()
    (used / "somebody").touch()
    clear_groups(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, used, other])


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes control groups")
async def test_the_system_takes_the_limit():
    folder = find_groups()
    if folder is None:
        pytest.skip("there are no control groups here that limit processes")
    async with confined(folder, 3) as group:
        assert (group / "pids.max").read_text().strip() == "3"
    assert not group.exists()


def test_the_devices_of_the_host_are_roots():
    assert owns_devices() is (os.getuid() == 0)


only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root makes devices")


@only_root
def test_devices_are_made_and_mended(tmp_path):
    folder = own_devices(tmp_path / "devices")
    (folder / "null").chmod(0)
    (folder / "zero").unlink()
    folder.chmod(0o777)
    assert own_devices(tmp_path / "devices") == folder
    found = {name: (folder / name).lstat() for name in DEVICES}
    assert {status.st_mode for status in found.values()} == {stat.S_IFCHR | 0o666}
    assert found["null"].st_rdev == Path(os.devnull).stat().st_rdev
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    others = {path.name for path in folder.iterdir()} - DEVICES.keys()
    assert others == {"shm", "fd", "stdin", "stdout", "stderr"}


@only_root
def test_devices_are_nobodys_and_out_of_reach_for_whoever_is_that_here(tmp_path):
    folder = own_devices(tmp_path / "devices")
    assert {path.lstat().st_uid for path in (folder, *folder.iterdir())} == {65534}
    around = folder.parent.stat()
    assert (around.st_uid, stat.S_IMODE(around.st_mode)) == (0, 0o700)


@only_root
def test_of_two_who_make_the_folder_one_is_first(tmp_path, monkeypatch):
    rename = os.rename

    def late(new, path):
        if path.endswith("/dev"):
            monkeypatch.setattr("os.rename", rename)
            own_devices(tmp_path / "devices")
        rename(new, path)

    monkeypatch.setattr("os.rename", late)
    folder = own_devices(tmp_path / "devices")
    assert [path.name for path in folder.parent.iterdir()] == ["dev"]


@only_root
@pytest.mark.parametrize("what", ["file", "folder", "link", "other", "owner"])
def test_what_is_no_device_is_not_taken_for_one(tmp_path, what):
    path = own_devices(tmp_path / "devices") / "null"
    path.unlink()
    if what == "file":
        path.touch()
    elif what == "folder":
        (tmp_path / "devices").rename(tmp_path / "other")
        (tmp_path / "devices").symlink_to(tmp_path / "other")
    elif what == "link":
        path.symlink_to(os.devnull)
    else:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7 if what == "other" else 3))
    with pytest.raises(OSError, match="is not what it should be"):
        own_devices(tmp_path / "devices")


@pytest.mark.skipif(os.getuid() == 0, reason="root makes devices")
def test_where_devices_cannot_be_made_it_says_so(tmp_path):
    with pytest.raises(PermissionError):
        own_devices(tmp_path / "devices")
