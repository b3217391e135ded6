"""Kill -9 of a process that carries a run, at random moments, and see that nothing is lost.

Each run dies a few times and is then left to finish in a fresh process. After every death all
that a follower was told is on record, byte for byte, and nothing was done twice.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

#: Kills in all, and by one process after another.
KILLS, AT_ONCE = 50, 50
SOAK_KILLS = 3000


#: Kills of a run of commands.
COMMAND_KILLS, COMMANDS_AT_ONCE = 50, 50


def killed(seed, kills, story="killed"):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.faults.{story}", str(seed), str(kills)],
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
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(KILLS // AT_ONCE))
def test_nothing_is_lost_or_done_twice_by_a_process_that_is_killed(seed):
    told = killed(seed, AT_ONCE)
    assert told["deaths"] == AT_ONCE
    assert set(told["ends"]) == {"completed"}
    assert told["in_mid_run"] > 0


@pytest.mark.seeds
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(COMMAND_KILLS // COMMANDS_AT_ONCE))
def test_a_command_is_run_at_most_once_and_said_to_be_in_doubt_where_it_is(seed):
    told = killed(seed, COMMANDS_AT_ONCE, "commands")
    assert told["deaths"] == COMMANDS_AT_ONCE
    assert set(told["ends"]) == {"completed"}
    assert told["lost"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1004))
def test_a_command_is_run_at_most_once_in_a_long_time(seed):
    assert set(killed(seed, COMMANDS_AT_ONCE, "commands")["ends"]) == {"completed"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1000 + SOAK_KILLS // 100))
def test_nothing_is_lost_or_done_twice_in_a_long_time(seed):
    assert set(killed(seed, 100)["ends"]) == {"completed"}
