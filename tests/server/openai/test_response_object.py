import pytest
from hypothesis import given, settings

from holdfast.core.codec import recall
from holdfast.core.events import (
    InputAdded,
    InputEdited,
    ModelReplied,
    ModelRetracted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StopRequested,
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
from holdfast.core.usage import Usage
from holdfast.server.openai.request import Echo
from holdfast.server.openai.response_object import input_items, response_object
from holdfast.server.problems import Problem
from holdfast.testing.strategies import journals, prefixes
from tests.core.stories import (
    accepted,
    asked,
    asking,
    begun,
    call,
    called,
    done,
    failed,
    journal,
    replied,
    rescued,
    said,
    started,
)

RUN = "run_1"
CALLING = (accepted(asked_model="gpt", metadata={"a": "b"}), started(), called())
REPLIED = (*CALLING, said("Hello"), replied(text="Hello", usage=Usage(input=3, output=1)))


def told(*events, **how):
    return response_object(RUN, journal(*events), **how)


def test_a_run_that_ended_well_is_a_response():
    assert told(*REPLIED, RunCompleted()) == {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "completed_at": 6,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt",
        "output": [
            {
                "id": "msg_1_4",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "phase": "final_answer",
                "content": [
                    {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
                ],
            }
        ],
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 4,
        },
        "metadata": {"a": "b"},
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        **Echo().told(),
    }


def test_what_a_request_said_of_itself_is_said_again():
    echo = Echo(background=True, instructions="Be brief.", previous_response_id="resp_0")
    answer = told(*CALLING, echo=echo)
    assert (answer["background"], answer["instructions"]) == (True, "Be brief.")
    assert answer["previous_response_id"] == "resp_0"


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((accepted(),), "queued"),
        ((accepted(), started()), "in_progress"),
        ((accepted(), started(), rescued()), "queued"),
        ((*asking(call(gate="ask")), asked()), "in_progress"),
        ((*CALLING, StopRequested()), "in_progress"),
        ((*CALLING, StopRequested(), RunCancelled()), "cancelled"),
        ((*CALLING, RunFailed(code="model", message="gone")), "failed"),
        ((*REPLIED, RunCompleted()), "completed"),
        ((*REPLIED, RunCompleted(incomplete="length")), "incomplete"),
        ((*REPLIED, RunCompleted(incomplete="refusal")), "incomplete"),
    ],
)
def test_a_response_has_a_status_at_any_time(events, status):
    answer = told(*events)
    assert answer["status"] == status
    assert (answer["completed_at"] is not None) == isinstance(events[-1], RunCompleted)


def test_what_is_missing_and_why_is_told():
    assert told(*REPLIED, RunCompleted(incomplete="length"))["incomplete_details"] == {
        "reason": "max_output_tokens"
    }
    assert told(*REPLIED, RunCompleted(incomplete="refusal"))["incomplete_details"] == {
        "reason": "content_filter"
    }


def test_what_went_wrong_is_told():
    gone = told(*CALLING, RunFailed(code="model", message="gone"))["error"]
    assert gone == {"code": "server_error", "message": "gone", "type": "model", "param": None}
    long = told(*CALLING, RunFailed(code="context", message="too long"))["error"]
    assert long["code"] == "invalid_prompt"


def test_words_are_told_while_they_arrive_and_after_a_stop():
    arriving = told(*CALLING, said("Hel"))["output"]
    assert (arriving[0]["status"], arriving[0]["content"][0]["text"]) == ("in_progress", "Hel")
    stopped = told(*CALLING, said("Hel"), StopRequested(), RunCancelled())["output"]
    assert (stopped[0]["status"], stopped[0]["content"][0]["text"]) == ("incomplete", "Hel")


def test_only_what_stands_is_listed():
    back = ModelRetracted(turn=1, attempt=1, after=3)
    events = (*CALLING, said("a"), failed(), back, called(attempt=2), said("b", 1, 2))
    answer = told(*events, replied(call(), attempt=2, text="b"), begun(), done(output="ok"))
    assert [item["type"] for item in answer["output"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert answer["output"][0]["content"][0]["text"] == "b\n\n"


def test_a_run_accepted_by_a_newer_version_waits():
    answer = response_object(RUN, [recall(1, 1.5, b'{"type":"run.forked"}')])
    assert (answer["status"], answer["model"], answer["metadata"]) == ("queued", "", {})


def words_of(events):
    """Those of the replies, each with a break if a call or somebody else comes after it."""
    said = []
    for place, recorded in enumerate(events):
        reply = recorded.event
        if isinstance(reply, ModelReplied) and reply.text:
            goes_on = reply.calls or replay(events[:place]).inputs
            said.append(reply.text + "\n\n" * bool(goes_on))
    return said


@settings(max_examples=25)
@given(prefixes())
def test_the_words_of_a_response_are_those_of_its_replies(events):
    answer, last = response_object(RUN, events), replay(events)
    said = [
        item["content"][0]["text"]
        for item in answer["output"]
        if item["type"] == "message" and item.get("phase")
    ]
    assert said == words_of(events)
    assert answer["usage"] is None or answer["usage"]["total_tokens"] == last.usage.total
    assert (answer["usage"] is None) == (last.ended is None)


@settings(max_examples=25)
@given(journals())
def test_a_response_ends_as_its_run_did(events):
    answer, last = response_object(RUN, events), replay(events)
    assert {"incomplete": "completed"}.get(answer["status"], answer["status"]) == last.status
    assert all(item["status"] != "in_progress" for item in answer["output"])


# --- what was asked


def ids(page):
    return [item["id"] for item in page["data"]]


def test_a_run_was_given_its_history_its_input_and_what_was_added():
    history = (
        UserMessage((Text("a"),)),
        AssistantMessage("b"),
        AssistantMessage("b2", calls=(ToolCall("c1", "pay", '{"sum": 1}'),)),
        AssistantMessage(),
        ToolMessage("c1", "pay", "paid"),
    )
    events = journal(*CALLING, InputAdded(parts=(Text("c"),)))
    page = input_items(RUN, events, history=history, order="asc")
    called = ["msg_1_h3", "fc_c1", "fco_c1"]
    assert ids(page) == ["msg_1_h1", "msg_1_h2", *called, "msg_1_1", "msg_1_4"]
    roles = [item.get("role") for item in page["data"]]
    assert roles == ["user", "assistant", "assistant", None, None, "user", "user"]
    assert page["data"][3:5] == [
        {
            "id": "fc_c1",
            "type": "function_call",
            "status": "completed",
            "call_id": "c1",
            "name": "pay",
            "arguments": '{"sum": 1}',
        },
        {
            "id": "fco_c1",
            "type": "function_call_output",
            "status": "completed",
            "call_id": "c1",
            "output": "paid",
        },
    ]
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "a"}]
    assert page["data"][1]["content"] == [{"type": "output_text", "text": "b", "annotations": []}]
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("msg_1_h1", "msg_1_4", False)


def test_an_edited_input_is_told_as_edited():
    events = journal(accepted(), InputEdited(parts=(Text("rather"),)))
    assert input_items(RUN, events)["data"][0]["content"][0]["text"] == "rather"


def test_pictures_go_by_their_address_or_their_hash():
    parts = (Image(url="https://x/y.png"), Image("image/png", BlobRef("5f", 3)))
    content = input_items(RUN, journal(accepted(input=parts)))["data"][0]["content"]
    assert content == [
        {"type": "input_image", "detail": "auto", "image_url": "https://x/y.png"},
        {"type": "input_image", "detail": "auto", "file_id": "5f"},
    ]


def test_items_are_paged_the_newest_first():
    events = journal(*CALLING, *(InputAdded(parts=(Text(str(n)),)) for n in range(4)))
    first = input_items(RUN, events, limit=2)
    assert (ids(first), first["has_more"]) == (["msg_1_7", "msg_1_6"], True)
    second = input_items(RUN, events, limit=3, after=first["last_id"])
    assert (ids(second), second["has_more"]) == (["msg_1_5", "msg_1_4", "msg_1_1"], False)
    nothing = input_items(RUN, events, after="msg_1_1")
    assert (ids(nothing), nothing["first_id"], nothing["last_id"]) == ([], "", "")


def test_a_page_begins_after_an_item_there_is():
    with pytest.raises(Problem) as caught:
        input_items(RUN, journal(accepted()), after="msg_9")
    assert (caught.value.status, caught.value.complaint.param) == (400, "after")


def test_a_run_accepted_by_a_newer_version_was_given_nothing_we_know_of():
    assert input_items(RUN, [recall(1, 1.0, b'{"type":"run.forked"}')])["data"] == []
