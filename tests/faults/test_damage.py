"""Spoil what is stored, and see that nothing else is ever served in its place.

What is left may be read, from the beginning and without a gap. What is damaged is named.
"""

from contextlib import aclosing

import anyio
import apsw
import pytest

from holdfast.core.events import StopRequested
from holdfast.core.lifecycle import Status
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.errors import JournalDamaged, NotFound, StoreError
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED, said
from tests.faults.diary import Diary, keep_a_diary

pytestmark = pytest.mark.real_time

#: Bytes from one bit that is turned to the next.
STRIDE = 397


class Stored:
    """Files of a store: of a living one, with all of it in the log, and of one that was closed."""

    def __init__(self, folder):
        self.path = folder / "journal.db"
        self.kept = {}

    async def write(self):
        async with open_sqlite(self.path) as store:
            diary = Diary(store)
            await keep_a_diary(diary)
            self.kept = diary.bodies
            self.living, self.log = self.path.read_bytes(), self._file("-wal").read_bytes()
        self.closed = self.path.read_bytes()

    async def spoil(self, database, log=b""):
        """With these files, whatever is served is what was written. Returns how many runs are short."""
        self._file("-shm").unlink(missing_ok=True)
        self.path.write_bytes(database)
        self._file("-wal").write_bytes(log)
        served = await self.served()
        if isinstance(served, StoreError):
            return len(self.kept)
        return sum(self._is_short(run_id, found, log) for run_id, found in served.items())

    def _is_short(self, run_id, found, log):
        match found:
            case JournalDamaged(run_id=named, seq=seq):
                assert named == run_id and 1 <= seq <= len(self.kept[run_id])
            case NotFound():
                # Not a word of it was before the cut; or the file itself shows that it is spoilt.
                assert log or not self.whole(), f"run {run_id} is gone, and nothing shows it"
            case list():
                assert found == self.kept[run_id][: len(found)]
        return found != self.kept[run_id]

    async def served(self):
        """What is read of each run, or why not. An error if the file cannot be opened at all."""
        found = {}
        try:
            async with open_sqlite(self.path) as store:
                for run_id in self.kept:
                    try:
                        found[run_id] = [event.body for event in await store.read(run_id)]
                    except (StoreError, NotFound) as error:
                        found[run_id] = error
        except StoreError as error:
            return error
        return found

    def whole(self):
        connection = apsw.Connection(str(self.path))
        try:
            return connection.pragma("integrity_check") == "ok"
        except apsw.Error:
            return False
        finally:
            connection.close()

    def _file(self, suffix):
        return self.path.with_name(self.path.name + suffix)


@pytest.fixture
async def stored(memory):
    stored = Stored(memory)
    await stored.write()
    return stored


def turned(data, place):
    """The same, but for one bit."""
    spoilt = bytearray(data)
    spoilt[place] ^= 1 << place % 8
    return bytes(spoilt)


async def test_undamaged_all_of_it_is_served(stored):
    for database, log in ((stored.living, stored.log), (stored.closed, b"")):
        assert await stored.spoil(database, log) == 0


async def test_a_log_that_is_cut_off_anywhere_serves_what_is_before_the_cut(stored):
    for size in range(1, len(stored.log), 4999):
        assert await stored.spoil(stored.living, stored.log[:size]) > 0


async def test_a_log_that_ends_in_rubbish_serves_what_is_before_it(stored):
    rubbish = bytes(range(256)) * 40
    for size in range(1, len(stored.log), 4999):
        assert await stored.spoil(stored.living, stored.log[:size] + rubbish) > 0
    assert await stored.spoil(stored.living, stored.log + rubbish) == 0


async def test_a_log_without_its_header_is_no_log(stored):
    assert await stored.spoil(stored.living, bytes(32) + stored.log[32:]) == len(stored.kept)


async def test_a_bit_that_turned_in_the_log_ends_it_there(stored):
    for place in range(0, len(stored.log), len(stored.log) // 60):
        await stored.spoil(stored.living, turned(stored.log, place))


async def test_a_bit_that_turned_in_the_database_is_never_served(stored):
    found = 0
    for place in range(0, len(stored.closed), STRIDE):
        found += await stored.spoil(turned(stored.closed, place)) > 0
    assert found > len(stored.closed) // STRIDE // 4


@pytest.mark.parametrize(
    ("damage", "seq"),
    [
        ("delete from event where seq = 1", 1),
        ("delete from event where seq = 3", 3),
        ("update event set body = cast('{}' as blob) where seq = 3", 3),
        ("update event set body = null where seq = 3", 3),
        ("update event set body = 'text' where seq = 3", 3),
        ("update event set at = at + 1 where seq = 4", 4),
        ("update event set at = 'never' where seq = 4", 4),
        ("update event set sum = x'00' where seq = 5", 5),
        ("update event set seq = seq + 100 where seq >= 4", 4),
    ],
)
async def test_the_first_event_that_is_not_as_written_is_named(stored, damage, seq):
    connection = apsw.Connection(str(stored.path))
    connection.execute(f"{damage} and run = (select key from run where id = 'run_1')")
    connection.close()
    async with open_sqlite(stored.path) as store:
        followed = all_of(store.follow("run_1", after=max(seq - 2, 0)))
        for reading in (store.read("run_1"), followed):
            with pytest.raises(JournalDamaged, match="run_1") as damaged:
                await reading
            assert (damaged.value.run_id, damaged.value.seq) == ("run_1", seq)
        assert [one.body for one in await store.read("run_2")] == stored.kept["run_2"]


async def all_of(events):
    async with aclosing(events):
        return [event async for event in events]


async def test_a_blob_that_is_not_as_written_is_not_served(stored):
    connection = apsw.Connection(str(stored.path))
    connection.execute("update blob set body = body || x'00'")
    connection.execute("update blob set body = cast(body as blob)")
    names = [name for (name,) in connection.execute("select sha256 from blob")]
    connection.close()
    async with open_sqlite(stored.path) as store:
        for name in names:
            with pytest.raises(StoreError, match=name):
                await store.blob(name)


async def test_whoever_writes_a_damaged_run_is_told_and_the_others_go_on(memory):
    path = memory / "journal.db"
    async with open_sqlite(path) as store:
        for run_id in ("run_1", "run_2"):
            await store.accept(run_id, ACCEPTED)
        (lease, _) = await store.claim("a", ttl=60.0, limit=2)
        for number in range(5):
            await store.append(lease, said(str(number)), seen=number + 1)
    connection = apsw.Connection(str(path))
    connection.execute("update event set body = x'00' where seq = 3")
    connection.close()
    async with open_sqlite(path) as store:
        lease = await store.seize("run_1", "b", ttl=60.0)
        with anyio.fail_after(5), pytest.raises(JournalDamaged, match="run_1 is damaged at 3"):
            await store.append(lease, said("more"), seen=0)
        with pytest.raises(JournalDamaged, match="run_1 is damaged at 3"):
            await store.wish("run_1", StopRequested())
        assert store.broken is None
        assert len(await store.read("run_2")) == 1
        # What was refused was not written either.
        assert await store.renew([lease], ttl=60.0) == {"run_1": 6}


async def test_a_run_that_is_damaged_can_be_stopped_and_takes_nobody_down(tmp_path, caplog):
    path = tmp_path / "journal.db"
    async with open_sqlite(path) as store:
        for run_id in ("run_1", "run_2"):
            await store.accept(run_id, ACCEPTED)
        lease, *_ = await store.claim("a", ttl=60.0)
        await store.append(lease, STARTED, CALLED, seen=1)
    change(path, "update event set body = x'00' where seq = 2")
    async with open_sqlite(path) as store:
        runs = Runs(Means(store=store, models={}))
        await runs.stop("run_1")
        await runs.stop("run_1")
        await runs.stop("run_2")
        assert (await runs.state("run_2")).status is Status.CANCELLED
        with pytest.raises(JournalDamaged):
            await runs.state("run_1")
        with pytest.raises(NotFound):
            await runs.stop("run_3")
    bodies = [body for (body,) in change(path, "select body from event where run = 1 order by seq")]
    assert b"stop.requested" in bodies[-1]


def change(path, statement):
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(statement))
    finally:
        connection.close()
