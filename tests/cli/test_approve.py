import json

import pytest
from msgspec.structs import replace

from holdfast.cli.approve import _settle
from holdfast.core.events import ApprovalRequested
from holdfast.errors import ApprovalChanged, ApprovalSettled
from holdfast.ports import Review
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.stage import stage


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
    assert (
        "? ask needs your approval\n  Why: it asks\n  │ " in complaints
        and '{"sum":5}' in complaints
    )
    assert pending(command, run_id) == []


def test_whoever_names_no_approval_sees_at_a_terminal_what_they_answer(command, at_terminal, keep):
    run_id = keep("asking")
    (approval,) = pending(command, run_id)
    unsure = at_terminal("approve", run_id, "once").expect("Answer it with once? [no] ").type("\n")
    assert unsure.end() == 2
    assert pending(command, run_id) == [approval]
    sure = at_terminal("approve", run_id, "once").expect('{"sum":5}').expect("[no] ").type("y\n")
    assert sure.expect("ask: once").end() == 0
    assert pending(command, run_id) == []


def test_whoever_names_the_approval_or_says_no_is_not_asked_again(command, at_terminal, keep):
    run_id = keep("asking twice")
    first, _ = pending(command, run_id)
    assert at_terminal("approve", run_id, first, "once").expect("ask: once").end() == 0
    assert at_terminal("approve", run_id, "deny").expect("ask: deny").end() == 0


async def test_what_was_shown_is_answered_and_not_what_came_since():
    """The run goes on between the look and the answer, and asks another thing."""
    pay = ScriptedTool(review=lambda arguments: Review(gate="ask", subject=arguments))
    model = ScriptedModel([Call("pay", '{"to":"ada"}')], [Call("pay", '{"to":"eve"}')], ["Done."])
    async with stage(model, pay) as play:
        run_id = await play.start(approval_timeout=60.0)

        class Late:
            async def state(self, run_id):
                first = await play.until(run_id, ApprovalRequested)
                state = await play.runs.state(run_id)
                await play.until(run_id, ApprovalRequested, after=first.seq)
                return state

            def answer(self, *given, **named):
                return play.runs.answer(*given, **named)

        with pytest.raises(ApprovalSettled, match="has expired"):
            await _settle(Late(), run_id, "", "always")
        await play.ended(run_id)
    assert pay.effects == []


async def test_whoever_was_shown_another_thing_has_not_answered_this_one():
    async with stage(
        ScriptedModel([Call("pay")], ["Done."]), ScriptedTool(review=Review(gate="ask"))
    ) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)

        class Mistaken:
            answer = play.runs.answer

            async def state(self, run_id):
                state = await play.runs.state(run_id)
                (one,) = state.pending
                other = replace(one, request=replace(one.request, digest="0" * 64))
                return replace(state, pending=(other,))

        with pytest.raises(ApprovalChanged):
            await _settle(Mistaken(), run_id, "", "once")
        await play.runs.stop(run_id)
        await play.ended(run_id)


def test_of_several_questions_one_is_named(command, keep):
    run_id = keep("asking twice")
    first, second = pending(command, run_id)
    code, _, complaints = command("approve", run_id, "once")
    assert code == 2
    assert f"2 approvals are pending; name the one you answer: {first}, {second}" in complaints
    assert f'  │ {{"sum":5}}\n  This is {first}\n' in complaints
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
