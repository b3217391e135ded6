"""What others get wrong at this wire, as sentences about what ours does instead."""

import json
from itertools import pairwise

import anyio
import pytest

from holdfast.testing.endpoint import Answer, Finish, Reset, Silence, Think, open_endpoint

pytestmark = pytest.mark.real_time

ENDLESS = [["begun", {"wait": 600}]]
#: Several turns, tools and thoughts, and done soon.
EVENTFUL = [
    [{"think": "hm"}, "I shall ", "work.", {"call": "work", "args": {"say": "first"}}],
    ["Again.", {"call": "work", "args": {"say": "second", "progress": "half way"}}],
    ["All ", "is ", "done."],
]
DEMO = '[models.demo]\nwire = "demo"\n'
QUICK_RETRY = """
[models.main.retry]
attempts = 3
total = 20
"""


def names(frames):
    return [frame.event for frame in frames]


def of(frames, *wanted):
    return [frame.data for frame in frames if frame.event in wanted]


def heard(frames):
    """What a careful reader shows in the end: words in their order, without those taken back."""
    words = []
    for id, data in frames:
        if data["event"] == "message.delta":
            words.append((id, data))
        elif data["event"] == "message.retracted":
            taken = (data["turn"], data["attempt"])
            words = [(n, d) for n, d in words if (d["turn"], d["attempt"]) != taken]
    return [data for _, data in words]


async def begun(server, script=ENDLESS, event="message.delta"):
    run_id = await server.run(script)
    async with server.follow(run_id) as events:
        await events.until(event)
    return run_id


# --- 1, 5: what was, stays


async def test_a_killed_server_forgets_no_run_and_no_event(server):
    await server.start_host()
    done = await server.run(EVENTFUL)
    await server.ended(done)
    before, story = await server.status(done), await server.frames(done)
    cut = await begun(server, [["begun", {"wait": 1}], ["never", "asked", "for"]])
    asking = await server.run([[{"call": "pay"}], ["paid"]])
    asked = await server.reached(asking, "waiting_for_approval")
    server.kill()

    await server.start_host()
    assert await server.status(done) == before
    assert await server.frames(done) == story
    middle = story[len(story) // 2].id
    rest = [frame for frame in story if frame.id and frame.id > middle]
    assert [f for f in await server.frames(done, after=middle) if f.id] == rest
    # What was under way is taken up again, and the words that were lost are taken back.
    assert (await server.ended(cut))["output"] == "begun"
    assert names(await server.frames(cut)).count("run.completed") == 1
    # Whoever was asked can still answer.
    assert (await server.status(asking))["approvals"] == asked["approvals"]
    path = f"/v1/runs/{asking}/approval"
    answer = await server.post(path, {"choice": "once", "approval_id": asked["approval"]["id"]})
    assert answer.status == 200
    assert (await server.ended(asking))["output"] == "paid"
    listed = (await server.get("/v1/runs")).json["data"]
    assert {run["run_id"] for run in listed} == {done, cut, asking}


async def test_a_stream_can_be_read_whole_as_often_as_one_likes(host):
    run_id = await host.run(EVENTFUL)
    live = await host.frames(run_id)
    assert [await host.frames(run_id) for _ in range(3)] == [live] * 3


# --- 2, 3, 4, 22, 23: readers


async def test_any_number_of_readers_get_everything(host):
    script = [["one ", {"wait": 0.3}, "two ", {"wait": 0.3}, "three"]]
    run_id = await host.run(script)
    stories = []

    async def read():
        stories.append(await host.frames(run_id))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(read)
    assert len(stories) == 50
    assert stories == [stories[0]] * 50
    assert names(stories[0])[-1] == "run.completed"


async def test_whoever_is_cut_off_anywhere_and_comes_back_misses_nothing_and_gets_nothing_twice(
    host,
):
    run_id = await host.run([["a ", {"wait": 0.2}, "b ", {"wait": 0.2}, "c"], *EVENTFUL[1:]])
    whole = await host.frames(run_id)
    pieces, seen = [], 0
    while seen < whole[-1].id and len(pieces) < len(whole):
        # One frame at a time, and then the line is cut.
        async with host.follow(run_id, last_event_id=seen) as events:
            async for frame in events:
                pieces.append(frame)
                if frame.id:
                    seen = frame.id
                    break
    assert pieces == whole


async def test_the_last_event_id_counts_more_than_the_address(host):
    run_id = await host.run(EVENTFUL)
    whole = await host.frames(run_id)
    last = whole[-1].id
    assert names(await host.frames(run_id, after=1, last_event_id=last - 1)) == ["run.completed"]
    assert await host.frames(run_id, after="nonsense") == whole


async def test_frames_have_rising_ids_up_to_where_the_run_stands(host):
    run_id = await host.run(EVENTFUL)
    frames = await host.frames(run_id)
    ids = [frame.id for frame in frames if frame.id is not None]
    assert all(one < next for one, next in pairwise(ids))
    assert ids[-1] == frames[-1].id == (await host.status(run_id))["seq"]


async def test_a_reader_who_leaves_takes_nothing_with_him(host):
    run_id = await begun(host, [["go ", {"wait": 0.3}, "on"]])
    assert (await host.ended(run_id))["output"] == "go on"


async def test_a_reader_who_does_not_read_holds_up_nobody(host):
    run_id = await host.run([[{"say": "0123456789" * 1000, "times": 300}]])
    async with host.follow(run_id) as stalled:
        assert (await host.ended(run_id))["status"] == "completed"
        others = await host.frames(run_id)
        late = await stalled.all()
    for frames in (others, late):
        assert "".join(data["delta"] for data in heard(frames)) == "0123456789" * 300_000


# --- 6, 7, 8: finding runs again


async def test_the_same_request_twice_is_one_run_even_after_a_kill(server):
    await server.start_host()
    key = {"Idempotency-Key": "order-1"}
    answers = []

    async def ask():
        answers.append(await server.post("/v1/runs", {"input": "hello"}, headers=key))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    server.kill()
    await server.start_host()
    await ask()
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["run_id"] for answer in answers}) == 1
    replayed = [answer.json["replayed"] for answer in answers]
    assert replayed.count(False) == 1 and replayed[-1]
    assert answers[-1].headers["Idempotency-Replayed"] == "true"
    assert len((await server.get("/v1/runs")).json["data"]) == 1

    other = await server.post("/v1/runs", {"input": "bye"}, headers=key)
    assert (other.status, other.error["code"]) == (409, "idempotency_key_conflict")
    spaced = {"Idempotency-Key": "two words"}
    bad = await server.post("/v1/runs", {"input": "hello"}, headers=spaced)
    assert (bad.status, bad.error["code"]) == (400, "invalid_idempotency_key")


async def test_runs_are_listed_newest_first_by_session_and_by_status_page_by_page(server):
    await server.start_host()
    ended = [await server.run("hello", session_id="a") for _ in range(5)]
    failed = await server.run([[{"fail": "no"}]], session_id="b")
    for run_id in (*ended, failed):
        await server.ended(run_id)
    live = await begun(server)

    async def listed(query=""):
        answer = await server.get(f"/v1/runs{query}")
        assert answer.status == 200, answer.text
        return [run["run_id"] for run in answer.json["data"]]

    assert await listed() == [live, failed, *reversed(ended)]
    assert await listed("?session_id=a") == ended[::-1]
    assert await listed("?status=completed") == ended[::-1]
    assert await listed("?status=failed") == [failed]
    assert await listed("?status=running") == [live]
    assert await listed("?status=cancelled") == []

    pages, next = [], ""
    while True:
        page = (await server.get(f"/v1/runs?limit=2&status=completed&after={next}")).json
        pages.append([run["run_id"] for run in page["data"]])
        next = page["next"]
        if not page["has_more"]:
            break
    assert [run_id for page in pages for run_id in page] == ended[::-1]
    assert all(len(page) <= 2 for page in pages)
    for query, param in (("limit=0", "limit"), ("limit=x", "limit"), ("status=odd", "status")):
        answer = await server.get(f"/v1/runs?{query}")
        assert (answer.status, answer.error["param"]) == (400, param)
    assert (await server.get("/v1/runs?after=run_none")).status == 404


async def test_the_status_in_a_list_is_the_status_of_the_run(host):
    run_id = await host.run("hello", session_id="s", metadata={"for": "me"})
    whole = await host.ended(run_id)
    brief = (await host.get("/v1/runs?limit=1&session_id=s")).json["data"][0]
    assert brief == {name: whole[name] for name in brief}
    assert brief["metadata"] == {"for": "me"}


# --- 9: what was not finished is not said to be completed


async def test_what_was_left_unfinished_is_not_passed_off_as_done(host):
    refused = await host.ended(await host.run([[{"fail": "I will not"}]]))
    assert refused["status"] == refused["last_event"].removeprefix("run.") == "failed"
    assert refused["error"] and "output" not in refused
    endless = [["more", {"call": "work"}]] * 5
    spent = await host.ended(await host.run(endless, max_turns=2))
    assert spent["status"] != "completed" or spent["incomplete"]
    stopped = await begun(host)
    await host.post(f"/v1/runs/{stopped}/stop")
    assert "output" not in await host.ended(stopped)


async def test_a_session_goes_on_with_what_was_said_however_it_is_named(server, config):
    def script(request):
        said = [message["content"] for message in request.body["messages"][1:]]
        return [" | ".join(said)]

    async with open_endpoint(script) as endpoint:
        await server.start(config(endpoint.url))
        first = await server.run("one", session_id="of-ada")
        assert (await server.ended(first))["output"] == "one"
        header = {"X-Hermes-Session-Id": "of-ada"}
        answer = await server.post("/v1/runs", {"input": "two"}, headers=header)
        second = await server.ended(answer.json["run_id"])
        assert (second["session_id"], second["output"]) == ("of-ada", "one | one | two")
        # What the body says counts more.
        body = {"input": "three", "session_id": "of-bob"}
        answer = await server.post("/v1/runs", body, headers=header)
        third = await server.ended(answer.json["run_id"])
        assert (third["session_id"], third["output"]) == ("of-bob", "three")


async def test_the_same_request_for_another_session_is_another_request(host):
    body, key = {"input": json.dumps([["hi"]])}, "for-a-session"
    told = [
        await host.post(
            "/v1/runs", body, headers={"Idempotency-Key": key, "X-Hermes-Session-Id": session}
        )
        for session in ("ses-a", "ses-a", "ses-b")
    ]
    assert told[0].json["run_id"] == told[1].json["run_id"]
    assert [answer.status for answer in told] == [202, 202, 409]
    refused = await host.post("/v1/runs", body, headers={"X-Hermes-Session-Id": "a/../b"})
    assert (refused.status, refused.error["code"]) == (400, "invalid_session_id")


async def test_a_reply_that_was_cut_short_says_so(server, config):
    async with open_endpoint(["Once upon", Finish("length")]) as endpoint:
        await server.start(config(endpoint.url))
        status = await server.ended(await server.run())
    assert status["status"] != "completed" or status["incomplete"]


# --- 10, 11, 12: many at once


async def test_sixty_runs_are_under_way_at_once_and_nothing_else_waits_for_them(host):
    runs = []

    async def start():
        runs.append(await begun(host))

    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(start)
        for _ in range(20):
            with anyio.fail_after(10):
                assert (await host.get("/health")).status == 200
    statuses = [(await host.status(run_id))["status"] for run_id in runs]
    assert statuses == ["running"] * 60

    async def stop(run_id):
        assert (await host.post(f"/v1/runs/{run_id}/stop")).status == 200
        assert (await host.ended(run_id))["status"] == "cancelled"

    async with anyio.create_task_group() as tasks:
        for run_id in runs:
            tasks.start_soon(stop, run_id)


async def test_what_cannot_be_carried_yet_is_queued_in_its_turn_and_only_then_refused(server):
    limits = "max_concurrent_runs = 2\nmax_queued_runs = 3\n"
    await server.start_host(limits + DEMO)
    carried = [await begun(server) for _ in range(2)]
    queued = [await server.run("hello") for _ in range(3)]
    places = [(await server.status(run_id)).get("place") for run_id in queued]
    assert places == [1, 2, 3]
    refused = await server.post("/v1/runs", {"input": "hello"})
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["Retry-After"] == "1"

    # Who waits can be stopped like anybody else, and makes room.
    assert (await server.post(f"/v1/runs/{queued[1]}/stop")).status == 200
    assert (await server.ended(queued[1]))["status"] == "cancelled"
    assert (await server.status(queued[2]))["place"] == 2
    another = await server.run("hello")
    for run_id in carried:
        await server.post(f"/v1/runs/{run_id}/stop")
    for run_id in (queued[0], queued[2], another):
        assert (await server.ended(run_id))["status"] == "completed"


async def test_a_run_that_was_allowed_to_go_on_says_its_place_while_others_are_carried(server):
    await server.start_host("max_concurrent_runs = 1\n" + DEMO)
    asking = await server.run([[{"call": "pay", "args": {"amount": 1}}], ["paid"]])
    await server.reached(asking, "waiting_for_approval")
    carried = await begun(server)
    queued = await server.run("hello")
    await server.post(f"/v1/runs/{asking}/approval", {"choice": "once"})
    places = {(await server.status(run_id)).get("place") for run_id in (asking, queued)}
    assert places == {1, 2}
    await server.post(f"/v1/runs/{carried}/stop")
    for run_id in (asking, queued):
        assert "place" not in await server.ended(run_id)


# --- 13, 20: stop


async def test_a_stop_does_not_wait_for_a_silent_model_and_hangs_up_on_it(server, config):
    async with open_endpoint([Silence()]) as endpoint:
        await server.start(config(endpoint.url))
        run_id = await server.run()
        await endpoint.received()
        with anyio.fail_after(10):
            assert (await server.post(f"/v1/runs/{run_id}/stop")).status == 200
            assert (await server.ended(run_id))["status"] == "cancelled"
            await endpoint.hung_up()
        assert len(endpoint.requests) == 1
        receipt = (await server.status(run_id))["receipt"]
    assert receipt["model_calls"] == 1


async def test_a_stop_does_not_wait_for_a_tool(host):
    run_id = await begun(host, [[{"call": "work", "args": {"seconds": 600}}]], "tool.started")
    with anyio.fail_after(10):
        await host.post(f"/v1/runs/{run_id}/stop")
        status = await host.ended(run_id)
    assert (status["status"], len(status["receipt"]["tool_calls"])) == ("cancelled", 1)


async def test_nothing_follows_a_stop_but_the_end(host):
    run_id = await begun(host, [[{"call": "slow"}], ["more"]], "tool.started")
    await host.post(f"/v1/runs/{run_id}/stop")
    seen = set()
    while "cancelled" not in seen:
        seen.add((await host.status(run_id))["status"])
    assert seen == {"stopping", "cancelled"}
    events = names(await host.frames(run_id))
    after = events[events.index("run.stopping") + 1 :]
    assert set(after) <= {"tool.completed", "run.cancelled"} and after[-1] == "run.cancelled"


# --- 14, 15, 16, 17: what a stream tells


async def test_reasoning_is_not_the_answer(server, config):
    async with open_endpoint([Think("let me see"), "Forty-two."]) as endpoint:
        await server.start(config(endpoint.url, wire="anthropic"))
        run_id = await server.run()
        frames = await server.frames(run_id)
    thought = "".join(data["delta"] for data in of(frames, "reasoning.delta"))
    (available,) = of(frames, "reasoning.available")
    assert thought == available["text"] == "let me see"
    assert of(frames, "run.completed")[0]["output"] == "Forty-two."


async def test_each_call_of_a_tool_can_be_told_from_every_other(host):
    calls = [{"call": "work", "args": {"say": say, "seconds": 0.1}} for say in ("one", "two")]
    wrong = {"call": "work", "args": {"fail": "out of order"}}
    frames = await host.frames(await host.run([[*calls, wrong]]))
    started = {data["call_id"]: data for data in of(frames, "tool.started")}
    completed = {data["call_id"]: data for data in of(frames, "tool.completed")}
    assert len(started) == 3 and started.keys() == completed.keys()
    for call_id, data in completed.items():
        args = started[call_id]["args"]
        assert data["tool"] == started[call_id]["tool"] == "work"
        assert data["toolCallId"] == started[call_id]["toolCallId"] == call_id
        if "say" in args:
            assert (data["result"], data["error"]) == (args["say"], False)
            assert data["duration"] >= 0.1
        else:
            assert data["error"] and "out of order" in data["result"]


async def test_what_a_tool_tells_on_its_way_is_told_under_its_call(host):
    frames = await host.frames(await host.run(EVENTFUL))
    (progress,) = of(frames, "tool.progress")
    assert progress["text"] == "half way"
    assert progress["call_id"] == of(frames, "tool.started")[1]["call_id"]


async def test_the_deltas_of_the_last_turn_add_up_to_the_output(host):
    run_id = await host.run(EVENTFUL)
    frames = await host.frames(run_id)
    words = heard(frames)
    last = max(data["turn"] for data in words)
    said = "".join(data["delta"] for data in words if data["turn"] == last)
    output = (await host.status(run_id))["output"]
    assert said == output == of(frames, "run.completed")[0]["output"] == "All is done."
    # For a reader who knows nothing of turns there is a blank line between them.
    assert "".join(d["delta"] for d in words) == "I shall work.\n\nAgain.\n\nAll is done."


async def test_a_retry_is_told_and_its_words_are_taken_back(server, config):
    async with open_endpoint(["Hel", Silence(1), Reset()], ["Hel", "lo"]) as endpoint:
        await server.start(config(endpoint.url, more=QUICK_RETRY))
        run_id = await server.run()
        async with server.follow(run_id) as events:
            live = await events.all()
        again = await server.frames(run_id)
    phases = of(live, "run.phase")
    assert {"first_event", "retry"} <= {phase["waiting_for"] for phase in phases}
    (failure,) = [phase["failure"] for phase in phases if "failure" in phase]
    assert failure["reason"] == "reset"
    assert max(phase.get("attempt", 0) for phase in phases) == 2
    (retracted,) = of(live, "message.retracted")
    assert (retracted["turn"], retracted["attempt"]) == (1, 1)
    for frames in (live, again):
        assert "".join(data["delta"] for data in heard(frames)) == "Hello"
    # Who comes later never hears of words that were taken back.
    assert not of(again, "message.retracted")


async def test_a_fallback_is_told(server, config):
    backup = '[models.backup]\nwire = "openai-chat"\nmodel = "b"\nbase_url = "{}"\n'
    async with open_endpoint([Answer(404, "{}")]) as broken, open_endpoint(["Hi"]) as sound:
        more = 'fallback = ["backup"]\n' + backup.format(sound.url)
        await server.start('default_model = "main"\n' + config(broken.url, more=more))
        run_id = await server.run()
        frames = await server.frames(run_id)
    assert of(frames, "run.completed")[0]["output"] == "Hi"
    assert "backup" in {phase.get("name") for phase in of(frames, "run.phase")}


# --- 18, 19: requests


async def test_a_page_of_a_listed_origin_may_follow_a_run_and_no_other(server):
    page = {"Origin": "https://page.example"}
    await server.start_host('[server]\ncors_origins = ["https://page.example"]\n' + DEMO)
    run_id = await server.run("hello")
    for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/events", "/v1/runs", "/health"):
        answer = await server.get(path, headers=page)
        assert answer.status == 200
        assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"]
        assert "Origin" in answer.headers["Vary"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        other = await server.get(path, headers={"Origin": "https://other.example"})
        assert other.status == 403
        assert "Access-Control-Allow-Origin" not in other.headers
    asked = {**page, "Access-Control-Request-Method": "GET"}
    preflight = await server.ask("OPTIONS", f"/v1/runs/{run_id}/events", headers=asked, bare=True)
    assert preflight.status == 204
    allowed = preflight.headers["Access-Control-Allow-Headers"]
    assert {"Authorization", "Last-Event-ID", "Idempotency-Key"} <= set(allowed.split(", "))


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/{run_id}/approval"])
async def test_whatever_the_body_is_nobody_is_told_of_an_error_of_ours(host, path):
    run_id = await host.run([[{"call": "pay"}]])
    await host.reached(run_id, "waiting_for_approval")
    bodies = [
        b"[]",
        b'"x"',
        b"null",
        b"0",
        b"{",
        b"\xff\xfe",
        b'{"input": {}, "choice": {}}',
        b'{"input": 7, "choice": 7}',
        b'{"input": [{"role": "user"}]}',
        b'{"input": [[]]}',
        b'{"input": ["hi"]}',
        b'{"input": "\\ud800", "choice": "\\ud800"}',
        b'{"input": "a\\u0000b", "choice": "a\\u0000b"}',
        b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"input": "hi", "choice": "once", "all": []',
        b'{"input": "hi", "session_id": {}, "choice": []}',
        b'{"input": "hi", "tools": "all", "choice": ""}',
        b'{"input": "hi", "metadata": [], "choice": "1"}',
    ]
    for body in bodies:
        answer = await host.post(
            path.format(run_id=run_id), data=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status == 400, (body[:60], answer.text)
        assert answer.error["message"] and answer.error["type"] == "invalid_request_error"
    await host.post(f"/v1/runs/{run_id}/stop")


async def test_a_body_in_chunks_may_be_no_larger_than_any_other(server):
    await server.start("[server]\nbody_limit = 100000\n" + DEMO)

    async def chunks():
        yield b'{"input": "'
        for _ in range(20):
            yield b"x" * 10_000
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    for body in (chunks(), json.dumps({"input": "x" * 200_000})):
        answer = await server.post("/v1/runs", data=body, headers=headers)
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")


# --- 21: who did what


async def test_who_started_answered_and_stopped_a_run_is_on_record(host):
    run_id = await host.run([[{"call": "pay"}], *ENDLESS])
    await host.reached(run_id, "waiting_for_approval")
    await host.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})
    async with host.follow(run_id) as events:
        await events.until("message.delta")
    await host.post(f"/v1/runs/{run_id}/stop")
    journal = (await host.get(f"/v1/runs/{run_id}/journal")).json["data"]
    events = {line["event"]["type"]: line["event"] for line in journal}
    assert events["run.accepted"]["principal"] == "local"
    assert events["approval.answered"]["by"] == "local"
    assert events["stop.requested"]["by"] == "local"


# --- what is said to a run that is under way


async def test_a_run_hears_what_is_said_to_it_before_it_ends(host):
    turns = [[{"call": "work", "args": {"seconds": 0.5}}], ["heard"]]
    run_id = await begun(host, turns, "tool.started")
    answer = await host.post(f"/v1/runs/{run_id}/steer", {"input": "be quick"})
    told = {"run_id": run_id, "accepted": True, "object": "hermes.run.steer"}
    assert (answer.status, answer.json) == (200, told)
    assert (await host.ended(run_id))["status"] == "completed"
    assert "run.steered" in names(await host.frames(run_id))
    journal = (await host.get(f"/v1/runs/{run_id}/journal")).json["data"]
    said = next(line["event"] for line in journal if line["event"]["type"] == "input.added")
    assert said["parts"] == [{"type": "text", "text": "be quick"}] and said["by"]


async def test_a_run_that_ends_hears_nothing_any_more(host):
    done = await host.run([["done"]])
    await host.ended(done)
    stopping = await begun(host, [[{"call": "slow"}]], "tool.started")
    await host.post(f"/v1/runs/{stopping}/stop")
    for run_id in (done, stopping):
        answer = await host.post(f"/v1/runs/{run_id}/steer", {"input": "more"})
        assert (answer.status, answer.json["error"]["code"]) == (409, "run_not_accepting_steer")
    answer = await host.post(f"/v1/runs/{done}/steer", {"input": ""})
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_steer_input")
    answer = await host.post("/v1/runs/run_x/steer", {"input": "more"})
    assert (answer.status, answer.json["error"]["code"]) == (404, "run_not_found")


# --- 24, 25, 26: approvals


async def test_an_answer_settles_the_very_call_it_names(host):
    run_id = await host.run([[{"call": "pay", "args": {"amount": n}} for n in (1, 2)], ["paid"]])
    status = await host.reached(run_id, "waiting_for_approval")
    by_command = {one["command"]: one["approval_id"] for one in status["approvals"]}
    path = f"/v1/runs/{run_id}/approval"
    named = {"choice": "once", "approval_id": by_command["pay 2"]}
    assert (await host.post(path, named)).json["approval_ids"] == [by_command["pay 2"]]
    # One is answered and the other still waits, which is what the status says.
    status = await host.status(run_id)
    assert status["status"] == "waiting_for_approval"
    assert [one["command"] for one in status["approvals"]] == ["pay 1"]
    # Said again, it settles nothing more.
    again = await host.post(path, named)
    assert (again.status, again.error["code"]) == (409, "approval_settled")
    other = {"choice": "once", "request_id": "apr_of_somebody_else"}
    assert (await host.post(path, other)).status == 404
    await host.post(path, {"choice": "deny", "request_id": by_command["pay 1"]})
    await host.ended(run_id)
    started = of(await host.frames(run_id), "tool.started")
    assert [data["args"] for data in started] == [{"amount": 2}]


async def test_an_approval_that_nobody_answers_is_told_and_a_late_answer_approves_nothing(server):
    await server.start_host("[tools]\napproval_timeout = 2\n" + DEMO)
    run_id = await server.run([[{"call": "pay"}], [{"call": "pay", "args": {"amount": 9}}], ["x"]])
    async with server.follow(run_id) as events:
        first = (await events.until("approval.request"))[-1].data["approval_id"]
        expired = (await events.until("approval.expired"))[-1].data
        assert expired["approval_id"] == first
        second = (await events.until("approval.request"))[-1].data["approval_id"]
        late = {"choice": "once", "approval_id": first}
        answer = await server.post(f"/v1/runs/{run_id}/approval", late)
        assert (answer.status, answer.error["code"]) == (409, "approval_settled")
        rest = await events.until("run.completed")
    assert of(rest, "approval.expired")[0]["approval_id"] == second
    assert not of(await server.frames(run_id), "tool.started")


async def test_nothing_can_be_approved_once_a_stop_stands(host):
    # One run rests while it is asked for, the other is busy with a call that was approved.
    resting = await host.run([[{"call": "pay"}]])
    busy = await host.run([[{"call": "pay"}, {"call": "slow"}]])
    for run_id in (resting, busy):
        asked = (await host.reached(run_id, "waiting_for_approval"))["approval"]["id"]
        assert (await host.post(f"/v1/runs/{run_id}/stop")).status == 200
        for body in ({}, {"approval_id": asked}, {"all": True}):
            answer = await host.post(f"/v1/runs/{run_id}/approval", {"choice": "once", **body})
            assert (answer.status, answer.error["code"]) == (409, "approval_not_active")
        assert (await host.ended(run_id))["status"] == "cancelled"
        started = of(await host.frames(run_id), "tool.started")
        assert "pay" not in [data["tool"] for data in started]
