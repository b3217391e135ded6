import anyio
import pytest

from holdfast.core.events import StopRequested
from holdfast.errors import StoreFull
from holdfast.ports import Review, ToolUse
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED, held
from holdfast.testing.faults import Crash, FaultyStore, MortalTool
from holdfast.testing.scripted import ScriptedTool


async def test_a_slow_line_takes_its_time_for_everything():
    line = FaultyStore(MemoryStore())
    line.delay = 2.0
    await line.accept("run_1", ACCEPTED)
    await line.read("run_1")
    assert anyio.current_time() == 4


async def test_a_full_store_is_read_and_not_written():
    line = FaultyStore(MemoryStore())
    await line.accept("run_1", ACCEPTED)
    line.full = True
    with pytest.raises(StoreFull):
        await line.wish("run_1", StopRequested())
    assert len(await line.read("run_1")) == 1
    line.full = False
    await line.wish("run_1", StopRequested())


async def test_a_line_that_is_cut_answers_nobody_until_it_is_mended():
    line = FaultyStore(MemoryStore())
    await line.accept("run_1", ACCEPTED)
    line.cut = True
    line.cut = True
    with anyio.move_on_after(100) as wait:
        await line.read("run_1")
    assert wait.cancelled_caught
    line.cut = False
    assert len(await line.read("run_1")) == 1


@pytest.mark.parametrize(("writes", "kept"), [(0, 1), (1, 2), (2, 4)])
async def test_a_crash_comes_after_so_many_writes_and_none_follows(writes, kept):
    store = MemoryStore()
    line = FaultyStore(store)
    lease = await held(line)
    line.crash_after(writes)
    with pytest.raises(Crash):
        await line.append(lease, STARTED, seen=1)
        await line.append(lease, CALLED, StopRequested(), seen=2)
        await line.append(lease, StopRequested(), seen=4)
    assert len(await store.read("run_1")) == kept
    with pytest.raises(Crash):
        await line.read("run_1")


async def test_death_is_told_once_and_wakes_whoever_waits():
    line, told = FaultyStore(MemoryStore()), []
    line.on_death = lambda: told.append("dead")
    line.cut = True
    woken = []

    async def wait():
        try:
            await line.orphans()
        except Crash:
            woken.append("woken")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(1)
        line.die()
        line.die()
    assert woken == ["woken"]
    assert told == ["dead"]


async def test_each_line_to_a_store_fails_alone():
    store = MemoryStore()
    one, two = FaultyStore(store), FaultyStore(store)
    await one.accept("run_1", ACCEPTED)
    one.die()
    assert len(await two.read("run_1")) == 1


async def test_a_tool_does_not_begin_once_its_process_is_gone():
    line, tool = FaultyStore(MemoryStore()), ScriptedTool(review=Review(gate="ask"))
    mortal = MortalTool(tool, line)
    assert (mortal.spec, mortal.review("{}")) == (tool.spec, Review(gate="ask"))

    async def ignore(_):
        pass

    use = ToolUse(arguments="{}", effect_id="call_1", progress=ignore)
    await mortal.run(use)
    line.die()
    with pytest.raises(Crash):
        await mortal.run(use)
    assert tool.effects == ["call_1"]
