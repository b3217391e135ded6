import pytest

from holdfast.core.messages import Text
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.openai.taking import Taken, session_of
from holdfast.server.problems import Problem
from holdfast.server.requests import RunRequest
from holdfast.testing.scripted import ScriptedModel
from tests.server.openai.test_chat_routes import asking, heard
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
    # As it is written, in the one alphabet or the other.
    assert session_of({"X-Session-Id": "é".encode().decode("latin-1")}) == "é"
    assert session_of({"X-Session-Id": "é"}) == "é"
    assert session_of({"X-Session-Id": ("é" * 256).encode().decode("latin-1")}) == "é" * 256
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


CHAT = "/v1/chat/completions"
OPEN_WEBUI = {"X-OpenWebUI-Chat-Id": "s"}


async def test_a_client_that_always_sends_all_is_told_nothing_it_did_not_send(inside):
    """As when its first message is edited, answered anew, or put to two models at once."""
    model = ScriptedModel(["one"], ["two"], ["three"], ["four"])
    async with inside(model) as served:
        for path, asked in ((CHAT, asking("a")), (RESPONSES, {"input": "a"})):
            for _ in range(2):
                answer = await served.post(path, asked, headers=OPEN_WEBUI)
                assert (answer.status, heard(model)) == (200, ["a"])
        listed = (await served.get("/v1/sessions")).json["data"]
        assert [(one["session_id"], one["runs"]) for one in listed] == [("s", 4)]


async def test_what_a_client_that_always_sends_all_said_is_gone_on_from_alone(inside):
    model = ScriptedModel(["one"], ["two"], ["three"])
    async with inside(model) as served:
        await served.post(RESPONSES, {"input": "a"}, headers=OPEN_WEBUI)
        second = await served.post(RESPONSES, {"input": "b"}, headers=OPEN_WEBUI)
        await respond(served, "c", previous_response_id=second.json["id"])
        assert heard(model) == ["b", "two", "c"]


@pytest.mark.parametrize("name", ["X-Hermes-Session-Id", "X-Session-Id"])
async def test_a_response_is_of_the_session_that_a_header_names(inside, name):
    model = ScriptedModel(*[["yes"]] * 5)
    async with inside(model) as served:
        told = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "a"}]
        first = await served.post(RESPONSES, {"input": told}, headers={name: "s"})
        assert first.headers["x-hermes-session-id"] == "s"
        await served.post(RESPONSES, {"input": "b"}, headers={name: "s"})
        assert (heard(model), model.requests[-1].instructions) == (["a", "yes", "b"], "Be brief.")
        # Who sends more than the newest is taken at its word.
        whole = asking("x", "y", "z")["messages"]
        await served.post(RESPONSES, {"input": whole}, headers={name: "s"})
        assert (heard(model), model.requests[-1].instructions) == (["x", "y", "z"], "")
        # What the body says counts more.
        other = await served.post(
            RESPONSES, {"input": "c", "conversation": "t"}, headers={name: "s"}
        )
        assert other.headers["x-hermes-session-id"] == "t"
        on = {"input": "c", "previous_response_id": first.json["id"]}
        assert (
            "x-hermes-session-id"
            not in (await served.post(RESPONSES, on, headers={name: "s"})).headers
        )


async def test_a_history_that_comes_along_counts_more_than_what_is_known(inside):
    model = ScriptedModel(*[["yes"]] * 4)
    said = [{"role": "system", "content": "Be brief."}, *asking("a", "b")["messages"]]
    async with inside(model) as served:
        first = await respond(served, "x", conversation="s")
        for more in ({}, {"conversation": "s"}, {"previous_response_id": first["id"]}):
            asked = {"input": "c", "conversation_history": said, **more}
            answer = await served.post(RESPONSES, asked)
            assert heard(model) == ["a", "b", "c"]
            assert model.requests[-1].instructions == "Be brief."
            assert answer.json["previous_response_id"] is None
            ignored = answer.headers.get("x-holdfast-ignored", "")
            assert ignored == ("previous_response_id" if "previous_response_id" in more else "")
        odd = await served.post(RESPONSES, {"input": "c", "conversation_history": "d"})
        assert (odd.status, odd.error["param"]) == (400, "conversation_history")


@pytest.mark.parametrize(("truncation", "known"), [("auto", 100), ("disabled", 106)])
async def test_a_long_session_is_cut_only_if_it_may_be(inside, truncation, known):
    model = ScriptedModel(*[["yes"]] * 54)
    async with inside(model) as served:
        for n in range(53):
            await respond(served, f"{n}", conversation="s")
        await respond(served, "last", conversation="s", truncation=truncation)
        assert len(heard(model)) == known + 1


async def test_what_nobody_can_leave_cannot_be_stopped_by_leaving(inside):
    async with inside(ScriptedModel(["yes"])) as served:
        asked = {"input": "a", "background": True, "on_disconnect": "stop"}
        refused = await served.post(RESPONSES, asked)
        assert (refused.status, refused.error["param"]) == (400, "on_disconnect")
        assert (await served.post(RESPONSES, {**asked, "stream": True})).status == 200


@pytest.mark.parametrize(("path", "asked"), [(CHAT, asking("a")), (RESPONSES, {"input": "a"})])
async def test_the_key_of_a_session_is_said_again(inside, path, asked):
    async with inside(ScriptedModel(["yes"], ["yes"])) as served:
        for stream in (False, True):
            named = {"X-Hermes-Session-Key": "k"}
            answer = await served.post(path, {**asked, "stream": stream}, headers=named)
            assert answer.headers["x-hermes-session-key"] == "k"
        named = {"X-Hermes-Session-Key": "k" * 257}
        refused = await served.post(path, asked, headers=named)
        assert (refused.status, refused.error["code"]) == (400, "invalid_session_key")
        assert len((await served.get("/v1/runs")).json["data"]) == 2
