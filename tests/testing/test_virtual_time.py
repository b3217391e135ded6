import asyncio
import math
import re
import socket
import threading
import time

import anyio
import anyio.to_thread
import pytest

from holdfast.testing.virtual_time import Deadlock, VirtualTimeLoop, describe_task


def run(test, *, patience=5.0):
    """Run an async function on a virtual loop of its own."""
    return anyio.run(
        test, backend_options={"loop_factory": lambda: VirtualTimeLoop(patience=patience)}
    )


async def test_a_long_wait_takes_no_real_time_and_ends_exactly_on_time():
    began = time.monotonic()
    await anyio.sleep(900)
    assert anyio.current_time() == 900
    assert time.monotonic() - began < 1


async def test_time_stands_still_while_tasks_work():
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert anyio.current_time() == 0


async def test_sleepers_wake_in_the_order_of_their_timers():
    woken = []

    async def sleep(seconds):
        await anyio.sleep(seconds)
        woken.append((seconds, anyio.current_time()))

    async with anyio.create_task_group() as tasks:
        for seconds in (3, 1, 2):
            tasks.start_soon(sleep, seconds)
    assert woken == [(1, 1), (2, 2), (3, 3)]


async def test_a_cancelled_timer_does_not_move_the_clock():
    with anyio.fail_after(1000):
        await anyio.sleep(1)
    with anyio.move_on_after(5):
        await anyio.sleep_forever()
    assert anyio.current_time() == 6


async def test_an_endless_sleep_does_not_move_the_clock():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, math.inf)
        await anyio.sleep(3)
        tasks.cancel_scope.cancel()
    assert anyio.current_time() == 3


async def test_a_thousand_years_pass_and_short_waits_still_end():
    await anyio.sleep(1000 * 365 * 86400)
    before = anyio.current_time()
    for _ in range(10):
        await anyio.sleep(1e-9)
    await anyio.sleep(1)
    assert anyio.current_time() == pytest.approx(before + 1)


async def test_a_real_socket_is_heard_before_the_clock_jumps():
    async def echo(stream):
        async with stream:
            await stream.send(await stream.receive())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with anyio.fail_after(10):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                for _ in range(3):
                    await anyio.sleep(1)
                await stream.send(b"hello")
                assert await stream.receive() == b"hello"
        tasks.cancel_scope.cancel()
    assert anyio.current_time() == 3


async def test_the_clock_waits_for_an_executor():
    loop = asyncio.get_running_loop()
    with anyio.fail_after(60):
        await loop.run_in_executor(None, threading.Event().wait, 0.05)
    assert anyio.current_time() == 0


def test_an_executor_may_take_longer_than_our_patience():
    async def wait():
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, threading.Event().wait, 0.2)

    assert run(wait, patience=0.02) is False


def test_closing_waits_for_a_thread_that_is_still_at_work():
    finished = threading.Event()

    def work():
        threading.Event().wait(0.1)
        finished.set()

    async def abandon():
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, work)

    run(abandon, patience=0.02)
    assert finished.is_set()


def test_a_thread_may_wake_a_loop_that_has_no_timer():
    async def wait():
        return await anyio.to_thread.run_sync(threading.Event().wait, 0.05)

    assert run(wait) is False


@pytest.fixture
def impatient_loop():
    """A loop that gives up after 20 ms, and is tidied up after it has."""
    loop = VirtualTimeLoop(patience=0.02)
    yield loop
    for task in (left := asyncio.all_tasks(loop)):
        task.cancel()
    for task in left:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()


def test_a_loop_that_nothing_can_wake_says_who_is_waiting(impatient_loop):
    async def forgotten():
        await anyio.Event().wait()

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forgotten, name="the forgotten one")
            await anyio.sleep_forever()

    with pytest.raises(Deadlock, match=r"nothing has happened for 0\.02 real seconds") as caught:
        impatient_loop.run_until_complete(main())
    assert len(caught.value.tasks) == 2
    assert re.search(
        r"the forgotten one: .*forgotten \(test_virtual_time\.py:\d+\) > wait", str(caught.value)
    )


def test_a_loop_with_no_task_at_all_can_be_stuck_too(impatient_loop):
    with pytest.raises(Deadlock, match="waiting: nobody"):
        impatient_loop.run_forever()


def test_a_loop_is_usable_after_a_deadlock(impatient_loop):
    with pytest.raises(Deadlock):
        impatient_loop.run_until_complete(anyio.sleep_forever())
    impatient_loop.run_until_complete(anyio.sleep(1))
    assert impatient_loop.time() == 1


async def test_a_watched_socket_can_change_what_it_is_watched_for():
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        heard = anyio.Event()
        loop.add_writer(ours, lambda: None)
        loop.add_reader(ours, heard.set)
        loop.remove_writer(ours)
        theirs.send(b"!")
        await heard.wait()
        loop.remove_reader(ours)


async def test_a_task_is_described_by_where_it_waits():
    async def inner():
        await anyio.sleep(1)

    async def outer():
        await inner()

    loop = asyncio.get_running_loop()
    task = loop.create_task(outer(), name="sleeper")
    assert describe_task(task).startswith("sleeper: outer (test_virtual_time.py:")
    await anyio.lowlevel.checkpoint()
    assert re.match(r"sleeper: outer \(\S+\) > inner \(\S+\) > sleep", describe_task(task))
    await task
    assert describe_task(task) == "sleeper: finished"
