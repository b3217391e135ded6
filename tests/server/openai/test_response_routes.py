"""Responses over HTTP, on virtual time and without a socket."""

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.errors import ModelRefused
from holdfast.testing.scripted import ScriptedModel, Silence
from tests.server.openai.sse import events
from tests.server.openai.test_chat_routes import PICTURE, PIXEL, heard, runs

RESPONSES = "/v1/responses"


async def respond(served, input="hi", **fields):
    answer = await served.post(RESPONSES, {"model": "demo", "input": input, **fields})
    assert answer.status == 200, answer.text
    return answer.json


def text(response):
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def refused(answer):
    return answer.status, answer.error["code"]


async def test_a_response_is_told_whole_as_it_comes_and_later(inside):
    async with inside(ScriptedModel(["Hel", "lo!"], ["Hel", "lo!"])) as served:
        whole = await respond(served, instructions="Be brief.", metadata={"a": "b"})
        assert (whole["status"], text(whole)) == ("completed", "Hello!")
        assert (whole["instructions"], whole["metadata"]) == ("Be brief.", {"a": "b"})
        again = await served.get(f"{RESPONSES}/{whole['id']}")
        assert again.json == whole
        streamed = await served.post(RESPONSES, {"input": "hi", "stream": True})
        told = events(streamed.body)
        assert [told[0].name, told[-1].name] == ["response.created", "response.completed"]
        last = told[-1].data["response"]
        assert (await served.get(f"{RESPONSES}/{last['id']}")).json == last
        run_id = streamed.headers["x-run-id"]
        assert last["id"] == run_id.replace("run_", "resp_")
        for query in ("", "?stream=true"):
            later = await served.get(f"{RESPONSES}/{last['id']}{query}")
            assert later.headers["x-run-id"] == run_id
        status = (await served.get(f"/v1/runs/{run_id}")).json
        assert "metadata" not in status


async def test_a_response_in_the_background_is_answered_at_once_and_followed_from_anywhere(inside):
    async with inside(ScriptedModel(["Hel", Silence(9), "lo!"])) as served:
        begun = await respond(served, background=True)
        assert (begun["status"], begun["background"]) == ("queued", True)
        where = f"{RESPONSES}/{begun['id']}"
        early = await served.get(f"{where}?stream=true", patience=1)
        assert "response.output_text.delta" in [one.name for one in events(early.body)]
        whole = events((await served.get(f"{where}?stream=true")).body)
        assert whole[0].name == "response.created"
        numbers = [one.data["sequence_number"] for one in whole]
        assert numbers == sorted(set(numbers))
        for place, number in enumerate(numbers):
            rest = await served.get(f"{where}?stream=true&starting_after={number}")
            assert events(rest.body) == whole[place + 1 :]
        assert (await served.get(where)).json == whole[-1].data["response"]


async def test_a_response_that_failed_says_so_in_its_status(inside):
    async with inside(ScriptedModel([ModelRefused("no")])) as served:
        failed = await respond(served)
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")


async def test_a_response_is_cancelled_once_and_for_all(inside):
    async with inside(ScriptedModel(["Hel", Silence()])) as served:
        begun = await respond(served, background=True)
        await anyio.sleep(1)
        where = f"{RESPONSES}/{begun['id']}"
        cancelled = await served.post(f"{where}/cancel")
        assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        assert (await served.post(f"{where}/cancel")).json == cancelled.json
        assert (await served.get(where)).json == cancelled.json


async def test_a_response_that_is_deleted_is_found_no_more(inside):
    async with inside(ScriptedModel(["Hello!"], ["Hel", Silence()])) as served:
        for begun in (await respond(served), await respond(served, background=True)):
            where = f"{RESPONSES}/{begun['id']}"
            gone = await served.delete(where)
            assert gone.json == {"id": begun["id"], "object": "response", "deleted": True}
            missing = (404, "response_not_found")
            assert refused(await served.get(where)) == missing
            assert refused(await served.get(f"{where}?stream=true")) == missing
            assert refused(await served.get(f"{where}/input_items")) == missing
            assert refused(await served.post(f"{where}/cancel")) == missing
            assert refused(await served.delete(where)) == missing
            later = await served.post(
                RESPONSES, {"input": "hi", "previous_response_id": begun["id"]}
            )
            assert refused(later) == (404, "previous_response_not_found")
        assert await runs(served) == []


async def test_a_response_that_was_not_to_be_stored_is_not_found_later(inside):
    async with inside(ScriptedModel(["Hello!"])) as served:
        whole = await respond(served, store=False)
        assert (text(whole), whole["store"]) == ("Hello!", False)
        where, missing = f"{RESPONSES}/{whole['id']}", (404, "response_not_found")
        for path in ("", "?stream=true", "/input_items"):
            assert refused(await served.get(where + path)) == missing
        assert refused(await served.post(f"{where}/cancel")) == missing
        assert refused(await served.delete(where)) == missing
        later = await served.post(RESPONSES, {"input": "hi", "previous_response_id": whole["id"]})
        assert refused(later) == (404, "previous_response_not_found")
        assert len(await runs(served)) == 1
        both = await served.post(RESPONSES, {"input": "hi", "store": False, "background": True})
        assert (both.status, both.error["param"]) == (400, "background")


async def test_what_there_is_not_is_not_found(inside):
    async with inside(ScriptedModel()) as served:
        for id in ("resp_none", "run_none", "x", "resp_" + "0" * 256):
            where = f"{RESPONSES}/{id}"
            for answer in (
                await served.get(where),
                await served.get(f"{where}/input_items"),
                await served.post(f"{where}/cancel"),
                await served.delete(where),
            ):
                assert refused(answer) == (404, "response_not_found")
            later = await served.post(RESPONSES, {"input": "hi", "previous_response_id": id[:256]})
            assert refused(later) == (404, "previous_response_not_found")


async def test_what_cannot_be_asked_is_refused_by_its_name(inside):
    wrong = {
        "?stream=perhaps": "stream",
        "?stream=true&starting_after=x": "starting_after",
        "?stream=true&starting_after=-1": "starting_after",
        "?stream=true&starting_after=1.0": "starting_after",
        "?stream=true&starting_after=٣": "starting_after",
        f"?stream=true&starting_after={'9' * 19}": "starting_after",
        "?starting_after=x": "starting_after",
        "/input_items?order=up": "order",
        "/input_items?limit=0": "limit",
        "/input_items?limit=101": "limit",
        "/input_items?after=x": "after",
    }
    async with inside(ScriptedModel(["Hello!"])) as served:
        whole = await respond(served)
        for query, param in wrong.items():
            answer = await served.get(f"{RESPONSES}/{whole['id']}{query}")
            assert (answer.status, answer.error["param"]) == (400, param)
            assert answer.error["type"] == "invalid_request_error"


async def test_who_has_seen_more_than_there_is_gets_what_is_still_to_come(inside):
    async with inside(ScriptedModel(["Hel", Silence(9), "lo!"])) as served:
        begun = await respond(served, background=True)
        far = f"{RESPONSES}/{begun['id']}?stream=true&starting_after={'9' * 18}"
        assert events((await served.get(far)).body) == []
        whole = events((await served.get(far.rpartition("&")[0])).body)
        from_start = await served.get(f"{RESPONSES}/{begun['id']}?stream=true&starting_after=")
        assert events(from_start.body) == whole


# --- what came before


async def test_a_response_goes_on_from_another_and_others_may_do_so_too(inside):
    model = ScriptedModel(["one"], ["two"], ["three"], ["four"])
    async with inside(model) as served:
        first = await respond(served, "a")
        second = await respond(served, "b", previous_response_id=first["id"])
        assert heard(model) == ["a", "one", "b"]
        assert second["previous_response_id"] == first["id"]
        await respond(served, "c", previous_response_id=second["id"])
        assert heard(model) == ["a", "one", "b", "two", "c"]
        more = [{"role": "user", "content": "x"}, {"role": "user", "content": "d"}]
        await respond(served, more, previous_response_id=first["id"])
        assert heard(model)[:2] == ["a", "one"]
        assert "x" in heard(model)[-1] or "x" in heard(model)[-2]
        assert (await served.get("/v1/sessions?archived=all")).json["data"] == []


async def test_what_failed_or_was_cancelled_is_gone_on_from_all_the_same(inside):
    model = ScriptedModel([ModelRefused("no")], ["two"], ["thr", Silence()], ["four"])
    async with inside(model) as served:
        failed = await respond(served, "a")
        await respond(served, "b", previous_response_id=failed["id"])
        # Nobody answered the first, so they are one.
        assert heard(model) == ["a\nb"]
        begun = await respond(served, "c", background=True)
        await anyio.sleep(1)
        await served.post(f"{RESPONSES}/{begun['id']}/cancel")
        await respond(served, "d", previous_response_id=begun["id"])
        assert (heard(model)[0], heard(model)[-1]) == ("c", "d")


async def test_what_has_not_ended_cannot_be_gone_on_from_yet(inside):
    async with inside(ScriptedModel([Silence()])) as served:
        begun = await respond(served, background=True)
        early = await served.post(RESPONSES, {"input": "hi", "previous_response_id": begun["id"]})
        assert refused(early) == (409, "previous_response_in_progress")
        assert len(await runs(served)) == 1


async def test_a_response_of_a_session_knows_what_was_said_in_it(inside):
    model = ScriptedModel(["one"], ["two"], ["three"], ["four"])
    async with inside(model) as served:
        first = await respond(served, "a", conversation="s")
        assert first["conversation"] == {"id": "s"}
        second = await respond(served, "b", conversation={"id": "s"})
        assert heard(model) == ["a", "one", "b"]
        both = [{"role": "user", "content": "c"}, {"role": "user", "content": "d"}]
        await respond(served, both, conversation="s")
        assert heard(model)[:4] == ["a", "one", "b", "two"]
        assert [one for one in ("c", "d") if one in heard(model)[-1]] == ["c", "d"]
        # It branches off where that response stood.
        await respond(served, "x", previous_response_id=second["id"])
        assert heard(model) == ["a", "one", "b", "two", "x"]
        listed = (await served.get("/v1/sessions")).json["data"]
        assert [(one["session_id"], one["runs"]) for one in listed] == [("s", 3)]
        answered = [{"role": "assistant", "content": "no"}, {"role": "user", "content": "e"}]
        odd = await served.post(RESPONSES, {"input": answered, "conversation": "s"})
        assert (odd.status, odd.error["param"]) == (400, "input")


async def test_a_picture_is_gone_on_with(inside):
    model = ScriptedModel(["one"], ["two"])
    async with inside(model) as served:
        picture = {"type": "input_image", "image_url": PICTURE}
        parts = [{"type": "input_text", "text": "a"}, picture]
        first = await respond(served, [{"role": "user", "content": parts}])
        await respond(served, "b", previous_response_id=first["id"])
        assert list(model.requests[-1].blobs.values()) == [PIXEL]


@pytest.mark.parametrize(("truncation", "known"), [("auto", 100), ("disabled", 102)])
async def test_a_long_conversation_is_cut_only_if_it_may_be(inside, truncation, known):
    async with inside(ScriptedModel(["one"])) as served:
        said = [{"role": ("user", "assistant")[n % 2], "content": f"{n}"} for n in range(102)] + [
            {"role": "user", "content": "last"}
        ]
        whole = await respond(served, said, truncation=truncation)
        items = await served.get(f"{RESPONSES}/{whole['id']}/input_items?limit=100&order=asc")
        first = items.json["data"][0]["content"][0]["text"]
        assert first == f"{102 - known}"
        assert whole["truncation"] == truncation


async def test_what_was_asked_is_listed_the_last_first(inside):
    async with inside(ScriptedModel(["one"])) as served:
        said = ["a", "b", "c"]
        roles = ("user", "assistant", "user")
        whole = await respond(
            served, [{"role": r, "content": s} for r, s in zip(roles, said, strict=True)]
        )
        where = f"{RESPONSES}/{whole['id']}/input_items"
        items = (await served.get(where)).json
        assert [one["content"][0]["text"] for one in items["data"]] == said[::-1]
        page = (await served.get(f"{where}?limit=1&order=asc")).json
        assert (page["data"][0]["content"][0]["text"], page["has_more"]) == ("a", True)
        rest = (await served.get(f"{where}?order=asc&after={page['last_id']}")).json
        assert [one["content"][0]["text"] for one in rest["data"]] == ["b", "c"]


# --- once


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"background": True}])
async def test_a_repeat_under_the_same_key_attaches_to_the_same_response(inside, fields):
    async with inside(ScriptedModel([Silence(2), "Hello!"])) as served:
        answers, named = [], {"Idempotency-Key": "k"}

        async def ask():
            asked = {"input": "hi", **fields}
            answers.append(await served.post(RESPONSES, asked, headers=named))

        async with task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            tasks.start_soon(ask)
        assert len({one.headers["x-run-id"] for one in answers}) == 1
        assert len(await runs(served)) == 1
        if "background" not in fields:
            assert answers[0].body == answers[1].body
        elsewhere = {**named, "X-Session-Id": "s"}
        for input, told in (("ho", named), ("hi", elsewhere)):
            other = await served.post(RESPONSES, {"input": input, **fields}, headers=told)
            assert refused(other) == (409, "idempotency_key_conflict")


@pytest.mark.parametrize(("store", "status"), [(None, 404), (False, 404), (True, 200)])
async def test_a_chat_is_found_as_a_response_only_if_it_was_to_be_stored(inside, store, status):
    async with inside(ScriptedModel(["a"], ["b"])) as served:
        asked = {"messages": [{"role": "user", "content": "hi"}], "store": store}
        chat = await served.post("/v1/chat/completions", asked)
        id = chat.headers["x-run-id"].replace("run_", "resp_")
        assert (await served.get(f"{RESPONSES}/{id}")).status == status
        assert (await served.get(f"{RESPONSES}/{id}?stream=true")).status == status
        gone_on = await served.post(RESPONSES, {"input": "on", "previous_response_id": id})
        assert gone_on.status == status
