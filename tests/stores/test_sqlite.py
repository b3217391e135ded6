import sys
from contextlib import AsyncExitStack, aclosing
from hashlib import sha256

import anyio
import apsw
import pytest
from msgspec.structs import replace

from holdfast.core.events import (
    ApprovalRequested,
    InputAdded,
    RunCancelled,
    RunCompleted,
    StopRequested,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import BlobRef, Image, Text
from holdfast.core.session import SessionDeleted
from holdfast.errors import InvalidRequest, NotFound, StoreError, StoreUnavailable
from holdfast.ports import Once, Review
from holdfast.stores.database import open_writer
from holdfast.stores.reading import find, read
from holdfast.stores.sqlite import PAGE, open_sqlite
from holdfast.testing.contracts import (
    ACCEPTED,
    CALLED,
    STARTED,
    LossContract,
    StoreContract,
    held,
    said,
)
from holdfast.testing.conversations import ConversationContract
from holdfast.testing.deletion import DeletionContract
from holdfast.testing.disk import Disk
from holdfast.testing.intake import IntakeContract
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

pytestmark = pytest.mark.real_time


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "journal.db"


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, path):
        async with open_sqlite(path) as store:
            yield store


class TestSqliteStoreTakingIn(IntakeContract, ConversationContract, DeletionContract):
    @pytest.fixture
    def clock(self):
        return [1000.0]

    @pytest.fixture
    async def store(self, path, clock):
        async with open_sqlite(path, now=lambda: clock[0]) as store:
            yield store

    @pytest.fixture
    def wait(self, clock):
        def wait(seconds):
            clock[0] += seconds

        return wait


class TestSqliteStoreThatIsLost(LossContract):
    @pytest.fixture
    async def opened(self, path):
        with Disk() as disk:
            async with AsyncExitStack() as stack:
                store = await stack.enter_async_context(open_sqlite(path, vfs=disk.name))
                yield disk, store, stack
                disk.mend()

    @pytest.fixture
    def store(self, opened):
        return opened[1]

    @pytest.fixture(params=["closed", "broken"])
    def lose(self, request, opened):
        disk, store, stack = opened

        async def break_it():
            disk.break_at(1, "eio", on={"sync"})
            with pytest.raises(StoreUnavailable):
                await store.accept("run_2", ACCEPTED)

        return break_it if request.param == "broken" else stack.aclose


async def test_a_store_that_was_closed_says_so_to_whoever_still_has_it(path):
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED)
    for act in (
        lambda: store.read("run_1"),
        lambda: store.wish("run_1", StopRequested()),
        lambda: anext(store.follow("run_1")),
        store.census,
    ):
        with pytest.raises(StoreUnavailable, match="closed"), anyio.fail_after(5):
            await act()


async def test_a_follower_gets_what_was_kept_before_it_is_told_that_the_store_is_lost(path):
    with Disk() as disk:
        async with open_sqlite(path, vfs=disk.name) as store:
            lease = await held(store)
            await store.append(lease, STARTED, seen=1)
            disk.break_at(1, "eio", on={"sync"})
            with pytest.raises(StoreUnavailable):
                await store.append(lease, CALLED, seen=2)
            async with aclosing(store.follow("run_1")) as events:
                assert [(await anext(events)).seq for _ in range(2)] == [1, 2]
                with pytest.raises(StoreUnavailable, match="nothing more is acknowledged"):
                    await anext(events)


async def test_what_was_written_is_there_after_a_restart(path):
    name = sha256(b"c").hexdigest()
    async with open_sqlite(path) as store:
        lease = await held(store)
        blobs = {name: b"c"}
        await store.append(lease, STARTED, CALLED, said("a"), seen=1, blobs=blobs)
        before = await store.read("run_1")
    async with open_sqlite(path) as store:
        assert await store.read("run_1") == before
        assert await store.blob(name) == b"c"


async def test_a_run_goes_on_where_the_last_process_left_it(path):
    pay = ScriptedTool(review=Review(gate="ask"))
    model = ScriptedModel.by_turn([Call("pay")], ["Paid."])
    async with open_sqlite(path) as store, stage(model, pay, store=store) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
    async with open_sqlite(path) as store, stage(model, pay, store=store) as play:
        assert (await play.runs.state(run_id)).status is Status.WAITING
        await play.runs.answer(run_id, "once")
        assert (await play.ended(run_id)).output == "Paid."
    assert len(pay.effects) == 1


async def test_a_follower_far_behind_reads_pages_and_then_keeps_up(path):
    async with open_sqlite(path) as store:
        lease = await held(store)
        many = PAGE + 100
        await store.append(lease, STARTED, CALLED, *[said("x")] * many, seen=1)
        seen = []

        async def follow():
            async with aclosing(store.follow("run_1")) as events:
                seen.extend([recorded.seq async for recorded in events])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.sleep(0.05)
            last = many + 3
            for _ in range(20):
                await store.append(lease, said("y"), seen=last)
                last += 1
            await store.append(lease, RunCompleted(), seen=last)
        assert seen == list(range(1, many + 25))


async def test_a_follower_that_stalls_costs_a_place_and_misses_nothing(path):
    async with open_sqlite(path) as store:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, seen=1)
        async with aclosing(store.follow("run_1", after=2)) as events:
            assert (await anext(events)).seq == 3
            last = 3
            for _ in range(3):
                await store.append(lease, *[said("x")] * PAGE, seen=last)
                last += PAGE
            await store.append(lease, RunCompleted(), seen=last)
            assert len((await store._page("run_1", 3))[0]) == PAGE
            assert [recorded.seq async for recorded in events] == list(range(4, last + 2))
        assert store._feeds == {}


async def test_what_was_written_a_moment_ago_is_read_without_opening_the_file(path):
    async with open_sqlite(path) as store:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, seen=1)
        assert [recorded.seq for recorded in await store.read("run_1", after=1)] == [2, 3]
        assert await store.read("run_1", after=sys.maxsize) == []
        await store.append(lease, RunCompleted(), seen=3)
        for after, rest in ((0, [1, 2, 3, 4]), (4, [])):
            async with aclosing(store.follow("run_1", after=after)) as events:
                assert [recorded.seq async for recorded in events] == rest
        assert store._idle == []


async def test_what_is_read_from_memory_is_what_stands_in_the_file(path):
    async with open_sqlite(path) as store:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, said("x" * 70_000), seen=1)
        kept = await store.read("run_1")
        assert store._idle == []
    async with open_sqlite(path) as store:
        assert await store.read("run_1") == kept


async def test_a_run_too_long_to_be_kept_at_hand_is_followed_all_the_same(path):
    async with open_sqlite(path, recent=20_000) as store:
        lease = await held(store)
        seen = []

        async def follow():
            async with aclosing(store.follow("run_1")) as events:
                seen.extend([recorded.seq async for recorded in events])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await store.append(lease, STARTED, CALLED, seen=1)
            for last in range(3, 33):
                await store.append(lease, said("x" * (last % 7) * 300), seen=last)
            await store.append(lease, RunCompleted(), seen=33)
        assert seen == [recorded.seq for recorded in await store.read("run_1")]
        assert seen == list(range(1, 35))


async def test_a_follower_who_knows_of_more_than_there_is_is_let_go_at_the_end(path):
    async with open_sqlite(path, recent=0) as store:
        lease = await held(store)
        seen = []

        async def follow():
            async with aclosing(store.follow("run_1", after=99)) as events:
                seen.extend([recorded.seq async for recorded in events])

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await anyio.sleep(0.05)
                await store.append(lease, STARTED, RunCompleted(), seen=1)
        assert seen == []


async def test_a_follower_of_a_run_that_never_was_is_told_so(path):
    async with open_sqlite(path) as store:
        with pytest.raises(NotFound):
            await anext(store.follow("run_0"))
        assert store._feeds == {}


async def test_a_damaged_file_is_told_in_words(path):
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED)
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xff" * (len(damaged) - 4096)
    path.write_bytes(damaged)
    with pytest.raises(StoreError):
        async with open_sqlite(path) as store:
            await store.read("run_1")


async def test_a_stop_from_elsewhere_reaches_the_worker_at_once(path):
    async with open_sqlite(path) as store, stage(ScriptedModel([Silence()]), store=store) as play:
        run_id = await play.start()
        with anyio.fail_after(5):
            await play.until(run_id, type(CALLED))
            await store.wish(run_id, StopRequested())
            assert (await play.ended(run_id)).status is Status.CANCELLED


async def test_many_readers_at_once_each_get_their_own_answer(path):
    async with open_sqlite(path) as store:
        for number in range(20):
            await store.accept(f"run_{number}", ACCEPTED)

        async def read(number):
            assert len(await store.read(f"run_{number}")) == 1

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(read, number)


async def test_an_id_that_cannot_be_stored_is_refused_and_breaks_nothing(path):
    async with open_sqlite(path) as store:
        for act in (
            lambda: store.accept("\ud83d", ACCEPTED),
            lambda: store.wish("\ud83d", StopRequested()),
            lambda: store.seize("\ud83d", "a", ttl=1.0),
            lambda: store.read("\ud83d"),
        ):
            with pytest.raises(InvalidRequest, match="half a character"):
                await act()
        await store.accept("run_1", ACCEPTED)
        assert store.broken is None


async def test_what_no_run_uses_any_more_is_gone_after_the_next_start(path):
    kept, unused = sha256(b"a").hexdigest(), sha256(b"b").hexdigest()
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED, blobs={kept: b"a", unused: b"b"})
    connection = apsw.Connection(str(path))
    connection.execute("delete from blob_use where sha256 = ?", (unused,))
    connection.close()
    async with open_sqlite(path) as store:
        assert await store.blob(kept) == b"a"
        with pytest.raises(NotFound):
            await store.blob(unused)


async def test_a_folder_that_cannot_be_used_is_told_in_words(tmp_path):
    (tmp_path / "data").write_bytes(b"no folder")
    with pytest.raises(StoreError, match="cannot be opened"):
        async with open_sqlite(tmp_path / "data" / "journal.db"):
            pass


@pytest.mark.parametrize("alone", [True, False])
async def test_a_run_that_was_deleted_ends_unseen_in_the_next_process_too(path, alone):
    async with open_sqlite(path) as store:
        await store.accept("run_1", replace(ACCEPTED, session_id="ses_1"))
        await (store.delete("run_1") if alone else store.note("ses_1", SessionDeleted()))
    async with open_sqlite(path) as store:
        (lease,) = await store.claim("a", ttl=60.0)
        await store.append(lease, STARTED, RunCancelled(), seen=2)
        for after in range(5):
            with pytest.raises(NotFound):
                await store.read("run_1", after=after)
        assert len(await store.read("run_1", deleted=True)) == 4


async def test_what_was_asked_for_once_outlives_the_process(path):
    once = Once("ada", "key", "abc")
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED, once=once)
    async with open_sqlite(path) as store:
        assert await store.accepted(once) == "run_1"


async def test_a_run_whose_ends_cannot_be_read_hides_no_other_in_a_list(path):
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED)
        await store.accept("run_2", ACCEPTED)
    with apsw.Connection(str(path)) as connection:
        connection.execute("update event set body = null where run = 2")
    connection.close()
    async with open_sqlite(path) as store:
        assert [entry.run_id for entry in await store.list()] == ["run_1"]


async def test_what_a_wish_refers_to_is_kept_with_it(path):
    name = sha256(b"picture").hexdigest()
    shown = Image(media_type="image/png", blob=BlobRef(sha256=name, size=7))
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED)
        await store.wish("run_1", InputAdded(parts=(shown,)), blobs={name: b"picture"})
    async with open_sqlite(path) as store:
        assert await store.blob(name) == b"picture"


async def test_what_is_read_is_read_as_of_one_moment(path):
    async with open_sqlite(path) as store:
        await store.accept("run_1", ACCEPTED)

        def look(db):
            key, _ = find(db, "run_1")
            # Purged by the writer at this very moment.
            other = open_writer(path)
            other.execute("pragma foreign_keys = 0; delete from event; delete from run")
            other.close()
            return read(db, key, after=0)

        assert len(await store._read(look)) == 1
        with pytest.raises(NotFound):
            await store._read(lambda db: find(db, "run_1"))


async def test_of_what_was_purged_no_byte_is_left_in_the_file(path):
    words = ["a passport, 4711", "an answer, 4712"]
    async with open_sqlite(path) as store:
        await store.accept("run_1", replace(ACCEPTED, input=(Text(words[0]),)))
        (lease,) = await store.claim("a", ttl=60.0)
        await store.append(lease, STARTED, said(words[1]), RunCompleted(), seen=1)
        await store.delete("run_1")
        assert await store.purge(before=sys.maxsize) == ["run_1"]
    assert not [word for word in words if word.encode() in path.read_bytes()]
