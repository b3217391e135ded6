import anyio
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.stores.watchers import Watchers


async def heard(watchers, into):
    async for run_id in watchers.changes():
        into.append(run_id)


async def test_everyone_who_listens_is_told_and_nobody_else():
    watchers, one, two = Watchers(), [], []
    watchers.announce(["run_0"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heard, watchers, one)
        tasks.start_soon(heard, watchers, two)
        await anyio.sleep(1)
        watchers.announce(["run_1", "run_2"])
        watchers.announce([])
        await anyio.sleep(1)
        assert len(watchers) == 2
        tasks.cancel_scope.cancel()
    assert one == two == ["run_1", "run_2"]
    assert len(watchers) == 0


async def test_whoever_is_slow_is_told_of_each_run_once():
    watchers, told = Watchers(), []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heard, watchers, told)
        await anyio.sleep(1)
        for _ in range(100):
            watchers.announce(["run_1"])
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert told == ["run_1"]


async def test_whoever_listens_is_told_when_nothing_more_will_change():
    watchers, told = Watchers(), []

    async def listen():
        with pytest.raises(StoreUnavailable, match="gone"):
            await heard(watchers, told)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await anyio.sleep(1)
        watchers.announce(["run_1"])
        watchers.close(StoreUnavailable("gone"))
    await listen()
    assert told == ["run_1"]
    assert len(watchers) == 0
