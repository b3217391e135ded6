import json
import re
from pathlib import Path

import pytest

from holdfast.core.messages import (
    AssistantMessage,
    BlobRef,
    Image,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from holdfast.errors import ModelRefused
from holdfast.models.openai_chat import OpenAIChat
from holdfast.models.wire import Reader, Wire

BYTES = Path(__file__).parent / "bytes"

# --- what is asked ---------------------------------------------------------------------


HERE, THERE = "https://here.example/v1", "https://there.example/v1"


def body(*messages, stream=True, model="gpt", origin="", **request):
    request = Request(model="m", **{"instructions": "", "messages": messages} | request)
    return json.loads(OpenAIChat().body(request, model=model, stream=stream, origin=origin))


def messages(*given, **request):
    return body(*given, **request)["messages"]


def test_it_is_a_wire():
    wire: Wire = OpenAIChat()
    reader: Reader = wire.reader()
    assert (wire.name, wire.path) == ("openai-chat", "/chat/completions")
    assert not reader.complete


def test_a_key_is_shown_if_there_is_one():
    assert OpenAIChat().headers("k") == {"Authorization": "Bearer k"}
    assert OpenAIChat().headers("") == {}


def test_the_smallest_request():
    assert body(UserMessage((Text("hi"),)), stream=False) == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "hi"}],
    }


def test_a_stream_is_asked_for_with_its_usage():
    asked = body(UserMessage((Text("hi"),)))
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True}


def test_instructions_come_first():
    assert messages(UserMessage((Text("hi"),)), instructions="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


def test_words_alone_are_a_string():
    assert messages(UserMessage((Text("one"), Text("two"))), UserMessage(())) == [
        {"role": "user", "content": "one\ntwo"},
        {"role": "user", "content": ""},
    ]


def test_pictures_stand_between_the_words():
    kept = Image(media_type="image/jpeg", blob=BlobRef("abc", 3))
    unsure = Image(blob=BlobRef("abc", 3), url="https://ignored.example")
    found = Image(url="https://a.example/b.png", detail="low")
    parts = (Text("look"), kept, unsure, found)
    assert messages(UserMessage(parts), blobs={"abc": b"\x01\x02\x03"}) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AQID"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
                {
                    "type": "image_url",
                    "image_url": {"url": "https://a.example/b.png", "detail": "low"},
                },
            ],
        }
    ]


@pytest.mark.parametrize("image", [Image(), Image(blob=BlobRef("gone", 1))])
def test_a_picture_that_is_not_there_cannot_be_sent(image):
    with pytest.raises(ModelRefused, match="not at hand"):
        body(UserMessage((image,)))


def test_a_call_and_its_result_match_whatever_the_model_called_them():
    """Some models use an id twice, and some give none."""
    turns = [
        message
        for number, model_id in enumerate(("call_0", "call_0", ""))
        for message in (
            AssistantMessage(calls=(ToolCall(f"ours{number}", "look", model_id=model_id),)),
            ToolMessage(call_id=f"ours{number}", tool="look", output=f"out{number}"),
        )
    ]
    sent = messages(*turns)
    calls = [call["id"] for message in sent for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert calls == results
    assert len(set(calls)) == 3


def test_what_the_model_said_and_asked_is_told_back():
    call = ToolCall("ours", "look", arguments='{"at": "ü"}', model_id="theirs")
    assert messages(
        AssistantMessage(text="hm", calls=(call,)),
        ToolMessage(call_id="ours", tool="look", output="nothing", ok=False),
        AssistantMessage(calls=(call,)),
        AssistantMessage(text="done"),
        AssistantMessage(),
    ) == [
        {
            "role": "assistant",
            "content": "hm",
            "tool_calls": [
                {
                    "id": "ours",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"at": "ü"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "ours", "content": "nothing"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "ours",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"at": "ü"}'},
                }
            ],
        },
        {"role": "assistant", "content": "done"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize("arguments", ['{"at": ', "[]", "", "null"])
def test_arguments_nobody_can_read_do_not_spoil_all_that_follows(arguments):
    """Some endpoints read them again with every request, and refuse it."""
    sent = messages(AssistantMessage(calls=(ToolCall("a", "look", arguments=arguments),)))
    told = sent[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(told) == {"unreadable": arguments}


def test_sealed_reasoning_goes_back_as_it_came_and_only_to_this_wire():
    thoughts = (
        Reasoning("a", wire="openai-chat", seal='[{"x": 1.50}]'),
        Reasoning("b", wire="anthropic", seal='[{"y":2}]'),
        Reasoning("c", wire="openai-chat"),
        Reasoning("d", wire="openai-chat", seal='[{"z":"\\ud83d"}]'),
    )
    request = Request("m", "", (AssistantMessage("hi", reasoning=thoughts),))
    sent = OpenAIChat().body(request, model="gpt", stream=False)
    assert rb'"reasoning_details":[{"x": 1.50},{"z":"\ud83d"}]' in sent
    assert b"anthropic" not in sent
    assert messages(AssistantMessage("hi", reasoning=thoughts[1:3])) == [
        {"role": "assistant", "content": "hi"}
    ]


CALLS = (ToolCall("a", "look"), ToolCall("b", "look"))


def returned(*thoughts, calls=CALLS, origin=HERE):
    (message,) = messages(AssistantMessage("", thoughts, calls), origin=origin)
    return message


@pytest.mark.parametrize(
    "seal", ['[{"x":1}]', '{"field":"reasoning_content"}', '{"extra":{"x":1}}']
)
def test_what_an_endpoint_wants_back_no_other_gets(seal):
    thought = Reasoning("hm", "openai-chat", seal, origin=HERE)
    assert returned(thought) != returned()
    assert returned(thought, origin=THERE) == returned()


def test_reasoning_goes_back_in_the_field_it_came_in_and_only_with_calls():
    thought = Reasoning("hm", "openai-chat", '{"field":"reasoning_content"}')
    assert returned(thought)["reasoning_content"] == "hm"
    assert "reasoning_content" not in returned(thought, calls=())
    silent = Reasoning("", "openai-chat", '{"field":"reasoning_content"}')
    assert returned(silent)["reasoning_content"] == ""


def test_what_came_beside_a_call_goes_back_beside_it():
    beside = Reasoning(wire="openai-chat", seal='{"extra":{"google":"sealed"}}', before=1)
    first, second = returned(beside)["tool_calls"]
    assert "extra_content" not in first
    assert second["extra_content"] == {"google": "sealed"}
    assert returned(beside, calls=CALLS[:1]) == returned(calls=CALLS[:1])


@pytest.mark.parametrize("seal", ["{", "7", '{"field":"content"}', '{"field":7}', "{}"])
def test_a_seal_that_says_nothing_is_passed_over(seal):
    assert returned(Reasoning("hm", "openai-chat", seal)) == returned()


@pytest.mark.parametrize(
    "origin", ["https://api.mistral.ai/v1", "https://mistral.ai", "HTTPS://API.MISTRAL.AI:443/v1"]
)
def test_mistral_gets_ids_of_nine_characters(origin):
    result = ToolMessage(call_id="b", tool="look", output="seen")
    message, told = messages(AssistantMessage(calls=CALLS), result, origin=origin)
    first, second = (call["id"] for call in message["tool_calls"])
    assert re.fullmatch("[a-zA-Z0-9]{9}", first) and first != second
    assert told["tool_call_id"] == second


@pytest.mark.parametrize("origin", ["", HERE, "https://notmistral.ai/v1", "https://x/mistral.ai/"])
def test_others_get_ours(origin):
    assert [call["id"] for call in returned(origin=origin)["tool_calls"]] == ["a", "b"]


def test_tools_are_functions():
    spec = ToolSpec("look", "Looks.", schema='{"type":"object","properties":{"at":{}}}')
    assert body(tools=(spec,))["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "Looks.",
                "parameters": {"type": "object", "properties": {"at": {}}},
            },
        }
    ]


def test_a_schema_nobody_can_read_cannot_be_sent():
    with pytest.raises(ModelRefused, match="the schema of the tool look"):
        body(tools=(ToolSpec("look", schema="{"),))


def test_options_pass_through_but_change_nothing_of_ours():
    options = {
        "temperature": 0.5,
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "provider": {"only": ["azure"]},
        "max_tokens": 10,
        "model": "x",
        "messages": [],
        "tools": [1],
        "stream": True,
        "stream_options": {},
    }
    assert body(stream=False, options=options) == {
        "model": "gpt",
        "messages": [],
        "temperature": 0.5,
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "provider": {"only": ["azure"]},
        "max_tokens": 10,
    }
    assert body(options=options)["stream_options"] == {"include_usage": True}
    assert options["max_tokens"] == 10


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_stretched_request_allows_a_longer_reply(name):
    assert body(options={name: 100}, stretch=3)[name] == 300
    assert body(options={name: None}, stretch=3)[name] is None


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("llama", {"max_output_tokens": 5}, {"max_tokens": 5}),
        ("gpt-4o", {"max_tokens": 5}, {"max_tokens": 5}),
        ("gpt-4o", {"max_tokens": 5, "max_completion_tokens": 6}, {"max_completion_tokens": 6}),
        ("openai/gpt-5.4-mini", {"max_tokens": 5}, {"max_completion_tokens": 5}),
        ("o3", {"max_output_tokens": 5}, {"max_completion_tokens": 5}),
        ("o3", {}, {}),
    ],
)
def test_the_longest_reply_goes_by_the_one_name_that_the_model_knows(model, asked, sent):
    told = body(model=model, options=asked)
    assert {name: told[name] for name in told if "tokens" in name} == sent
