from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ToolError
from holdfast.tools.passage import MOST_TEXT, replace_passage
from holdfast.tools.text import as_shown


def replaced(text, old, new, every=False):
    return replace_passage("file", text, old, new, every=every)


def test_a_passage_that_stands_once_is_replaced():
    assert replaced("one\ntwo\nthree\n", "two\nth", "2\n3") == ("one\n2\n3ree\n", 1, (2,))


def test_each_is_replaced_if_that_is_asked_for():
    assert replaced("a\nb\na\na b\n", "a", "c", every=True) == ("c\nb\nc\nc b\n", 3, (1, 3, 4))


def test_a_passage_that_stands_several_times_is_an_error_that_says_where():
    with pytest.raises(
        ToolError, match="3 times, at lines 1, 3, 4; give more context, or all=true"
    ):
        replaced("a\nb\na\na b\n", "a", "c")
    with pytest.raises(ToolError, match=r"more than 10 times, at lines 1, .*, 10, …;"):
        replaced("a\n" * 20, "a", "c")


def test_a_passage_that_overlaps_itself_stands_several_times():
    with pytest.raises(ToolError, match="2 times, at lines 1, 2;"):
        replaced("}\n}\n}\n", "}\n}\n", "}")
    assert replaced("}\n}\n}\n", "}\n}\n", "}", every=True).text == "}}\n"


def test_a_text_that_would_be_too_large_is_not_made():
    assert len(replaced("a" * 1000, "a", "b" * (MOST_TEXT // 1000), every=True).text) == MOST_TEXT
    with pytest.raises(ToolError, match="would be too large: at most 10,000,000 characters"):
        replaced("a" * MOST_TEXT, "a", "b" * 1_000_000, every=True)


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        (
            "def f():\n\treturn  1\n",
            "def f():\n    return 1\n",
            r"at line 1 the same words.*\\treturn",
        ),
        ("one\nthe quick brown fox\n", "the quick red fox", "most similar line to its first is 2"),
        ("one\ntwo\n", "nothing like it", "read the file first"),
        ("", "x", "read the file first"),
        (
            "one \udcff\r\ntwo\n",
            "one  \\xff",
            r"same words stand with other white space: 'one \\\\xff'",
        ),
    ],
)
def test_a_passage_that_is_not_there_is_an_error_with_what_is(text, old, said):
    with pytest.raises(ToolError, match=said):
        replaced(text, old, "new")


def test_nothing_to_replace_is_an_error():
    with pytest.raises(ToolError, match="`old` is empty"):
        replaced("text", "", "new")
    with pytest.raises(ToolError, match="are the same"):
        replaced("text", "text", "text")


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        # As it is shown, whatever the lines end in.
        ("a\r\nb\r\nc\n", "a\nb", "A\nB", "A\r\nB\r\nc\n"),
        ("a\r\nb\r\nc\n", "b\nc\n", "c\n", "a\r\nc\n"),
        ("a\r\nb\nc\n", "b\n", "b\nx\n", "a\r\nb\nx\nc\n"),
        # What stays keeps its end, what is new has that of its line.
        ("a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", "a\r\nB\nc\r\n"),
        ("a\r\nb\nc\r\n", "a\nb\nc\n", "a\nx\ny\nb\nc\n", "a\r\nx\r\ny\r\nb\nc\r\n"),
        ("a\nb\r\n", "b", "b\nc", "a\nb\r\nc\r\n"),
        ("a\nb\r\n", "a\nb", "a", "a\r\n"),
        ("a\nb\r\nc", "c", "c\nd", "a\nb\r\nc\r\nd"),
        ("a\nb\r\nc\n", "\nb\n", " ", "a c\n"),
        # Who writes a CR means it.
        ("a\r\nb\nc\n", "a\r\nb", "a\nb", "a\nb\nc\n"),
        ("a\r\nb\nc\n", "c", "c\r\nd", "a\r\nb\nc\r\nd\n"),
        ("a\r\nb\nc\n", "b\r\nc", "x\r\ny", "a\r\nx\ny\n"),
        # Bytes that are no characters stay, around a passage and in it.
        ("é \udcff\nx = 1\n", "x = 1", "x = 'é'", "é \udcff\nx = 'é'\n"),
        ("é \udcff byte\n", "\\xff byte", "\\xff bytes", "é \udcff bytes\n"),
        ("é \udcff byte\n", " \\xff", "", "é byte\n"),
        ("é \udcff\udcfe\n", "\\xfe", "\\xfe \\xff", "é \udcff\udcfe \\xff\n"),
        ("a \udcff\r\nb\n", "\\xff\nb", "\\xff\nc", "a \udcff\r\nc\n"),
    ],
)
def test_a_passage_is_found_as_it_is_shown_and_what_stays_is_kept_to_the_byte(
    text, old, new, result
):
    assert replaced(text, old, new).text == result


def test_each_is_replaced_as_it_is_shown():
    done = replaced("a\r\nb\na\nb\na \udcff\n", "a\nb", "a\nc", every=True)
    assert done == ("a\r\nc\na\nc\na \udcff\n", 2, (1, 3))


def test_what_looks_the_same_in_two_places_is_not_chosen_from():
    with pytest.raises(ToolError, match="2 times, at lines 1, 2;"):
        replaced("é \udcff\né \\xff\n", "é \\xff", "e")


def test_a_part_of_what_is_shown_for_a_byte_is_no_passage():
    with pytest.raises(ToolError, match="does not have that passage"):
        replaced("é \udcff\n", "ff", "gg")
    done = replaced("x \udcff\nfx \\xff\n", "x", "y", every=True)
    assert done == ("y \udcff\nfy \\yff\n", 3, (1, 2, 2))


PIECES = ["a", "b ", "\n", "\r\n", "\udcff", "\\xff"]


@given(st.lists(st.sampled_from(PIECES)), st.lists(st.sampled_from(PIECES)), st.data())
def test_what_is_shown_afterwards_is_what_was_asked_for(before, after, data):
    text, seen = "".join(before), as_shown("".join(before))
    start, end = sorted(data.draw(st.integers(0, len(seen))) for _ in range(2))
    old, new = seen[start:end], as_shown("".join(after))
    if old and old != new:
        with suppress(ToolError):
            assert as_shown(replaced(text, old, new).text) in {
                seen[:at] + new + seen[at + len(old) :]
                for at in range(len(seen))
                if seen.startswith(old, at)
            }


def test_what_is_not_there_is_not_looked_for_for_ever():
    before = process_time()
    with pytest.raises(ToolError, match="does not have that passage"):
        replaced("a\n" * 100_000, "a\n" * 50_000 + "b", "c")
    assert process_time() - before < 10
