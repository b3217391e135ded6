from holdfast.calls.tasks import task_group
from holdfast.core.events import Recorded, Unknown
from holdfast.server.openai.kept import DELETED, Found
from holdfast.server.openai.request import Echo
from holdfast.testing.scripted import ScriptedModel
from tests.core.stories import accepted, journal
from tests.server.openai.test_response_routes import RESPONSES, respond


def test_a_run_of_a_newer_version_said_nothing_of_itself():
    newer = Found("run_1", [Recorded(1, 1.0, Unknown("run.accepted2"), b"{}")])
    assert (newer.accepted, newer.echo) == (None, Echo())
    assert Found("run_1", journal(accepted())).accepted == accepted()


async def test_that_a_response_was_deleted_is_on_record_where_people_find_what_they_put_away(
    inside,
):
    async with inside(ScriptedModel(["Hello!"])) as served:
        id = (await respond(served))["id"]
        await served.delete(f"{RESPONSES}/{id}")
        (row,) = (await served.get("/v1/sessions?archived=true")).json["data"]
        assert (row["session_id"], row["runs"]) == (id, 0)
        state = (await served.service.store.session(id)).state
        assert (state.surface, state.principal, state.archived) == (DELETED, "ada", True)


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
