import fcntl
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from time import perf_counter

import pytest

from holdfast.errors import ToolError
from holdfast.tools.jail_names import bound, identities, pinned, protected, stand_ins
from holdfast.tools.names import AT_ONCE

pytestmark = pytest.mark.real_time

#: In a repository.
OBEYED = {".git/config", ".git/config.worktree", ".git/hooks", ".git/commondir"}


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def repository(workspace):
    subprocess.run(["git", "init", "-q", workspace], check=True)
    return workspace


@asynccontextmanager
async def standing(workspace):
    async with stand_ins(workspace) as names:
        yield names


def set_in(repository, key, value):
    subprocess.run(["git", "-C", repository, "config", key, value], check=True)


def names_of(workspace):
    return {str(name.path.relative_to(workspace)) for name in protected(workspace)}


def test_the_usual_names_and_a_repository_that_is_not_there(workspace):
    assert names_of(workspace) == {*AT_ONCE, ".git", "HEAD"}


def test_of_a_repository_what_git_obeys(repository):
    assert names_of(repository) == {*AT_ONCE, *OBEYED}


@pytest.mark.parametrize("value", [".husky/_", '".husky/_"', "./.husky/_"])
def test_hooks_that_lie_elsewhere_in_the_workspace(repository, value):
    set_in(repository, "core.hooksPath", value.strip('"'))
    (repository / ".husky/_").mkdir(parents=True)
    assert ".husky/_" in names_of(repository)


@pytest.mark.parametrize(
    "written",
    [
        "hooksPath = .githooks # ours",
        'HooksPath=".githooks" ; ours',
        "\thookspath = .git\\\nhooks",
        'hooksPath = .git"hooks"\t',
        'hooksPath = .git"ho"oks\r',
        '[core "] #"] hooksPath = .githooks',
        "[a] [core]hooksPath = ./x/../.githooks/",
        "hooksPath = :(optional).githooks",
    ],
)
def test_hooks_are_found_however_they_are_written(repository, written):
    (repository / ".githooks").mkdir()
    add_to(repository / ".git/config", f"[core]\n{written}\n")
    assert ".githooks" in names_of(repository)


def add_to(settings, words):
    with settings.open("a") as file:
        file.write(words)


@pytest.mark.parametrize(
    "written",
    [
        "a b",
        '  "a b "  ',
        '"a # b" # c',
        '"a ; b"; c',
        r'"a\"b" ',
        r"a\\b",
        "a\\\n  b",
        'a" "',
        r"a\tb",
        "a # b \\",
        "a\t",
    ],
)
def test_a_value_is_read_as_git_reads_it(workspace, written):
    (workspace / "settings").write_text(f"[core]\nhooksPath = {written}\n")
    asked = ["git", "config", "-z", "-f", workspace / "settings", "core.hooksPath"]
    meant = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    (workspace / "HEAD").touch()
    (workspace / "config").write_text((workspace / "settings").read_text())
    expected = {*AT_ONCE, ".git", "HEAD", "config", "config.worktree", "hooks", "commondir"}
    assert names_of(workspace) == {*expected, meant.rstrip("\0")}


@pytest.mark.parametrize(
    "value", ["", "~/hooks", "~nobody-x/hooks", "%(prefix)/hooks", "a\0b", "/usr/hooks", ".."]
)
def test_hooks_elsewhere_are_not_looked_for_here(repository, value):
    add_to(repository / ".git/config", f"[core]\nhooksPath = {value}\n")
    assert names_of(repository) == {*AT_ONCE, *OBEYED}


def test_other_working_trees_and_parts_are_protected_as_a_whole(repository):
    for name in ("worktrees/other", "modules/part"):
        (repository / ".git" / name).mkdir(parents=True)
    assert names_of(repository) == {*AT_ONCE, *OBEYED, ".git/worktrees", ".git/modules"}


def test_what_a_command_made_a_link_instead_locks_nobody_out(repository):
    (repository / ".git/worktrees").symlink_to(repository)
    (repository / ".git/modules").symlink_to("gone")
    assert names_of(repository) == {*AT_ONCE, *OBEYED}


def test_of_working_trees_our_own_can_be_worked_in(workspace):
    subprocess.run(["git", "init", "-q", "--bare", workspace / ".bare"], check=True)
    for name in ("mine", "other"):
        tree = workspace / ".bare/worktrees" / name
        tree.mkdir(parents=True)
        (tree / "commondir").write_text("../..\n")
    (workspace / ".git").write_text("gitdir: .bare/worktrees/mine\n")
    names = names_of(workspace)
    assert {".bare/worktrees/other", ".bare/worktrees/mine/config.worktree"} <= names
    assert not {".bare/worktrees", ".bare/worktrees/mine"} & names


def test_a_workspace_that_is_a_repository_without_files(workspace):
    subprocess.run(["git", "init", "-q", "--bare", workspace], check=True)
    add_to(workspace / "config", "[include]\npath = more\n")
    assert {"HEAD", "config", "hooks", "commondir", "more"} <= names_of(workspace)


def test_what_is_kept_is_protected_and_what_is_outside_is_so_anyway(workspace, tmp_path):
    kept = (workspace / "a/b", tmp_path / "c")
    (workspace / "a").mkdir()
    names = {name.path for name in protected(workspace, kept)}
    assert kept[0] in names and kept[1] not in names


def test_hooks_whose_folder_is_not_there_either(repository):
    set_in(repository, "core.hooksPath", "a/b/c")
    assert "a" in names_of(repository)


def test_hooks_outside_are_read_only_anyway(repository):
    set_in(repository, "core.hooksPath", "/usr/share/hooks")
    assert names_of(repository) == {*AT_ONCE, *OBEYED}


def test_hooks_that_a_repository_around_the_workspace_names(workspace):
    subprocess.run(["git", "init", "-q", workspace.parent], check=True)
    set_in(workspace.parent, "core.hooksPath", "work/a")
    assert names_of(workspace) == {*AT_ONCE, ".git", "HEAD", "a"}
    set_in(workspace.parent, "core.hooksPath", "a")
    assert names_of(workspace) == {*AT_ONCE, ".git", "HEAD"}
    set_in(workspace.parent, "core.hooksPath", "work")
    with pytest.raises(ToolError, match="give the hooks a folder of their own"):
        protected(workspace)


def test_hooks_that_the_settings_of_a_working_tree_name(repository):
    (repository / ".git/config.worktree").write_text("[core]\nhooksPath = .husky\n")
    assert ".husky" in names_of(repository)


def test_settings_that_the_settings_include(repository):
    set_in(repository, "include.path", "../.gitconfig")
    (repository / ".gitconfig").write_text("[include]\n  path = more\n[include] path = ../out\n")
    assert {".gitconfig", "more"} <= names_of(repository)


def test_settings_that_include_themselves_are_read_once(repository):
    add_to(repository / ".git/config", "[include]\npath = config\npath = ../.gitconfig\n")
    (repository / ".gitconfig").write_text("[include]\n" + "path = .gitconfig\n" * 90)
    assert ".gitconfig" in names_of(repository)


@pytest.mark.parametrize(
    "words",
    [
        "#" * (2**20 + 1),
        "".join(f"path = x{number}\n" for number in range(100)),
        "hooksPath = x\n" * 50_000,
    ],
)
def test_more_settings_than_anybody_has_are_not_protected_by_halves(repository, words):
    set_in(repository, "include.path", "../.gitconfig")
    (repository / ".gitconfig").write_text(f"[include]\n{words}")
    with pytest.raises(ToolError, match="too many to protect"):
        protected(repository)


@pytest.mark.parametrize(
    "words", ["\n", "[", "[]", '["', '"', " ", "\\", "path", "[a] ", '[a "b"]']
)
def test_no_settings_take_long_to_read(repository, words):
    add_to(repository / ".git/config", words * (2**19 // len(words)))
    begun = perf_counter()
    protected(repository)
    assert perf_counter() - begun < 5


def test_settings_that_are_no_file_are_not_waited_for(repository):
    set_in(repository, "include.path", "../pipe")
    os.mkfifo(repository / "pipe")
    assert "pipe" in names_of(repository)


def test_a_second_working_tree_whose_folder_is_outside(workspace):
    (workspace / ".git").write_text("gitdir: ../main/.git/worktrees/work\n")
    assert names_of(workspace) == {*AT_ONCE, ".git"}


def test_a_repository_whose_folder_has_another_name(workspace):
    subprocess.run(["git", "init", "-q", "--bare", workspace / ".bare"], check=True)
    (workspace / ".git").write_text("gitdir: ./.bare\n")
    assert names_of(workspace) == {
        *AT_ONCE,
        ".git",
        *(name.replace(".git", ".bare") for name in OBEYED),
    }


def test_a_repository_whose_folder_is_named_by_way_of_a_link_outside(workspace, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", workspace / ".bare"], check=True)
    (tmp_path / "alias").symlink_to(workspace)
    (workspace / ".git").write_text(f"gitdir: {tmp_path}/alias/.bare\n")
    assert {".bare/config", ".bare/hooks"} <= names_of(workspace)


def test_what_a_working_tree_shares_with_others(workspace):
    (workspace / "tree").mkdir()
    (workspace / "tree/commondir").write_text("../shared\n")
    (workspace / "shared").mkdir()
    (workspace / ".git").write_text("gitdir: tree\n")
    assert {"tree/commondir", "shared/hooks", "shared/config"} <= names_of(workspace)


async def test_while_it_lasts_each_name_is_there_and_afterwards_none_is_that_was_not(repository):
    (repository / ".vscode").mkdir()
    async with standing(repository) as names:
        assert all(name.path.exists() for name in names)
        assert git_works(repository)
    there = {name.path.name for name in names if name.path.exists()}
    assert there == {".vscode", "config", "hooks"}
    assert git_works(repository)


def git_works(repository):
    git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    said = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True)
    return said.stdout == b""


async def test_of_two_at_once_the_last_removes_them(workspace):
    async with standing(workspace):
        async with standing(workspace) as names:
            pass
        assert all(name.path.exists() for name in names)
    assert list(workspace.iterdir()) == []


async def test_while_somebody_is_left_nothing_is_removed_and_nobody_is_locked_out(workspace):
    async def not_yet():
        return False

    async with stand_ins(workspace, over=not_yet) as names:
        pass
    assert all(name.path.exists() for name in names)
    async with standing(workspace):
        pass
    assert list(workspace.iterdir()) == []


async def test_what_somebody_put_there_meanwhile_is_kept(workspace):
    async with standing(workspace):
        (workspace / ".vscode/tasks.json").write_text("{}")
    assert [path.name for path in workspace.iterdir()] == [".vscode"]


async def test_what_a_killed_process_left_is_removed_after_the_next_command(workspace):
    die_in_the_middle(workspace)
    absent = {*AT_ONCE, ".git", "HEAD"}
    assert {path.name for path in workspace.iterdir()} == absent
    assert names_of(workspace) == absent, "an empty folder is not a repository"
    async with standing(workspace):
        pass
    assert list(workspace.iterdir()) == []


def die_in_the_middle(workspace):
    script = (
        "import anyio, os, sys, pathlib\n"
        "from holdfast.tools.jail_names import stand_ins\n"
        "async def main():\n"
        "    async with stand_ins(pathlib.Path(sys.argv[1])): os._exit(9)\n"
        "anyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", script, workspace], check=False)


async def test_an_empty_folder_of_somebody_elses_is_kept(workspace):
    (workspace / ".vscode").mkdir()
    async with standing(workspace):
        pass
    assert [path.name for path in workspace.iterdir()] == [".vscode"]


async def test_a_workspace_that_another_has_locked_is_not_used(workspace):
    lock = os.open(workspace, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(ToolError, match="another program has locked the workspace"):
            async with standing(workspace):
                pass
    finally:
        os.close(lock)


async def test_a_workspace_that_is_gone_is_told(tmp_path):
    with pytest.raises(ToolError, match=r"no command can be run in the jail: .*No such file"):
        async with standing(tmp_path / "gone"):
            pass


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is forbidden to root")
async def test_where_we_may_make_nothing_nothing_is_made(workspace):
    workspace.chmod(0o500)
    async with standing(workspace) as names:
        assert bound(workspace, names, set()) == []
    workspace.chmod(0o700)


async def test_a_name_that_cannot_be_protected_is_an_error(repository):
    set_in(repository, "core.hooksPath", "a" * 300)
    with pytest.raises(ToolError, match="cannot be protected"):
        async with standing(repository):
            pass


async def test_what_was_made_and_what_was_left_by_another_is_bound_alike(workspace):
    async with standing(workspace) as made, standing(workspace) as found:
        assert [name.made for name in made] == [True] * len(made)
        assert [name.made for name in found] == [False] * len(found)
        assert bound(workspace, made, set()) == bound(workspace, found, set())


async def test_names_are_bound_read_only_and_the_way_to_them_is_held(repository):
    async with standing(repository) as names:
        arguments = " ".join(bound(repository, names, set()))
    git = repository / ".git"
    assert f"--bind {git} {git} " in arguments
    assert f"--ro-bind {git}/config {git}/config" in arguments
    assert f"--perms 0555 --tmpfs {repository}/.vscode" in arguments
    assert arguments.index(f"--bind {git} ") < arguments.index(f"--ro-bind {git}/config")


@pytest.mark.parametrize("link", [".git", ".git/hooks", ".vscode"])
def test_a_link_cannot_be_protected(workspace, link):
    (workspace / "elsewhere").mkdir()
    (workspace / ".git" if "/" in link else workspace).mkdir(exist_ok=True)
    (workspace / link).symlink_to(workspace / "elsewhere")
    with pytest.raises(ToolError, match=f"{link} is a link"):
        bound(workspace, protected(workspace), set())


def test_what_is_bound_already_is_not_bound_again(workspace):
    path = f"{workspace}/a/b/c"
    assert pinned(workspace, path, {f"{workspace}/a"}) == ["--bind", *[f"{workspace}/a/b"] * 2]


def test_a_name_that_is_replaced_is_another(repository):
    paths = [*(name.path for name in protected(repository)), repository / "gone"]
    before = identities(paths)
    set_in(repository, "core.pager", "less")
    (repository / "gone").touch()
    after = identities(paths)
    assert {path.name for path in before if before[path] != after[path]} == {"config", "gone"}
