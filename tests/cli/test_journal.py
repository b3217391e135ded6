import json
import os
import subprocess
import sys

import apsw
import pytest

HOLDFAST = (sys.executable, "-m", "holdfast")


@pytest.fixture
def spoil(data):
    """Change what is stored, as no part of holdfast would."""

    def spoil(statement, *values):
        db = apsw.Connection(str(data / "journal.db"))
        db.execute(statement, values)
        db.close()

    return spoil


def test_what_is_as_it_was_written_is_counted(command, keep):
    assert command("journal", "verify")[:2] == (
        0,
        "0 runs, 0 events: all as they were written\n",
    )
    first, _ = keep(), keep("cut off")
    code, output, complaints = command("journal", "verify")
    assert (code, complaints) == (0, "")
    assert output.startswith("2 runs, ") and output.endswith(": all as they were written\n")
    assert command("journal", "verify", first[:12])[1].startswith("1 run, ")


def test_damage_is_named_run_by_run(command, keep, data):
    first, second, third = keep(), keep(), keep()
    db = apsw.Connection(str(data / "journal.db"))
    for run_id, seq in ((first, 3), (third, 5)):
        db.execute(
            "update event set at = at + 1 where seq = ? and run = (select key from run where id = ?)",
            (seq, run_id),
        )
    db.close()
    code, output, complaints = command("journal", "verify")
    assert (code, output) == (65, "")
    assert complaints.splitlines() == [
        f"holdfast: run {first} is damaged at 3: it does not match its checksum",
        f"holdfast: run {third} is damaged at 5: it does not match its checksum",
        "holdfast: 2 of 3 runs are damaged",
    ]
    assert command("journal", "verify", second)[0] == 0
    assert command("journal", "verify", first)[2].endswith("1 of 1 run is damaged\n")


def test_runs_are_carried_elsewhere(command, keep, tmp_path):
    first, second = keep(), keep("cut off")
    _, lines, _ = command("journal", "export")
    assert [json.loads(line)["run"] for line in lines.splitlines() if '"events"' in line] == [
        first,
        second,
    ]
    (tmp_path / "lines").write_text(lines)
    there = ("--data", str(tmp_path / "there"))
    assert command("journal", "import", str(tmp_path / "lines"), *there) == (
        0,
        "2 runs taken in\n",
        "",
    )
    assert command("journal", "verify", *there)[0] == 0
    assert command("journal", "export", *there)[1] == lines
    assert command("resume", "--pace", "0", *there)[0] == 0


def test_one_run_can_be_exported_alone(command, keep):
    first, second = keep(), keep()
    _, lines, _ = command("journal", "export", second[4:14])
    assert first not in lines
    assert json.loads(lines.splitlines()[0])["run"] == second


def test_secrets_do_not_leave(command, keep, monkeypatch, tmp_path):
    keep(prompt="use sk-very-secret, please")
    # It was no secret then, or it would not be on record.
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    _, lines, _ = command("journal", "export")
    assert "sk-very-secret" not in lines
    assert json.loads(lines.splitlines()[0])["masked"] == [1]
    (tmp_path / "lines").write_text(lines)
    there = ("--data", str(tmp_path / "there"))
    assert command("journal", "import", str(tmp_path / "lines"), *there)[0] == 0
    assert "use [masked], please" in command("runs", *there)[1]
    assert command("journal", "verify", *there)[0] == 0


def test_what_is_here_already_or_damaged_is_refused_and_the_rest_taken(
    command, keep, tmp_path, holdfast
):
    first, second, third = keep(), keep(), keep()
    there = ("--data", str(tmp_path / "there"))
    lines = command("journal", "export", first)[1]
    assert holdfast("journal", "import", "-", *there, input=lines.encode()).returncode == 0
    lines = command("journal", "export")[1].splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if second in line)
    lines[start + 2] = lines[start + 2].replace('"seq":2', '"seq":3')
    done = holdfast("journal", "import", "-", *there, input="".join(lines).encode())
    assert done.returncode == 65
    assert done.stderr.decode().splitlines() == [
        f"holdfast: run {first} is here already; nothing of it was taken",
        f"holdfast: run {second} is damaged at 2: it is missing; nothing of it was taken",
    ]
    assert done.stdout == b"1 run taken in\n"
    done = holdfast("journal", "import", "-", *there, input="".join(lines).encode())
    assert (done.returncode, done.stdout) == (65, b"")
    assert {line.split()[0] for line in command("runs", *there)[1].splitlines()[1:]} == {
        first,
        third,
    }


@pytest.mark.parametrize(
    ("file", "code", "sentence"),
    [
        ("nowhere", 2, "nowhere cannot be read: No such file or directory"),
        (".", 2, ". cannot be read: Is a directory"),
        ("pyproject.toml", 74, "line 1 is not a line of an exported journal"),
    ],
)
def test_what_cannot_be_taken_in_is_one_sentence(command, request, file, code, sentence):
    request.getfixturevalue("monkeypatch").chdir(request.config.rootpath)
    said = command("journal", "import", file)
    assert (said[0], said[1]) == (code, "")
    assert said[2].startswith(f"holdfast: {sentence}")


def test_nothing_is_taken_from_nothing(command, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert command("journal", "import", "-")[:2] == (0, "0 runs taken in\n")
    sys.stdin.close()


def test_its_help_lists_what_can_be_done(command):
    output = command("journal", "--help")[1]
    for word in ("verify", "export", "import"):
        assert word in output
    assert "65   what is stored is damaged" in command("journal", "verify", "--help")[1]


def test_damage_of_the_file_hides_no_damage_of_runs(command, keep, spoil):
    first, second = keep(), keep()
    spoil("update event set at = x'00' where seq = 3 and run = 2")
    spoil("delete from run where key = 1")
    code, output, complaints = command("journal", "verify")
    assert (code, output) == (65, "")
    assert complaints.splitlines() == [
        f"holdfast: run {second} is damaged at 3: its time is gone",
        "holdfast: the file is damaged: a row of event has lost its run",
        "holdfast: 1 of 1 run is damaged",
    ]
    assert first not in complaints


@pytest.mark.parametrize(
    "statement",
    [
        "update event set at = x'00' where seq = {seq}",
        "update event set body = null, long = null where seq = {seq}",
        "update event set body = x'00' where seq = {seq}",
        "delete from event where seq = {seq}",
        "update run set place = 'hemd'",
        "delete from run",
        "pragma user_version = 0",
    ],
)
@pytest.mark.parametrize("seq", [1, 2, 3])
def test_whatever_the_damage_it_is_told_in_sentences(command, keep, spoil, statement, seq):
    run_id = keep("cut off")
    spoil(statement.format(seq=seq))
    assert command("journal", "verify")[0] == 65
    for words in (("runs",), ("runs", "--json"), ("show", run_id), ("journal", "export")):
        code, _, complaints = command(*words)
        assert code in (0, 2, 65), complaints


def test_a_journal_that_is_gone_is_not_as_it_was_written(command, keep, data):
    keep()
    (data / "journal.db").unlink()
    for words in (("journal", "verify"), ("runs",)):
        code, output, complaints = command(*words)
        assert (code, output) == (65, "")
        assert f"{data / 'journal.db'} is gone" in complaints


def test_export_goes_on_behind_a_run_that_is_damaged(command, keep, spoil):
    first, second = keep(), keep()
    spoil("update event set body = null, long = null where seq = 3 and run = 1")
    code, output, complaints = command("journal", "export")
    assert code == 65
    assert [json.loads(line)["run"] for line in output.splitlines() if '"events"' in line] == [
        second
    ]
    assert complaints == (
        f"holdfast: run {first} is damaged at 3: its body is gone; nothing of it was written\n"
    )


@pytest.mark.parametrize(
    "words", [("show", b"\xff"), ("tail", b"\xff"), ("journal", "verify", b"\xff")]
)
def test_a_word_that_is_no_text_names_no_run(holdfast, keep, words):
    keep()
    done = holdfast(*words)
    assert done.returncode == 2
    what = b"run or session" if "show" in words else b"run"
    assert done.stderr == b"holdfast: there is no %b \\udcff\n" % what


def test_a_directory_whose_name_is_no_text_is_a_sentence(holdfast, tmp_path):
    where = os.fsencode(tmp_path) + b"/\xff"
    for words, code in ((("run", "hi", "--pace", "0"), 78), (("runs",), 74)):
        done = holdfast(*words, "--data", where)
        assert (done.returncode, done.stderr.count(b"\n")) == (code, 1)
        assert b"its name is not UTF-8" in done.stderr


def test_trouble_with_the_directory_is_not_blamed_on_anything_else(keep, data, tmp_path):
    keep()
    (tmp_path / "lines").write_bytes(b"")
    powerless = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", *HOLDFAST)
    for words, code in ((("runs",), 74), (("journal", "import", str(tmp_path / "lines")), 78)):
        data.chmod(0)
        done = subprocess.run([*powerless, *words], capture_output=True, check=False)
        data.chmod(0o700)
        assert (done.returncode, done.stderr.count(b"\n")) == (code, 1)
        assert done.stderr.startswith(b"holdfast: ") and b"Permission denied" in done.stderr
        assert os.fsencode(data) in done.stderr
