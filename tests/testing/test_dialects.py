import json

import pytest

from holdfast.core.usage import Usage
from holdfast.testing.dialects import DIALECTS, ChatReply, MessagesReply, ResponsesReply

USED = Usage(input=20, output=9, cached=5, reasoning=2)
STREAM = {"model": "m", "stream": True}

each_wire = pytest.mark.parametrize("wire", DIALECTS.values())


def told(wire, asked=STREAM, reason=""):
    """A reply with something of everything, frame by frame."""
    reply = wire(asked, USED)
    return [
        *reply.think("h"),
        *reply.think("m"),
        *reply.say("Hel"),
        *reply.say("lo"),
        *reply.call("pay", '{"euro":5}', "call_a"),
        *reply.call("look", "{}", "call_b"),
        *(reply.finish(reason) if reason else ()),
        *reply.end(),
    ]


def payloads(frames):
    return [json.loads(data(frame)) for frame in frames if data(frame) != "[DONE]"]


def data(frame):
    return frame.decode().split("data: ")[1].removesuffix("\n\n")


def names(frames):
    return [frame.decode().removeprefix("event: ").split("\n")[0] for frame in frames]


def events(wire, kind, **more):
    return [one for one in payloads(told(wire, **more)) if one["type"] == kind]


def whole(wire, reason="", **asked):
    (body,) = told(wire, {"model": "m", **asked}, reason)
    return json.loads(body)


# --- chat completions


def test_chat_tells_the_role_then_the_pieces_then_the_reason():
    chunks = payloads(told(ChatReply))
    assert {(c["object"], c["model"], c["id"]) for c in chunks} == {
        ("chat.completion.chunk", "m", "chatcmpl-1")
    }
    assert [c["choices"][0]["delta"] for c in chunks] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "Hel"},
        {"content": "lo"},
        {"tool_calls": [chat_call("call_a", "pay", "", index=0)]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"eur'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'o":5}'}}]},
        {"tool_calls": [chat_call("call_b", "look", "", index=1)]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "}"}}]},
        {},
    ]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks]
    assert reasons == [None] * 11 + ["tool_calls"]


def chat_call(model_id, tool, arguments, **more):
    function = {"name": tool, "arguments": arguments}
    return more | {"id": model_id, "type": "function", "function": function}


def test_chat_ends_with_done_and_tells_what_was_used_only_to_who_asks():
    assert told(ChatReply)[-1] == b"data: [DONE]\n\n"
    assert "usage" not in payloads(told(ChatReply))[-1]
    *others, last = payloads(told(ChatReply, STREAM | {"stream_options": {"include_usage": True}}))
    assert {one["usage"] for one in others} == {None}
    assert last["choices"] == [] and last["usage"] == CHAT_USAGE


CHAT_USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def test_chat_in_one_body():
    body = whole(ChatReply)
    assert (body["object"], body["usage"]) == ("chat.completion", CHAT_USAGE)
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "hm",
        "tool_calls": [
            chat_call("call_a", "pay", '{"euro":5}'),
            chat_call("call_b", "look", "{}"),
        ],
    }


def test_chat_in_one_body_leaves_out_what_there_is_not():
    (body,) = ChatReply({}).end()
    (choice,) = json.loads(body)["choices"]
    assert choice["message"] == {"role": "assistant", "content": None}


# --- responses


def test_responses_opens_and_closes_each_item_and_counts_its_events():
    frames = told(ResponsesReply)
    assert names(frames) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        *CALLED,
        *CALLED,
        "response.completed",
    ]
    assert [one["type"] for one in payloads(frames)] == names(frames)
    assert [one["sequence_number"] for one in payloads(frames)] == list(range(len(frames)))


CALLED = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


def test_responses_says_where_each_piece_belongs():
    one, two = events(ResponsesReply, "response.output_text.delta")
    assert (one["item_id"], one["output_index"], one["content_index"]) == ("item_1", 1, 0)
    assert one["delta"] + two["delta"] == "Hello"
    (thought, _) = events(ResponsesReply, "response.reasoning_summary_text.delta")
    assert (thought["item_id"], thought["summary_index"], thought["delta"]) == ("item_0", 0, "h")
    (done, _) = events(ResponsesReply, "response.function_call_arguments.done")
    assert (done["item_id"], done["arguments"]) == ("item_2", '{"euro":5}')
    (part,) = events(ResponsesReply, "response.content_part.done")
    assert part["part"]["text"] == "Hello"


def test_responses_begins_items_empty_and_ends_them_full():
    empty = [one["item"] for one in events(ResponsesReply, "response.output_item.added")]
    full = [one["item"] for one in events(ResponsesReply, "response.output_item.done")]
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    said = {"id": "item_1", "type": "message", "role": "assistant"}
    paid = {"id": "item_2", "type": "function_call", "call_id": "call_a", "name": "pay"}
    assert empty[:3] == [
        {"id": "item_0", "type": "reasoning", "summary": []},
        said | {"status": "in_progress", "content": []},
        paid | {"status": "in_progress", "arguments": ""},
    ]
    assert full[:3] == [
        {"id": "item_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        said | {"status": "completed", "content": [part]},
        paid | {"status": "completed", "arguments": '{"euro":5}'},
    ]


def test_responses_ends_with_all_there_was():
    full = [one["item"] for one in events(ResponsesReply, "response.output_item.done")]
    (last,) = events(ResponsesReply, "response.completed")
    assert last["response"]["output"] == full
    assert last["response"]["status"] == "completed"
    assert last["response"]["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 29,
    }
    assert whole(ResponsesReply) == last["response"]


def test_responses_proves_its_thoughts_to_who_asks_for_it():
    asked = STREAM | {"include": ["reasoning.encrypted_content"]}
    items = [
        one["item"] for one in events(ResponsesReply, "response.output_item.done", asked=asked)
    ]
    assert [item.get("encrypted_content") for item in items] == ["sealed", None, None, None]


def test_responses_cut_short_says_so_of_itself_and_of_its_last_item():
    (last,) = events(ResponsesReply, "response.incomplete", reason="length")
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    done = [
        one["item"] for one in events(ResponsesReply, "response.output_item.done", reason="length")
    ]
    statuses = [item.get("status") for item in done]
    assert statuses == [None, "completed", "completed", "incomplete"]
    assert last["response"]["output"] == done


def test_responses_is_in_progress_for_as_long_as_it_likes():
    reply = ResponsesReply(STREAM)
    assert names(reply.ping(empty=True)) == ["response.in_progress"]
    assert reply.ping(empty=False) == [b": keep-alive\n\n"]
    assert reply.blocks == []


# --- messages


def test_messages_opens_and_closes_each_block():
    frames = told(MessagesReply)
    assert [one["type"] for one in payloads(frames)] == names(frames)
    told_of = [
        (one["type"], one.get("index"), one.get("delta") or one.get("content_block"))
        for one in payloads(frames)[1:-2]
    ]
    start, delta, stop = "content_block_start", "content_block_delta", "content_block_stop"
    assert told_of == [
        (start, 0, {"type": "thinking", "thinking": "", "signature": ""}),
        (delta, 0, {"type": "thinking_delta", "thinking": "h"}),
        (delta, 0, {"type": "thinking_delta", "thinking": "m"}),
        (delta, 0, {"type": "signature_delta", "signature": "sealed"}),
        (stop, 0, None),
        (start, 1, {"type": "text", "text": ""}),
        (delta, 1, {"type": "text_delta", "text": "Hel"}),
        (delta, 1, {"type": "text_delta", "text": "lo"}),
        (stop, 1, None),
        (start, 2, {"type": "tool_use", "id": "call_a", "name": "pay", "input": {}}),
        (delta, 2, {"type": "input_json_delta", "partial_json": '{"eur'}),
        (delta, 2, {"type": "input_json_delta", "partial_json": 'o":5}'}),
        (stop, 2, None),
        (start, 3, {"type": "tool_use", "id": "call_b", "name": "look", "input": {}}),
        (delta, 3, {"type": "input_json_delta", "partial_json": "{"}),
        (delta, 3, {"type": "input_json_delta", "partial_json": "}"}),
        (stop, 3, None),
    ]


def test_messages_begins_with_what_it_read_and_ends_with_what_it_wrote():
    first, *_, reason, last = payloads(told(MessagesReply))
    assert first["message"]["role"] == "assistant" and first["message"]["content"] == []
    assert first["message"]["usage"] == MESSAGES_USAGE | {"output_tokens": 1}
    assert reason == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    }
    assert last == {"type": "message_stop"}


MESSAGES_USAGE = {
    "input_tokens": 15,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 5,
    "output_tokens": 9,
}


def test_messages_in_one_body():
    body = whole(MessagesReply)
    assert (body["type"], body["stop_reason"]) == ("message", "tool_use")
    assert body["usage"] == MESSAGES_USAGE
    assert body["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sealed"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "call_a", "name": "pay", "input": {"euro": 5}},
        {"type": "tool_use", "id": "call_b", "name": "look", "input": {}},
    ]


def test_messages_in_one_body_passes_on_arguments_that_are_none():
    reply = MessagesReply({})
    reply.call("pay", '{"eu', "call_a")
    (body,) = reply.end()
    assert json.loads(body)["content"][0]["input"] == '{"eu'


def test_messages_has_a_ping_of_its_own_and_an_empty_piece_goes_where_the_last_one_went():
    reply = MessagesReply(STREAM)
    assert reply.ping(empty=False) == [b'event: ping\ndata: {"type":"ping"}\n\n']
    reply.call("pay", '{"eu', "call_a")
    (empty,) = payloads(reply.ping(empty=True))
    assert empty["delta"] == {"type": "input_json_delta", "partial_json": ""}


# --- all of them


@pytest.mark.parametrize(
    ("wire", "stop", "length", "refusal"),
    [
        (ChatReply, "stop", "length", "content_filter"),
        (ResponsesReply, "completed", "max_output_tokens", "content_filter"),
        (MessagesReply, "end_turn", "max_tokens", "refusal"),
    ],
)
def test_each_wire_has_its_words_for_our_reasons_and_passes_on_others(wire, stop, length, refusal):
    for given, expected in [
        ("", stop),
        ("stop", stop),
        ("length", length),
        ("refusal", refusal),
        ("odd", "odd"),
    ]:
        reply = wire(STREAM)
        reply.finish(given)
        assert reply.reason == expected


@each_wire
def test_half_a_character_can_be_said(wire):
    assert rb"\ud83d" in b"".join(wire(STREAM).say("\ud83d"))


@each_wire
def test_every_frame_is_one_event(wire):
    for frame in told(wire):
        assert frame.endswith(b"\n\n") and frame.count(b"\n\n") == 1
