import pytest
from msgspec.structs import replace

from holdfast.core.codec import record
from holdfast.core.entries import Card, Mark, Said
from holdfast.core.events import (
    InputAdded,
    ModelCalled,
    ModelReplied,
    ModelRetracted,
    RunCompleted,
    RunStarted,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import Text, ToolCall, ToolSpec
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED

LOOK = ToolSpec("look", parallel=True)


class Counting(MemoryStore):
    """Knows from where journals were read."""

    def __init__(self):
        super().__init__(now=lambda: 1.0)
        self.reads = []

    async def read(self, run_id, *, after=0, deleted=False):
        self.reads.append((run_id, after))
        return await super().read(run_id, after=after, deleted=deleted)


@pytest.fixture
def store():
    return Counting()


@pytest.fixture
def sessions(store):
    means = Means(store=store, models={}, clock=lambda: 1.0)
    return Sessions(means, Runs(means), workers=lambda: True)


async def begin(store, number=1):
    """A run of the session that is under way, and its lease."""
    asked = replace(ACCEPTED, session_id="ses_1", message_id=f"msg_{number}", tools=(LOOK,))
    await store.accept(f"run_{number}", asked)
    (lease,) = await store.claim("a", ttl=600.0)
    started = RunStarted(worker="a", epoch=lease.epoch)
    await store.append(lease, started, ModelCalled(turn=1, attempt=1, model="m"), seen=1)
    return lease


async def test_no_entry_comes_twice_when_words_are_taken_back_between_two_pages(store, sessions):
    lease = await begin(store)
    await store.append(lease, TextStreamed(turn=1, attempt=1, text="half "), seen=3)
    await store.wish("run_1", InputAdded(parts=(Text("and this"),), message_id="msg_2"))
    last = await sessions.page("ses_1", limit=1)
    assert [one.id for one in last.entries] == ["msg_2"]
    await store.append(lease, ModelRetracted(turn=1, attempt=1, after=3), seen=5)
    before = await sessions.page("ses_1", earlier=last.earlier)
    assert [one.id for one in before.entries] == ["msg_1"]


async def test_a_page_may_begin_between_the_cards_of_one_reply(store, sessions):
    lease = await begin(store)
    calls = tuple(ToolCall(id=f"call_{n}", tool="look", arguments="{}") for n in range(5))
    await store.append(lease, ModelReplied(turn=1, attempt=1, calls=calls), seen=3)
    page = await sessions.page("ses_1", limit=2)
    assert [one.id for one in page.entries] == ["call_3", "call_4"]
    page = await sessions.page("ses_1", earlier=page.earlier, limit=2)
    assert [one.id for one in page.entries] == ["call_1", "call_2"]
    page = await sessions.page("ses_1", earlier=page.earlier, limit=2)
    assert [type(one) for one in page.entries] == [Said, Card]
    assert page.earlier == ""


async def test_a_run_that_is_damaged_hides_none_of_the_others(store, sessions):
    for number in (1, 2, 3):
        lease = await begin(store, number)
        replied = ModelReplied(turn=1, attempt=1, text=f"yes {number}")
        await store.append(lease, replied, RunCompleted(), seen=3)
    store._runs["run_2"].log.insert(1, record(2, 1.0, RunCompleted()))
    entries = (await sessions.page("ses_1")).entries
    assert [one.run_id for one in entries] == ["run_1", "run_1", "run_2", "run_3", "run_3"]
    assert isinstance(entries[2], Mark)
    assert "damaged" in entries[2].words


async def test_a_run_that_is_missing_makes_none_of_the_others_come_twice(store, sessions):
    for number in (1, 2, 3):
        lease = await begin(store, number)
        replied = ModelReplied(turn=1, attempt=1, text=f"yes {number}")
        await store.append(lease, replied, RunCompleted(), seen=3)
    whole = store.members

    async def members(session_id, **how):
        return [one for one in await whole(session_id, **how) if one.run_id != "run_2"]

    store.members = members
    page = await sessions.page("ses_1")
    assert [one.run_id for one in page.entries] == ["run_1", "run_1", "run_3", "run_3"]
    assert page.bookmark.open == [2]


async def test_a_long_run_is_folded_once_and_then_as_it_grows(store, sessions):
    lease = await begin(store)
    turns = 100
    seen = 3
    for turn in range(1, turns + 1):
        call = ToolCall(id=f"call_{turn}", tool="look", arguments="{}")
        events = (
            ModelReplied(turn=turn, attempt=1, calls=(call,)),
            ToolStarted(call_id=call.id),
            ToolFinished(call_id=call.id, outcome="ok", output=str(turn)),
            ModelCalled(turn=turn + 1, attempt=1, model="m"),
        )
        await store.append(lease, *events, seen=seen)
        seen += len(events)
    first = await sessions.page("ses_1", limit=10)
    store.reads.clear()
    assert await sessions.page("ses_1", limit=10) == first
    assert store.reads == [("run_1", seen)]
    await store.append(lease, TextStreamed(turn=turns + 1, attempt=1, text="so"), seen=seen)
    grown = await sessions.page("ses_1", limit=10)
    assert grown.entries[:-1] == first.entries[1:]
    assert grown.entries[-1].text == "so"


async def test_only_so_much_is_kept_at_hand(store, sessions, monkeypatch):
    monkeypatch.setattr("holdfast.engine.pages._MOST", 300)
    for number in (1, 2):
        lease = await begin(store, number)
        words = [TextStreamed(turn=1, attempt=1, text="x")] * 250
        await store.append(lease, *words, seen=3)
        replied = ModelReplied(turn=1, attempt=1, text="x" * 250)
        await store.append(lease, replied, RunCompleted(), seen=253)
    for _ in range(2):
        store.reads.clear()
        assert len((await sessions.page("ses_1")).entries) == 4
        assert store.reads[0] == ("run_2", 0)
