"""What is remembered of runs whose answer nobody has heard to its end."""

import anyio
import pytest

from holdfast.ports import Once
from holdfast.server.unheard import COME_BACK, Unheard

ONCE, OTHER = (Once("ada", key, key, latest=True) for key in ("a", "b"))


def leave(kept, *run_ids, once=ONCE):
    for run_id in run_ids:
        kept.leave(once, run_id)


def claims(kept, once=ONCE):
    return [*iter(lambda: kept.claim(once), None)]


async def test_a_run_that_was_left_is_claimed_by_one_the_last_first():
    kept = Unheard()
    leave(kept, "r1", "r2", "r3")
    leave(kept, "r4", once=OTHER)
    assert (claims(kept), claims(kept), claims(kept, OTHER)) == (["r3", "r2", "r1"], [], ["r4"])
    assert kept._left == {}


async def test_an_answer_that_was_told_to_its_end_is_nobody_elses():
    kept = Unheard()
    with kept.answering(ONCE, "r1") as answer:
        answer.whole = True
    assert claims(kept) == []


async def test_an_answer_that_broke_off_can_be_come_back_for():
    kept = Unheard()
    with pytest.raises(OSError, match="lost"), kept.answering(ONCE, "r1"):
        raise OSError("lost")
    assert claims(kept) == ["r1"]


@pytest.mark.parametrize("once", [None, Once("ada", "k", "f")])
async def test_nothing_is_remembered_for_who_is_led_to_the_run_by_a_key_or_by_nothing(once):
    kept = Unheard()
    leave(kept, "r1", once=once)
    assert kept.forget(once, "r1") is False
    assert kept._left == {}


async def test_nobody_comes_back_after_a_while():
    kept = Unheard()
    leave(kept, "r1")
    await anyio.sleep(COME_BACK - 1)
    leave(kept, "r2")
    await anyio.sleep(2)
    assert claims(kept) == ["r2"]
    assert kept._left == {}


async def test_a_run_is_forgotten_by_itself_or_with_all_that_were_asked_for_alike():
    kept = Unheard()
    leave(kept, "r1", "r2")
    assert (kept.forget(ONCE, "r2"), kept.forget(ONCE, "r9")) == (True, False)
    assert claims(kept) == ["r1"]
    leave(kept, "r1")
    kept.forget(ONCE, "r1")
    assert kept._left == {}
    leave(kept, "r1", "r2")
    kept.clear(ONCE)
    assert claims(kept) == []


async def test_no_more_is_remembered_than_so_many():
    kept, third = Unheard(requests=2, alike=2), Once("ada", "c", "c", latest=True)
    leave(kept, "r1", "r2", "r3", once=OTHER)
    leave(kept, "r4")
    leave(kept, "r5", once=OTHER)
    leave(kept, "r6", once=third)
    # The one of which nothing was heard for longest had to go.
    assert (claims(kept), claims(kept, OTHER), claims(kept, third)) == ([], ["r5", "r3"], ["r6"])


async def test_those_that_are_being_taken_in_are_known_to_who_comes_again_after_them():
    kept = Unheard()
    with kept.taking(ONCE, again=False) as first:
        with kept.taking(ONCE, again=True) as second, kept.taking(OTHER, again=True) as other:
            assert (len(first), len(second), len(other)) == (0, 1, 0)
            assert not second[0].is_set()
        with kept.taking(ONCE, again=True) as third:
            assert third == second
    assert second[0].is_set()
    assert kept._under_way == {}
