import msgspec
import pytest

from holdfast.errors import BadReply
from holdfast.models.wire import parse


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
