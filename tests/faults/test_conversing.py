"""Kill -9 of a server at random moments of conversations, and see that they are whole.

Three sessions at a time, with tools, questions, and messages that wait, are put in other words, are
taken back, steer or interrupt. After every death all that anybody saw is still there, once and in
its place; what people were told had been taken in was; and reading has changed nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

#: Kills in all, and by one process after another.
KILLS = 6
SOAK_KILLS, AT_ONCE = 200, 50

#: What must happen now and then, or nothing was shown.
OFTEN = (
    "said_queued",
    "said_steered",
    "edited",
    "removed",
    "steered",
    "rejected",
    "stopped",
    "answered",
    "taken_back",
)


def conversing(seed, kills, folder):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.conversing", str(seed), str(kills), str(folder)],
        cwd=ROOT,
        # Nothing of ours, least of all a tracer: it is killed too often to tell of anything.
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.seeds
@pytest.mark.timeout(240)
def test_conversations_are_whole_on_a_server_that_is_killed(memory):
    told = conversing(0, KILLS, memory)
    assert told["kills"] == KILLS
    assert told["said_queued"] and told["frames"], told


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 1 + SOAK_KILLS // AT_ONCE))
def test_conversations_are_whole_on_a_server_that_is_killed_all_the_time(memory, seed):
    told = conversing(seed, AT_ONCE, memory)
    assert told["kills"] == AT_ONCE
    assert all(told.get(name) for name in OFTEN), told
