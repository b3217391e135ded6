"""The contract is kept by both stores; here it is seen to catch one that does not keep it."""

import pytest

from holdfast.stores.memory import MemoryStore
from holdfast.testing.deletion import DeletionContract


class Heedless(MemoryStore):
    async def delete(self, run_id, *, by=""):
        await self.read(run_id)


async def test_a_store_that_deletes_nothing_is_caught():
    with pytest.raises(pytest.fail.Exception):
        await DeletionContract().test_one_under_way_is_asked_to_stop_and_its_worker_ends_it(
            Heedless()
        )
