import msgspec
import pytest

from holdfast.core.messages import AssistantMessage, Reasoning, ToolCall
from holdfast.errors import BadReply
from holdfast.models.wire import in_order, longest, parse


class Delta(msgspec.Struct):
    text: str = ""


DELTAS = msgspec.json.Decoder(Delta)


def test_json_becomes_what_it_is():
    assert parse(b'{"text": "a", "more": 1}', DELTAS) == Delta("a")


def test_bytes_that_are_no_text_become_replacement_characters():
    assert parse(b'{"text": "a\xff"}', DELTAS) == Delta("a\ufffd")


def test_half_a_character_is_kept_for_the_other_half_to_come():
    assert parse(b'{"text": "\\ud83d"}', DELTAS) == Delta("\ud83d")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"text": 1}', b"nonsense", b"[" * 100_000, b'{"text": "\\ud83d", 1}'],
)
def test_anything_else_is_a_bad_reply(data):
    with pytest.raises(BadReply):
        parse(data, DELTAS)


def test_what_is_nested_too_deeply_is_a_bad_reply_too():
    anything = msgspec.json.Decoder()
    with pytest.raises(BadReply):
        parse(b"[" * 100_000 + b"]" * 100_000, anything)


# --- what goes back --------------------------------------------------------------------


HERE, THERE = "https://here.example/v1", "https://there.example/v1"
CALLS = (ToolCall("a", "look"), ToolCall("b", "look"), ToolCall("c", "look"))


def thought(before=0, said=0, wire="smoke", seal="sealed", origin=HERE):
    return Reasoning("hm", wire, seal, origin, before, said)


def back(*reasoning, text="one two", calls=CALLS):
    return [
        each for each in in_order(AssistantMessage(text, reasoning, calls), "smoke", HERE) if each
    ]


def test_what_a_model_thought_said_and_asked_for_keeps_its_order():
    first, second, third = thought(), thought(said=4), thought(before=2, said=7)
    assert back(first, second, third) == [
        first,
        "one ",
        second,
        "two",
        *CALLS[:2],
        third,
        CALLS[2],
    ]


def test_a_thought_of_unknown_place_comes_first():
    assert back(thought()) == [thought(), "one two", *CALLS]


def test_places_that_make_no_sense_lose_and_repeat_nothing():
    odd = (thought(before=-1, said=-1), thought(before=9, said=99), thought(before=1, said=2))
    assert [each for each in back(*odd) if not isinstance(each, Reasoning)] == ["one two", *CALLS]


@pytest.mark.parametrize("other", [{"wire": "steam"}, {"seal": ""}, {"origin": THERE}])
def test_what_another_sealed_or_nobody_stays_here(other):
    assert back(thought(**other)) == ["one two", *CALLS]


def test_a_seal_from_before_origins_were_kept_goes_back_to_its_wire():
    assert thought(origin="") in back(thought(origin=""))


def test_the_longest_reply_goes_by_the_first_name_with_a_number():
    both = {"max_tokens": 1, "max_completion_tokens": 2}
    assert longest(both) == ("max_completion_tokens", 2)
    assert longest({**both, "max_completion_tokens": None}) == ("max_tokens", 1)
    assert longest({"max_tokens": "1"}) is None
