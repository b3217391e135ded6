from msgspec.structs import replace

from holdfast.core.events import ModelReplied, RunCompleted
from holdfast.core.messages import plain
from holdfast.core.session import SessionDeleted
from holdfast.engine.recall import PAGE, Recall
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED


class Counting(MemoryStore):
    """Knows which journals were read."""

    def __init__(self):
        super().__init__()
        self.reads = []

    async def read(self, run_id, **how):
        self.reads.append(run_id)
        return await super().read(run_id, **how)


async def turn(store, number, *, session="ses_1", reply="yes"):
    """A run of the session that has ended."""
    run_id = f"{session}_{number}"
    await store.accept(run_id, replace(ACCEPTED, session_id=session))
    (lease,) = await store.claim("a", ttl=60.0)
    replied = ModelReplied(turn=1, attempt=1, text=f"{reply} {number}")
    await store.append(
        lease, replace(STARTED, epoch=lease.epoch), CALLED, replied, RunCompleted(), seen=1
    )
    return run_id


def said(messages):
    return [getattr(m, "text", "") or plain(m.parts) for m in messages]


async def test_each_turn_reads_only_what_is_new():
    store, recall = Counting(), Recall()
    for number in range(1, 4):
        await turn(store, number)
    assert said(await recall.before(store, "ses_1", "ses_1_3")) == ["hi", "yes 1", "hi", "yes 2"]
    assert store.reads == ["ses_1_1", "ses_1_2"]
    store.reads.clear()
    await turn(store, 4)
    assert said(await recall.before(store, "ses_1", "ses_1_4"))[-2:] == ["hi", "yes 3"]
    assert store.reads == ["ses_1_3"]
    store.reads.clear()
    # Another turn of the same run.
    assert len(await recall.before(store, "ses_1", "ses_1_4")) == 6
    assert store.reads == []


async def test_an_earlier_run_is_not_shown_what_came_later():
    store, recall = Counting(), Recall()
    for number in range(1, 5):
        await turn(store, number)
    assert len(await recall.before(store, "ses_1", "ses_1_4")) == 6
    assert said(await recall.before(store, "ses_1", "ses_1_2")) == ["hi", "yes 1"]
    assert await recall.before(store, "ses_1", "ses_1_1") == ()


async def test_what_was_used_longest_ago_is_forgotten_and_read_again():
    store, recall = Counting(), Recall(most=300)
    for session in ("ses_1", "ses_2"):
        for number in (1, 2):
            await turn(store, number, session=session, reply="x" * 200)
    for session in ("ses_1", "ses_2", "ses_1"):
        assert len(await recall.before(store, session, f"{session}_2")) == 2
    assert store.reads == ["ses_1_1", "ses_2_1", "ses_1_1"]


async def test_a_long_session_is_read_to_its_beginning():
    store, recall = Counting(), Recall(most=0)
    for number in range(1, PAGE + 4):
        await turn(store, number)
    told = said(await recall.before(store, "ses_1", f"ses_1_{PAGE + 3}"))
    assert told == [word for n in range(1, PAGE + 3) for word in ("hi", f"yes {n}")]


async def test_a_session_that_begins_anew_under_an_old_name_has_nothing_of_the_old_one():
    store, recall = MemoryStore(), Recall()
    for number in (1, 2, 3):
        await turn(store, number, reply="old")
    assert len(await recall.before(store, "ses_1", "ses_1_3")) == 4
    await store.note("ses_1", SessionDeleted())
    await store.purge(before=2.0**40)
    for number in (11, 12, 13, 14):
        # Nobody asked before these, as when a history came with each.
        await turn(store, number, reply="new")
    told = said(await recall.before(store, "ses_1", "ses_1_14"))
    assert told == ["hi", "new 11", "hi", "new 12", "hi", "new 13"]


async def test_more_may_come_of_a_run_that_was_set_aside():
    store, recall = MemoryStore(), Recall()
    await store.accept("aside", replace(ACCEPTED, session_id="ses_1"))
    (lease,) = await store.claim("a", ttl=60.0)
    await store.release(lease, seen=1, ready_in=600.0, aside=True)
    await turn(store, 2)
    await turn(store, 3)
    assert said(await recall.before(store, "ses_1", "ses_1_3")) == ["hi", "hi", "yes 2"]
    lease = await store.seize("aside", "a", ttl=60.0)
    replied = ModelReplied(turn=1, attempt=1, text="at last")
    await store.append(
        lease, replace(STARTED, epoch=lease.epoch), CALLED, replied, RunCompleted(), seen=1
    )
    await turn(store, 4)
    told = said(await recall.before(store, "ses_1", "ses_1_4"))
    assert told == ["hi", "at last", "hi", "yes 2", "hi", "yes 3"]
