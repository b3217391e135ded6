"""Let the power fail after every operation on the disk, and look at what may be there then.

Whatever was acknowledged by that moment has to be there, byte for byte. A simulation that
finds nothing may have looked at nothing: with less care than ours, it has to find losses.
"""

from collections import Counter

import pytest

from holdfast.stores import database, writer
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.disk import Disk
from tests.faults.diary import Diary, keep_a_diary
from tests.faults.power import Aftermath, states

pytestmark = pytest.mark.real_time

#: What SQLite calls it to sync less often than with every commit, and never.
NORMAL, OFF = 1, 0


@pytest.fixture
async def lived(memory, monkeypatch):
    """Days of a store on a disk that remembers them: what was done, and what was kept."""

    async def live(*days, synchronous=None):
        if synchronous is not None:
            monkeypatch.setitem(database.WRITER, "synchronous", synchronous)
        # Copied into the database often, so that the log begins anew in the middle of it.
        monkeypatch.setattr(writer, "CHECKPOINT", 15)
        kept = {}
        with Disk() as disk:
            for day in days:
                async with open_sqlite(memory / "journal.db", vfs=disk.name) as store:
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


async def test_what_was_acknowledged_outlives_a_power_failure_at_any_moment(lived, memory):
    log, kept = await lived("one", "two")
    count, distinct = verdicts(log, kept, memory)
    assert set(count) == {""}, count
    assert count[""] > 1000 and distinct > 300


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
