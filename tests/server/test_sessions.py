import msgspec
from msgspec import UNSET

from holdfast.core.bookmark import Bookmark
from holdfast.core.entries import Said
from holdfast.core.messages import Text
from holdfast.core.session import SessionState
from holdfast.core.state import RunState
from holdfast.engine.pages import Page
from holdfast.ports import Entry, SessionEntry
from holdfast.server.sessions import messages, queued, row
from tests.core.stories import accepted, journal, state

STATE = SessionState(
    seq=3,
    created_at=1.0,
    moved_at=2.0,
    words="first words",
    instructions="be kind",
    runs=2,
    last_run="run_2",
)


def running(live):
    (first,) = journal(accepted())
    return SessionEntry("s", STATE, Entry("run_1", first, first), live)


def test_a_row_says_what_is_under_way_and_how_many_wait_behind_it():
    told = row(running(3), "running")
    assert (told.current_run_id, told.queued, told.last_run_id) == ("run_1", 2, "run_2")
    assert (told.title, told.status, told.runs) == ("first words", "running", 2)
    idle = row(running(0), "idle")
    assert (idle.current_run_id, idle.queued) == (UNSET, 0)
    assert row(SessionEntry("s", SessionState(), None, 0), "idle").last_run_id is UNSET


def test_what_is_long_is_told_of_one_session_alone():
    assert row(running(0), "idle").instructions is UNSET
    assert row(running(0), "idle", whole=True).instructions == "be kind"


def test_a_page_says_where_to_follow_on_only_if_it_is_the_last():
    said = Said(id="m", run_id="run_1", ordinal=1, seq=1, at=1.0, parts=(Text("hi"),))
    page = Page((said,), "1.3", Bookmark(2, 1, (5,)))
    told = messages("s", page, last=True)
    assert (told.cursor, told.earlier) == ("s2.1-5", "1.3")
    assert told.data[0]["kind"] == "user" and told.data[0]["parts"][0]["text"] == "hi"
    assert "cursor" not in msgspec.to_builtins(messages("s", page, last=False))


def test_a_message_that_waits_is_told_with_its_id_and_its_words():
    told = queued("run_1", state(accepted(message_id="mine")))
    assert (told.run_id, told.message_id, bool(told.input)) == ("run_1", "mine", True)
    assert queued("run_1", RunState()).input == ""
