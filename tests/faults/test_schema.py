"""The server against its own description: whatever it is sent, it answers as it said it would."""

import json
import re

import anyio
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.app import open_app
from holdfast.config import Settings
from holdfast.server.asgi import make_routes
from holdfast.server.metrics import Metrics
from tests.server.conftest import HOST, Inside, Server

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(90), pytest.mark.seeds]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 5

#: What is told for as long as somebody listens.
ENDLESS = {"/v1/events", "/v1/sessions/{session_id}/events"}

#: What may be asked without a key.
OPEN = {("GET", "/health"), ("GET", "/v1/health")}

#: A run that asks whether it may pay, and has a long think afterwards.
PAYS = [[{"call": "pay", "args": {"amount": 7}}], ["Well, ", {"wait": 600}]]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("schema"))
    # Somebody who waits for an answer is answered at once, and is asked nothing.
    server.launch(
        '[models.demo]\nwire = "demo"\noptions = { pace = 0 }\n'
        '[tools]\nterminal = false\napproval = "deny"\n'
    )
    anyio.run(server.ready)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A server whose runs do as they are told, and ask."""
    server = Server(tmp_path_factory.mktemp("asking"))
    server.launch(command=HOST)
    anyio.run(server.ready)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ended(server):
    """The id of a run that has ended."""

    async def run():
        async with server.calling():
            run_id = await server.run()
            await server.post(f"/v1/runs/{run_id}/stop")
            return (await server.ended(run_id))["run_id"]

    return anyio.run(run)


@pytest.fixture(scope="module")
def talk(server):
    """The id of a session in which nothing is under way."""

    async def create():
        async with server.calling():
            return (await server.post("/v1/sessions", {"session_id": "talk"})).json["session_id"]

    return anyio.run(create)


@pytest.fixture(scope="module")
def schema(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=server.headers)


def operations(schema):
    return [found.ok() for found in schema.get_all_operations()]


def try_out(operation, mode, examples, check):
    """Have `check` called with requests of this kind, the same ones every time."""

    @hypothesis.seed(9)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def answer(case, known):
        check(case, known)

    answer()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
def test_every_answer_is_as_described(server, schema, ended, talk, mode):
    statuses = set()

    def check(case, known):
        if known and "run_id" in case.path_parameters:
            case.path_parameters["run_id"] = ended
        lasting = case.path not in ENDLESS and case.method.upper() != "DELETE"
        if known and "session_id" in case.path_parameters and lasting:
            case.path_parameters["session_id"] = talk
        if known and "id" in case.path_parameters and lasting:
            case.path_parameters["id"] = ended.replace("run_", "resp_")
        response = case.call(headers=server.headers, timeout=20)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    for operation in operations(schema):
        if operation.path != "/v1/events":
            # There are many of these, and what they share is tried with each.
            few = "/sessions" in operation.path or "/responses/" in operation.path
            try_out(operation, mode, EXAMPLES // 2 if few else EXAMPLES, check)
    assert statuses >= {200, 400, 404}
    assert server.log == ""


def test_whatever_is_done_to_a_run_in_whatever_order_every_answer_is_as_described(server, schema):
    asked = []

    class Walk(schema.include(path_regex="^/v1/runs").as_state_machine()):
        def get_call_kwargs(self, case):
            return {"headers": server.headers, "timeout": 20}

        def validate_response(self, response, case, **_more):
            case.validate_response(response, checks=CHECKS)
            asked.append((case.path.rpartition("/")[2], response.status_code))

    Walk.run(
        settings=hypothesis.settings(
            max_examples=3 * EXAMPLES,
            stateful_step_count=6,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
    )
    # Somebody came from a run to what is linked to it.
    assert {("runs", 202), ("events", 200)} <= set(asked)
    assert {"stop", "journal"} <= {path for path, _ in asked}
    assert server.log == ""


class Links:
    """A run from its start to all that is linked to it, each answer as it is described."""

    def __init__(self, server):
        self._server = server
        url = f"{server.url}/openapi.json"
        self._schema = schemathesis.openapi.from_url(url, headers=server.headers)
        self._start = self._schema["/v1/runs"]["POST"]
        described = self._schema.raw_schema["paths"]["/v1/runs"]["post"]["responses"]["202"]
        self._links = described["links"]

    def start(self, body, **headers):
        return self._ask(self._start, headers=headers, body=body)

    def follow(self, link, run_id, **body):
        operation = self._schema.find_operation_by_id(self._links[link]["operationId"])
        more = {"body": body} if body else {}
        return self._ask(operation, path_parameters={"run_id": run_id}, **more)

    def _ask(self, operation, **parts):
        case = operation.Case(**parts, media_type="application/json" if "body" in parts else None)
        response = case.call(headers=self._server.headers, timeout=20)
        case.validate_response(response, checks=CHECKS)
        return response


# The last would be an answer to all that is asked later.
@pytest.mark.parametrize("choice", ["once", "session", "deny", "always"])
def test_a_run_is_followed_answered_and_stopped_each_as_described(asking, choice):
    async def hear(event):
        async with asking.calling(), asking.follow(run_id) as events:
            return (await events.until(event))[-1].data

    links, body, key = Links(asking), {"input": json.dumps(PAYS)}, {"Idempotency-Key": choice}
    started = links.start(body, **key)
    run_id = started.json()["run_id"]
    assert started.status_code == 202 and not started.json()["replayed"]

    question = anyio.run(hear, "approval.request")
    # Asked a second time it is no second run; nor is it once that has ended.
    assert replayed(links.start(body, **key)) == run_id
    assert links.start({"input": "other"}, **key).status_code == 409
    assert links.follow("status", run_id).json()["status"] == "waiting_for_approval"
    assert links.follow("approval", run_id, choice="once", digest="0").status_code == 409
    shown = {"approval_id": question["approval_id"], "digest": question["digest"]}
    answered = links.follow("approval", run_id, choice=choice, **shown)
    assert (answered.status_code, answered.json()["resolved"]) == (200, 1)

    assert anyio.run(hear, "message.delta")["delta"] == "Well, "
    assert links.follow("approval", run_id, choice=choice, **shown).status_code == 409
    assert links.follow("steer", run_id, input="hurry").status_code == 200
    stopped = links.follow("stop", run_id)
    assert (stopped.status_code, stopped.json()["status"]) == (200, "stopping")
    told = links.follow("events", run_id)
    assert told.status_code == 200
    for event in ("approval.responded", "run.stopping", "run.cancelled"):
        assert told.text.count(f'"event":"{event}"') == 1
    assert links.follow("status", run_id).json()["status"] == "cancelled"
    assert links.follow("journal", run_id).status_code == 200
    assert replayed(links.start(body, **key)) == run_id
    assert asking.log == ""


def replayed(response):
    """The run that it leads to."""
    assert (response.status_code, response.json()["replayed"]) == (202, True)
    assert response.headers["idempotency-replayed"] == ["true"]
    return response.json()["run_id"]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
def test_whoever_has_no_key_gets_the_same_answer_whatever_they_send(server, schema, ended, mode):
    statuses = set()

    def check(case, known):
        if known and "run_id" in case.path_parameters:
            case.path_parameters["run_id"] = ended
        response = case.call(timeout=20)
        case.validate_response(response, checks=CHECKS)
        # 400 is what no server could make sense of.
        assert response.status_code in (400, 401)
        statuses.add(response.status_code)

    for operation in operations(schema):
        if (operation.method.upper(), operation.path) not in OPEN:
            try_out(operation, mode, 3, check)
    assert 401 in statuses


async def routed(folder):
    """Each method and address that the router knows, whether it is in the description or not."""
    settings = Settings(folder)
    async with open_app(models={}, tools=()) as app:
        inside = Inside(app, settings, Metrics())
        routes = make_routes(inside.service, inside.about).routes
    # Where a word of an address may be anything, only its name matters here.
    return {
        (method, re.sub(r":\w+\}", "}", route.path)) for route in routes for method in route.methods
    }


async def test_every_door_but_the_open_ones_wants_a_key(server, schema, tmp_path):
    doors = await routed(tmp_path)
    described = {(operation.method.upper(), operation.path) for operation in operations(schema)}
    assert doors > described >= OPEN
    assert doors >= {("GET", "/openapi.json"), ("GET", "/docs")}
    others = {(method, "/v1/runs") for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")}
    async with server.calling():
        for method, path in doors | others | {("GET", "/nothing/here")}:
            address = re.sub(r"\{\w+\}", "some_1", path)
            for bad in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": server.key}):
                answer = await server.ask(method, address, bare=True, headers=bad)
                expected = 200 if (method, path) in OPEN else 401
                assert answer.status == expected, (method, path)
                if expected == 401 and method != "HEAD":
                    assert answer.error["code"] == "invalid_api_key"
