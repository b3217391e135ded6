import os
import resource
import signal
import stat
import sys
import time
from subprocess import PIPE, Popen, run

import pytest

from holdfast.errors import ConfigError, DataInUse, StoreFull
from holdfast.stores.owner import FILE, Owner, living, own, owner

pytestmark = pytest.mark.real_time

HOLD = """
import anyio, sys, pathlib
from holdfast.stores.owner import own
async def hold():
    async with own(pathlib.Path(sys.argv[1]), address="http://127.0.0.1:1", worker="w"):
        print("mine", flush=True)
        await anyio.sleep_forever()
anyio.run(hold)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that owns the directory."""
    with Popen([sys.executable, "-c", HOLD, tmp_path / "data"], stdout=PIPE) as process:
        assert process.stdout.readline() == b"mine\n"
        yield process
        process.kill()


async def test_a_directory_is_made_for_its_owner_alone(tmp_path):
    folder = tmp_path / "a" / "data"
    async with own(folder, address="http://127.0.0.1:8642", worker="worker_1"):
        assert owner(folder) == Owner(os.getpid(), "http://127.0.0.1:8642", "worker_1")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert owner(folder) is None
    assert (folder / FILE).read_bytes() == b""


async def test_the_second_is_told_who_came_first(tmp_path, other):
    with pytest.raises(DataInUse) as told:
        async with own(tmp_path / "data"):
            pass
    assert f"in use by process {other.pid}, which listens on http://127.0.0.1:1" in str(told.value)
    assert (told.value.pid, told.value.address) == (other.pid, "http://127.0.0.1:1")
    assert owner(tmp_path / "data") == Owner(other.pid, "http://127.0.0.1:1", "w")


async def test_two_in_one_process_are_two(tmp_path):
    async with own(tmp_path / "data"):
        with pytest.raises(DataInUse, match=f"process {os.getpid()};"):
            async with own(tmp_path / "data"):
                pass


async def test_a_killed_owner_is_none_whatever_its_file_says(tmp_path, other):
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert (tmp_path / "data" / FILE).read_text().startswith(str(other.pid))
    assert owner(tmp_path / "data") is None
    async with own(tmp_path / "data"):
        assert owner(tmp_path / "data") == Owner(os.getpid())


async def test_a_journal_elsewhere_is_owned_whatever_the_data_directory(tmp_path):
    file = tmp_path / "kept" / "runs.db"
    async with own(tmp_path / "one", journal=file):
        assert owner(tmp_path / "one") == Owner(os.getpid(), journal=str(file))
        for other in (tmp_path / "two", tmp_path / "kept"):
            with pytest.raises(DataInUse, match=f"kept is in use by process {os.getpid()}"):
                async with own(other, journal=file):
                    pass
    (tmp_path / "link").symlink_to(tmp_path / "one")
    async with own(tmp_path / "link", journal=tmp_path / "one" / "runs.db"):
        assert owner(tmp_path / "one")
    (tmp_path / "kept" / "link.db").symlink_to(file)
    with pytest.raises(ConfigError, match=r"its link.db is a link"):
        async with own(tmp_path / "one", journal=tmp_path / "kept" / "link.db"):
            pass


async def test_children_do_not_inherit_it(tmp_path):
    async with own(tmp_path / "data"):
        open_there = files_of_a_child()
    assert os.fsencode(tmp_path / "data" / FILE) not in open_there


def files_of_a_child():
    command = ["ls", "-l", "/proc/self/fd"]
    return run(command, close_fds=False, capture_output=True, check=True).stdout


def test_a_fork_that_outlives_its_parent_does_not_own(tmp_path):
    code = f"""
import anyio, os, pathlib, signal, sys
from holdfast.stores.owner import own, owner
async def hold():
    async with own(pathlib.Path({str(tmp_path / "data")!r})):
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        print(os.getpid(), flush=True)
        sys.stdin.read()
        os._exit(0)
anyio.run(hold)
"""
    with Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as parent:
        assert int(parent.stdout.readline()) != parent.pid
        parent.wait()
        assert owner(tmp_path / "data") is None
        parent.stdin.close()


def start(command):
    return Popen(command, stdout=PIPE)


async def test_somebody_who_merely_looks_is_not_in_the_way(tmp_path):
    folder = tmp_path / "data"
    async with own(folder):
        pass
    code = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(handle, fcntl.LOCK_SH)
print("looking", flush=True)
time.sleep(0.03)
"""
    with start([sys.executable, "-c", code, folder / FILE]) as looker:
        assert looker.stdout.readline() == b"looking\n"
        async with own(folder):
            assert owner(folder) == Owner(os.getpid())


async def test_an_empty_directory_is_closed_to_others_and_a_used_one_refused(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    async with own(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o750)
    with pytest.raises(ConfigError, match=r"is open to others.*close it with: chmod 700"):
        async with own(folder):
            pass


async def test_a_directory_that_cannot_be_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "data", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError, match=r"^the data directory .* cannot be used: "):
            async with own(folder):
                pass


async def test_a_disk_without_a_byte_for_the_owner_s_name_is_said_to_be_full(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreFull, match=r"^there is no space left to go on with .*data"):
            async with own(tmp_path / "data"):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert owner(tmp_path / "data") is None


async def test_an_owner_file_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be used"):
        async with own(tmp_path / "data"):
            pass
    assert not (tmp_path / "elsewhere").exists()


def test_nobody_owns_what_is_not_there(tmp_path):
    assert owner(tmp_path / "nothing") is None


async def test_an_owner_file_that_was_removed_is_no_way_in(tmp_path, other):
    folder = tmp_path / "data"
    (folder / FILE).unlink()
    assert owner(folder) == Owner(0)
    with pytest.raises(DataInUse, match="in use by another process;"):
        async with own(folder):
            pass
    assert other.poll() is None


async def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / FILE)
    assert owner(folder) is None
    with pytest.raises(ConfigError, match="cannot be used: owner in it is no file"):
        async with own(folder):
            pass
    (folder / FILE).unlink()
    async with own(folder):
        (folder / FILE).unlink()
        os.mkfifo(folder / FILE)
        assert owner(folder) == Owner(0)


async def test_a_journal_that_lies_elsewhere_is_not_owned(tmp_path):
    async with own(tmp_path / "one"):
        (tmp_path / "two").mkdir(mode=0o700)
        (tmp_path / "two" / "journal.db").symlink_to(tmp_path / "one" / "journal.db")
        with pytest.raises(ConfigError, match=r"two cannot be used: its journal.db is a link"):
            async with own(tmp_path / "two"):
                pass


def test_the_names_of_the_directories_that_were_made_are_on_the_disk(tmp_path):
    code = """
import anyio, pathlib, sys
from holdfast.stores.owner import own
async def hold():
    async with own(pathlib.Path(sys.argv[1])):
        pass
def watch(event, args):
    if event == "open" and not isinstance(args[0], int):
        print(args[0], flush=True)
sys.addaudithook(watch)
anyio.run(hold)
"""
    command = [sys.executable, "-c", code, tmp_path / "share" / "data"]
    opened = run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    assert {str(tmp_path), str(tmp_path / "share")} <= set(opened)


async def test_a_name_that_is_no_text_is_a_sentence(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(ConfigError, match="cannot be used: its name is not UTF-8"):
        async with own(folder):
            pass
    assert not folder.exists()


def test_an_owner_that_was_stopped_is_there_and_does_not_live():
    with Popen(["sleep", "60"]) as process:
        one = Owner(process.pid)
        assert living(one)
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while living(one):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGCONT)
        process.kill()
    assert not living(None)
    # Gone since, or somewhere that cannot be seen from here: its lock says that it lives.
    assert living(Owner(0))
