import pytest

from holdfast.errors import JournalDamaged, StoreError
from holdfast.stores.database import open_writer
from holdfast.stores.reading import link
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import CALLED, STARTED, held, said


def test_a_sum_is_made_of_all_that_must_not_change():
    sums = {
        link(b"", 1, 1.0, b"body"),
        link(b"x", 1, 1.0, b"body"),
        link(b"", 2, 1.0, b"body"),
        link(b"", 1, 2.0, b"body"),
        link(b"", 1, 1.0, b"Body"),
    }
    assert len(sums) == 5
    assert link(b"", 1, 1.0, b"body") in sums


@pytest.mark.parametrize(("seq", "told"), [(1, 1), (3, 3)])
async def test_bytes_that_became_text_which_is_none_are_damage(tmp_path, seq, told):
    path = tmp_path / "data" / "journal.db"
    async with open_sqlite(path) as store:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, said("a"), seen=1)
    db = open_writer(path)
    db.execute("update event set body = cast(x'7bf37d' as text) where seq = ?", (seq,))
    db.close()
    async with open_sqlite(path) as store:
        for after in range(told):
            with pytest.raises(JournalDamaged) as caught:
                await store.read("run_1", after=after)
            assert caught.value.seq == told


async def test_a_name_that_is_no_text_any_more_is_told_as_damage(tmp_path):
    path = tmp_path / "data" / "journal.db"
    async with open_sqlite(path) as store:
        await held(store)
    db = open_writer(path)
    db.execute("update run set place = cast(x'f3' as text)")
    db.close()
    with pytest.raises(StoreError, match="is damaged"):
        async with open_sqlite(path):
            pytest.fail("it was opened")
    db = open_writer(path)
    db.execute("update run set place = 'ended', id = cast(x'f3' as text)")
    db.close()
    async with open_sqlite(path) as store:
        with pytest.raises(StoreError, match="cannot be read"):
            await store.list()
