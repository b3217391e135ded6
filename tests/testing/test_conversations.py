"""The contract is kept by both stores; here it is seen to catch one that does not keep it."""

import pytest

from holdfast.stores.memory import MemoryStore
from holdfast.testing.conversations import ConversationContract
from holdfast.testing.faults import FaultyStore


class TestFaultlessStore(ConversationContract):
    @pytest.fixture
    def clock(self):
        return [1000.0]

    @pytest.fixture
    def store(self, clock):
        return FaultyStore(MemoryStore(now=lambda: clock[0]))

    @pytest.fixture
    def wait(self, clock):
        def wait(seconds):
            clock[0] += seconds

        return wait


class Impatient(MemoryStore):
    async def accept(self, run_id, first, **options):
        recorded = await super().accept(run_id, first, **options)
        self._make_ready(run_id, 0.0)
        return recorded


async def test_a_store_that_lets_a_run_go_before_its_turn_is_caught():
    with pytest.raises(AssertionError):
        await ConversationContract().test_one_run_of_a_session_is_ready_at_a_time(Impatient())
