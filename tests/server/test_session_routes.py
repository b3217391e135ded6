"""Sessions over HTTP: that each address leads where it says, and is answered as it should be."""

import json

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.testing.scripted import ScriptedModel, Silence
from tests.server.conftest import PATIENCE


def refused(answer):
    return answer.status, answer.error["code"]


async def test_a_session_is_created_found_changed_deleted_and_restored(inside):
    async with inside(ScriptedModel()) as served:
        made = await served.post("/v1/sessions", {"session_id": "s", "title": "T"})
        assert (made.status, made.json["session_id"]) == (201, "s")
        assert (await served.post("/v1/sessions")).status == 201
        assert (await served.get("/v1/sessions/s")).json == made.json
        assert len((await served.get("/v1/sessions?limit=5&archived=all")).json["data"]) == 2
        changed = await served.patch("/v1/sessions/s", {"pinned": True})
        assert changed.json == {**made.json, "pinned": True}
        gone = await served.delete("/v1/sessions/s")
        assert (gone.status, gone.json["deleted"]) == (200, True)
        assert gone.json["purged_at"] > 0
        assert refused(await served.get("/v1/sessions/s")) == (404, "session_not_found")
        assert refused(await served.delete("/v1/sessions/s")) == (404, "session_not_found")
        back = await served.post("/v1/sessions/s/restore")
        assert (back.status, back.json["pinned"]) == (200, True)
        assert refused(await served.post("/v1/sessions/s/restore")) == (409, "conflict")
        assert refused(await served.post("/v1/sessions/x/restore")) == (404, "session_not_found")


async def test_a_run_of_a_session_that_was_deleted_is_gone_with_it_and_back_with_it(inside):
    async with inside(ScriptedModel(["one"])) as served:
        run_id = await served.run(session_id="s")
        assert (await served.get(f"/v1/runs/{run_id}?wait={PATIENCE}")).json["output"] == "one"
        await served.delete("/v1/sessions/s")
        for path in ("", "/events", "/journal"):
            assert refused(await served.get(f"/v1/runs/{run_id}{path}")) == (404, "run_not_found")
        for path, body in (
            ("/stop", {}),
            ("/approval", {"choice": "once"}),
            ("/steer", {"input": "x"}),
        ):
            gone = await served.post(f"/v1/runs/{run_id}{path}", body)
            assert refused(gone) == (404, "run_not_found")
        response = run_id.replace("run_", "resp_")
        assert (await served.get(f"/v1/responses/{response}")).status == 404
        await served.post("/v1/sessions/s/restore")
        assert (await served.get(f"/v1/runs/{run_id}")).json["output"] == "one"
        assert b"run.completed" in (await served.get(f"/v1/runs/{run_id}/events")).body


async def test_what_waits_in_a_session_is_read_edited_and_taken_back(inside):
    async with inside(ScriptedModel(["one", Silence()])) as served:
        first = await served.run(session_id="s")
        busy = {"input": "second", "session_id": "s", "message_id": "mine"}
        queued = await served.post("/v1/runs", busy)
        assert (queued.status, queued.json["status"]) == (202, "queued")
        busily = await served.post("/v1/runs", {**busy, "on_busy": "reject"})
        assert refused(busily) == (409, "session_busy")
        assert busily.headers["x-run-id"] == first
        steered = await served.post("/v1/runs", {**busy, "on_busy": "steer", "message_id": "m"})
        assert steered.json["status"] == "steered"
        queue = (await served.get("/v1/sessions/s/queue")).json
        assert [one["message_id"] for one in queue["data"]] == ["mine"]
        edited = await served.patch("/v1/sessions/s/queue/mine", {"input": "other"})
        assert (edited.status, edited.json["input"]) == (200, "other")
        removed = await served.delete(f"/v1/sessions/s/queue/{queued.json['run_id']}")
        assert (removed.status, removed.json["removed"]) == (200, True)
        assert (await served.get("/v1/sessions/s/queue")).json["data"] == []
        missing = await served.delete("/v1/sessions/s/queue/mine")
        assert refused(missing) == (404, "message_not_found")
        assert steered.json["run_id"] == first
        late = await served.patch(f"/v1/sessions/s/queue/{first}", {"input": "x"})
        assert refused(late) == (409, "run_begun")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"on_busy": "wait"}, "on_busy"),
        ({"on_busy": 5}, "on_busy"),
        ({"message_id": ""}, "message_id"),
        ({"message_id": "x" * 257}, "message_id"),
        ({"message_id": "a\nb"}, "message_id"),
    ],
)
async def test_a_message_that_cannot_be_sent_so_is_refused(inside, fields, param):
    async with inside(ScriptedModel()) as served:
        answer = await served.post("/v1/runs", {"input": "hi", "session_id": "s", **fields})
        assert (answer.status, answer.error["param"]) == (400, param)
        assert (await served.get("/v1/sessions")).json["data"] == []


async def test_a_message_keeps_the_id_its_sender_gave_it(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        run_id = await served.run(session_id="s", message_id="mine")
        await served.get(f"/v1/runs/{run_id}?wait=30")
        page = (await served.get("/v1/sessions/s/messages?limit=10")).json
        assert [one["kind"] for one in page["data"]] == ["user", "assistant"]
        assert page["data"][0]["id"] == "mine" and page["earlier"] == ""
        rest = await served.frames(f"/v1/sessions/s/events?after={page['cursor']}", patience=1)
        assert rest == []
        missing = await served.get("/v1/sessions/s/messages?before=9.9")
        assert refused(missing) == (404, "page_not_found")


async def test_a_session_and_the_list_are_followed_as_streams(inside):
    async with inside(ScriptedModel(["Hello"], ["Bye"])) as served:
        lists = []

        async def follow():
            lists.extend(await served.frames("/v1/events", patience=60))

        async with task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.sleep(1)
            run_id = await served.run(session_id="s")
            await served.get(f"/v1/runs/{run_id}?wait=30")
        assert {frame.event for frame in lists} == {"session.changed"}
        assert lists[-1].data["session"]["session_id"] == "s"
        frames = await served.frames("/v1/sessions/s/events", patience=1)
        assert frames[0].event == "session.created" and frames[-1].event == "run.completed"
        header = {"last-event-id": frames[-2].id}
        last = await served.frames("/v1/sessions/s/events?after=s0.1", headers=header, patience=1)
        assert last == frames[-1:]
        assert refused(await served.get("/v1/sessions/x/events")) == (404, "session_not_found")


# --- over a real line


@pytest.mark.real_time
async def test_a_conversation_is_followed_through_the_death_of_its_server(server):
    """With a message that waits, one that is edited, and a reader that comes back with each cursor."""
    await server.start_host()
    script = [["one ", {"wait": 0.3}, "two ", {"call": "work"}], ["three"]]
    first = await server.run(script, session_id="s")
    heard = []
    async with server.follow(session_id="s") as events:
        heard += await events.until("message.delta")
        second = await server.post(
            "/v1/runs", {"input": '[["later"]]', "session_id": "s", "message_id": "m2"}
        )
        assert second.json["status"] == "queued"
        heard += await events.until("run.added")
    server.kill()
    await server.start_host()
    with anyio.fail_after(PATIENCE):
        async with server.follow(session_id="s", last_event_id=heard[-1].id) as events:
            heard += await events.until("run.completed", times=2)
    ids = [frame.id for frame in heard if frame.id]
    assert len(set(ids)) == len(ids)
    done = [frame.data["run_id"] for frame in heard if frame.event == "run.completed"]
    assert done == [first, second.json["run_id"]]
    page = (await server.get("/v1/sessions/s/messages")).json
    assert [one["id"] for one in page["data"] if one["kind"] == "user"][1] == "m2"
    for at in range(0, len(ids), 3):
        async with server.follow(session_id="s", after=ids[at]) as events:
            if ids[at] != ids[-1]:
                rest = []
                async for frame in events:
                    rest.append(frame)
                    if frame.id == ids[-1]:
                        break
                told = {json.dumps(one.data) for one in rest if one.id}
                assert told >= {json.dumps(one.data) for one in after(heard, ids[at])}
    assert server.log.count("Traceback") == 0


def after(frames, id):
    """Those that came after it and cannot have been taken back: words may be."""
    places = [frame.id for frame in frames]
    later = frames[places.index(id) + 1 :]
    return [one for one in later if one.id and one.event in ("run.completed", "tool.completed")]
