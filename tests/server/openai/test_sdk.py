"""Each frame and each object, as the official client reads them: by its own types, strictly."""

from typing import Annotated

import httpx2
import msgspec
import openai
import pytest
from hypothesis import given, settings
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent
from pydantic import BaseModel, Field, TypeAdapter

from holdfast.config import Settings
from holdfast.core.codec import record
from holdfast.core.events import (
    InputAdded,
    ModelChoice,
    ModelRetracted,
    ReasoningStreamed,
    RunCompleted,
    RunFailed,
)
from holdfast.core.messages import (
    AssistantMessage,
    BlobRef,
    Image,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from holdfast.core.run import replay
from holdfast.server.content import Instruction
from holdfast.server.frames import BREAK
from holdfast.server.openai.chat_frames import ChatProjection
from holdfast.server.openai.chat_object import Incomplete, chat_completion
from holdfast.server.openai.models import models
from holdfast.server.openai.request import Echo
from holdfast.server.openai.response_frames import ResponseProjection
from holdfast.server.openai.response_object import input_items, response_object
from holdfast.testing.strategies import journals, prefixes
from tests.core.stories import (
    accepted,
    asked,
    begun,
    call,
    called,
    done,
    failed,
    journal,
    replied,
    said,
    started,
)
from tests.server.openai.sse import DONE, events, stream

EVENT = TypeAdapter(Annotated[ResponseStreamEvent, Field(discriminator="type")])
ECHO = Echo(
    background=True,
    conversation="s1",
    instructions="Be brief.",
    max_output_tokens=9,
    previous_response_id="resp_0",
    reasoning_effort="low",
    service_tier="flex",
    temperature=0.5,
    text={"format": {"type": "json_schema", "name": "x", "schema": {}}},
    top_p=1.0,
    truncation="auto",
    user="ada",
)
#: What we add to the shapes of the client, which lets it be.
OURS = {"store", "hermes", "reasoning_content", "permission", "root", "parent"}
RUN = "run_1"
ASKED = {"model": "main", "messages": [{"role": "user", "content": "hi"}]}

LOOKING = (
    accepted(),
    started(),
    called(),
    ReasoningStreamed(turn=1, attempt=1, text="hm"),
    said("Let"),
    failed(),
    ModelRetracted(turn=1, attempt=1, after=3),
    called(attempt=2),
    said("Let me look.", 1, 2),
    replied(call(gate="ask"), attempt=2, text="Let me look."),
    asked(),
    begun(),
    done(output="2"),
    called(turn=2),
)
ANSWER = '{"sum": 2}'
WHOLE = journal(*LOOKING, said(ANSWER, turn=2), replied(turn=2, text=ANSWER), RunCompleted())


class Sum(BaseModel):
    sum: int


def known(value):
    """Nothing in it is unknown to the client, but for what we mean to add."""
    if isinstance(value, BaseModel):
        extra = set(value.__pydantic_extra__ or ())
        assert extra <= OURS, f"{type(value).__name__} has no {extra - OURS}"
        for name in type(value).model_fields:
            known(getattr(value, name))
    elif isinstance(value, list):
        for inner in value:
            known(inner)
    return value


def client(answer):
    """The official client, to whom whatever it asks is answered with this."""
    kind = "text/event-stream" if isinstance(answer, bytes) else "application/json"
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    transport = httpx2.MockTransport(
        lambda _request: httpx2.Response(200, content=body, headers={"content-type": kind})
    )
    line = httpx2.Client(transport=transport)
    return openai.OpenAI(api_key="k", base_url="http://here/v1", http_client=line, max_retries=0)


# --- any journal


@settings(max_examples=25)
@given(prefixes())
def test_every_frame_of_a_response_is_one_of_its_events(happened):
    for one in events(stream(ResponseProjection(RUN, echo=ECHO), happened)):
        event = known(EVENT.validate_python(one.data))
        assert event.type == one.name


@settings(max_examples=25)
@given(prefixes())
def test_a_response_is_one_at_any_moment(happened):
    known(Response.model_validate(response_object(RUN, happened, echo=ECHO)))


@settings(max_examples=20)
@given(journals())
def test_the_client_puts_a_response_together_as_it_stands(happened):
    """Which raises for any event that is out of order."""
    with client(stream(ResponseProjection(RUN), happened)) as asks:
        with asks.responses.stream(response_id="resp_1") as events:
            ended = [event for event in events if event.type == "response.completed"]
    last = replay(happened)
    whole = isinstance(last.ended, RunCompleted) and not last.ended.incomplete
    assert bool(ended) == whole
    if ended:
        standing = response_object(RUN, happened)["output"]
        assert [item.id for item in ended[0].response.output] == [item["id"] for item in standing]


@settings(max_examples=25)
@given(prefixes())
def test_every_frame_of_a_chat_is_a_chunk(happened):
    for one in events(stream(ChatProjection(RUN, include_usage=True), happened)):
        # What failed is raised by the client, and never becomes a chunk.
        if one.data != DONE and "error" not in one.data:
            ChatCompletionChunk.model_validate(one.data)


@settings(max_examples=25)
@given(journals())
def test_every_whole_answer_is_a_completion(happened):
    last = replay(happened)
    try:
        told = chat_completion(RUN, last, created=1.0)
    except Incomplete:
        return
    if isinstance(last.ended, RunCompleted):
        known(ChatCompletion.model_validate(told))


# --- the client itself


def test_a_shape_is_read_from_the_final_answer_alone():
    with client(response_object(RUN, WHOLE)) as asks:
        answer = asks.responses.parse(model="main", input="hi", text_format=Sum)
    assert answer.output_parsed == Sum(sum=2)
    assert answer.output[0].content[0].parsed is None


def test_a_shape_is_read_from_a_stream_that_has_other_words_in_it():
    shaped = (ModelChoice("main", {"response_format": {"type": "json_object"}}),)
    happened = [record(1, 1.0, accepted(models=shaped)), *WHOLE[1:]]
    with client(stream(ResponseProjection(RUN), happened)) as asks:
        with asks.responses.stream(response_id="resp_1", text_format=Sum) as told:
            assert told.get_final_response().output_parsed == Sum(sum=2)


def test_a_shape_is_read_from_a_chat_stream_that_has_other_words_in_it():
    shaped = (ModelChoice("main", {"response_format": {"type": "json_object"}}),)
    happened = [record(1, 1.0, accepted(models=shaped)), *WHOLE[1:]]
    with client(stream(ChatProjection(RUN), happened)) as asks:
        with asks.chat.completions.stream(**ASKED, response_format=Sum) as told:
            (choice,) = told.get_final_completion().choices
    assert choice.message.parsed == Sum(sum=2)


@pytest.mark.parametrize("late", [True, False])
def test_who_spoke_while_it_was_answered_is_told_the_last_answer(late):
    shaped = (ModelChoice("main", {"response_format": {"type": "json_object"}}),)
    added, reply = InputAdded(parts=(Text("and"),)), replied(text='{"sum": 1}')
    happened = journal(
        *(accepted(models=shaped), started(), called(), said('{"sum": 1}')),
        *((reply, added) if late else (added, reply)),
        *(called(turn=2), said(ANSWER, turn=2), replied(turn=2, text=ANSWER), RunCompleted()),
    )
    with client(response_object(RUN, happened)) as asks:
        answer = asks.responses.parse(model="main", input="hi", text_format=Sum)
        assert answer.output_parsed == Sum(sum=2)
        assert late or answer.output_text == '{"sum": 1}\n\n' + ANSWER
    with client(stream(ResponseProjection(RUN), happened)) as asks:
        with asks.responses.stream(response_id="resp_1", text_format=Sum) as told:
            assert told.get_final_response().output_parsed == Sum(sum=2)
    with client(stream(ChatProjection(RUN), happened)) as asks:
        with asks.chat.completions.stream(**ASKED, response_format=Sum) as told:
            (choice,) = told.get_final_completion().choices
    assert choice.message.parsed == Sum(sum=2)


def test_a_response_is_taken_up_where_it_was_left():
    with client(stream(ResponseProjection(RUN), WHOLE)) as asks:
        with asks.responses.stream(response_id="resp_1", starting_after=1400) as rest:
            first = next(iter(rest))
            assert first.sequence_number > 1400
            assert rest.get_final_response().output_text == "Let me look.\n\n" + ANSWER


def test_a_chat_is_put_together_by_the_client_and_its_whole_has_the_shape():
    with client(stream(ChatProjection(RUN, include_usage=True), WHOLE)) as asks:
        with asks.chat.completions.stream(**ASKED) as told:
            whole = told.get_final_completion()
    assert (whole.choices[0].finish_reason, whole.usage.total_tokens) == ("stop", 0)
    with client(chat_completion(RUN, replay(WHOLE), created=1.0)) as asks:
        answer = asks.chat.completions.parse(**ASKED, response_format=Sum)
    assert answer.choices[0].message.parsed == Sum(sum=2)


def test_obvious_code_reads_a_chat_through_tools_breaks_and_questions():
    with client(stream(ChatProjection(RUN), WHOLE)) as asks:
        with asks.chat.completions.create(**ASKED, stream=True) as chunks:
            said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert said == f"Let{BREAK}Let me look.\n\n{ANSWER}"


def test_a_chat_that_failed_is_raised():
    happened = journal(*LOOKING, RunFailed(code="model", message="nobody is there"))
    with client(stream(ChatProjection(RUN), happened)) as asks:
        with asks.chat.completions.create(**ASKED, stream=True) as chunks:
            with pytest.raises(openai.APIError, match="nobody is there") as caught:
                list(chunks)
    assert caught.value.code == "model"


def test_the_models_are_models(tmp_path):
    for row in msgspec.to_builtins(models(Settings(data=tmp_path)))["data"]:
        known(Model.model_validate(row))


def test_what_was_asked_is_a_list_of_items():
    pictures = (Image(url="https://x/y.png"), Image("image/png", BlobRef("5f", 3)))
    history = (
        UserMessage((Text("a"), *pictures)),
        AssistantMessage("b"),
        AssistantMessage(calls=(ToolCall("c1", "pay"),)),
        ToolMessage("c1", "pay", "paid"),
    )
    told = (Instruction("developer", "Be brief."),)
    page = input_items(RUN, journal(accepted()), instructed=told, history=history)
    items = known(ResponseItemList.model_validate(page))
    assert [type(item).__name__ for item in items.data] == [
        "ResponseInputMessageItem",
        "ResponseFunctionToolCallOutputItem",
        "ResponseFunctionToolCallItem",
        "ResponseOutputMessage",
        "ResponseInputMessageItem",
        "ResponseInputMessageItem",
    ]
