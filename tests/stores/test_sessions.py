import pytest
from msgspec.structs import replace

from holdfast.core.codec import link_messages
from holdfast.core.events import RunCompleted
from holdfast.core.messages import BlobRef, Text, UserMessage
from holdfast.core.session import (
    SessionCreated,
    SessionDeleted,
    SessionRenamed,
    replay_session,
)
from holdfast.errors import InvalidRequest, JournalDamaged, NotFound, StoreError
from holdfast.stores import sessions
from holdfast.stores.database import open_writer
from holdfast.stores.ledger import Ledger
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import ACCEPTED, STARTED

pytestmark = pytest.mark.real_time

RENAMED = SessionRenamed(title="Shade")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


@pytest.fixture
def db(path):
    connection = open_writer(path)
    yield connection
    connection.close()


def write(db, *events, session="ses_1"):
    return sessions.write_notes(db, session, events, at=1.0)


def test_events_are_chained_so_that_none_can_be_changed_or_left_out(db):
    write(db, SessionCreated(title="x"), RENAMED)
    write(db, RENAMED)
    assert [noted.seq for noted in sessions.read_notes(db, "ses_1")] == [1, 2, 3]
    assert [noted.seq for noted in sessions.read_notes(db, "ses_1", after=2)] == [3]
    db.execute("update session_event set at = 2.0 where seq = 2")
    with pytest.raises(JournalDamaged, match="damaged at 2"):
        sessions.read_notes(db, "ses_1")
    db.execute("delete from session_event where seq = 2")
    with pytest.raises(JournalDamaged, match="damaged at 2"):
        sessions.read_notes(db, "ses_1")
    db.execute("update session_event set body = 7 where seq = 1")
    with pytest.raises(JournalDamaged, match="damaged at 1"):
        sessions.read_notes(db, "ses_1")


def test_what_stands_beside_a_journal_is_what_it_adds_up_to(db):
    write(db, SessionCreated(), RENAMED)
    entry = sessions.session_entry(db, "ses_1")
    assert entry.state == replay_session(sessions.read_notes(db, "ses_1"))
    db.execute("update session set state = 'x'")
    with pytest.raises(StoreError, match="cannot be read"):
        sessions.session_entry(db, "ses_1")


def test_an_id_that_cannot_be_stored_is_refused(db):
    with pytest.raises(InvalidRequest):
        sessions.session_entry(db, "ses_\ud83d")
    with pytest.raises(NotFound):
        sessions.session_entry(db, "ses_0")


async def test_runs_of_an_older_version_are_made_sessions_of(path):
    async with open_sqlite(path) as store:
        for number in (1, 2):
            await store.accept(f"run_{number}", replace(ACCEPTED, session_id="ses_1"))
        await store.accept("run_3", ACCEPTED)
    db = open_writer(path)
    # As they were left by a version that knew of no sessions.
    for query in (
        "delete from session_event",
        "delete from session",
        "update run set ordinal = 0, place = 'ready'",
    ):
        db.execute(query)
    db.close()
    async with open_sqlite(path) as store:
        assert [one.run_id for one in await store.members("ses_1")] == ["run_2", "run_1"]
        assert (await store.session("ses_1")).live == 2
        assert len(await store.notes("ses_1")) == 3
        # From now on they go one after another.
        assert await store.queue() == ["run_1", "run_3"]


async def test_they_are_adopted_all_at_once(path, monkeypatch):
    async with open_sqlite(path) as store:
        for number in (1, 2, 3):
            await store.accept(f"run_{number}", replace(ACCEPTED, session_id="ses_1"))
    db = open_writer(path)
    for query in (
        "delete from session_event",
        "delete from session",
        "update run set ordinal = 0, place = 'ready'",
    ):
        db.execute(query)

    def die(db, run_id, first, *, at):
        ordinal = join(db, run_id, first, at=at)
        if run_id == "run_2":
            raise KeyboardInterrupt
        return ordinal

    join = sessions.join
    monkeypatch.setattr(sessions, "join", die)
    with pytest.raises(KeyboardInterrupt):
        Ledger(db, now=lambda: 1.0, clock=lambda: 1.0)
    monkeypatch.undo()
    db.close()
    async with open_sqlite(path) as store:
        assert [one.ordinal for one in await store.members("ses_1")] == [3, 2, 1]
        assert (await store.session("ses_1")).state.runs == 3


async def test_whose_turn_it_is_outlives_the_process(path):
    async with open_sqlite(path) as store:
        for number in (1, 2):
            await store.accept(f"run_{number}", replace(ACCEPTED, session_id="ses_1"))
    async with open_sqlite(path) as store:
        assert await store.queue() == ["run_1"]
        (lease,) = await store.claim("a", ttl=60.0)
    async with open_sqlite(path) as store:
        assert await store.queue() == ["run_1"]
        assert (await store.census()).queued == 2


async def test_what_only_a_purged_session_needed_goes_with_it(path):
    shared, own = (link_messages((UserMessage(parts=(Text(words),)),)) for words in ("a", "b"))
    async with open_sqlite(path) as store:
        for number, session, links in (
            (1, "ses_1", shared),
            (2, "ses_2", shared),
            (3, "ses_2", own),
        ):
            ref = BlobRef(sha256=links[-1].name, size=len(links[-1].body))
            asked = replace(ACCEPTED, session_id=session, history=(ref,))
            await store.accept(f"run_{number}", asked, history=links, blobs={f"{number}": b"x"})
        for number in (1, 2, 3):
            (lease,) = [await store.seize(f"run_{number}", "a", ttl=9.0)]
            await store.append(lease, replace(STARTED, epoch=1), RunCompleted(), seen=1)
        await store.note("ses_2", SessionDeleted())
        assert await store.purge(before=2.0**40) == ["ses_2"]
        assert len(await store.chain(shared[-1].name)) == 1
        with pytest.raises(NotFound):
            await store.chain(own[-1].name)
    db = open_writer(path)
    assert [name for (name,) in db.execute("select sha256 from blob")] == ["1"]
    db.close()


def test_a_transaction_that_fails_leaves_no_session(db):
    ledger = Ledger(db, now=lambda: 1.0, clock=lambda: 1.0)
    ledger.begin()
    with db:
        ledger.note("ses_1", [SessionCreated()])
    assert ledger.stirred["ses_1"].listed
    assert [noted.seq for noted in ledger.stirred["ses_1"].notes] == [1]
    ledger.undo()
    assert ledger.stirred == {}
