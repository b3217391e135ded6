import os
import shutil
from pathlib import Path

import pytest

from holdfast.tools.repository import MOST_TRACKED, clean, obedience, parts, tracked
from tests.tools.corpus import git

HARMLESS = """
[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
; a remark
# another
[remote "origin"]
	url = https://example.com/x.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "topic/a"]
	remote = origin
	merge = refs/heads/topic/a
[user]
	name = Some Body
	email = somebody@example.com
"""


@pytest.fixture
def workspace(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a").write_text("a")
    git(tmp_path, "add", "a")
    (tmp_path / "inner/deep").mkdir(parents=True)
    return tmp_path


def test_an_ordinary_repository_is_clean(workspace):
    assert clean(workspace, workspace) == workspace
    assert clean(workspace / "inner/deep", workspace) == workspace
    (workspace / ".git/config").write_text(HARMLESS)
    assert clean(workspace, workspace) == workspace
    (workspace / ".git/index").unlink()
    assert clean(workspace, workspace) == workspace


SETTINGS = (
    "[core]\n\tfsmonitor = ./run",
    "[core]\n\tFSMonitor = ./run",
    "[core] fsmonitor = ./run",
    "[core]\n\thooksPath = .",
    "[core]\n\tpager = ./run",
    "[core]\n\tworktree = /",
    "[core]\n\tsshCommand = ./run",
    "[core]\n\trepositoryformatversion = 1",
    "[core]\n\tbare = true",
    "[extensions]\n\tworktreeConfig = true",
    "[include]\n\tpath = other",
    '[includeIf "gitdir:."]\n\tpath = other',
    '[filter "x"]\n\tclean = ./run',
    '[diff "x"]\n\ttextconv = ./run',
    "[diff]\n\texternal = ./run",
    "[alias]\n\tstatus = !./run",
    '[remote "x"]\n\tuploadpack = ./run',
    '[remote "x"]\n\tpromisor = true',
    "[gpg]\n\tprogram = ./run",
    "[user]\n\tname = x\\\n\temail = y",
    "[user]\n\tname = x\r[core]\n\tfsmonitor = ./run",
    "name = x",
)


def test_a_setting_that_is_not_known_to_be_harmless_is_not_clean(workspace):
    for setting in SETTINGS:
        (workspace / ".git/config").write_bytes(f"{setting}\n".encode())
        assert "not known to be harmless" in clean(workspace, workspace), setting


def test_a_repository_must_be_within_the_workspace(workspace):
    inner = workspace / "inner"
    assert "no repository" in clean(inner, inner)
    assert "no repository" in clean(inner / "deep", inner)
    assert "no repository" in clean(Path("/no-such-place"), inner)


def test_the_inside_of_a_repository_is_not_one(workspace):
    (workspace / "inner/HEAD").write_text("ref: refs/heads/main\n")
    assert "inside of a repository" in clean(workspace / "inner/deep", workspace)


@pytest.mark.parametrize("missing", ["HEAD", "objects", "refs"])
def test_what_git_would_pass_over_is_not_taken_for_the_repository(workspace, missing):
    """It would go on to the next one up, or out of the workspace."""
    git(workspace / "inner", "init", "-q")
    assert clean(workspace / "inner", workspace) == workspace / "inner"
    found = workspace / "inner/.git" / missing
    found.rename(workspace / "elsewhere")
    assert "not a whole one" in clean(workspace / "inner", workspace)
    assert "not a whole one" in clean(workspace / "inner/deep", workspace)
    found.mkdir() if missing == "HEAD" else found.write_text("")
    assert "not a whole one" in clean(workspace / "inner", workspace)
    (workspace / "elsewhere").rename(workspace / "inner/.git/other")
    (found.rmdir if missing == "HEAD" else found.unlink)()
    found.symlink_to("other")
    assert "tied to others" in clean(workspace / "inner", workspace)


@pytest.mark.parametrize("head", ["", "main", "ref: heads/main", "ref: ", "0" * 39, "x" * 300])
def test_a_head_that_git_would_not_follow_makes_no_repository(workspace, head):
    (workspace / ".git/HEAD").write_text(head)
    assert "not a whole one" in clean(workspace, workspace)


def test_a_head_without_a_branch_makes_one(workspace):
    (workspace / ".git/HEAD").write_text("0" * 40 + "\n")
    assert clean(workspace, workspace) == workspace


def test_each_repository_on_the_way_up_must_be_clean(workspace):
    git(workspace / "inner", "init", "-q")
    with (workspace / ".git/config").open("a") as file:
        file.write('[filter "x"]\n\tclean = ./run\n')
    for place in (workspace, workspace / "inner", workspace / "inner/deep"):
        assert "not known to be harmless" in clean(place, workspace)
    # What is above the workspace is not git's to find.
    assert clean(workspace / "inner", workspace / "inner") == workspace / "inner"


@pytest.mark.parametrize("link", ["refs", "packed-refs", "objects/00", "objects/pack/x.pack"])
def test_a_repository_with_links_in_it_may_show_another(workspace, link):
    place = workspace / ".git" / link
    if place.exists():
        place.rename(workspace / "elsewhere")
    place.symlink_to(workspace / "elsewhere")
    assert "tied to others" in clean(workspace, workspace)


def test_a_repository_elsewhere_is_not_followed(workspace):
    (workspace / "inner/.git").write_text("gitdir: ../.git\n")
    assert "somewhere else" in clean(workspace / "inner", workspace)
    (workspace / "inner/.git").unlink()
    (workspace / "inner/.git").symlink_to("../.git")
    assert "somewhere else" in clean(workspace / "inner", workspace)


@pytest.mark.parametrize(
    "name", ["commondir", "config.worktree", "modules", "objects/info/alternates"]
)
def test_a_repository_that_is_tied_to_another_is_not_clean(workspace, name):
    (workspace / ".git" / name).write_text("x")
    assert "tied to others" in clean(workspace, workspace)


def test_other_repositories_within_are_noticed(workspace):
    nothing = "0" * 39 + "1"
    git(workspace, "update-index", "--add", "--cacheinfo", f"160000,{nothing},inner/x")
    assert "may hold other repositories" in clean(workspace, workspace)
    (workspace / ".gitmodules").write_text("")
    assert "tied to others" in clean(workspace, workspace)


def add_part(workspace, name):
    nothing = "0" * 39 + "1"
    git(workspace, "update-index", "--add", "--cacheinfo", f"160000,{nothing},{name}")
    (workspace / name).mkdir(parents=True, exist_ok=True)
    return workspace / name / ".git"


def test_parts_are_those_whose_settings_a_command_could_write(workspace):
    assert parts(workspace) == []
    add_part(workspace, "absent")
    assert parts(workspace) == []
    add_part(workspace, "module").write_text("gitdir: ../.git/modules/module\n")
    assert parts(workspace) == []
    add_part(workspace, "planted").mkdir()
    add_part(workspace, "led").write_text("gitdir: ../.git/modules/../../inner\n")
    add_part(workspace, "odd").write_bytes(b"gitdir: \0")
    add_part(workspace, "linked").symlink_to("../module/.git")
    os.mkfifo(add_part(workspace, "waits"))
    assert parts(workspace) == ["led", "linked", "odd", "planted", "waits"]


def test_parts_that_cannot_be_told_are_not_passed_over(workspace):
    add_part(workspace, "x").mkdir()
    git(workspace, "update-index", "--index-version", "4")
    assert parts(workspace) == ["something that its index does not tell"]
    index = workspace / ".git/index"
    index.unlink()
    assert parts(workspace) == []
    os.mkfifo(index)
    assert parts(workspace) == ["something that its index does not tell"]


def test_what_git_would_obey_is_told_if_anything_is_known_of(workspace):
    assert obedience(workspace, workspace) == obedience(Path("/usr"), Path("/usr")) == ""
    add_part(workspace, "x").mkdir()
    assert "may hold other" in obedience(workspace, workspace)
    (workspace / ".git/index").unlink()
    hooks = workspace / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit.sample").touch()
    assert obedience(workspace, workspace) == ""
    (hooks / "pre-commit").touch()
    assert obedience(workspace, workspace) == "its repository has hooks"
    shutil.rmtree(hooks)
    hooks.touch()
    assert obedience(workspace, workspace) == "its repository cannot be read"


def test_an_index_in_several_pieces_is_not_clean(workspace):
    (workspace / ".git/sharedindex.1").write_text("")
    assert "several pieces" in clean(workspace, workspace)


def test_settings_that_cannot_be_read_are_not_clean(workspace):
    config = workspace / ".git/config"
    config.write_bytes(b"\xff")
    assert "cannot be read" in clean(workspace, workspace)
    config.write_text("#" * 70_000)
    assert "not an ordinary file" in clean(workspace, workspace)
    config.unlink()
    assert "cannot be read" in clean(workspace, workspace)
    config.mkdir()
    assert "not an ordinary file" in clean(workspace, workspace)


def test_what_is_tracked_is_read_from_the_index(workspace):
    assert tracked(workspace) == ["a"]
    names = sorted([f"inner/{'x' * length}" for length in range(1, 20)] + ["ü", "inner/deep/.env"])
    for name in names:
        (workspace / name).write_text("")
    git(workspace, "add", "-A")
    # An entry of zeros, and one with more flags than others.
    nothing = "0" * 39 + "1"
    git(workspace, "update-index", "--add", "--cacheinfo", f"100644,{nothing},inner/none")
    git(workspace, "update-index", "--skip-worktree", "inner/x")
    assert tracked(workspace) == sorted(["a", "inner/none", *names])
    (workspace / ".git/index").unlink()
    assert tracked(workspace) == []


def test_an_index_that_cannot_be_read_to_its_end_says_nothing(workspace):
    index = workspace / ".git/index"
    whole = index.read_bytes()
    count = MOST_TRACKED + 1
    for data in (b"", whole[:70], b"x" + whole, whole[:8] + count.to_bytes(4) + whole[12:]):
        index.write_bytes(data)
        assert tracked(workspace) is None
    index.write_bytes(whole)
    git(workspace, "update-index", "--index-version", "4")
    assert tracked(workspace) is None
