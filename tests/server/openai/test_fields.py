import pytest

from holdfast.server.openai.fields import given, inside, number, one_of, table, truth, whole
from holdfast.server.problems import Problem

NAN = float("nan")


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (lambda f, n: number(f, n, 0, 2), (0, 2, 0.5), (-0.1, 2.1, True, "1", [], NAN)),
        (lambda f, n: whole(f, n, 1, 9), (1, 9), (0, 10, 1.0, True, "1")),
        (table, ({}, {"a": 1}), ([], "a", 1, False)),
        (lambda f, n: one_of(f, n, "a", "b"), ("a", "b"), ("", "c", 1, ["a"])),
    ],
    ids=["number", "whole", "table", "one_of"],
)
def test_a_field_is_of_its_kind_or_refused_by_its_name(read, good, bad):
    for value in good:
        assert read({"x": value}, "x") == value
    for value in bad:
        with pytest.raises(Problem) as caught:
            read({"x": value}, "x")
        assert (caught.value.status, caught.value.complaint.param) == (400, "x")
    assert not read({}, "x")
    assert not read({"x": None}, "x")


def test_a_field_within_another_has_the_names_of_both():
    assert inside({"text": {"format": 1}}, "text") == {"text.format": 1}
    assert inside({}, "text") == inside({"text": None}, "text") == {}


def test_what_says_nothing_was_not_given():
    fields = {"tools": [], "tool_choice": None, "functions": [{}], "prompt": {}, "n": 1}
    assert given(fields, ("tools", "tool_choice", "functions", "prompt", "audio")) == ("functions",)


def test_a_flag_may_be_a_word_or_a_number():
    for yes in (True, "true", " True ", "1", 1, "yes", "on"):
        assert truth({"stream": yes}, "stream") is True
    for no in (None, False, "false", "0", 0, "no", "off", ""):
        assert truth({"stream": no}, "stream") is False
    assert truth({}, "stream") is False
    for bad in ("perhaps", 2, [], {}, [True], 0.5):
        with pytest.raises(Problem) as caught:
            truth({"stream": bad}, "stream")
        assert caught.value.complaint.param == "stream"
