import pytest
from msgspec.structs import replace

from holdfast.errors import NotFound
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, STARTED
from holdfast.testing.late import LateStore


@pytest.fixture
async def late():
    store = MemoryStore()
    for number in (1, 2):
        await store.accept(f"run_{number}", replace(ACCEPTED, session_id="ses_1"))
    (lease,) = await store.claim("a", ttl=60.0)
    await store.append(lease, STARTED, seen=1)
    return LateStore(store)


async def test_what_has_not_arrived_is_not_to_be_seen(late):
    late.hold("run_1", 1)
    late.hold("run_2", 0)
    late.hold("ses_1", 2)
    assert [one.seq for one in await late.read("run_1")] == [1]
    with pytest.raises(NotFound):
        await late.read("run_2")
    entry = await late.session("ses_1")
    assert (entry.state.runs, entry.live, entry.run.run_id) == (1, 1, "run_1")
    assert [one.run_id for one in await late.members("ses_1")] == ["run_1"]
    late.show("ses_1")
    assert [one.run_id for one in await late.members("ses_1")] == ["run_2", "run_1"]
    assert [one.run_id for one in await late.members("ses_1", before=2)] == ["run_1"]
    late.show("run_1")
    assert [one.seq for one in await late.read("run_1", after=1)] == [2]


async def test_a_session_that_has_not_arrived_is_not_found(late):
    late.hold("ses_1", 0)
    for asked in (late.notes("ses_1"), late.session("ses_1"), late.members("ses_1")):
        with pytest.raises(NotFound):
            await asked


async def test_what_arrives_is_news(late):
    late.hold("run_1", 1)
    stirs = late.stirs("ses_1")
    await anext(stirs)
    late.show("run_1")
    await anext(stirs)
    await stirs.aclose()


async def test_an_empty_session_has_no_run_to_tell_of(late):
    late.hold("ses_1", 1)
    assert (await late.session("ses_1")).run is None
    late.hold("run_1", 0)
    late.hold("ses_1", 2)
    assert (await late.session("ses_1")).run is None
    assert (await late.held(["run_1"])) == {"run_1"}
