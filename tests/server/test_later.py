"""What takes long to load is loaded once, by whoever needs it first, or when there is time."""

import subprocess
import sys
import threading

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.server.later import Later


class Made:
    """Apps, with how often and where they were made, and what they were asked for."""

    def __init__(self):
        self.threads, self.asked = [], []

    def __call__(self):
        self.threads.append(threading.current_thread())
        return self.answer

    async def answer(self, scope, receive, send):
        self.asked.append(scope)


async def test_it_is_made_for_the_first_who_asks_and_for_all_who_wait_with_them():
    made = Made()
    later = Later(made)
    async with task_group() as tasks:
        for number in range(5):
            tasks.start_soon(later, number, None, None)
        await anyio.lowlevel.checkpoint()
        assert made.asked == []
    await later(5, None, None)
    assert sorted(made.asked) == [0, 1, 2, 3, 4, 5]
    assert len(made.threads) == 1


async def test_it_is_made_where_nobody_else_waits_for_it():
    made = Made()
    await Later(made).load()
    assert made.threads != [threading.current_thread()]


async def test_what_was_loaded_in_time_is_not_made_again():
    made = Made()
    later = Later(made)
    assert await later.load() == await later.load() == made.answer
    await later("first", None, None)
    assert (len(made.threads), made.asked) == (1, ["first"])


async def test_who_comes_after_a_failure_has_it_made_again():
    made, wrong = Made(), [OSError("too many open files")]

    def make():
        if wrong:
            raise wrong.pop()
        return made()

    later = Later(make)
    with pytest.raises(OSError, match="too many"):
        await later("first", None, None)
    await later("second", None, None)
    assert made.asked == ["second"]


def test_a_server_starts_without_the_framework_of_its_routes():
    code = "import sys, holdfast.host; sys.exit('litestar' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
