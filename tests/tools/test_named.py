import os

import pytest

from holdfast.tools import named
from holdfast.tools.beneath import Workspace
from holdfast.tools.named import contents, gits, names, obeyed
from tests.tools.corpus import git


@pytest.fixture
def root(tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "deploy.sh").write_text("echo harmless\n")
    (tmp_path / "web/deploy.sh").write_text("echo web\n")
    return tmp_path


def look(root, command, directory="."):
    return contents(Workspace(root), names(command, directory))


@pytest.mark.parametrize(
    "command",
    [
        "bash deploy.sh",
        "./deploy.sh now",
        "bash < deploy.sh",
        ". ./deploy.sh; echo done",
        "sudo env A=1 bash 'deploy.sh'",
        "bash -c 'cd . && sh deploy.sh'",
        "make --file=deploy.sh",
        "BASH_ENV=deploy.sh bash -c true",
        'bash "deploy.sh" "$(date)"',
        "if true; then bash deploy.sh",
        "bash web/../deploy.sh",
    ],
)
def test_a_file_that_a_command_names_is_bound_by_what_is_in_it(root, command):
    before = look(root, command)
    assert before.startswith("file deploy.sh: sha256 ")
    assert look(root, command) == before
    (root / "deploy.sh").write_text("echo other code\n")
    assert look(root, command) != before


@pytest.mark.parametrize(
    ("command", "directory"), [("cd web && ./deploy.sh", "."), ("./deploy.sh", "web")]
)
def test_a_name_means_the_file_where_the_command_is(root, command, directory):
    assert "file web/deploy.sh: sha256 " in look(root, command, directory)


def test_a_file_that_comes_to_be_is_noticed(root):
    before = look(root, "bash new.sh")
    (root / "new.sh").touch()
    assert (before, look(root, "bash new.sh")) != ("", "")


def test_folders_other_words_and_what_is_outside_are_not_named(root, tmp_path_factory):
    outside = tmp_path_factory.mktemp("other") / "file"
    outside.touch()
    assert look(root, f"ls web nothing -la {outside} ../x '\0'") == ""


def test_the_sum_of_a_secret_is_not_told_and_a_change_of_it_is_noticed_all_the_same(root):
    (root / ".env").write_text("A=1\n")
    before = look(root, "bash .env")
    assert "sha256" not in before and before.startswith("file .env: 4 bytes")
    (root / ".env").write_text("A=2\n")
    os.utime(root / ".env", ns=(0, 0))
    assert look(root, "bash .env") != before


def test_a_large_file_is_known_by_its_stamp(root):
    with (root / "image").open("wb") as file:
        file.truncate(named.LARGEST + 1)
    before = look(root, "dd if=image")
    assert "sha256" not in before
    os.utime(root / "image", ns=(0, 0))
    assert look(root, "dd if=image") != before


def test_of_many_bytes_in_all_the_rest_is_known_by_stamps(root):
    for number in range(5):
        with (root / str(number)).open("wb") as file:
            file.truncate(named.LARGEST)
    assert look(root, "cat 0 1 2 3 4").count("sha256") == named.MOST_BYTES // named.LARGEST


def test_a_file_that_may_not_be_opened_or_is_reached_by_a_link_out_is_known_by_its_stamp(
    root, tmp_path_factory
):
    outside = tmp_path_factory.mktemp("other") / "script"
    outside.write_text("echo harmless\n")
    (root / "link.sh").symlink_to(outside)
    (root / "deploy.sh").chmod(0o600)
    os.link(root / "deploy.sh", root / "twin")
    for file in ("link.sh", "deploy.sh"):
        before = look(root, f"bash {file}")
        assert before.startswith(f"file {file}: ") and "sha256" not in before
        (root / file).write_text("echo other code\n")
        assert look(root, f"bash {file}") != before


def test_no_file_among_many_changes_unnoticed(root):
    many = [f"file{number}" for number in range(100)]
    for name in many:
        (root / name).touch()
    command = f"cat {' '.join(many)}; bash deploy.sh"
    before = look(root, command)
    assert len(before.splitlines()) == named.MOST_FILES + 1
    (root / "deploy.sh").write_text("echo other code\n")
    assert look(root, command) != before


def test_whoever_is_asked_is_told_if_there_are_too_many_names(root):
    told = look(root, f"cat {' '.join(map(str, range(1000)))}; bash deploy.sh")
    assert told.splitlines()[-1].startswith("not all of the files that it names")


@pytest.mark.parametrize(
    ("command", "places"),
    [
        ("git commit -m x", (".",)),
        ("cd web && git status", (".", "web")),
        ("git -C web -C .. log; /usr/bin/git -C web log", (".", "web")),
        ("bash -c 'git -C web log' | wc", ("web",)),
        ("if git -C web log", ("web",)),
        ("make; ls", ()),
    ],
)
def test_the_places_where_git_runs_are_known(command, places):
    assert gits(command, ".") == places
    assert gits("git log", "web") == ("web",)


def test_what_a_repository_says_is_bound_where_git_obeys_it(root):
    assert obeyed(Workspace(root), (".", "web", "nowhere")) == ""
    git(root / "web", "init", "-q")
    assert obeyed(Workspace(root), (".", "web")) == ""
    git(root / "web", "config", "core.fsmonitor", "../evil\n" + "x" * 1000)
    told = obeyed(Workspace(root), (".", "web", "..", "/"))
    assert told.startswith("git in web: ") and "fsmonitor = ../evil" in told
    assert "\n" not in told and len(told) < 400


def test_another_name_of_the_workspace_hides_no_file(root, tmp_path_factory):
    alias = tmp_path_factory.mktemp("other") / "alias"
    alias.symlink_to(root)
    for command in (f"bash {alias}/deploy.sh", f"bash {alias}/web/../deploy.sh"):
        assert look(root, command).startswith("file deploy.sh: sha256 "), command
    assert look(root, f"bash {alias}/../x {alias}") == ""
