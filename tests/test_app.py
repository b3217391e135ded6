import asyncio

import anyio
import pytest

from holdfast.app import open_app
from holdfast.core.events import RunQueued, TextStreamed
from holdfast.core.lifecycle import Status
from holdfast.models.demo import LOOK, NOTE
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence


async def test_without_anything_there_is_the_demo_and_its_tools():
    async with open_app() as app:
        accepted = app.prepare("hello")
        assert [choice.name for choice in accepted.models] == ["demo"]
        assert [spec.name for spec in accepted.tools] == [LOOK, NOTE]
        run_id = await app.runs.accept(accepted)
        async for _ in app.runs.follow(run_id):
            if (await app.runs.state(run_id)).pending:
                await app.runs.answer(run_id, "once")
        assert (await app.runs.state(run_id)).status is Status.COMPLETED


async def test_a_model_of_one_s_own_comes_with_one_s_own_tools():
    pay = ScriptedTool("pay")
    async with open_app(models={"mine": ScriptedModel(["Hi"])}) as app:
        assert app.prepare("hello").tools == ()
        run_id = await app.runs.accept(app.prepare("hello", instructions="be brief"))
        [_ async for _ in app.runs.follow(run_id)]
        assert (await app.runs.state(run_id)).output == "Hi"
    async with open_app(models={"mine": ScriptedModel()}, tools=[pay]) as app:
        assert app.prepare("hello").tools == (pay.spec,)


async def test_what_a_request_says_about_asking_and_where_it_came_from_is_kept():
    async with open_app() as app:
        accepted = app.prepare("hello", approval="deny", surface="terminal")
    assert (accepted.approval, accepted.surface) == ("deny", "terminal")


async def test_closing_cuts_off_what_is_live_and_leaves_it_to_be_taken_up():
    model = ScriptedModel(["Once", Silence()])
    async with open_app(models={"mine": model}) as app:
        run_id = await app.runs.accept(app.prepare("a story"))
        async for recorded in app.runs.follow(run_id):
            if isinstance(recorded.event, TextStreamed):
                break
    (*_, last) = await app.means.store.read(run_id)
    assert last.event == RunQueued(why="drained", worker=last.event.worker)
    assert model.open == 0


async def test_an_error_inside_is_the_error_outside():
    with pytest.raises(LookupError, match="mine"):
        async with open_app():
            raise LookupError("mine")


async def test_a_process_that_was_suspended_overnight_keeps_its_run():
    async def work(use):
        # A moment at which a worker with a short lease would look for orphans before it renews.
        await anyio.sleep(4)
        asyncio.get_running_loop()._now += 8 * 3600
        await anyio.sleep(1)
        return "done"

    tool = ScriptedTool("work", work=work, timeout=0)
    model = ScriptedModel([Call("work")], ["Good morning"])
    async with open_app(models={"mine": model}, tools=[tool], clock=anyio.current_time) as app:
        run_id = await app.runs.accept(app.prepare("hello"))
        [_ async for _ in app.runs.follow(run_id)]
        state = await app.runs.state(run_id)
    assert (state.output, state.epoch, len(tool.effects)) == ("Good morning", 1, 1)
