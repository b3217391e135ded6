import subprocess
import sys
import textwrap
from xml.etree import ElementTree as ET

import pytest

LEAKY = """
    import asyncio
    import os
    import socket
    import subprocess
    import sys
    import threading

    import anyio
    import anyio.to_thread
    import pytest

    KEPT = []


    @pytest.fixture
    def leak_grace():
        return 0.2


    def keep(thing):
        KEPT.append(thing)
        return thing


    def test_clean():
        with socket.create_server(("127.0.0.1", 0)), open(os.devnull):
            thread = threading.Thread(target=print)
            thread.start()
            thread.join()
            subprocess.run([sys.executable, "-c", ""], check=True)


    async def test_clean_async():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0.01)
            tasks.start_soon(anyio.to_thread.run_sync, print)


    def test_slow_to_close():
        thread = keep(threading.Timer(0.05, print))
        thread.start()


    async def test_task_that_is_just_ending():
        async def end():
            for _ in range(100):
                await anyio.lowlevel.checkpoint()

        keep(asyncio.get_running_loop().create_task(end()))


    def test_failing():
        keep(open(os.devnull))
        raise ValueError("on its own account")


    def test_thread():
        thread = threading.Thread(target=threading.Event().wait, name="the tireless", daemon=True)
        thread.start()


    async def test_task():
        async def linger():
            await anyio.sleep(1000)

        keep(asyncio.get_running_loop().create_task(linger(), name="the lingerer"))
        await anyio.lowlevel.checkpoint()


    def test_task_of_a_loop_of_its_own():
        async def main():
            keep(asyncio.get_running_loop().create_task(anyio.sleep(1000), name="a stray"))

        anyio.run(main)


    @pytest.fixture
    async def careless():
        keep(asyncio.get_running_loop().create_task(anyio.sleep(1000), name="of the fixture"))
        yield


    async def test_task_of_a_fixture(careless):
        pass


    def test_process():
        program = [sys.executable, "-c", "import time; time.sleep(60)"]
        keep(subprocess.Popen(program))


    def test_zombie():
        child = keep(subprocess.Popen([sys.executable, "-c", ""]))
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


    def test_file():
        keep(open(__file__))


    def test_port():
        keep(socket.create_server(("127.0.0.1", 0)))


    def test_datagram_socket():
        keep(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", 0))


    def test_socket_pair():
        keep(socket.socketpair())


    def test_abstract_socket():
        server = keep(socket.socket(socket.AF_UNIX))
        server.bind("the-pipe")
        server.listen()


    def test_several_at_once():
        keep(open(__file__))
        keep(socket.create_server(("127.0.0.1", 0)))


    @pytest.fixture(scope="module")
    def anyio_backend():
        return "asyncio"


    @pytest.fixture(scope="module")
    async def wide():
        yield


    async def test_worker_thread_of_a_loop_that_lives_on(wide):
        await anyio.to_thread.run_sync(print)


    def test_last_clean():
        with asyncio.Runner() as runner:
            runner.close()
        for thing in KEPT:
            if isinstance(thing, subprocess.Popen):
                thing.kill()
                thing.wait()
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What became of each test of a leaky suite: "" if it passed, else why not."""
    folder = tmp_path_factory.mktemp("leaky")
    (folder / "conftest.py").write_text('pytest_plugins = ["holdfast.testing.leaks"]\n')
    (folder / "test_leaky.py").write_text(textwrap.dedent(LEAKY))
    options = ["-p", "no:cacheprovider", "-o", "anyio_mode=auto", "--junitxml=verdicts.xml"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir=.", *options],
        cwd=folder,
        check=False,
        capture_output=True,
    )
    cases = ET.parse(folder / "verdicts.xml").iter("testcase")
    return {case.get("name"): verdict(case) for case in cases}


def verdict(case):
    # A test that failed and then leaked would have two.
    return "\n".join(
        found.get("message", "") + (found.text or "")
        for kind in ("failure", "error")
        for found in case.iter(kind)
    )


@pytest.mark.parametrize(
    "clean",
    [
        "test_clean",
        "test_clean_async",
        "test_slow_to_close",
        "test_task_that_is_just_ending",
        "test_worker_thread_of_a_loop_that_lives_on",
        "test_last_clean",
    ],
)
def test_a_clean_test_passes(verdicts, clean):
    assert verdicts[clean] == ""


@pytest.mark.parametrize(
    ("leaky", "named"),
    [
        ("test_thread", "thread the tireless"),
        ("test_task", "task the lingerer: linger (test_leaky.py:"),
        ("test_task_of_a_loop_of_its_own", "task a stray: sleep ("),
        ("test_task_of_a_fixture", "task of the fixture: sleep ("),
        ("test_process", "-c import time; time.sleep(60)"),
        ("test_zombie", "which has ended and was not waited for"),
        ("test_file", "test_leaky.py"),
        ("test_port", "listening port 127.0.0.1:"),
        ("test_datagram_socket", "socket 127.0.0.1:"),
        ("test_socket_pair", "socket from an unnamed place to an unnamed place"),
        ("test_abstract_socket", "listening port the-pipe"),
    ],
)
def test_a_leak_fails_the_test_and_is_named(verdicts, leaky, named):
    assert "the test left behind:" in verdicts[leaky]
    assert named in verdicts[leaky]


def test_all_leaks_of_a_test_are_named_at_once(verdicts):
    assert "test_leaky.py" in verdicts["test_several_at_once"]
    assert "listening port" in verdicts["test_several_at_once"]


def test_a_test_that_failed_is_not_blamed_for_leaks_too(verdicts):
    assert "on its own account" in verdicts["test_failing"]
    assert "left behind" not in verdicts["test_failing"]


def test_what_was_there_before_is_nobody_s_leak(verdicts):
    """Each leaky test is blamed for its own leak only, though the others' are still there."""
    assert "tireless" not in verdicts["test_file"]
    assert "listening" not in verdicts["test_file"]


def test_this_suite_is_watched_too(request):
    assert "no_leaks" in request.fixturenames
