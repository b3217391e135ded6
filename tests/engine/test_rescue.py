import anyio

from holdfast.core.events import RunQueued
from holdfast.core.lease import Lease
from holdfast.core.lifecycle import Status
from holdfast.core.run import replay
from holdfast.engine.rescue import rescue
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import STARTED, held


async def orphan(store):
    lease = await held(store, ttl=10.0)
    await store.append(lease, STARTED, seen=1)
    await anyio.sleep(11)
    return lease


async def test_a_run_whose_worker_vanished_is_queued_again_and_says_so():
    store = MemoryStore()
    await orphan(store)
    assert await rescue(store, "b", ttl=10.0) == ["run_1"]
    journal = await store.read("run_1")
    assert journal[-1].event == RunQueued(why="rescued", worker="a")
    assert replay(journal).status is Status.QUEUED
    assert len(await store.claim("c", ttl=10.0)) == 1


async def test_a_run_that_is_held_is_left_alone():
    store = MemoryStore()
    await held(store, ttl=10.0)
    assert await rescue(store, "b", ttl=10.0) == []


async def test_a_run_that_is_not_wanted_is_left_to_somebody_else():
    store = MemoryStore()
    await orphan(store)
    assert await rescue(store, "b", ttl=10.0, only=["run_2"]) == []
    assert await rescue(store, "b", ttl=10.0, only=["run_1"]) == ["run_1"]


async def test_two_rescuers_rescue_once():
    store = MemoryStore()
    await orphan(store)
    rescued = []

    async def one(name):
        rescued.extend(await rescue(store, name, ttl=10.0))

    async with anyio.create_task_group() as tasks:
        for name in "bcd":
            tasks.start_soon(one, name)
    assert rescued == ["run_1"]
    assert sum(isinstance(r.event, RunQueued) for r in await store.read("run_1")) == 1


async def test_a_rescuer_that_is_too_slow_leaves_it_to_the_next():
    class Slow(MemoryStore):
        async def read(self, run_id, **how):
            await anyio.sleep(20)
            assert await super().seize(run_id, "c", ttl=10.0)
            return await super().read(run_id, **how)

    store = Slow()
    await orphan(store)
    assert await rescue(store, "b", ttl=10.0) == []


async def test_a_run_of_a_newer_version_is_given_back_as_it_is():
    from holdfast.core.codec import recall

    store = MemoryStore()
    lease = await orphan(store)
    store._runs["run_1"].log.append(recall(3, 0.0, b'{"type":"run.danced"}'))
    assert await rescue(store, "b", ttl=10.0) == ["run_1"]
    assert len(await store.read("run_1")) == 3
    assert lease == Lease("run_1", "a", 1)
