import shutil
import stat


def test_a_copy_is_made_beside_a_live_owner_and_restored_by_putting_it_in_place(
    at_terminal, holdfast, tmp_path
):
    owner = at_terminal("run", "hello", "--pace", "0.05").expect("A new")
    copy = tmp_path / "copy.db"
    done = holdfast("backup", str(copy))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == f"1 run copied to {copy}\n".encode()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    restored = tmp_path / "restored"
    restored.mkdir(mode=0o700)
    shutil.copy(copy, restored / "journal.db")
    assert holdfast("journal", "verify", "--data", str(restored)).returncode == 0
    resumed = holdfast("resume", "--pace", "0", "--data", str(restored), "--json")
    assert b"connection" not in resumed.stderr
    assert resumed.returncode == 3
    assert owner.type("\x03").end() == 130


def test_a_file_is_replaced_only_when_told_to(command, keep, tmp_path):
    keep()
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    code, _, complaints = command("backup", str(copy))
    assert (code, copy.read_text()) == (2, "precious")
    assert complaints == f"holdfast: {copy} is there already; --force replaces it\n"
    assert command("backup", str(copy), "--force")[0] == 0
    assert copy.read_bytes().startswith(b"SQLite")


def test_before_there_is_a_run_there_is_nothing_to_copy(command, tmp_path):
    code, _, complaints = command("backup", str(tmp_path / "copy.db"))
    assert (code, complaints) == (74, "holdfast: there is no journal to back up yet\n")
    assert not (tmp_path / "copy.db").exists()
