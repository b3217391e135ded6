from holdfast.core.codec import record
from holdfast.core.events import RunCompleted
from holdfast.stores.recent import Recent
from holdfast.testing.contracts import ACCEPTED, said


def said_at(seq, text="a"):
    return record(seq, 1.0, said(text))


def seqs(recent, run_id="run_1", **which):
    events = recent.past(run_id, **which)
    return None if events is None else [recorded.seq for recorded in events]


def test_what_was_kept_is_at_hand_from_any_place_in_it():
    recent = Recent()
    recent.keep("run_1", [record(1, 1.0, ACCEPTED)])
    recent.keep("run_1", [said_at(2), said_at(3)])
    assert seqs(recent, after=0) == [1, 2, 3]
    assert seqs(recent, after=2) == [3]
    assert seqs(recent, after=3) == seqs(recent, after=99) == []
    assert seqs(recent, after=0, limit=2) == [1, 2]


def test_what_came_before_is_not_guessed():
    recent = Recent()
    recent.keep("run_1", [said_at(7)])
    assert seqs(recent, after=6) == [7]
    assert seqs(recent, after=5) is None
    assert seqs(recent, "run_2", after=0) is None


def test_what_somebody_was_given_does_not_grow_behind_their_back():
    recent = Recent()
    recent.keep("run_1", [said_at(1)])
    given = recent.past("run_1", 0)
    recent.keep("run_1", [said_at(2)])
    assert len(given) == 1


def test_a_run_has_ended_once_its_end_was_kept():
    recent = Recent()
    recent.keep("run_1", [said_at(1)])
    assert not recent.ended("run_1")
    recent.keep("run_1", [record(2, 1.0, RunCompleted())])
    assert recent.ended("run_1")
    assert not recent.ended("run_2")


def test_nothing_written_is_nothing_to_keep():
    recent = Recent()
    recent.keep("run_1", [])
    assert (recent.size, seqs(recent, after=0)) == (0, None)


def test_however_much_is_written_no_more_is_kept_than_was_said():
    recent = Recent(most=100_000)
    for number in range(1000):
        recent.keep(f"run_{number}", [said_at(1, "x" * 200), said_at(2)])
        assert recent.size <= 100_000
    assert recent.size > 90_000
    assert seqs(recent, "run_999", after=0) == [1, 2]
    assert seqs(recent, "run_0", after=0) is None


def test_the_run_that_was_written_to_longest_ago_is_forgotten_first():
    recent = Recent(most=40_000)
    for run_id in ("run_1", "run_2"):
        recent.keep(run_id, [said_at(1)])
    recent.keep("run_1", [said_at(2)])
    others = (f"other_{number}" for number in range(100))
    while seqs(recent, "run_2", after=0):
        recent.keep(next(others), [said_at(1)])
    assert seqs(recent, after=0) == [1, 2]


def test_a_long_run_keeps_its_end_and_crowds_out_nobody():
    recent = Recent(most=80_000)
    recent.keep("run_0", [said_at(1)])
    for seq in range(1, 1000):
        recent.keep("run_1", [said_at(seq)])
        assert seqs(recent, after=seq - 1) == [seq]
    assert seqs(recent, after=0) is None
    assert recent.size < 20_000
    assert seqs(recent, "run_0", after=0) == [1]


def test_what_is_long_is_kept_until_more_is_written_after_it():
    recent = Recent(most=80_000)
    recent.keep("run_1", [said_at(1)])
    recent.keep("run_1", [said_at(2, "x" * 10_000), said_at(3)])
    assert (seqs(recent, after=0), seqs(recent, after=1)) == (None, [2, 3])
    recent.keep("run_1", [said_at(4)])
    assert (seqs(recent, after=2), seqs(recent, after=3)) == (None, [4])
    assert recent.size < 1000


def test_what_is_too_large_to_be_kept_leaves_no_gap():
    recent = Recent(most=80_000)
    recent.keep("run_1", [said_at(1)])
    recent.keep("run_1", [said_at(2, "x" * 20_000)])
    assert (recent.size, seqs(recent, after=0), seqs(recent, after=1)) == (0, None, None)
    recent.keep("run_1", [said_at(3)])
    assert (seqs(recent, after=1), seqs(recent, after=2)) == (None, [3])
