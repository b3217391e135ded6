import json
from functools import partial
from threading import Event

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from holdfast.ports import ToolUse
from holdfast.tools.beneath import Workspace
from holdfast.tools.files import EditFile, ReadFile, WriteFile
from holdfast.tools.opening import open_beneath
from holdfast.tools.search import SearchFiles
from holdfast.tools.thread import _Watched, abandoned

pytestmark = pytest.mark.real_time


class Slow:
    """Opens files as slowly as a network that is away: not before it is told to."""

    def __init__(self):
        self.begun, self.go_on = anyio.Event(), Event()

    def __call__(self, folder, parts, flags):
        anyio.from_thread.run_sync(self.begun.set)
        assert self.go_on.wait(10)
        return open_beneath(folder, parts, flags)


async def nobody(words):
    pass


def use(left, **arguments):
    return ToolUse(json.dumps(arguments), "effect_1", nobody, left=lambda *one: left.append(one))


async def until_over(going):
    with anyio.fail_after(10):
        while going():
            await anyio.sleep(0.001)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (ReadFile, {"path": "a"}),
        (EditFile, {"path": "a", "old": "one", "new": "two"}),
        (SearchFiles, {"pattern": "a", "target": "files"}),
        (SearchFiles, {"pattern": "one"}),
    ],
)
async def test_a_thread_that_goes_on_after_a_stop_is_named_for_as_long_as_it_does(
    tmp_path, make, arguments
):
    (tmp_path / "a").write_text("one\n")
    slow, left = Slow(), []
    tool = make(Workspace(tmp_path, opener=slow))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tool.run, use(left, **arguments))
        await slow.begun.wait()
        tasks.cancel_scope.cancel()
    ((words, going),) = left
    assert words.startswith("thread ") and words.endswith(
        f" of tool {tool.spec.name}: still running"
    )
    assert going()
    slow.go_on.set()
    await until_over(going)
    assert (tmp_path / "a").read_text() == "one\n"


async def test_a_write_is_not_left_behind(tmp_path):
    slow, left, order = Slow(), [], []

    async def write():
        tool = WriteFile(Workspace(tmp_path, opener=slow))
        try:
            await tool.run(use(left, path="a", content="one"))
        finally:
            order.append("over")

    async def let_go_on():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
            order.append("goes on")
            slow.go_on.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await slow.begun.wait()
        tasks.start_soon(let_go_on)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert (order, left) == (["goes on", "over"], [])
    assert (tmp_path / "a").read_text() == "one"


async def test_whoever_comes_to_its_end_leaves_nothing(tmp_path):
    (tmp_path / "a").write_text("one\n")
    left = []
    assert "one" in await ReadFile(Workspace(tmp_path)).run(use(left, path="a"))
    assert left == []


async def test_work_that_has_no_thread_yet_is_not_begun_after_a_stop():
    places, left, done = anyio.CapacityLimiter(1), [], []
    work = partial(abandoned, partial(done.append, 1), limiter=places, tool="a", left=left.append)
    async with places, anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert (left, done) == ([], [])


def test_a_thread_that_takes_it_up_too_late_does_nothing():
    done = []
    watched = _Watched(partial(done.append, 1))
    assert watched.leave() == 0
    with pytest.raises(InterruptedError):
        watched()
    assert done == [] and not watched.going()
