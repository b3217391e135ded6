import json
import re


def test_a_run_that_ended_is_shown_from_beginning_to_end(command, keep):
    run_id = keep(prompt="what now?")
    code, output, complaints = command("show", run_id[4:12])
    assert (code, complaints) == (0, "")
    assert output.startswith(f"{run_id} · ")
    for part in ("> what now?", "→ pay", "✓ pay: ok", "Done, and paid.", "completed · 2 replies"):
        assert part in output
    assert "tokens in" in output


def test_a_run_that_was_cut_off_says_how_to_take_it_up(command, keep):
    run_id = keep("cut off")
    _, output, _ = command("show", run_id)
    assert "Once upon" in output
    assert f"interrupted; holdfast resume {run_id[:12]} takes it up" in output


def test_a_question_is_shown_with_how_to_answer_it(command, keep):
    run_id = keep("asking")
    _, output, _ = command("show", run_id)
    assert "ask waits for an approval" in output
    assert '? ask needs your approval\n  Why: it asks\n  │ {"sum":5}\n' in output
    answer = rf"Answer: holdfast approve {run_id[:12]} apr_\w{{8}} once\|deny"
    assert re.search(answer, output)
    assert "interrupted" not in output


def test_two_questions_are_told_apart_by_their_ids(command, keep):
    _, output, _ = command("show", keep("asking twice"))
    assert output.count(" apr_") == 2


def test_what_a_model_took_back_is_left_out(command, keep, holdfast):
    run_id = keep("cut off")
    assert holdfast("resume", run_id, "--pace", "0").returncode == 0
    _, output, _ = command("show", run_id)
    assert "Once upon" not in output
    assert "connection lost" not in output
    assert "the process that carried the run is gone" in output


def test_json_is_one_object(command, keep):
    run_id = keep("asking")
    _, output, _ = command("show", run_id, "--json")
    told = json.loads(output)
    assert (told["run"], told["status"], told["turns"]) == (run_id, "waiting_for_approval", 1)
    assert told["pending"][0]["tool"] == "ask"
    assert [message["role"] for message in told["messages"]] == ["user", "assistant"]
    assert told["waiting_for"]["waiting_for"] == "approval"
    _, output, _ = command("show", keep("cut off"), "--json")
    assert json.loads(output)["partial"] == "Once upon "


def test_harmful_characters_are_shown_and_not_obeyed(command, keep):
    run_id = keep(prompt="a\x1b]0;owned\x07", script=[["b\x1b[2Jc"]])
    _, output, _ = command("show", run_id)
    assert "a\\x1b]0;owned\\x07" in output
    assert "b\\x1b[2Jc" in output
    assert "\x1b" not in output


def test_a_run_that_is_not_there_is_a_sentence(command):
    assert command("show", "nothing") == (2, "", "holdfast: there is no run or session nothing\n")
    code, _, complaints = command("show")
    assert code == 2
    assert complaints.count("\n") == 1
