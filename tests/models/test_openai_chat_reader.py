import json
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Done,
    Heard,
    Reasoning,
    Request,
    Said,
    Thought,
)
from holdfast.core.usage import Usage
from holdfast.errors import BadReply, ModelError, ModelUnavailable
from holdfast.models.openai_chat import OpenAIChat
from holdfast.models.openai_chat_reader import MOST_BLOCKS, MOST_CALLS
from holdfast.models.sse import Decoder
from holdfast.models.wire import ServerEvent

BYTES = Path(__file__).parent / "bytes"

# --- streams of several vendors --------------------------------------------------------


def hear(*pieces):
    """All chunks of a stream that is carried in these pieces."""
    decoder, reader = Decoder(), OpenAIChat().reader()
    chunks = []
    for piece in pieces:
        for event in decoder.feed(piece):
            chunks += reader.read(event)
            if chunks and isinstance(chunks[-1], Done):
                return chunks
    return [*chunks, *reader.end()]


VENDORS = {
    "openai": [
        Heard(),
        Said("Let me "),
        Said("look – 天気 ☂️."),
        Calling("weather"),
        Calling("weather"),
        Calling("weather"),
        Calling("clock"),
        Calling("clock"),
        Done(
            calls=(
                Asked("weather", '{"city":"Wien"}', "call_a1"),
                Asked("clock", "{}", "call_a2"),
            ),
            usage=Usage(input=82, output=37, cached=64, reasoning=5),
            model="gpt-4o-2024-08-06",
        ),
    ],
    "openrouter": [
        Heard(),
        Thought("The person "),
        Thought("greets me."),
        Said("Hello"),
        Said("!"),
        Done(
            reasoning=(
                Reasoning(
                    "The person greets me.",
                    wire="openai-chat",
                    seal='[{"type":"reasoning.text","text":"The person greets me."'
                    ',"format":"anthropic-claude-v1","index":0,"signature":"c2lnbmVk"}'
                    ',{"type":"reasoning.encrypted","data":"ZW5jcnlwdGVk"'
                    ',"format":"anthropic-claude-v1","index":1}]',
                ),
            ),
            usage=Usage(input=9, output=12, reasoning=7),
            model="anthropic/claude-sonnet-4",
        ),
    ],
    "ollama": [
        Calling("weather"),
        Calling("clock"),
        Done(
            calls=(
                Asked("weather", '{"city":"Köln","days":2}', "call_q1"),
                Asked("clock", "{}", "call_q2"),
            ),
            usage=Usage(input=150, output=30),
            model="llama3.1",
        ),
    ],
    "vllm": [
        Heard(),
        Thought("Hm"),
        Thought(", a call."),
        Calling("weather"),
        Calling("weather"),
        Calling("weather"),
        Done(
            calls=(Asked("weather", '{"city": "Rom"}', "chatcmpl-tool-1"),),
            reasoning=(Reasoning("Hm, a call.", "openai-chat", '{"field":"reasoning_content"}'),),
            usage=Usage(input=40, output=25),
            model="Qwen/Qwen3-8B",
        ),
    ],
    "deepseek": [
        Heard(),
        Thought("9.8 is"),
        Thought(" greater."),
        Said("9.8"),
        Done(
            stop="length",
            reasoning=(Reasoning("9.8 is greater.", wire="openai-chat"),),
            usage=Usage(input=18, output=6, reasoning=4),
            model="deepseek-reasoner",
        ),
    ],
    "groq": [
        Heard(),
        Thought("Be short."),
        Said("Yes."),
        Done(
            reasoning=(Reasoning("Be short.", wire="openai-chat"),),
            usage=Usage(input=76, output=11, reasoning=3),
            model="openai/gpt-oss-20b",
        ),
    ],
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_stream_is_understood_wherever_it_is_cut(vendor):
    stream = (BYTES / f"chat_{vendor}.txt").read_bytes()
    for cut in range(len(stream)):
        assert hear(stream[:cut], stream[cut:]) == VENDORS[vendor]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_stream_that_breaks_off_is_no_reply_until_the_model_was_done(vendor):
    stream = (BYTES / f"chat_{vendor}.txt").read_bytes()
    at = stream.index(b'"finish_reason":"')
    done = stream.index(b"\n\n", at) + 2
    for cut in range(done):
        with pytest.raises(BadReply) as caught:
            hear(stream[:cut])
        assert caught.value.reason == "truncated"
    for cut in range(done, len(stream)):
        assert hear(stream[:cut])[:-1] == VENDORS[vendor][:-1]


# --- pieces ----------------------------------------------------------------------------


def event(value, kind=""):
    return ServerEvent(kind, value if isinstance(value, bytes) else json.dumps(value).encode())


def piece(finish=None, **delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def read(*values):
    reader = OpenAIChat().reader()
    return [chunk for value in values for chunk in reader.read(event(value))]


def calling(**call):
    return piece(tool_calls=[call])


STOP = piece("stop")
DONE = b"[DONE]"


def test_an_empty_piece_of_a_call_is_no_progress():
    begun = calling(index=0, id="c1", function={"name": "pay", "arguments": ""})
    empty = calling(index=0, function={"arguments": ""})
    assert read(begun, empty, empty) == [Calling("pay")]


def test_a_call_may_come_in_any_pieces():
    chunks = read(
        calling(index=0, id="c1"),
        calling(index=0, function={"name": "pay"}),
        calling(index=0, function={"arguments": "{}"}),
        STOP,
        DONE,
    )
    assert chunks[-1].calls == (Asked("pay", "{}", model_id="c1"),)


def test_the_first_choice_is_an_acknowledgement_and_later_silence_is_none():
    empty = piece(role="assistant", content="")
    assert read({"choices": []}, {}, b"", {"choices": None}) == []
    assert read({"choices": []}, empty, empty, piece(), {"choices": []}) == [Heard()]
    assert read(piece(content="a"), empty) == [Said("a")]
    assert read({"choices": [{"index": 0}]}, {"choices": [{"delta": None}]}) == [Heard()]


def test_nulls_and_unknown_fields_are_passed_over():
    nothing = dict.fromkeys(
        ("content", "reasoning", "reasoning_content", "reasoning_details", "refusal", "tool_calls")
    )
    assert read(
        {"id": None, "model": None, "usage": None, "error": None, "object": None, "new": [1]}
        | piece(**nothing, audio={"id": 1}),
        {"choices": [{"index": None, "delta": {"content": "a", "role": 1}, "message": None}]},
    ) == [Heard(), Said("a")]


PLAIN = {"index": 0, "delta": {"content": "b"}, "finish_reason": None, "logprobs": None}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"model": "m-2"},
        {"model": None},
        {"object": "error"},
        {"error": {"message": "broken"}},
        {"usage": {"prompt_tokens": 3}},
        {"choices": []},
        {"choices": [PLAIN, PLAIN]},
        {"choices": [PLAIN | {"index": 1}]},
        {"choices": [PLAIN | {"finish_reason": "length"}]},
        {"choices": [PLAIN | {"error": {"message": "broken"}}]},
        {"choices": [PLAIN | {"delta": {"content": ""}}]},
        {"choices": [PLAIN | {"delta": {"content": None}}]},
        {"choices": [PLAIN | {"delta": {"content": "b", "refusal": "no"}}]},
        {"choices": [PLAIN | {"delta": {"content": "b", "reasoning": "hm"}}]},
        {"choices": [PLAIN | {"delta": {"content": "b", "tool_calls": [{"id": "c"}]}}]},
        {"choices": [PLAIN | {"delta": {"content": [{"type": "text", "text": "b"}]}}]},
    ],
    ids=str,
)
def test_a_piece_means_the_same_on_the_short_way_and_on_the_long_one(odd):
    """Most pieces are read on a shorter way, many at once."""

    def heard(*, short):
        reader = OpenAIChat().reader()
        plain = event({"object": "chat.completion.chunk", "choices": [PLAIN]})
        events = [plain, plain, event(json.loads(plain.data) | odd), plain, event(DONE)]
        try:
            reader.read(event(piece(content="a")))
            words, count = reader.words([one.data for one in events]) if short else ("", 0)
            chunks = [chunk for one in events[count:] for chunk in reader.read(one)]
        except ModelError as error:
            return str(error), reader.complete
        said = "".join(chunk.text for chunk in chunks if isinstance(chunk, Said))
        return words + said, [c for c in chunks if not isinstance(c, Said)], reader.complete

    assert heard(short=True) == heard(short=False)


def test_only_what_comes_after_the_first_words_is_read_on_the_short_way():
    reader, plain = OpenAIChat().reader(), {"object": "chat.completion.chunk", "choices": [PLAIN]}
    data = event(plain).data
    assert reader.words([data]) == ("", 0)
    (first,) = reader.read(event(plain))
    assert reader.words([data, data, DONE, data]) == (first.text * 2, 2)


def test_a_plain_piece_in_an_event_of_another_kind_is_no_words():
    reader = OpenAIChat().reader()
    reader.read(event(piece(content="a")))
    with pytest.raises(ModelError):
        reader.read(event({"object": "chat.completion.chunk", "choices": [PLAIN]}, "error"))


def test_only_the_first_of_several_choices_counts():
    other = {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}
    first = {"index": 0, "delta": {"content": "a"}}
    reader = OpenAIChat().reader()
    assert reader.read(event({"choices": [other]})) == ()
    assert reader.read(event({"choices": [other, first]})) == [Said("a")]
    assert not reader.complete


def test_content_may_come_as_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert read(piece(content=parts)) == [Said("ab")]


def test_halves_of_a_character_pass_through_and_are_joined_where_this_wire_keeps_them():
    def half(text, **function):
        call = {"index": 0, "function": function}
        return piece(content=text, reasoning_content=text, tool_calls=[call])

    first = half("\ud83d", name="t", arguments='{"\ud83d')
    second = half("\ude00", arguments='\ude00":0}')
    assert b"\\ud83d" in event(first).data
    assert read(first, second, DONE) == [
        Thought("\ud83d"),
        Said("\ud83d"),
        Calling("t"),
        Thought("\ude00"),
        Said("\ude00"),
        Calling("t"),
        Done(
            calls=(Asked("t", '{"😀":0}'),),
            reasoning=(Reasoning("😀", "openai-chat", '{"field":"reasoning_content"}'),),
        ),
    ]


def test_bytes_that_are_no_text_are_replaced():
    assert read(b'{"choices":[{"delta":{"content":"a\xff"}}]}') == [Said("a\ufffd")]


@pytest.mark.parametrize("data", [b"<html>", b"[]", b"1", b'{"choices":[{"delta":{"content":1}}]}'])
def test_what_is_not_this_wire_is_a_bad_reply(data):
    with pytest.raises(BadReply):
        read(data)


def test_nesting_without_end_is_a_bad_reply():
    deep = b"[" * 400_000 + b"]" * 400_000
    with pytest.raises(BadReply):
        read(b'{"choices":[{"delta":{"x":' + deep + b"}}]}")


# --- the end ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
    ],
)
def test_a_finish_reason_completes_the_reply(finish, stop):
    reader = OpenAIChat().reader()
    reader.read(event(piece(content="a")))
    assert not reader.complete
    reader.read(event(piece(finish)))
    assert reader.complete
    assert reader.end() == [Done(stop=stop)]


def test_a_finish_reason_without_letters_is_none():
    reader = OpenAIChat().reader()
    reader.read(event(piece("", content="a")))
    assert not reader.complete


@pytest.mark.parametrize("finish", ["error", "abort", "insufficient_system_resource"])
def test_a_model_that_was_cut_off_by_its_endpoint_is_asked_again(finish):
    with pytest.raises(ModelUnavailable, match=f"the reply broke off: {finish}"):
        read(piece(content="a"), piece(finish))


def test_the_end_marker_ends_a_reply_without_a_finish_reason():
    assert read(piece(content="a"), DONE) == [Said("a"), Done()]
    assert read(piece(reasoning="a"), DONE)[-1].reasoning
    whole = calling(function={"name": "t", "arguments": "{}"})
    assert read(whole, DONE)[-1].calls == (Asked("t", "{}"),)


@pytest.mark.parametrize("arguments", [None, "", '{"eu', "[]"])
def test_the_end_marker_makes_no_whole_call_of_half_a_one(arguments):
    """Nobody said that it was finished: whoever passed it on may have lost the rest."""
    with pytest.raises(BadReply) as caught:
        read(calling(function={"name": "t", "arguments": arguments}), DONE)
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("arguments", ['{"eu', "{}"])
def test_what_a_filter_has_cut_is_not_called(arguments):
    begun = calling(
        function={"name": "pay", "arguments": arguments}, extra_content={"google": {"a": "b"}}
    )
    assert read(begun, piece("content_filter"), DONE)[-1] == Done(stop="refusal")


@pytest.mark.parametrize("before", [[], [piece(role="assistant")]])
def test_the_end_marker_alone_is_no_reply(before):
    with pytest.raises(BadReply) as caught:
        read(*before, DONE)
    assert caught.value.reason == "truncated"


def test_an_empty_reply_that_was_finished_is_a_reply():
    assert read(STOP, DONE) == [Heard(), Done()]


def test_a_refusal_is_said_and_named():
    assert read(piece(refusal="No"), piece(refusal="."), STOP, DONE) == [
        Said("No"),
        Said("."),
        Done(stop="refusal"),
    ]


def test_usage_is_the_last_that_makes_sense():
    odd = {
        "prompt_tokens": 3,
        "completion_tokens": -1,
        "prompt_tokens_details": {"cached_tokens": 2**70},
        "completion_tokens_details": {"reasoning_tokens": None},
    }
    assert read({"usage": {"prompt_tokens": 1}}, {"usage": odd}, {"usage": None}, STOP, DONE)[
        -1
    ].usage == Usage(input=3)


# --- tool calls ------------------------------------------------------------------------


def asked(*pieces):
    return read(*pieces, piece("tool_calls"), DONE)[-1].calls


def test_several_calls_arrive_side_by_side():
    assert asked(
        calling(index=7, id="a", function={"name": "t", "arguments": "{"}),
        calling(index=3, id="b", function={"name": "u", "arguments": "["}),
        calling(index=7, id="", function={"name": None, "arguments": "}"}),
        calling(index=3, function={"arguments": "]"}),
        calling(index=3),
    ) == (Asked("t", "{}", "a"), Asked("u", "[]", "b"))


def test_a_repeated_id_and_name_are_still_one_call():
    again = {"id": "a", "function": {"name": "t", "arguments": "1"}}
    assert asked(*[calling(index=0, **again)] * 3) == (Asked("t", "111", "a"),)
    assert asked(*[calling(**again)] * 3) == (Asked("t", "111", "a"),)


def test_without_an_index_a_name_begins_a_call_and_the_rest_goes_on_with_it():
    assert asked(
        calling(id="a", function={"name": "t", "arguments": "{"}),
        calling(function={"arguments": "}"}),
        calling(id="b", function={"name": "t", "arguments": "{}"}),
        calling(id="", function={"name": "u", "arguments": None}),
        calling(id=None, function={"name": "u", "arguments": "{}"}),
    ) == (Asked("t", "{}", "a"), Asked("t", "{}", "b"), Asked("u", ""), Asked("u", "{}"))


def test_whole_calls_in_one_piece_may_all_have_the_same_index():
    both = [
        {"index": 0, "id": key, "function": {"name": "t", "arguments": {"at": key}}}
        for key in ("a", "b")
    ]
    assert asked(piece(tool_calls=both)) == (
        Asked("t", '{"at":"a"}', "a"),
        Asked("t", '{"at":"b"}', "b"),
    )


@pytest.mark.parametrize("first", [calling(index=0, id="a"), calling(function={"arguments": "{}"})])
def test_a_call_without_a_name_is_a_bad_reply(first):
    with pytest.raises(BadReply, match="without naming it") as caught:
        asked(first)
    assert caught.value.reason == "bad_reply"


@pytest.mark.parametrize("index", [None, 0, 2**40])
def test_too_many_calls_are_a_bad_reply(index):
    def many(count):
        return [
            calling(index=index and index + n, id=f"c{n}", function={"name": "t"})
            for n in range(count)
        ]

    assert len(asked(*many(MOST_CALLS))) == MOST_CALLS
    with pytest.raises(BadReply, match="over 128 calls"):
        asked(*many(MOST_CALLS + 1))


@pytest.mark.parametrize("arguments", ["", '{"a":', "[]", '{"a":1}}'])
def test_a_reply_cut_in_the_middle_of_a_call_says_so(arguments):
    begun = calling(index=0, function={"name": "t", "arguments": arguments})
    for parts in ([begun, piece("length"), DONE], [calling(index=0), piece("length"), DONE]):
        with pytest.raises(BadReply, match="cut in the middle of a tool call") as caught:
            read(*parts)
        assert caught.value.reason == "length"
    assert asked(begun) == (Asked("t", arguments),)


def test_a_reply_cut_after_its_calls_keeps_them():
    begun = calling(index=0, function={"name": "t", "arguments": '{"a":1}'})
    assert read(begun, piece("length"), DONE)[-1] == Done(
        stop="length", calls=(Asked("t", '{"a":1}'),)
    )


def test_arguments_of_any_depth_are_a_call_or_a_bad_reply():
    """Some are not too deep to be read, but too deep to be written."""
    for depth in range(1, sys.getrecursionlimit()):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        data = b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":"t","arguments":%b}}]}}]}'
        try:
            chunks = read(data % deep, DONE)
        except BadReply:
            continue
        assert chunks[-1].calls == (Asked("t", deep.decode()),)


# --- reasoning -------------------------------------------------------------------------


def details(*blocks, **delta):
    return piece(reasoning_details=list(blocks), **delta)


def sealed(*pieces):
    (reasoning,) = read(*pieces, STOP, DONE)[-1].reasoning
    assert reasoning.wire == "openai-chat"
    return reasoning.text, json.loads(reasoning.seal)


def test_reasoning_counts_once_where_it_stands_twice():
    assert read(piece(reasoning="a", reasoning_content="a")) == [Thought("a")]
    block = {"type": "reasoning.text", "text": "a", "index": 0}
    assert read(details(block, reasoning="a")) == [Thought("a")]
    assert read(details(block)) == [Thought("a")]
    assert read(details({"type": "reasoning.summary", "summary": "b"})) == [Thought("b")]
    assert read(piece(reasoning={"text": "a"})) == [Heard()]


def test_the_pieces_of_a_block_are_put_together():
    def text(words, **more):
        return {"type": "reasoning.text", "index": 0, "text": words, "signature": None} | more

    signed = text(None, signature="s")
    assert sealed(details(text("a")), details(text("b")), details(signed), details(text(""))) == (
        "ab",
        [{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}],
    )


def test_blocks_that_are_not_pieces_of_one_stay_apart():
    blocks = [
        {"type": "reasoning.text", "index": 0, "text": "a"},
        {"type": "reasoning.summary", "index": 0, "summary": "b"},
        {"type": "reasoning.summary", "index": 1, "summary": "c"},
        {"type": "reasoning.summary", "summary": "d"},
        {"type": "reasoning.summary", "summary": "e"},
        {"type": "reasoning.encrypted", "index": 2, "data": "f"},
        {"type": "reasoning.encrypted", "index": 2, "data": "g"},
        {"type": ["new"], "index": 3},
        {},
    ]
    assert sealed(details(*blocks)) == ("abcde", blocks)
    assert sealed(*map(details, blocks)) == ("abcde", blocks)


def test_sealed_reasoning_alone_shows_nothing_and_is_kept():
    blocks = [{"type": "reasoning.encrypted", "data": "x"}]
    assert sealed(details(*blocks)) == ("", blocks)


def test_a_seal_can_be_stored_and_sent_even_with_half_a_character_in_it():
    block = {"type": "reasoning.text", "index": 0}
    halves = [details(block | {"text": half}) for half in ("\ud83d", "\ude00", "\ud83d")]
    (reasoning,) = read(*halves, STOP, DONE)[-1].reasoning
    assert reasoning.seal == '[{"type":"reasoning.text","index":0,"text":"😀\\ud83d"}]'
    request = Request("m", "", (AssistantMessage("", reasoning=(reasoning,)),))
    assert reasoning.seal.encode() in OpenAIChat().body(request, model="m", stream=True)


CALL = calling(id="c", function={"name": "t", "arguments": "{}"})
CALLED = piece("tool_calls")


def kept(*pieces):
    return read(*pieces, CALL, CALLED, DONE)[-1].reasoning


def test_reasoning_that_an_endpoint_may_want_back_with_its_calls_says_in_which_field():
    seal = '{"field":"reasoning_content"}'
    thought = piece(reasoning_content="I look.")
    assert kept(thought) == (Reasoning("I look.", "openai-chat", seal),)
    assert kept(piece(reasoning_content="")) == (Reasoning("", "openai-chat", seal),)
    assert read(thought, STOP, DONE)[-1].reasoning == (Reasoning("I look.", "openai-chat"),)


def test_reasoning_in_another_field_is_wanted_back_by_nobody():
    assert kept(piece(reasoning="I look.")) == (Reasoning("I look.", "openai-chat"),)
    assert kept(piece(reasoning_content=None)) == ()


def test_blocks_go_back_instead_of_what_they_say():
    (thought,) = kept(details({"type": "reasoning.text", "text": "a"}, reasoning_content="a"))
    assert json.loads(thought.seal) == [{"type": "reasoning.text", "text": "a"}]


def test_what_came_beside_a_call_is_kept_with_its_place():
    signed = {"google": {"thought_signature": "sealed \ud83d"}}
    done = read(
        calling(index=0, function={"name": "t", "arguments": "{}"}),
        calling(index=1, function={"name": "t", "arguments": "{"}, extra_content=signed),
        calling(index=1, function={"arguments": "}"}, extra_content={"later": "not this"}),
        CALLED,
        DONE,
    )[-1]
    (beside,) = done.reasoning
    assert (beside.text, beside.wire, beside.before) == ("", "openai-chat", 1)
    assert json.loads(beside.seal) == {"extra": signed}


def test_too_many_blocks_are_a_bad_reply():
    with pytest.raises(BadReply, match="over 4096 blocks") as caught:
        read(*[details({})] * MOST_BLOCKS, details({}))
    assert caught.value.reason == "too_large"


# --- failures inside a reply -----------------------------------------------------------


def failure(value, kind=""):
    with pytest.raises(ModelError) as caught:
        OpenAIChat().reader().read(event(value, kind))
    return caught.value


def test_an_error_with_a_number_is_a_status():
    error = failure({"error": {"code": 502, "message": "Provider is down"}} | piece("error"))
    assert isinstance(error, ModelUnavailable)
    assert error.status == 502
    assert "Provider is down" in str(error)
    assert failure({"error": {"code": "402", "message": "no credits"}}).status == 402
    assert failure({"error": {"code": 429, "message": "rush"}}).status == 429
    assert failure({"error": {"code": 429, "type": "insufficient_quota"}}).status == 402


@pytest.mark.parametrize("code", [0, 200, 999, 10**300, "²²²", [], True])
def test_a_number_that_is_no_status_is_none(code):
    error = failure({"error": {"code": code, "message": "hm"}})
    assert isinstance(error, ModelUnavailable)
    assert error.status == 500


def test_an_error_with_a_name_is_what_it_is_called():
    assert failure({"error": {"code": "rate_limit_exceeded", "type": "tokens"}}).status == 429
    assert failure({"error": {"code": None, "type": "authentication_error"}}).status == 401
    overflow = {"type": "invalid_request_error", "message": "maximum context length is 8"}
    assert failure({"error": overflow}).reason == "context_overflow"


def test_an_error_is_recognised_in_every_place_where_endpoints_put_it():
    assert "broken" in str(failure({"error": "broken"}))
    assert "broken" in str(failure({"object": "error", "message": "broken", "code": 400}))
    assert "broken" in str(failure({"message": "broken"}, kind="error"))
    assert "broken" in str(failure({"choices": [{"error": {"code": 502, "message": "broken"}}]}))


@pytest.mark.parametrize("code", [500, "server_error"])
def test_the_words_of_an_error_are_bounded_and_may_be_anything(code):
    assert len(str(failure({"error": {"code": code, "message": "x" * 100_000}}))) < 66_000
    assert len(str(failure({"error": {"code": code, "message": "x" * 2000}}))) > 2000
    assert failure({"error": {"code": code, "message": ["x"]}}).status == 500
    assert failure({"error": {"code": code, "message": "\ud83d"}}).status == 500


# --- replies in one piece --------------------------------------------------------------


def whole(value):
    return OpenAIChat().reader().whole(json.dumps(value).encode())


def message(finish="stop", **fields):
    choice = {"index": 0, "message": {"role": "assistant"} | fields, "finish_reason": finish}
    return {"object": "chat.completion", "model": "m", "choices": [choice]}


def test_a_reply_in_one_piece_says_the_same():
    call = {"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    fields = {"content": "hi", "reasoning": "hm", "tool_calls": [call, call | {"id": "b"}]}
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    assert whole(message("tool_calls", **fields) | usage) == [
        Thought("hm"),
        Said("hi"),
        Calling("t"),
        Calling("t"),
        Done(
            calls=(Asked("t", "{}", "a"), Asked("t", "{}", "b")),
            reasoning=(Reasoning("hm", wire="openai-chat"),),
            usage=Usage(input=1, output=2),
            model="m",
        ),
    ]


def test_a_reply_in_one_piece_needs_no_finish_reason_if_it_says_something():
    assert whole(message(None, content="hi")) == [Said("hi"), Done(model="m")]
    assert whole(message("stop", content=None)) == [Done(model="m")]
    assert whole(message("stop", refusal="no"))[-1] == Done(stop="refusal", model="m")
    for nothing in (message(None, content=""), {"choices": []}, {}):
        with pytest.raises(BadReply):
            whole(nothing)


def test_a_reply_in_one_piece_may_be_a_failure_or_cut():
    with pytest.raises(ModelUnavailable):
        whole({"error": {"code": 503, "message": "busy"}})
    cut = {"id": "a", "function": {"name": "t", "arguments": "{"}}
    with pytest.raises(BadReply) as caught:
        whole(message("length", tool_calls=[cut]))
    assert caught.value.reason == "length"
    with pytest.raises(BadReply):
        OpenAIChat().reader().whole(b"")


# --- anything --------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def some(**fields):
    """A dictionary with some of these fields, each as it should be or as anything else."""
    each = {name: strategy | ANYTHING for name, strategy in fields.items()}
    return st.fixed_dictionaries({}, optional=each)


WORDS = st.none() | st.text(st.characters(), max_size=5)
ERRORS = some(message=WORDS, type=WORDS, code=WORDS | st.integers())
CALLS = some(
    index=st.integers(0, 3),
    id=WORDS,
    function=st.fixed_dictionaries(
        {}, optional={"name": WORDS, "arguments": WORDS | st.dictionaries(WORDS, ANYTHING)}
    ),
)
BLOCKS = some(
    type=st.sampled_from(["reasoning.text", "reasoning.summary", "reasoning.encrypted"]),
    text=WORDS,
    summary=WORDS,
    index=st.integers(0, 1),
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": WORDS,
        "reasoning": WORDS | ANYTHING,
        "refusal": WORDS,
        "reasoning_details": st.lists(BLOCKS, max_size=3),
        "tool_calls": st.lists(CALLS, max_size=3),
    },
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 0, 0, 1]),
        "delta": DELTAS,
        "message": DELTAS,
        "finish_reason": st.sampled_from([None, None, "stop", "length", "x"]),
    },
)
CHUNKS = ANYTHING | st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(CHOICES, max_size=2),
        "usage": some(prompt_tokens=st.integers(), prompt_tokens_details=ANYTHING),
        "error": st.none() | ERRORS,
        "model": WORDS,
    },
)


@given(st.lists(CHUNKS, max_size=6))
def test_whatever_comes_is_understood_or_a_model_error(values):
    reader, chunks = OpenAIChat().reader(), []
    try:
        for value in values:
            chunks += reader.read(event(value))
        chunks += reader.end()
    except ModelError:
        return
    assert [chunk for chunk in chunks if isinstance(chunk, Done)] == chunks[-1:]
    for reasoning in chunks[-1].reasoning:
        assert not reasoning.seal or isinstance(json.loads(reasoning.seal), list)
        msgspec.json.encode(reasoning.seal)


@given(CHUNKS)
def test_whatever_comes_in_one_piece_is_understood_or_a_model_error(value):
    try:
        chunks = whole(value)
    except ModelError:
        return
    assert isinstance(chunks[-1], Done)


@given(st.binary())
def test_bytes_of_any_kind_are_nothing_or_a_model_error(data):
    try:
        OpenAIChat().reader().read(ServerEvent("", data))
    except ModelError:
        return
