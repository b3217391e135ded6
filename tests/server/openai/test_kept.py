import anyio

from holdfast.calls.tasks import task_group
from holdfast.core.events import Recorded, Unknown
from holdfast.ports import Census
from holdfast.server.openai.kept import Found
from holdfast.server.openai.request import Echo
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from tests.core.stories import accepted, journal
from tests.server.openai.test_chat_routes import heard, runs
from tests.server.openai.test_response_routes import RESPONSES, refused, respond


def test_a_run_of_a_newer_version_said_nothing_of_itself():
    newer = Found("run_1", [Recorded(1, 1.0, Unknown("run.accepted2"), b"{}")])
    assert (newer.accepted, newer.echo) == (None, Echo())
    assert Found("run_1", journal(accepted())).accepted == accepted()


def run_of(response):
    return response["id"].replace("resp_", "run_")


async def test_the_run_of_a_deleted_response_is_found_by_nobody(inside):
    async with inside(ScriptedModel(["Hello!"], ["Hel", Silence()])) as served:
        for begun in (await respond(served), await respond(served, background=True)):
            await served.delete(f"{RESPONSES}/{begun['id']}")
            where = f"/v1/runs/{run_of(begun)}"
            for path in (where, f"{where}?wait=1", f"{where}/events", f"{where}/journal"):
                assert refused(await served.get(path)) == (404, "run_not_found")
            for path, body in (("stop", {}), ("steer", {"text": "x"}), ("approval", {})):
                assert refused(await served.post(f"{where}/{path}", body)) == (404, "run_not_found")
        assert await runs(served) == []
        # Nor is there anything else that tells of it.
        for more in ("", "?archived=true", "?deleted=true"):
            assert (await served.get(f"/v1/sessions{more}")).json["data"] == []
        await anyio.sleep(1)
        assert (await served.service.store.census()) == Census(queued=0, running=0)


async def test_a_request_whose_response_was_deleted_is_answered_so_and_not_carried_out_again(
    inside,
):
    async with inside(ScriptedModel(["Hello!"])) as served:
        named = {"Idempotency-Key": "k"}
        for where, body in ((RESPONSES, {"input": "hi"}), ("/v1/runs", {"input": "hi"})):
            served.app.means.models["demo"] = ScriptedModel(["Hello!"])
            begun = await served.post(where, body, headers=named)
            id = begun.headers["x-run-id"].replace("run_", "resp_")
            await served.delete(f"{RESPONSES}/{id}")
            again = await served.post(where, body, headers=named)
            assert refused(again) == (404, "run_not_found")
            assert "was deleted" in again.error["message"]
            named = {"Idempotency-Key": "k2"}
        assert await runs(served) == []


async def test_what_went_on_from_a_deleted_response_stays_whole(inside):
    model = ScriptedModel(["one"], ["two"], ["three"])
    async with inside(model) as served:
        first = await respond(served, "a")
        second = await respond(served, "b", previous_response_id=first["id"])
        await served.delete(f"{RESPONSES}/{first['id']}")
        assert await served.service.store.purge(before=2.0**40) == [run_of(first)]
        where = f"{RESPONSES}/{second['id']}"
        assert (await served.get(where)).json == second
        items = (await served.get(f"{where}/input_items?order=asc")).json["data"]
        assert [one["content"][0]["text"] for one in items] == ["a", "one", "b"]
        await respond(served, "c", previous_response_id=second["id"])
        assert heard(model) == ["a", "one", "b", "two", "c"]


async def test_what_was_said_in_a_conversation_stays_when_its_response_is_deleted(inside):
    model = ScriptedModel(["one"], ["two"])
    async with inside(model) as served:
        first = await respond(served, "a", conversation="s")
        await served.delete(f"{RESPONSES}/{first['id']}")
        assert refused(await served.get(f"{RESPONSES}/{first['id']}"))[0] == 404
        assert refused(await served.get(f"/v1/runs/{run_of(first)}"))[0] == 404
        second = await respond(served, "b", conversation="s")
        assert heard(model) == ["a", "one", "b"]
        transcript = (await served.get("/v1/sessions/s/messages")).text
        stream = (await served.get("/v1/sessions/s/events", patience=1)).text
        exported = (await served.get("/v1/sessions/s/export")).text
        for told in (transcript, stream, exported):
            assert all(word in told for word in ("one", "two"))
        (listed,) = (await served.get("/v1/sessions")).json["data"]
        assert listed["runs"] == 2
        assert [one["run_id"] for one in await runs(served)] == [run_of(second)]


async def test_whoever_follows_a_response_that_is_deleted_is_cut_off(inside):
    async with inside(ScriptedModel(["Hel", Silence()])) as served:
        begun = await respond(served, background=True)
        where = f"{RESPONSES}/{begun['id']}"
        told = {}

        async def follow(path):
            told[path] = await served.get(path)

        async with task_group() as tasks:
            run = f"/v1/runs/{run_of(begun)}"
            for path in (f"{where}?stream=true", f"{run}/events", f"{run}?wait=60"):
                tasks.start_soon(follow, path)
            await anyio.sleep(1)
            assert (await served.delete(where)).status == 200
        waited, streams = told.pop(f"{run}?wait=60"), told.values()
        assert all(one.status == 200 and "Hel" in one.text for one in streams)
        assert all("stream closed" not in one.text for one in streams)
        assert refused(waited) == (404, "run_not_found")


async def test_whoever_waits_for_the_whole_response_is_told_that_there_is_none(inside):
    async with inside(ScriptedModel(["Hel", Silence()])) as served:

        async def ask():
            answer = await served.post(RESPONSES, {"input": "hi"})
            assert refused(answer) == (404, "run_not_found")

        async with task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(1)
            (run,) = await runs(served)
            await served.delete(f"{RESPONSES}/{run['run_id'].replace('run_', 'resp_')}")


async def test_a_response_that_is_deleted_while_it_is_cancelled_is_gone(inside):
    async def cling(use):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)
        return "late"

    tool = ScriptedTool("cling", work=cling)
    async with inside(ScriptedModel([Call("cling")], ["Hello!"]), tool) as served:
        begun = await respond(served, background=True)
        where = f"{RESPONSES}/{begun['id']}"
        await anyio.sleep(1)

        async def cancel():
            assert refused(await served.post(f"{where}/cancel")) == (404, "response_not_found")

        async with task_group() as tasks:
            tasks.start_soon(cancel)
            await anyio.sleep(0.5)
            assert (await served.delete(where)).status == 200
        await anyio.sleep(5)
        assert (await served.service.store.census()).running == 0


async def test_a_response_is_deleted_once_however_many_try(inside):
    async with inside(ScriptedModel(["Hello!"])) as served:
        id = (await respond(served))["id"]
        statuses = []

        async def delete():
            statuses.append((await served.delete(f"{RESPONSES}/{id}")).status)

        async with task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(delete)
        assert sorted(statuses) == [200, 404, 404, 404, 404]


async def test_a_session_that_happens_to_have_the_name_of_a_response_hides_nothing(inside):
    async with inside(ScriptedModel(["Hello!"])) as served:
        id = (await respond(served))["id"]
        await served.post("/v1/sessions", {"session_id": id})
        assert (await served.get(f"{RESPONSES}/{id}")).status == 200
        assert (await served.delete(f"{RESPONSES}/{id}")).status == 200
        assert (await served.get(f"/v1/sessions/{id}")).status == 200
