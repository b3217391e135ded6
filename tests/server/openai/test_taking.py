import pytest

from holdfast.core.messages import Text
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.openai.taking import Taken, session_of
from holdfast.server.problems import Problem
from holdfast.server.requests import RunRequest
from holdfast.testing.scripted import ScriptedModel
from tests.server.openai.test_response_routes import RESPONSES, respond


def taken(*, session_id="", replayed=False, **fields):
    run = RunRequest(parts=(Text("hi"),), session_id=session_id)
    return Taken("run_1", OpenAIRequest(run=run, **fields), replayed)


def test_a_client_is_told_which_run_it_is_and_what_became_of_the_request():
    assert taken().headers == {"X-Run-Id": "run_1"}
    assert taken(session_id="s", ignored=("tools", "n"), replayed=True).headers == {
        "X-Run-Id": "run_1",
        "X-Hermes-Session-Id": "s",
        "X-Holdfast-Ignored": "tools, n",
        "Idempotency-Replayed": "true",
    }
    assert taken(session_id="é").headers == {"X-Run-Id": "run_1"}


def test_the_first_header_that_names_a_session_counts():
    every = {"X-Session-Id": "c", "X-OpenWebUI-Chat-Id": "b", "X-Hermes-Session-Id": "a"}
    assert session_of(every) == "a"
    assert session_of({**every, "X-Hermes-Session-Id": ""}) == "b"
    assert session_of({"X-Session-Id": "c"}) == "c"
    assert session_of({}) == ""
    with pytest.raises(Problem) as caught:
        session_of({"X-Session-Id": "a/b"})
    assert caught.value.complaint.param == "X-Session-Id"


async def test_a_repeat_is_answered_as_before_also_when_what_it_went_on_from_is_gone(inside):
    async with inside(ScriptedModel(["one"], ["two"])) as served:
        first = await respond(served, "a")
        asked, named = {"input": "b", "previous_response_id": first["id"]}, {"Idempotency-Key": "k"}
        before = await served.post(RESPONSES, asked, headers=named)
        await served.delete(f"{RESPONSES}/{first['id']}")
        after = await served.post(RESPONSES, asked, headers=named)
        assert (after.status, after.json) == (200, before.json)
