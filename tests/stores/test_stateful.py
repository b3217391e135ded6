"""The SQLite store against the one in memory: whatever is done to both, they answer alike."""

from contextlib import aclosing

import anyio
import hypothesis.strategies as st
from hypothesis import given, settings

from holdfast.core.events import FINAL, RunCompleted, StopRequested
from holdfast.core.lease import Lease
from holdfast.errors import HoldfastError
from holdfast.stores.memory import MemoryStore
from holdfast.stores.recent import MOST
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED, said

RUNS = st.sampled_from(["run_1", "run_2"])
SEEN = st.integers(0, 6)
EPOCH = st.integers(1, 4)
EVENTS = st.lists(st.sampled_from([STARTED, CALLED, said("a"), said("x" * 70_000)]), max_size=3)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), RUNS),
        st.tuples(st.just("append"), RUNS, EPOCH, SEEN, EVENTS, st.booleans()),
        st.tuples(st.just("wish"), RUNS, SEEN),
        st.tuples(st.just("claim"), st.integers(1, 3)),
        st.tuples(st.just("seize"), RUNS),
        st.tuples(st.just("renew"), RUNS, EPOCH),
        st.tuples(st.just("release"), RUNS, EPOCH, SEEN, st.sampled_from([None, 0.0, 1e6])),
        st.tuples(st.just("read"), RUNS, SEEN, st.booleans()),
        st.tuples(st.just("delete"), RUNS),
        st.tuples(st.just("purge")),
        st.tuples(st.just("list"), st.sampled_from(["", "run_1", "run_2"])),
        st.tuples(st.just("orphans")),
        st.tuples(st.just("ready")),
        st.tuples(st.just("census")),
        st.tuples(st.just("follow"), RUNS, SEEN),
    ),
    min_size=5,
    max_size=40,
)


async def perform(store, step):
    """What the store answers, with what differs by nature (times) left out."""
    try:
        return await _perform(store, step)
    except HoldfastError as error:
        return type(error).__name__, str(error)


async def _perform(store, step):  # noqa: C901, PLR0912 - one line a method
    match step:
        case "accept", run_id:
            return (await store.accept(run_id, ACCEPTED, blobs={run_id: b"blob"})).seq
        case "append", run_id, epoch, seen, events, ends:
            lease, end = Lease(run_id, "a", epoch), [RunCompleted()] if ends else []
            return seqs(await store.append(lease, *events, *end, seen=seen))
        case "wish", run_id, seen:
            return seqs(await store.wish(run_id, StopRequested(), seen=seen))
        case "claim", limit:
            return list(await store.claim("a", ttl=1e6, limit=limit))
        case "seize", run_id:
            return await store.seize(run_id, "a", ttl=1e6)
        case "renew", run_id, epoch:
            return dict(await store.renew([Lease(run_id, "a", epoch)], ttl=1e6))
        case "release", run_id, epoch, seen, ready_in:
            return await store.release(Lease(run_id, "a", epoch), seen=seen, ready_in=ready_in)
        case "read", run_id, after, deleted:
            return seqs(await store.read(run_id, after=after, deleted=deleted))
        case "delete", run_id:
            return await store.delete(run_id, by="ada")
        case ("purge",):
            return sorted(await store.purge(before=2.0**40))
        case "list", before:
            return [entry.run_id for entry in await store.list(before=before)]
        case ("orphans",):
            return list(await store.orphans())
        case ("ready",):
            return (await store.next_ready()) is None
        case ("census",):
            return await store.census()
        case "follow", run_id, after:
            return await followed(store, run_id, after)


async def followed(store, run_id, after):
    """What there is to follow, up to the last there is now."""
    last = (await store.read(run_id))[-1]
    live = not isinstance(last.event, FINAL)
    if live and last.seq <= after:
        return []
    events = []
    async with aclosing(store.follow(run_id, after=after)) as following:
        async for recorded in following:
            events.append(recorded)
            if live and recorded.seq == last.seq:
                break
    return seqs(events)


def seqs(events):
    return [(recorded.seq, recorded.body) for recorded in events]


@given(STEPS, st.sampled_from([0, 10_000, MOST]))
@settings(max_examples=50)
def test_whatever_is_done_to_both_stores_they_answer_alike(tmp_path_factory, steps, recent):
    async def main():
        memory = MemoryStore()
        path = tmp_path_factory.mktemp("store") / "journal.db"
        async with open_sqlite(path, recent=recent) as sqlite:
            for step in steps:
                assert await perform(sqlite, step) == await perform(memory, step), step
        # And what is there after a restart is what was there before.
        async with open_sqlite(path) as sqlite:
            for run_id in ("run_1", "run_2"):
                for deleted in (False, True):
                    step = ("read", run_id, 0, deleted)
                    assert await perform(sqlite, step) == await perform(memory, step)

    anyio.run(main)
