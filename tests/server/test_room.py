"""As many are let in as there is room for, however many come at once."""

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.ports import Census
from holdfast.server.problems import Problem
from holdfast.server.room import TAKEN_ON_TRUST, Room


class House:
    """Whoever is let in takes a while to be on record, where a look finds them."""

    def __init__(self, most, *, carried=0, seen_early=False):
        self.room = Room(carried, most, self.census)
        self.waiting = self.refused = self.looks = 0
        self._carried, self._seen_early = carried, seen_early

    async def census(self):
        self.looks += 1
        waiting = self.waiting
        # What is found may be old by the time it is told.
        await anyio.sleep(0.5)
        held = min(waiting, self._carried)
        return Census(waiting - held, held, held)

    async def come(self):
        try:
            async with self.room.for_one():
                await anyio.sleep(1)
                self.waiting += 1
                if self._seen_early:
                    await anyio.sleep(1)
        except Problem as refusal:
            self.refused += (refusal.status, refusal.headers["Retry-After"]) == (429, "1")

    async def crowd(self, count, *, apart=0.0):
        async with task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(self.come)
                await anyio.sleep(apart)


@pytest.mark.parametrize("seen_early", [False, True])
@pytest.mark.parametrize("apart", [0, 0.3, 0.7])
@pytest.mark.parametrize("most", [1, 5, 30])
async def test_there_are_never_more_than_there_is_room_for_and_never_fewer(most, apart, seen_early):
    house = House(most, seen_early=seen_early)
    await house.crowd(40, apart=apart)
    assert (house.waiting, house.refused) == (most, 40 - most)


async def test_where_there_is_no_room_nobody_is_let_in():
    house = House(0)
    await house.crowd(3)
    assert (house.waiting, house.refused) == (0, 3)


async def test_who_can_be_carried_need_not_wait():
    house = House(2, carried=7)
    await house.crowd(20)
    assert (house.waiting, house.refused) == (9, 11)


async def test_who_waits_for_an_answer_takes_no_place_of_who_can_be_carried():
    async def census():
        return Census(queued=0, running=5)

    async with Room(1, 0, census).for_one():
        pass


async def test_who_is_to_end_has_a_place_until_then():
    async def census():
        return Census(queued=1, running=2, stopping=2)

    with pytest.raises(Problem, match="2 runs are carried and 1 wait"):
        async with Room(2, 1, census).for_one():
            pass


async def test_who_leaves_makes_room():
    house = House(2)
    await house.crowd(3)
    house.waiting -= 1
    await house.crowd(3)
    assert (house.waiting, house.refused) == (2, 3)


async def test_who_is_refused_by_somebody_else_takes_no_room():
    house = House(1)
    for _ in range(3):
        with pytest.raises(OSError, match="full"):
            async with house.room.for_one():
                raise OSError("full")
    await house.come()
    assert (house.waiting, house.refused) == (1, 0)


async def test_nobody_is_sent_away_for_one_who_may_not_stay():
    house = House(1)

    async def look_in():
        with pytest.raises(OSError, match="full"):
            async with house.room.for_one():
                await anyio.sleep(5)
                raise OSError("full")

    async with task_group() as tasks:
        tasks.start_soon(look_in)
        await anyio.sleep(1)
        tasks.start_soon(house.come)
    assert (house.waiting, house.refused) == (1, 0)


async def test_it_is_not_looked_for_everyone():
    house = House(10 * TAKEN_ON_TRUST)
    await house.crowd(2 * TAKEN_ON_TRUST)
    assert house.looks == 2
