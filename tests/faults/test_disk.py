"""A disk that is full, that fails, and that is slow: at every write and sync, one after the other."""

import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest

from holdfast.core.events import InputAdded, ModelChoice, ModelFailed, StopRequested
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text
from holdfast.core.watchdog import Patience
from holdfast.errors import StoreError, StoreFull, StoreUnavailable
from holdfast.stores.sqlite import open_sqlite as open_store
from holdfast.testing.contracts import ACCEPTED, held, said
from holdfast.testing.disk import Disk
from holdfast.testing.scripted import Ack, ScriptedModel, Silence
from holdfast.testing.stage import stage
from tests.faults.diary import Diary, keep_a_diary, read_all
from tests.faults.power import Aftermath, Powered

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parent.parent.parent

#: Every so many operations; each of them is for the long tests.
sampled = pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])


#: The log is copied into the database often, so that this is met with, too.
open_sqlite = partial(open_store, checkpoint=20)


# --- full --------------------------------------------------------------------------------


async def lived_on_a_full_disk(path, disk):
    """Keep a diary; where there is no room, look around, make some, and do it again."""
    diary = None

    async def attempt(call):
        try:
            return await call()
        except StoreFull:
            assert await read_all(diary.store, diary) == diary.bodies
            disk.mend()
            return await call()

    try:
        async with open_sqlite(path, vfs=disk.name):
            pass
    except StoreFull:
        assert disk.broke
    if disk.broke:
        disk.mend()
    async with open_sqlite(path, vfs=disk.name) as store:
        diary = Diary(store, attempt=attempt)
        await keep_a_diary(diary)
        assert store.broken is None
        assert await read_all(store, diary) == diary.bodies
    disk.mend()
    async with open_sqlite(path) as store:
        assert await read_all(store, diary) == diary.bodies


@sampled
@pytest.mark.parametrize("times", [1, 1000])
async def test_a_full_disk_loses_nothing_and_is_written_again_once_there_is_room(
    memory, times, every
):
    for number in count(1, every):
        with Disk() as disk:
            disk.break_at(number, "full", on={"write"}, times=times)
            await lived_on_a_full_disk(memory / str(number) / "journal.db", disk)
            if not disk.broke:
                break
    assert number > 200


async def test_a_disk_that_is_full_for_a_while_is_tried_again_by_itself(memory):
    with Disk() as disk:
        async with open_sqlite(memory / "journal.db", vfs=disk.name) as store:
            lease = await held(store)
            disk.break_for_good("full", on={"write"})
            for _ in range(3):
                with pytest.raises(StoreFull):
                    await store.accept("run_2", ACCEPTED)
                with pytest.raises(StoreFull):
                    await store.append(lease, said("a"), seen=1)
            assert len(await store.read("run_1")) == 1
            disk.mend()
            with anyio.fail_after(5):
                while not await accepted(store, "run_2"):
                    await anyio.sleep(0.05)
            assert len(await store.append(lease, said("a"), seen=1)) == 1


async def accepted(store, run_id):
    try:
        await store.accept(run_id, ACCEPTED)
    except StoreFull:
        return False
    return True


@pytest.mark.parametrize("kind", ["mount", "limit"])
def test_a_disk_that_is_really_full_is_read_and_ended_on_and_then_written_again(tmp_path, kind):
    """Where nothing may be mounted, files may not grow instead."""
    command = [sys.executable, "-m", "tests.faults.small_disk", kind, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout in (kind, "limit")


# --- failing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "how", "every"),
    [
        ("sync", "eio", 1),
        ("sync", "full", 3),
        ("write", "eio", 5),
        pytest.param("write", "eio", 1, marks=pytest.mark.soak),
    ],
)
async def test_after_a_failed_write_or_sync_nothing_is_acknowledged_and_nothing_lost(
    memory, kind, how, every
):
    for number in count(1, every):
        path = memory / str(number) / "journal.db"
        with Disk() as disk:
            disk.break_at(number, how, on={kind})
            diary = await lived_on_a_failing_disk(path, disk)
            assert diary is None or disk.counts[kind] <= number, "it was tried again"
            if not disk.broke:
                break
    assert number > 30


async def lived_on_a_failing_disk(path, disk):
    """Keep a diary until it fails; from then on nobody may be told that anything was kept."""
    diary = Diary(None)
    try:
        async with open_sqlite(path, vfs=disk.name) as diary.store:
            try:
                await keep_a_diary(diary)
            except StoreUnavailable:
                await check_nothing_is_acknowledged(diary)
    except StoreError:
        # It could not even be opened.
        assert disk.broke and not diary.kept
        async with open_sqlite(path) as store:
            await store.accept("run_1", ACCEPTED)
        return None
    assert bool(diary.store.broken) == bool(disk.broke)
    await check_all_is_there(path, disk, diary)
    return diary


async def check_nothing_is_acknowledged(diary):
    store = diary.store
    for call in (
        lambda: store.accept("run_9", ACCEPTED),
        lambda: store.wish("run_1", StopRequested()),
        lambda: store.claim("a", ttl=1.0),
        lambda: store.seize("run_1", "a", ttl=1.0),
        lambda: store.renew([], ttl=1.0),
        store.next_ready,
        store.orphans,
    ):
        with pytest.raises(StoreUnavailable, match="nothing more is acknowledged"):
            await call()
    assert await read_all(store, diary) == diary.bodies


async def check_all_is_there(path, disk, diary):
    """For whoever opens it next; and had the power failed, what was synced would be enough."""
    async with open_sqlite(path) as store:
        check_begins_with(await read_all(store, diary), diary.bodies)
    powered = Powered()
    for operation in disk.log:
        powered.do(operation)
    found = Aftermath(path.parent / "after")(powered.survivors("all lost", seed=0))
    check_begins_with(found, diary.bodies)


def check_begins_with(found, kept):
    assert {id: found[id][: len(bodies)] for id, bodies in kept.items()} == kept


@pytest.mark.parametrize("kind", ["write", "sync", "delete"])
async def test_a_file_that_cannot_be_given_a_log_is_refused(memory, kind):
    with Disk() as disk:
        disk.break_at(1, "eio", on={kind})
        with pytest.raises(StoreError, match=r"journal\.db"):
            async with open_sqlite(memory / "journal.db", vfs=disk.name):
                pass
        assert disk.broke == 1
    async with open_sqlite(memory / "journal.db") as store:
        await store.accept("run_1", ACCEPTED)


# --- slow --------------------------------------------------------------------------------


async def test_a_slow_disk_holds_up_nothing_but_what_waits_for_it(memory):
    lags = []

    async def probe():
        while True:
            asked = anyio.current_time()
            await anyio.sleep(0.01)
            lags.append(anyio.current_time() - asked - 0.01)

    with Disk() as disk:
        async with open_sqlite(memory / "journal.db", vfs=disk.name) as store:
            await store.accept("run_1", ACCEPTED)
            disk.slow(0.5)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(probe)
                began = anyio.current_time()
                for _ in range(3):
                    await store.wish("run_1", InputAdded(parts=(Text("more"),)))
                    await store.read("run_1")
                assert anyio.current_time() - began >= 1.5
                tasks.cancel_scope.cancel()
            disk.mend()
    # Each of the three would have stopped the loop for half a second; a machine may, once or twice.
    assert sum(lag > 0.4 for lag in lags) < 3


async def test_a_crowd_shares_the_syncs_of_a_slow_disk(memory):
    with Disk() as disk:
        async with open_sqlite(memory / "journal.db", vfs=disk.name) as store:
            await store.accept("run_1", ACCEPTED)
            disk.slow(0.2)
            before = disk.counts["sync"]
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    wish = InputAdded(parts=(Text(str(number)),))
                    tasks.start_soon(store.wish, "run_1", wish)
            # One may have begun before the rest came, and one copies the log.
            assert disk.counts["sync"] - before <= 5
            assert len(await store.read("run_1")) == 201
            disk.mend()


async def test_a_slow_disk_is_never_taken_for_a_silent_model(memory):
    # The acknowledgement is recorded, and the model is kept waiting for that.
    model = ScriptedModel([Ack(), Silence(0.01), "Hel", Silence(0.01), "lo"])
    hasty = (ModelChoice("model", patience=Patience(first=0.3, between=0.3, whole=0.35)),)
    with Disk() as disk:
        async with open_sqlite(memory / "journal.db", vfs=disk.name) as store:
            async with stage(model, store=store) as play:
                disk.slow(0.4)
                run_id = await play.start(models=hasty)
                state = await play.ended(run_id)
                assert not [e for e in await play.journal(run_id) if isinstance(e, ModelFailed)]
            disk.mend()
    assert (state.status, state.output) == (Status.COMPLETED, "Hello")
