import pytest

from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import StoreContract

pytestmark = pytest.mark.real_time


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path):
        async with open_sqlite(tmp_path / "data" / "journal.db") as store:
            yield store
