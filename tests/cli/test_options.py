import pytest

from holdfast.cli import _COMMANDS


@pytest.mark.parametrize("name", [name for name in _COMMANDS if name != "journal"])
def test_every_command_has_a_help_that_teaches(command, name):
    code, output, _ = command(name, "--help")
    assert code == 0
    assert output.startswith(f"Usage: holdfast {name}")
    for part in (
        "Examples:",
        f"  holdfast {name}",
        "Exit codes:",
        "--config" if name == "models" else "--data",
        # A doctor has no other news than good or bad.
        "1    something is" if name == "doctor" else "75   another process",
    ):
        assert part in output


@pytest.mark.parametrize("name", ["runs", "journal verify", "resume"])
def test_a_setting_that_is_wrong_is_named(command, name, tmp_path):
    (tmp_path / "file").touch()
    code, output, complaints = command(*name.split(), "--data", str(tmp_path / "file"))
    assert (code, output) == (78, "")
    assert complaints.startswith("holdfast: --data is ")
    assert complaints.endswith("which is a file; it must be a directory\n")
