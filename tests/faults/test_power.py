"""Let the power fail after every operation on the disk, and look at what may be there then.

Whatever was acknowledged by that moment has to be there, byte for byte. A simulation that
finds nothing may have looked at nothing: with less care than ours, it has to find losses.
"""

import shutil
from collections import Counter

import apsw
import pytest

from holdfast.stores import database
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.disk import Disk
from tests.faults.diary import Diary, keep_a_diary
from tests.faults.lives import rows_of
from tests.faults.power import Aftermath, states

pytestmark = [pytest.mark.real_time, pytest.mark.seeds]

#: What SQLite calls it to sync less often than with every commit, and never.
NORMAL, OFF = 1, 0


@pytest.fixture
async def lived(memory, monkeypatch):
    """Days of a store on a disk that remembers them: what was done, and what was kept."""

    async def live(*days, synchronous=None):
        if synchronous is not None:
            monkeypatch.setitem(database.WRITER, "synchronous", synchronous)
        kept = {}
        with Disk() as disk:
            for day in days:
                # Copied into the database often, so that the log begins anew in the middle of it.
                async with open_sqlite(
                    memory / "journal.db", vfs=disk.name, checkpoint=15
                ) as store:
                    diary = Diary(store, mark=disk.mark)
                    await keep_a_diary(diary, name=day)
                kept |= diary.bodies
            return disk.log, kept

    return live


def verdict(found, acknowledged, kept):
    """What is wrong with what was found; nothing, if all is well."""
    if isinstance(found, Exception):
        return "spoilt"
    for run_id, bodies in found.items():
        if bodies != kept[run_id][: len(bodies)]:
            return "not what was written"
    for run_id, seq in acknowledged.items():
        if len(found.get(run_id, ())) < seq:
            return "lost"
    return ""


def verdicts(log, kept, folder, *, every=1):
    aftermath, count = Aftermath(folder / "after"), Counter()
    for acknowledged, _, files in states(log, every=every):
        count[verdict(aftermath(files), acknowledged, kept)] += 1
    return count, aftermath.distinct


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.soak)])
async def test_what_was_acknowledged_outlives_a_power_failure_at_any_moment(lived, memory, every):
    log, kept = await lived("one", "two")
    count, distinct = verdicts(log, kept, memory, every=every)
    assert set(count) == {""}, count
    assert count[""] > 1000 / every and distinct > 300 / every


async def test_with_fewer_syncs_the_simulation_finds_what_is_lost(lived, memory):
    log, kept = await lived("one", synchronous=NORMAL)
    count, _ = verdicts(log, kept, memory, every=3)
    assert count["lost"] > 100
    assert set(count) == {"", "lost"}, count


async def test_without_syncs_the_simulation_finds_what_is_lost_and_what_is_spoilt(lived, memory):
    log, kept = await lived("one", synchronous=OFF)
    count, _ = verdicts(log, kept, memory, every=3)
    assert count["lost"] > 100
    assert count["spoilt"] > 10


# --- while the file is brought up to date -------------------------------------------------

NEXT = "alter table run add column note text not null default 'none'; create table extra (x);"


async def test_a_power_failure_leaves_the_old_schema_or_the_new_one_and_all_that_was_kept(memory):
    path = memory / "journal.db"
    async with open_sqlite(path) as store:
        diary = Diary(store)
        await keep_a_diary(diary)
    found = Counter()
    with Disk() as disk:
        bring_up_to_date(path, vfs=disk.name)
    seen = set()
    for _, _, files in states(disk.log):
        key = frozenset(files.items())
        if key not in seen:
            seen.add(key)
            found[version_after(files, memory / "after", diary.bodies)] += 1
    assert set(found) == {AS_IT_IS, AS_IT_IS + 1}
    assert len(seen) > 20


AS_IT_IS = len(database.scripts())


def bring_up_to_date(path, *, vfs=None):
    """With a script more than there is. Returns the version it had."""
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        version = connection.pragma("user_version")
        database.grant(connection, database.WRITER, path)
        database.migrate(connection, path, [*database.scripts(), NEXT])
    finally:
        connection.close()
    return version


def version_after(files, folder, bodies):
    """The version in these files, once it is certain that they are whole and can be gone on with."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    path = folder / "journal.db"
    connection = apsw.Connection(str(path))
    version = connection.pragma("user_version")
    assert connection.pragma("integrity_check") == "ok"
    assert ("note" in columns(connection)) == (version > AS_IT_IS)
    connection.close()
    assert bring_up_to_date(path) == version
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == AS_IT_IS + 1 and "note" in columns(connection)
    kept = {}
    for id, _, _, body, _ in rows_of(connection):
        kept.setdefault(id, []).append(body)
    connection.close()
    assert kept == bodies
    return version


def columns(connection):
    return [name for (name,) in connection.execute("select name from pragma_table_info('run')")]
