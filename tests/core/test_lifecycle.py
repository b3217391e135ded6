from typing import get_args

import pytest

from holdfast.core.events import (
    FINAL,
    WISHES,
    Event,
    RunAccepted,
    RunCancelled,
    StopRequested,
)
from holdfast.core.lifecycle import LIFECYCLE, Status

LIVE = [status for status in Status if status.live]


def test_every_status_is_new_live_or_final():
    assert set(LIFECYCLE) == set(Status)
    assert [s for s in Status if not s.live and not s.final] == [Status.NEW]
    assert not any(s.live and s.final for s in Status)


@pytest.mark.parametrize("status", LIVE)
def test_every_live_status_can_reach_a_final_one(status):
    reached = {status}
    while not any(s.final for s in reached):
        further = reached | {to for s in reached for to in LIFECYCLE[s].values()}
        assert further != reached
        reached = further


@pytest.mark.parametrize("status", LIVE)
@pytest.mark.parametrize("wish", WISHES)
def test_a_wish_is_legal_in_every_live_status(status, wish):
    assert LIFECYCLE[status][wish].live


@pytest.mark.parametrize("status", LIVE)
@pytest.mark.parametrize("wish", WISHES)
def test_a_wish_never_makes_illegal_what_the_worker_may_write_next(status, wish):
    work = LIFECYCLE[status].keys() - set(WISHES) - set(FINAL)
    assert work <= LIFECYCLE[LIFECYCLE[status][wish]].keys()


@pytest.mark.parametrize("status", [s for s in Status if s.final])
def test_the_end_is_the_end(status):
    assert not LIFECYCLE[status]


def test_a_run_that_is_being_stopped_can_only_be_cancelled():
    row = LIFECYCLE[Status.STOPPING]
    assert row.keys() & set(FINAL) == {RunCancelled}
    assert set(row.values()) == {Status.STOPPING, Status.CANCELLED}


def test_only_a_run_that_is_being_stopped_is_cancelled():
    assert [s for s in Status if RunCancelled in LIFECYCLE[s]] == [Status.STOPPING]


def test_a_stop_leads_to_stopping_from_every_live_status():
    assert {LIFECYCLE[s][StopRequested] for s in LIVE} == {Status.STOPPING}


def test_every_event_has_its_place_in_the_table():
    assert {kind for row in LIFECYCLE.values() for kind in row} == set(get_args(Event))


@pytest.mark.parametrize("kind", get_args(Event))
def test_a_run_begins_by_being_accepted_and_in_no_other_way(kind):
    assert (kind in LIFECYCLE[Status.NEW]) == (kind is RunAccepted)
