"""Whoever reads a run is counted, and that nobody does is noticed after a while."""

import anyio

from holdfast.calls.tasks import task_group
from holdfast.server.attendance import Attendance


async def deserted(attendance, seen, run_id="r"):
    await attendance.deserted(run_id, 5)
    seen.append((run_id, anyio.current_time()))


async def test_a_run_is_deserted_when_nobody_has_read_it_for_so_long():
    attendance, began = Attendance(), anyio.current_time()
    await attendance.deserted("r", 5)
    assert anyio.current_time() == began + 5


async def test_whoever_reads_it_keeps_it_and_so_does_who_only_looks_in():
    attendance, seen, began = Attendance(), [], anyio.current_time()
    async with task_group() as tasks:
        with attendance.reading("r"):
            tasks.start_soon(deserted, attendance, seen)
            await anyio.sleep(100)
        await anyio.sleep(4)
        with attendance.reading("r"):
            pass
        await anyio.sleep(4)
        with attendance.reading("r"), attendance.reading("r"):
            await anyio.sleep(50)
    assert seen == [("r", began + 163)]


async def test_who_looks_in_at_the_last_moment_counts():
    attendance, seen, began = Attendance(), [], anyio.current_time()

    async def look_in():
        await anyio.sleep(5)
        with attendance.reading("r"):
            pass

    async with task_group() as tasks:
        tasks.start_soon(look_in)
        tasks.start_soon(deserted, attendance, seen)
    assert seen == [("r", began + 10)]


async def test_the_last_of_several_readers_counts_and_other_runs_do_not():
    attendance, seen, began = Attendance(), [], anyio.current_time()
    async with task_group() as tasks:
        with attendance.reading("r"):
            with attendance.reading("r"):
                tasks.start_soon(deserted, attendance, seen)
                tasks.start_soon(deserted, attendance, seen)
                tasks.start_soon(deserted, attendance, seen, "other")
                await anyio.sleep(1)
            await anyio.sleep(9)
    assert seen == [("other", began + 5), ("r", began + 15), ("r", began + 15)]


async def test_nothing_is_kept_of_a_run_that_nobody_reads_or_guards():
    attendance = Attendance()
    with attendance.reading("r"):
        pass
    with anyio.move_on_after(1):
        await attendance.deserted("r", 5)
    assert attendance._rooms == {}
