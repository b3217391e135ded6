"""What a store promises of sessions that it takes in is in `testing.conversations`."""

import pytest

from holdfast.core.codec import record
from holdfast.core.events import InputAdded, RunCancelled, StopRequested
from holdfast.core.luggage import Carried
from holdfast.core.messages import Text
from holdfast.errors import StoreFull
from holdfast.stores.archive import open_archive
from holdfast.stores.archive_sessions import ArchivedSessions
from holdfast.stores.batch import LONG_BODY
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.conversations import elsewhere

pytestmark = pytest.mark.real_time


async def test_what_is_taken_in_is_stored_as_if_it_had_happened_here(tmp_path):
    path = tmp_path / "journal.db"
    notes, runs = elsewhere()
    async with open_sqlite(path) as store:
        await store.take_in("ses_9", notes, runs)
    with open_archive(path) as archive:
        sessions = ArchivedSessions(archive)
        assert sessions.verify("ses_9") == 3
        assert [archive.verify(run.run_id) for run in runs] == [3, 3]
        luggage = sessions.luggage("ses_9")
        assert (list(luggage.notes), list(luggage.runs)) == (notes, runs)


async def test_a_long_body_stands_among_the_blobs(tmp_path):
    path = tmp_path / "journal.db"
    notes, (first, second) = elsewhere()
    long = InputAdded(parts=(Text("x" * LONG_BODY),))
    events = (second.journal[0].event, long, StopRequested(), RunCancelled())
    second = Carried("run_b", [record(seq, 9.0, event) for seq, event in enumerate(events, 1)])
    async with open_sqlite(path) as store:
        await store.take_in("ses_9", notes, [first, second])
        assert list(await store.read("run_b")) == list(second.journal)
    with open_archive(path) as archive:
        assert archive.verify("run_b") == 4
        assert list(archive.blobs("run_b")) == []


async def test_nothing_is_taken_in_on_a_full_disk(tmp_path):
    async with open_sqlite(tmp_path / "journal.db") as store:
        store._writer._ledger.full = True
        store._writer._looked = float("inf")
        with pytest.raises(StoreFull):
            await store.take_in("ses_9", *elsewhere())
        assert not await store.sessions()
