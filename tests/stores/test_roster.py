from copy import deepcopy

from holdfast.ports import Census
from holdfast.stores.roster import Roster, Run


def run(number, **fields):
    given = {"seq": 1, "sum": b"", "epoch": 0, "place": "ready", **fields}
    return Run(f"run_{number}", number, **given)


def contents(roster):
    return deepcopy((roster.runs, roster.waiting, roster._sessions))


def test_what_is_ready_goes_in_the_order_in_which_it_became_so():
    roster = Roster()
    for number, at in ((1, 5.0), (2, 3.0), (3, 3.0), (4, 99.0)):
        roster.put(run(number, ready_at=at))
    assert [one.id for one in roster.in_turn(10.0)] == ["run_2", "run_3", "run_1"]
    assert roster.next_ready(10.0, least=0.0) == 0.0
    assert roster.next_ready(0.0, least=4.0) == 4.0


def test_the_first_of_a_session_that_makes_sense_is_in_front():
    roster = Roster()
    for number in (2, 1, 3):
        place = "held" if number == 1 else "behind"
        roster.put(run(number, session="ses_1", ordinal=number, place=place))
    assert roster.front("ses_1").id == "run_1"
    roster.runs["run_1"].aside = True
    assert roster.front("ses_1").id == "run_2"
    assert roster.front("") is roster.front("ses_2") is None
    assert roster.census(0.0) == Census(queued=2, running=1)
    for number in (1, 2, 3):
        roster.drop(roster.runs[f"run_{number}"])
    assert contents(roster) == ({}, {}, {})


def test_who_is_in_hands_and_whose_time_is_up():
    roster = Roster()
    roster.put(run(1, place="held", holder="a", until=5.0))
    roster.put(run(2, place="held"))
    roster.put(run(3))
    assert roster.held(["run_1", "run_2", "run_3", "run_4"], 4.0) == {"run_1"}
    assert roster.held(["run_1"], 5.0) == frozenset()
    assert roster.orphans(4.0) == ["run_2"]
    assert roster.orphans(5.0) == ["run_1", "run_2"]


def test_what_is_undone_never_was():
    roster = Roster()
    roster.put(run(1, session="ses_1", ordinal=1))
    before = contents(roster)
    roster.begin()
    first = roster.runs["run_1"]
    roster.add(run(2, session="ses_1", ordinal=2, place="behind"))
    roster.change(first)
    first.seq = 9
    roster.change(first)
    roster.drop(first)
    roster.undo()
    assert contents(roster) == before
