import json
from pathlib import Path

import pytest
from hypothesis import example, given
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
from holdfast.models.anthropic import Anthropic
from holdfast.models.sse import Decoder
from holdfast.models.wire import ServerEvent

BYTES = Path(__file__).parent / "bytes"
STREAMS = sorted(path.stem.removeprefix("anthropic_") for path in BYTES.glob("anthropic_*.txt"))


def listen(pieces):
    """Every chunk of a stream, then the error it ended with, if it did."""
    decoder, reader, chunks = Decoder(), Anthropic().reader(), []
    try:
        for piece in pieces:
            for event in decoder.feed(piece):
                chunks += reader.read(event)
        if not any(isinstance(chunk, Done) for chunk in chunks):
            chunks += reader.end()
    except ModelError as error:
        chunks.append((type(error), error.reason, str(error)))
    return chunks


def stream(name):
    return (BYTES / f"anthropic_{name}.txt").read_bytes()


def hear(*events, kinds=True):
    """The chunks of these events, and the reader."""
    reader, chunks = Anthropic().reader(), []
    for event in events:
        data = json.dumps(event).encode()
        chunks += reader.read(ServerEvent((kinds and event.get("type")) or "", data))
    return chunks, reader


def done_of(*events):
    chunks, _ = hear(*events)
    return chunks[-1]


def begin(index=0, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index=0, **delta):
    return {"type": "content_block_delta", "index": index, "delta": delta}


def close(index=0):
    return {"type": "content_block_stop", "index": index}


def settle(why):
    return {"type": "message_delta", "delta": {"stop_reason": why}}


STOP = {"type": "message_stop"}
TOOL = begin(type="tool_use", id="toolu_1", name="look", input={})
MODEL = "claude-test-1"

HEARD = {
    "text": [
        Heard(),
        Said("Guten "),
        Said("Tag, Zoë 🌊"),
        Done(usage=Usage(input=25, output=15), model=MODEL),
    ],
    "thinking": [
        Heard(),
        Thought("27 is 3"),
        Thought(" times 9."),
        Said("It is 27."),
        Done(
            reasoning=(Reasoning("27 is 3 times 9.", wire="anthropic", seal="EqQBCg=="),),
            usage=Usage(input=2125, output=40, cached=2000, written=100),
            model=MODEL,
        ),
    ],
    "redacted": [
        Heard(),
        Said("Well: "),
        Said("no."),
        Done(
            reasoning=(Reasoning("", wire="anthropic", seal="redacted:Eow/x+=="),),
            usage=Usage(input=25, output=9),
            model=MODEL,
        ),
    ],
    "parallel": [
        Heard(),
        Said("Two looks."),
        Calling("look"),
        *[Calling()] * 2,
        Calling("look"),
        Calling(),
        Done(
            calls=(
                Asked("look", '{"at": "São Paulo"}', model_id="toolu_01"),
                Asked("look", '{"at": "sea", "far": 1.50}', model_id="toolu_02"),
            ),
            usage=Usage(input=25, output=89),
            model=MODEL,
        ),
    ],
    "empty_input": [
        Heard(),
        Calling("look"),
        Done(
            calls=(Asked("look", "{}", model_id="toolu_01"),),
            usage=Usage(input=25, output=20),
            model=MODEL,
        ),
    ],
    "server_tool": [
        Heard(),
        Said("At noon."),
        Done(usage=Usage(input=25, output=33), model=MODEL),
    ],
    "max_tokens": [
        Heard(),
        Said("Once upon"),
        Done(stop="length", usage=Usage(input=25, output=2), model=MODEL),
    ],
    "cut_call": [
        Heard(),
        Calling("write"),
        Calling(),
        (BadReply, "length", "the reply was cut inside a call of write"),
    ],
    "refusal": [
        Heard(),
        Said("I"),
        Done(stop="refusal", usage=Usage(input=25, output=1), model=MODEL),
    ],
    "error": [
        Heard(),
        Said("Hel"),
        (ModelUnavailable, "overloaded", "the endpoint answered 529: Overloaded"),
    ],
    "pings": [(BadReply, "truncated", "the reply broke off without its end marker")],
    "halves": [
        Heard(),
        Thought("\ud83c"),
        Thought("\udf0a?"),
        Said("a \ud83c"),
        Said("\udf0a!"),
        Calling("draw"),
        Calling(),
        Calling(),
        Done(
            calls=(Asked("draw", '{"it":"🌊"}', model_id="toolu_01"),),
            reasoning=(Reasoning("🌊?", wire="anthropic", seal="Eq=="),),
            usage=Usage(input=25, output=7),
            model=MODEL,
        ),
    ],
}


def test_each_stream_has_its_story():
    assert sorted(HEARD) == STREAMS


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_says_the_same_wherever_it_is_cut(name):
    data = stream(name)
    assert listen([data]) == HEARD[name]
    assert listen(data[place : place + 1] for place in range(len(data))) == HEARD[name]
    for place in range(1, len(data)):
        assert listen([data[:place], data[place:]]) == HEARD[name]


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_breaks_off_is_no_reply_unless_all_was_said(name):
    data = stream(name)
    settled = data.find(b"\n\n", data.find(b"event: message_delta"))
    for place in range(len(data)):
        last = listen([data[:place]])[-1]
        if place < settled + 2 or b"event: message_delta" not in data:
            assert not isinstance(last, Done)
        else:
            assert last == HEARD[name][-1]


@pytest.mark.parametrize("name", ["text", "thinking", "parallel"])
def test_a_server_that_does_not_name_its_events_is_understood(name):
    data = b"\n".join(line for line in stream(name).splitlines() if line[:6] != b"event:") + b"\n"
    assert listen([data]) == HEARD[name]


def test_a_reply_is_complete_when_it_says_why_it_ended():
    chunks, reader = hear({"type": "message_start"}, grow(type="text_delta", text="a"))
    assert not reader.complete
    reader.read(ServerEvent("message_delta", json.dumps(settle(None)).encode()))
    assert not reader.complete
    reader.read(ServerEvent("message_delta", json.dumps(settle("end_turn")).encode()))
    assert reader.complete
    assert reader.end() == (Done(),)


def test_an_end_marker_is_one_whether_or_not_a_reason_came():
    chunks, reader = hear(STOP)
    assert chunks == [Done()] and reader.complete


def test_it_is_heard_once():
    start = {"type": "message_start", "message": {"model": "a"}}
    assert hear(start, {"type": "message_start"})[0] == [Heard()]


@pytest.mark.parametrize(
    ("why", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),
        ("pause_turn", "stop"),
        ("something new", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
    ],
)
def test_why_a_reply_ended(why, stop):
    assert done_of(settle(why), STOP).stop == stop


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ping"},
        {"type": "something_new", "delta": 7, "message": "hello"},
        {"type": None},
        {},
        {"type": "content_block_start"},
        {"type": "content_block_start", "index": None, "content_block": None},
        begin(type="text", text=None),
        begin(type="text", text=""),
        begin(type="something_new", input={"a": 1}, text="not ours"),
        begin(type="redacted_thinking", data=None),
        {"type": "content_block_delta", "delta": None},
        grow(type="text_delta", text=None),
        grow(type="text_delta", text=""),
        grow(type="thinking_delta", thinking="of nobody"),
        grow(type="input_json_delta", partial_json="{}"),
        grow(type="something_new"),
        {"type": "content_block_stop", "index": 10**30},
        {"type": "message_delta", "delta": None, "usage": None},
        {"type": "message_delta", "usage": {"output_tokens": None, "new": []}},
    ],
)
@pytest.mark.parametrize("kinds", [True, False])
def test_what_is_new_or_null_says_nothing(event, kinds):
    assert hear(event, STOP, kinds=kinds)[0] == [Done()]


def test_a_block_that_grows_out_of_kind_stays_as_it_is():
    done = done_of(
        TOOL,
        grow(type="thinking_delta", thinking="a"),
        grow(type="signature_delta", signature="b"),
        close(),
        begin(1, type="thinking", thinking=None),
        grow(1, type="input_json_delta", partial_json="{"),
        grow(1, type="thinking_delta", thinking=None),
        grow(1, type="signature_delta", signature=None),
        close(1),
        STOP,
    )
    assert done == Done(calls=(Asked("look", "{}", model_id="toolu_1"),))


def test_a_thought_may_begin_with_words_and_a_seal():
    chunks, _ = hear(begin(type="thinking", thinking="hm", signature="Eq"), close(), STOP)
    assert chunks == [
        Thought("hm"),
        Done(reasoning=(Reasoning("hm", wire="anthropic", seal="Eq"),)),
    ]


def test_a_thought_that_was_cut_keeps_no_seal():
    chunks, _ = hear(
        begin(type="thinking", thinking="hm", signature="Eq"), settle("max_tokens"), STOP
    )
    assert chunks[-1].reasoning == (Reasoning("hm", wire="anthropic"),)


def test_a_thought_keeps_its_place_among_the_words_and_calls():
    def think(place):
        return begin(place, type="thinking", signature=f"s{place}"), close(place)

    def call(place):
        return begin(place, type="tool_use", id="t", name="look", input={}), close(place)

    def say(place, words):
        return begin(place, type="text", text=""), grow(place, type="text_delta", text=words)

    events = [*think(0), *say(1, "Two "), *think(2), *say(3, "looks."), *call(4), *think(5)]
    done = done_of(*events, *call(6), STOP)
    places = [(each.seal, each.said, each.before) for each in done.reasoning]
    assert places == [("s0", 0, 0), ("s2", 4, 0), ("s5", 10, 1)]


def test_a_call_that_is_not_made_takes_no_place():
    events = (TOOL, begin(1, type="thinking", signature="s"), close(1), settle("refusal"), STOP)
    (thought,) = done_of(*events).reasoning
    assert thought.before == 0


def test_input_that_was_whole_at_the_start_counts_where_no_pieces_come():
    whole = begin(type="tool_use", id="toolu_1", name="look", input={"at": "Rügen"})
    assert done_of(whole, close(), STOP).calls[0].arguments == '{"at":"Rügen"}'
    pieces = grow(type="input_json_delta", partial_json='{"at": 2}')
    assert done_of(whole, pieces, close(), STOP).calls[0].arguments == '{"at": 2}'


def test_arguments_in_the_wrong_form_are_for_the_tool_to_say():
    piece = grow(type="input_json_delta", partial_json='{"at":')
    assert done_of(TOOL, piece, close(), settle("tool_use"), STOP).calls[0].arguments == '{"at":'


def test_a_whole_call_survives_a_reply_that_was_cut_after_it():
    done = done_of(TOOL, close(), settle("max_tokens"), STOP)
    assert done.stop == "length"
    assert done.calls == (Asked("look", "{}", model_id="toolu_1"),)


@pytest.mark.parametrize(
    ("why", "reason"), [("tool_use", "truncated"), ("max_tokens", "length"), (None, "truncated")]
)
def test_a_call_that_was_never_closed_is_no_call(why, reason):
    piece = grow(type="input_json_delta", partial_json="{}")
    with pytest.raises(BadReply) as caught:
        hear(TOOL, piece, settle(why), STOP)
    assert caught.value.reason == reason


def test_a_call_is_never_closed_by_another_in_its_place():
    with pytest.raises(BadReply, match="no end"):
        hear(TOOL, TOOL, close(), settle("tool_use"), STOP)


def test_pieces_of_a_block_that_is_not_ours_are_no_sign_of_the_one_before_it():
    theirs = begin(type="server_tool_use", id="srvtoolu_1", name="web_search", input={})
    chunks, _ = hear(TOOL, theirs, grow(type="input_json_delta", partial_json="{}"))
    assert chunks == [Calling("look")]


def test_a_call_cut_in_half_a_character_was_cut():
    piece = grow(type="input_json_delta", partial_json='{"it":"\ud83c')
    with pytest.raises(BadReply) as caught:
        hear(TOOL, piece, close(), settle("max_tokens"), STOP)
    assert caught.value.reason == "length"


def test_calls_that_share_a_place_one_after_another_are_all_kept():
    assert len(done_of(TOOL, close(), TOOL, close(), settle("tool_use"), STOP).calls) == 2


def test_a_refusal_is_told_even_in_the_middle_of_a_call():
    assert done_of(TOOL, settle("refusal"), STOP) == Done(stop="refusal")


@pytest.mark.parametrize("name", [None, ""])
def test_a_call_of_nothing_is_no_reply(name):
    with pytest.raises(BadReply, match="without naming it"):
        hear(begin(type="tool_use", id="toolu_1", name=name))


def test_calls_without_end_are_refused_before_they_cost_anything():
    reader = Anthropic().reader()
    with pytest.raises(BadReply, match="more than 256"):
        for place in range(300):
            event = {**TOOL, "index": place * 10**12}
            reader.read(ServerEvent("content_block_start", json.dumps(event).encode()))
    assert place == 256


def test_counts_are_of_all_so_far():
    def counted(**usage):
        return {"type": "message_delta", "usage": usage}

    done = done_of(
        counted(output_tokens=3, input_tokens=10),
        counted(output_tokens=9, input_tokens=0, cache_read_input_tokens=4),
        counted(output_tokens=None),
        STOP,
    )
    assert done.usage == Usage(input=14, output=9, cached=4)


@pytest.mark.parametrize(
    ("usage", "output"),
    [
        ({"output_tokens": -1}, 0),
        ({"output_tokens": 2**60}, 0),
        ({"output_tokens": float("-inf")}, 0),
        ({"output_tokens": float("nan")}, 0),
        ({"output_tokens": "7"}, 0),
        ({"output_tokens": [7]}, 0),
        ({"output_tokens": 7.0}, 7),
        ({"output_tokens": 7, "input_tokens": -7}, 7),
        ({"something_new": 7}, 0),
        (7, 0),
        ([], 0),
    ],
)
def test_a_count_that_makes_no_sense_does_not_cost_the_reply(usage, output):
    assert done_of({"type": "message_delta", "usage": usage}, STOP).usage == Usage(output=output)
    assert whole({"type": "text", "text": "a"}, usage=usage)[-1].usage == Usage(output=output)


def test_what_is_put_into_the_cache_is_counted_as_a_part_of_the_input():
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 3}
    done = done_of({"type": "message_start", "message": {"usage": usage}}, STOP)
    assert done.usage == Usage(input=15, cached=3, written=7)


@pytest.mark.parametrize("error", [None, {}, {"type": None, "message": None}])
def test_an_error_that_explains_nothing_is_an_error(error):
    with pytest.raises(ModelUnavailable):
        hear({"type": "error", "error": error})


def test_an_error_says_who_must_act():
    with pytest.raises(ModelRefused) as caught:
        hear({"type": "error", "error": {"type": "authentication_error", "message": "bad key"}})
    assert caught.value.status == 401


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b"{", b'{"index": "0"}', b'{"delta": 7}', b"[" * 100_000]
)
def test_what_is_not_its_language_is_a_bad_reply(data):
    with pytest.raises(BadReply):
        Anthropic().reader().read(ServerEvent("content_block_delta", data))


# --- a reply in one piece ------------------------------------------------------------------


def whole(*content, why="end_turn", **more):
    body = {"type": "message", "content": content, "stop_reason": why, "model": MODEL, **more}
    return Anthropic().reader().whole(json.dumps(body).encode())


def test_a_whole_reply_says_what_a_stream_would():
    chunks = whole(
        {"type": "thinking", "thinking": "hm", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "Eow="},
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web", "input": {"q": 1}},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "🌊", "n": [1]}},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        None,
        why="tool_use",
        usage={"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5},
    )
    assert chunks == (
        Heard(),
        Thought("hm"),
        Said("I look."),
        Calling("look"),
        Calling("look"),
        Done(
            calls=(
                Asked("look", '{"at":"🌊","n":[1]}', model_id="toolu_1"),
                Asked("look", "{}", model_id="toolu_2"),
            ),
            reasoning=(
                Reasoning("hm", wire="anthropic", seal="EqQB"),
                Reasoning("", wire="anthropic", seal="redacted:Eow="),
            ),
            usage=Usage(input=7, output=5, cached=4),
            model=MODEL,
        ),
    )


def test_a_whole_reply_that_was_cut_says_so():
    assert whole({"type": "text", "text": "a"}, why="max_tokens")[-1].stop == "length"
    with pytest.raises(BadReply) as caught:
        whole({"type": "tool_use", "name": "look", "input": "half"}, why="max_tokens")
    assert caught.value.reason == "length"


def test_a_whole_error_is_an_error():
    body = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    with pytest.raises(ModelUnavailable, match="Overloaded"):
        Anthropic().reader().whole(body)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'"hello"', b"<html>", b'{"type": "error"}'])
def test_what_is_no_message_is_a_bad_reply(body):
    with pytest.raises(BadReply):
        Anthropic().reader().whole(body)


def test_a_whole_reply_nested_too_deeply_is_a_bad_reply():
    """Somewhere on the way down the parser still can and the writer no longer does."""
    refused = 0
    for depth in (*range(900, 1010), 100_000):
        nested = b"[" * depth + b"]" * depth
        body = b'{"content":[{"type":"tool_use","name":"look","input":' + nested + b"}]}"
        try:
            Anthropic().reader().whole(body)
        except BadReply:
            refused += 1
    assert refused


# --- anything at all -----------------------------------------------------------------------

EVENTS = (
    "message_start content_block_start content_block_delta content_block_stop message_delta"
    " message_stop ping error something_new"
)
KINDS = st.just("") | st.sampled_from(EVENTS.split())
OF_THE_WIRE = (
    "text thinking redacted_thinking tool_use text_delta thinking_delta signature_delta"
    " input_json_delta max_tokens tool_use refusal"
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=5)
    | st.sampled_from(OF_THE_WIRE.split())
)
OF_A_PIECE = "text thinking signature data id name input partial_json stop_reason"
OF_AN_EVENT = (
    "type index delta content_block message usage error content model input_tokens output_tokens"
    " cache_read_input_tokens"
)
FIELDS = st.sampled_from(f"{OF_A_PIECE} {OF_AN_EVENT}".split())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
    max_leaves=12,
)
PIECES = st.fixed_dictionaries({"type": LEAVES}, optional=dict.fromkeys(OF_A_PIECE.split(), LEAVES))
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "type": KINDS,
        "index": st.integers(0, 2) | LEAVES,
        "delta": PIECES,
        "content_block": PIECES,
        "usage": VALUES,
        "error": VALUES,
    },
)


@given(st.lists(st.tuples(KINDS, LIKELY | VALUES | st.binary()), max_size=12))
@example([("content_block_start", TOOL), ("message_stop", {})])
def test_whatever_comes_it_is_a_reply_or_a_model_error(events):
    reader = Anthropic().reader()
    try:
        for kind, value in events:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            for chunk in reader.read(ServerEvent(kind, data)):
                assert isinstance(chunk, Heard | Said | Thought | Calling | Done)
        assert isinstance(reader.end()[-1], Done)
    except ModelError:
        pass


@given(VALUES | st.fixed_dictionaries({"content": st.lists(PIECES)}) | st.binary())
def test_whatever_comes_in_one_piece_is_a_reply_or_a_model_error(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    try:
        assert isinstance(Anthropic().reader().whole(data)[-1], Done)
    except ModelError:
        pass
