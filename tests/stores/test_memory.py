import anyio
import pytest

from holdfast.core.events import StopRequested
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, STARTED, StoreContract, held
from holdfast.testing.conversations import ConversationContract
from holdfast.testing.deletion import DeletionContract
from holdfast.testing.intake import IntakeContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestMemoryStoreTakingIn(IntakeContract, ConversationContract, DeletionContract):
    @pytest.fixture
    def clock(self):
        return [1000.0]

    @pytest.fixture
    def store(self, clock):
        return MemoryStore(now=lambda: clock[0])

    @pytest.fixture
    def wait(self, clock):
        def wait(seconds):
            clock[0] += seconds

        return wait


@pytest.mark.real_time
class TestMemoryStoreInRealTime(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()


async def test_wall_time_is_for_the_record_and_moves_no_lease():
    now = [1000.0]
    store = MemoryStore(now=lambda: now[0])
    lease = await held(store, ttl=10.0)
    now[0] = 1e9
    assert await store.orphans() == []
    (started,) = await store.append(lease, STARTED, seen=1)
    assert started.at == 1e9


async def test_a_write_is_cancelled_before_it_happens_or_not_at_all():
    store = MemoryStore()
    await store.accept("run_1", ACCEPTED)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.wish("run_1", StopRequested())
    assert scope.cancelled_caught
    assert len(await store.read("run_1")) == 1


async def test_a_watcher_leaves_nothing_behind():
    store = MemoryStore()
    changes = store.changes()
    with anyio.move_on_after(1):
        await anext(changes)
    await changes.aclose()
    await store.accept("run_1", ACCEPTED)
    assert len(store._watchers) == 0
