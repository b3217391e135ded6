from typing import get_args

import pytest

from holdfast.core.codec import decode, encode
from holdfast.core.events import Event, Unknown
from holdfast.core.run import Status, replay
from tests.fixtures.golden import journal, lines, names, picture, recorded_state

NAMES = names()


def holds(recorded, now):
    """All that was recorded is so now. What has been added since is not compared."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        return all(key in now and holds(value, now[key]) for key, value in recorded.items())
    if isinstance(recorded, list) and isinstance(now, list | tuple):
        return len(recorded) == len(now) and all(map(holds, recorded, now))
    return bool(recorded == now)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_journal_folds_to_the_state_it_was_recorded_with(name):
    recorded, now = recorded_state(name), picture(replay(journal(name)))
    assert holds(recorded, now), {
        key: now.get(key) for key in recorded if recorded[key] != now.get(key)
    }


@pytest.mark.parametrize("name", NAMES)
def test_reading_a_golden_journal_keeps_every_byte(name):
    for line, recorded in zip(lines(name), journal(name), strict=True):
        assert recorded.body == bytes(line.body)


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_journal_is_counted_from_one_without_gaps(name):
    assert [r.seq for r in journal(name)] == list(range(1, len(journal(name)) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_golden_event_says_survives_being_written_again(name):
    for recorded in journal(name):
        if not isinstance(recorded.event, Unknown):
            assert decode(encode(recorded.event)) == recorded.event


def test_what_was_asked_on_another_wire_is_none_of_the_metadata():
    now, before = (
        replay(journal(name)).accepted for name in ("asked-on-another-wire", "plain-answer")
    )
    assert now.asked["store"] is False and now.metadata == {"ticket": "7", "asked": "{}"}
    assert (before.asked, before.metadata) == ({}, {})


def test_every_tag_there_is_occurs_in_a_golden_journal():
    written = {type(recorded.event) for name in NAMES for recorded in journal(name)}
    assert written == {*get_args(Event), Unknown}


def test_every_status_a_run_can_end_in_occurs_in_a_golden_journal():
    ends = {replay(journal(name)).status for name in NAMES}
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} <= ends


def test_comparing_notices_what_has_changed_and_lets_pass_what_was_added():
    assert holds({"a": [1, {"b": 2}]}, {"a": (1, {"b": 2, "new": 3})})
    assert not holds({"a": 1}, {"a": 2})
    assert not holds({"a": 1}, {})
    assert not holds({"a": [1]}, {"a": [1, 2]})
