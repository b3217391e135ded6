import io
import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from holdfast.app import open_app
from holdfast.cli import main
from holdfast.core.session import SessionCreated

PROMPT = "or deny? [deny]"


def test_a_run_is_streamed_approved_and_completed(at_terminal):
    terminal = at_terminal("run", "buy milk", "--pace", "0.001")
    terminal.expect("You said: “buy milk”").expect("keep_note needs your approval").expect(PROMPT)
    assert "│ buy milk" in terminal.seen
    terminal.type("once\n")
    assert terminal.end() == 0
    assert "✓ keep_note: kept; there is 1 note now" in terminal.seen
    assert terminal.mode_now == terminal.mode


def test_words_come_one_by_one_and_thoughts_are_dim(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0.05").expect("A new")
    assert "conversation" not in terminal.seen
    terminal.expect("conversation.")
    assert "\x1b[2;3mconversation. \x1b[0m" in terminal.raw


@pytest.mark.parametrize("answer", ["\n", "\x04", "\x1b", "d\n", "no\n"])
def test_enter_end_of_input_escape_and_no_are_a_no(at_terminal, answer):
    terminal = at_terminal("run", "hello", "--pace", "0").expect(PROMPT).type(answer)
    assert terminal.end() == 0
    assert "✗ keep_note, denied" in terminal.seen


def test_an_answer_that_is_none_is_asked_for_again(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0").expect(PROMPT).type("yes\n")
    terminal.expect("“yes” is none of the answers").type("session\n")
    assert terminal.end() == 0
    assert "✓ keep_note" in terminal.seen


def test_what_was_typed_before_the_question_does_not_answer_it(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0.003").expect("A new").type("always\n")
    terminal.expect(PROMPT).type("\n")
    assert terminal.end() == 0
    assert "✗ keep_note, denied" in terminal.seen


def test_ctrl_c_while_it_speaks_stops_and_says_what_was_cut_off(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0.05").expect("A new").type("\x03")
    assert terminal.end() == 130
    assert "stopped; cut off: a model call, which may still be billed" in terminal.seen
    assert "Traceback" not in terminal.seen


def test_ctrl_c_at_the_question_stops_and_nothing_starts(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0").expect(PROMPT).type("\x03")
    assert terminal.end() == 130
    assert "✗ keep_note, not started" in terminal.seen
    assert "stopped; nothing was cut off" in terminal.seen
    assert terminal.seen.count(PROMPT) == 1
    assert terminal.mode_now == terminal.mode


def test_sigterm_stops_as_ctrl_c_does(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0.05").expect("A new").send(signal.SIGTERM)
    assert terminal.end() == 143
    assert "stopped; cut off: a model call" in terminal.seen


def test_a_second_ctrl_c_leaves_at_once_even_when_everything_is_stuck():
    """Nobody reads the output, and it is too long for the pipe."""
    stuck = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with stuck:
        stuck.stdin.write(b"x" * 500_000)
        stuck.stdin.close()
        stuck.stdout.read(1)
        signals = 0
        while stuck.poll() is None:
            stuck.send_signal(signal.SIGINT)
            signals += 1
            with suppress(subprocess.TimeoutExpired):
                stuck.wait(0.05)
    assert stuck.returncode == 130
    assert signals >= 2


def test_a_long_wait_says_what_for_and_goes_away(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "2.2")
    terminal.expect("waiting for the next word of demo · 2 of 120 s, then try again")
    terminal.expect("A ").expect("\x1b[2K")
    terminal.type("\x03")
    assert terminal.end() == 130


def test_json_lines_are_the_events_as_recorded(holdfast):
    done = holdfast("run", "hello", "--json", "--pace", "0")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(isinstance(line["at"], float) for line in lines)
    assert lines[0]["event"]["type"] == "run.accepted"
    assert lines[0]["event"]["approval"] == "deny"
    assert lines[-1]["event"]["type"] == "run.completed"
    assert done.stderr == b""


def test_json_at_a_terminal_asks_nothing(at_terminal):
    terminal = at_terminal("run", "hello", "--json", "--pace", "0")
    assert terminal.end() == 0
    assert PROMPT not in terminal.seen
    assert all(json.loads(line) for line in terminal.seen.splitlines())


def test_json_asks_beside_the_output_when_told_to(at_terminal, tmp_path):
    with (tmp_path / "events").open("w+") as events:
        arguments = ("run", "hello", "--json", "--approval", "ask", "--pace", "0")
        terminal = at_terminal(*arguments, stdout=events)
        assert terminal.expect(PROMPT).type("once\n").end() == 0
        events.seek(0)
        types = [json.loads(line)["event"]["type"] for line in events]
    assert types.count("approval.answered") == 1
    assert types[-1] == "run.completed"


def test_output_that_is_no_terminal_holds_the_words_and_no_escapes(holdfast):
    done = holdfast("run", "hello", "--pace", "0")
    assert done.returncode == 0
    assert done.stdout.startswith("You said: “hello”".encode())
    assert b"keep_note says" not in done.stdout
    assert b"There is nobody here to ask" in done.stdout
    assert "✗ keep_note, refused".encode() in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_only_the_words_are_piped_on_while_the_question_is_at_the_terminal(at_terminal, tmp_path):
    with (tmp_path / "words").open("w+") as words:
        terminal = at_terminal("run", "hello", "--pace", "0", stdout=words)
        assert terminal.expect(PROMPT).type("once\n").end() == 0
        words.seek(0)
        text = words.read()
    assert "keep_note says: kept" in text
    assert "→" not in text


def test_no_color_means_no_colour(at_terminal):
    terminal = at_terminal("run", "hello", "--pace", "0", "--approval", "deny", env=["NO_COLOR=1"])
    assert terminal.end() == 0
    colours = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
    assert "✓ look_around" in terminal.seen
    assert not colours.search(terminal.raw)


def test_harmful_characters_are_shown_and_not_obeyed(at_terminal):
    terminal = at_terminal("run", "a\x1b]0;owned\x07\u202eb", "--pace", "0").expect(PROMPT)
    assert "│ a\\x1b]0;owned\\x07\\u202eb" in terminal.seen
    assert "\x1b]0" not in terminal.raw
    assert "\u202e" not in terminal.raw
    terminal.type("\n")
    assert terminal.end() == 0


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_can_come_from_standard_input(holdfast, arguments):
    done = holdfast("run", *arguments, "--pace", "0", input=b"from a pipe\n")
    assert "“from a pipe”".encode() in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "piped", "sentence"),
    [
        (["run"], b"", "the prompt is empty; say what to do"),
        (["run", " "], b"", "the prompt is empty; say what to do"),
        (["run", "-"], b"\xff", "standard input is not text in UTF-8"),
        (["run", "hi", "--pace", "nan"], b"", "--pace is nan; it must be between"),
        (["run", "hi", "--approval", "ask"], b"", "--approval ask needs a terminal to ask at"),
        (["run", "\udcff"], b"", "the text holds half a character"),
    ],
)
def test_what_cannot_be_started_is_one_sentence(capsys, monkeypatch, arguments, piped, sentence):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert said.err.startswith(f"holdfast: {sentence}")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_no_prompt_at_a_terminal_does_not_wait_for_one(at_terminal):
    terminal = at_terminal("run")
    assert terminal.end() == 2
    assert "the prompt is empty" in terminal.seen


def test_standard_input_that_is_closed_is_empty(capsys, monkeypatch):
    for arguments in (["run"], ["run", "-"]):
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        sys.stdin.close()
        assert "the prompt is empty" in capsys.readouterr().err


def test_output_that_is_closed_is_no_trouble():
    command = f"exec {sys.executable} -m holdfast run hello --pace 0 <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False, timeout=10).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_that_cannot_be_written_is_said_in_a_sentence(form):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "run", "hello", "--pace", "0", *form],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=10,
        )
    assert done.returncode == 74
    assert b"the output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_ends_it_quietly():
    command = (
        f"{sys.executable} -m holdfast run hello --pace 0.001 | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        check=False,
        capture_output=True,
        timeout=10,
        stdin=subprocess.DEVNULL,
    )
    first, code = done.stdout.decode().splitlines()
    assert (first, code) == ("You said: “hello”", "141")
    assert b"Traceback" not in done.stderr
    assert b"Error" not in done.stderr


def test_a_prompt_that_begins_with_a_hyphen_is_told_where_to_go(holdfast):
    done = holdfast("run", "-5 + 3 = ?")
    assert done.returncode == 2
    assert b"goes after --" in done.stderr


def test_without_a_jail_the_person_at_the_terminal_is_told_and_asked(at_terminal, tmp_path):
    config = tmp_path / "holdfast.toml"
    config.write_text('[tools]\njail = "off"\n')
    arguments = ("run", "$ touch made", "--pace", "0", "--config", str(config))
    terminal = at_terminal(*arguments, columns=200)
    terminal.expect("! there is no jail here (tools.jail is off): you are asked about each")
    terminal.expect(PROMPT)
    assert f"│ directory: {tmp_path}" in terminal.seen
    terminal.type("once\n")
    assert terminal.end() == 0
    assert (tmp_path / "made").exists()


def test_a_command_in_the_jail_shows_what_it_says_as_it_says_it_and_is_ended_by_a_stop(
    at_terminal, tmp_path
):
    (tmp_path / "holdfast.toml").write_text("")
    command = "$ echo begun; sleep 60; touch made"
    config = str(tmp_path / "holdfast.toml")
    terminal = at_terminal("run", command, "--pace", "0", "--config", config)
    terminal.expect("→ terminal echo begun").expect("\r\nbegun\r\n").type("\x03")
    assert terminal.end() == 130
    assert "stopped; cut off: terminal, which may have had effects" in terminal.seen
    assert "and all it started: killed" in terminal.seen
    assert {path.name for path in tmp_path.iterdir()} == {"data", "holdfast.toml"}


@pytest.mark.parametrize("choice", ["session", "always"])
def test_a_standing_answer_at_the_terminal_is_for_longer_than_once(at_terminal, tmp_path, choice):
    data, prompt = str(tmp_path / "data"), "note that, and note it again"
    terminal = at_terminal("run", prompt, "--pace", "0", "--data", data).expect(PROMPT)
    assert terminal.type(f"{choice}\n").end() == 0
    assert f"answered: {choice}" in terminal.seen
    # A run without a session is one of its own, and its journal is where that stands.
    assert (tmp_path / "data" / "rules.toml").exists() == (choice == "always")


def test_where_the_settings_say_deny_nobody_is_asked(at_terminal, tmp_path):
    config = tmp_path / "holdfast.toml"
    config.write_text('[tools]\njail = "off"\napproval = "deny"\n')
    terminal = at_terminal("run", "$ touch made", "--pace", "0", "--config", str(config))
    assert terminal.end() == 0
    assert "needs your approval" not in terminal.seen
    assert not (tmp_path / "made").exists()


# --- in a session


def said(command, session):
    """What people and models said in it, in short."""
    entries = json.loads(command("show", session, "--json")[1])["entries"]
    return [
        entry["parts"][0]["text"] if entry["kind"] == "user" else entry.get("text", "")[:20]
        for entry in entries
        if entry["kind"] in ("user", "assistant")
    ]


def test_a_session_is_begun_and_gone_on_with(command):
    code, _, notes = command("run", "--session", "new", "plan it", "--pace", "0")
    assert code == 0
    begun = re.match(r"session (ses_\w{32}) begins\n", notes)[1]
    code, output, notes = command("run", "--session", begun[4:10], "and then?", "--pace", "0")
    assert (code, "begins" in notes) == (0, False)
    assert "You said: “and then?”" in output
    assert [words for words in said(command, begun) if "?" in words or "plan" in words][:1] == [
        "plan it"
    ]
    assert "session garden begins" in command("run", "--session", "garden", "hi", "--pace", "0")[2]


def test_what_was_left_unfinished_in_a_session_goes_on_first(command, talk):
    first = talk("cut off", "sun?", more=["rain?"])
    code, output, _ = command("run", "--session", "aa1", "snow?", "--pace", "0")
    assert code == 0
    order = ["sun?", "rain?", "snow?"]
    assert [words for words in said(command, "aa1") if words in order] == order
    places = [output.index(f"You said: “{words}”") for words in order]
    assert places == sorted(places)
    assert json.loads(command("show", first, "--json")[1])["status"] == "completed"


def test_a_message_may_interrupt_what_was_left_unfinished(command, talk):
    first = talk("cut off", "sun?")
    code, _, _ = command(
        "run", "--session", "aa1", "snow?", "--on-busy", "interrupt", "--pace", "0"
    )
    assert code == 0
    assert json.loads(command("show", first, "--json")[1])["status"] == "cancelled"
    assert "another message came first" in command("show", "aa1")[1]


def test_a_message_may_be_said_to_what_was_left_unfinished(command, talk):
    talk("cut off", "sun?")
    code, _, _ = command("run", "--session", "aa1", "snow?", "--on-busy", "steer", "--pace", "0")
    assert code == 0
    told = json.loads(command("show", "aa1", "--json")[1])
    assert told["runs"] == 1
    assert [e["steered"] for e in told["entries"] if e.get("steered")] == [True]


def test_a_message_may_be_given_up_instead(command, talk):
    run_id = talk("cut off", "sun?")
    code, _, complaints = command("run", "--session", "aa1", "snow?", "--on-busy", "reject")
    assert code == 2
    assert f"session ses_aa1 is busy with run {run_id}" in complaints
    assert "snow?" not in said(command, "aa1")


def test_what_waits_for_a_person_is_waited_for(command, talk):
    talk("asking", "sun?")
    code, _, notes = command("run", "--session", "aa1", "snow?", "--pace", "0")
    assert code == 3
    assert "left waiting" in notes
    assert said(command, "aa1")[-1] == "snow?"


def test_a_session_may_bring_a_model_and_instructions(command, data):
    async def begin():
        async with open_app(data=data, work=False) as app:
            begun = SessionCreated(instructions="Be brief.", model="demo")
            await app.sessions.create("ses_1", begun)
            await app.sessions.create("ses_2", SessionCreated(model="gone"))

    anyio.run(begin)
    for session in ("ses_1", "ses_2"):
        assert command("run", "--session", session, "hi", "--pace", "0")[0] == 0
    document = json.loads(command("sessions", "export", "ses_1")[1])
    accepted = document["runs"][0]["events"][0]["event"]
    assert accepted["instructions"].endswith("Be brief.")
    assert accepted["models"][0]["name"] == "demo"


def test_an_id_that_no_session_can_have_is_a_sentence(command, data):
    code, _, complaints = command("run", "--session", "a/b", "hi")
    assert (code, complaints) == (2, "holdfast: 'a/b' is no id that a session can have\n")
    assert not data.exists()
