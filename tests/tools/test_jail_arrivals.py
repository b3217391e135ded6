import os

import pytest

from holdfast.errors import ToolError
from holdfast.tools.jail_arrivals import Arrivals
from holdfast.tools.names import LATER


@pytest.fixture
def arrivals(tmp_path):
    return Arrivals(tmp_path)


def test_where_nothing_comes_nothing_is_told(arrivals, tmp_path):
    (tmp_path / "a").touch()
    assert arrivals.set_aside() is None
    assert arrivals.close() == []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("name", LATER)
def test_what_comes_is_called_something_else(arrivals, tmp_path, name):
    (tmp_path / name).write_text("planted")
    (told,) = arrivals.close()
    assert told.startswith(f"{name} came into being") and f"{name}.aside1" in told
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.aside1"]
    assert (tmp_path / f"{name}.aside1").read_text() == "planted"


def test_a_folder_and_a_link_are_set_aside_as_they_are(arrivals, tmp_path):
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").touch()
    (tmp_path / ".zshrc").symlink_to("/etc/passwd")
    assert len(arrivals.close()) == 2
    assert (tmp_path / ".claude.aside1/settings.json").exists()
    assert (tmp_path / ".zshrc.aside1").readlink().name == "passwd"


def test_what_was_there_stays_and_is_to_be_bound_if_it_can_be(tmp_path):
    (tmp_path / ".bashrc").symlink_to("gone")
    (tmp_path / ".zshrc").touch()
    (tmp_path / ".claude").mkdir()
    arrivals = Arrivals(tmp_path)
    assert set(arrivals.there) == {tmp_path / ".zshrc", tmp_path / ".claude"}
    assert arrivals.close() == []


def test_what_was_put_in_the_place_of_a_link_is_set_aside(tmp_path):
    (tmp_path / ".bashrc").symlink_to("gone")
    arrivals = Arrivals(tmp_path)
    (tmp_path / ".bashrc").unlink()
    (tmp_path / ".bashrc").write_text("planted")
    assert len(arrivals.close()) == 1


def test_who_makes_it_again_and_again_is_objected_to(arrivals, tmp_path):
    for _ in range(9):
        (tmp_path / ".bashrc").touch()
        assert arrivals.set_aside() is None
    (tmp_path / ".bashrc").touch()
    assert "again and again" in arrivals.set_aside()
    told = arrivals.close()
    assert len(told) == 10 and "again and again" in told[-1]


def test_what_is_gone_again_is_nobodys_concern(arrivals, tmp_path, monkeypatch):
    (tmp_path / ".bashrc").touch()
    rename = os.rename

    def too_late(*paths, **more):
        (tmp_path / ".bashrc").unlink()
        rename(*paths, **more)

    monkeypatch.setattr("os.rename", too_late)
    assert arrivals.close() == []


def test_what_cannot_be_called_something_else_is_told(arrivals, tmp_path, monkeypatch):
    def refuse(*paths, **more):
        raise PermissionError("not permitted")

    (tmp_path / ".bashrc").touch()
    monkeypatch.setattr("os.rename", refuse)
    (told,) = arrivals.close()
    assert "came into being and stays: not permitted" in told


def test_a_workspace_that_is_gone_is_told(tmp_path):
    with pytest.raises(ToolError, match="no command can be run in the jail"):
        Arrivals(tmp_path / "gone")
