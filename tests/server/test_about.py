from dataclasses import replace

import anyio
import pytest

from holdfast.config import ServerSettings
from holdfast.errors import StoreUnavailable
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence


class Place:
    """A store that is as it is said to be."""

    def __init__(self, *, broken=None, full=False, away=False):
        self.broken, self.full, self._away = broken, full, away

    async def census(self):
        if self._away:
            raise StoreUnavailable("gone")


class Means:
    def __init__(self, store):
        self.store, self.models, self.tools = store, {"main": None}, {}


async def test_what_is_well_is_said_to_be(inside):
    async with inside(ScriptedModel(), ScriptedTool("pay")) as served:
        told = (await served.get("/health/detailed")).json
        assert (told["status"], told["readiness"]["status"]) == ("ok", "ready")
        assert told["gateway_state"] == "running"
        assert (told["models"], told["tools"]) == (["demo"], ["pay"])
        assert (await served.get("/health")).json == {
            "status": "ok",
            "platform": "holdfast",
            "version": "1.2.3",
        }


async def test_a_server_that_leaves_says_so(inside):
    async with inside(ScriptedModel()) as served:
        served.service.draining.set()
        assert (await served.about.detailed())["gateway_state"] == "draining"


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (Place(broken=StoreUnavailable("the disk died")), "broken"),
        (Place(full=True), "full"),
        (Place(away=True), "unavailable"),
    ],
)
async def test_what_ails_the_store_is_told_by_name(inside, store, told):
    async with inside(ScriptedModel()) as served:
        about = replace(served.about, means=Means(store))
        found = await about.detailed()
        assert found["status"] == "degraded"
        assert found["readiness"] == {
            "status": "not_ready",
            "checks": {"store": told, "model": "ok"},
        }


async def test_a_server_without_a_model_is_not_ready(inside):
    async with inside(None) as served:
        assert (await served.about.detailed())["readiness"]["checks"]["model"] == "missing"


async def test_every_endpoint_that_is_named_answers(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        run_id = await served.run(session_id="s")
        told = (await served.get("/v1/capabilities")).json
        for name, endpoint in told["endpoints"].items():
            path = endpoint["path"].replace("{run_id}", run_id).replace("{session_id}", "s")
            answer = await served.ask(endpoint["method"], path, patience=1)
            # Whatever it has to say to this: it is there, and takes the method.
            assert answer.status != 405, name
            assert answer.status < 500, name
            assert b"path_not_found" not in answer.body, name


async def test_a_feature_is_true_only_if_there_is_an_endpoint_for_it(inside):
    needs = {
        "run_submission": "run_submission",
        "run_status": "run_status",
        "run_list": "run_list",
        "run_events_sse": "run_events",
        "run_events_resumable": "run_events",
        "run_steer": "run_steer",
        "run_stop": "run_stop",
        "run_approval_response": "run_approval",
        "run_idempotency": "run_submission",
        "approval_events": "run_events",
        "approval_identity_v1": "run_approval",
        "tool_progress_events": "run_events",
        "chat_completions": "chat_completions",
        "chat_completions_streaming": "chat_completions",
        "session_continuity_header": "chat_completions",
        "responses_api": "responses",
        "responses_streaming": "response",
        "session_resources": "sessions",
        "session_chat": "session_chat",
        "session_chat_streaming": "session_chat_stream",
        "session_queue": "session_queue",
        "session_events_resumable": "session_events",
        "session_export": "session_export",
    }
    async with inside(ScriptedModel()) as served:
        told = served.about.capabilities()
        features = {name for name, there in told["features"].items() if there}
        assert features <= needs.keys()
        assert {needs[name] for name in features} <= told["endpoints"].keys()


@pytest.mark.parametrize(("auth", "required"), [("token", True), ("none", False)])
async def test_what_depends_on_the_settings_is_as_they_are(inside, auth, required):
    origins = ("https://page.example",) if required else ()
    settings = ServerSettings(auth=auth, cors_origins=origins)
    async with inside(ScriptedModel(), server=settings) as served:
        told = served.about.capabilities()
        assert told["auth"] == {"type": "bearer", "required": required}
        assert told["features"]["cors"] is required
        assert (told["object"], told["model"]) == ("hermes.api_server.capabilities", "demo")


async def test_tools_are_listed_with_what_they_may_do(inside):
    async with inside(ScriptedModel(), ScriptedTool("pay"), ScriptedTool("look", writes=False)) as (
        served
    ):
        (whole,) = (await served.get("/v1/toolsets")).json["data"]
        assert [(tool["name"], tool["writes"]) for tool in whole["tools"]] == [
            ("pay", True),
            ("look", False),
        ]
    async with inside(ScriptedModel()) as served:
        assert (await served.get("/v1/toolsets")).json["data"] == []


async def test_numbers_are_told_in_the_words_of_prometheus(inside):
    async with inside(ScriptedModel(["Hello"], [Silence()])) as served:
        ended = await served.run()
        await served.get(f"/v1/runs/{ended}?wait=30")
        live = await served.run()
        await served.get(f"/v1/runs/{live}?wait=1")
        answer = await served.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        numbers = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if line[0] != "#")
        assert numbers['holdfast_runs_ended_total{status="completed"}'] == "1.0"
        assert numbers['holdfast_runs{status="running"}'] == "1.0"
        assert numbers['holdfast_events_total{type="run.accepted"}'] == "2.0"
        assert numbers["holdfast_queue_length"] == numbers["holdfast_subscribers"] == "0.0"


async def test_a_run_that_is_being_stopped_is_counted_as_in_the_list_of_runs(inside):
    async def finish(_use):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)

    slow = ScriptedTool("slow", work=finish)
    async with inside(ScriptedModel([Call("slow")]), slow) as served:
        run_id = await served.run()
        assert (await served.get(f"/v1/runs/{run_id}?wait=0.5")).json["status"] == "running"
        await served.post(f"/v1/runs/{run_id}/stop")
        assert (await served.get("/v1/runs?status=stopping")).json["data"][0]["run_id"] == run_id
        numbers = (await served.get("/metrics")).text
        assert 'holdfast_runs{status="stopping"} 1.0' in numbers
        assert 'holdfast_runs{status="running"} 0.0' in numbers
        await served.get(f"/v1/runs/{run_id}?wait=5")
        assert 'holdfast_runs{status="stopping"} 0.0' in (await served.get("/metrics")).text
