import os
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from holdfast.errors import ToolError
from holdfast.tools.process import Finished, nobody_left, run_process

pytestmark = pytest.mark.real_time

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Run:
    """One process of a test: what was heard of it, and what was said to have been ended."""

    def __init__(self, folder):
        self.folder, self.heard, self.ended = folder, [], []
        self.spoke = anyio.Event()

    async def __call__(self, script, *, most=100_000, marker="", **more):
        return await self.argv("/bin/bash", "-c", script, most=most, marker=marker, **more)

    async def argv(self, *argv, most=100_000, **more):
        more = {"env": ENVIRONMENT, "cwd": self.folder, "hear": self.hear} | more
        return await run_process(argv, most=most, ended=self.ended.append, **more)

    async def hear(self, words):
        self.heard.append(words)
        self.spoke.set()

    async def until_it_speaks(self, script, **more):
        """Start it, cancel it when it has said something, and return what that was."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: self(script, **more))
            with anyio.fail_after(5):
                await self.spoke.wait()
            tasks.cancel_scope.cancel()
        return "".join(self.heard).split()


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_what_a_process_says_is_heard_and_kept_in_order(run):
    done = await run("echo one; echo two >&2; echo three")
    assert done == Finished(0, "one\ntwo\nthree\n")
    assert "".join(run.heard) == done.output
    assert run.ended == []


async def test_a_process_has_no_input_and_the_folder_and_environment_it_was_given(run):
    done = await run("cat; pwd; env", env={"A": "b"}, marker="call_1")
    said = done.output.splitlines()
    assert said[0] == str(run.folder)
    assert {"A=b", "HOLDFAST_CALL=call_1"} <= set(said)
    assert "HOME" not in done.output


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -TERM $$", 128 + 15)])
async def test_a_code_says_how_it_ended(run, script, code):
    assert (await run(script)).code == code


async def test_bytes_that_are_no_text_are_replaced_and_split_ones_are_joined(run):
    done = await run(r"printf '\xc3'; sleep 0.05; printf '\xa9 \xff \x1b[1m'")
    assert done.output == "é � \x1b[1m"


async def test_half_a_character_at_the_end_is_told(run):
    assert (await run(r"printf 'a\xc3'")).output == "a�"


async def test_past_the_limit_it_is_counted_and_the_process_is_not_held_up(run):
    done = await run("head -c 3000000 /dev/zero | tr '\\0' x; echo done >&2", most=10)
    assert (done.code, done.output, done.cut) == (0, "x" * 10, 3_000_000 - 10 + 5)
    assert "".join(run.heard) == "x" * 10


async def test_endless_output_does_not_keep_others_from_their_work(run):
    with anyio.move_on_after(0.3) as scope:
        await run("yes", most=10)
    assert scope.cancelled_caught
    assert "killed" in run.ended[0]


async def test_a_slow_listener_gets_all_of_it(run):
    async def slowly(words):
        await anyio.sleep(0.1)
        run.heard.append(words)

    done = await run("head -c 200000 /dev/zero | tr '\\0' x", most=1_000_000, hear=slowly)
    assert len(done.output) == len("".join(run.heard)) == 200_000


async def test_a_listener_that_never_returns_does_not_keep_a_process_alive(run):
    async def never(words):
        run.spoke.set()
        await anyio.sleep_forever()

    pid_file = run.folder / "pid"
    await run.until_it_speaks(f"echo $$ > {pid_file}; yes", hear=never)
    assert not alive(int(pid_file.read_text()))


async def test_an_error_of_the_listener_ends_the_process_and_is_raised_as_it_is(run):
    async def fail(words):
        raise LookupError(words)

    with pytest.raises(LookupError, match="hello"):
        await run("echo hello; sleep 60", hear=fail)
    assert len(run.ended) == 1


async def test_a_cancel_ends_the_process_and_its_group_and_says_so(run):
    pids = await run.until_it_speaks("sleep 60 & echo $$ $!; wait")
    assert not any(map(alive, pids))
    assert run.ended == [f"process {pids[0]} (bash) and its group: killed"]


#: The namespace of processes that the tests are in.
HERE = Path("/proc/self/ns/pid").stat().st_ino if sys.platform == "linux" else 0


@pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's")
async def test_whoever_is_left_in_a_jail_is_killed_and_waited_for(run):
    async with first_of_many(run, "sleep 60 & sleep 60 & echo $$ $(jobs -p); wait") as pids:
        assert all(map(alive, pids))
        assert await nobody_left(int(pids[0]), HERE)
        # The first may take a moment longer to end.
        assert not any(map(alive, pids[1:]))


@pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's")
async def test_a_first_process_that_is_alone_is_not_waited_for(run):
    async with first_of_many(run, "echo $$; exec sleep 60") as pids:
        assert await nobody_left(int(pids[0]), HERE)
        assert alive(pids[0])


@pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's")
async def test_a_first_process_that_never_ends_is_told(run):
    # It never asks about its child, which so is there even when it is dead.
    heartless = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    script = f"sleep 60 & exec {sys.executable} -I -S -c '{heartless}'"
    async with first_of_many(run, script) as pids:
        with anyio.CancelScope() as scope:
            scope.cancel()
            assert not await nobody_left(int(pids[0]), HERE)


@pytest.mark.skipif(sys.platform != "linux", reason="jails are Linux's")
async def test_another_process_that_got_the_number_of_the_first_is_left_alone(run):
    async with first_of_many(run, "sleep 60 & sleep 60 & echo $$ $(jobs -p); wait") as pids:
        assert await nobody_left(int(pids[0]), HERE + 1)
        assert all(map(alive, pids))


async def test_of_a_jail_that_is_gone_nobody_is_left():
    assert await nobody_left(4_194_304, HERE)  # no process has so high a number


@asynccontextmanager
async def first_of_many(run, script):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, script)
        with anyio.fail_after(5):
            await run.spoke.wait()
        yield "".join(run.heard).split()
        tasks.cancel_scope.cancel()


async def test_one_that_left_the_group_is_found_by_its_mark(run):
    script = "setsid bash -c 'echo $$; sleep 60; true' & sleep 60; true"
    (stray,) = await run.until_it_speaks(script, marker=f"call_left{os.getpid()}")
    assert not alive(stray)
    assert run.ended[0].endswith("(bash) and its group: killed")
    assert f"process {stray} (bash), which left its group: killed" in run.ended


async def test_a_daemon_is_found_by_its_mark(run):
    pid_file = run.folder / "pid"
    daemon = f"(setsid bash -c 'echo $$ > {pid_file}; echo up; sleep 60; true' &) ; sleep 60"
    await run.until_it_speaks(daemon, marker=f"call_daemon{os.getpid()}")
    pid = int(pid_file.read_text())
    assert not alive(pid)
    assert f"process {pid} (bash), which left its group: killed" in run.ended


async def test_another_call_is_left_alone(run, tmp_path):
    async with anyio.create_task_group() as tasks:
        other = Run(tmp_path)
        tasks.start_soon(lambda: other("echo $$; sleep 60", marker=f"call_{os.getpid()}_other"))
        await other.spoke.wait()
        await run.until_it_speaks("echo up; sleep 60", marker=f"call_{os.getpid()}")
        assert alive("".join(other.heard).strip())
        tasks.cancel_scope.cancel()


#: Another session, from which it is told that it is there.
STRAY = "setsid bash -c 'echo $$ > pid; sleep 60; true' & until [ -s pid ]; do sleep 0.01; done; "


async def test_a_command_that_has_ended_leaves_nothing_and_says_what_it_left(run):
    done = await run("sleep 61 & echo $!; " + STRAY + "cat pid", marker=f"call_bg{os.getpid()}")
    sleeper, stray, *_ = done.output.split()
    assert not alive(sleeper) and not alive(stray)
    assert "ended with the command that left it" in done.output
    assert f"process {sleeper} (" in done.output and f"process {stray} (bash)" in done.output
    assert "".join(run.heard) == done.output
    assert run.ended == []


async def test_one_who_holds_the_pipe_and_cannot_be_found_is_not_waited_for(run):
    """It has left the group, and nothing marks it."""
    begun = anyio.current_time()
    done = await run(STRAY + "echo done")
    assert anyio.current_time() - begun < 5
    assert done.output == "done\n"
    os.killpg(int((run.folder / "pid").read_text()), signal.SIGKILL)


async def test_an_objection_ends_it(run):
    with pytest.raises(ToolError, match=r"^the moon is full$"):
        await run("sleep 60", watch=lambda: "the moon is full")
    assert len(run.ended) == 1


async def test_whoever_is_content_lets_it_go_on(run):
    asked = []
    done = await run("sleep 0.3; echo done", watch=lambda: asked.append(1))
    assert done.output == "done\n" and asked


async def test_the_pid_is_told_before_anything_is_heard(run):
    told = []

    async def started(pid):
        told.append((pid, list(run.heard)))

    done = await run("echo $$", started=started)
    assert told == [(int(done.output), [])]


async def test_if_it_cannot_be_received_it_is_ended(run):
    async def started(pid):
        run.pid = pid
        raise LookupError

    with pytest.raises(LookupError):
        await run("sleep 60", started=started)
    assert not alive(run.pid)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/no/such/program"], "/no/such/program could not be started: .*No such file"),
        (["/bin/echo", "a\0b"], "/bin/echo could not be started: .*null byte"),
        (["/bin/echo", "\ud800"], "/bin/echo could not be started"),
        (["/etc/passwd"], "could not be started: .*Permission denied"),
    ],
)
async def test_what_cannot_be_started_is_an_error_in_words(run, argv, words):
    with pytest.raises(ToolError, match=words):
        await run.argv(*argv)


async def test_a_folder_that_is_not_there_is_an_error_in_words(run):
    with pytest.raises(ToolError, match="could not be started"):
        await run("true", cwd=run.folder / "gone")


async def test_the_second_of_many_pieces_is_not_read_as_the_last(run):
    script = "import sys,time\nfor i in range(50): print(i, flush=True)"
    done = await run.argv(sys.executable, "-c", script)
    assert done.output.split() == [str(i) for i in range(50)]


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_it_is_the_same_on_the_loop_of_the_server(run, loop_of_c, anyio_backend):
    assert await run("echo hello; exit 4") == Finished(4, "hello\n")
    pids = await run.until_it_speaks("sleep 60 & echo $$ $!; wait")
    assert not any(map(alive, pids[1:]))


class Starts:
    """How often another task had its turn before each of many starts."""

    def __init__(self):
        self.turns, self.before = 0, []

    async def tick(self, *, task_status):
        task_status.started()
        while True:
            await anyio.lowlevel.checkpoint()
            self.turns += 1

    @contextmanager
    def note(self):
        self.before.append(self.turns)
        yield


@pytest.mark.parametrize("door", [True, False])
async def test_of_those_who_share_a_door_one_starts_at_a_time_and_others_have_a_turn(run, door):
    starts, lock = Starts(), anyio.Lock() if door else None
    async with anyio.create_task_group() as ticking:
        await ticking.start(starts.tick)
        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(lambda: run("true", door=lock, within=starts.note))
        ticking.cancel_scope.cancel()
    assert len(starts.before) == 30
    assert len(set(starts.before)) == (30 if door else 1)


async def test_whoever_holds_the_door_lets_it_go_when_it_cannot_start(run):
    door = anyio.Lock()
    with pytest.raises(ToolError):
        await run.argv("/no/such/program", door=door)
    assert (await run("echo in", door=door)).output == "in\n"
