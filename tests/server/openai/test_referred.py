"""Items that are only named, over HTTP and without a socket."""

import pytest

from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Think
from tests.server.openai.test_chat_routes import heard
from tests.server.openai.test_response_routes import RESPONSES, respond


def named(item):
    return {"type": "item_reference", "id": item if isinstance(item, str) else item["id"]}


async def test_words_that_are_named_stand_where_they_are_named(inside):
    model = ScriptedModel(
        [Think("hm"), "Let me see.", Call("look")], ["one"], ["two"], *[["on"]] * 3
    )
    async with inside(model, ScriptedTool("look")) as served:
        first = await respond(served, "a")
        second = await respond(served, "b")
        items = [named(item) for item in first["output"]]
        said = ["a", *items, "b", named(second["output"][0]), "c"]
        answer = await served.post(RESPONSES, {"input": said})
        assert answer.status == 200, answer.text
        assert [one.split() for one in heard(model)] == [
            ["a"],
            ["Let", "me", "see.", "one"],
            ["b"],
            ["two"],
            ["c"],
        ]
        # Thoughts and calls are passed over, and that is told.
        assert answer.headers["x-holdfast-ignored"] == "input.item_reference"
        words = ["b", named(second["output"][0]), "c"]
        answer = await served.post(RESPONSES, {"input": words})
        assert "x-holdfast-ignored" not in answer.headers
        odd = {"type": "item_reference", "id": ["msg_"]}
        answer = await served.post(RESPONSES, {"input": [odd, *words]})
        assert answer.headers["x-holdfast-ignored"] == "input.item_reference"


async def test_whatever_was_listed_can_be_named(inside):
    model = ScriptedModel(["Let me see.", Call("look")], ["one"], *[["on"]] * 2)
    async with inside(model, ScriptedTool("look")) as served:
        told = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "a"}]
        first = await respond(served, told)
        second = await respond(served, "b", previous_response_id=first["id"])
        where = f"{RESPONSES}/{second['id']}/input_items?order=asc"
        items = (await served.get(where)).json["data"]
        kinds = [item.get("role") or item["type"] for item in items]
        calls = ["function_call", "function_call_output"]
        assert kinds == ["developer", "user", "assistant", *calls, "assistant", "user"]
        assert {item["id"] for item in items} >= {
            item["id"] for item in first["output"] if item["type"] != "message"
        }
        answer = await served.post(RESPONSES, {"input": [*map(named, items), "c"]})
        assert answer.status == 200, answer.text
        assert [one.split() for one in heard(model)] == [
            ["a"],
            ["Let", "me", "see.", "one"],
            ["b", "c"],
        ]
        assert model.requests[-1].instructions == "Be brief."
        assert answer.headers["x-holdfast-ignored"] == "input.item_reference"


@pytest.mark.parametrize("id", ["msg_none_4", "msg_", "msg_1", "msg_" + "0" * 9000])
async def test_words_that_there_are_not_are_refused_by_their_place(inside, id):
    async with inside(ScriptedModel()) as served:
        answer = await served.post(RESPONSES, {"input": ["a", named(id), "b"]})
        assert (answer.status, answer.error["code"]) == (400, "item_not_found")
        assert (answer.error["param"], len(answer.text) < 500) == ("input[1].id", True)


async def test_words_of_a_response_that_was_not_stored_are_not_there(inside):
    async with inside(ScriptedModel(["one"])) as served:
        first = await respond(served, "a", store=False)
        answer = await served.post(RESPONSES, {"input": [named(first["output"][0]), "b"]})
        assert answer.error["code"] == "item_not_found"


@pytest.mark.parametrize("item", [{"id": 5}, {}, {"id": None}, {"id": "rs_1_2"}, {"id": ["msg_"]}])
async def test_what_names_no_words_is_passed_over_and_that_is_told(inside, item):
    model = ScriptedModel(["one"])
    async with inside(model) as served:
        said = [{"type": "item_reference", **item}, "a"]
        answer = await served.post(RESPONSES, {"input": said})
        assert answer.headers["x-holdfast-ignored"] == "input.item_reference"
        assert heard(model) == ["a"]


async def test_a_request_that_only_speaks_of_them_is_as_any_other(inside):
    model = ScriptedModel(["one"])
    async with inside(model) as served:
        await respond(served, "what is an item_reference?")
        assert heard(model) == ["what is an item_reference?"]
