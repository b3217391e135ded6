"""Kill a process at its every operation on the disk, and see that nothing it said is lost.

Three turns, three effects in the world outside, one question that a person answers. Somebody
follows the run from another process: what they heard has to be on record afterwards, and
the run has to be finished by whoever comes next, without doing anything twice.
"""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parent.parent.parent

#: How many share the work.
CHUNKS = 3


def lives(how, folder, *, first, step):
    """Ends lives at this operation and at every so many after it, until one is not ended."""
    arguments = [how, str(first), str(step), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.lives", *arguments],
        cwd=ROOT,
        # Nothing of ours, least of all a tracer: it is killed too often to tell of anything.
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize(("how", "every"), [("kill", 3), ("tear", 5)])
def test_what_was_heard_outlives_a_process_that_is_killed_while_it_writes(
    memory, how, every, chunk
):
    told = lives(how, memory, first=1 + chunk * every, step=CHUNKS * every)
    assert told["last"] > 100, told


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("how", ["kill", "tear"])
def test_what_was_heard_outlives_a_process_that_is_killed_at_any_operation(memory, how, chunk):
    told = lives(how, memory, first=1 + chunk, step=CHUNKS)
    assert told["last"] > 100, told
