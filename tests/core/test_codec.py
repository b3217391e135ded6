from hashlib import sha256
from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import (
    canonical,
    decode,
    decode_history,
    encode,
    link_before,
    link_messages,
    read_link,
    recall,
    record,
)
from holdfast.core.events import (
    ModelCalled,
    ModelChoice,
    ModelFailed,
    ModelReplied,
    RunAccepted,
    RunQueued,
    StopRequested,
    TextStreamed,
    ToolProgressed,
    Unknown,
)
from holdfast.core.messages import AssistantMessage, BlobRef, Image, Text, ToolMessage, UserMessage
from holdfast.core.run import effect
from holdfast.core.usage import Usage
from holdfast.core.watchdog import Patience
from holdfast.errors import InvalidRequest, StoreError
from tests.core.stories import accepted, call

ODD = ["\u2028", "\u2029", "\x85", "\x00", "\x1f\x7f", "\U0001f600", "e\u0301", "\ufeff", "\ufffd"]
DEEP = 100_000


def text(words):
    return TextStreamed(turn=1, attempt=1, text=words)


# --- events


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back_exactly(words):
    assert decode(encode(text(words))) == text(words)


@pytest.mark.parametrize("words", [*ODD, "".join(ODD), "null", '{"type":"run.failed"}'])
def test_odd_text_comes_back_exactly(words):
    assert decode(encode(text(words))) == text(words)


def test_huge_text_comes_back_exactly():
    words = "".join(ODD) * 100_000
    assert decode(encode(text(words))) == text(words)


def test_stored_bytes_are_one_line_whatever_they_hold():
    assert b"\n" not in encode(text("a\nb\r\n"))


def test_half_a_character_is_refused_by_its_name_and_place():
    with pytest.raises(InvalidRequest, match=r"half a character \(U\+D83D at 2\)"):
        encode(text("ab\ud83d"))


def test_an_event_keeps_the_bytes_it_was_stored_with():
    odd = b'{ "type" : "stop.requested",\t"by":"\\u0061da", "later": [1, {"x": 2}] }'
    recorded = recall(7, 1.5, odd)
    assert recorded.body == odd
    assert recorded.event == StopRequested(by="ada")
    assert (recorded.seq, recorded.at) == (7, 1.5)


def test_recording_makes_the_bytes_once():
    recorded = record(1, 2.0, StopRequested(by="ada"))
    assert recorded.body == b'{"type":"stop.requested","by":"ada"}'
    assert recall(1, 2.0, recorded.body) == recorded


def test_a_field_of_a_newer_version_is_passed_over():
    assert decode(b'{"type":"stop.requested","urgency":9}') == StopRequested()


def test_an_unknown_tag_is_kept_byte_for_byte():
    odd = b'{"type" :  "run.forked", "into": ["run_2"]}'
    assert recall(3, 1.0, odd).event == Unknown("run.forked")
    assert recall(3, 1.0, odd).body == odd


@pytest.mark.parametrize(
    "body", [b'{"type":"stop.requested","by":7}', b'{"type":"run.queued","why":"bored"}']
)
def test_a_known_event_in_a_shape_we_do_not_know_is_a_newer_version_s(body):
    assert isinstance(decode(body), Unknown)


@pytest.mark.parametrize(
    "event",
    [
        RunQueued(why="bored"),
        StopRequested(by=7),
        ModelReplied(turn=1, attempt=1, usage=Usage(input=1.5)),
        RunAccepted(input=(), models=(ModelChoice("m", options={"a": object()}),)),
        RunAccepted(input=(), models=(ModelChoice("m", options={"a": 10**5000}),)),
    ],
)
def test_what_no_reader_would_understand_is_refused_before_it_is_written(event):
    with pytest.raises(InvalidRequest):
        encode(event)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"type":1}',
        b'{"type":"stop.requested","by":"\xff"}',
        b'{"type":"stop.requested","by":"\\ud83d"}',
        b'{"type":"run.forked",}',
        b'{"type":"stop.requested","x":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"type":"run.forked","x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    ],
)
def test_damaged_bytes_are_a_store_error_and_nothing_else(body):
    with pytest.raises(StoreError, match="a stored event cannot be read"):
        decode(body)


@pytest.mark.parametrize(
    "event",
    [
        ModelFailed(turn=1, attempt=1, reason="reset", waited=nan),
        ModelFailed(turn=1, attempt=1, reason="reset", retry_after=inf),
        ModelCalled(turn=1, attempt=1, model="main", patience=Patience(first=inf)),
        ModelReplied(turn=1, attempt=1, usage=Usage(cost=-inf)),
        accepted(models=(ModelChoice("main", {"stop": ["a"], "heat": [1.0, nan]}),)),
    ],
)
def test_a_number_no_reader_could_be_given_back_is_refused(event):
    with pytest.raises(InvalidRequest, match="infinite or none at all"):
        encode(event)


def test_nothing_is_a_fine_thing_to_store_where_it_is_allowed():
    options = {"stop": None, "heat": 1.5, "best": (1, [2, "null"])}
    event = accepted(models=(ModelChoice("main", options),))
    assert decode(encode(event)).models[0].options == {**options, "best": [1, [2, "null"]]}


def test_what_is_nested_too_deeply_is_refused():
    deep: list[object] = []
    for _ in range(DEEP):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        encode(accepted(models=(ModelChoice("main", {"x": deep}),)))


# --- conversations


def test_a_conversation_comes_back_exactly():
    conversation = (
        UserMessage(parts=(Text("\u2028"),), id="m1"),
        AssistantMessage(text="\x00", calls=(call(),)),
        ToolMessage(call_id="c1", tool="pay", output="".join(ODD), ok=False),
    )
    links = link_messages(conversation)
    assert decode_history(link.body for link in links) == conversation
    assert decode_history(()) == link_messages(()) == ()


def test_a_conversation_that_goes_on_begins_with_the_same_links():
    said = [UserMessage(parts=(Text(f"{n}"),)) for n in range(4)]
    links = link_messages(said)
    assert link_messages(said[:3]) == links[:3]
    assert link_messages(said[1:])[0] != links[1]
    assert [link_before(link.body) for link in links] == ["", *(link.name for link in links[:3])]
    assert all(sha256(link.body).hexdigest() == link.name for link in links)


def test_a_link_tells_which_pictures_are_in_it():
    shown = UserMessage(parts=(Image(blob=BlobRef("ab", 2)), Image(url="https://x.test")))
    one, other = link_messages((shown, shown))
    assert one.pictures == other.pictures == ("ab",)
    assert read_link(other.body) == other != one


def test_a_conversation_in_one_piece_is_still_read():
    said = (UserMessage(parts=(Text("hi"),)), AssistantMessage(text="ho"))
    whole = msgspec.json.encode(said)
    assert decode_history((whole,)) == said
    assert read_link(whole) is None and link_before(whole) == ""


def test_a_conversation_with_half_a_character_is_refused():
    with pytest.raises(InvalidRequest, match="half a character"):
        link_messages((AssistantMessage(text="\ude00"),))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[{}]",
        b'[{"role":"judge"}]',
        b'[{"role":"\xff"}]',
        b"{}",
        b'{"before":1}',
        b"\x00",
    ],
)
def test_a_damaged_conversation_is_a_store_error(body):
    with pytest.raises(StoreError, match="a stored conversation cannot be read"):
        decode_history((body,))
    if not body.startswith(b"["):
        with pytest.raises(StoreError, match="a stored conversation cannot be read"):
            read_link(body)
        with pytest.raises(StoreError, match="a stored conversation cannot be read"):
            link_before(body)


# --- arguments


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b": 2,\n "a": 1 }'),
        ('{"a":"A"}', '{"a":"\\u0041"}'),
        ('{"a":{"d":[1,2],"c":null}}', '{"a":{"c":null,"d":[1, 2]}}'),
        ('{"sum":100}', '{"sum":100.0}'),
        ('{"sum":100}', '{"sum":1e2}'),
        ('{"sum":0.5}', '{"sum":5e-1}'),
    ],
)
def test_equal_arguments_have_one_spelling(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"a":1}', '{"a":2}'), ('{"a":1}', '{"a":"1"}'), ("[1,2]", "[2,1]"), ("{", "{ ")],
)
def test_other_arguments_have_another_spelling(one, other):
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "not json",
        '{"a":',
        '{"a":"\\ud83d"}',
        '"\ud83d"',
        "[" * DEEP,
        "[" * DEEP + "]" * DEEP,
        '{"a":' * DEEP + "1" + "}" * DEEP,
        "9" * 5000,
        "\x00",
    ],
)
def test_what_is_no_readable_json_stands_for_itself(arguments):
    assert canonical(arguments) == arguments
    assert effect(call(arguments=arguments)) == f"pay {arguments}"


@pytest.mark.parametrize("schema", ["", "no", "[]", "true", '{"properties":[]}', "[" * DEEP])
def test_a_schema_that_says_nothing_adds_nothing(schema):
    assert canonical('{"b":1.0,"a":2}', schema) == '{"a":2,"b":1}'


@given(st.text() | st.text(alphabet='{}[]":,\\ud8e019.-'))
def test_no_arguments_are_so_odd_that_looking_at_them_fails(arguments):
    assert canonical(canonical(arguments)) == canonical(arguments)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()))
def test_the_one_spelling_means_the_same(value):
    spelled = msgspec.json.encode(value)
    assert msgspec.json.decode(canonical(spelled.decode())) == value


def test_progress_of_a_tool_is_stored_like_any_text():
    event = ToolProgressed(call_id="c1", text="".join(ODD))
    assert decode(encode(event)) == event
