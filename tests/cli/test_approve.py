import json

import pytest


def pending(command, run_id):
    _, output, _ = command("show", run_id, "--json")
    return [request["approval_id"] for request in json.loads(output)["pending"]]


@pytest.mark.parametrize("choice", ["once", "session", "always", "deny"])
def test_the_one_question_is_answered(command, keep, choice):
    run_id = keep("asking")
    code, output, complaints = command("approve", run_id[:9], choice)
    longer = choice in ("session", "always")
    assert (code, "holds once: no rule could cover" in complaints) == (0, longer)
    assert output == f"ask: {choice}; holdfast resume {run_id[:12]} carries the run on\n"
    assert pending(command, run_id) == []


def test_of_several_questions_one_is_named(command, keep):
    run_id = keep("asking twice")
    first, second = pending(command, run_id)
    code, _, complaints = command("approve", run_id, "once")
    assert code == 2
    assert f"2 approvals are pending; name the one you answer: {first}, {second}" in complaints
    assert command("approve", run_id, second[4:12], "deny")[0] == 0
    assert pending(command, run_id) == [first]
    code, _, complaints = command("approve", run_id, second, "once")
    assert (code, complaints) == (
        2,
        f"holdfast: approval {second} was answered deny by terminal\n",
    )


def test_a_word_that_could_be_two_questions_is_asked_for_again(command, keep):
    code, _, complaints = command("approve", keep("asking twice"), "apr_", "once")
    assert code == 2
    assert "apr_ could be apr_" in complaints


@pytest.mark.parametrize("words", [(), ("yes",), ("a", "b", "once"), ("once", "apr_1")])
def test_what_is_no_answer_is_one_sentence(command, keep, words):
    code, _, complaints = command("approve", keep("asking"), *words)
    assert code == 2
    assert complaints.startswith("holdfast: an answer is once, session, always or deny")
    assert complaints.count("\n") == 1


def test_what_is_not_asked_cannot_be_answered(command, keep):
    cut = keep("cut off")
    code, _, complaints = command("approve", cut, "once")
    assert (code, complaints) == (
        2,
        f"holdfast: run {cut} has no approval that waits for an answer\n",
    )
    code, _, complaints = command("approve", cut, "apr_1", "once")
    assert (code, complaints) == (2, "holdfast: there is no approval apr_1\n")


def test_while_another_process_owns_the_directory_it_is_named(at_terminal, holdfast, keep):
    run_id = keep("asking")
    owner = at_terminal("run", "hello", "--pace", "0.05").expect("A new")
    refused = holdfast("approve", run_id, "once")
    assert refused.returncode == 75
    assert f"in use by process {owner.pid};".encode() in refused.stderr
