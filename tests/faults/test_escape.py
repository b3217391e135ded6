"""Attempts to get out of the jail, made for real.

Each is harmless if it succeeds: it writes to a folder of the test's own, talks to a listener of the
test's own, or writes what is there already, and the greedy ones stop at a bound of their own.
"""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import anyio
import pytest
from msgspec.structs import replace

from holdfast.errors import ToolError
from holdfast.tools.jail import jail_environment, open_jail
from holdfast.tools.limits import Limits

pytestmark = pytest.mark.real_time

PYTHON = os.path.realpath(sys.executable)
SMALL = Limits(processes=64, memory=256 * 2**20, scratch=4 * 2**20)
SECRET = "canary-4f1d"

#: Makes a call to the kernel by its number, for those that Python has no name for.
CALL = (
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "def call(*a):\n"
    "    return -ctypes.get_errno() if libc.syscall(*a) == -1 else 0\n"
)


class Cell:
    def __init__(self, jail, outside):
        self.jail, self.workspace, self.outside = jail, jail.workspace, outside
        self.ended = []

    async def sh(self, command, *, hear=None, **more):
        async def nobody(words):
            pass

        return await self.jail.run(
            command,
            cwd=self.workspace,
            env=jail_environment("/usr/sbin:/usr/bin:/sbin:/bin", extra={}),
            hear=hear or nobody,
            most=100_000,
            ended=self.ended.append,
            **more,
        )

    async def fails(self, command, *words):
        """The command fails, with one of these words."""
        done = await self.sh(command)
        assert done.code != 0, done.output
        assert any(word in done.output for word in words), done.output
        return done

    async def python(self, script, **more):
        (self.workspace / "attack.py").write_text(CALL + script)
        done = await self.sh(f"{PYTHON} -I -S attack.py", **more)
        assert done.code == 0, done.output
        return done.output.strip()


@pytest.fixture
async def cell(tmp_path):
    workspace, outside = tmp_path / "work", tmp_path / "outside"
    data = tmp_path / "data"
    for folder in (workspace, outside, data):
        folder.mkdir()
    (data / "journal").write_text(SECRET)
    (workspace / "settings.toml").write_text(SECRET)
    jail = await open_jail(
        workspace,
        hidden=(data, workspace / "settings.toml"),
        visible=(Path(sys.base_prefix),),
        limits=SMALL,
    )
    if isinstance(jail, str):
        pytest.fail(f"there is no jail to test: {jail}")
    return Cell(jail, outside)


@pytest.fixture
async def repository(cell):
    git(cell.workspace, "init", "-q")
    return cell


def git(folder, *arguments):
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


def commit_outside(workspace):
    """What somebody does later, outside: a hook or a setting that was planted would run."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    git(workspace, *who, "commit", "-q", "--allow-empty", "-m", "mine")
    git(workspace, "status")


def running(mark):
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False


async def is_there(mark):
    with anyio.fail_after(5):
        while not running(mark):
            await anyio.sleep(0.01)


async def are_gone(*marks, within=0.1):
    await anyio.sleep(within)
    return not any(map(running, marks))


# --- files ---------------------------------------------------------------------------------------


async def test_nothing_outside_is_written(cell):
    await cell.sh(f"mkdir -p {cell.outside}; echo x > {cell.outside}/planted; echo x > ../planted")
    assert list(cell.outside.iterdir()) == []
    assert not (cell.workspace.parent / "planted").exists()
    # Asked rather than tried, since it would be there to stay.
    assert (
        await cell.sh("for at in / /etc /usr /var; do test -w $at && exit 1; done; true")
    ).code == 0


async def test_a_link_to_the_outside_leads_nowhere(cell):
    (cell.workspace / "out").symlink_to(cell.outside)
    await cell.sh("echo x > out/planted")
    await cell.sh(f"ln -s {cell.outside} own; echo x > own/planted")
    assert list(cell.outside.iterdir()) == []


async def test_our_data_is_not_read(cell):
    data = cell.workspace.parent / "data"
    for path in (data / "journal", f"/proc/1/root{data}/journal", f"/proc/self/root{data}/journal"):
        await cell.fails(f"cat {path}", "Permission denied", "No such file")


async def test_a_hidden_file_in_the_workspace_is_neither_read_nor_written_nor_replaced(cell):
    await cell.fails("cat settings.toml", "Permission denied")
    await cell.fails("echo x > settings.toml", "Permission denied", "Read-only")
    await cell.fails("rm -f settings.toml", "busy")
    await cell.fails("echo x > new; mv new settings.toml", "busy")
    assert (cell.workspace / "settings.toml").read_text() == SECRET


@pytest.mark.parametrize(
    "name",
    [
        *(".vscode/tasks.json", ".envrc", ".holdfast/x", "holdfast.toml", ".claude/x", ".mcp.json"),
        *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".vimrc", ".gitconfig"),
    ],
)
async def test_a_protected_name_that_is_absent_does_not_come_into_being(cell, name):
    root, folder = name.partition("/")[0], Path(name).parent
    for plant in (
        f"mkdir -p {folder}; echo x > {name}",
        f"rmdir {root}; rm -rf {root}; mkdir -p {folder}; cp z {name}",
        f"rmdir {root}; mkdir -p made/{folder}; echo x > made/{name}; mv -T made/{root} {root}",
        f"rmdir {root}; ln -s z {root}",
    ):
        await cell.sh(f"echo x > z; {plant}")
        there = {path.name for path in cell.workspace.iterdir()}
        assert "z" in there and root not in there


@pytest.mark.parametrize("how", ["at once", "cancelled"])
async def test_a_name_that_is_obeyed_later_is_there_for_a_moment_at_most(cell, how):
    plant, seen = cell.workspace / ".bashrc", []

    async def look(words):
        with anyio.fail_after(5):
            while plant.exists():
                await anyio.sleep(0.01)
        seen.append(words)

    if how == "at once":
        await cell.sh("echo x > .bashrc; echo up; sleep 1; ls -A", hear=look)
        assert ".bashrc.aside1" in seen[1].split() and "came into being" in seen[2]
    else:
        with anyio.move_on_after(10) as scope:

            async def enough(words):
                scope.cancel()

            await cell.sh("echo x > .bashrc; echo up; sleep 60", hear=enough)
        assert any("came into being" in sentence for sentence in cell.ended)
    assert not plant.exists()
    assert (cell.workspace / ".bashrc.aside1").read_text() == "x\n"


async def test_what_lies_elsewhere_is_not_called_something_else(cell):
    (cell.outside / ".bashrc").write_text("mine")
    await cell.sh(f"ln -s {cell.outside} x; ln -s {cell.outside}/.bashrc .bashrc")
    assert [path.name for path in cell.outside.iterdir()] == [".bashrc"]


async def test_what_a_command_makes_of_its_folder_has_hardly_anything_of_ours(cell):
    await cell.sh("mkdir /tmp/copy; cp -r . /tmp/copy; mv /tmp/copy copy")
    there = {path.name for path in (cell.workspace / "copy").iterdir()}
    assert there <= {".git", "HEAD", ".vscode", ".envrc", "settings.toml"}


async def test_a_protected_name_that_is_there_is_not_written(cell):
    (cell.workspace / ".bashrc").write_text("mine")
    await cell.fails("echo x > .bashrc", "Read-only")
    await cell.fails("rm .bashrc", "busy")
    await cell.fails("echo x > y; mv -f y .bashrc", "busy")
    assert (cell.workspace / ".bashrc").read_text() == "mine"


async def test_no_descriptor_of_any_process_leads_out(cell):
    """From a folder of the host `..` leads to all of the host."""
    (cell.outside / "canary").write_text(SECRET)
    canary = "/.." * 40 + str(cell.outside / "canary")
    said = await cell.python(
        "import glob, subprocess\n"
        "other = subprocess.Popen(['sleep', '5'])\n"
        "links = [*glob.glob('/proc/[0-9]*/fd/*'), *glob.glob('/proc/[0-9]*/cwd'),"
        " *glob.glob('/proc/[0-9]*/root'), *glob.glob('/proc/[0-9]*/task/*/fd/*')]\n"
        f"print(len(links) > 9, [link for link in links if os.path.exists(link + {canary!r})])\n"
        "other.kill(); other.wait()"
    )
    assert said == "True []"


async def test_a_process_has_nothing_open_but_what_it_hears_and_says(cell):
    said = (await cell.sh("for fd in /proc/*/fd/*; do readlink $fd; done")).output
    assert {Path(line.partition(":")[0]).name for line in said.splitlines()} == {"null", "pipe"}


async def test_of_the_first_process_nothing_is_seen(cell):
    """Its program is the host's, which its owner could change and would run outside."""
    before = changed_last(cell.jail.bwrap)
    assert (await cell.sh("ls -A /proc/1; ls -A /proc/1/task")).output.count("\n") <= 1
    await cell.fails("chmod u+r /proc/1/exe", "No such file")
    await cell.fails("mkdir /proc/1/x", "Read-only", "denied")
    assert changed_last(cell.jail.bwrap) == before


@pytest.mark.parametrize("name", ["null", "zero", "full", "random", "urandom", "tty"])
async def test_a_device_of_the_host_is_not_changed(cell, name):
    """Its mode is set to what it is, so that nothing changes but a time."""
    device = Path("/dev", name)
    before = changed_last(device)
    await cell.sh(f"chmod u+r {device}; chmod u+r /proc/self/fd/0 /proc/*/fd/*")
    assert changed_last(device) == before


async def test_the_devices_of_the_jails_are_changed_by_none_of_them(cell):
    for attempt in (
        "chmod 600 /dev/null",
        "chmod 777 /dev",
        "rm -f /dev/zero",
        "mv /dev/zero /dev/null",
        "touch /dev/planted",
        "mkdir /dev/planted",
        "ln -sf /dev/zero /dev/null",
        "chown 0 /dev/null",
        "mknod /dev/planted p",
    ):
        await cell.fails(attempt, "denied", "permitted", "Read-only", "busy", "Invalid")
    said = await cell.sh("cat /dev/null; echo x | cat /dev/stdin; echo y > /dev/fd/1; ls /dev/fd")
    assert said.output.split()[:2] == ["x", "y"] and said.code == 0


def changed_last(path):
    return path.stat().st_ctime_ns


async def test_devices_work_even_after_somebody_changed_them(cell):
    """It is done outside, as in a jail that leaks it would be done to the host's."""
    if cell.jail.devices is not None:
        (cell.jail.devices / "null").chmod(0)
    said = await cell.sh(
        "set -e; echo x > /dev/null; head -c 3 /dev/zero /dev/urandom | wc -c; cat"
    )
    assert said.code == 0, said.output
    await cell.fails("echo x > /dev/full", "No space left")


async def test_what_is_kept_is_read_and_not_written(cell):
    (cell.workspace / "mine.toml").write_text("mine")
    kept = Cell(replace(cell.jail, kept=(cell.workspace / "mine.toml",)), cell.outside)
    assert (await kept.sh("cat mine.toml")).output == "mine"
    await kept.fails("echo x >> mine.toml", "Read-only")
    await kept.fails("rm -f mine.toml", "busy")
    await kept.fails("echo x > new; mv new mine.toml", "busy")
    assert (cell.workspace / "mine.toml").read_text() == "mine"


async def test_a_setuid_program_gives_nothing(cell):
    said = await cell.sh("grep -E '^(NoNewPrivs|CapEff|CapBnd)' /proc/self/status | cut -f2")
    assert said.output.split() == ["0" * 16, "0" * 16, "1"]
    copied = "cp /usr/bin/id own; chmod u+s own 2>&-; ./own -u; id -u"
    assert len(set((await cell.sh(copied)).output.split())) == 1


@pytest.mark.parametrize(
    "how",
    [
        "os.chmod('own', 0o4755)",
        "os.chmod('own', 0o2755)",
        "os.fchmod(os.open('own', os.O_RDONLY), 0o4755)",
        "os.chmod('own', 0o4755, dir_fd=os.open('.', os.O_RDONLY))",
        "os.open('other', os.O_CREAT | os.O_WRONLY, 0o4755)",
        "os.link(f'/proc/self/fd/{os.open(\".\", os.O_TMPFILE | os.O_RDWR, 0o4755)}', 'other')",
        "os.mknod('other', 0o104755)",
        "print(call(437, -100, b'other', struct.pack('QQQ', 0o101, 0o4755, 0), 24))",
        "print(call(452, -100, b'own', 0o4755, 0))",
    ],
)
async def test_no_program_is_left_that_gives_others_our_rights(cell, how):
    """It would be ours, and root's if we are root: whoever runs it outside would be us."""
    said = await cell.python(
        "import struct\nos.umask(0); open('own', 'w').close()\n"
        f"try: {how}\nexcept OSError as error: print(-error.errno)"
    )
    assert said in (str(-errno.EPERM), str(-errno.ENOSYS))
    modes = {path.name: path.stat().st_mode & 0o6000 for path in cell.workspace.iterdir()}
    assert set(modes.values()) == {0}, modes


async def test_ordinary_modes_are_given(cell):
    said = await cell.sh(
        "set -e; echo x > a; chmod 755 a; chmod u-x,g+w a; mkdir -m 1777 b; install -m 755 a c;"
        " cp -a a d; tar cf e a b; mkdir f; tar xpf e -C f; stat -c %a a b c d f/a f/b"
    )
    assert said.output.split() == ["675", "1777", "755", "675", "675", "1777"]


async def test_settings_of_the_kernel_are_not_written(cell):
    """What is there is written again, so that nothing changes if it can be."""
    for name in ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory"):
        file = f"/proc/sys/{name}"
        await cell.fails(f"v=$(cat {file}); echo $v > {file}", "Read-only", "Permission denied")


# --- git -----------------------------------------------------------------------------------------


async def test_a_hook_planted_as_a_file_does_not_run_outside(repository):
    hook = hook_in(".git/hooks/pre-commit", repository)
    await repository.fails(hook, "Read-only")
    await repository.fails(f"rm -rf .git/hooks; {hook}", "busy", "Read-only")
    commit_outside(repository.workspace)
    assert list(repository.outside.iterdir()) == []


def hook_in(path, cell):
    words = f"#!/bin/sh\\ntouch {cell.outside}/planted\\n"
    return f"printf '{words}' > {path} && chmod +x {path}"


async def test_a_hook_planted_by_renaming_does_not_run_outside(repository):
    make = f"mkdir -p evil/hooks; {hook_in('evil/hooks/pre-commit', repository)}"
    await repository.fails(f"{make}; mv -T .git/hooks .git/old", "busy")
    await repository.fails("mv -T evil/hooks .git/hooks", "busy", "Read-only", "cannot")
    await repository.fails("mv .git .git2", "busy")
    await repository.fails("mv -T evil .git", "busy", "not empty", "cannot")
    commit_outside(repository.workspace)
    assert list(repository.outside.iterdir()) == []


@pytest.mark.parametrize(
    "setting", ["core.hooksPath evil", "core.fsmonitor ./evil/pre-commit", "include.path ../evil/x"]
)
async def test_a_setting_that_names_a_program_is_not_made(repository, setting):
    make = f"mkdir -p evil; {hook_in('evil/pre-commit', repository)}"
    await repository.fails(f"{make}; git config {setting}", "busy", "Read-only")
    commit_outside(repository.workspace)
    assert list(repository.outside.iterdir()) == []


async def test_settings_are_not_taken_from_another_folder(repository):
    """A file of git's says where the settings are, if it is there."""
    await repository.sh(
        "cp -r .git evil;"
        f" {hook_in('evil/hooks/pre-commit', repository)}; echo ../evil > .git/commondir"
    )
    commit_outside(repository.workspace)
    assert list(repository.outside.iterdir()) == []


async def test_hooks_in_the_workspace_are_not_written(repository):
    git(repository.workspace, "config", "core.hooksPath", ".husky")
    (repository.workspace / ".husky").mkdir()
    await repository.fails(hook_in(".husky/pre-commit", repository), "Read-only")
    commit_outside(repository.workspace)
    assert list(repository.outside.iterdir()) == []


@pytest.mark.parametrize(
    "where", [".", "{0}", "x/..", ".git", "{0}/../alias", "../alias/.git", "~/{1}", "~/alias"]
)
async def test_where_hooks_would_lie_among_all_that_is_written_nothing_runs(
    repository, where, monkeypatch
):
    workspace = repository.workspace
    monkeypatch.setenv("HOME", str(workspace.parent))
    (workspace.parent / "alias").symlink_to(workspace)
    (workspace / "x").mkdir()
    git(workspace, "config", "core.hooksPath", where.format(workspace, workspace.name))
    folder = ".git" if where.endswith(".git") else "."
    with pytest.raises(ToolError, match=r"core\.hooksPath.*a folder of their own"):
        await repository.sh(hook_in(f"{folder}/pre-commit", repository))
    commit_outside(workspace)
    assert list(repository.outside.iterdir()) == []


@pytest.mark.parametrize("where", ["{0}/../alias/hooks", "../hooks", "~/{1}/hooks"])
async def test_hooks_in_the_workspace_are_not_written_however_it_is_called(
    repository, where, monkeypatch
):
    workspace = repository.workspace
    monkeypatch.setenv("HOME", str(workspace.parent))
    (workspace / "hooks").mkdir()
    (workspace.parent / "alias").symlink_to(workspace)
    (workspace.parent / "hooks").symlink_to(workspace / "hooks")
    git(workspace, "config", "core.hooksPath", where.format(workspace, workspace.name))
    await repository.fails(hook_in("hooks/pre-commit", repository), "Read-only")
    commit_outside(workspace)
    assert list(repository.outside.iterdir()) == []


async def test_hooks_that_settings_outside_name_are_not_written(cell, monkeypatch, tmp_path):
    """Those of a repository around the workspace, and those of ours for all repositories."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.hooksPath", f"{cell.workspace.name}/hooks")
    (cell.workspace / "hooks").mkdir()
    await cell.fails(hook_in("hooks/pre-commit", cell), "Read-only")
    git(cell.workspace, "init", "-q")
    await cell.sh("true")
    git(cell.workspace, "config", "--global", "core.hooksPath", "hooks")
    await cell.fails(hook_in("hooks/pre-commit", cell), "Read-only")
    commit_outside(cell.workspace)
    assert list(cell.outside.iterdir()) == []


async def test_hooks_of_another_working_tree_are_not_written(cell, tmp_path):
    git(tmp_path, "init", "-q", "main")
    commit_outside(tmp_path / "main")
    git(tmp_path / "main", "config", "core.hooksPath", "hooks")
    git(tmp_path / "main", "worktree", "add", "-q", "../tree")
    (tmp_path / "tree/.git").rename(cell.workspace / ".git")
    git(tmp_path / "main", "worktree", "repair", cell.workspace)
    (cell.workspace / "hooks").mkdir()
    await cell.fails(hook_in("hooks/pre-commit", cell), "Read-only")
    commit_outside(cell.workspace)
    assert list(cell.outside.iterdir()) == []


async def test_the_settings_of_a_working_tree_are_not_written(repository):
    git(repository.workspace, "config", "extensions.worktreeConfig", "true")
    setting = f"printf '[core]\\nfsmonitor={repository.workspace}/evil\\n'"
    await repository.fails(
        f"{hook_in('evil', repository)}; {setting} > .git/config.worktree", "Read-only"
    )
    commit_outside(repository.workspace)
    assert list(repository.outside.iterdir()) == []
    assert not (repository.workspace / ".git/config.worktree").exists()


async def test_another_working_tree_is_not_given_other_settings(repository):
    commit_outside(repository.workspace)
    other = repository.workspace.parent / "other"
    git(repository.workspace, "worktree", "add", "-q", other)
    await repository.fails(
        f"{hook_in('evil', repository)}; cp -r .git fake;"
        f" printf '[core]\\nfsmonitor={repository.workspace}/evil\\n' > fake/config;"
        " echo $PWD/fake > .git/worktrees/other/commondir",
        "Read-only",
    )
    git(other, "status")
    assert list(repository.outside.iterdir()) == []


@pytest.mark.parametrize("link", ["", "ln -s .HEAD HEAD;"])
async def test_a_workspace_is_not_made_the_inside_of_a_repository(cell, link):
    """Git takes a folder with HEAD, objects and refs for one, and obeys its settings."""
    await cell.sh(
        f"{hook_in('evil', cell)}; mkdir objects refs; rmdir HEAD; rm -rf HEAD; {link}"
        " echo ref: refs/heads/x > .HEAD; cp .HEAD HEAD; mv -T .HEAD HEAD;"
        f" printf '[core]\\nrepositoryformatversion=0\\nbare=false\\nworktree={cell.workspace}"
        f"\\nfsmonitor={cell.workspace}/evil\\n' > config"
    )
    with pytest.raises(subprocess.CalledProcessError):
        git(cell.workspace, "status")
    assert list(cell.outside.iterdir()) == []


async def test_a_repository_is_not_made_where_none_is(cell):
    await cell.sh(f"git init -q .; mkdir -p .git/hooks; {hook_in('.git/hooks/pre-commit', cell)}")
    await cell.sh("git init -q evil; mv -T evil/.git .git; chmod 777 .git; git init -q .")
    git(cell.workspace, "init", "-q")
    commit_outside(cell.workspace)
    assert list(cell.outside.iterdir()) == []


# --- the network, and sockets --------------------------------------------------------------------


async def test_a_listener_on_our_loopback_is_not_reached(cell):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        said = await cell.sh(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
        assert said.code != 0 and "Connection refused" in said.output
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_datagram_does_not_reach_us(cell):
    with socket.socket(type=socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        await cell.sh(f"echo out > /dev/udp/127.0.0.1/{listener.getsockname()[1]}")
        with pytest.raises(BlockingIOError):
            listener.recv(10)


@pytest.mark.parametrize("address", ["169.254.169.254", "192.0.2.1"])
async def test_there_is_no_way_to_any_other_machine(cell, address):
    """Nothing is sent even if this fails: it is asked for the way only."""
    script = (
        "import socket\n"
        "s = socket.socket(type=socket.SOCK_DGRAM)\n"
        f"try: s.connect(('{address}', 80)); print('a way')\n"
        "except OSError as error: print(error.errno)"
    )
    assert await cell.python(script) == str(errno.ENETUNREACH)


@contextmanager
def service(path):
    """Like that of a container engine: whoever reaches it may do anything."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        yield listener


CONNECT = (
    "import socket\n"
    "try:\n"
    "    s = socket.socket(socket.AF_UNIX)\n"
    "    s.connect(PATH)\n"
    "    print('reached')\n"
    "except OSError as error: print(error.errno)"
)


@pytest.mark.parametrize("where", ["/tmp", "/dev/shm", "/run", "workspace", "abstract"])
@pytest.mark.parametrize("network", [False, True])
async def test_the_socket_of_a_service_is_not_reached(cell, where, network):
    folder = cell.workspace if where == "workspace" else where
    if where != "abstract" and not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} is not ours to write")
    made = mkdtemp(dir=folder) if where != "abstract" else ""
    path = f"{made}/docker.sock" if made else f"\0holdfast-{os.getpid()}"
    try:
        with service(path) as listener:
            said = await cell.python(f"PATH = {path!r}\n" + CONNECT, network=network)
            assert said == str(errno.EPERM)
            with pytest.raises(BlockingIOError):
                listener.accept()
    finally:
        if made:
            shutil.rmtree(made)


async def test_a_pair_of_sockets_is_not_turned_to_a_service(cell):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = str(cell.workspace / "log.sock")
        listener.bind(path)
        listener.setblocking(False)
        said = await cell.python(
            "import socket\n"
            "try:\n"
            "    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            f"    a.sendto(b'out', {path!r}); print('sent')\n"
            "except OSError as error: print(error.errno)"
        )
        assert said == str(errno.EPERM)
        with pytest.raises(BlockingIOError):
            listener.recv(10)


# --- processes -----------------------------------------------------------------------------------


async def test_no_process_of_the_host_is_seen_or_signalled(cell):
    with sleeping("60.11") as other:
        said = (await cell.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).output
        assert "cat" in said and "60.11" not in said
        assert (await cell.sh(f"kill -9 {other.pid}")).code != 0
        assert other.poll() is None


@contextmanager
def sleeping(seconds, **more):
    process = subprocess.Popen(["sleep", seconds], **more)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_the_first_process_tells_nothing_of_us(cell, monkeypatch):
    monkeypatch.setenv("HOLDFAST_API_KEY", SECRET)
    said = (await cell.sh("env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/*/environ")).output
    assert "PATH=" in said
    assert SECRET not in said and "HOLDFAST" not in said
    assert (await cell.sh("ls -la /proc/self/fd /proc/1/fd")).output.count("memfd") == 0


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ptrace", {"x86_64": 101, "aarch64": 117}),
        ("process_vm_readv", {"x86_64": 310, "aarch64": 270}),
    ],
)
async def test_no_other_process_is_steered(cell, name, number):
    call = number[os.uname().machine]
    # 16 is PTRACE_ATTACH; for the other call it is a process that need not exist.
    said = await cell.python(f"print(call({call}, 16, os.getppid(), 0, 0))")
    assert said == str(-errno.EPERM)


@pytest.mark.parametrize("flags", [0x10000000, 0x20000, 0x40000000, 0x20000000])
async def test_there_are_no_new_namespaces(cell, flags):
    unshare, clone = {"x86_64": (272, 56), "aarch64": (97, 220)}[os.uname().machine]
    said = await cell.python(
        f"print(call({unshare}, {flags}))\nr = call({clone}, {flags} | 17, 0, 0, 0, 0)\nprint(r)"
    )
    assert said.split() == [str(-errno.EPERM)] * 2


async def test_there_are_none_without_the_filter_either(cell):
    """It is one of two locks."""
    options = cell.jail.options((), network=False)
    made = [cell.jail.bwrap, *options, "--", "/usr/bin/unshare", "--user", "echo", "made"]
    done = await anyio.run_process(made, check=False)
    assert b"unshare" in done.stderr and done.stdout == b"", done


async def test_a_command_has_a_session_of_its_own(cell):
    # One that began outside has no number here.
    assert (
        await cell.sh("read -r words < /proc/self/stat; set -- $words; echo $6")
    ).output != "0\n"


async def test_nothing_is_mounted_or_unmounted(cell):
    await cell.fails("mount -t tmpfs x /mnt", "permission denied", "must be superuser", "permitted")
    mount, umount = {"x86_64": (165, 166), "aarch64": (40, 39)}[os.uname().machine]
    hidden = str(cell.workspace / "settings.toml").encode()
    said = await cell.python(
        f"print(call({umount}, {hidden!r}, 0), call({mount}, b'x', b'/mnt', b'tmpfs', 0, 0))"
    )
    assert said.split() == [str(-errno.EPERM)] * 2


async def test_nothing_is_typed_into_a_terminal(cell):
    """There is none, and into one of its own a program cannot type either. Root can have none."""
    said = await cell.python(
        "import fcntl, pty, termios\n"
        "try: os.open('/dev/tty', os.O_RDWR); print('a terminal', flush=True)\n"
        "except OSError as error: print(error.errno, flush=True)\n"
        "try: ours, theirs = pty.openpty()\n"
        "except OSError: print('none'); sys.exit()\n"
        "if os.fork(): sys.exit(os.wait()[1])\n"
        "os.setsid(); fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)\n"
        "try: fcntl.ioctl(theirs, termios.TIOCSTI, b'x'); print('typed')\n"
        "except OSError as error: print(error.errno)"
    )
    second = str(errno.EPERM) if cell.jail.devices is None else "none"
    assert said.split() == [str(errno.ENXIO), second]


# --- greed ---------------------------------------------------------------------------------------


async def test_a_fork_bomb_meets_its_limit_and_we_go_on(cell):
    if not cell.jail.counts_processes:
        pytest.skip("processes are not limited on this system")
    said = await cell.python(
        "import time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 300:\n"
        "        if os.fork() == 0: time.sleep(2); os._exit(0)\n"
        "        made += 1\n"
        "except OSError as error: print(made, error.errno)\n"
        "else: print(made, 'all')"
    )
    made, error = said.split()
    assert int(made) < SMALL.processes and error == str(errno.EAGAIN)
    with sleeping("0"):
        pass


async def test_memory_is_limited(cell):
    said = await cell.python(
        "try: x = bytearray(512 * 2**20); print('all of it')\nexcept MemoryError: print('too much')"
    )
    assert said == "too much"


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/run", "~"])
async def test_scratch_is_limited(cell, folder):
    await cell.fails(f"head -c 8M /dev/zero > {folder}/big", "No space left")


async def test_a_small_disk_is_not_filled(cell):
    """A disk of its own for the workspace, where we may mount one."""
    small = cell.workspace.parent / "small"
    small.mkdir()
    if os.getuid() != 0 or mounted(small).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        jail = replace(cell.jail, workspace=small, hidden=(), least_free=8 * 2**20)
        full = Cell(jail, cell.outside)
        with pytest.raises(ToolError, match="it left only"):
            await full.sh("head -c 28M /dev/zero > big; sleep 30")
        assert os.statvfs(small).f_bavail > 0
    finally:
        unmount(small)


def unmount(folder):
    subprocess.run(["umount", "--lazy", folder], check=True)


def mounted(folder):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], check=False)


# --- those who stay behind -----------------------------------------------------------------------

STAY = {
    "setsid": "setsid sleep {} & ",
    "nohup": "nohup sleep {} > /dev/null 2>&1 & ",
    "daemon": "(setsid bash -c '(sleep {} &)' > /dev/null 2>&1 < /dev/null &) ; ",
}


@pytest.mark.parametrize("how", STAY)
async def test_nobody_stays_behind_when_the_command_ends(cell, how):
    mark = f"61.{os.getpid()}1"
    await cell.sh(STAY[how].format(mark) + "sleep 0.1")
    assert await are_gone(mark)


#: Each tries to be there when the stand-in for a name goes, and is seen by nobody until then.
PLANTERS = """
import os
os.closerange(0, 3)
for _ in range(8):
    if os.fork() == 0:
        while True:
            try:
                os.mkdir(".vscode")
            except OSError:
                pass
"""


async def test_whoever_stays_behind_plants_nothing_in_the_end(cell):
    (cell.workspace / "planters.py").write_text(PLANTERS)
    for _ in range(5):
        await cell.sh(f"{PYTHON} -I -S planters.py; sleep 0.02")
        assert not (cell.workspace / ".vscode").exists()


@pytest.mark.parametrize(
    "how",
    [
        "sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
        "setpriority(os.PRIO_PROCESS, 1, 19)",
        "setpriority(os.PRIO_PGRP, 1, 19)",
        "setpriority(os.PRIO_USER, 0, 19)",
        "sched_setaffinity(1, {0})",
    ],
)
async def test_the_first_process_is_not_made_slow_to_die(cell, how):
    refused = f"try: os.{how}\nexcept PermissionError: print('refused')"
    assert await cell.python(refused) == "refused"


@pytest.mark.parametrize("how", STAY)
async def test_nobody_stays_behind_when_it_is_cancelled(cell, how):
    mark = f"61.{os.getpid()}2"
    with anyio.move_on_after(10) as scope:

        async def enough(words):
            await is_there(mark)
            scope.cancel()

        await cell.sh(STAY[how].format(mark) + "echo up; sleep 60", hear=enough)
    assert scope.cancelled_caught
    assert await are_gone(mark)


SERVER = """
import anyio, sys
from pathlib import Path
from holdfast.tools.jail import jail_environment, open_jail
async def main(workspace, command):
    jail = await open_jail(Path(workspace))
    async def hear(words): print(words, flush=True)
    env = jail_environment("/usr/bin:/bin", extra={})
    await jail.run(command, cwd=Path(workspace), env=env, hear=hear, most=1000, ended=print)
anyio.run(main, *sys.argv[1:])
"""


async def test_nobody_stays_behind_when_we_are_killed(cell):
    mark = f"61.{os.getpid()}3"
    stay = "".join(way.format(mark) for way in STAY.values())
    argv = [
        sys.executable,
        "-c",
        SERVER,
        str(cell.workspace),
        f"{stay} echo up; sleep 60",
    ]
    async with await anyio.open_process(argv, stderr=None) as server:
        with anyio.fail_after(20):
            assert b"up" in await server.stdout.receive()
        await is_there(mark)
        server.send_signal(signal.SIGKILL)
        await server.wait()
        assert await are_gone(mark)
    assert (await cell.sh("true")).code == 0
    left = {path.name for path in cell.workspace.iterdir()}
    assert left == {"settings.toml"}, "what it could not clear away is gone after the next command"
