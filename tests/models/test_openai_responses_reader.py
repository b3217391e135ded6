import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import (
    Asked,
    Calling,
    Done,
    Heard,
    Reasoning,
    Said,
    Thought,
)
from holdfast.core.usage import Usage
from holdfast.errors import BadReply, ModelError, ModelRefused, ModelUnavailable
from holdfast.models.openai_responses import OpenAIResponses
from holdfast.models.openai_responses_reader import MOST_ITEMS
from holdfast.models.sse import Decoder
from holdfast.models.wire import ServerEvent

BYTES = Path(__file__).parent / "bytes"
WIRE = "openai-responses"


def event(type, **fields):
    return ServerEvent("", json.dumps({"type": type, **fields}).encode())


def added(item, index=None, **fields):
    return event("response.output_item.added", item=item, output_index=index, **fields)


def done(item, index=None, **fields):
    return event("response.output_item.done", item=item, output_index=index, **fields)


def delta(text, **fields):
    return event("response.output_text.delta", delta=text, **fields)


def completed(*output, **fields):
    return event("response.completed", response={"output": output, **fields})


def incomplete(*output, reason="max_output_tokens"):
    details = {"reason": reason}
    return event("response.incomplete", response={"output": output, "incomplete_details": details})


def call(id="fc_1", call_id="call_a", name="look", arguments="{}", **fields):
    known = {"id": id, "call_id": call_id, "name": name, "arguments": arguments}
    return {"type": "function_call", **known, **fields}


def message(text, id="msg_1", **fields):
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": id, "content": content, **fields}


def thought(*summary, id="rs_1", **fields):
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": id, "summary": parts, **fields}


def read(*events):
    reader = OpenAIResponses().reader()
    chunks = [chunk for event in events for chunk in reader.read(event)]
    return [*chunks, *reader.end()]


def whole(**response):
    return list(OpenAIResponses().reader().whole(json.dumps(response).encode()))


def stored(name):
    return (BYTES / f"responses_{name}.txt").read_bytes()


def outcome(events):
    """The chunks of a stream, and the error if it ends in one."""
    reader, chunks = OpenAIResponses().reader(), []
    try:
        for server_event in events:
            chunks += reader.read(server_event)
        chunks += reader.end()
    except ModelError as error:
        chunks.append((type(error), error.reason, str(error)))
    return chunks


def seal(*summary):
    parts = [{"type": "summary_text", "text": text} for text in summary]
    sealed = {"type": "reasoning", "summary": parts, "encrypted_content": "gAAAAsealed=="}
    return json.dumps(sealed, separators=(",", ":"))


GPT = "gpt-5-2025-08-07"

STREAMS = {
    "text": [
        Heard(),
        *map(Said, ("Hi", " – zażółć 😀", "!")),
        Done(usage=Usage(input=36, output=11, cached=4), model=GPT),
    ],
    "reasoning": [
        Heard(),
        *map(Thought, ("**Look", "ing**", "\n\n", "And more")),
        Said("42"),
        Done(
            reasoning=(
                Reasoning("**Looking**\n\nAnd more", WIRE, seal("**Looking**", "And more")),
            ),
            usage=Usage(input=81, output=1035, reasoning=832),
            model=GPT,
        ),
    ],
    "parallel": [
        Heard(),
        *[Calling("weather")] * 7,
        Done(
            calls=(
                Asked("weather", '{"city":"Łódź"}', "call_a"),
                Asked("weather", '{"city":"Rome"}', "call_b"),
            ),
            usage=Usage(input=70, output=40),
            model=GPT,
        ),
    ],
    "reasoning_tool": [
        Heard(),
        *[Calling("look")] * 3,
        Done(
            calls=(Asked("look", "{}", "call_a"),),
            reasoning=(Reasoning("", WIRE, seal()),),
            usage=Usage(input=9, output=70, reasoning=64),
            model=GPT,
        ),
    ],
    "incomplete": [
        Heard(),
        *map(Said, ("Once upon", " a time")),
        Done(stop="length", usage=Usage(input=5, output=4), model=GPT),
    ],
    "incomplete_call": [
        Heard(),
        *[Calling("write")] * 2,
        (BadReply, "length", "the reply ended in the middle of a tool call"),
    ],
    "failed": [
        Heard(),
        Said("Let me"),
        (ModelUnavailable, "overloaded", "the endpoint answered 429: Slow down, please."),
    ],
    "refusal": [
        Heard(),
        *map(Said, ("I cannot", " help with that.")),
        Done(stop="refusal", usage=Usage(input=3, output=6), model=GPT),
    ],
    "codex": [
        Heard(),
        Thought("Plan"),
        Said("I look."),
        *[Calling("shell")] * 3,
        Done(
            calls=(Asked("shell", '{"command":["ls"]}', "call_a"),),
            reasoning=(Reasoning("Plan", WIRE, seal("Plan")),),
            usage=Usage(input=12, output=7),
        ),
    ],
    "halves": [
        Heard(),
        *map(Said, ("a\ud83d", "\ude00b")),
        Done(usage=Usage(input=1, output=2), model=GPT),
    ],
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_reads_the_same_wherever_its_bytes_are_cut(name):
    data = stored(name)
    events = Decoder().feed(data)
    assert outcome(events) == STREAMS[name]
    for cut in range(len(data)):
        decoder = Decoder()
        # A reader sees events alone, so those that are the same read the same.
        assert [*decoder.feed(data[:cut]), *decoder.feed(data[cut:])] == events, cut


def test_every_stored_stream_is_read():
    assert {path.stem for path in BYTES.glob("responses_*")} == {f"responses_{n}" for n in STREAMS}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_without_its_last_event_is_no_reply(name):
    *events, last = Decoder().feed(stored(name).removesuffix(b"data: [DONE]\n\n"))
    with pytest.raises(BadReply) as broken:
        read(*events)
    assert broken.value.reason == "truncated"


def test_only_the_last_event_completes_a_reply():
    reader = OpenAIResponses().reader()
    reader.read(done(message("all"), 0))
    assert not reader.complete
    reader.read(completed())
    assert reader.complete
    assert reader.end() == reader.read(delta("more")) == ()


@pytest.mark.parametrize("first", ["response.created", "response.queued", "response.in_progress"])
def test_the_backend_is_heard_once(first):
    begun = [event("response.in_progress"), event("response.queued"), added(message(""), 0)]
    assert read(event(first), *begun, completed()) == [Heard(), Done()]


@pytest.mark.parametrize("item", [message(""), thought(), {"type": "web_search_call"}, None])
def test_the_first_item_is_heard_if_nothing_was_before(item):
    assert read(added(item), event("response.created"), completed()) == [Heard(), Done()]


def test_who_has_spoken_need_not_be_heard():
    assert read(delta("a"), event("response.created"), completed()) == [Said("a"), Done()]


@pytest.mark.parametrize(
    "noise",
    [
        ServerEvent("", b"[DONE]"),
        ServerEvent("ping", b"still here"),
        ServerEvent("keepalive", b""),
        ServerEvent("", b"{}"),
        ServerEvent("", b'{"type":null,"item":3,"delta":[1]}'),
        event("keepalive", sequence_number=3),
        event("codex.rate_limits", rate_limits={}),
        event("response.audio.delta", delta={"a": 1}),
        event("response.output_text.done", text="all"),
        delta(""),
        delta(None),
        event("response.reasoning.delta", delta={"text": 1}),
        done(None),
        done({"type": "web_search_call", "content": "x", "arguments": {"a": 1}}),
    ],
)
def test_what_is_not_for_us_says_nothing(noise):
    assert read(noise, completed()) == [Done()]


def test_the_name_of_the_event_counts_where_it_is_not_in_the_data():
    assert read(ServerEvent("response.output_text.delta", b'{"delta":"a"}'), completed())[0] == (
        Said("a")
    )


@pytest.mark.parametrize("data", [b"not json", b"3", b'{"type":3}', b"[" * 100_000])
def test_what_cannot_be_read_is_a_bad_reply(data):
    with pytest.raises(BadReply):
        read(ServerEvent("", data))


def test_a_known_item_that_makes_no_sense_is_a_bad_reply():
    with pytest.raises(BadReply, match="cannot be read"):
        read(done(call(arguments={"not": "text"})))


# --- text and thoughts -----------------------------------------------------------------


def test_text_that_was_not_streamed_is_said_when_the_item_is_done():
    events = [delta("Hel", item_id="msg_1"), done(message("Hello"), 0), completed()]
    assert read(*events) == [Said("Hel"), Said("lo"), Done()]
    assert read(done(message("all"), 0), completed()) == [Said("all"), Done()]


def test_text_that_was_cut_and_then_told_again_is_said_once():
    cut = message("Once", status="incomplete")
    assert read(done(cut, 0), incomplete(cut)) == [Said("Once"), Done(stop="length")]


def test_text_that_differs_from_what_was_streamed_is_not_patched():
    events = [delta("Hallo", output_index=0), done(message("Hello!"), 0), completed()]
    assert read(*events) == [Said("Hallo"), Done()]


def test_what_was_not_streamed_is_found_behind_split_characters():
    events = [delta("\ud83d"), delta("\ude00"), done(message("😀!")), completed()]
    assert read(*events)[2] == Said("!")


def test_two_messages_are_told_apart_by_place_by_id_or_by_being_done():
    by_place = [delta("a", output_index=0), delta("b", output_index=1)]
    by_id = [delta("a", item_id="m0"), delta("b", item_id="m1")]
    output = (message("aA", "m0"), message("bB", "m1"))
    rest = [Said("a"), Said("b"), Said("A"), Said("B"), Done()]
    assert read(*by_place, completed(*output)) == rest
    assert read(*by_id, completed(*output)) == rest
    in_turn = [delta("a"), done(message("a", "m0")), delta("b"), done(message("bB", "m1"))]
    assert read(*in_turn, completed(*output)) == [Said("a"), Said("b"), Said("B"), Done()]


def test_ids_that_change_with_every_event_do_not_matter():
    events = [
        added(message("", "x1"), 0),
        delta("a", item_id="x2", output_index=0),
        done(message("a", "x3"), 0),
        completed(message("a", "x4")),
    ]
    assert read(*events) == [Heard(), Said("a"), Done()]


def test_places_that_are_all_the_same_do_not_matter():
    events = [
        done(thought("t"), 0),
        delta("a", item_id="m0", output_index=0),
        done(message("a", "m0"), 0),
        delta("b", item_id="m1", output_index=0),
        done(message("b", "m1"), 0),
        done(call(), 0),
        done(call("fc_2", "call_b"), 0),
        completed(thought("t"), message("a", "m0"), message("b", "m1"), call()),
    ]
    *chunks, last = read(*events)
    assert chunks == [Thought("t"), Said("a"), Said("b"), *[Calling("look")] * 2]
    assert [asked.model_id for asked in last.calls] == ["call_a", "call_b"]


def test_one_streamed_message_does_not_stand_for_two():
    output = (message("a", None), message("b", None))
    assert read(delta("a"), completed(*output)) == [Said("a"), Said("b"), Done()]


def test_a_last_event_that_leaves_items_out_repeats_none():
    events = [done(thought("t"), 0), done(message("a"), 1), done(call(), 2)]
    assert read(*events, completed(message("a"), call())) == read(*events, completed())


def test_a_refusal_is_said_and_noted_however_it_comes():
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    said = [Said("No."), Done(stop="refusal")]
    assert read(event("response.refusal.delta", delta="No."), completed()) == said
    assert read(done(refused), completed()) == said
    assert whole(status="completed", output=[refused]) == said


@pytest.mark.parametrize("kind", ["reasoning_summary_text", "reasoning_text", "reasoning"])
def test_thoughts_are_thoughts_by_any_name(kind):
    assert read(event(f"response.{kind}.delta", delta="hm"), completed()) == [Thought("hm"), Done()]


def test_a_new_part_or_a_new_item_of_thought_begins_with_a_blank_line():
    def think(text, index, part):
        kind = "response.reasoning_summary_text.delta"
        return event(kind, delta=text, output_index=index, summary_index=part)

    events = [think("a", 0, 0), think("b", 0, 0), think("c", 0, 1), think("d", 2, 0), completed()]
    assert "".join(chunk.text for chunk in read(*events)[:-1]) == "ab\n\nc\n\nd"


def test_a_thought_without_a_seal_is_text_alone_and_without_either_nothing():
    raw = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "raw"}]}
    assert read(done(thought("a", "b"), 0), done(raw, 1), done(thought(), 2), completed()) == [
        *map(Thought, ("a\n\nb", "\n\n", "raw")),
        Done(reasoning=(Reasoning("a\n\nb", WIRE), Reasoning("raw", WIRE))),
    ]


def test_a_seal_that_comes_late_is_taken():
    late = thought("t", encrypted_content="gAAAAsealed==")
    for events in ([done(thought("t"), 0), completed(late)], [done(late, 0), completed(thought())]):
        assert read(*events) == [
            Thought("t"),
            Done(reasoning=(Reasoning("t", WIRE, seal("t")),)),
        ]


def test_a_seal_is_the_item_as_it_came_without_its_id():
    [*_, last] = read(done(thought("t", encrypted_content="gAAAAsealed=="), 0), completed())
    assert last.reasoning == (Reasoning("t", WIRE, seal("t")),)


def test_a_thought_keeps_its_place_among_the_words_and_calls():
    output = [thought("a"), message("Two "), thought("b"), message("looks."), call(), thought("c")]
    told = [done(item | {"id": f"i{place}"}, place) for place, item in enumerate(output)]
    for last in (read(*told, completed())[-1], read(completed(*output))[-1]):
        places = [(each.text, each.said, each.before) for each in last.reasoning]
        assert places == [("a", 0, 0), ("b", 4, 0), ("c", 10, 1)]


def test_a_seal_can_be_kept_even_with_half_a_character_beside_it():
    [*_, last] = read(done(thought("\ud83d", encrypted_content="x"), 0), completed())
    assert last.reasoning[0].seal.isascii()


# --- tool calls ------------------------------------------------------------------------


def test_a_call_told_only_in_the_last_event_is_taken_from_there():
    assert read(completed(message("I look."), call())) == [
        Said("I look."),
        Calling("look"),
        Done(calls=(Asked("look", "{}", "call_a"),)),
    ]


@pytest.mark.parametrize(
    "again",
    [
        call(),
        call(id="fc_9"),
        call(id=None),
        call(call_id=None),
        call(id=None, call_id=None),
    ],
)
def test_a_call_told_again_is_made_once(again):
    assert len(read(done(call(), 0), completed(again))[-1].calls) == 1
    assert len(read(done(again, 0), completed(call()))[-1].calls) == 1
    assert len(read(done(call()), done(call()), completed(again))[-1].calls) == 1


def test_calls_that_share_an_id_are_still_two():
    events = [done(call("fc_1", "same"), 0), done(call("fc_2", "same"), 1)]
    output = (call("fc_1", "same"), call("fc_2", "same"))
    assert len(read(*events, completed())[-1].calls) == 2
    assert len(read(*events, completed(*output))[-1].calls) == 2
    assert len(whole(status="completed", output=output)[-1].calls) == 2


def test_a_call_the_last_event_adds_is_not_mistaken_for_another_in_its_place():
    *_, last = read(done(call(), 0), completed(call("fc_2", "call_b")))
    assert [asked.model_id for asked in last.calls] == ["call_a", "call_b"]
    *_, last = read(done(message("a", "m0")), completed(message("b", "m1")))[:-1]
    assert last == Said("b")


def test_what_the_end_of_a_call_leaves_out_is_known_from_its_beginning():
    events = [
        added(call(arguments=""), 0),
        event("response.function_call_arguments.delta", delta='{"a"', output_index=0),
        event("response.function_call_arguments.delta", delta=":1}", item_id="fc_1"),
        done({"type": "function_call"}, 0),
    ]
    asked = (Asked("look", '{"a":1}', "call_a"),)
    assert read(*events, completed())[-1].calls == asked
    assert read(*events[:-1], completed())[-1].calls == asked


def test_a_call_without_arguments_has_none():
    assert read(done(call(arguments=None)), completed())[-1].calls[0].arguments == "{}"


def test_arguments_that_make_no_sense_are_for_the_tool_to_judge():
    assert read(done(call(arguments="{oops")), completed())[-1].calls[0].arguments == "{oops"


def test_a_call_without_a_name_is_a_bad_reply():
    for events in ([done(call(name=None)), completed()], [completed(call(name=""))]):
        with pytest.raises(BadReply, match="without naming it"):
            read(*events)


@pytest.mark.parametrize("arguments", ["", '{"a":', "[1]", "[" * 100_000])
def test_a_call_that_never_ended_is_not_passed_over(arguments):
    piece = event("response.function_call_arguments.delta", delta=arguments, output_index=0)
    with pytest.raises(BadReply) as broken:
        read(added(call(arguments=""), 0), piece, completed())
    assert broken.value.reason == "truncated"


def test_too_many_items_are_refused_before_they_cost_anything():
    absurd = [added(call(f"fc_{n}", f"call_{n}"), 10**18 + n) for n in range(MOST_ITEMS + 1)]
    assert len(
        read(*[done(call(f"fc_{n}", f"c{n}"), n) for n in range(128)], completed())[-1].calls
    )
    with pytest.raises(BadReply, match=f"more than {MOST_ITEMS} items"):
        read(*absurd)
    with pytest.raises(BadReply, match=f"more than {MOST_ITEMS} items"):
        read(completed(*[message("")] * (MOST_ITEMS + 1)))


# --- other ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        [added(call(arguments=""), 0), incomplete()],
        [done(call(arguments='{"a'), 0), incomplete()],
        [done(call(status="incomplete"), 0), incomplete()],
        [incomplete(call(arguments=""))],
        [done(call(), 0), incomplete(call(), call("fc_2", "call_b", arguments='{"'))],
    ],
)
def test_a_call_cut_by_the_length_of_the_reply_is_asked_for_again(events):
    with pytest.raises(BadReply) as cut:
        read(*events)
    assert cut.value.reason == "length"


def test_a_call_that_was_whole_before_the_cut_is_made():
    assert read(done(call(), 0), incomplete()) == [
        Calling("look"),
        Done(stop="length", calls=(Asked("look", "{}", "call_a"),)),
    ]


def test_a_filter_that_cuts_a_reply_is_a_refusal_and_nothing_is_called():
    events = [delta("Well", output_index=0), added(call(arguments=""), 1), done(call(), 2)]
    assert read(*events, incomplete(reason="content_filter"))[-1] == Done(stop="refusal")


def test_a_cut_for_another_reason_is_one_of_length():
    assert read(event("response.incomplete")) == [Done(stop="length")]


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            event("response.failed", response={"error": {"code": "server_error", "message": "m"}}),
            (ModelUnavailable, 500),
        ),
        (event("response.failed", response={"error": None}), (ModelUnavailable, 500)),
        (event("response.failed"), (ModelUnavailable, 500)),
        (event("error", code="rate_limit_exceeded", message="slow"), (ModelUnavailable, 429)),
        (
            event("error", error={"type": "invalid_request_error", "code": None, "message": "m"}),
            (ModelRefused, 400),
        ),
        (event("error", error="no", code=400, message=["x"]), (ModelUnavailable, 500)),
        (
            event("response.failed", response={"error": {"code": "image_too_large"}}),
            (ModelRefused, 400),
        ),
        (event("response.cancelled"), (ModelUnavailable, None)),
    ],
)
def test_a_failure_says_who_must_act(failure, expected):
    with pytest.raises(ModelError) as raised:
        read(delta("a"), failure)
    assert (type(raised.value), raised.value.status) == expected


def test_an_endless_explanation_is_cut():
    with pytest.raises(ModelUnavailable) as raised:
        read(event("error", message="x" * 100_000))
    assert 2000 < len(str(raised.value)) < 66_000


def test_counts_that_are_none_cost_nothing():
    usage = {"input_tokens": 1.5, "output_tokens": -3, "input_tokens_details": 7}
    assert read(completed(usage=usage)) == [Done()]


# --- in one piece ----------------------------------------------------------------------


def test_a_reply_in_one_piece_says_the_same():
    output = [thought("t", encrypted_content="gAAAAsealed=="), message("I look."), call()]
    usage = {"input_tokens": 3, "output_tokens": 2}
    assert whole(status="completed", model="gpt", output=output, usage=usage) == [
        Thought("t"),
        Said("I look."),
        Calling("look"),
        Done(
            calls=(Asked("look", "{}", "call_a"),),
            reasoning=(Reasoning("t", WIRE, seal("t")),),
            usage=Usage(input=3, output=2),
            model="gpt",
        ),
    ]


def test_a_reply_in_one_piece_may_be_cut():
    assert whole(status="incomplete", output=[message("Once")]) == [
        Said("Once"),
        Done(stop="length"),
    ]
    with pytest.raises(BadReply, match="in the middle of a tool call"):
        whole(status="incomplete", output=[call(arguments="{")])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "m"}}, ModelUnavailable),
        ({"status": "failed"}, ModelUnavailable),
        ({"error": {"type": "authentication_error", "message": "who?"}}, ModelRefused),
        ({"status": "cancelled"}, ModelUnavailable),
        ({"status": "in_progress", "output": []}, BadReply),
        ({}, BadReply),
    ],
)
def test_what_is_no_reply_in_one_piece_raises(response, expected):
    with pytest.raises(expected):
        whole(**response)


# --- anything at all -------------------------------------------------------------------

KINDS = [
    "response.created",
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.function_call_arguments.delta",
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "error",
    "response.unknown",
]
TEXT = st.text(st.characters(exclude_categories=()), max_size=6)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
ANY = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
WORDS = st.lists(st.fixed_dictionaries({}, optional={"text": TEXT, "refusal": TEXT}), max_size=2)
SMALL = st.none() | st.integers(-1, 3)
NAMED = st.sampled_from([None, "", "a", "b"])
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "other"])},
    optional={
        "id": NAMED,
        "call_id": NAMED,
        "name": NAMED,
        "status": st.sampled_from([None, "completed", "incomplete"]),
        "arguments": st.none() | st.sampled_from(["{}", "{", ""]) | TEXT,
        "content": st.none() | WORDS,
        "summary": st.none() | WORDS,
        "encrypted_content": st.none() | TEXT,
    },
)
RESPONSE = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["completed", "incomplete", "failed", None]),
        "output": st.lists(ITEM | ANY, max_size=4),
        "usage": ANY,
        "error": ANY,
        "incomplete_details": ANY,
    },
)
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "delta": TEXT | ANY,
        "item_id": NAMED,
        "output_index": SMALL,
        "summary_index": SMALL,
        "item": ITEM | ANY,
        "response": RESPONSE | ANY,
        "error": ANY,
        "code": ANY,
        "message": ANY,
    },
)


def sane(chunks):
    """Whatever came, it comes to at most one end, and that is the last."""
    assert all(not isinstance(chunk, Done) for chunk in chunks[:-1])
    return chunks


@given(st.lists(EVENT | ANY, max_size=8))
def test_no_event_raises_anything_but_a_model_error(values):
    reader, chunks = OpenAIResponses().reader(), []
    try:
        for value in values:
            chunks += reader.read(ServerEvent("", json.dumps(value).encode()))
        chunks += reader.end()
    except ModelError:
        return
    assert isinstance(sane(chunks)[-1], Done)


@given(RESPONSE | ANY)
def test_no_body_raises_anything_but_a_model_error(value):
    try:
        chunks = OpenAIResponses().reader().whole(json.dumps(value).encode())
    except ModelError:
        return
    assert isinstance(sane(chunks)[-1], Done)


def test_a_call_that_is_unfinished_when_it_is_told_again_is_told_once():
    call = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "pay"}
    call |= {"arguments": "{}", "status": "incomplete"}
    assert [type(chunk) for chunk in read(done(call, 0), completed(call))] == [Calling, Done]


@given(st.lists(ITEM, max_size=3))
def test_what_is_told_twice_is_taken_once(output):
    """The last event lists the very items that were told before, as OpenAI does."""
    output = [item | {"id": f"i{n}", "call_id": f"c{n}"} for n, item in enumerate(output)]
    events = [done(item, index) for index, item in enumerate(output)]
    try:
        expected = read(*events, completed())
    except ModelError:
        return
    assert read(*events, completed(*output)) == expected
