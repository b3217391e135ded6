import json

import pytest

from tests.cli.test_sessions import listed

SECRET = "sk-a-very-secret-key"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Have commands use another data directory from now on."""

    def go(name="elsewhere"):
        monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / name))

    return go


def test_a_conversation_is_carried_elsewhere(command, talk, tmp_path, elsewhere):
    talk()
    file = tmp_path / "garden.json"
    code, output, complaints = command("sessions", "export", "aa1", "-o", str(file))
    assert (code, output, complaints) == (0, "", f"written to {file}\n")
    page = command("show", "aa1")[1]
    elsewhere()
    assert command("sessions", "import", str(file)) == (
        0,
        "session ses_aa1 taken in, with 1 run\n",
        "",
    )
    assert command("show", "aa1")[1] == page
    assert command("sessions", "export", "aa1")[1].encode() == file.read_bytes()
    assert command("journal", "verify")[0] == 0


def test_what_is_here_already_is_taken_in_under_other_ids_if_at_all(command, talk, tmp_path):
    talk()
    file = tmp_path / "garden.json"
    command("sessions", "export", "aa1", "-o", str(file))
    code, _, complaints = command("sessions", "import", str(file))
    assert (code, complaints) == (
        2,
        "holdfast: session ses_aa1 already exists; --as-new takes it in under other ids\n",
    )
    assert command("sessions", "import", "--as-new", str(file))[0] == 0
    assert len(listed(command)) == 2


def test_what_had_not_ended_is_not_carried_on(command, talk, tmp_path, elsewhere):
    talk("cut off", more=["rain?"])
    file = tmp_path / "garden.json"
    command("sessions", "export", "aa1", "-o", str(file))
    elsewhere()
    assert command("sessions", "import", str(file))[0] == 0
    (row,) = listed(command)
    assert (row["status"], row["runs"], row["queued"]) == ("idle", 2, 0)
    assert "it had not ended where it came from" in command("show", "aa1")[1]
    assert "nothing to resume" in command("resume")[2]


def test_a_page_is_for_people(command, talk):
    talk()
    _, output, _ = command("sessions", "export", "aa1", "--format", "md")
    assert output.startswith("# shade?\n\n## Person\n\n> shade?\n\n## Assistant\n\n> Ferns.\n")


def test_secrets_do_not_leave(command, talk, monkeypatch):
    talk(text=f"my key is {SECRET}")
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    for format in ("json", "md"):
        _, output, _ = command("sessions", "export", "aa1", "--format", format)
        assert SECRET not in output
        assert "masked" in output


def test_a_file_that_is_there_is_left_as_it_is(command, talk, tmp_path):
    talk()
    file = tmp_path / "garden.json"
    file.write_text("mine")
    code, _, complaints = command("sessions", "export", "aa1", "-o", str(file))
    assert (code, complaints) == (2, f"holdfast: {file} is there already, and is left as it is\n")
    assert file.read_text() == "mine"
    assert command("sessions", "export", "aa1", "-o", str(tmp_path / "no" / "x"))[0] == 2


def test_what_is_no_session_is_refused_and_nothing_taken(command, talk, tmp_path):
    talk()
    file = tmp_path / "odd.json"
    document = json.loads(command("sessions", "export", "aa1")[1])
    document["runs"][0]["events"].pop(1)
    for text in ("", "{}", json.dumps(document)):
        file.write_text(text)
        code, output, complaints = command("sessions", "import", str(file))
        assert (code, output, complaints.count("\n")) == (2, "", 1)
    assert "run_" in complaints
    assert "is damaged at 2: it is missing" in complaints
    code, _, complaints = command("sessions", "import", str(tmp_path / "nothing"))
    assert "cannot be read: No such file" in complaints
    assert len(listed(command)) == 1


@pytest.mark.real_time
def test_a_session_may_come_through_a_pipe(holdfast, talk, command, elsewhere):
    talk()
    document = command("sessions", "export", "aa1")[1].encode()
    elsewhere()
    done = holdfast("sessions", "import", "-", input=document)
    assert (done.returncode, done.stdout) == (0, b"session ses_aa1 taken in, with 1 run\n")


@pytest.mark.real_time
def test_at_a_terminal_nothing_that_leaves_is_obeyed(at_terminal, talk):
    talk(text="a\x1b[2Jb")
    for format in ("json", "md"):
        terminal = at_terminal("sessions", "export", "aa1", "--format", format)
        assert terminal.end() == 0
        assert "\x1b[2J" not in terminal.raw
