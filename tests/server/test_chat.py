"""Conversations in the words of older clients."""

import json

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.core.entries import Card, Mark, Notice, Question, Reply, Said
from holdfast.core.messages import Image, Text
from holdfast.errors import ModelRefused
from holdfast.server.chat import THINKING, ChatStream, read_chat, spoken
from holdfast.server.frames import BREAK
from holdfast.server.problems import Problem
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence, Think
from tests.server.test_session_stream import ASK, talking
from tests.server.test_streams import Reader, read_to

AT = {"run_id": "run_1", "ordinal": 1, "seq": 1, "at": 1.0}


def body(**fields):
    return json.dumps(fields).encode()


# --- what is read


def test_what_to_say_may_go_by_two_names_and_so_may_what_to_be_told():
    for said in ({"message": "hi"}, {"input": "hi"}, {"message": "hi", "input": "no"}):
        asked = read_chat("s", body(**said))
        assert (asked.parts, asked.session_id) == ((Text("hi"),), "s")
    for told in ({"system_message": "be kind"}, {"instructions": "be kind"}):
        assert read_chat("s", body(message="hi", **told)).instructions == "be kind"
    named = read_chat("s", body(message="hi", message_id="mine", model="m"))
    assert (named.message_id, named.model) == ("mine", "m")


def test_what_to_say_may_hold_a_picture():
    picture = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    asked = read_chat("s", body(message=[{"type": "text", "text": "look"}, picture]))
    assert asked.parts == (Text("look"), Image(url="https://pictures.example/1.png"))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "missing_message"),
        ({"message": ""}, "missing_message"),
        ({"message": 5}, "missing_message"),
        ({"message": {"text": "hi"}}, "missing_message"),
        ({"message": [""]}, "missing_message"),
        ({"message": [{"type": "x"}]}, "unsupported_content_type"),
        ({"message": "hi", "system_message": 5}, "invalid_system_message"),
        ({"message": "hi", "instructions": ["x"]}, "invalid_system_message"),
        ({"message": "hi", "system_message": "x" * 200_001}, "invalid_system_message"),
        ({"message": "hi", "message_id": ""}, "invalid_message_id"),
    ],
)
def test_what_says_nothing_is_refused(fields, code):
    with pytest.raises(Problem) as caught:
        read_chat("s", body(**fields))
    assert (caught.value.status, caught.value.code) == (400, code)


# --- what is told


def test_a_transcript_is_told_as_messages_of_people_models_and_tools():
    entries = [
        Said(id="m", parts=(Text("hi"),), **AT),
        Reply(id="r", turn=1, text="let me look", reasoning="hm", **AT),
        Card(id="a", turn=1, name="look", arguments="{}", state="done", result="seen", **AT),
        Question(id="q", call_id="b", tool="pay", state="pending", **AT),
        Card(id="b", turn=1, name="pay", arguments="{}", state="asking", **AT),
        Card(id="c", turn=2, name="look", arguments="{}", state="done", result="again", **AT),
        Notice(id="n", what="failed", words="The run failed.", **AT),
        Mark(id="k", meaning="resuming", cause="unknown", words="…", **AT),
    ]
    told = spoken(entries)
    assert [one["role"] for one in told] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [one["content"] for one in told] == ["hi", "let me look", "seen", "", "again"]
    assert [call["id"] for call in told[1]["tool_calls"]] == ["a", "b"]
    assert told[1]["reasoning"] == "hm" and "reasoning" not in told[3]
    assert (told[2]["tool_call_id"], told[4]["tool_name"]) == ("a", "look")
    assert len({one["id"] for one in told}) == len(told)


def frames(reader):
    blocks = [block.split(b"\n") for block in reader.heard.split(b"\n\n") if block[:1] == b"e"]
    return [
        (name.removeprefix(b"event: ").decode(), json.loads(data.removeprefix(b"data: ")))
        for name, data in blocks
    ]


async def follow(play, service, *, answer=None):
    run_id = (await play.say("hi")).run_id
    if answer:
        while not (await play.runs.state(run_id)).pending:
            await play.until(run_id, object)
        await play.runs.answer(run_id, answer)
    reader = Reader()
    await read_to(reader, ChatStream(service, run_id, "ses_1"))
    assert reader.ended and reader.headers[b"x-run-id"].decode() == run_id
    told = frames(reader)
    assert [one["seq"] for _, one in told] == list(range(1, len(told) + 1))
    assert all((one["session_id"], one["run_id"]) == ("ses_1", run_id) for _, one in told)
    assert all(one["ts"] >= 0 for _, one in told)
    return told


async def test_an_answer_is_told_from_its_beginning_to_its_end():
    async with talking([Think("hm"), "Hel", "lo"]) as (play, service):
        told = await follow(play, service)
        assert [name for name, _ in told] == [
            "run.started",
            "tool.progress",
            "message.started",
            "assistant.delta",
            "assistant.delta",
            "assistant.completed",
            "run.completed",
            "done",
        ]
        by_name = dict(told)
        assert by_name["tool.progress"]["tool_name"] == THINKING
        assert by_name["assistant.completed"]["content"] == "Hello"
        id = by_name["message.started"]["message"]["id"]
        assert id == by_name["assistant.completed"]["message_id"]
        assert [one["content"] for one in by_name["run.completed"]["messages"]] == ["hi", "Hello"]
        assert by_name["run.completed"]["usage"]["total_tokens"] > 0


async def test_no_sign_in_an_answer_ends_a_line_for_anyone():
    said = "a\x85b\u2028c\u2029d"
    async with talking([said]) as (play, service):
        reader = Reader()
        await read_to(reader, ChatStream(service, (await play.say("hi")).run_id, "ses_1"))
        assert dict(frames(reader))["assistant.completed"]["content"] == said
        lines = reader.heard.decode().split("\n")
        assert [*reader.heard.decode().splitlines(), ""] == lines


async def test_tools_are_told_by_how_they_end():
    def work(use):
        return progress(use)

    async def progress(use):
        await use.progress("halfway")
        if use.arguments != "{}":
            raise RuntimeError("no")
        return "done"

    script = ScriptedModel([Call("pay"), Call("pay", '{"a":1}', "call_1")], ["ok"])
    async with talking(script, tools=(ScriptedTool(work=work),)) as (play, service):
        told = await follow(play, service)
        names = [name for name, _ in told if name.startswith("tool.")]
        assert sorted(names) == sorted(
            [*["tool.started", "tool.progress"] * 2, "tool.completed", "tool.failed"]
        )
        by_name = dict(told)
        assert by_name["tool.completed"]["result"] == "done"
        assert by_name["tool.completed"]["tool_call_id"] != by_name["tool.failed"]["tool_call_id"]


async def test_a_question_is_told_so_that_nobody_waits_in_silence():
    script = ScriptedModel([Call("pay")], [""])
    async with talking(script, tools=(ScriptedTool(review=ASK),)) as (play, service):
        told = dict(await follow(play, service, answer="deny"))
        assert told["approval.request"]["command"] == "pay 1"
        assert told["approval.responded"]["choice"] == "deny"
        # An answer without words begins and ends all the same.
        assert told["message.started"] and told["assistant.completed"]["content"] == ""


async def test_words_that_are_taken_back_are_followed_by_a_break():
    async with talking(["wrong", Silence(500)], ["right"]) as (play, service):
        words = [one["delta"] for name, one in await follow(play, service) if "delta" in name]
        assert words == ["wrong", BREAK, "right"]


async def test_a_run_that_fails_or_is_stopped_ends_with_an_error():
    async with talking([ModelRefused("no")]) as (play, service):
        told = await follow(play, service)
        assert [name for name, _ in told][-2:] == ["error", "done"]
        assert told[-2][1]["code"] and told[-2][1]["message"]
    async with talking(["half ", Silence(500)]) as (play, service):
        run_id = (await play.say("hi")).run_id
        await play.runs.stop(run_id)
        reader = Reader()
        await read_to(reader, ChatStream(service, run_id, "ses_1"))
        told = frames(reader)
        assert told[-2][0] == "error" and told[-2][1]["code"] == "run_cancelled"


async def test_a_run_that_is_deleted_meanwhile_ends_with_an_error():
    async with talking(["half ", Silence(500)]) as (play, service):
        run_id = (await play.say("hi")).run_id
        reader = Reader()
        async with task_group() as tasks:
            tasks.start_soon(read_to, reader, ChatStream(service, run_id, "ses_1"))
            await anyio.sleep(1)
            await play.runs.delete(run_id)
        told = frames(reader)
        assert reader.ended and [name for name, _ in told][-2:] == ["error", "done"]
        assert told[-2][1]["code"] == "run_not_found"


async def test_an_answer_that_is_deleted_while_it_is_told_is_told_to_its_end():
    async with talking(["all"]) as (play, service):
        run_id = (await play.say("hi")).run_id
        await play.ended(run_id)

        class Deleting(Reader):
            async def send(self, message):
                await super().send(message)
                if b"assistant.delta" in message.get("body", b""):
                    await play.runs.delete(run_id)

        reader = Deleting()
        await read_to(reader, ChatStream(service, run_id, "ses_1"))
        told = dict(frames(reader))
        assert reader.ended and "done" in told
        assert [one["content"] for one in told["run.completed"]["messages"]] == ["hi", "all"]


async def test_a_server_that_leaves_says_so_and_the_run_goes_on():
    async with talking(["half ", Silence(500)]) as (play, service):
        run_id = (await play.say("hi")).run_id
        service.draining.set()
        service.left.set()
        reader = Reader()
        await read_to(reader, ChatStream(service, run_id, "ses_1"))
        assert [name for name, _ in frames(reader)] == ["server.draining"]
        assert not reader.ended and reader.hung_up is not None
        assert (await play.runs.state(run_id)).status.live
