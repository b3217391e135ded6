import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import (
    AssistantMessage,
    BlobRef,
    Image,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    characters,
    lone,
    mend,
    pictures,
    plain,
    storable,
)

HIGH, LOW, SMILE = "\ud83d", "\ude00", "\U0001f600"
#: Any text a wire may hand on, halves of characters among it.
JAGGED = st.text(st.sampled_from(["a", "\n", "\x00", "\u2028", HIGH, LOW, SMILE]))


def test_an_emoji_cut_between_two_pieces_is_joined_again():
    ready, held = mend("a" + HIGH)
    assert (ready, held) == ("a", HIGH)
    assert mend(held + LOW + "b") == (SMILE + "b", "")


def test_text_without_halves_is_passed_on_as_it_is():
    assert mend("plain \u2028 \x00 " + SMILE) == ("plain \u2028 \x00 " + SMILE, "")


def test_two_halves_in_one_piece_are_joined():
    assert mend(HIGH + LOW) == (SMILE, "")


@pytest.mark.parametrize("text", [LOW, LOW + "a", HIGH + "a", HIGH + "\n", LOW + HIGH + "b"])
def test_a_half_that_no_other_half_follows_stays_and_is_found(text):
    ready, held = mend(text)
    assert (ready, held) == (text, "")
    assert lone(ready) is not None


def test_only_a_half_is_ever_held_back_even_before_a_line_break():
    assert mend("a" + HIGH + "\n") == ("a" + HIGH + "\n", "")


@given(st.lists(JAGGED))
def test_mending_loses_nothing_however_the_text_is_cut(pieces):
    out, held = "", ""
    for piece in pieces:
        ready, held = mend(held + piece)
        out += ready
    whole, rest = mend("".join(pieces))
    assert (out + held) == (whole + rest)


@given(JAGGED)
def test_what_is_held_is_half_a_character_or_nothing(text):
    ready, held = mend(text)
    assert held in ("", HIGH)
    assert (held == HIGH) == text.endswith(HIGH)


def test_the_first_lone_half_is_pointed_at():
    assert lone("ab" + LOW + HIGH) == 2
    assert lone("ab" + SMILE) is None


@given(st.text() | JAGGED)
def test_storable_text_can_be_stored_and_whole_text_is_not_changed(text):
    assert lone(storable(text)) is None
    assert lone(text) is not None or storable(text) == text


def test_a_half_is_spelled_out_in_storable_text():
    assert storable("a" + HIGH) == "a\\ud83d"


def test_the_words_among_the_parts_are_joined_by_lines():
    assert plain([Text("a"), Image(url="https://example.org/x.png"), Text("b")]) == "a\nb"


def test_what_there_is_to_read_is_counted_without_the_pictures():
    blob = BlobRef(sha256="ab", size=10)
    request = Request(
        "m",
        "12345",
        (
            UserMessage(parts=(Text("123"), Image(blob=blob))),
            AssistantMessage(text="12", calls=(ToolCall(id="c", tool="t", arguments="{}"),)),
            ToolMessage(call_id="c", tool="t", output="1"),
        ),
        tools=(ToolSpec("t", schema="{  }"),),
    )
    assert characters(request) == 5 + 3 + 2 + 2 + 1 + 4
    assert list(pictures(request.messages)) == [blob]
