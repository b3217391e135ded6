import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.codec import recall
from holdfast.core.events import InputAdded, RunFailed, RunWaiting, StopRequested
from holdfast.core.marker import ARRIVING, damaged, marked, marker, unseen
from holdfast.core.messages import Text
from holdfast.core.run import RunState, fold, replay
from holdfast.core.transcript import transcribe
from holdfast.testing.strategies import prefixes
from tests.core.stories import (
    accepted,
    answer,
    asked,
    asking,
    begun,
    call,
    called,
    done,
    go_on,
    journal,
    lost,
    replied,
    rescued,
    said,
    started,
    state,
)

CARRIED = (accepted(), started(), called(), said("Hel"))
GIVEN_UP = RunFailed(code="rescues", message="the run was lost 6 times in a row")


def mark(*events, leased=False, workers=False, now=100.0):
    return marker(state(*events), leased=leased, workers=workers, now=now)


# --- no interruption


def test_a_run_that_is_carried_needs_no_word():
    assert mark(*CARRIED, leased=True) is None
    assert mark(*CARRIED, rescued(), leased=True, now=ARRIVING * 9) is None


def test_a_run_that_is_not_there_needs_no_word():
    assert marker(RunState(), leased=False, workers=False, now=0.0) is None


@pytest.mark.parametrize("more", [(), (InputAdded(parts=(Text("and"),)),), (StopRequested(),)])
def test_a_run_that_has_not_begun_was_not_interrupted(more):
    assert mark(accepted(), *more, now=ARRIVING * 9) is None


def test_a_run_that_waits_for_a_person_was_not_interrupted():
    assert mark(*asking(call()), asked(), now=ARRIVING * 9) is None
    assert mark(*asking(call()), asked(), rescued("drained")) is None
    assert mark(*asking(call()), asked(), answer()).meaning == "still_arriving"


def test_a_run_that_lacks_something_was_not_interrupted():
    lacks = RunWaiting(what="model", name="main")
    assert mark(accepted(), started(), lacks) is None
    assert mark(*CARRIED, *lost(2), lacks) is None
    assert mark(*asking(call()), begun(), *lost(2), RunWaiting(what="tool", name="pay")) is None


def test_a_run_of_a_newer_version_was_not_interrupted():
    now = fold(state(*CARRIED), recall(5, 5.0, b'{"type":"run.forked"}'))
    assert marker(now, leased=False, workers=True, now=6.0) is None


def test_a_run_that_was_in_the_middle_of_something_was_not_resting():
    both = asking(call("c1", "look"), call("c2"))
    assert mark(*both, asked("c2"), begun("c1")).meaning == "still_arriving"
    assert mark(*both, asked("c2"), begun("c1"), done("c1")) is None


def test_an_end_is_an_end():
    assert mark(*CARRIED, RunFailed(code="model", message="gone")) is None
    assert mark(accepted(), started(), called(), replied(text="Hi.")) is not None


# --- nobody carries it


def test_a_worker_that_lives_will_take_it_up_again():
    found = mark(*CARRIED, workers=True, now=ARRIVING * 9)
    assert (found.meaning, found.cause, found.attempts, found.at) == ("resuming", "unknown", 0, 4.0)


def test_without_a_worker_it_may_still_arrive_for_a_day():
    assert mark(*CARRIED, now=4.0 + ARRIVING - 1).meaning == "still_arriving"
    assert mark(*CARRIED, now=4.0 + ARRIVING).meaning == "some_may_be_lost"


@pytest.mark.parametrize("now", [0.0, -ARRIVING, 4.0])
def test_a_clock_that_jumps_back_makes_nothing_older(now):
    assert mark(*CARRIED, now=now).meaning == "still_arriving"


def test_the_cause_is_as_strong_as_the_evidence():
    assert mark(*CARRIED).cause == "unknown"
    assert mark(*CARRIED).words == "Nobody carries this run now, and more of it may still arrive."
    assert mark(*CARRIED, rescued()).cause == "lost_worker"
    assert mark(*CARRIED, rescued("tripped")).cause == "lost_worker"
    assert mark(*CARRIED, rescued("drained")).cause == "restart"
    # What became of the one that took over is on no record.
    assert mark(*CARRIED, *lost(2)).cause == "unknown"


def test_only_rescues_on_record_are_counted():
    assert mark(*CARRIED).attempts == 0
    assert mark(*CARRIED, *lost(2), rescued()).attempts == 2
    assert mark(*CARRIED, rescued("drained")).attempts == 0


def test_reading_again_costs_nothing():
    waiting = state(*CARRIED, rescued())
    looks = [marker(waiting, leased=False, workers=False, now=9.0) for _ in range(20)]
    assert [look.attempts for look in looks] == [1] * 20


def test_the_word_vanishes_when_the_run_goes_on():
    lost_one = state(*CARRIED, rescued())
    assert marker(lost_one, leased=False, workers=True, now=9.0)
    assert marker(go_on(lost_one, started(2)), leased=True, workers=True, now=9.0) is None


# --- it was given up


def test_a_run_that_was_given_up_keeps_what_it_got_to():
    found = mark(*CARRIED, *lost(2), *lost(3), GIVEN_UP, now=ARRIVING * 9)
    assert (found.meaning, found.cause, found.attempts) == ("recovered", "lost_worker", 2)
    assert mark(*asking(call()), *lost(2), done(), GIVEN_UP).meaning == "recovered"


def test_a_run_that_was_given_up_with_nothing_says_so():
    assert mark(accepted(), started(), called(), *lost(2), GIVEN_UP).meaning == "nothing_came"


# --- it cannot be seen yet


def test_a_run_that_cannot_be_seen_yet_may_still_arrive():
    found = unseen(10.0, workers=False, now=20.0)
    assert (found.meaning, found.cause, found.attempts, found.at) == (
        "still_arriving",
        "unknown",
        0,
        10.0,
    )
    assert unseen(10.0, workers=False, now=10.0 + ARRIVING).meaning == "some_may_be_lost"
    assert unseen(10.0, workers=True, now=10.0 + ARRIVING).meaning == "still_arriving"
    assert unseen(10.0, workers=False, now=0.0).meaning == "still_arriving"


# --- below what there is


def test_the_word_stands_below_what_was_recovered():
    events = (*CARRIED, *lost(2), GIVEN_UP)
    told = transcribe("run_1", 3, journal(*events))
    shown = marked(told, mark(*events), run_id="run_1", ordinal=3)
    assert shown[:-1] == told
    assert (shown[-1].id, shown[-1].meaning, shown[-1].seq) == ("run_1.marker", "recovered", 7)
    assert (shown[-1].run_id, shown[-1].ordinal, shown[-1].attempts) == ("run_1", 3, 1)
    assert marked(told, None, run_id="run_1", ordinal=3) == told


def test_the_word_about_what_cannot_be_seen_stands_alone():
    (alone,) = marked((), unseen(1.0, workers=True, now=2.0), run_id="run_1", ordinal=1)
    assert (alone.seq, alone.at, alone.meaning) == (0, 1.0, "still_arriving")


@settings(max_examples=60)
@given(prefixes(), st.booleans(), st.booleans(), st.floats(-1e9, 1e9))
def test_every_run_can_be_looked_at_at_any_time(prefix, leased, workers, now):
    seen = replay(prefix)
    found = marker(seen, leased=leased, workers=workers, now=now)
    if found is None:
        return
    assert found.words[0].isupper()
    assert found.words.count(".") == 1
    assert found.attempts == seen.rescues
    assert not (leased and seen.status.live)


def test_what_is_damaged_is_said_to_be():
    mark = damaged(7.0)
    assert (mark.meaning, mark.at, mark.attempts) == ("some_may_be_lost", 7.0, 0)
    assert "damaged" in mark.words
