import pytest

from holdfast.server.bodies import (
    LONGEST_NAME,
    count,
    flag,
    message_id,
    only,
    read_object,
    session_id,
    string,
    text,
)
from holdfast.server.problems import Problem


def refusal(read, *args, **kwargs):
    with pytest.raises(Problem) as caught:
        read(*args, **kwargs)
    assert caught.value.status == 400
    return caught.value.complaint


def test_an_object_is_read_as_it_is():
    assert read_object(b'{"a": [1, {"b": "c"}]}') == {"a": [1, {"b": "c"}]}


def test_a_field_that_means_nothing_is_named_unless_it_cannot_be_shown():
    only({"title": 1}, ("title", "pinned"), code="x")
    found = refusal(only, {"shade": 1}, ("title", "pinned"), code="unsupported")
    assert (found.param, found.code) == ("shade", "unsupported")
    assert found.message.endswith("only title, pinned")
    assert refusal(only, {"a\nb": 1}, ("title",), code="x").param == "that"


def test_texts_and_flags_are_what_they_are_or_are_refused():
    assert (string({}, "a"), string({"a": None}, "a"), string({"a": "b"}, "a")) == ("", "", "b")
    assert refusal(string, {"a": 5}, "a", code="c").code == "c"
    assert refusal(text, {"a": "x" * (LONGEST_NAME + 1)}, "a").code == "text_too_long"
    assert (flag({}, "a"), flag({"a": False}, "a"), flag({"a": True}, "a")) == (None, False, True)
    assert refusal(flag, {"a": 1}, "a").param == "a"


@pytest.mark.parametrize("bad", [5, [], "a\n", " a", "x" * (LONGEST_NAME + 1), "\u200b", "a\ud800"])
def test_an_id_is_one_that_can_be_seen_and_kept(bad):
    assert refusal(session_id, {"session_id": bad}).code == "invalid_session_id"
    assert refusal(message_id, {"message_id": bad}).code == "invalid_message_id"


def test_an_id_of_a_session_leads_nowhere_and_may_be_left_out():
    for bad in ("a/b", "a\\b", "..", "import"):
        assert refusal(session_id, {"id": bad}, "id").param == "id"
        assert message_id({"message_id": bad}) == bad
    assert session_id({}) == session_id({"session_id": ""}) == message_id({}) == ""
    assert refusal(message_id, {"message_id": ""}).code == "invalid_message_id"
    assert session_id({"session_id": "x" * LONGEST_NAME}) == "x" * LONGEST_NAME


def test_a_number_in_an_address_is_one_within_its_bounds():
    assert (count(None, "n", usual=7, most=9), count("", "n", usual=7, most=9)) == (7, 7)
    assert (count("9", "n", usual=7, most=9), count("0", "n", usual=7, most=9, least=0)) == (9, 0)
    for bad in ("0", "10", "-1", "1.0", "x", "٣", "9" * 5000):
        assert refusal(count, bad, "n", usual=7, most=9).param == "n"
