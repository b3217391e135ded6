import pytest

from holdfast.core.events import ModelCalled, RunCompleted, ToolStarted
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.stage import stage


async def test_a_stage_runs_a_model_with_tools_and_tells_what_happened():
    async with stage(ScriptedModel([Call("pay")], ["Paid."]), ScriptedTool()) as play:
        run_id = await play.start("pay the bill")
        called = await play.until(run_id, ModelCalled)
        assert (await play.until(run_id, ModelCalled, after=called.seq)).event.turn == 2
        assert (await play.ended(run_id)).output == "Paid."
        assert (await play.journal(run_id))[-1] == RunCompleted()
        assert (await play.tags(run_id))[-1] == "run.completed"


async def test_waiting_for_what_never_happens_ends_with_the_run():
    async with stage(ScriptedModel(["Done."])) as play:
        run_id = await play.start()
        with pytest.raises(AssertionError, match="ended without ToolStarted"):
            await play.until(run_id, ToolStarted)
