from holdfast.core.events import InputAdded, Recorded, RunAccepted, StopRequested
from holdfast.core.messages import Text
from holdfast.ports import Once
from holdfast.server.repeats import LOOKED_BACK, Repeat, find, named_after, said
from holdfast.stores.memory import MemoryStore

WORDS = (Text("psst"),)


def accepted(message_id="", session="s"):
    return RunAccepted(input=WORDS, models=(), session_id=session, message_id=message_id)


def journal(*events):
    return [Recorded(seq, 0.0, event, b"") for seq, event in enumerate(events, 1)]


def test_a_message_is_named_after_its_key_and_after_nothing_else():
    once = Once("ada", "k", "one")
    assert named_after(once) == named_after(Once("ada", "k", "two"))
    assert named_after(once) not in (named_after(Once("bob", "k", "one")), "")
    assert named_after(None) == ""


def test_a_message_was_said_if_it_came_before_a_stop():
    begun, added = accepted("a"), InputAdded(parts=WORDS, message_id="b")
    assert said(journal(begun, added), "a") is begun
    assert said(journal(begun, added), "b") is added
    assert said(journal(begun, StopRequested(), added), "b") is None
    assert said(journal(begun), "c") is None


async def test_a_message_is_found_in_the_run_that_it_began_or_was_said_to():
    store = MemoryStore()
    await store.accept("run_1", accepted("a"))
    await store.wish("run_1", InputAdded(parts=WORDS, message_id="b"))
    await store.wish("run_1", InputAdded(parts=WORDS))
    assert await find(store, "s", "a") == Repeat("run_1", WORDS, added=False)
    assert await find(store, "s", "b") == Repeat("run_1", WORDS, added=True)
    assert await find(store, "s", "c") is None
    assert await find(store, "s", "") is None


async def test_what_was_said_long_ago_is_not_looked_for():
    store = MemoryStore()
    for number in range(LOOKED_BACK + 1):
        await store.accept(f"run_{number}", accepted(f"m{number}"))
    assert await find(store, "s", "m0") is None
    assert (await find(store, "s", "m1")).run_id == "run_1"
