from copy import deepcopy

import apsw
import pytest
from msgspec.structs import replace

from holdfast.core.codec import encode
from holdfast.core.events import InputAdded, RunCancelled, RunCompleted, StopRequested, ToolFinished
from holdfast.core.messages import Text
from holdfast.core.session import SessionDeleted, SessionRenamed
from holdfast.errors import Conflict, InvalidRequest, LeaseLost, NotFound, RunFinished, StoreFull
from holdfast.stores.batch import MOST_BYTES, pack_events
from holdfast.stores.database import open_writer
from holdfast.stores.keeping import COLLECTED
from holdfast.stores.ledger import FULL_PAUSE, LONG_BODY, Ledger
from holdfast.stores.reading import link, read
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED, said


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def world(tmp_path):
    """A file, and a way to open a ledger on it as after a restart."""
    ledgers = []

    def close():
        for ledger in ledgers:
            ledger.flush()
            ledger._db.close()

    def opened(*, now=1e9, clock=None):
        close()
        connection = open_writer(tmp_path / "journal.db")
        ledgers[:] = [Ledger(connection, now=lambda: now, clock=clock or Clock())]
        return ledgers[0]

    yield opened
    close()


def batch(*events, blobs=None):
    return pack_events(events, blobs or {})


def held(ledger, run_id="run_1"):
    ledger.accept(run_id, batch(ACCEPTED))
    (lease,) = ledger.claim("a", ttl=10.0, limit=1)
    return lease


def test_what_was_held_when_the_process_died_is_an_orphan_at_once(world):
    lease = held(world())
    ledger = world()
    assert ledger.orphans() == []
    (lease,) = ledger.claim("b", ttl=10.0, limit=1)
    ledger.append(lease, batch(STARTED), seen=1)
    again = world()
    assert again.orphans() == ["run_1"]
    assert again.claim("c", ttl=10.0, limit=1) == []
    assert again.seize("run_1", "c", ttl=10.0).epoch > lease.epoch


def test_what_rested_when_the_process_died_rests_on(world):
    ledger = world()
    lease = held(ledger)
    ledger.append(lease, batch(STARTED), seen=1)
    ledger.release(lease, seen=2, ready_in=None)
    again = world()
    assert (again.orphans(), again.claim("b", ttl=1.0, limit=9)) == ([], [])
    again.wish("run_1", batch(StopRequested()), seen=0)
    assert len(again.claim("b", ttl=1.0, limit=9)) == 1


@pytest.mark.parametrize(("jump", "left"), [(0, 300), (100, 200), (1e9, 0), (-1e9, 300)])
def test_what_was_to_be_looked_at_later_is_and_no_clock_draws_it_out(world, jump, left):
    ledger = world()
    lease = held(ledger)
    ledger.append(lease, batch(STARTED), seen=1)
    ledger.release(lease, seen=2, ready_in=300.0, timed=True)
    clock = Clock()
    again = world(now=1e9 + jump, clock=clock)
    assert again.next_ready() == left
    clock.now += left
    (lease,) = again.claim("b", ttl=1.0, limit=1)
    assert lease.due


def test_what_has_ended_is_not_kept_in_memory(world):
    ledger = world()
    lease = held(ledger)
    ledger.begin()
    ledger.append(lease, batch(STARTED, RunCompleted()), seen=1)
    assert (ledger._roster.runs, ledger._roster.waiting) == ({}, {})
    ledger.release(lease, seen=3, ready_in=0.0)
    assert ledger.claim("a", ttl=10.0, limit=1) == []
    with pytest.raises(RunFinished):
        ledger.wish("run_1", batch(StopRequested()), seen=0)
    with pytest.raises(RunFinished):
        ledger.append(lease, batch(STARTED), seen=0)
    with pytest.raises(Conflict):
        ledger.accept("run_1", batch(ACCEPTED))
    assert ledger.seize("run_1", "b", ttl=1.0) is None
    assert world()._roster.runs == {}


def test_a_transaction_that_fails_leaves_memory_as_it_was(world):
    ledger = world()
    lease = held(ledger)
    ledger.accept("run_3", batch(ACCEPTED))

    def runs():
        return deepcopy((ledger._roster.runs, ledger._roster.waiting))

    before = runs()
    ledger.begin()
    ledger.append(lease, batch(STARTED), seen=1)
    ledger.wish("run_1", batch(StopRequested()), seen=2)
    (third,) = ledger.claim("b", ttl=10.0, limit=9)
    ledger.accept("run_2", batch(ACCEPTED))
    ledger.release(lease, seen=3, ready_in=0.0)
    ledger.append(third, batch(RunCompleted()), seen=1)
    assert [len(kept) for kept in runs()] == [2, 2]
    ledger.undo()
    assert runs() == before
    assert [len(kept) for kept in before] == [2, 1]
    assert (ledger.written, ledger.changed) == ({}, {})


def test_events_are_chained_and_the_chain_goes_on_after_a_restart(world):
    ledger = world()
    lease = held(ledger)
    ledger.append(lease, batch(STARTED, CALLED), seen=1)
    again = world()
    again.wish("run_1", batch(StopRequested()), seen=0)
    again.flush()
    rows = list(again._db.execute("select seq, at, body, sum from event order by seq"))
    chain = b""
    for seq, at, body, found in rows:
        chain = link(chain, seq, at, body)
        assert found == chain
    assert len(rows) == 4


def test_a_sum_depends_on_everything_in_its_row_and_before():
    first = link(b"", 1, 1.0, b"a")
    others = [link(b"x", 1, 1.0, b"a"), link(b"", 2, 1.0, b"a"), link(b"", 1, 2.0, b"a")]
    assert first not in [*others, link(b"", 1, 1.0, b"b")]


def test_a_long_body_stands_among_the_blobs_and_reads_the_same(world):
    ledger = world()
    lease = held(ledger)
    long = InputAdded(parts=(Text("x" * LONG_BODY),))
    ledger.append(lease, batch(long, long), seen=1)
    assert ledger._db.execute("select count(*) from blob").get == 1
    ledger.flush()
    one, two = read(ledger._db, 1, after=1)
    assert one.event == two.event == long
    assert one.body == encode(long)


def test_a_writer_far_behind_is_told_everything_all_the_same(world):
    ledger = world()
    lease = held(ledger)
    ledger.append(lease, batch(STARTED, CALLED), seen=1)
    ledger.append(lease, batch(*[said(str(n)) for n in range(100)]), seen=3)
    news = ledger.append(lease, batch(said("last")), seen=3)
    assert [recorded.seq for recorded in news] == list(range(4, 105))
    assert ledger.append(lease, batch(), seen=104) == []


def test_what_a_writer_was_told_does_not_grow_behind_its_back(world):
    ledger = world()
    lease = held(ledger)
    told = ledger.append(lease, batch(STARTED), seen=1)
    ledger.append(lease, batch(CALLED), seen=2)
    assert [recorded.seq for recorded in told] == [2]
    assert [recorded.seq for recorded in ledger.written["run_1"]] == [1, 2, 3]


def test_a_blob_is_counted_for_each_run_that_needs_it(world):
    ledger = world()
    for run_id in ("run_1", "run_2"):
        ledger.accept(run_id, batch(ACCEPTED, blobs={"ab": b"c"}))
    assert ledger._db.execute("select count(*) from blob").get == 1
    assert ledger._db.execute("select count(*) from blob_use").get == 2


def test_on_a_full_disk_nothing_begins_and_what_is_under_way_may_end(world):
    ledger = world()
    lease = held(ledger)
    ledger.append(lease, batch(STARTED, CALLED), seen=1)
    ledger.accept("run_2", batch(replace(ACCEPTED, session_id="ses_1")))
    ledger.full = True
    with pytest.raises(StoreFull):
        ledger.accept("run_3", batch(ACCEPTED))
    with pytest.raises(StoreFull):
        ledger.note("ses_1", [SessionRenamed(title="x")])
    for event in (said("a"), CALLED, STARTED):
        with pytest.raises(StoreFull):
            ledger.append(lease, batch(event), seen=3)
    assert (ledger.claim("b", ttl=1.0, limit=9), ledger.orphans()) == ((), ())
    ledger.wish("run_1", batch(StopRequested()), seen=0)
    ledger.append(lease, batch(ToolFinished(call_id="c", outcome="ok")), seen=4)
    ledger.append(lease, batch(RunCompleted()), seen=5)
    ledger.note("ses_1", [SessionDeleted()])


def test_an_expired_claim_that_wrote_nothing_is_an_orphan_too(world):
    clock = Clock()
    ledger = world(clock=clock)
    lease = held(ledger)
    clock.now += 11
    assert ledger.orphans() == ["run_1"]
    assert ledger.seize("run_1", "b", ttl=1.0).epoch == lease.epoch + 1
    with pytest.raises(LeaseLost):
        ledger.append(lease, batch(STARTED), seen=1)


def test_a_row_is_never_written_twice(world):
    ledger = world()
    held(ledger)
    ledger.flush()
    with pytest.raises(apsw.ConstraintError):
        ledger._db.execute("insert into event select * from event")


def blobs(ledger):
    return sorted(name for (name,) in ledger._db.execute("select sha256 from blob"))


@pytest.mark.parametrize("start", ["", "b", "c", "zz"])
def test_a_blob_that_no_run_uses_is_collected_wherever_one_begins_to_look(world, start):
    ledger = world()
    ledger.accept("run_1", batch(ACCEPTED, blobs={"a": b"1", "b": b"2"}))
    ledger.accept("run_2", batch(ACCEPTED, blobs={"b": b"2", "c": b"3"}))
    ledger._db.execute("delete from blob_use where run = 2")
    ledger.collect(start)
    assert blobs(ledger) == ["a", "b"]
    ledger._db.execute("delete from blob_use")
    ledger.collect(start)
    assert blobs(ledger) == []


def test_collecting_looks_at_so_many_blobs_and_no_more(world):
    ledger = world()
    names = {f"{number:04}": b"x" for number in range(COLLECTED + 10)}
    ledger.accept("run_1", batch(ACCEPTED, blobs=names))
    ledger._db.execute("delete from blob_use")
    ledger.collect("0005")
    assert len(blobs(ledger)) == 10
    ledger.collect("0005")
    assert blobs(ledger) == []


def test_a_long_body_is_never_collected(world):
    ledger = world()
    ledger.accept("run_1", batch(ACCEPTED))
    ledger.wish("run_1", batch(InputAdded(parts=(Text("x" * LONG_BODY),))), 1)
    ledger.flush()
    ledger._db.execute("delete from blob_use")
    ledger.collect("")
    assert len(blobs(ledger)) == 1


def test_what_is_too_large_to_be_stored_is_refused_before_anything_happens():
    with pytest.raises(InvalidRequest, match="is larger than"):
        pack_events([ACCEPTED], {"name": bytes(MOST_BYTES + 1)})


def test_a_run_whose_place_became_nonsense_is_an_orphan_and_not_forgotten(world):
    ledger = world()
    ledger.accept("run_1", batch(ACCEPTED))
    ledger.flush()
    ledger._db.execute("update run set place = 'nowhere'")
    assert world().orphans() == ["run_1"]


def test_while_the_disk_is_full_nobody_is_told_to_look_at_once(world):
    ledger = world()
    ledger.accept("run_1", batch(ACCEPTED))
    assert ledger.next_ready() == 0.0
    ledger.full = True
    assert ledger.next_ready() == FULL_PAUSE
    assert ledger.claim("a", ttl=1.0, limit=1) == ()


def test_what_ends_and_is_purged_in_one_transaction_leaves_nothing_behind(world):
    ledger = world()
    ledger.accept("run_1", batch(replace(ACCEPTED, session_id="ses_1")))
    (lease,) = ledger.claim("a", ttl=10.0, limit=1)
    ledger.note("ses_1", (SessionDeleted(),))
    ledger.append(lease, batch(STARTED, RunCancelled()), 2)
    assert ledger.purge(2e9) == {"ses_1": ["run_1"]}
    ledger.flush()
    assert ledger._db.execute("select count(*) from event").get == 0
    # Whoever comes next may have the same key, and a journal of its own.
    ledger.append(held(ledger, "run_2"), batch(STARTED), 1)
    ledger.flush()


def test_nobody_waits_for_one_that_was_set_aside_before_a_restart(world):
    ledger = world()
    ledger.accept("run_1", batch(replace(ACCEPTED, session_id="ses_1")))
    (lease,) = ledger.claim("a", ttl=10.0, limit=1)
    ledger.release(lease, seen=1, ready_in=600.0, aside=True)
    ledger = world()
    ledger.accept("run_2", batch(replace(ACCEPTED, session_id="ses_1")))
    # Nobody knows any more that it makes no sense: that is to be seen at once.
    (lease,) = ledger.claim("a", ttl=10.0, limit=1)
    ledger.release(lease, seen=1, ready_in=600.0, aside=True)
    assert ledger.queue() == ["run_2"]


def test_one_behind_another_that_is_gone_may_begin(world):
    ledger = world()
    for number in (1, 2):
        ledger.accept(f"run_{number}", batch(replace(ACCEPTED, session_id="ses_1")))
    ledger.flush()
    ledger._db.execute("delete from event where run = 1")
    ledger = world()
    assert ledger.queue() == ["run_2"]
    assert world().queue() == ["run_2"]


# --- runs that are deleted


def test_a_session_whose_deletion_fails_keeps_its_runs_as_they_were(world):
    ledger = world()
    ledger.accept("run_1", batch(replace(ACCEPTED, session_id="ses_1")))
    before = deepcopy(ledger._roster.runs)
    ledger.flush()
    ledger.begin()
    with pytest.raises(ZeroDivisionError), ledger._db:
        ledger.note("ses_1", [SessionDeleted()])
        assert ledger.written == {"run_1": ()}
        1 / 0  # noqa: B018
    ledger.undo()
    assert ledger._roster.runs == before


def test_a_deletion_that_fails_leaves_memory_as_it_was(world):
    ledger = world()
    held(ledger)
    before = deepcopy(ledger._roster.runs)
    ledger.flush()
    ledger.begin()
    with pytest.raises(ZeroDivisionError), ledger._db:
        ledger.delete("run_1", batch(StopRequested()), "ada")
        assert (ledger.written, [*ledger.changed]) == ({"run_1": ()}, ["run_1"])
        1 / 0  # noqa: B018
    ledger.undo()
    assert ledger._roster.runs == before
    ledger.wish("run_1", batch(StopRequested()), 0)


def test_one_that_was_deleted_is_ended_after_a_restart_and_found_by_nobody(world):
    ledger = world()
    held(ledger)
    ledger.delete("run_1", batch(StopRequested(by="ada")), "ada")
    ledger = world()
    assert ledger.queue() == ["run_1"]
    with pytest.raises(NotFound):
        ledger.wish("run_1", batch(StopRequested()), 0)
    lease = ledger.seize("run_1", "b", ttl=1.0)
    ledger.append(lease, batch(STARTED, RunCancelled()), 2)
    # What is committed is for nobody to have at hand.
    assert ledger.written == {"run_1": ()}
    assert ledger.purge(2e9) == {"run_1": ()}
    assert ledger._db.execute("select count(*) from event").get == 0


def test_who_deleted_a_run_is_on_record_and_a_full_disk_is_no_hindrance(world):
    ledger = world()
    held(ledger)
    ledger.full = True
    ledger.delete("run_1", batch(StopRequested(by="ada")), "ada")
    row = ledger._db.execute("select deleted_at, deleted_by from run").get
    assert row == (1e9, "ada")
