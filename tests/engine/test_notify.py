import anyio

from holdfast.core.events import ModelCalled, StopRequested
from holdfast.core.lifecycle import Status
from holdfast.errors import StoreUnavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing.scripted import ScriptedModel, Silence
from holdfast.testing.stage import stage


async def test_a_stop_recorded_by_another_process_takes_effect_at_once():
    model = ScriptedModel([Silence()])
    async with stage(model) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        await play.means.store.wish(run_id, StopRequested())
        state = await play.ended(run_id)
        assert (anyio.current_time(), state.status) == (0, Status.CANCELLED)


async def test_a_run_accepted_by_another_process_is_claimed_at_once():
    async with stage(ScriptedModel(["Hello"])) as play:
        await anyio.sleep(1)
        await play.ended(await play.start())
        assert anyio.current_time() == 1


class Deaf(MemoryStore):
    """A store whose hints never come."""

    async def changes(self):
        await anyio.sleep_forever()
        yield ""


async def test_a_missed_hint_only_costs_time():
    async with stage(ScriptedModel([Silence()]), store=Deaf(now=anyio.current_time)) as play:
        await anyio.sleep(1)
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        claimed = anyio.current_time()
        await play.means.store.wish(run_id, StopRequested())
        state = await play.ended(run_id)
        assert claimed <= 1 + 30
        assert anyio.current_time() - claimed <= 10 / 3
    assert state.status is Status.CANCELLED


async def test_a_line_of_hints_that_breaks_is_taken_up_again(caplog):
    class Breaking(MemoryStore):
        broken = 0

        async def changes(self):
            if not self.broken:
                self.broken += 1
                raise StoreUnavailable("the line broke")
            async for run_id in super().changes():
                yield run_id

    async with stage(ScriptedModel(["Hello"]), store=Breaking(now=anyio.current_time)) as play:
        await anyio.sleep(5)
        await play.ended(await play.start())
        assert anyio.current_time() == 5
    assert "not hearing of changes" in caplog.text


async def test_a_line_of_hints_that_ends_is_taken_up_again():
    class Ending(MemoryStore):
        ended = 0

        async def changes(self):
            if not self.ended:
                self.ended += 1
                return
            async for run_id in super().changes():
                yield run_id

    async with stage(ScriptedModel(["Hello"]), store=Ending(now=anyio.current_time)) as play:
        await anyio.sleep(5)
        await play.ended(await play.start())
        assert anyio.current_time() == 5
