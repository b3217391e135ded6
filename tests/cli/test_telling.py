import io

import pytest

from holdfast.cli.telling import tell
from holdfast.cli.terminal import Terminal
from holdfast.core.entries import Card, Mark, Notice, Question, Reply, Said
from holdfast.core.messages import Image, Text


def told(*entries):
    file = io.StringIO()
    tell(Terminal(file), entries)
    return file.getvalue()


def at(seq=1, run_id="run_0123456789abcdef", id=""):
    return {"id": id or f"{run_id}.{seq}", "run_id": run_id, "ordinal": 1, "seq": seq, "at": 0.0}


def test_a_run_is_named_once_above_what_was_said_in_it():
    page = told(
        Said(parts=(Text("shade?"),), **at(1)),
        Reply(turn=1, text="Ferns.", reasoning="Hm.", **at(2)),
        Said(parts=(Text("sun?"),), **at(1, "run_fedcba9876543210")),
    )
    assert page.count("run_01234567 · 1970-01-01") == page.count("run_fedcba98 · ") == 1
    assert "> shade?\n\nHm.\n\nFerns.\n\n" in page
    assert page.index("Ferns.") < page.index("run_fedcba98") < page.index("> sun?")


def test_what_waits_was_added_or_came_too_late_says_so():
    page = told(
        Said(parts=(Text("later"),), queued=True, **at(1)),
        Said(parts=(Text("and this"),), steered=True, unheard=True, **at(2)),
        Said(parts=(Image(url="http://a/b.png"),), **at(3)),
    )
    assert "> later\n  waits for its turn\n" in page
    assert "+ and this\n  came too late to be heard\n" in page
    assert "> (a picture)" in page


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"outcome": "ok", "result": "paid\nwell", "state": "done"}, "✓ pay: paid well"),
        ({"outcome": "not_started", "state": "done"}, "✗ pay, not started"),
        ({"outcome": "error", "result": "no", "state": "done"}, "✗ pay, error: no"),
        ({"state": "running"}, "  pay is at work"),
        ({"rule": "rule_1", "state": "pending"}, "→ pay (by rule_1)"),
    ],
)
def test_a_call_is_a_line_and_what_came_of_it_another(fields, line):
    arguments = fields.pop("arguments", "{}")
    page = told(Card(turn=1, name="pay", arguments=arguments, **fields, **at()))
    assert "→ pay" in page
    assert f"{line}\n" in page


def test_a_long_line_is_cut():
    page = told(Card(turn=1, name="pay", arguments="x" * 500, state="pending", **at()))
    assert "x…\n" in page
    assert len(max(page.splitlines(), key=len)) < 80


def test_a_question_that_is_open_says_how_to_answer_it():
    place = at(id="apr_0123456789ab")
    page = told(Question(call_id="c", tool="pay", state="pending", subject="5 euros", **place))
    assert "? pay needs an approval (pending): 5 euros\n" in page
    answer = "holdfast approve run_01234567 apr_01234567 once|session|always|deny"
    assert f"  Answer: {answer}\n" in page
    settled = {"state": "answered", "choice": "once", "by": "ada"}
    page = told(Question(call_id="c", tool="pay", **settled, **at()))
    assert "? pay needs an approval (answered once by ada): pay\n" in page
    assert "Answer:" not in page


def test_what_happened_to_a_run_and_what_is_not_as_it_should_be_are_told():
    page = told(
        Notice(what="failed", words="The run failed: no.", **at(1)),
        Mark(meaning="resuming", cause="unknown", words="Nobody carries it.", **at(2)),
    )
    assert "! The run failed: no.\n! Nobody carries it.\n" in page


def test_harmful_characters_are_shown_and_not_obeyed():
    page = told(
        Said(parts=(Text("a\x1b[2J"),), **at(1)),
        Reply(turn=1, text="b\x1b]0;x\x07", **at(2)),
        Card(turn=1, name="c\x1b", arguments="\x1b\n> forged", state="pending", **at(3)),
    )
    assert "\x1b" not in page
    assert "\n> forged" not in page
