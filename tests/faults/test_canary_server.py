"""Keys come to a server through every door, and are found in no file, no log and no answer."""

import json
from base64 import b64encode
from urllib.parse import quote

import pytest

from holdfast.testing.endpoint import Answer, Reset, open_endpoint
from holdfast.testing.scripted import Call, Think
from tests.faults.serving import asked, model_at, serving

pytestmark = pytest.mark.real_time

DOOR = "hf-canary-of-the-door-0123456789"
MODEL = 'sk-canary/of"the\\model-987654321'
GATEWAY = "canary-of-the-gateway-5551234"
BOTH = f"{DOOR} and {MODEL} and {GATEWAY}"

#: Every way in which a file, a log or an answer may spell them.
SPELLINGS = [
    spelling.encode()
    for key in (DOOR, MODEL, GATEWAY)
    for spelling in (
        key,
        json.dumps(key)[1:-1],
        json.dumps(json.dumps(key)[1:-1])[1:-1],
        quote(key, safe=""),
        # Whatever stands before it: some of it is always the same.
        *(b64encode(bytes(before) + key.encode()).decode()[4:-4] for before in range(3)),
    )
]

#: As it stands in an address, and as bytes that are not text to anyone.
ODDLY = f"https://example.org/?key={quote(DOOR)} {b64encode(f'user:{DOOR}'.encode()).decode()}"


def hits(*heaps):
    return [spelling for heap in heaps for spelling in SPELLINGS if spelling in heap]


def hits_in(folder):
    """Files with one in it, under the name of each."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "api_key"]
    assert sum(path.stat().st_size for path in files) > 10_000
    return [path.name for path in files if hits(path.read_bytes())]


def begins(request):
    """Nothing was said but the first thing, and what a model is told before that."""
    return [message["role"] for message in request.body["messages"]] == ["system", "user"]


def script(request):
    """What a model says to what it is asked, with the keys in it as often as can be."""
    match request.headers["x-case"] if "x-case" in request.headers else asked(request):
        case said if "refuse" in said:
            return [Answer(401, json.dumps({"error": {"message": f"{BOTH} is no good"}}))]
        case said if "break" in said and begins(request):
            return [*BOTH[:40], Reset()]
        case said if "use" in said and begins(request):
            return [Think(BOTH), Call("send", json.dumps({"to": BOTH}), model_id=DOOR)]
        case _:
            return [*map(Think, BOTH), "these are ", *BOTH, " all of them"]


def requests():
    history = [{"role": "user", "content": BOTH}, {"role": "assistant", "content": BOTH}]
    everything = {
        "instructions": BOTH,
        "metadata": {"note": BOTH, DOOR: "a name"},
        "conversation_history": history,
        "message_id": DOOR,
        "model": DOOR,
        "provider": DOOR,
        "reasoning_effort": DOOR,
        "service_tier": DOOR,
    }
    yield {"input": f"echo {BOTH}", **everything}
    yield {"input": [{"role": "user", "content": [{"type": "text", "text": BOTH}]}]}
    for word in ("refuse", "use"):
        yield {"input": f"{word} {BOTH}"}
    yield {"input": f"echo {ODDLY}", "instructions": ODDLY}


def picture(raw):
    url = f"data:image/png;base64,{b64encode(raw).decode()}"
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


#: What names a thing or is kept to the byte cannot be masked; and nobody is told it again.
REFUSED = (
    ("POST", "/v1/runs", {"input": "hi", "session_id": DOOR}),
    ("POST", "/v1/runs", {"input": picture(DOOR.encode())}),
    ("POST", "/v1/runs", {"input": picture(b"\x89PNG\xff" + b64encode(DOOR.encode()))}),
    ("POST", "/v1/runs", {"input": "hi", "tools": [DOOR]}),
    ("POST", "/v1/runs", {"input": "hi", "on_busy": DOOR}),
    ("POST", "/v1/sessions", {"session_id": DOOR}),
    ("POST", "/v1/sessions", {"session_id": f"of-{DOOR}"}),
    ("POST", "/v1/sessions", {DOOR: 1}),
    ("PATCH", "/v1/sessions/of-ada", {DOOR: 1}),
    ("POST", "/v1/sessions/import", {DOOR: 1}),
    ("POST", "/api/sessions", {"id": DOOR}),
    ("POST", "/v1/responses", {"input": "hi", "conversation": DOOR}),
    ("POST", "/v1/responses", {"input": "hi", "previous_response_id": DOOR}),
    ("POST", "/v1/chat/completions", {"messages": picture(DOOR.encode())}),
    ("GET", f"/v1/runs/{DOOR}/events", None),
    ("GET", f"/v1/sessions/{DOOR}", None),
    ("GET", f"/v1/sessions/{DOOR}/events", None),
    ("GET", f"/v1/models/{DOOR}", None),
    ("GET", f"/{DOOR}", None),
)


async def test_a_key_is_refused_where_it_cannot_be_masked_and_not_repeated(tmp_path):
    async with open_endpoint(script) as endpoint:
        async with serving(tmp_path, model_at(endpoint), env={"HOLDFAST_API_KEY": DOOR}) as server:
            made = {"session_id": "of-ada", "title": DOOR, "instructions": ODDLY, "model": DOOR}
            assert (await server.post("/v1/sessions", made)).status == 201
            for method, path, body in REFUSED:
                answer = await server.ask(method, path, json=body)
                assert 400 <= answer.status < 500, (method, path, answer.text)
                assert hits(answer.body, repr(answer.headers).encode()) == [], (path, body)
            assert hits_in(server.data) == []
            assert await server.stop() == 0
            assert hits_in(server.data) == []
            assert hits(server.log.encode()) == []


#: As OpenAI's clients ask, streamed or not.
ASKED_OF_OPENAI = [
    (path, {field: [{"role": "user", "content": BOTH}], "stream": stream})
    for path, field in (("/v1/chat/completions", "messages"), ("/v1/responses", "input"))
    for stream in (False, True)
]


async def everything_said(server, run_id):
    """All that anyone can be told of a run."""
    frames = [json.dumps(frame.data).encode() for frame in await server.frames(run_id)]
    assert len(frames) > 3
    rest = [await server.get(f"/v1/runs/{run_id}{path}") for path in ("", "/journal")]
    return [*frames, *(answer.body for answer in rest)]


async def test_keys_are_found_in_no_file_no_log_and_no_answer(tmp_path):
    async with open_endpoint(script) as endpoint:
        config = model_at(endpoint).replace(
            "[models.main]",
            '[models.main]\napi_key_env = "THE_KEY"\n'
            f'headers = {{ "x-gateway" = "Bearer {GATEWAY}" }}',
        )
        env = {"HOLDFAST_API_KEY": DOOR, "THE_KEY": MODEL}
        async with serving(tmp_path, config, env=env) as server:
            said = []
            for number, body in enumerate(requests()):
                headers = {"Idempotency-Key": f"{DOOR}-{number}", "X-Hermes-Session-Key": BOTH}
                answer = await server.post("/v1/runs", body, headers=headers)
                assert answer.status == 202, answer.text
                said.append(repr(answer.headers).encode())
                run_id = answer.json["run_id"]
                await server.ended(run_id)
                said += await everything_said(server, run_id)
                # The same request again is still the same.
                again = await server.post("/v1/runs", body, headers=headers)
                assert again.json == {"run_id": run_id, "status": "started", "replayed": True}
            for path, body in ASKED_OF_OPENAI:
                headers = {"X-Hermes-Session-Key": BOTH}
                answer = await server.post(path, body, headers=headers)
                assert answer.status == 200, answer.text
                said += answer.body, repr(answer.headers).encode()
            for path in ("/v1/runs", "/health/detailed", "/v1/capabilities", "/metrics"):
                said.append((await server.get(path)).body)
            said.append((await server.get(f"/v1/runs/{DOOR}?wait={DOOR}")).body)
            assert b"[secret]" in b"".join(said)
            assert hits(*said) == []
            assert hits_in(server.data) == []
            server.kill()
            assert hits_in(server.data) == []
            await server.start(config, env=env)
            assert await server.stop() == 0
            assert hits_in(server.data) == []
            assert hits(server.log.encode(), (tmp_path / "out").read_bytes()) == []
        # The model was asked with its key, and was told neither.
        assert endpoint.requests[0].headers["authorization"] == f"Bearer {MODEL}"
        assert endpoint.requests[0].headers["x-gateway"] == f"Bearer {GATEWAY}"
        assert hits(*(json.dumps(request.body).encode() for request in endpoint.requests)) == []


async def test_what_a_stopped_run_has_shown_of_a_key_is_found_nowhere(tmp_path):
    async with open_endpoint(script) as endpoint:
        async with serving(tmp_path, model_at(endpoint), env={"HOLDFAST_API_KEY": DOOR}) as server:
            run_id = await server.run("break")
            # Stopped any sooner it would have shown nothing.
            await endpoint.received()
            await server.post(f"/v1/runs/{run_id}/stop", {"reason": DOOR})
            await server.ended(run_id)
            assert hits(*await everything_said(server, run_id)) == []
            assert hits_in(server.data) == []
            assert hits(server.log.encode()) == []


async def test_a_key_that_the_server_made_itself_is_found_in_its_own_file_alone(tmp_path):
    async with open_endpoint(lambda request: [asked(request)]) as endpoint:
        async with serving(tmp_path, model_at(endpoint)) as server:
            for _ in range(2):
                key = server.key.encode()
                run_id = await server.run(f"my key is {server.key}")
                await server.ended(run_id)
                said = await everything_said(server, run_id)
                assert not any(key in heap for heap in said)
                files = [path for path in server.data.rglob("*") if path.is_file()]
                assert [path.name for path in files if key in path.read_bytes()] == ["api_key"]
                assert await server.stop() == 0
                await server.start(model_at(endpoint))
