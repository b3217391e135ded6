"""Chat completions over HTTP, on virtual time and without a socket."""

import base64

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.config import ModelSettings
from holdfast.core.messages import AssistantMessage, UserMessage, plain
from holdfast.errors import ModelRefused
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from tests.server.host_script import ask_about_money
from tests.server.openai.sse import DONE, events

CHAT = "/v1/chat/completions"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PICTURE = "data:image/png;base64," + base64.b64encode(PIXEL).decode()


def asking(*said, **fields):
    """A request in which a user and the assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": one} for n, one in enumerate(said or ("hi",))]
    return {"model": "demo", "messages": messages, **fields}


def heard(model, place=-1):
    """What a model was shown: who said what."""
    return [
        plain(one.parts) if isinstance(one, UserMessage) else one.text
        for one in model.requests[place].messages
        if isinstance(one, UserMessage | AssistantMessage)
    ]


def words(answer):
    return "".join(
        choice["delta"].get("content", "")
        for one in events(answer.body)
        if one.data != DONE
        for choice in one.data["choices"]
    )


async def runs(served):
    return (await served.get("/v1/runs")).json["data"]


async def test_the_models_are_listed_and_found_whatever_they_are_called(inside):
    others = ["maker/big", "maker//big", "/big", "big/", "%2F", "ü b"]
    named = {
        name: ModelSettings(name=name, wire="openai-chat", model=other)
        for name, other in zip(["demo", *"vwxyz"], others, strict=True)
    }
    async with inside(ScriptedModel(), models=named) as served:
        listed = (await served.get("/v1/models")).json
        assert [one["id"] for one in listed["data"]] == [*named, *others]
        # When the server began is all that is known of when they were made.
        assert {one["created"] for one in listed["data"]} == {int(served.service.began)}
        for row in listed["data"]:
            found = await served.get(f"/v1/models/{row['id']}")
            assert (found.status, found.json) == (200, row)
        missing = await served.get("/v1/models/other")
        assert (missing.status, missing.error["code"]) == (404, "model_not_found")
        for path in ("/v1/models", "/v1/models/demo", "/v1/models/maker/big"):
            posted = await served.post(path, {})
            assert (posted.status, posted.headers["allow"]) == (405, "GET, OPTIONS")


async def test_a_chat_is_answered_whole_or_as_it_comes(inside):
    async with inside(ScriptedModel(*[["Hel", "lo!"]] * 2)) as served:
        whole = await served.post(CHAT, asking())
        assert (whole.status, whole.json["choices"][0]["message"]["content"]) == (200, "Hello!")
        streamed = await served.post(CHAT, asking(stream=True))
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert (words(streamed), events(streamed.body)[-1].data) == ("Hello!", DONE)
        for answer in (whole, streamed):
            run_id = answer.headers["x-run-id"]
            status = (await served.get(f"/v1/runs/{run_id}")).json
            assert (status["status"], status["output"]) == ("completed", "Hello!")
            assert "session_id" not in status
        assert whole.json["id"] == f"chatcmpl-{whole.headers['x-run-id']}"
        assert (await served.get("/v1/sessions?archived=all")).json["data"] == []


async def test_usage_is_told_on_a_stream_if_it_is_asked_for(inside):
    async with inside(ScriptedModel(["Hi"], ["Hi"])) as served:
        plainly = await served.post(CHAT, asking(stream=True))
        fields = asking(stream=True, stream_options={"include_usage": True})
        asked = await served.post(CHAT, fields)
        assert not any(one.data.get("usage") for one in events(plainly.body)[:-1])
        assert events(asked.body)[-2].data["usage"]["total_tokens"] > 0


async def test_options_and_instructions_reach_the_model(inside):
    model = ScriptedModel(["Hi"])
    async with inside(model) as served:
        fields = asking(temperature=0.5, response_format={"type": "json_object"})
        fields["messages"].insert(0, {"role": "system", "content": "Be brief."})
        await served.post(CHAT, fields)
        request = model.requests[-1]
        assert request.options["temperature"] == 0.5
        assert request.options["response_format"] == {"type": "json_object"}
        assert request.instructions.endswith("Be brief.")


async def test_a_picture_reaches_the_model_and_is_looked_at_as_closely_as_was_asked(inside):
    model = ScriptedModel(["A dot."])
    async with inside(model) as served:
        picture = {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}
        await served.post(CHAT, asking([{"type": "text", "text": "What is this?"}, picture]))
        request = model.requests[-1]
        said, seen = request.messages[-1].parts
        assert (said.text, seen.detail) == ("What is this?", "low")
        assert request.blobs == {seen.blob.sha256: PIXEL}


async def test_tools_of_the_client_are_not_used_and_that_is_said(inside):
    async with inside(ScriptedModel(*[["Hi"]] * 3)) as served:
        tools = [{"type": "function", "function": {"name": "f"}}]
        for stream in (True, False):
            fields = asking(tools=tools, tool_choice="auto", stream=stream)
            answer = await served.post(CHAT, fields)
            assert answer.status == 200
            assert answer.headers["x-holdfast-ignored"] == "tools, tool_choice"
        assert "x-holdfast-ignored" not in (await served.post(CHAT, asking())).headers


async def test_what_cannot_be_asked_is_refused_and_no_run_is_begun(inside):
    async with inside(ScriptedModel(["Hi"])) as served:
        several = await served.post(CHAT, asking(n=2))
        assert (several.status, several.error["code"]) == (400, "unsupported_n")
        nothing = await served.post(CHAT, {"messages": []})
        assert (nothing.status, nothing.error["type"]) == (400, "invalid_request_error")
        led_out = await served.post(CHAT, asking(), headers={"X-Session-Id": "../x"})
        assert (led_out.status, led_out.error["code"]) == (400, "invalid_session_id")
        assert led_out.error["param"] == "X-Session-Id"
        assert await runs(served) == []


async def test_a_run_that_fails_without_a_word_is_an_error_that_names_it(inside):
    async with inside(ScriptedModel([ModelRefused("no")])) as served:
        answer = await served.post(CHAT, asking())
        assert (answer.status, answer.error["code"]) == (502, "agent_incomplete")
        assert (await runs(served))[0]["run_id"] == answer.headers["x-run-id"]
        # Once more would be another run.
        assert answer.headers["x-should-retry"] == "false"


async def test_a_run_that_fails_in_mid_sentence_is_an_answer_that_says_so(inside):
    async with inside(ScriptedModel(["Hel", ModelRefused("no")])) as served:
        answer = await served.post(CHAT, asking())
        (choice,) = answer.json["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hel", "error")
        told = {
            name: answer.headers[f"x-hermes-{name}"] for name in ("completed", "partial", "error")
        }
        assert told == {"completed": "false", "partial": "true", "error": "model"}


# --- sessions


@pytest.mark.parametrize("name", ["X-Hermes-Session-Id", "X-Session-Id"])
async def test_a_session_that_is_named_goes_on_by_what_the_client_sends(inside, name):
    model = ScriptedModel(["one"], ["two"], ["three"])
    async with inside(model) as served:
        first = await served.post(CHAT, asking("a"), headers={name: "s"})
        assert first.headers["x-hermes-session-id"] == "s"
        await served.post(CHAT, asking("b"), headers={name: "s"})
        assert heard(model) == ["a", "one", "b"]
        # This client has a memory of its own.
        await served.post(CHAT, asking("x", "y", "c"), headers={name: "s"})
        assert heard(model) == ["x", "y", "c"]
        listed = (await served.get("/v1/sessions")).json["data"]
        assert [(one["session_id"], one["runs"]) for one in listed] == [("s", 3)]


async def test_a_message_to_a_session_that_is_busy_waits_for_its_turn(inside):
    model = ScriptedModel([Silence(3), "one"], ["two"])
    async with inside(model) as served, task_group() as tasks:
        tasks.start_soon(lambda: served.post(CHAT, asking("a"), headers={"X-Session-Id": "s"}))
        await anyio.sleep(1)
        answer = await served.post(CHAT, asking("b"), headers={"X-Session-Id": "s"})
        assert answer.json["choices"][0]["message"]["content"] == "two"
        assert heard(model) == ["a", "one", "b"]


# --- once


@pytest.mark.parametrize("stream", [True, False])
async def test_a_repeat_under_the_same_key_attaches_to_the_same_run(inside, stream):
    async with inside(ScriptedModel([Silence(2), "Hello!"])) as served:
        answers = []

        async def ask():
            fields, named = asking(stream=stream), {"Idempotency-Key": "k"}
            answers.append(await served.post(CHAT, fields, headers=named))

        async with task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(1)
            tasks.start_soon(ask)
        await ask()
        first, *others = answers
        assert all(one.body == first.body for one in others)
        assert len(await runs(served)) == 1
        replayed = [one.headers.get("idempotency-replayed") for one in answers]
        assert sorted(map(str, replayed)) == ["None", "true", "true"]


async def test_a_key_is_for_one_request(inside):
    async with inside(ScriptedModel(["Hi"])) as served:
        named, fields = {"Idempotency-Key": "k"}, asking("a", input="a")
        assert (await served.post(CHAT, fields, headers=named)).status == 200
        for other in (
            await served.post(CHAT, asking("b", input="a"), headers=named),
            await served.post(CHAT, fields, headers={**named, "X-Session-Id": "s"}),
            await served.post("/v1/responses", fields, headers=named),
        ):
            assert (other.status, other.error["code"]) == (409, "idempotency_key_conflict")
            assert other.headers["x-should-retry"] == "false"


# --- people are asked


async def test_an_approval_is_shown_to_the_client_and_answered_where_runs_are(inside):
    model = ScriptedModel([Call("pay", "{}")], ["paid"])
    async with inside(model, ScriptedTool("pay", review=ask_about_money)) as served:
        answers = []

        async def ask():
            answers.append(await served.post(CHAT, asking(stream=True)))

        async with task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(1)
            (run,) = await runs(served)
            assert run["status"] == "waiting_for_approval"
            where = f"/v1/runs/{run['run_id']}/approval"
            assert (await served.post(where, {"choice": "once"})).status == 200
        names = [one.name for one in events(answers[0].body) if one.name]
        assert names == [
            "hermes.approval.request",
            "hermes.approval.responded",
            "hermes.tool.progress",
            "hermes.tool.progress",
        ]
        assert words(answers[0]) == "paid"


# --- too much


async def test_a_server_that_is_full_or_about_to_leave_says_when_to_come_back(inside):
    limits = {"max_concurrent_runs": 1, "max_queued_runs": 0}
    async with inside(ScriptedModel([Silence()]), **limits) as served:
        await served.run()
        full = await served.post(CHAT, asking(), patience=1)
        assert (full.status, full.error["type"]) == (429, "rate_limit_error")
        assert full.headers["retry-after"] == "1"
        served.service.draining.set()
        leaving = await served.post(CHAT, asking(), patience=1)
        assert (leaving.status, leaving.headers["retry-after"]) == (503, "1")
