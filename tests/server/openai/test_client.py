"""The official client against a server process, as people have it."""

import json
import subprocess
import sys
from functools import partial

import anyio
import openai
import pytest
from pydantic import BaseModel

from holdfast.calls.tasks import task_group
from holdfast.server.openai.rejoin import RETRIES
from tests.server.conftest import DEMO, PATIENCE

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(90)]


class Sum(BaseModel):
    sum: int


def script(*turns):
    """What the model of the host is to do, as one message."""
    return json.dumps(turns)


def asked(*turns):
    return [{"role": "user", "content": script(*turns)}]


def connect(server, **options):
    return openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key=server.key, **{"max_retries": 0, **options}
    )


@pytest.fixture
async def client(host):
    async with connect(host) as client:
        yield client


# --- chat


async def test_the_models_are_listed(client):
    assert [one.id async for one in client.models.list()] == ["demo"]
    assert (await client.models.retrieve("demo")).id == "demo"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_a_chat_is_answered(client):
    answer = await client.chat.completions.create(model="demo", messages=asked(["Hel", "lo!"]))
    assert answer.choices[0].message.content == "Hello!"
    assert (answer.choices[0].finish_reason, answer.usage.total_tokens > 0) == ("stop", True)


async def test_a_chat_is_streamed_with_thoughts_tools_and_usage(client):
    work = {"call": "work", "args": {"say": "worked"}}
    async with client.chat.completions.stream(
        model="demo",
        messages=asked([{"think": "hm"}, "Let me see.", work], ["Done."]),
        stream_options={"include_usage": True},
    ) as stream:
        thought, progress = "", []
        async for event in stream:
            if event.type == "chunk":
                more = event.chunk.model_extra
                progress += [more["status"]] if "toolCallId" in more else []
                for choice in event.chunk.choices:
                    thought += getattr(choice.delta, "reasoning_content", "") or ""
        answer = await stream.get_final_completion()
    assert (answer.choices[0].message.content, thought) == ("Let me see.\n\nDone.", "hm")
    assert (progress, answer.usage.total_tokens > 0) == (["running", "completed"], True)


async def test_structured_output_is_parsed(client):
    told = asked(['{"sum"', ": 2}"])
    chat = await client.chat.completions.parse(model="demo", messages=told, response_format=Sum)
    assert chat.choices[0].message.parsed == Sum(sum=2)
    response = await client.responses.parse(model="demo", input=told, text_format=Sum)
    assert response.output_parsed == Sum(sum=2)


# --- responses


async def test_a_response_is_streamed(client):
    stream = await client.responses.create(
        model="demo", input=script([{"think": "hm"}, "Hel", "lo!"]), stream=True
    )
    events = [event async for event in stream]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello!"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello!"
    later = await client.responses.retrieve(events[-1].response.id)
    assert later == events[-1].response


async def test_a_response_is_followed_again_by_its_id(client):
    begun = await client.responses.create(
        model="demo", input=script(["Hel", {"wait": 0.2}, "lo!"]), background=True
    )
    async with client.responses.stream(response_id=begun.id) as stream:
        events = [event async for event in stream]
        assert (await stream.get_final_response()).output_text == "Hello!"
    middle = events[len(events) // 2].sequence_number
    async with client.responses.stream(response_id=begun.id, starting_after=middle) as stream:
        rest = [event async for event in stream]
    assert [e.sequence_number for e in rest] == [
        e.sequence_number for e in events if e.sequence_number > middle
    ]


async def test_a_response_is_cancelled_and_deleted(client):
    begun = await client.responses.create(
        model="demo", input=script([{"wait": 600}]), background=True
    )
    cancelled = await client.responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert await client.responses.cancel(begun.id) == cancelled
    await client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(begun.id)


async def test_who_follows_a_response_that_is_deleted_is_cut_off_and_nobody_is_alarmed(
    client, host
):
    begun = await client.responses.create(
        model="demo", input=script(["a ", {"wait": 600}]), background=True
    )
    with pytest.raises(openai.APIConnectionError):
        async for event in await client.responses.retrieve(begun.id, stream=True):
            if event.type == "response.output_text.delta":
                await client.responses.delete(begun.id)
    assert host.log == ""


async def test_what_was_asked_is_listed_page_by_page(client):
    said = [{"role": "user", "content": f"{n}"} for n in range(5)]
    response = await client.responses.create(model="demo", input=said)
    items = client.responses.input_items.list(response.id, limit=2, order="asc")
    assert [item.content[0].text async for item in items] == ["0", "1", "2", "3", "4"]


async def test_a_conversation_is_gone_on_with(client):
    first = await client.responses.create(model="demo", input=script(["one"], ["two"], ["three"]))
    second = await client.responses.create(
        model="demo", input="and then?", previous_response_id=first.id
    )
    assert (first.output_text, second.output_text) == ("one", "two")


# --- errors


async def test_a_run_that_failed_is_not_asked_for_again(host):
    session = {"X-Session-Id": "failed"}
    async with connect(host, max_retries=2) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(
                model="demo",
                messages=asked([{"call": "work"}], [{"fail": "no"}]),
                extra_headers=session,
            )
    assert len((await host.get("/v1/runs?session_id=failed")).json["data"]) == 1


async def test_errors_are_those_of_the_client(client, host):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="demo", messages=asked(["x"]), n=2)
    assert (caught.value.code, caught.value.param) == ("unsupported_n", "n")
    with pytest.raises(openai.NotFoundError) as missing:
        await client.responses.retrieve("resp_none")
    assert missing.value.code == "response_not_found"
    with pytest.raises(openai.InternalServerError) as failed:
        await client.chat.completions.create(model="demo", messages=asked([{"fail": "no"}]))
    assert failed.value.code == "agent_incomplete"
    with pytest.raises(openai.APIError, match="no"):
        stream = await client.chat.completions.create(
            model="demo", messages=asked(["a", {"fail": "no"}]), stream=True
        )
        [chunk async for chunk in stream]
    key = {"Idempotency-Key": "errors"}
    await client.responses.create(model="demo", input="a", extra_headers=key)
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model="demo", input="b", extra_headers=key)
    async with connect(host) as stranger:
        stranger.api_key = "nonsense"
        with pytest.raises(openai.AuthenticationError) as stopped:
            await stranger.models.list()
    assert stopped.value.code == "invalid_api_key"


# --- asking again


async def ask(client, answers, said, *, path, headers=None):
    """Once: that it may take more requests than one is the client's own affair."""
    if path == "responses":
        answer = await client.responses.create(model="demo", input=said, extra_headers=headers)
        answers.append(answer.output_text)
    else:
        answer = await client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": said}], extra_headers=headers
        )
        answers.append(answer.choices[0].message.content)


SLOW, SLOWER = (script(["slow", {"wait": seconds}, "ly"]) for seconds in (0.8, 2))
WAYS = (
    {"path": "chat"},
    {"path": "chat", "headers": {"X-Session-Id": "talk"}},
    {"path": "responses"},
)


async def slow_ones(server):
    """The runs of all that was asked, once each has said something."""
    with anyio.fail_after(PATIENCE):
        while True:
            runs = (await server.get("/v1/runs?limit=100")).json["data"]
            found = [run for run in runs if run["input"].startswith('[["slow')]
            if sum(run["seq"] > 3 for run in found) >= len(WAYS):
                return {run["run_id"] for run in found}
            await anyio.sleep(0.02)


async def test_a_client_that_loses_the_line_is_told_what_it_asked_for(client, host):
    answers = []
    async with task_group() as tasks:
        for way in WAYS:
            tasks.start_soon(partial(ask, client, answers, SLOWER, **way))
        before = await slow_ones(host)
        tasks.cancel_scope.cancel()
    # As long as a client waits at least before it asks again.
    await anyio.sleep(0.375)
    async with task_group() as tasks:
        for way in WAYS:
            again = {**way, "headers": {**way.get("headers", {}), RETRIES: "1"}}
            tasks.start_soon(partial(ask, client, answers, SLOWER, **again))
    assert answers == ["slowly"] * len(WAYS)
    assert await slow_ones(host) == before


async def test_a_client_whose_server_was_killed_is_told_by_the_next_what_it_asked_for(server):
    await server.start_host()
    answers = []
    async with connect(server, max_retries=20) as client, task_group() as tasks:
        for way in WAYS:
            tasks.start_soon(partial(ask, client, answers, SLOW, **way))
        before = await slow_ones(server)
        server.kill()
        await server.start_host()
    assert answers == ["slowly"] * len(WAYS)
    assert await slow_ones(server) == before


# --- what no other server gives

WORDS = [f"w{n} " for n in range(20)]
BEGIN = """
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2])
for event in client.responses.create(model="demo", input=sys.argv[3], background=True, stream=True):
    print(event.sequence_number, event.response.id if "response" in event.model_fields_set else "")
    sys.stdout.flush()
"""


def begin(server, asked, told):
    words = [sys.executable, "-c", BEGIN, f"{server.url}/v1", server.key, asked]
    with told.open("w") as out:
        return subprocess.Popen(words, stdout=out)


async def test_a_response_outlives_its_client_and_its_server(server, tmp_path):
    await server.start_host("[server]\ndrain = 0\n" + DEMO)
    paced = [one for word in WORDS for one in (word, {"wait": 0.08})]
    told = tmp_path / "told"
    first = begin(server, script(paced), told)
    try:
        with anyio.fail_after(PATIENCE):
            while told.read_text().count("\n") < 8:
                await anyio.sleep(0.01)
    finally:
        first.kill()
        first.wait()
    *_, last = told.read_text().rpartition("\n")[0].split("\n")
    seen, id = int(last.split()[0]), told.read_text().split("\n")[0].split()[1]
    # In the middle: two more events, and most are still to come.
    further = seen + 200
    async with connect(server) as client:
        stream = await client.responses.retrieve(id, stream=True, starting_after=seen)
        async for event in stream:
            assert event.sequence_number > seen
            seen = event.sequence_number
            if seen > further:
                break
        server.kill()
    # It takes nothing new, and carries on what it has.
    await server.start_host("max_concurrent_runs = 1\nmax_queued_runs = 0\n" + DEMO)
    async with connect(server) as client:
        with pytest.raises(openai.RateLimitError) as full:
            await client.responses.create(model="demo", input="hi")
        stream = await client.responses.retrieve(id, stream=True, starting_after=seen)
        events = [event async for event in stream]
        whole = await client.responses.retrieve(id, stream=True)
        numbers = [event.sequence_number async for event in whole]
    assert full.value.response.headers["retry-after"] == "1"
    assert [e.sequence_number for e in events] == [n for n in numbers if n > seen]
    journal = (await server.get(f"/v1/runs/{id.replace('resp', 'run')}/journal")).json["data"]
    assert [one["event"]["type"] for one in journal].count("run.started") == 2
    final = events[-1].response
    assert (final.status, final.output_text) == ("completed", "".join(WORDS))
