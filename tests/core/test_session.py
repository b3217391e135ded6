import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from holdfast.core.codec import note, recall_note
from holdfast.core.events import Unknown
from holdfast.core.messages import Image, Text
from holdfast.core.session import (
    LONGEST_WORDS,
    Noted,
    RunAdded,
    SessionArchived,
    SessionCreated,
    SessionDeleted,
    SessionPinned,
    SessionRenamed,
    SessionRestored,
    first_words,
    replay_session,
)
from holdfast.errors import IllegalEvent, InvalidRequest, StoreError


def journal(*events):
    return [note(seq, float(seq), event) for seq, event in enumerate(events, 1)]


def state(*events):
    return replay_session(journal(*events))


def added(ordinal, words=""):
    return RunAdded(run_id=f"run_{ordinal}", ordinal=ordinal, words=words)


def test_a_session_begins_with_being_created():
    began = state(SessionCreated(title="Garden", model="main", instructions="be brief"))
    assert (began.name, began.model, began.instructions) == ("Garden", "main", "be brief")
    assert (began.created_at, began.moved_at, began.runs) == (1.0, 1.0, 0)
    with pytest.raises(IllegalEvent):
        state(added(1))
    with pytest.raises(IllegalEvent):
        state(SessionCreated(), SessionCreated())


def test_runs_are_counted_and_the_last_is_known():
    grown = state(SessionCreated(), added(1), added(2))
    assert (grown.runs, grown.last_run, grown.moved_at) == (2, "run_2", 3.0)
    with pytest.raises(IllegalEvent):
        state(SessionCreated(), added(2))


def test_its_first_words_are_its_name_until_somebody_names_it():
    unnamed = (SessionCreated(), added(1, "what likes shade?"), added(2))
    assert state(*unnamed).name == "what likes shade?"
    assert state(*unnamed, SessionRenamed(title="Shade")).name == "Shade"
    assert state(*unnamed, SessionRenamed(title="")).name == "what likes shade?"


def test_only_what_is_said_in_it_moves_it():
    put = (SessionRenamed(title="x"), SessionPinned(pinned=True), SessionArchived(archived=True))
    after = state(SessionCreated(), added(1), *put)
    assert (after.moved_at, after.pinned, after.archived) == (2.0, True, True)
    assert not state(SessionCreated(), SessionArchived(archived=True), added(1)).archived


def test_nothing_happens_to_a_deleted_session_but_being_restored():
    gone = (SessionCreated(), SessionDeleted(by="ada"))
    assert state(*gone).deleted_at == 2.0
    assert state(*gone, SessionRestored()).deleted_at is None
    for event in (added(1), SessionRenamed(title="x"), SessionDeleted()):
        with pytest.raises(IllegalEvent):
            state(*gone, event)
    with pytest.raises(IllegalEvent):
        state(SessionCreated(), SessionRestored())


def test_an_event_of_a_newer_version_changes_nothing():
    (first,) = journal(SessionCreated(title="x"))
    newer = recall_note(2, 2.0, b'{"type":"session.painted","colour":"green"}')
    odd = recall_note(3, 3.0, b'{"type":"run.added","run_id":7}')
    assert (newer.event, odd.event) == (Unknown("session.painted"), Unknown("run.added"))
    after = replay_session([first, newer, odd])
    assert (after.title, after.seq) == ("x", 3)


def test_what_is_no_event_is_damage():
    with pytest.raises(StoreError):
        recall_note(1, 1.0, b"{}")


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(InvalidRequest):
        note(1, 1.0, SessionRenamed(title="\ud83d"))


def test_defaults_are_left_out_of_the_bytes():
    assert to_builtins(SessionCreated()) == {"type": "session.created"}
    written = {"type": "run.added", "run_id": "run_1", "ordinal": 1}
    assert to_builtins(added(1)) == written


@pytest.mark.parametrize(
    "event",
    [
        SessionCreated(title="t", instructions="i", model="m", surface="http", principal="ada"),
        added(1, "words"),
        SessionRenamed(title="t", by="ada"),
        SessionPinned(pinned=False, by="ada"),
        SessionArchived(archived=True),
        SessionDeleted(by="ada"),
        SessionRestored(by="ada"),
    ],
)
def test_each_event_is_read_back_as_it_was_written(event):
    written = note(4, 2.5, event)
    assert recall_note(4, 2.5, written.body) == written == Noted(4, 2.5, event, written.body)


def test_first_words_are_whole_words_on_one_line():
    assert first_words((Text(" plant\n  the\tbeans "), Image(url="http://x/"))) == "plant the beans"
    assert first_words((Text("word " * 40),)) == ("word " * 12).rstrip() + "…"
    assert first_words((Text("x" * 100),)) == "x" * LONGEST_WORDS + "…"
    assert first_words((Image(url="http://x/"),)) == ""


@given(st.text())
def test_first_words_are_short(text):
    words = first_words((Text(text),))
    assert len(words) <= LONGEST_WORDS + 1
    assert "\n" not in words
