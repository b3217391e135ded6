import json
import re
import signal

import pytest

PROMPT = "or deny? [deny]"


def test_where_every_run_has_ended_it_says_so(command, keep):
    sentence = "there is nothing to resume: every run has ended\n"
    assert command("resume") == (0, "", sentence)
    run_id = keep()
    assert command("resume") == (0, "", sentence)
    code, _, complaints = command("resume", run_id)
    assert (code, complaints) == (2, f"holdfast: run {run_id[:12]} has already ended\n")


@pytest.mark.parametrize("word", ["A new", "You said", "First I look", "I would like"])
def test_a_run_that_was_killed_is_shown_and_completed(at_terminal, word):
    killed = at_terminal("run", "buy milk", "--pace", "0.01").expect(word).send(signal.SIGKILL)
    assert killed.end() == -signal.SIGKILL
    terminal = at_terminal("resume", "--pace", "0.001").expect("> buy milk").expect(PROMPT)
    assert "the process that carried the run is gone" in terminal.seen
    terminal.type("once\n")
    assert terminal.end() == 0
    assert "✓ keep_note: kept; there is 1 note now" in terminal.seen
    # What is on record is shown once, and what was under way is taken back in plain sight.
    assert terminal.seen.count("✓ look_around") == 1


def test_a_run_that_was_killed_at_its_question_asks_it_again(at_terminal):
    at_terminal("run", "hello", "--pace", "0").expect(PROMPT).send(signal.SIGKILL).end()
    terminal = at_terminal("resume", "--pace", "0").expect(PROMPT).type("session\n")
    assert terminal.end() == 0
    assert terminal.seen.count("keep_note needs your approval") == 1
    assert "✓ keep_note" in terminal.seen


def test_a_run_that_was_left_by_ctrl_c_twice_says_how_to_end_it(at_terminal, command):
    arguments = ("run", "hello", "--approval", "deny", "--pace", "0.05")
    terminal = at_terminal(*arguments).expect("A new")
    terminal.send(signal.SIGSTOP).send(signal.SIGINT).send(signal.SIGTERM).send(signal.SIGCONT)
    assert terminal.end() in (130, 143)
    assert "left; holdfast resume run_" in terminal.seen
    code, _, _ = command("resume", "--pace", "0")
    assert code in (0, 130)
    assert command("resume")[2] == "there is nothing to resume: every run has ended\n"


def test_several_are_carried_on_one_after_the_other(command, keep):
    first, second = keep("cut off", "one"), keep("cut off", "two")
    code, output, _ = command("resume", "--json", "--pace", "0")
    runs = [json.loads(line)["run"] for line in output.splitlines()]
    assert code == 0
    assert runs == sorted(runs, key=[first, second].index)
    assert min(runs.count(first), runs.count(second)) > 10


def test_one_is_carried_on_and_the_others_left_as_they_are(command, keep):
    first, second = keep("cut off", "one"), keep("cut off", "two")
    assert command("resume", second, "--pace", "0")[0] == 0
    _, output, _ = command("runs", "--json")
    runs = map(json.loads, output.splitlines())
    stands = {run["run"]: (run["status"], run["interrupted"]) for run in runs}
    assert stands == {first: ("running", True), second: ("completed", False)}


def test_where_nobody_can_be_asked_a_run_that_waits_is_left_waiting(command, keep):
    asking, cut = keep("asking"), keep("cut off")
    code, output, complaints = command("resume", "--pace", "0")
    assert code == 3
    assert f"! left waiting; holdfast show {asking[:12]} says for what" in complaints
    assert "That was all I can show" in output or "I have no tools" in output
    _, output, _ = command("runs", "--json")
    assert [json.loads(line)["status"] for line in output.splitlines()] == [
        "completed",
        "waiting_for_approval",
    ]
    assert cut != asking


def test_a_tool_that_is_not_here_is_not_waited_for(command, keep):
    run_id = keep("asking")
    assert command("approve", run_id, "once")[0] == 0
    code, _, complaints = command("resume", run_id)
    assert code == 3
    assert "! the tool ask is not here; waiting for it" in complaints


def test_ctrl_c_stops_the_run_at_hand_and_leaves_the_others(at_terminal, keep, command):
    keep("cut off", "one")
    second = keep("cut off", "two")
    terminal = at_terminal("resume", "--pace", "0.05").expect("> one").expect("There is nothing")
    assert terminal.type("\x03").end() == 130
    assert "stopped; cut off" in terminal.seen
    assert "> two" not in terminal.seen
    assert command("resume", "--pace", "0", "--json")[1].count(second) > 5


def test_a_pace_that_is_none_is_a_mistake(command):
    code, _, complaints = command("resume", "--pace", "nan")
    assert (code, complaints.startswith("holdfast: --pace is nan")) == (2, True)


def test_a_run_of_another_workspace_is_left_and_says_which_it_is(at_terminal, command, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        lines = f'workspace = "{name}"\ndata = "data"\n[tools]\njail = "off"\n'
        (tmp_path / f"{name}.toml").write_text(lines)
    here, there = (str(tmp_path / f"{name}.toml") for name in ("here", "there"))
    first = at_terminal("run", "$ touch made", "--pace", "0", "--config", here)
    first.expect("Allow it:").send(9).end()
    second = at_terminal("resume", "--pace", "0", "--config", there)
    second.expect("Allow it:").type("once\n")
    assert second.end() == 3
    run_id = re.search(r"holdfast show (\S+)", second.seen)[1]
    _, shown, _ = command("show", run_id, "--data", str(tmp_path / "data"))
    assert f"the run works in {tmp_path / 'here'}" in shown
    assert list((tmp_path / "there").iterdir()) == []


def test_what_comes_first_in_a_session_is_taken_up_first(command, talk):
    first = talk("cut off", "sun?", more=["rain?"])
    second = json.loads(command("runs", "--json", "--limit", "1")[1])["run"]
    assert second != first
    code, output, _ = command("resume", second, "--pace", "0")
    assert code == 0
    assert output.index("sun?") < output.index("rain?")
    assert "nothing to resume" in command("resume")[2]
