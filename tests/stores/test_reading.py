from contextlib import aclosing

import pytest

from holdfast.errors import JournalDamaged, StoreError
from holdfast.stores.database import open_writer
from holdfast.stores.reading import link
from holdfast.stores.recent import MOST
from holdfast.stores.sqlite import PAGE_BYTES, open_sqlite
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


@pytest.mark.parametrize("recent", [0, MOST], ids=["from the file", "from memory"])
async def test_who_follows_has_few_bytes_in_their_hands_and_misses_nothing(tmp_path, recent):
    path, words = tmp_path / "data" / "journal.db", said("x" * 100_000)
    async with open_sqlite(path, recent=recent) as store:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, *[words] * 9, seen=1)
        sizes = []
        after = 0
        while after < 12:
            page, _ = await store._page("run_1", after)
            sizes.append(sum(len(recorded.body) for recorded in page))
            assert page[0].seq == after + 1
            after = page[-1].seq
        assert max(sizes) < PAGE_BYTES + 101_000 and len(sizes) < 6
        async with aclosing(store.follow("run_1")) as events:
            assert [(await anext(events)).seq for _ in range(12)] == list(range(1, 13))


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
