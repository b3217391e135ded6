import json

import anyio
import pytest
from litestar.exceptions import InternalServerException

from holdfast.calls.tasks import task_group
from holdfast.config import ServerSettings
from holdfast.errors import StoreUnavailable
from holdfast.ports import Review
from holdfast.server.asgi import ROUTES, make_routes
from holdfast.server.keys import LOOK
from holdfast.server.openai.streams import LINGER
from holdfast.server.reference import DOCUMENT
from holdfast.server.service import Service
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence

ASK = Review(gate="ask", reason="it spends money", subject="pay 1", key="pay")


def paying():
    return ScriptedModel.by_turn([Call("pay")], ["paid"]), ScriptedTool(review=ASK)


class Broken(Service):
    """Fails in ways that nobody has foreseen, and in one that somebody has."""

    unforeseen = KeyError("the password is 1234")

    async def status(self, run_id, **how):
        raise self.unforeseen

    async def journal(self, run_id, *, after=0):
        raise StoreUnavailable("cannot open /secret/place")


# --- runs


async def test_a_run_is_started_asked_for_and_found_in_the_list_and_its_journal(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        started = await served.post("/v1/runs", {"input": "hi"})
        run_id = started.json["run_id"]
        assert (started.status, started.headers["x-run-id"]) == (202, run_id)
        assert started.json == {"run_id": run_id, "status": "started", "replayed": False}
        status = (await served.get(f"/v1/runs/{run_id}?wait=30")).json
        assert (status["status"], status["output"]) == ("completed", "Hello")
        page = (await served.get("/v1/runs")).json
        assert (page["object"], page["has_more"], page["next"]) == ("list", False, "")
        assert [run["run_id"] for run in page["data"]] == [run_id]
        journal = (await served.get(f"/v1/runs/{run_id}/journal")).json["data"]
        assert [line["seq"] for line in journal] == list(range(1, status["seq"] + 1))
        assert journal[0]["event"]["principal"] == "ada"
        last = (await served.get(f"/v1/runs/{run_id}/journal?after={status['seq'] - 1}")).json
        assert [line["event"]["type"] for line in last["data"]] == ["run.completed"]


async def test_how_large_a_body_may_be_is_for_the_guard_to_say(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        answer = await served.post("/v1/runs", {"input": "hi", "note": "x" * 11_000_000})
        assert answer.status == 202, answer.text


async def test_a_repeated_request_is_said_to_be_one(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        key = {"idempotency-key": "k"}
        first = await served.post("/v1/runs", {"input": "hi"}, headers=key)
        again = await served.post("/v1/runs", {"input": "hi"}, headers=key)
        assert again.json == {**first.json, "replayed": True}
        assert again.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers


async def test_what_is_wrong_with_a_request_is_said_before_anything_of_its_key(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        key = {"idempotency-key": "k"}
        await served.post("/v1/runs", {"input": "hi"}, headers=key)
        answer = await served.post("/v1/runs", {"input": ""}, headers=key)
        assert (answer.status, answer.error["message"]) == (400, "Missing 'input' field")


async def test_the_key_of_a_session_is_said_back(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        key = {"x-hermes-session-key": "mine"}
        answer = await served.post("/v1/runs", {"input": "hi"}, headers=key)
        assert answer.headers["x-hermes-session-key"] == "mine"


async def test_a_stream_is_sent_as_one(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        run_id = await served.run()
        answer = await served.get(f"/v1/runs/{run_id}/events")
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.body.startswith(b"id: 1\ndata: ")
        last = (await served.get(f"/v1/runs/{run_id}")).json["seq"]
        rest = await served.get(
            f"/v1/runs/{run_id}/events?after=1", headers={"last-event-id": str(last - 1)}
        )
        assert rest.body.startswith(b"id: %d\n" % last)


async def test_an_approval_is_answered_and_its_refusal_has_a_code_of_its_own(inside):
    model, pay = paying()
    async with inside(model, pay) as served:
        run_id = await served.run()
        await served.get(f"/v1/runs/{run_id}?wait=1")
        answer = await served.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})
        assert (answer.status, answer.json["resolved"]) == (200, 1)
        assert answer.json["approval_ids"] == [answer.json["request_id"]]
        assert (await served.get(f"/v1/runs/{run_id}?wait=30")).json["output"] == "paid"
        late = await served.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})
        assert (late.status, late.error["code"]) == (409, "approval_not_active")


async def test_an_answer_that_settles_several_names_none_of_them(inside):
    model = ScriptedModel.by_turn([Call("pay"), Call("pay")], ["paid"])
    async with inside(model, ScriptedTool(review=ASK, parallel=True)) as served:
        run_id = await served.run()
        asked = (await served.get(f"/v1/runs/{run_id}?wait=1")).json["approvals"]
        assert all(one["request_id"] == one["approval_id"] for one in asked)
        answer = await served.post(f"/v1/runs/{run_id}/approval", {"choice": "once", "all": True})
        assert (answer.json["resolved"], answer.json["request_id"]) == (2, "")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/run_1", "/v1/responses/resp_1", "/health"])
async def test_what_may_be_asked_is_told_alike_to_who_asks_and_to_who_asks_wrongly(inside, path):
    async with inside(ScriptedModel()) as served:
        asked = await served.ask("OPTIONS", path)
        assert (asked.status, asked.body) == (204, b"")
        assert asked.headers["allow"] == (await served.ask("PUT", path)).headers["allow"]
        assert "GET" in asked.headers["allow"]
        heads = (await served.ask("HEAD", path)).status != 405
        assert ("HEAD" in asked.headers["allow"]) is heads


@pytest.mark.parametrize(("configured", "told"), [(404, 404), (200, 200)])
async def test_a_stop_of_what_has_ended_is_answered_as_configured(inside, configured, told):
    async with inside(
        ScriptedModel(["Hello"]), server=ServerSettings(stop_ended=configured)
    ) as served:
        run_id = await served.run()
        await served.get(f"/v1/runs/{run_id}?wait=30")
        answer = await served.post(f"/v1/runs/{run_id}/stop")
        assert answer.status == told
        if told == 200:
            assert answer.json == {"run_id": run_id, "status": "completed"}


@pytest.mark.parametrize("wait", ["soon", "-1", "-0.5", "nan", "inf", "1e12"])
async def test_a_wait_that_is_no_number_of_seconds_is_refused(inside, wait):
    async with inside(ScriptedModel([Silence()])) as served:
        answer = await served.get(f"/v1/runs/{await served.run()}?wait={wait}")
        assert (answer.status, answer.error["param"]) == (400, "wait")


@pytest.mark.parametrize(
    "asked",
    [
        ("GET", "/v1/runs/{}?wait=60", None),
        ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("POST", "/v1/responses", {"input": "hi"}),
        ("POST", "/api/sessions/s/chat", {"message": "hi"}),
    ],
)
async def test_whoever_waits_with_a_key_that_opens_no_more_is_told_so(inside, asked):
    method, path, fields = asked
    async with inside(ScriptedModel(["half", Silence()], ["half", Silence()])) as served:
        await served.post("/api/sessions", {"id": "s"})
        path, answers, keys = path.format(await served.run()), [], ["phone"]
        body = json.dumps(fields).encode() if fields else b""

        async def ask():
            answers.append(await served.ask(method, path, body, welcome=lambda: keys[0]))

        async with task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(5)
            assert answers == []
            keys[0] = None
            # Some see to it first that no run goes on for nobody.
            await anyio.sleep(LOOK + LINGER + 1)
            (answer,) = answers
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


async def test_a_run_that_ended_after_the_key_was_taken_away_is_not_told_of(inside):
    async with inside(ScriptedModel([Silence(5), "Hello"])) as served:
        began, run_id = anyio.current_time(), await served.run()
        answer = await served.get(
            f"/v1/runs/{run_id}?wait=60",
            welcome=lambda: "phone" if anyio.current_time() < began + 4.9 else None,
        )
        assert answer.status == 401 and b"Hello" not in answer.body


# --- what goes wrong


async def test_an_address_that_leads_nowhere_is_told_in_our_own_words(inside):
    async with inside(ScriptedModel()) as served:
        answer = await served.get("/v1/nothing")
        assert (answer.status, answer.error["code"]) == (404, "path_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/runs", {"GET", "POST"}),
        ("PUT", "/v1/runs/run_1", {"GET"}),
        ("GET", "/v1/runs/run_1/stop", {"POST"}),
        ("POST", "/health", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_told_which_would_be_right(inside, method, path, allowed):
    async with inside(ScriptedModel()) as served:
        answer = await served.ask(method, path)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) - {"OPTIONS"} == allowed
        assert answer.headers["allow"] in answer.error["message"]


async def test_what_the_framework_finds_wrong_is_told_in_our_envelope(inside):
    async with inside(ScriptedModel()) as served:
        answer = await served.get("/v1/runs/" + "x" * 300)
        assert answer.status == 400
        assert answer.error["type"] == "invalid_request_error"


async def test_an_error_that_was_foreseen_is_explained_and_gives_nothing_away(inside):
    async with inside(ScriptedModel()) as served:
        broken = Broken(served.app.runs, served.app.means, served.settings)
        served.asgi = make_routes(broken, served.about)
        answer = await served.get("/v1/runs/run_1/journal")
        assert (answer.status, answer.error["code"]) == (503, "store_unavailable")
        assert "secret" not in answer.text


@pytest.mark.parametrize("error", [KeyError("secret"), InternalServerException("secret")])
async def test_an_error_that_nobody_foresaw_is_left_to_the_guard(inside, error):
    async with inside(ScriptedModel()) as served:
        broken = Broken(served.app.runs, served.app.means, served.settings)
        broken.unforeseen = error
        served.asgi = make_routes(broken, served.about)
        with pytest.raises(type(error)):
            await served.get("/v1/runs/run_1")


# --- the reference


async def test_the_schema_has_every_route_but_those_that_show_it(inside):
    async with inside(ScriptedModel()) as served:
        schema = (await served.get("/openapi.json")).json
        described = {
            (method.upper(), path)
            for path, methods in schema["paths"].items()
            for method in methods
        }
        routes = {
            (method, path.replace(":str", "").replace(":path", ""))
            for handler in ROUTES
            for path in handler.paths
            for method in handler.http_methods
        }
        assert routes - described == {("GET", "/openapi.json"), ("GET", "/docs")}
        assert described <= routes
        assert schema["info"]["version"] == "1.2.3"


async def test_every_operation_says_what_it_is_for_and_what_may_go_wrong(inside):
    async with inside(ScriptedModel()) as served:
        schema = (await served.get("/openapi.json")).json
        for path, methods in schema["paths"].items():
            for operation in methods.values():
                assert operation["summary"]
                assert all(one["description"] for one in operation.get("parameters", ()))
                if path not in {"/health", "/v1/health"}:
                    assert {"400", "401", "500", "503"} <= operation["responses"].keys()
                    assert operation.get("security", schema["security"]) == [{"token": []}]


async def test_the_schema_tells_which_bodies_are_taken(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        paths = (await served.get("/openapi.json")).json["paths"]
        bodies = {
            path: operations["post"]["requestBody"]
            for path, operations in paths.items()
            if "requestBody" in operations.get("post", {})
        }
        needed = {
            path: body["content"]["application/json"]["schema"].get("required")
            for path, body in bodies.items()
        }
        assert needed == {
            "/v1/runs": ["input"],
            "/v1/runs/{run_id}/approval": ["choice"],
            "/v1/runs/{run_id}/steer": ["input"],
            "/v1/runs/{run_id}/stop": None,
            "/v1/sessions": None,
            "/api/sessions": None,
            "/api/sessions/{session_id}/chat": ["message"],
            "/api/sessions/{session_id}/chat/stream": ["message"],
            "/v1/sessions/import": list(DOCUMENT),
            "/v1/chat/completions": ["messages"],
            "/v1/responses": ["input"],
        }
        assert [body["required"] for body in bodies.values()].count(False) == 3
        # Whatever comes with a stop, it is one.
        any_type = [path for path in bodies if "415" not in paths[path]["post"]["responses"]]
        assert any_type == ["/v1/runs/{run_id}/stop"]


async def test_the_page_shows_the_same_and_may_load_nothing(inside):
    async with inside(ScriptedModel()) as served:
        answer = await served.get("/docs")
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
        assert "POST /v1/runs/{run_id}/stop" in answer.text
