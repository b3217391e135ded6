from pathlib import Path

import pytest

from holdfast.config.places import existing_file, folder, workspace
from holdfast.config.tables import Setting
from holdfast.errors import ConfigError


def refusal(place, value, base):
    with pytest.raises(ConfigError) as caught:
        place(Setting("x", value), base)
    return str(caught.value)


def test_a_relative_path_is_seen_from_its_base(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    assert folder(Setting("x", "new"), tmp_path) == tmp_path / "new"
    assert workspace(Setting("x", "a"), tmp_path) == tmp_path / "a"
    assert existing_file(Setting("x", "b"), tmp_path) == tmp_path / "b"
    assert folder(Setting("x", "/z"), tmp_path) == Path("/z")


def test_a_workspace_has_to_be_there(tmp_path):
    (tmp_path / "b").touch()
    assert refusal(workspace, "a", tmp_path) == (
        "x is a, which is not there; it must be a directory"
    )
    assert refusal(workspace, "b", tmp_path) == "x is b, which is a file; it must be a directory"


def test_a_file_has_to_be_there(tmp_path):
    for name in ("a", "."):
        assert refusal(existing_file, name, tmp_path) == (
            f"x is {name}, which is not there; it must be a file"
        )


@pytest.mark.parametrize("value", ["", " ", 5, [], True])
def test_a_path_is_a_text(value, tmp_path):
    assert refusal(folder, value, tmp_path).endswith("; it must be the path of a directory")
    assert refusal(existing_file, value, tmp_path).endswith("; it must be the path of a file")


def test_what_the_system_refuses_is_passed_on_with_its_reason(tmp_path):
    said = refusal(folder, "y" * 300, tmp_path)
    assert said == f"x is {'y' * 200}…, which cannot be used: File name too long"
    assert "home directory" in refusal(existing_file, "~nobody_at_all/x", tmp_path)
