"""Runs that go on from a response, over HTTP and without a socket."""

import pytest

from holdfast.testing.scripted import ScriptedModel, Silence
from tests.server.openai.test_chat_routes import heard
from tests.server.openai.test_response_routes import RESPONSES, respond

RUNS = "/v1/runs"


async def run(served, input="on", headers=(), **fields):
    """How a run was taken in, once it has ended."""
    begun = await served.post(RUNS, {"input": input, **fields}, headers=headers)
    if begun.status == 202:
        await served.get(f"{RUNS}/{begun.json['run_id']}?wait=60")
    return begun


def told_first(model):
    """What the model was told before anything else."""
    return model.requests[-1].instructions


async def test_a_run_goes_on_from_a_response_with_its_words_and_instructions(inside):
    model = ScriptedModel(["one"], ["two"], ["three"])
    async with inside(model) as served:
        first = await respond(served, "a", instructions="Be brief.")
        begun = await run(served, previous_response_id=first["id"])
        assert (heard(model), told_first(model)) == (["a", "one", "on"], "Be brief.")
        assert "x-holdfast-ignored" not in begun.headers
        second = begun.json["run_id"].replace("run_", "resp_")
        more = [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]
        await run(served, more, previous_response_id=second, instructions="Be kind.")
        assert heard(model)[:4] == ["a", "one", "on", "two"]
        assert [one for one in "xy" if one in "".join(heard(model)[4:])] == ["x", "y"]
        assert told_first(model) == "Be kind."


async def test_instructions_stay_however_often_a_run_goes_on(inside):
    model = ScriptedModel(*[["yes"]] * 4)
    async with inside(model) as served:
        last = (await respond(served, "a", instructions="Be brief."))["id"]
        for _ in range(3):
            begun = await run(served, previous_response_id=last)
            assert told_first(model) == "Be brief."
            last = begun.json["run_id"].replace("run_", "resp_")


async def test_a_run_that_goes_on_from_a_response_is_of_its_session_unless_it_names_one(inside):
    model = ScriptedModel(*[[f"{n}"] for n in range(4)])
    async with inside(model) as served:
        first = await respond(served, "a", conversation="s")
        await respond(served, "b", conversation="s")
        same = await run(served, previous_response_id=first["id"])
        assert heard(model) == ["a", "0", "on"]
        other = await run(served, previous_response_id=first["id"], session_id="t")
        assert heard(model) == ["a", "0", "on"]
        for begun, session in ((same, "s"), (other, "t")):
            status = await served.get(f"{RUNS}/{begun.json['run_id']}")
            assert status.json["session_id"] == session


async def test_a_conversation_that_is_given_counts_more_than_a_response(inside):
    model = ScriptedModel(["one"], ["two"])
    async with inside(model) as served:
        first = await respond(served, "a")
        given = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
        await run(served, previous_response_id=first["id"], conversation_history=given)
        assert heard(model) == ["x", "y", "on"]


@pytest.mark.parametrize("id", ["resp_none", "x", "run_1"])
async def test_a_response_that_is_not_there_is_passed_over_and_that_is_told(inside, id):
    model = ScriptedModel(["one"])
    async with inside(model) as served:
        begun = await run(served, previous_response_id=id)
        assert (begun.status, begun.headers["x-holdfast-ignored"]) == (202, "previous_response_id")
        assert heard(model) == ["on"]


async def test_a_response_that_has_not_ended_cannot_be_gone_on_from_yet(inside):
    async with inside(ScriptedModel(["a", Silence()])) as served:
        begun = await respond(served, background=True)
        early = await run(served, previous_response_id=begun["id"])
        assert (early.status, early.error["code"]) == (409, "previous_response_in_progress")


async def test_a_repeat_leads_to_the_same_run_also_when_what_it_went_on_from_is_gone(inside):
    async with inside(ScriptedModel(["one"], ["two"])) as served:
        first, named = await respond(served, "a"), {"Idempotency-Key": "k"}
        before = await run(served, previous_response_id=first["id"], headers=named)
        await served.delete(f"{RESPONSES}/{first['id']}")
        after = await run(served, previous_response_id=first["id"], headers=named)
        assert after.json == {**before.json, "replayed": True}
        assert "x-holdfast-ignored" not in after.headers
