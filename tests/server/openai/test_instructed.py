"""Instructions among what was said, over HTTP and without a socket: they hold for all that follows."""

import pytest

from holdfast.core.session import SessionCreated
from holdfast.testing.scripted import ScriptedModel
from tests.server.openai.test_going_on import run, told_first
from tests.server.openai.test_response_routes import RESPONSES, respond

CHAT = "/v1/chat/completions"


def saying(said, **instructed):
    """A list of messages: those of a developer or a system, and one of a user."""
    return [{"role": role, "content": text} for role, text in {**instructed, "user": said}.items()]


async def listed(served, response):
    where = f"{RESPONSES}/{response['id']}/input_items?order=asc"
    items = (await served.get(where)).json["data"]
    return [(item["role"], item["content"][0]["text"]) for item in items]


async def test_they_hold_for_every_response_of_a_chain(inside):
    model = ScriptedModel(*[["yes"]] * 3)
    async with inside(model) as served:
        first = await respond(
            served, saying("a", developer="Be brief.", system="Be kind."), instructions="Once."
        )
        assert told_first(model) == "Once.\n\nBe brief.\n\nBe kind."
        second = await respond(served, "b", previous_response_id=first["id"])
        assert told_first(model) == "Be brief.\n\nBe kind."
        # What is said again holds as if it were said only now.
        said = saying("c", developer="In French.", system="Be brief.")
        said.insert(0, {"role": "developer", "content": "Be brief."})
        third = await respond(served, said, previous_response_id=second["id"], instructions="X.")
        assert told_first(model) == "X.\n\nBe kind.\n\nBe brief.\n\nIn French.\n\nBe brief."
        assert (first["instructions"], second["instructions"]) == ("Once.", None)
        assert "instructed" not in third


async def test_they_hold_for_every_response_of_a_session(inside):
    model = ScriptedModel(*[["yes"]] * 6)
    async with inside(model) as served:
        await served.service.sessions.create("s", SessionCreated(instructions="Settled."))
        await respond(served, saying("a", developer="Be brief."), conversation="s")
        assert told_first(model) == "Settled.\n\nBe brief."
        await run(served, "b", session_id="s")
        await respond(served, "c", conversation="s")
        assert told_first(model) == "Settled.\n\nBe brief."
        await respond(served, saying("d", developer="In French."), conversation="s")
        last = await respond(served, "e", conversation="s")
        assert told_first(model) == "Settled.\n\nBe brief.\n\nIn French."
        await respond(served, "f", previous_response_id=last["id"])
        assert told_first(model) == "Be brief.\n\nIn French."


async def test_they_hold_when_a_chat_or_a_run_is_gone_on_from(inside):
    model = ScriptedModel(*[["yes"]] * 4)
    async with inside(model) as served:
        chat = await served.post(CHAT, {"messages": saying("a", system="Be brief."), "store": True})
        id = chat.headers["x-run-id"].replace("run_", "resp_")
        await respond(served, "b", previous_response_id=id)
        assert told_first(model) == "Be brief."
        begun = await run(served, "c", previous_response_id=id, instructions="Be kind.")
        assert told_first(model) == "Be kind.\n\nBe brief."
        id = begun.json["run_id"].replace("run_", "resp_")
        await respond(served, "d", previous_response_id=id)
        assert told_first(model) == "Be brief."


async def test_they_are_listed_among_what_was_asked(inside):
    async with inside(ScriptedModel(*[["yes"]] * 2)) as served:
        first = await respond(served, saying("a", developer="Be brief.", system="Be kind."))
        told = [("developer", "Be brief."), ("system", "Be kind.")]
        assert await listed(served, first) == [*told, ("user", "a")]
        second = await respond(served, "b", previous_response_id=first["id"])
        assert await listed(served, second) == [
            *told,
            *(("user", "a"), ("assistant", "yes"), ("user", "b")),
        ]


async def test_no_more_of_them_than_fit_are_taken(inside):
    async with inside(ScriptedModel(["yes"])) as served:
        first = await respond(served, saying("a", developer="x" * 150_000))
        more = {"input": saying("b", developer="y" * 60_000), "previous_response_id": first["id"]}
        refused = await served.post(RESPONSES, more)
        assert (refused.status, refused.error["code"]) == (400, "text_too_long")


@pytest.mark.parametrize("text", ["", []])
async def test_what_says_nothing_instructs_nobody(inside, text):
    async with inside(ScriptedModel(["yes"])) as served:
        response = await respond(served, saying("a", developer=text))
        assert await listed(served, response) == [("user", "a")]
