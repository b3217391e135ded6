import json
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
from holdfast.models.openai_responses import OpenAIResponses
from holdfast.models.wire import Reader, Wire

BYTES = Path(__file__).parent / "bytes"
WIRE = "openai-responses"
HERE, THERE = "https://here.example/v1", "https://there.example/v1"


def words(text):
    return UserMessage(parts=(Text(text),))


def body(*messages, stream=True, model="gpt", origin="", **request):
    request = Request(model="m", **{"instructions": "", "messages": messages} | request)
    sent = OpenAIResponses().body(request, model=model, stream=stream, origin=origin)
    return json.loads(sent)


def items(*messages, **request):
    return body(*messages, **request)["input"]


def options(**options):
    return body(options=options)


# --- what is asked ---------------------------------------------------------------------


def test_it_is_a_wire():
    wire: Wire = OpenAIResponses()
    reader: Reader = wire.reader()
    assert (wire.name, wire.path) == (WIRE, "/responses")
    assert not reader.complete


def test_a_key_is_shown_if_there_is_one():
    assert OpenAIResponses().headers("k") == {"Authorization": "Bearer k"}
    assert OpenAIResponses().headers("") == {}


def test_the_smallest_request_stores_nothing_and_asks_for_sealed_thoughts():
    assert body(words("hi"), instructions="Be brief.", stream=False) == {
        "model": "gpt",
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}],
            }
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": False,
    }


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-mini", "gpt-5-chat-latest"])
def test_sealed_thoughts_are_not_asked_of_who_has_none(model):
    assert "include" not in body(model=model)
    assert body(model=model, options={"include": ["x"]})["include"] == ["x"]


def test_a_picture_goes_as_its_bytes_or_its_address():
    kept = Image(media_type="image/png", blob=BlobRef("abc", 3))
    found = Image(url="https://example.org/a.png", detail="low")
    [message] = items(UserMessage(parts=(Text("see"), kept, found)), blobs={"abc": b"\x00\x01\x02"})
    assert message["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAEC"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
    ]


@pytest.mark.parametrize("image", [Image(), Image(blob=BlobRef("abc", 3))])
def test_a_picture_that_is_nowhere_cannot_be_sent(image):
    with pytest.raises(ModelRefused, match="neither at hand nor at an address"):
        body(UserMessage(parts=(image,)))


def test_calls_and_their_results_go_by_our_own_ids():
    call = ToolCall(id="ours", tool="look", arguments='{"at":1}', model_id="theirs")
    answer = ToolMessage(call_id="ours", tool="look", output="a tree")
    assert items(AssistantMessage(text="I look.", calls=(call,)), answer) == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look."}],
        },
        {"type": "function_call", "call_id": "ours", "name": "look", "arguments": '{"at":1}'},
        {"type": "function_call_output", "call_id": "ours", "output": "a tree"},
    ]


def test_sealed_thoughts_of_this_wire_alone_go_back_before_what_they_led_to():
    seal = '{"type":"reasoning","summary":[],"encrypted_content":"x"}'
    thoughts = (
        Reasoning(text="mine", wire=WIRE, seal=seal),
        Reasoning(text="unsealed", wire=WIRE),
        Reasoning(text="another's", wire="anthropic", seal="y"),
    )
    sent = items(AssistantMessage(reasoning=thoughts, calls=(ToolCall(id="c", tool="t"),)))
    assert sent[0] == {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    assert [item["type"] for item in sent] == ["reasoning", "function_call"]
    sent = items(AssistantMessage(reasoning=thoughts, text="so"))
    assert [item["type"] for item in sent] == ["reasoning", "message"]


def sealed(name, **place):
    return Reasoning(wire=WIRE, seal=json.dumps({"type": "reasoning", "id": name}), **place)


def test_thoughts_go_back_in_the_order_they_came_in():
    thoughts = (sealed("1"), sealed("2", said=3), sealed("3", said=3, before=1))
    calls = (ToolCall(id="a", tool="t"), ToolCall(id="b", tool="t"))
    sent = items(AssistantMessage("Hm.Two.", thoughts, calls))
    assert [item["type"] for item in sent] == [
        "reasoning",
        "message",
        "reasoning",
        "function_call",
        "reasoning",
        "message",
        "function_call",
    ]
    assert [item["id"] for item in sent if item["type"] == "reasoning"] == ["1", "2", "3"]


def test_what_another_endpoint_sealed_does_not_go_out():
    thoughts = (sealed("1", origin=HERE), sealed("2", origin=THERE), sealed("3"))
    sent = items(AssistantMessage("so", thoughts), origin=HERE)
    assert [item.get("id") for item in sent] == ["1", "3", None]


def test_thoughts_that_led_to_nothing_stay_here():
    assert items(AssistantMessage(reasoning=(sealed("1"),))) == []
    sent = items(AssistantMessage("so", (sealed("1"), sealed("2", said=2))))
    assert [item["type"] for item in sent] == ["reasoning", "message"]


def test_tools_are_flat():
    spec = ToolSpec(name="look", description="Looks.", schema='{"type":"object"}')
    assert body(tools=(spec,))["tools"] == [
        {
            "type": "function",
            "name": "look",
            "description": "Looks.",
            "parameters": {"type": "object"},
            "strict": False,
        }
    ]


@pytest.mark.parametrize("name", ["max_tokens", "max_output_tokens", "max_completion_tokens"])
def test_the_limit_has_one_name_and_is_stretched(name):
    sent = body(options={name: 100}, stretch=4)
    assert sent["max_output_tokens"] == 400
    assert not sent.keys() & {"max_tokens", "max_completion_tokens"}
    assert "max_output_tokens" not in options(**{name: None})


def test_what_only_chats_have_a_word_for_is_left_out():
    chat = {"seed": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "stop": "x"}
    assert options(**chat) == options()


def test_effort_asks_for_a_summary_too_and_gives_way_to_what_is_said_outright():
    assert options(reasoning_effort="high")["reasoning"] == {"effort": "high", "summary": "auto"}
    merged = options(reasoning_effort="high", reasoning={"summary": "detailed"})
    assert merged["reasoning"] == {"effort": "high", "summary": "detailed"}
    assert options(reasoning={"effort": "low"})["reasoning"] == {"effort": "low"}
    assert "reasoning_effort" not in merged


def test_a_shape_of_the_reply_is_said_flatly():
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    sent = options(
        response_format={"type": "json_schema", "json_schema": schema}, text={"verbosity": "low"}
    )
    assert sent["text"] == {"verbosity": "low", "format": {"type": "json_schema", **schema}}
    assert "response_format" not in sent
    plain = options(response_format={"type": "json_object"})
    assert plain["text"] == {"format": {"type": "json_object"}}


def test_how_much_to_say_is_said_of_the_text():
    assert options(verbosity="low")["text"] == {"verbosity": "low"}
    both = options(verbosity="low", response_format={"type": "json_object"})
    assert both["text"] == {"verbosity": "low", "format": {"type": "json_object"}}
    assert "verbosity" not in both


def test_other_options_pass_but_none_speaks_for_us():
    sent = options(
        temperature=0, model="x", input=[], stream=False, tools=[1], instructions="x", include=[]
    )
    assert sent["temperature"] == 0
    assert sent["include"] == []
    assert (sent["model"], sent["stream"], sent["instructions"]) == ("gpt", True, "")
    assert "tools" not in sent
    assert options(store=True)["store"] is True
