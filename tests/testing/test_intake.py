"""The contract is kept by both stores; here it is seen to catch one that does not keep it."""

import pytest

from holdfast.stores.memory import MemoryStore
from holdfast.testing.intake import IntakeContract


class Forgetful(MemoryStore):
    async def accept(self, run_id, first, *, blobs=(), once=None):
        return await super().accept(run_id, first)


async def test_a_store_that_forgets_what_it_took_in_is_caught():
    with pytest.raises(pytest.fail.Exception):
        await IntakeContract().test_a_request_is_taken_in_once(Forgetful())
