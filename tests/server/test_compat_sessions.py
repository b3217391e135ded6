"""Sessions as older clients ask for them."""

import json

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.errors import StoreUnavailable
from holdfast.testing.scripted import ScriptedModel, Silence


def refused(answer):
    return answer.status, answer.error["code"]


async def test_a_session_is_created_read_renamed_ended_and_deleted(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        fields = {"id": "s", "title": "T", "model": "m", "system_prompt": "be kind"}
        made = await served.post("/api/sessions", fields)
        assert (made.status, made.json["object"]) == (201, "hermes.session")
        assert made.json["session"]["id"] == "s" and made.json["session"]["model"] == "m"
        read = await served.get("/api/sessions/s")
        assert read.json == made.json
        renamed = await served.patch("/api/sessions/s", {"title": "New"})
        assert renamed.json["session"]["title"] == "New"
        ended = await served.patch("/api/sessions/s", {"end_reason": "done"})
        assert ended.json["session"]["end_reason"] == "archived"
        gone = await served.delete("/api/sessions/s")
        assert gone.json == {"object": "hermes.session.deleted", "id": "s", "deleted": True}
        assert refused(await served.get("/api/sessions/s")) == (404, "session_not_found")
        assert refused(await served.post("/api/sessions", {"session_id": "s"})) == (
            409,
            "session_deleted",
        )


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": "a/b"}, "invalid_session_id"),
        ({"session_id": "x" * 300}, "invalid_session_id"),
        ({"system_prompt": 5}, "invalid_system_prompt"),
        ({"title": ["T"]}, "invalid_title"),
    ],
)
async def test_a_session_is_not_created_with_what_is_no_name_or_prompt(inside, fields, code):
    async with inside(ScriptedModel()) as served:
        assert refused(await served.post("/api/sessions", fields)) == (400, code)
        assert (await served.get("/api/sessions")).json["data"] == []


async def test_what_is_there_or_is_not_is_refused_by_the_names_that_clients_know(inside):
    async with inside(ScriptedModel()) as served:
        assert (await served.post("/api/sessions")).status == 201
        await served.post("/api/sessions", {"id": "s"})
        assert refused(await served.post("/api/sessions", {"id": "s"})) == (409, "session_exists")
        assert refused(await served.patch("/api/sessions/s", {"model": "m"})) == (
            400,
            "unsupported_session_field",
        )
        for method, path in (
            ("GET", "/api/sessions/x"),
            ("DELETE", "/api/sessions/x"),
            ("GET", "/api/sessions/x/messages"),
        ):
            assert refused(await served.ask(method, path)) == (404, "session_not_found")
        said = {"message": "hi"}
        for path in ("/api/sessions/x/chat", "/api/sessions/x/chat/stream"):
            assert refused(await served.post(path, said)) == (404, "session_not_found")
            there = path.replace("/x/", "/s/")
            assert refused(await served.post(there, {})) == (400, "missing_message")
        assert refused(await served.post("/api/sessions/s/fork", {})) == (404, "path_not_found")


async def test_a_list_is_paged_by_numbers(inside):
    async with inside(ScriptedModel()) as served:
        for number in range(3):
            await served.post("/api/sessions", {"id": f"s{number}"})
        page = (await served.get("/api/sessions?limit=2")).json
        assert [one["id"] for one in page["data"]] == ["s2", "s1"]
        assert (page["limit"], page["offset"], page["has_more"]) == (2, 0, True)
        rest = (await served.get("/api/sessions?limit=2&offset=2")).json
        assert [one["id"] for one in rest["data"]] == ["s0"] and not rest["has_more"]
        assert (await served.get("/api/sessions?source=x&include_children=1")).json["limit"] == 50
        for bad in ("limit=0", "limit=201", "offset=-1", "offset=10001"):
            assert (await served.get(f"/api/sessions?{bad}")).status == 400


async def test_a_chat_is_answered_when_the_run_has_ended_and_goes_on_where_it_was(inside):
    async with inside(ScriptedModel([Silence(5), "Hello"], ["Bye"])) as served:
        await served.post("/api/sessions", {"id": "s", "system_prompt": "be kind"})
        key = {"idempotency-key": "k"}
        answer = await served.post("/api/sessions/s/chat", {"message": "hi"}, headers=key)
        told = answer.json
        assert (answer.status, told["object"]) == (200, "hermes.session.chat.completion")
        assert told["message"] == {"role": "assistant", "content": "Hello"}
        assert told["usage"]["total_tokens"] > 0 and told["session_id"] == "s"
        assert answer.headers["x-run-id"] == told["run_id"]
        run = (await served.get(f"/v1/runs/{told['run_id']}")).json
        assert (run["output"], run["session_id"]) == ("Hello", "s")
        again = await served.post("/api/sessions/s/chat", {"message": "hi"}, headers=key)
        assert again.json == told
        # The same words elsewhere are another request.
        await served.post("/api/sessions", {"id": "t"})
        other = await served.post("/api/sessions/t/chat", {"message": "hi"}, headers=key)
        assert refused(other) == (409, "idempotency_key_conflict")
        second = await served.post("/api/sessions/s/chat", {"input": "go on"})
        assert second.json["message"]["content"] == "Bye"
        last = served.app.means.models["demo"].requests[-1]
        assert len(last.messages) == 3 and "be kind" in last.instructions
        said = (await served.get("/api/sessions/s/messages")).json
        assert [one["content"] for one in said["data"]] == ["hi", "Hello", "go on", "Bye"]
        assert (said["object"], said["session_id"], said["has_more"]) == ("list", "s", False)


async def test_a_chat_that_fails_is_no_answer(inside):
    async with inside(ScriptedModel()) as served:
        await served.post("/api/sessions", {"id": "s"})
        answer = await served.post("/api/sessions/s/chat", {"message": "hi"})
        assert refused(answer) == (502, "agent_incomplete")
        run = (await served.get(f"/v1/runs/{answer.headers['x-run-id']}")).json
        assert run["status"] == "failed"


async def test_a_chat_whose_run_is_stopped_is_no_answer(inside):
    async with inside(ScriptedModel(["half", Silence()])) as served:
        await served.post("/api/sessions", {"id": "s"})

        async def stop():
            await anyio.sleep(5)
            run_id = (await served.get("/v1/sessions/s")).json["current_run_id"]
            await served.post(f"/v1/runs/{run_id}/stop")

        async with task_group() as tasks:
            tasks.start_soon(stop)
            answer = await served.post("/api/sessions/s/chat", {"message": "hi"})
        assert refused(answer) == (502, "agent_incomplete") and "stopped" in answer.text


async def test_a_server_that_leaves_keeps_no_chat_waiting_and_the_run_goes_on(inside):
    async with inside(ScriptedModel(["half", Silence()])) as served:
        await served.post("/api/sessions", {"id": "s"})

        async def leave():
            await anyio.sleep(5)
            served.service.left.set()

        async with task_group() as tasks:
            tasks.start_soon(leave)
            answer = await served.post("/api/sessions/s/chat", {"message": "hi"})
        assert refused(answer) == (503, "gateway_draining")
        assert (await served.get("/v1/sessions/s")).json["status"] == "running"


async def test_whoever_leaves_a_chat_leaves_a_run_that_goes_on(inside):
    class Leaving:
        def when_gone(self, leave):
            self.leave = leave

    async with inside(ScriptedModel([Silence(10), "Hello"])) as served:
        await served.post("/api/sessions", {"id": "s"})
        caller = Leaving()
        async with task_group() as tasks:
            tasks.start_soon(chat_as, served, caller)
            await anyio.sleep(3)
            began = anyio.current_time()
            caller.leave()
        assert anyio.current_time() == began
        run_id = (await served.get("/v1/sessions/s")).json["current_run_id"]
        assert (await served.get(f"/v1/runs/{run_id}?wait=30")).json["output"] == "Hello"


async def chat_as(served, caller):
    answer = await served.ask(
        "POST", "/api/sessions/s/chat", body=b'{"message": "hi"}', caller=caller
    )
    assert answer.status == 503


async def test_a_chat_is_followed_under_the_id_of_a_run_that_there_is(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        await served.post("/api/sessions", {"id": "s"})
        answer = await served.post("/api/sessions/s/chat/stream", {"message": "hi"})
        assert answer.headers["content-type"].startswith("text/event-stream")
        names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
        assert names[0] == "run.started" and names[-1] == "done"
        data = json.loads(answer.text.split("data: ")[1].splitlines()[0])
        assert (await served.get(f"/v1/runs/{data['run_id']}")).json["output"] == "Hello"


async def test_trouble_with_the_store_has_the_name_that_clients_know(inside):
    class Away:
        async def sessions(self, **_):
            raise StoreUnavailable("gone")

    async with inside(ScriptedModel()) as served:
        served.service.store = Away()
        answer = await served.get("/api/sessions")
        assert refused(answer) == (503, "session_db_unavailable")
