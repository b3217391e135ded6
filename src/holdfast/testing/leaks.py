"""A pytest plugin that fails a test which leaves something behind.

Switch it on for a whole suite in the topmost conftest.py:

    pytest_plugins = ["holdfast.testing.leaks"]

Threads, asyncio tasks, child processes and file descriptors, listening ports among
them, must be gone when a test is over. What was there before it began is not its
fault, and what is still closing gets a second. A test that failed anyway is not
examined: its traceback keeps alive what it had opened.

Needs psutil, to name child processes.
"""

import asyncio
import gc
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from holdfast.testing.virtual_time import describe_task

#: Who each thing is, and how to ask for its name.
_Things = dict[Hashable, Callable[[], str]]

_POLL = 0.01
_FAILED = pytest.StashKey[bool]()


@pytest.fixture
def leak_grace() -> float:
    """For how many real seconds a thing may still be closing. Redefine it at will."""
    return 1.0


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest, leak_grace: float) -> Iterator[None]:
    """Fail the test, and name each culprit, if it leaves anything behind.

    Redefine this fixture as an empty one where a leak is the point. An event loop that
    outlives the test, because an async fixture of wider scope uses it, is not searched.
    """
    before = _things()
    with pytest.MonkeyPatch.context() as patch:
        left = _watch_loops(patch, leak_grace)
        yield
    if request.node.stash.get(_FAILED, False):
        return
    left += _settle(before, leak_grace)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None:
        item.stash[_FAILED] = True
    return (yield)


def _watch_loops(patch: pytest.MonkeyPatch, grace: float) -> list[str]:
    """A list that fills with the tasks which a closing loop finds still at work.

    Whoever closes a loop, pytest's runner or `anyio.run`, cancels what is left and says
    nothing, so this is the last moment to look.
    """
    left: list[str] = []
    close = asyncio.Runner.close

    def look_and_close(runner: asyncio.Runner) -> None:
        left.extend(_unfinished(runner, grace))
        close(runner)

    patch.setattr(asyncio.Runner, "close", look_and_close)
    return left


def _unfinished(runner: asyncio.Runner, grace: float) -> list[str]:
    try:
        loop = runner.get_loop()
    except RuntimeError:
        return []  # closed already
    tasks = [task for task in asyncio.all_tasks(loop) if not _is_the_test_runner(task)]
    if tasks:
        loop.run_until_complete(_let_finish(tasks, grace))
    return [f"task {describe_task(task)}" for task in tasks if not task.done()]


async def _let_finish(tasks: list[asyncio.Task[Any]], grace: float) -> None:
    # Real seconds, and no timer: on a virtual clock a busy task would keep one from firing.
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and not all(task.done() for task in tasks):
        await anyio.lowlevel.checkpoint()


def _is_the_test_runner(task: asyncio.Task[Any]) -> bool:
    # anyio's pytest plugin keeps one task for all tests and fixtures of a loop.
    name = getattr(task.get_coro(), "__qualname__", "")
    return bool(name == "TestRunner._run_tests_and_fixtures")


def _settle(before: _Things, grace: float) -> list[str]:
    """The names of the things that were not there before and do not go away."""
    if not _things().keys() - before.keys():
        return []
    gc.collect()
    deadline = time.monotonic() + grace
    while new := {who: name for who, name in _things().items() if who not in before}:
        if time.monotonic() > deadline:
            return [name() for name in new.values()]
        time.sleep(_POLL)  # noqa: TID251 (no loop is running here)
    return []


def _things() -> _Things:
    return _threads() | _processes() | _descriptors()


def _threads() -> _Things:
    found: _Things = {}
    for thread in threading.enumerate():
        # A worker thread of anyio's idles until the loop it belongs to is closed.
        loop = getattr(thread, "loop", None)
        if not isinstance(loop, asyncio.AbstractEventLoop) or loop.is_closed():
            found[thread] = partial("thread {}".format, thread.name)
    return found


def _processes() -> _Things:
    if not _has_children():
        return {}
    import psutil

    children = psutil.Process().children(recursive=True)
    # Each is equal to itself alone. When it began would not do: a clock that is set changes that.
    return {child: partial(_name_process, child) for child in children}


def _has_children() -> bool:
    """Whether it is worth going through all processes of the machine, which is slow."""
    if not hasattr(os, "waitid"):  # pragma: no cover (macOS before Python 3.13)
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _name_process(process: Any) -> str:
    import psutil

    try:
        return f"process {process.pid}: {' '.join(process.cmdline())}"
    except psutil.ZombieProcess:
        return f"process {process.pid}, which has ended and was not waited for"


def _descriptors() -> _Things:
    found: _Things = {}
    for entry in os.listdir("/dev/fd"):  # noqa: PTH208 (a Path would be made for each)
        number = int(entry)
        try:
            status = os.fstat(number)
        except OSError:
            continue  # the one that listed the folder
        who = (number, stat.S_IFMT(status.st_mode), status.st_dev, status.st_ino)
        found[who] = partial(_name_descriptor, number, status.st_mode)
    return found


def _name_descriptor(number: int, mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return _name_socket(number)
    return f"file descriptor {number}: {_path(number)}"


def _name_socket(number: int) -> str:
    with socket.socket(fileno=os.dup(number)) as copy:
        ours = _address(copy.getsockname())
        if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return f"listening port {ours} (file descriptor {number})"
        try:
            theirs = _address(copy.getpeername())
        except OSError:
            return f"socket {ours} (file descriptor {number})"
    return f"socket from {ours} to {theirs} (file descriptor {number})"


def _address(address: Any) -> str:
    match address:
        case (str(host), int(port), *_):
            return f"{host}:{port}"
        case "" | b"":
            return "an unnamed place"
        case other:
            return str(other)


def _path(number: int) -> str:
    if sys.platform == "darwin":  # pragma: no cover
        import fcntl

        return fcntl.fcntl(number, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0").decode()
    return str(Path(f"/proc/self/fd/{number}").readlink())
