from functools import cache
from random import Random
from typing import get_args

from hypothesis import given, settings

from holdfast.core.events import FINAL, Event, RunCompleted, RunFailed
from holdfast.core.run import replay
from holdfast.testing.strategies import journals, live, prefixes


@cache
def many():
    """The same lives each time, so that what they come across does not depend on luck."""
    return [live(Random(seed).randrange) for seed in range(600)]


def test_lives_come_across_every_event_there_is():
    met = {type(recorded.event) for life in many() for recorded in life.journal}
    assert met == set(get_args(Event))


def test_lives_end_in_every_way_there_is():
    assert {type(life.journal[-1].event) for life in many()} == set(FINAL)


def test_lives_come_across_every_outcome_a_call_can_have():
    met = {getattr(recorded.event, "outcome", "ok") for life in many() for recorded in life.journal}
    assert met == {
        *("ok", "error", "timeout", "cancelled", "unknown"),
        *("not_started", "denied", "expired", "refused"),
    }


def test_lives_fail_for_every_reason_there_is():
    met = {end.code for life in many() if isinstance(end := life.journal[-1].event, RunFailed)}
    assert met == {"model", "context", "budget", "rescues"}


def test_what_happened_beside_the_journal_is_told():
    assert any(life.effects for life in many())
    assert all(life.calls for life in many() if isinstance(life.journal[-1].event, RunCompleted))


def test_the_same_choices_make_the_same_life():
    assert live(Random(7).randrange) == live(Random(7).randrange)


def test_the_dullest_life_is_one_answer():
    journal = live(lambda n: 0).journal
    names = [type(recorded.event).__name__ for recorded in journal]
    assert names == ["RunAccepted", "RunStarted", "ModelCalled", "ModelReplied", "RunCompleted"]


@settings(max_examples=30)
@given(journals())
def test_a_journal_is_whole_and_counted_from_one(journal):
    assert [recorded.seq for recorded in journal] == list(range(1, len(journal) + 1))
    assert replay(journal).status.final


@settings(max_examples=30)
@given(prefixes())
def test_a_prefix_is_the_beginning_of_a_run(prefix):
    assert replay(prefix).seq == len(prefix) >= 1
