import os
import shlex
import shutil
import stat
import subprocess
import sys
from contextlib import suppress

import apsw
import pytest

from tests.cli.conftest import HOLDFAST, PATIENCE


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


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "owner"])
def test_the_journal_is_not_replaced_by_its_copy(command, keep, data, name):
    keep("cut off")
    before = command("runs", "--json")
    code, _, complaints = command("backup", "--force", str(data / name))
    assert code == 2
    assert (
        complaints
        == f"holdfast: {data / name} is in the data directory; write the copy elsewhere\n"
    )
    assert command("runs", "--json") == before


def test_what_is_no_file_to_write_is_a_sentence(command, keep, tmp_path):
    keep()
    (tmp_path / "file").touch()
    for target, code in (("/", 2), (str(tmp_path / "file" / "x"), 74), (str(tmp_path), 74)):
        done = command("backup", "--force", target)
        assert (done[0], done[1]) == (code, "")
        assert done[2].startswith(f"holdfast: {target} ") and done[2].count("\n") == 1


def test_a_copy_for_which_there_is_no_space_is_said_to_have_none(keep, tmp_path):
    keep()
    # Where nothing may be mounted, files may not grow instead.
    backup = shlex.join([*HOLDFAST, "backup", str(tmp_path / "copy.db")])
    command = ["sh", "-c", f"ulimit -f 8; exec {backup}"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, text=True, check=False)
    assert done.returncode == 74
    assert done.stderr.endswith("copy.db cannot be written: No space left on device\n")
    assert not list(tmp_path.glob("*copy*")) + list(tmp_path.glob(".holdfast-*"))


def test_a_name_that_is_no_text_will_do(holdfast, keep, tmp_path):
    keep()
    done = holdfast("backup", os.fsencode(tmp_path) + b"/\xff")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_copy_that_is_cut_off_leaves_nothing(keep, data, tmp_path):
    keep()
    db = apsw.Connection(str(data / "journal.db"))
    for n in range(20):
        db.execute("insert into blob (sha256, body) values (?, zeroblob(5000000))", (str(n),))
    db.close()
    out = tmp_path / "out"
    out.mkdir()
    words = [sys.executable, "-m", "holdfast", "backup", str(out / "copy.db")]
    with subprocess.Popen(words) as process:
        while process.poll() is None and not any(out.iterdir()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.001)
        process.terminate()
    assert process.returncode == 143
    assert list(out.iterdir()) == []
