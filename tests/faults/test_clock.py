"""Wall clocks jump. Nothing that is waited for may be waited for longer, and no order changes."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from holdfast.core.events import ApprovalExpired, ApprovalRequested, ModelCalled, ModelFailed
from holdfast.errors import ModelUnavailable
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

ROOT = Path(__file__).parent.parent.parent

DAY, YEAR = 86400.0, 365 * 86400.0


class JumpingClock:
    """Wall time, which anyone may set."""

    def __init__(self):
        self.skew = 1e9

    def __call__(self):
        return self.skew + anyio.current_time()


def jumping_stage(model, *tools):
    clock = JumpingClock()
    return clock, stage(model, *tools, store=MemoryStore(now=clock), clock=clock)


@pytest.mark.parametrize("jump", [-DAY, -YEAR])
async def test_an_approval_runs_out_in_time_though_the_clock_is_set_back(jump):
    pay = ScriptedTool(review=Review(gate="ask"))
    clock, staged = jumping_stage(ScriptedModel([Call("pay")], ["No."]), pay)
    async with staged as play:
        run_id = await play.start(approval_timeout=300.0)
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(100)
        clock.skew += jump
        await play.until(run_id, ApprovalExpired)
        assert anyio.current_time() == pytest.approx(300, abs=1)


async def test_a_clock_set_forward_does_not_make_a_resting_run_expire_early():
    pay = ScriptedTool(review=Review(gate="ask"))
    clock, staged = jumping_stage(ScriptedModel([Call("pay")], ["No."]), pay)
    async with staged as play:
        run_id = await play.start(approval_timeout=300.0)
        await play.until(run_id, ApprovalRequested)
        clock.skew += YEAR
        await play.until(run_id, ApprovalExpired)
        assert anyio.current_time() == pytest.approx(300, abs=1)


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
async def test_a_back_off_is_as_long_as_it_was_going_to_be(jump):
    busy = [ModelUnavailable("busy", reason="overloaded", retry_after=50)]
    clock, staged = jumping_stage(ScriptedModel(busy, ["Done."]))
    async with staged as play:
        run_id = await play.start()
        await play.until(run_id, ModelFailed)
        await anyio.sleep(10)
        clock.skew += jump
        await play.ended(run_id)
        assert anyio.current_time() == 50


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
async def test_no_watchdog_no_lease_and_no_order_minds_the_clock(jump):
    clock, staged = jumping_stage(ScriptedModel(["a", Silence(100), "b", Silence(100), "c"]))
    async with staged as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        await anyio.sleep(50)
        clock.skew += jump
        state = await play.ended(run_id)
        journal = await play.means.store.read(run_id)
    assert (state.output, state.rescues) == ("abc", 0)
    assert [recorded.seq for recorded in journal] == list(range(1, len(journal) + 1))
    assert state.seconds == 200


@pytest.mark.real_time
@pytest.mark.parametrize("seed", [1, 2])
def test_a_process_whose_clock_jumps_carries_its_run_as_any_other(tmp_path, seed):
    command = [sys.executable, "-m", "tests.faults.jumpy", str(tmp_path), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=25
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["output"], told["effects"]) == ("completed", "No.", 0)
    assert told["seqs"] == list(range(1, len(told["seqs"]) + 1))
    assert told["times"] != sorted(told["times"]), "the clock did not jump"
    # The lease was renewed all along, nobody took a slow word for silence, and no answer was late.
    assert (told["rescues"], told["orphans"]) == (0, [])
    assert 0.5 < max(told["rests"]) <= 1.0
    assert not {"run.queued", "model.failed"} & set(told["tags"])
    assert 0.9 < told["waited"] < 6.0
