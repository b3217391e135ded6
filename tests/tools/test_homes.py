import pwd
from pathlib import Path

import pytest

from holdfast.tools.homes import covered_folders, home, no_workspace


@pytest.fixture
def users(monkeypatch):
    """Let these be the users, with these homes."""

    def be(**homes):
        users = [
            pwd.struct_passwd((name, "x", 1, 1, "", str(at), "")) for name, at in homes.items()
        ]
        monkeypatch.setattr("pwd.getpwall", lambda: users)

    return be


def test_no_covered_folder_is_in_another():
    folders = covered_folders(home())
    assert "/tmp" in folders
    assert not [a for a in folders for b in folders if a != b and Path(a).is_relative_to(b)]


def test_a_user_who_is_not_in_the_list_has_no_home(monkeypatch):
    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert not home().exists()


@pytest.mark.parametrize("folder", ["/", "/proc", "/dev", "/tmp", "/dev/shm", "/home", "/run"])
def test_a_folder_of_the_system_is_no_workspace(folder):
    assert no_workspace(Path(folder)).startswith(f"{folder} cannot be a workspace: ")


def test_a_folder_that_holds_one_is_no_workspace():
    assert "/var/" in no_workspace(Path("/var"))


def test_our_home_is_no_workspace():
    if not home().is_dir():
        pytest.skip("we have none")
    assert no_workspace(home()).endswith("cannot be a workspace: it is your home")


def test_a_home_of_somebody_is_no_workspace_and_a_folder_in_it_is(tmp_path, users):
    mine = tmp_path / "home/me"
    (mine / "project").mkdir(parents=True)
    (tmp_path / "link").symlink_to(mine)
    users(gone=tmp_path / "gone", me=mine)
    assert no_workspace(mine) == f"{mine} cannot be a workspace: it is the home of me"
    assert "the home of me" in no_workspace(tmp_path / "link")
    assert f"{mine}, the home of me, is in it" in no_workspace(tmp_path)
    assert no_workspace(mine / "project") == ""


def test_a_home_that_is_named_by_a_link_is_no_workspace(tmp_path, users):
    (tmp_path / "real").mkdir()
    (tmp_path / "me").symlink_to(tmp_path / "real")
    users(me=tmp_path / "me")
    assert no_workspace(tmp_path / "real")
