import json

import apsw
import pytest


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
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    keep(prompt="use sk-very-secret, please")
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


def test_its_help_lists_what_can_be_done(command):
    output = command("journal", "--help")[1]
    for word in ("verify", "export", "import"):
        assert word in output
    assert "65   what is stored is damaged" in command("journal", "verify", "--help")[1]
