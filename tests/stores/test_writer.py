import time
from contextlib import closing

import anyio
import anyio.lowlevel
import apsw
import pytest

from holdfast.core.events import RunCompleted, StopRequested, TextStreamed
from holdfast.errors import NotFound, StoreError, StoreFull, StoreUnavailable
from holdfast.stores.batch import pack_events
from holdfast.stores.database import open_reader, open_writer
from holdfast.stores.ledger import Ledger
from holdfast.stores.reserve import Reserve
from holdfast.stores.writer import LOOK, MOST, QUIET, Writer
from holdfast.testing.contracts import ACCEPTED

pytestmark = pytest.mark.real_time


class Desk:
    """A writer, what it published, and the connection it writes with."""

    def __init__(self, folder, quiet=QUIET, behind=4):
        self.folder, self.published, self.lost = folder, [], []
        #: What to raise instead of the next commit.
        self.trouble = None
        self.reserve = Reserve(folder / "reserve", size=1000)
        self.behind = behind
        self.writer = Writer(
            self._open,
            self.reserve,
            self._publish,
            self.lost.append,
            checkpoint=1000,
            quiet=quiet,
            behind=behind,
        )
        self.commits = 0

    async def ask(self, act):
        return await self.writer.ask(act)

    def _open(self):
        self.db = open_writer(self.folder / "journal.db")
        self.db.set_commit_hook(self._count)
        return self.db, Ledger(self.db, now=lambda: 1.0, clock=lambda: 1.0)

    def _count(self):
        if self.trouble:
            trouble, self.trouble = self.trouble, None
            raise trouble
        self.commits += 1
        return False

    def _publish(self, written, changed, stirred):
        self.published += [
            (id, recorded.seq) for id, events in written.items() for recorded in events
        ]


@pytest.fixture
async def desk(tmp_path):
    desk = Desk(tmp_path)
    await desk.writer.start()
    yield desk
    await desk.writer.stop()


def accept(run_id):
    return lambda ledger: ledger.accept(run_id, pack_events([ACCEPTED]))


def stop(run_id):
    return lambda ledger: ledger.wish(run_id, pack_events([StopRequested()]), seen=0)


async def test_what_is_asked_for_is_answered_once_it_is_published(desk):
    recorded = await desk.writer.ask(accept("run_1"))
    assert recorded.seq == 1
    assert desk.published == [("run_1", 1)]


async def test_those_who_wait_share_a_commit(desk):
    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(desk.ask, accept(f"run_{number}"))
    assert len(desk.published) == 200
    assert desk.commits < 20


async def test_whoever_looks_at_the_ledger_waits_for_nobody(desk):
    await desk.ask(accept("run_1"))
    before = desk.commits
    assert desk.writer.look(Ledger.queue) == ["run_1"]
    assert desk.commits == before


async def test_nobody_looks_at_a_ledger_that_is_lost(desk):
    with pytest.raises(StoreUnavailable):
        await desk.ask(broken)
    with pytest.raises(StoreUnavailable, match="nothing more is acknowledged"):
        desk.writer.look(Ledger.queue)
    with pytest.raises(StoreUnavailable, match="nothing more is acknowledged"):
        await desk.writer.settle(Ledger.queue)


async def test_what_writes_nothing_is_done_at_once_if_the_thread_is_idle(desk):
    await desk.ask(accept("run_1"))
    before = desk.commits
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await desk.writer.settle(Ledger.queue) == ["run_1"]
    assert desk.commits == before


async def test_what_writes_nothing_has_its_turn_behind_what_was_asked_for_before(desk):
    for crowd in (["run_1"], ["run_2", "run_3"], ["run_4"]):
        asked = [desk.writer.ask(accept(run_id)) for run_id in crowd]
        assert crowd[-1] in await desk.writer.settle(Ledger.queue)
        assert all(reply.done() for reply in asked)


async def test_while_the_disk_is_full_whoever_asks_for_anything_has_it_looked_at_again(desk):
    (desk.folder / "reserve").unlink()
    (desk.folder / "reserve").mkdir()
    with pytest.raises(StoreFull):
        await desk.ask(full)
    assert desk.writer.full
    (desk.folder / "reserve").rmdir()
    await desk.writer.settle(Ledger.queue)
    assert not desk.writer.full


async def test_one_who_asks_for_the_impossible_does_not_harm_the_others(desk):
    refused = []

    async def ask(run_id):
        try:
            await desk.writer.ask(stop(run_id))
        except NotFound as error:
            refused.append(error.id)

    await desk.writer.ask(accept("run_1"))
    async with anyio.create_task_group() as tasks:
        for run_id in ("run_0", "run_1", "run_2"):
            tasks.start_soon(ask, run_id)
    assert sorted(refused) == ["run_0", "run_2"]
    assert desk.published[-1] == ("run_1", 2)


async def test_one_who_leaves_meanwhile_has_it_done_all_the_same(desk):
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.ask, accept("run_1"))
            await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert (await desk.writer.ask(stop("run_1")))[-1].seq == 2


async def test_a_file_that_cannot_be_opened_is_told_to_whoever_starts(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"my dear diary, " * 100)
    with pytest.raises(StoreError, match="no database"):
        await Desk(tmp_path).writer.start()


async def test_the_log_is_copied_into_the_database_now_and_then_and_at_the_end(tmp_path):
    desk = Desk(tmp_path)
    await desk.writer.start()
    body = pack_events([ACCEPTED], {"ab": b"x" * 8_000_000})
    await desk.writer.ask(lambda ledger: ledger.accept("run_1", body))
    await desk.writer.ask(accept("run_2"))
    assert (tmp_path / "journal.db").stat().st_size > 8_000_000
    await desk.writer.stop()
    assert not (tmp_path / "journal.db-wal").exists()


def full(_ledger):
    raise apsw.FullError("no space")


def broken(_ledger):
    raise apsw.IOError("disk I/O error")


async def test_a_full_disk_is_told_and_nothing_new_begins_until_there_is_room(desk):
    await desk.writer.ask(accept("run_1"))
    with pytest.raises(StoreFull):
        await desk.writer.ask(full)
    assert not (desk.folder / "reserve").exists()
    # In the way, so that nothing can be set aside.
    (desk.folder / "reserve").mkdir()
    with pytest.raises(StoreFull, match="nothing new is begun"):
        await desk.writer.ask(accept("run_2"))
    assert (await desk.writer.ask(stop("run_1")))[-1].seq == 2
    (desk.folder / "reserve").rmdir()
    await anyio.sleep(LOOK)
    await desk.writer.ask(accept("run_3"))
    assert (desk.folder / "reserve").exists()


async def test_a_batch_that_met_a_full_disk_is_done_from_the_reserve(desk):
    tries = []

    def once(ledger):
        tries.append(ledger.full)
        if len(tries) == 1:
            raise apsw.FullError("no space")
        return "done"

    assert await desk.writer.ask(once) == "done"
    assert tries == [False, True]


async def test_after_a_failed_write_nothing_more_is_acknowledged(desk):
    await desk.writer.ask(accept("run_1"))
    with pytest.raises(StoreUnavailable, match="nothing more is acknowledged"):
        await desk.writer.ask(broken)
    for act in (stop("run_1"), accept("run_2"), Ledger.orphans):
        with pytest.raises(StoreUnavailable):
            await desk.writer.ask(act)
    assert desk.published == [("run_1", 1)]


async def test_a_bug_of_ours_leaves_nobody_waiting(desk):
    def bug(_ledger):
        raise KeyError("ours")

    with pytest.raises(StoreUnavailable, match="ours"):
        await desk.writer.ask(bug)
    with pytest.raises(StoreUnavailable):
        await desk.writer.ask(Ledger.orphans)


async def test_what_was_queued_behind_a_failed_write_is_not_acknowledged_either(desk):
    answers = []

    async def ask(act):
        try:
            answers.append(await desk.writer.ask(act))
        except StoreUnavailable:
            answers.append(None)

    async with anyio.create_task_group() as tasks:
        for act in (Ledger.queue, accept("run_1"), broken, accept("run_2")):
            tasks.start_soon(ask, act)
    assert answers[1:] == [None, None, None]
    assert desk.published == []


async def test_a_transaction_that_cannot_even_be_rolled_back_leaves_nobody_waiting(desk):
    def refuse(_cursor, statement, _bindings):
        if statement == "rollback":
            raise apsw.IOError("the disk is gone")
        return True

    await desk.writer.ask(accept("run_1"))
    desk.db.exec_trace = refuse
    with anyio.fail_after(5):
        for act in (full, accept("run_2"), Ledger.orphans):
            with pytest.raises(StoreUnavailable, match="the disk is gone"):
                await desk.writer.ask(act)
    assert desk.lost == [desk.writer.broken]


async def test_more_than_fit_into_a_commit_are_done_in_several(desk):
    async with anyio.create_task_group() as tasks:
        for number in range(2 * MOST + 1):
            tasks.start_soon(desk.ask, accept(f"run_{number}"))
    assert len(desk.published) == 2 * MOST + 1
    assert desk.commits >= 2


async def test_opening_can_be_given_up(tmp_path):
    class Slow(Desk):
        def _open(self):
            time.sleep(0.3)  # noqa: TID251 (in the writer's own thread)
            return super()._open()

    desk = Slow(tmp_path)
    with anyio.move_on_after(0.1) as scope:
        await desk.writer.start()
    assert scope.cancelled_caught and not desk.writer._thread.is_alive()


async def test_another_program_that_holds_the_file_for_a_moment_is_waited_for(desk):
    other = apsw.Connection(str(desk.folder / "journal.db"))
    other.execute("begin immediate")

    async def let_go():
        await anyio.sleep(0.2)
        other.execute("rollback")
        other.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(let_go)
        await desk.ask(accept("run_1"))
    assert desk.writer.broken is None


async def test_one_that_does_not_let_go_breaks_nothing(desk):
    await desk.ask(lambda ledger: ledger._db.set_busy_timeout(10))
    other = apsw.Connection(str(desk.folder / "journal.db"))
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="locked by another program"):
        await desk.ask(accept("run_1"))
    other.close()
    await desk.ask(accept("run_1"))
    assert desk.writer.broken is None


# --- packing


TEXT = TextStreamed(turn=1, attempt=1, text="words")


async def live(desk, run_id, *events):
    """A run with these events, and the lease for more."""
    await desk.ask(accept(run_id))
    lease = await desk.ask(lambda ledger: ledger.seize(run_id, "w", ttl=1e9))
    for event in events:
        await desk.writer.ask(Ledger.append, lease, pack_events([event]), 10**9)
    return lease


@pytest.fixture
async def eager(tmp_path):
    """One that packs as soon as nobody asks."""
    desk = Desk(tmp_path, quiet=0.01)
    await desk.writer.start()
    yield desk
    await desk.writer.stop()


def watch(desk):
    return closing(open_reader(desk.folder / "journal.db"))


async def until(true):
    with anyio.fail_after(30):
        while not true():
            await anyio.sleep(0.005)


async def test_when_nobody_asks_runs_that_have_ended_are_packed(eager):
    await live(eager, "run_1", *[TEXT] * 20, RunCompleted())
    await live(eager, "run_2", *[TEXT] * 20)
    with watch(eager) as db:
        await until(lambda: db.execute("select packed from run").fetchall() == [(1,), (0,)])
        rows = "select run, count(*) from event group by run"
        assert db.execute(rows).fetchall() == [(1, 3), (2, 21)]
    await eager.ask(accept("run_3"))


async def test_what_ended_before_the_file_was_opened_is_packed_too(tmp_path):
    desk = Desk(tmp_path)
    await desk.writer.start()
    await live(desk, "run_1", TEXT, RunCompleted())
    await desk.writer.stop()
    with watch(desk) as db:
        assert db.execute("select packed from run").get == 0
    again = Desk(tmp_path, quiet=0.0)
    await again.writer.start()
    with watch(again) as db:
        await until(lambda: db.execute("select packed from run").get == 1)
    await again.writer.stop()


async def test_while_somebody_asks_all_the_time_nothing_is_packed_until_much_has_gathered(desk):
    for number in range(desk.behind):
        await live(desk, f"run_{number}", TEXT, RunCompleted())
    with watch(desk) as db:
        packed = "select count(*) from run where packed = 1"
        assert db.execute(packed).get == 0
        number = desk.behind
        with anyio.fail_after(30):
            while not db.execute(packed).get:
                await live(desk, f"run_{number}", TEXT, RunCompleted())
                number += 1


async def ready_to_fail(desk, trouble):
    """A run that has ended, and that trouble when it is packed."""
    await live(desk, "run_1", *[TEXT] * 20, RunCompleted())
    desk.trouble = trouble


@pytest.mark.parametrize("trouble", [apsw.CorruptError("a page"), apsw.FullError("no space")])
async def test_packing_that_fails_leaves_everything_as_it_was(tmp_path, trouble):
    desk = Desk(tmp_path, quiet=0.2)
    await desk.writer.start()
    await ready_to_fail(desk, trouble)
    await until(lambda: desk.trouble is None)
    with watch(desk) as db:
        assert db.execute("select count(*) from event").get == 22
        # Once somebody has asked again, it is tried again.
        await desk.ask(accept("run_2"))
        await until(lambda: db.execute("select packed from run where key = 1").get == 1)
    await desk.writer.stop()
    assert not desk.lost


async def test_a_sync_that_fails_while_packing_is_the_end_of_the_writer(eager):
    await ready_to_fail(eager, apsw.IOError("disk I/O error"))
    await until(lambda: eager.lost)
    with pytest.raises(StoreUnavailable, match="nothing more is acknowledged"):
        await eager.ask(accept("run_2"))
    with watch(eager) as db:
        assert db.execute("select count(*) from event").get == 22


async def test_a_bug_in_packing_ends_the_packing_and_not_the_journal(eager, caplog):
    await ready_to_fail(eager, KeyError("ours"))
    await until(lambda: "not packed any more" in caplog.text)
    await eager.ask(accept("run_2"))
    with watch(eager) as db:
        assert db.execute("select count(*) from event where run = 1").get == 22
    assert not eager.lost


async def test_nothing_is_packed_on_a_full_disk(tmp_path):
    desk = Desk(tmp_path, quiet=0.2)
    await desk.writer.start()
    await live(desk, "run_1", TEXT, RunCompleted())
    await desk.ask(lambda ledger: setattr(ledger, "full", True))
    await anyio.sleep(0.3)
    with watch(desk) as db:
        assert db.execute("select packed from run").get == 0
    await desk.writer.stop()


@pytest.mark.parametrize("hopeless", [False, True])
async def test_packing_that_fails_half_way_is_taken_back(tmp_path, hopeless):
    """If not even that can be done, nothing more is acknowledged."""

    def refuse(_cursor, statement, _bindings):
        if statement.startswith("update run set packed"):
            raise apsw.FullError("no space")
        if hopeless and statement == "rollback":
            raise apsw.IOError("the disk is gone")
        return True

    desk = Desk(tmp_path, quiet=0.2)
    await desk.writer.start()
    desk.db.exec_trace = refuse
    await live(desk, "run_1", *[TEXT] * 20, RunCompleted())
    if hopeless:
        await until(lambda: desk.lost)
    await anyio.sleep(0.4)
    with watch(desk) as db:
        assert db.execute("select count(*) from event").get == 22
    if not hopeless:
        await desk.ask(accept("run_2"))
    desk.db.exec_trace = None
    await desk.writer.stop()
    assert bool(desk.lost) is hopeless
