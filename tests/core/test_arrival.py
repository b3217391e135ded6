"""The rest of it is tested where journals are taken in: in test_transfer and test_luggage."""

import pytest
from msgspec.structs import replace

from holdfast.core.arrival import LONGEST_ID, check_story, end, is_id
from holdfast.core.entries import Notice
from holdfast.core.events import RunCancelled, RunCompleted, RunFailed, StopRequested, ToolFinished
from holdfast.core.run import replay
from holdfast.core.transcript import transcribe
from holdfast.errors import JournalDamaged
from tests.core.stories import (
    accepted,
    asking,
    begun,
    call,
    called,
    journal,
    replied,
    said,
    started,
)

LIVES = {
    "not begun": journal(accepted()),
    "speaking": journal(accepted(), started(), called(), said("Once ")),
    "using tools": journal(*asking(call("c1"), call("c2")), begun("c1")),
    "stopping": journal(accepted(), started(), StopRequested(by="ada")),
}


@pytest.mark.parametrize("life", LIVES)
def test_what_has_not_ended_is_ended_and_says_why(life):
    ended = end(LIVES[life], at=100.0)
    assert list(ended[: len(LIVES[life])]) == LIVES[life]
    assert isinstance(ended[-1].event, RunCancelled)
    check_story("run_1", ended)
    words = [entry.words for entry in transcribe("run_1", 1, ended) if isinstance(entry, Notice)]
    by = "ada" if life == "stopping" else "import (it had not ended where it came from, and"
    assert any(f"The run was stopped by {by}" in one for one in words)


def test_open_calls_are_said_to_be_in_doubt_or_never_begun():
    ended = end(LIVES["using tools"], at=100.0)
    outcomes = {
        o.event.call_id: o.event.outcome for o in ended if isinstance(o.event, ToolFinished)
    }
    assert outcomes == {"c1": "unknown", "c2": "not_started"}
    assert not replay(ended).open_tools


def test_a_call_of_a_model_that_was_cut_off_may_be_billed():
    assert end(LIVES["speaking"], at=9.0)[-1].event.receipt.may_bill
    assert not end(LIVES["not begun"], at=9.0)[-1].event.receipt.may_bill


@pytest.mark.parametrize("last", [RunCompleted(), RunFailed(code="model", message="no")])
def test_what_has_ended_stays_as_it_is(last):
    before = journal(accepted(), started(), called(), replied(text="hi"), last)
    assert end(before, at=100.0) is before


@pytest.mark.parametrize("word", ["", "a b", "a/b", "a\\b", "a..b", "a\n", "x" * (LONGEST_ID + 1)])
def test_an_id_is_a_name_and_nothing_else(word):
    assert not is_id(word)
    assert is_id("run_1")


def test_a_story_that_cannot_be_is_refused():
    nothing = (replace(accepted(), input=()),), (replace(accepted(), models=()),)
    for events in ((), (started(),), (accepted(), RunCompleted()), *nothing):
        with pytest.raises(JournalDamaged):
            check_story("run_1", journal(*events))
