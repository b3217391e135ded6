import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.visible import one_line, visible, visible_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcödé, 漢字, 👩‍💻\n\ttabbed", "plain text, ünïcödé, 漢字, 👩‍💻\n\ttabbed"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("bell\x07 and \x7f", "bell\\x07 and \\x7f"),
        ("over\rwritten", "over\\x0dwritten"),
        ("dos\r\nlines", "dos\nlines"),
        ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
        ("line\u2028break", "line\\u2028break"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -r build\nls é漢", "rm -r build\nls é漢"),
        ("rm\u00a0-r", "rm\\xa0-r"),
        ("a\u200bb\ufeffc", "a\\u200bb\\ufeffc"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("tab\tbed\r\n", "tab\\x09bed\\x0d\n"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
    ],
)
def test_what_somebody_agrees_to_is_spelled_out_in_full(text, shown):
    assert visible(text, exact=True) == shown


@given(st.text(), st.booleans())
def test_nothing_harmful_is_left(text, exact):
    left = set(visible(text, exact=exact)) - {"\n", "\t"}
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in left)
    assert not any(
        unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")
        for character in left
    )


@pytest.mark.parametrize(
    "character",
    ["\u3164", "\u2800", "\u115f", "\uffa0", "\ufe0f", "\u034f", "\U000e0100", "\u0301", "\u05d0"],
)
def test_what_somebody_agrees_to_holds_nothing_that_does_not_show_as_itself(character):
    assert character not in visible(f"rm{character}-rf", exact=True)


def test_a_line_stays_one():
    assert one_line(" a\n  │ b\r\nc\u2028\x1bd\t") == "a │ b c\\u2028\\x1bd"


class Screen(io.BytesIO):
    def isatty(self):
        return True


@given(st.text())
def test_json_for_a_terminal_is_the_same_json(text):
    line = json.dumps({"text": text}, ensure_ascii=False).encode(errors="replace") + b"\n"
    shown = visible_json(line, Screen())
    assert json.loads(shown) == json.loads(line)
    assert visible(shown.decode()) == shown.decode()
    assert visible_json(line, io.BytesIO()) == line
