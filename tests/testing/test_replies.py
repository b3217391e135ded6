import json
from typing import ClassVar

import pytest

from holdfast.core.usage import Usage
from holdfast.testing.replies import USAGE, Reply, encoded


class Plain(Reply):
    """A wire of the fewest words."""

    reasons: ClassVar = {"tools": "tool"}

    def whole(self):
        return {"said": [block.text for block in self.blocks], "why": self.reason}

    def _opening(self):
        return [{"type": "opening"}]

    def _starting(self, block):
        return [{"type": f"{block.kind}+"}]

    def _delta(self, block, piece):
        return {"type": piece}

    def _closing(self, block):
        return [{"type": f"{block.kind}-"}]

    def _finishing(self):
        return [{"type": self.reason}]


@pytest.fixture
def reply():
    return Plain({"stream": True})


def words(frames):
    return [json.loads(frame.split(b"data: ")[1])["type"] for frame in frames]


def test_a_reply_begins_once(reply):
    assert words(reply.begin()) == ["opening"]
    assert reply.begin() == []
    assert words(reply.say("a")) == ["text+", "a"]


def test_pieces_of_one_kind_share_a_block_and_another_kind_closes_it(reply):
    assert words(reply.think("a")) == ["opening", "thought+", "a"]
    assert words(reply.think("b")) == ["b"]
    assert words(reply.say("c")) == ["thought-", "text+", "c"]
    assert [block.text for block in reply.blocks] == ["ab", "c"]


def test_each_call_is_a_block_whose_arguments_come_in_two_pieces_and_which_stays_open(reply):
    reply.begin()
    assert words(reply.call("pay", '{"a":1}', "x")) == ["call+", '{"a', '":1}']
    assert words(reply.call("pay", "{}", "x")) == ["call-", "call+", "{", "}"]
    assert words(reply.end()) == ["call-", "tool"]


def test_a_reason_to_finish_is_given_once(reply):
    assert words(reply.finish("odd")) == ["opening", "odd"]
    assert reply.end() == []


def test_without_a_reason_there_is_the_ordinary_one(reply):
    assert words(reply.end()) == ["opening", "stop"]


def test_a_body_in_one_piece_comes_at_the_end_and_not_before():
    reply = Plain({"stream": False})
    assert reply.begin() + reply.say("a") + reply.call("pay", "{}", "x") + reply.finish() == []
    (body,) = reply.end()
    assert json.loads(body) == {"said": ["a", "{}"], "why": "tool"}


def test_a_body_that_breaks_off_is_half_of_itself_and_a_stream_is_what_was_sent(reply):
    whole, half = Plain({}), Plain({})
    whole.say("hello")
    half.say("hello")
    (body,), (cut,) = whole.end(), half.cut()
    assert cut == body[: len(body) // 2]
    assert reply.cut() == []


def test_a_ping_says_nothing_and_an_empty_one_looks_like_a_piece(reply):
    assert reply.ping(empty=False) == [b": keep-alive\n\n"]
    assert words(reply.ping(empty=True)) == ["opening", "text+", ""]
    assert words(reply.ping(empty=True)) == [""]
    assert Plain({}).ping(empty=True) == [b"\n"]


def test_a_frame_is_named_after_what_it_holds(reply):
    assert reply.begin() == [b'event: opening\ndata: {"type":"opening"}\n\n']


def test_text_goes_out_as_utf_8_and_half_a_character_as_an_escape():
    assert encoded({"text": "ü"}) == '{"text":"ü"}'.encode()
    assert encoded({"text": "ü\ud83d"}) == rb'{"text":"\u00fc\ud83d"}'


def test_what_was_used_is_made_up_unless_it_is_given():
    assert Plain({}).usage == USAGE
    assert Plain({}, Usage(input=1)).usage == Usage(input=1)
