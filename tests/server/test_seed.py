"""What clients of the runs wire have always relied on, asked of a real server from outside."""

import anyio
import pytest

pytestmark = pytest.mark.real_time

NOBODY = "run_nonexistent"
#: A run that lasts until it is stopped.
ENDLESS = [["begun", {"wait": 600}]]
TWO_PAYMENTS = [[{"call": "pay"}, {"call": "pay", "args": {"amount": 2}}], ["paid"]]


async def talking(host):
    """A run whose model has begun to speak, and will not end."""
    run_id = await host.run(ENDLESS)
    async with host.follow(run_id) as events:
        await events.until("message.delta")
    return run_id


async def asking(host, script=([{"call": "pay"}], ["paid"])):
    """A run that waits for a person, and its status."""
    run_id = await host.run(list(script))
    return run_id, await host.reached(run_id, "waiting_for_approval")


# --- start


async def test_a_start_is_answered_with_202_and_the_id_of_a_run_that_can_be_asked_for(host):
    answer = await host.post("/v1/runs", {"input": "hello"})
    assert answer.status == 202
    assert answer.json["status"] == "started"
    assert answer.json["run_id"].startswith("run_")
    status = await host.status(answer.json["run_id"])
    assert status["object"] == "hermes.run"
    assert status["run_id"] == answer.json["run_id"]
    assert status["status"] in {"queued", "running", "completed"}
    assert status["created_at"] <= status["updated_at"]


async def test_what_is_not_json_is_refused_with_400(host):
    headers = {"Content-Type": "application/json"}
    answer = await host.post("/v1/runs", data="not json", headers=headers)
    assert answer.status == 400
    assert "Invalid JSON" in answer.error["message"]


@pytest.mark.parametrize("body", [{"model": "test"}, {"input": ""}, {"input": []}])
async def test_a_run_without_input_is_refused_with_400_and_told_what_is_missing(host, body):
    answer = await host.post("/v1/runs", body)
    assert answer.status == 400
    assert "input" in answer.error["message"]


@pytest.mark.parametrize(
    "history", [{"role": "user"}, "hi", [{"role": "user"}], [{"content": "hi"}], ["hi"]]
)
async def test_an_invalid_history_allocates_no_run(host, history):
    before = (await host.get("/v1/runs")).json
    answer = await host.post("/v1/runs", {"input": "hello", "conversation_history": history})
    assert answer.status == 400
    assert "conversation_history" in answer.error["message"]
    after = (await host.get("/v1/runs")).json
    assert [run["run_id"] for run in after["data"]] == [run["run_id"] for run in before["data"]]


async def test_a_new_server_has_no_runs_and_a_refused_one_adds_none(server):
    await server.start()
    body = {"input": "hello", "conversation_history": {"role": "user"}}
    assert (await server.post("/v1/runs", body)).status == 400
    assert (await server.get("/v1/runs")).json["data"] == []


# --- keys


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs"),
        ("GET", "/v1/runs/run_any"),
        ("GET", "/v1/runs/run_any/events"),
        ("GET", "/v1/runs/run_any/journal"),
        ("POST", "/v1/runs/run_any/approval"),
        ("POST", "/v1/runs/run_any/stop"),
        ("GET", "/v1/capabilities"),
        ("GET", "/v1/toolsets"),
        ("GET", "/health/detailed"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
    ],
)
async def test_nothing_is_told_or_done_without_the_key(host, method, path):
    body = {"json": {"input": "hello", "choice": "once"}} if method == "POST" else {}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": host.key}):
        answer = await host.ask(method, path, bare=True, headers=headers, **body)
        assert answer.status == 401
        assert answer.error["code"] == "invalid_api_key"
        assert answer.error["message"] == "Invalid API key"


async def test_with_a_key_of_ones_own_a_run_is_started(server):
    key = "sk-a-secret-of-my-own-0123"
    await server.start(env={"HOLDFAST_API_KEY": key})
    answer = await server.post(
        "/v1/runs", {"input": "hello"}, bare=True, headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.status == 202
    assert (await server.post("/v1/runs", {"input": "hello"}, bare=True)).status == 401


async def test_whether_it_lives_is_told_to_anybody(host):
    for path in ("/health", "/v1/health"):
        answer = await host.get(path, bare=True)
        assert answer.status == 200
        assert answer.json["status"] == "ok"


# --- status


async def test_a_completed_run_has_its_output_its_usage_and_its_last_event(host):
    status = await host.ended(await host.run([["do", "ne"]]))
    assert status["status"] == "completed"
    assert status["output"] == "done"
    usage = status["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] == 12
    assert status["last_event"] == "run.completed"


async def test_the_session_that_was_asked_for_is_in_the_status(host):
    status = await host.ended(await host.run("hello", session_id="space-session"))
    assert status["session_id"] == "space-session"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/journal"),
        ("POST", "/stop"),
        ("POST", "/approval"),
    ],
)
async def test_a_run_that_never_was_is_not_found(host, method, path):
    body = {"json": {"choice": "once"}} if path == "/approval" else {}
    answer = await host.ask(method, f"/v1/runs/{NOBODY}{path}", **body)
    assert answer.status == 404
    assert answer.error["code"] == "run_not_found"


# --- events


async def test_the_stream_of_a_run_has_its_text_and_its_end(host):
    run_id = await host.run("hello")
    answer = await host.get(f"/v1/runs/{run_id}/events")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "run.completed" in answer.text
    assert "Hello!" in answer.text
    assert answer.text.endswith(": stream closed\n\n")


async def test_every_frame_names_its_event_its_run_and_its_time(host):
    run_id = await host.run("hello")
    for frame in await host.frames(run_id):
        assert frame.data["run_id"] == run_id
        assert isinstance(frame.data["timestamp"], float)
        assert "." in frame.event


# --- approvals


async def test_an_answer_nobody_waits_for_is_refused_with_409(host):
    live = await talking(host)
    answer = await host.post(f"/v1/runs/{live}/approval", {"choice": "once"})
    assert (answer.status, answer.error["code"]) == (409, "approval_not_pending")
    await host.post(f"/v1/runs/{live}/stop")

    done = await host.run("hello")
    await host.ended(done)
    answer = await host.post(f"/v1/runs/{done}/approval", {"choice": "once"})
    assert (answer.status, answer.error["code"]) == (409, "approval_not_active")


@pytest.mark.parametrize("body", [{"choice": "perhaps"}, {"choice": None}, {"choice": 1}, {}])
async def test_an_answer_that_is_none_is_refused_with_400_and_settles_nothing(host, body):
    run_id, _ = await asking(host)
    answer = await host.post(f"/v1/runs/{run_id}/approval", body)
    assert (answer.status, answer.error["code"]) == (400, "invalid_approval_choice")
    assert (await host.status(run_id))["status"] == "waiting_for_approval"
    await host.post(f"/v1/runs/{run_id}/stop")


@pytest.mark.parametrize(
    ("choice", "understood"),
    [("once", "once"), (" Approve ", "once"), ("allow", "once"), ("session", "session")],
)
async def test_a_yes_lets_the_call_run_and_the_run_complete(host, choice, understood):
    run_id, _ = await asking(host)
    answer = await host.post(f"/v1/runs/{run_id}/approval", {"choice": choice})
    assert answer.status == 200
    assert answer.json["object"] == "hermes.run.approval_response"
    assert answer.json["run_id"] == run_id
    assert (answer.json["choice"], answer.json["resolved"]) == (understood, 1)
    assert (await host.ended(run_id))["output"] == "paid"
    frames = await host.frames(run_id)
    responded = next(frame.data for frame in frames if frame.event == "approval.responded")
    assert (responded["choice"], responded["resolved"]) == (understood, 1)
    assert "tool.started" in [frame.event for frame in frames]


async def test_a_no_keeps_the_call_from_running_and_the_run_goes_on(host):
    run_id, _ = await asking(host)
    await host.post(f"/v1/runs/{run_id}/approval", {"choice": "deny"})
    assert (await host.ended(run_id))["status"] == "completed"
    assert "tool.started" not in [frame.event for frame in await host.frames(run_id)]


@pytest.mark.parametrize("all", ["false", "0", "no", "off", "maybe", False, 0, None])
@pytest.mark.parametrize("field", ["all", "resolve_all"])
async def test_what_does_not_say_all_never_settles_more_than_one(host, field, all):
    run_id, status = await asking(host, TWO_PAYMENTS)
    first, second = (approval["approval_id"] for approval in status["approvals"])
    path = f"/v1/runs/{run_id}/approval"
    unclear = await host.post(path, {"choice": "once", field: all})
    assert (unclear.status, unclear.error["code"]) == (409, "approval_ambiguous")
    named = await host.post(path, {"choice": "once", field: all, "approval_id": first})
    assert (named.status, named.json["approval_ids"]) == (200, [first])
    last = await host.post(path, {"choice": "deny", field: all})
    assert (last.status, last.json["approval_ids"]) == (200, [second])
    assert (await host.ended(run_id))["status"] == "completed"


@pytest.mark.parametrize("all", ["true", " TRUE ", "1", "yes", "on", True, 1])
@pytest.mark.parametrize("field", ["all", "resolve_all"])
async def test_what_says_all_settles_all(host, field, all):
    run_id, _ = await asking(host, TWO_PAYMENTS)
    answer = await host.post(f"/v1/runs/{run_id}/approval", {"choice": "once", field: all})
    assert (answer.status, answer.json["resolved"]) == (200, 2)
    assert (await host.ended(run_id))["output"] == "paid"


# --- stop


async def test_a_stop_is_answered_at_once_and_the_run_ends_cancelled(host):
    run_id = await talking(host)
    answer = await host.post(f"/v1/runs/{run_id}/stop")
    assert answer.status == 200
    assert answer.json == {"run_id": run_id, "status": "stopping"}
    status = await host.status(run_id)
    assert status["status"] in {"stopping", "cancelled"}
    status = await host.ended(run_id)
    assert (status["status"], status["last_event"]) == ("cancelled", "run.cancelled")
    stopped = next(f.data for f in await host.frames(run_id) if f.event == "run.stopping")
    assert stopped["reason"] == "Stop requested via API"


async def test_a_run_that_has_ended_cannot_be_stopped(host):
    run_id = await host.run("hello")
    await host.ended(run_id)
    answer = await host.post(f"/v1/runs/{run_id}/stop")
    assert (answer.status, answer.error["code"]) == (404, "run_ended")
    assert (await host.status(run_id))["status"] == "completed"


async def test_a_run_may_be_stopped_again_while_it_lives(host):
    run_id = await host.run([[{"call": "slow"}]])
    async with host.follow(run_id) as events:
        await events.until("tool.started")
    for _ in range(3):
        answer = await host.post(f"/v1/runs/{run_id}/stop")
        assert (answer.status, answer.json["status"]) == (200, "stopping")
        assert (await host.status(run_id))["status"] == "stopping"
    assert (await host.ended(run_id))["status"] == "cancelled"
    # It was said three times and is told once.
    events = [frame.event for frame in await host.frames(run_id)]
    assert events.count("run.stopping") == 1


async def test_a_tool_that_makes_a_fuss_when_cut_off_does_not_spoil_the_stop(host):
    run_id = await host.run([[{"call": "stubborn"}]])
    async with host.follow(run_id) as events:
        await events.until("tool.started")
    answer = await host.post(f"/v1/runs/{run_id}/stop")
    assert (answer.status, answer.json["status"]) == (200, "stopping")
    stopped = await host.ended(run_id)
    assert stopped["status"] == "cancelled"
    # What went wrong is on the receipt.
    assert stopped["receipt"]["problems"] == ["stubborn: RuntimeError: I will not be cut off"]
    assert len(stopped["receipt"]["tool_calls"]) == 1


async def test_a_stop_ends_the_stream(host):
    run_id = await host.run(ENDLESS)
    async with host.follow(run_id) as events:
        await events.until("message.delta")
        assert (await host.post(f"/v1/runs/{run_id}/stop")).status == 200
        with anyio.fail_after(5):
            frames = await events.all()
    assert frames[-1].event == "run.cancelled"
    assert events.comments[-1] == b": stream closed"


async def test_a_stop_needs_no_body_and_is_not_refused_for_a_strange_one(host):
    json, form = "application/json", "application/x-www-form-urlencoded"
    for body, kind in (
        (b"", json),
        (b"not json", json),
        (b"[]", json),
        (b"reason=enough", form),
        (b"enough", "text/plain"),
        (b"\xff", "application/octet-stream"),
    ):
        run_id = await talking(host)
        headers = {"Content-Type": kind}
        answer = await host.post(f"/v1/runs/{run_id}/stop", data=body, headers=headers)
        assert answer.status == 200, kind
        assert (await host.ended(run_id))["status"] == "cancelled"
