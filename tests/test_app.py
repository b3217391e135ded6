import asyncio
import shutil
from contextlib import aclosing

import anyio
import pytest

from holdfast.app import open_app
from holdfast.config.places import JOURNAL
from holdfast.core.events import RunCompleted, RunQueued, TextStreamed
from holdfast.core.lifecycle import Status
from holdfast.errors import DataInUse
from holdfast.models.demo import LOOK, NOTE
from holdfast.stores.owner import owner
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


async def test_a_process_that_was_suspended_overnight_takes_its_run_up_again():
    """It cannot know whether another has the run by now, so it lets go, and finds that none has."""

    async def work(use):
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
    assert (state.output, len(tool.effects)) == ("Good morning", 1)


# --- in a data directory


@pytest.mark.real_time
async def test_with_a_data_directory_runs_outlive_the_app(tmp_path):
    async with open_app(data=tmp_path / "data", models={"mine": ScriptedModel(["Hi"])}) as app:
        run_id = await app.runs.accept(app.prepare("hello"))
        [_ async for _ in app.runs.follow(run_id)]
        assert app.trouble is None
    assert (tmp_path / "data" / JOURNAL).exists()
    async with open_app(data=str(tmp_path / "data"), work=False) as app:
        assert (await app.runs.state(run_id)).output == "Hi"


@pytest.mark.real_time
async def test_a_data_directory_has_one_owner_who_says_under_which_name_it_works(tmp_path):
    async with open_app(data=tmp_path / "data", models={"mine": ScriptedModel(["Hi"])}) as app:
        run_id = await app.runs.accept(app.prepare("hello"))
        [_ async for _ in app.runs.follow(run_id)]
        assert (await app.runs.state(run_id)).worker == owner(tmp_path / "data").worker
        with pytest.raises(DataInUse, match="in use by process"):
            async with open_app(data=tmp_path / "data"):
                pass
    async with open_app(data=tmp_path / "data"):
        pass


@pytest.mark.real_time
async def test_what_a_dead_process_held_is_taken_up_at_once(tmp_path):
    async with open_app(
        data=tmp_path / "data", models={"mine": ScriptedModel(["Once", Silence()])}
    ) as app:
        run_id = await app.runs.accept(app.prepare("a story"))
        async with aclosing(app.runs.follow(run_id)) as journal:
            async for recorded in journal:
                if isinstance(recorded.event, TextStreamed):
                    break
        # What a process leaves that dies now.
        shutil.copytree(tmp_path / "data", tmp_path / "left")
    model = ScriptedModel(["Once upon a time"])
    with anyio.fail_after(5):
        async with open_app(data=tmp_path / "left", models={"mine": model}) as app:
            events = [recorded.event async for recorded in app.runs.follow(run_id)]
    assert RunQueued in map(type, events)
    assert type(events[-1]) is RunCompleted


@pytest.mark.real_time
async def test_only_what_is_wanted_is_carried_and_the_rest_is_left_as_it_is(tmp_path):
    async with open_app(data=tmp_path / "data", work=False) as app:
        for run_id in ("run_1", "run_2"):
            await app.runs.accept(app.prepare("hello", approval="deny"), run_id=run_id)
    models = {"demo": ScriptedModel(["Hi"])}
    async with open_app(data=tmp_path / "data", models=models, only=["run_2"]) as app:
        [_ async for _ in app.runs.follow("run_2")]
        assert len(await app.means.store.read("run_1")) == 1
    async with open_app(data=tmp_path / "data", models={"demo": ScriptedModel(["Hi"])}) as app:
        [_ async for _ in app.runs.follow("run_1")]


async def test_without_work_nothing_is_carried_and_a_stop_still_ends_it():
    async with open_app(work=False) as app:
        run_id = await app.runs.accept(app.prepare("hello"))
        await app.runs.stop(run_id)
        assert (await app.runs.state(run_id)).status is Status.CANCELLED
