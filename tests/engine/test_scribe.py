from functools import partial

import anyio
import anyio.lowlevel
import pytest

from holdfast.core.events import (
    ModelReplied,
    RunCancelled,
    RunCompleted,
    RunStarted,
    StopRequested,
    TextStreamed,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.secrets import MASK, Secrets
from holdfast.engine.coalesce import FULL
from holdfast.engine.scribe import STORE_LIMIT, Scribe
from holdfast.errors import IllegalEvent, StoreUnavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import CALLED, STARTED, held
from holdfast.testing.faults import Crash, FaultyStore

REPLIED = ModelReplied(turn=1, attempt=1, text="a")
KEY = "sk-canary-0123456789"


def text(text):
    return TextStreamed(turn=1, attempt=1, text=text)


async def streaming():
    """A scribe in the middle of a model call, and the line to its store."""
    line = FaultyStore(MemoryStore(now=anyio.current_time))
    scribe = await Scribe.open(line, await held(line))
    await scribe.record(STARTED, CALLED)
    return scribe, line


async def texts(line):
    return [r.event.text for r in await line.read("run_1") if isinstance(r.event, TextStreamed)]


async def test_the_state_is_what_the_journal_adds_up_to():
    scribe, line = await streaming()
    assert (scribe.state.status, scribe.state.seq) == (Status.RUNNING, 3)


async def test_an_event_that_cannot_happen_is_refused_before_it_is_written():
    scribe, line = await streaming()
    with pytest.raises(IllegalEvent):
        await scribe.record(ToolStarted(call_id="none"))
    assert len(await line.read("run_1")) == 3


async def test_an_idle_store_shows_each_word_at_once():
    scribe, line = await streaming()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribe.keep_writing)
        for word in ("one ", "two ", "three"):
            await scribe.say(text, word)
            await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert await texts(line) == ["one ", "two ", "three"]


async def test_what_is_dictated_is_written_when_that_returns():
    scribe, line = await streaming()
    assert await scribe.dictate(text, "one ") == "one "
    assert await texts(line) == ["one "]


async def test_what_is_dictated_in_a_crowd_gathers_and_is_written_though_nothing_follows():
    scribe, line = await streaming()
    scribe.pace = lambda: 1.0
    async with anyio.create_task_group() as tasks:
        scribe.begin = partial(tasks.start_soon, scribe.keep_writing)
        for word in ("one ", "two ", "three "):
            await scribe.dictate(text, word)
        assert (await texts(line), anyio.current_time()) == (["one "], 0)
        await anyio.sleep(1.5)
        assert await texts(line) == ["one ", "two three "]
        await anyio.sleep(1)
        await scribe.dictate(text, "four")
        assert await texts(line) == ["one ", "two three ", "four"]
        tasks.cancel_scope.cancel()


async def test_whoever_kept_writing_is_called_again_after_having_left():
    scribe, line = await streaming()
    for number in ("1", "2"):
        async with anyio.create_task_group() as tasks:
            scribe.begin = partial(tasks.start_soon, scribe.keep_writing)
            await scribe.say(text, number)
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
    assert await texts(line) == ["1", "2"]


async def test_no_crash_comes_between_an_end_and_what_it_follows():
    store = MemoryStore(now=anyio.current_time)
    line = FaultyStore(store)
    scribe = await Scribe.open(line, await held(line))
    await scribe.record(STARTED, CALLED)
    await scribe.say(text, "a")
    line.crash_after(1)
    with pytest.raises(Crash):
        await scribe.record(REPLIED, end=RunCompleted())
    written = [type(recorded.event) for recorded in await store.read("run_1", after=3)]
    assert written == [TextStreamed, ModelReplied, RunCompleted]


@pytest.mark.parametrize("known", [True, False])
async def test_an_end_that_meets_a_wish_does_not_hold_back_what_it_follows(known):
    scribe, line = await streaming()
    await scribe.say(text, "a")
    await line.wish("run_1", StopRequested())
    line.delay = 1.0
    async with anyio.create_task_group() as tasks:
        if known:
            # Another task learns of it while the decision waits for its turn.
            tasks.start_soon(scribe.catch_up)
            await anyio.sleep(0.5)
        await scribe.record(REPLIED, end=RunCompleted())
    line.delay = 0.0
    assert scribe.state.stopping
    written = [type(recorded.event) for recorded in await line.read("run_1", after=4)]
    assert written == [TextStreamed, ModelReplied]


async def test_words_gather_while_a_commit_is_in_flight():
    scribe, line = await streaming()
    line.delay = 10.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribe.keep_writing)
        for word in ("one ", "two ", "three ", "four"):
            await scribe.say(text, word)
            await anyio.sleep(1)
        await anyio.sleep(30)
        tasks.cancel_scope.cancel()
    line.delay = 0.0
    assert await texts(line) == ["one ", "two three four"]


async def test_gathered_words_are_written_before_anything_else():
    scribe, line = await streaming()
    await scribe.say(text, "unwritten")
    await scribe.record(StopRequested())
    assert [type(r.event) for r in await line.read("run_1", after=3)] == [
        TextStreamed,
        StopRequested,
    ]


async def test_gathered_words_are_kept_when_the_end_is_held_back():
    scribe, line = await streaming()
    await line.wish("run_1", StopRequested())
    await scribe.say(text, "unwritten")
    await scribe.record(RunCompleted())
    assert scribe.state.stopping
    assert await texts(line) == ["unwritten"]
    await scribe.record(RunCancelled())
    assert scribe.state.status is Status.CANCELLED


async def test_a_run_that_is_deleted_is_written_to_its_end_by_who_carries_it():
    scribe, line = await streaming()
    await line.delete("run_1", by="ada")
    await scribe.record(REPLIED, end=RunCompleted())
    assert scribe.state.stop.by == "ada" and not scribe.state.ended
    await scribe.record(RunCancelled())
    assert scribe.state.ended == RunCancelled()


async def test_a_final_event_that_meets_a_wish_is_not_written_and_the_wish_is_known():
    scribe, line = await streaming()
    await line.wish("run_1", StopRequested(by="ada"))
    await scribe.record(RunCompleted())
    assert (scribe.state.status, scribe.state.stop.by) == (Status.STOPPING, "ada")
    assert len(await line.read("run_1")) == 4


async def test_a_commit_that_has_begun_is_finished_though_its_caller_is_cancelled():
    scribe, line = await streaming()
    line.delay = 5.0
    with anyio.move_on_after(1) as scope:
        await scribe.record(text("late"))
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught and anyio.current_time() == 5
    line.delay = 0.0
    assert await texts(line) == ["late"] and scribe.state.seq == 4


async def test_a_store_that_never_answers_is_given_up_on():
    scribe, line = await streaming()
    line.cut = True
    with pytest.raises(StoreUnavailable):
        await scribe.record(text("lost"))
    assert anyio.current_time() == STORE_LIMIT


async def test_whoever_speaks_too_fast_has_to_wait_for_the_store():
    scribe, line = await streaming()
    line.delay = 10.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribe.keep_writing)
        await scribe.say(text, "first")
        await anyio.sleep(1)
        await scribe.say(text, "x" * FULL)
        assert anyio.current_time() == 20
        tasks.cancel_scope.cancel()


async def test_two_who_record_at_once_leave_one_order():
    scribe, line = await streaming()
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(scribe.record, text(str(number)))
    assert scribe.state.seq == 23 and len(await texts(line)) == 20


async def test_catching_up_learns_what_others_wrote_and_rings():
    scribe, line = await streaming()
    news = scribe.news
    await scribe.catch_up()
    assert not news.is_set()
    await line.wish("run_1", StopRequested())
    await scribe.catch_up()
    assert news.is_set() and scribe.state.stopping


async def test_an_ended_run_is_not_given_back():
    scribe, line = await streaming()
    await scribe.give_back("drained", worker="a")
    assert scribe.state.status is Status.QUEUED
    await scribe.record(RunStarted(worker="a", epoch=2), StopRequested(), RunCancelled())
    await scribe.give_back("drained", worker="a")
    assert scribe.state.status is Status.CANCELLED


async def test_an_end_decided_before_a_wish_was_known_is_not_written():
    """Somebody else caught up for us while the decision waited for its turn to be written."""
    scribe, line = await streaming()
    await line.wish("run_1", StopRequested())
    line.delay = 1.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribe.catch_up)
        await anyio.sleep(0.5)
        await scribe.record(RunCompleted())
    assert scribe.state.stopping


async def hiding():
    scribe, line = await streaming()
    return Scribe(line, scribe.lease, scribe.state, Secrets([KEY])), line


async def test_a_secret_is_masked_in_all_that_is_recorded_and_in_the_state():
    scribe, line = await hiding()
    await scribe.record(text(KEY), StopRequested(by=KEY, reason=f"it shows {KEY}"))
    assert await texts(line) == [MASK]
    assert (scribe.state.stop.by, scribe.state.stop.reason) == (MASK, f"it shows {MASK}")
    assert KEY not in repr(await line.read("run_1"))


async def test_a_secret_that_is_said_in_pieces_with_a_commit_between_them_is_masked():
    scribe, line = await hiding()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribe.keep_writing)
        shown = []
        for word in ("my ", KEY[:4], KEY[4:], " key"):
            shown.append(await scribe.say(text, word))
            await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert await texts(line) == ["my ", MASK, " key"]
    assert shown == ["my ", "", MASK, " key"]


async def test_another_event_does_not_set_free_what_is_held_back():
    scribe, line = await hiding()
    await scribe.say(text, KEY[:4])
    await scribe.record(StopRequested())
    await scribe.say(text, KEY[4:])
    await scribe.record()
    assert await texts(line) == [MASK]


async def test_what_was_held_back_is_written_at_the_end_without_waiting_for_anything_else():
    scribe, line = await hiding()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribe.keep_writing)
        await scribe.say(text, "sk-")
        await anyio.sleep(1)
        assert scribe.end(text) == "sk-"
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert await texts(line) == ["sk-"]


async def test_a_scribe_is_opened_with_the_secrets_it_is_to_keep():
    store = MemoryStore(now=anyio.current_time)
    scribe = await Scribe.open(store, await held(store), Secrets([KEY]))
    await scribe.record(STARTED, StopRequested(by=KEY))
    assert scribe.state.stop.by == MASK
