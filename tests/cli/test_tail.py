import io
import json
import signal

import anyio
import pytest

from holdfast.cli import screen, tail
from holdfast.cli.terminal import Terminal
from holdfast.core.codec import record
from holdfast.core.events import (
    ModelCalled,
    ModelReplied,
    RunCancelled,
    RunCompleted,
    RunStarted,
    StopRequested,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import ToolCall
from holdfast.stores.owner import Owner
from holdfast.testing.contracts import ACCEPTED


def test_a_run_that_ended_is_told_to_its_end(command, keep):
    run_id = keep()
    code, output, complaints = command("tail", run_id)
    assert code == 0
    assert output == "Done, and paid.\n"
    assert "→ pay" in complaints


def test_it_begins_after_the_place_that_is_asked_for(command, keep):
    run_id = keep()
    _, everything, _ = command("tail", run_id, "--json")
    lines = everything.splitlines()
    _, output, _ = command("tail", run_id, "--json", "--after", "5")
    assert output.splitlines() == lines[5:]
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert {json.loads(line)["run"] for line in lines} == {run_id}


def test_a_tool_that_began_before_that_place_is_known_by_name(command, keep):
    run_id = keep()
    _, everything, _ = command("tail", run_id, "--json")
    types = [json.loads(line)["event"]["type"] for line in everything.splitlines()]
    _, _, complaints = command("tail", run_id, "--after", str(types.index("tool.started")))
    assert "→ pay" in complaints


def test_a_place_before_the_beginning_is_a_mistake(command, keep):
    assert command("tail", keep(), "--after", "-1")[0] == 2


def test_it_follows_beside_the_owner_and_says_when_nobody_goes_on(at_terminal, holdfast):
    owner = at_terminal("run", "hello", "--pace", "0.05").expect("A new")
    run_id = json.loads(holdfast("runs", "--json").stdout)["run"]
    follower = at_terminal("tail", run_id).expect("> hello").expect("A new")
    owner.expect("You said")
    follower.expect("You said")
    owner.send(signal.SIGKILL).end()
    follower.expect(f"nobody carries this run now; holdfast resume {run_id[:12]} does")
    resumed = at_terminal("resume", run_id, "--pace", "0").expect("or deny? [deny]")
    follower.expect("the process that carried the run is gone").expect("keep what you said")
    resumed.type("\n")
    assert resumed.end() == 0
    assert follower.end() == 0
    assert "✗ keep_note, denied" in follower.seen


def test_whoever_follows_a_run_that_asks_is_shown_how_to_answer(at_terminal, keep, command):
    run_id = keep("asking")
    follower = at_terminal("tail", run_id, columns=120).expect("? ask needs your approval")
    follower.expect(f"Answer: holdfast approve {run_id[:12]} apr_")
    command("stop", run_id)
    assert follower.end() == 0
    assert follower.seen.count("needs your approval") == 1


def test_leaving_it_leaves_the_run_alone(at_terminal, keep, command):
    run_id = keep("cut off")
    follower = at_terminal("tail", run_id).expect("Once upon").type("\x03")
    assert follower.end() == 130
    assert "Traceback" not in follower.seen
    assert "interrupted" in command("runs")[1]


class Shelf:
    """Holds one run. Remembers when somebody looked, and has an event to show at each of these times."""

    owner = Owner(1, worker="a")

    def __init__(self, *events):
        self.events_at = events
        self.looks = []

    @property
    def archive(self):
        return self

    def events(self, run_id, *, after=0):
        now = anyio.current_time()
        self.looks.append(now)
        journal = [record(seq, at, event) for seq, (at, event) in enumerate(self.events_at, 1)]
        return [recorded for recorded in journal if recorded.at <= now and recorded.seq > after]


class Seen:
    def __init__(self):
        self.shown = []

    def begin(self, run_id, journal=(), *, after=0):
        self.shown += journal

    def show(self, recorded):
        self.shown.append(recorded)


async def test_a_quiet_run_is_looked_at_ever_less_often_and_one_that_speaks_at_once_again():
    shelf = Shelf((0, ACCEPTED), (0, RunStarted(worker="a", epoch=1)), (100, RunCompleted()))
    viewer = Seen()
    await tail._follow(shelf, "run_1", 0, viewer, None)
    assert [recorded.seq for recorded in viewer.shown] == [1, 2, 3]
    pauses = [later - earlier for earlier, later in zip(shelf.looks, shelf.looks[1:], strict=False)]
    assert pauses[0] <= 0.1 and max(pauses) == pytest.approx(tail.LONGEST)
    assert len(shelf.looks) < 110
    assert anyio.current_time() < 101.1


async def test_after_news_one_looks_again_soon():
    shelf = Shelf((0, ACCEPTED), (10, RunStarted(worker="a", epoch=1)), (12, RunCompleted()))
    await tail._follow(shelf, "run_1", 0, Seen(), None)
    heard = next(at for at in shelf.looks if at >= 10)
    after = [at - heard for at in shelf.looks if at > heard]
    assert after[0] <= 0.1


async def test_it_may_begin_at_a_place_that_is_yet_to_come():
    """What is not shown is known all the same: here it is what the tool is called."""
    pay = ToolCall(id="call_1", tool="pay")
    shelf = Shelf(
        (0, ACCEPTED),
        (0, RunStarted(worker="a", epoch=1)),
        (0, ModelCalled(turn=1, attempt=1, model="m")),
        (1, ModelReplied(turn=1, attempt=1, calls=(pay,))),
        (2, ToolStarted(call_id="call_1")),
        (3, StopRequested()),
        (4, ToolFinished(call_id="call_1", outcome="cancelled")),
        (5, RunCancelled()),
    )
    paper, lines = Terminal(io.StringIO()), io.BytesIO()
    await tail._follow(shelf, "run_1", 6, screen.Screen(paper, paper), None)
    assert paper._console.file.getvalue().startswith("✗ pay, cancelled\n")
    await tail._follow(shelf, "run_1", 7, screen.JsonLines(lines), None)
    assert [json.loads(line)["seq"] for line in lines.getvalue().splitlines()] == [8]
