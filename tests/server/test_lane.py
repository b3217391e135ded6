"""The requests of every run are answered on a lane of their own, as the routes would answer them."""

import pytest

from holdfast.server.lane import Lane
from holdfast.testing.scripted import ScriptedModel, Silence

#: Asked in another way, a request is for the routes.
PLAINLY, OTHERWISE = "/v1/runs", "/v1/runs/"


async def test_a_run_is_started_alike_on_both_ways(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        for number, path in enumerate((PLAINLY, OTHERWISE)):
            named = {
                "idempotency-key": f"key-{number}",
                "x-hermes-session-id": "talk",
                "x-hermes-session-key": "mine",
            }
            asked = {"input": "hi", "previous_response_id": "resp_unknown"}
            first, again = [await served.post(path, asked, headers=named) for _ in range(2)]
            run_id = first.json["run_id"]
            assert (first.status, again.status) == (202, 202)
            assert again.json == {"run_id": run_id, "status": "started", "replayed": True}
            for answer in (first, again):
                assert answer.headers["content-type"] == "application/json"
                assert int(answer.headers["content-length"]) == len(answer.body)
                assert answer.headers["x-run-id"] == run_id
                assert answer.headers["x-hermes-session-key"] == "mine"
            assert first.headers["x-holdfast-ignored"] == "previous_response_id"
            assert again.headers["idempotency-replayed"] == "true"
            assert (await served.get(f"/v1/runs/{run_id}")).json["session_id"] == "talk"


@pytest.mark.parametrize("path", [PLAINLY, OTHERWISE])
async def test_a_bad_request_is_refused_alike_on_both_ways(inside, path):
    async with inside(ScriptedModel()) as served:
        for body in (b"", b"[]", b"{", b'{"input": ""}', b'{"input": "\xff"}'):
            answer = await served.ask("POST", path, body=body)
            assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert (await served.get("/v1/runs")).json["data"] == []


async def test_a_run_is_followed_alike_on_both_ways(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        run_id = (await served.post("/v1/runs", {"input": "hi"})).json["run_id"]
        await served.get(f"/v1/runs/{run_id}?wait=30")
        events = f"/v1/runs/{run_id}/events"
        plainly, otherwise = await served.get(events), await served.get(f"{events}?after=0")
        assert (plainly.status, plainly.headers) == (200, otherwise.headers)
        assert plainly.body == otherwise.body
        seen = {"last-event-id": "2"}
        plainly = await served.get(events, headers=seen)
        assert plainly.body == (await served.get(f"{events}?after=1", headers=seen)).body
        assert plainly.body == (await served.get(f"{events}?after=2")).body


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_run_is_stopped_alike_on_both_ways(inside, slash):
    async with inside(ScriptedModel([Silence(600)])) as served:
        run_id = (await served.post("/v1/runs", {"input": "hi"})).json["run_id"]
        stop = f"/v1/runs/{run_id}/stop{slash}"
        for body in (b'{"reason": "enough"}', b"no object"):
            answer = await served.ask("POST", stop, body=body)
            assert (answer.status, answer.json) == (200, {"run_id": run_id, "status": "stopping"})
            assert answer.headers["content-type"] == "application/json"
        ended = (await served.get(f"/v1/runs/{run_id}?wait=30")).json
        assert ended["status"] == "cancelled"
        journal = (await served.get(f"/v1/runs/{run_id}/journal")).text
        assert '"by":"ada","reason":"enough"' in journal
        answer = await served.post(stop)
        assert (answer.status, answer.error["code"]) == (404, "run_ended")
        answer = await served.post(f"/v1/runs/run_none/stop{slash}")
        assert (answer.status, answer.error["code"]) == (404, "run_not_found")


async def test_what_every_run_needs_does_not_wait_for_the_routes(inside):
    async def routes(scope, receive, send):
        raise AssertionError(f"{scope['path']} was for the lane")

    async with inside(ScriptedModel([Silence(600)])) as served:
        served.asgi = Lane(served.service, served.about, routes)
        run_id = (await served.post("/v1/runs", {"input": "hi"})).json["run_id"]
        assert (await served.post(f"/v1/runs/{run_id}/stop")).status == 200
        assert b"run.cancelled" in (await served.get(f"/v1/runs/{run_id}/events")).body
        assert (await served.get("/health")).status == 200


async def test_what_the_lane_takes_is_asked_in_one_way_only(inside):
    async with inside(ScriptedModel()) as served:
        for method, path in (("GET", "/v1/runs/x/stop"), ("POST", "/v1/runs/x/events")):
            assert (await served.ask(method, path)).status == 405
        for path in ("/v1/stop", "/stop", "/events", "stop"):
            assert (await served.ask("POST", path)).status == 404


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_that_it_lives_is_told_alike_on_both_ways(inside, path):
    async with inside(ScriptedModel()) as served:
        plainly, otherwise = await served.get(path), await served.get(f"{path}/")
        assert (plainly.status, plainly.headers) == (200, otherwise.headers)
        assert plainly.json == otherwise.json == served.about.health()


async def test_of_a_header_that_came_twice_the_first_counts_on_both_ways(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        for path in (PLAINLY, OTHERWISE):
            named = [("x-hermes-session-key", "mine"), ("x-hermes-session-key", "yours")]
            answer = await served.post(path, {"input": "hi"}, headers=named)
            assert answer.headers["x-hermes-session-key"] == "mine"


@pytest.mark.parametrize("query", ["", "?after=1"])
async def test_a_run_that_is_not_there_cannot_be_followed_on_either_way(inside, query):
    async with inside(ScriptedModel()) as served:
        answer = await served.get(f"/v1/runs/run_none/events{query}")
        assert (answer.status, answer.error["code"]) == (404, "run_not_found")


@pytest.mark.parametrize("path", [PLAINLY, OTHERWISE])
async def test_what_a_client_calls_its_session_comes_back_to_the_byte_and_has_an_end(inside, path):
    async with inside(ScriptedModel(["Hello"])) as served:
        # The name of a header is written in UTF-8 here, and so is what comes back.
        named = {"x-hermes-session-key": "käse:日本", "x-hermes-session-id": "größe 日本"}
        answer = await served.post(path, {"input": "hi"}, headers=named)
        assert answer.headers["x-hermes-session-key"] == "käse:日本"
        status = (await served.get(f"/v1/runs/{answer.json['run_id']}")).json
        assert status["session_id"] == "größe 日本"
        named["x-hermes-session-key"] = "é" * 129
        answer = await served.post(path, {"input": "hi"}, headers=named)
        assert (answer.status, answer.error["code"]) == (400, "invalid_session_key")
        assert answer.error["message"] == "Session key too long: it has more than 256 bytes"
        assert len((await served.get("/v1/runs")).json["data"]) == 1


async def test_whether_it_lives_can_be_asked_without_wanting_to_read_it(inside):
    async with inside(ScriptedModel()) as served:
        assert (await served.ask("HEAD", "/health")).status == 200
