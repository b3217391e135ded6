from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ModelCalled,
    ModelChoice,
    RunAccepted,
    RunCancelled,
    RunStarted,
    StopRequested,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Image, Text, UserMessage, plain
from holdfast.core.secrets import MASK, Secrets
from holdfast.core.state import Grant
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.errors import (
    ApprovalAmbiguous,
    ApprovalChanged,
    ApprovalSettled,
    IllegalEvent,
    InvalidRequest,
    NotFound,
    NothingPending,
    RunBegun,
    RunFinished,
    RunStopping,
    StoreError,
)
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

ASK = Review(gate="ask", key="pay")

KEY = "sk-canary-0123456789"


def two_questions():
    pay = ScriptedTool(review=ASK, parallel=True)
    return ScriptedModel([Call("pay", '{"n":1}'), Call("pay", '{"n":2}')], ["Done."]), pay


async def asked(play, how_many=1):
    """A run that waits for this many answers, and the ids of the questions."""
    run_id = await play.start()
    await play.until(run_id, ApprovalRequested)
    await anyio.sleep(1)
    state = await play.runs.state(run_id)
    assert len(state.pending) == how_many and state.status is Status.WAITING
    return run_id, [pending.request.approval_id for pending in state.pending]


async def test_text_that_cannot_be_stored_is_refused_and_nothing_is_written():
    async with stage(ScriptedModel()) as play:
        with pytest.raises(InvalidRequest, match="half a character"):
            await play.start("a\ud83d")


async def test_an_answer_goes_to_the_question_it_names():
    model, pay = two_questions()
    async with stage(model, pay) as play:
        run_id, (first, second) = await asked(play, 2)
        assert await play.runs.answer(run_id, "deny", approval_id=second) == (second,)
        assert (await play.runs.state(run_id)).status is Status.WAITING
        assert await play.runs.answer(run_id, "once", approval_id=first) == (first,)
        state = await play.ended(run_id)
    outputs = [m.ok for m in model.requests[1].messages[-2:]]
    assert (outputs, len(pay.effects), state.output) == ([True, False], 1, "Done.")


async def test_an_answer_without_a_name_is_refused_while_several_wait():
    model, pay = two_questions()
    async with stage(model, pay) as play:
        run_id, ids = await asked(play, 2)
        with pytest.raises(ApprovalAmbiguous) as ambiguous:
            await play.runs.answer(run_id, "once")
        assert list(ambiguous.value.pending) == ids
        assert await play.runs.answer(run_id, "once", everything=True) == tuple(ids)
        await play.ended(run_id)
    assert len(pay.effects) == 2


async def test_a_second_answer_is_told_what_the_first_one_was():
    model, pay = two_questions()
    async with stage(model, pay) as play:
        run_id, (first, _) = await asked(play, 2)
        await play.runs.answer(run_id, "deny", approval_id=first, by="ada")
        with pytest.raises(ApprovalSettled, match="answered deny by ada"):
            await play.runs.answer(run_id, "once", approval_id=first)


async def test_a_late_answer_to_an_expired_question_leaves_the_next_one_untouched():
    pay = ScriptedTool(review=ASK)
    model = ScriptedModel([Call("pay")], [Call("pay")], ["Done."])
    async with stage(model, pay) as play:
        run_id = await play.start(approval_timeout=100.0)
        first = await play.until(run_id, ApprovalRequested)
        await play.until(run_id, ApprovalRequested, after=first.seq)
        with pytest.raises(ApprovalSettled, match="has expired"):
            await play.runs.answer(run_id, "once", approval_id=first.event.approval_id)
        assert len((await play.runs.state(run_id)).pending) == 1
    assert pay.effects == []


async def test_two_answers_at_the_same_moment_settle_it_once():
    store = MemoryStore(now=anyio.current_time)
    line, pay = FaultyStore(store), ScriptedTool(review=ASK)
    settled, refused = [], []
    async with stage(ScriptedModel([Call("pay")], ["Done."]), pay, store=line) as play:
        run_id, (only,) = await asked(play)

        async def answer(choice):
            try:
                settled.extend(await play.runs.answer(run_id, choice, approval_id=only, by=choice))
            except (ApprovalSettled, RunFinished) as error:
                refused.append(error)

        line.delay = 1.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, "once")
            tasks.start_soon(answer, "deny")
        line.delay = 0.0
        await play.ended(run_id)
    assert (settled, len(refused)) == ([only], 1)


async def test_an_answer_after_a_stop_is_refused_and_nothing_runs():
    pay = ScriptedTool(review=ASK)
    async with stage(ScriptedModel([Call("pay")]), pay, capacity=1) as play:
        run_id, (only,) = await asked(play)
        await play.means.store.wish(run_id, StopRequested())
        with pytest.raises((RunStopping, RunFinished)):
            await play.runs.answer(run_id, "once", approval_id=only)
        await play.ended(run_id)
    assert pay.effects == []


async def test_an_answer_that_a_stop_beat_to_the_journal_is_refused():
    """The stop is not there yet when the answer is checked, and is when it is written."""
    store = MemoryStore(now=anyio.current_time)
    pay = ScriptedTool(review=ASK)

    class Overtaken(FaultyStore):
        async def wish(self, run_id, wish, **options):
            if isinstance(wish, ApprovalAnswered):
                await store.wish(run_id, StopRequested())
            return await super().wish(run_id, wish, **options)

    async with stage(ScriptedModel([Call("pay")]), pay, store=Overtaken(store)) as play:
        run_id, (only,) = await asked(play)
        with pytest.raises(RunStopping):
            await play.runs.answer(run_id, "once", approval_id=only)
        await play.ended(run_id)
    assert pay.effects == []


async def test_an_answer_to_nothing_is_refused():
    async with stage(ScriptedModel([Silence()])) as play:
        run_id = await play.start()
        with pytest.raises(NothingPending):
            await play.runs.answer(run_id, "once")
        with pytest.raises(NotFound, match="no approval apr_0"):
            await play.runs.answer(run_id, "once", approval_id="apr_0")
        with pytest.raises(NotFound, match="no run run_0"):
            await play.runs.answer("run_0", "once")


async def test_a_yes_for_the_session_covers_the_same_call_again_and_no_other():
    pay = ScriptedTool(review=lambda arguments: Review(gate="ask", key=arguments))
    same, other = Call("pay", '{"to":"bob"}'), Call("pay", '{"to":"eve"}')
    async with stage(ScriptedModel([same], [same], [other], ["Done."]), pay) as play:
        run_id, _ = await asked(play)
        await play.runs.answer(run_id, "session")
        await anyio.sleep(10)
        (pending,) = (await play.runs.state(run_id)).pending
        assert "eve" in pending.request.subject
        assert len(pay.effects) == 2


async def test_a_message_after_a_stop_is_refused():
    async with stage(ScriptedModel(), capacity=0) as play:
        run_id = await play.start()
        await play.means.store.wish(run_id, StopRequested())
        with pytest.raises(RunStopping):
            await play.runs.add(run_id, (Text("more"),))


async def test_a_message_that_a_stop_beat_to_the_journal_is_refused():
    store = MemoryStore(now=anyio.current_time)

    class Overtaken(FaultyStore):
        async def wish(self, run_id, wish, **options):
            await store.wish(run_id, StopRequested())
            return await super().wish(run_id, wish, **options)

    async with stage(ScriptedModel(), store=Overtaken(store), capacity=0) as play:
        run_id = await play.start()
        with pytest.raises(RunStopping):
            await play.runs.add(run_id, (Text("more"),))


async def test_a_message_to_an_ended_run_is_refused():
    async with stage(ScriptedModel(["Done."])) as play:
        run_id = await play.start()
        await play.ended(run_id)
        with pytest.raises(RunFinished):
            await play.runs.add(run_id, (Text("more"),))


async def test_what_fails_while_a_run_is_ended_is_not_the_stopper_s_trouble(caplog):
    store = MemoryStore(now=anyio.current_time)

    class Full(FaultyStore):
        async def seize(self, run_id, worker, *, ttl):
            self.full = True
            return await super().seize(run_id, worker, ttl=ttl)

    line = Full(store)
    async with stage(ScriptedModel(), store=line, capacity=0) as play:
        run_id = await play.start()
        await play.runs.stop(run_id)
        assert "will be ended by a worker" in caplog.text
        line.full = False
        assert (await play.runs.state(run_id)).status is Status.STOPPING


async def test_a_stop_does_not_wait_until_the_journal_is_read():
    """It may be long, and the disk slow."""

    class Slow(FaultyStore):
        async def read(self, run_id, *, after=0, deleted=False, most=inf):
            if not after:
                await anyio.sleep(60)
            return await super().read(run_id, after=after, deleted=deleted, most=most)

    store = MemoryStore(now=anyio.current_time)
    async with stage(ScriptedModel([Silence()]), store=store) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        asked, runs = anyio.current_time(), Runs(replace(play.means, store=Slow(store)))
        await runs.stop(run_id, reason="first")
        await play.ended(run_id)
        assert anyio.current_time() - asked < 1
        journal = await store.read(run_id)
        assert sum(isinstance(one.event, StopRequested) for one in journal) == 1


async def test_a_stop_asks_nothing_of_who_holds_the_run():
    """Or it would wait for what is being written."""

    class Held(FaultyStore):
        async def seize(self, run_id, worker, *, ttl):
            raise AssertionError("there is nothing to take")

    store = MemoryStore(now=anyio.current_time)
    async with stage(ScriptedModel([Silence()]), store=store) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        await Runs(replace(play.means, store=Held(store))).stop(run_id)
        assert (await play.ended(run_id)).status is Status.CANCELLED


async def test_a_run_that_makes_no_sense_is_stopped_all_the_more(caplog):
    store = MemoryStore()
    runs = Runs(Means(store=store, models={}))
    accepted = RunAccepted(input=(Text("one"),), models=(ModelChoice("model"),))
    run_id = await runs.accept(accepted)
    (lease,) = await store.claim("w", ttl=100.0)
    await store.append(lease, accepted, seen=1)
    await store.release(lease, seen=2, ready_in=None)
    with pytest.raises(IllegalEvent):
        await runs.state(run_id)
    await runs.stop(run_id)
    assert "will be ended by a worker" in caplog.text
    assert isinstance((await store.read(run_id))[-1].event, StopRequested)


async def test_a_run_that_somebody_else_ends_first_was_stopped_all_the_same():
    class Overtaken(FaultyStore):
        async def append(self, lease, *events, seen, blobs):
            # Whoever took this long has lost the run to another, who was quicker.
            await store.append(lease, *events, seen=seen)
            return await super().append(lease, *events, seen=seen, blobs=blobs)

    store = MemoryStore(now=anyio.current_time)
    async with stage(ScriptedModel(), store=Overtaken(store), capacity=0) as play:
        run_id = await play.start()
        await play.runs.stop(run_id)
        assert (await play.runs.state(run_id)).status is Status.CANCELLED


async def test_a_secret_that_somebody_lets_slip_is_masked_before_it_is_written():
    store, pay = MemoryStore(now=anyio.current_time), ScriptedTool(review=ASK)
    async with stage(ScriptedModel([Call("pay")], [Silence()]), pay, store=store) as play:
        runs = Runs(replace(play.means, secrets=Secrets([KEY])))
        models, tools = (ModelChoice("model"),), (pay.spec,)
        accepted = RunAccepted(input=(Text(KEY),), models=models, tools=tools, instructions=KEY)
        run_id = await runs.accept(accepted, history=(UserMessage(parts=(Text(KEY),)),))
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(1)
        await runs.add(run_id, (Text(f"use {KEY}"),), message_id=KEY, by=KEY)
        await runs.answer(run_id, "once", by=KEY)
        await anyio.sleep(1)
        await runs.stop(run_id, by=KEY, reason=KEY)
        state = await play.ended(run_id)
    assert KEY not in repr(vars(store)) and (state.stop.by, state.stop.reason) == (MASK, MASK)
    assert plain(state.accepted.input) == MASK


# --- what an answer is for, and how long it stands


class Book:
    """Keeps what it is told, as a list."""

    def __init__(self, *, full=False):
        self.grants, self.kept, self._full = (), [], full

    def standing(self, run_id, accepted):
        return self.grants

    async def grant(self, run_id, accepted, call, scope, *, by):
        if self._full:
            raise StoreError("the rules cannot be kept")
        self.kept.append((run_id, accepted.workspace, call.tool, call.key, scope, by))


PAY = Review(gate="ask", reason="it costs money", subject="pay 5", key="pay 5", binding="from: 7")


async def test_a_run_without_a_session_is_one_of_its_own():
    async with two_payments(Book()) as (play, run_id, asked, pay):
        await play.runs.answer(run_id, "session")
        await play.ended(run_id)
    assert len(pay.effects) == 2


@asynccontextmanager
async def two_payments(book, **fields):
    model = ScriptedModel([Call("pay")], [Call("pay")], ["Paid."])
    pay = ScriptedTool(review=PAY)
    async with stage(model, pay, rulebook=book) as play:
        run_id = await play.start(workspace="/work", **fields)
        asked = (await play.until(run_id, ApprovalRequested)).event
        yield play, run_id, asked, pay


@pytest.mark.parametrize(("choice", "session"), [("session", "s1"), ("always", "")])
async def test_a_standing_yes_is_kept_in_the_rulebook(choice, session):
    book = Book()
    async with two_payments(book, session_id=session) as (play, run_id, asked, pay):
        await play.runs.answer(run_id, choice, by="me")
        assert book.kept == [(run_id, "/work", "pay", "pay 5", choice, "me")]
        # It is the book that says what stands, and it says nothing yet.
        await play.until(run_id, ApprovalRequested, after=8)
        await play.runs.answer(run_id, "deny")
        await play.ended(run_id)
    assert len(pay.effects) == 1


async def test_a_rule_is_kept_though_whoever_answered_leaves_as_soon_as_the_answer_is_seen():
    class Slow(Book):
        async def grant(self, *what, by):
            await anyio.sleep(1)
            await super().grant(*what, by=by)

    book = Slow()
    async with two_payments(book) as (play, run_id, asked, pay):
        async with task_group() as tasks:
            tasks.start_soon(play.runs.answer, run_id, "always")
            await play.until(run_id, ApprovalAnswered)
            tasks.cancel_scope.cancel()
        assert len(book.kept) == 1
        await play.runs.stop(run_id)


async def test_a_rule_that_stands_lets_the_call_pass_and_is_named():
    book = Book()
    async with two_payments(book) as (play, run_id, asked, pay):
        book.grants = (Grant("pay", "pay 5", "always", "rule_1"),)
        await play.runs.answer(run_id, "once")
        await play.ended(run_id)
        started = [e for e in await play.journal(run_id) if isinstance(e, ToolStarted)]
    assert [start.rule for start in started] == ["", "rule_1"]
    assert book.kept == [] and len(pay.effects) == 2


async def test_a_rule_that_cannot_be_kept_costs_the_rule_and_not_the_answer():
    told = []
    async with two_payments(Book(full=True)) as (play, run_id, asked, pay):
        await play.runs.answer(run_id, "always", tell=told.append)
        await play.until(run_id, ToolFinished)
        await play.runs.stop(run_id)
    assert len(pay.effects) == 1
    assert told == [f"the answer to run {run_id} holds once: the rules cannot be kept"]


async def test_a_standing_yes_to_what_no_rule_can_cover_is_said_to_hold_once(caplog):
    pay = ScriptedTool(review=Review(gate="ask"))
    async with stage(ScriptedModel([Call("pay")], ["Paid."]), pay, rulebook=Book()) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await play.runs.answer(run_id, "always")
        await play.ended(run_id)
    assert "holds once: no rule could cover" in caplog.text


async def test_an_answer_to_something_else_than_what_is_asked_counts_for_nothing():
    async with two_payments(Book()) as (play, run_id, asked, pay):
        with pytest.raises(ApprovalChanged):
            await play.runs.answer(run_id, "once", digest="0" * 64)
        assert (await play.runs.state(run_id)).pending
        assert asked.binding == "from: 7"
        await play.runs.answer(run_id, "once", digest=asked.digest)
        await play.until(run_id, ToolFinished)
        await play.runs.stop(run_id)


class Quick:
    """A store where a worker is quicker than whoever takes a message back."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def wish(self, run_id, wish, **options):
        (lease,) = await self._store.claim("w", ttl=100.0)
        called = ModelCalled(turn=1, attempt=1, model="model")
        await self._store.append(lease, RunStarted(worker="w", epoch=1), called, seen=1)
        return await self._store.wish(run_id, wish, **options)


async def test_who_takes_back_what_a_model_was_shown_is_told_that_it_is_too_late():
    store = MemoryStore()
    runs = Runs(Means(store=Quick(store), models={}))
    accepted = RunAccepted(input=(Text("one"),), models=(ModelChoice("model"),), session_id="ses")
    run_id = await runs.accept(accepted)
    with pytest.raises(RunBegun):
        await runs.remove(run_id)
    assert (await runs.state(run_id)).stopping


async def test_what_waits_keeps_its_pictures_when_it_is_edited():
    runs = Runs(Means(store=MemoryStore(), models={}))
    picture = Image(url="http://127.0.0.1/a.png")
    accepted = RunAccepted(input=(Text("one"), picture), models=(ModelChoice("model"),))
    run_id = await runs.accept(accepted)
    await runs.edit(run_id, "two", by="ada")
    assert (await runs.state(run_id)).accepted.input == (Text("two"), picture)
    await runs.remove(run_id)
    for late in (runs.edit(run_id, "three"), runs.remove(run_id)):
        with pytest.raises(RunFinished):
            await late


# --- deleting


async def test_a_run_that_nobody_holds_is_ended_by_whoever_deletes_it():
    model, pay = two_questions()
    async with stage(model, pay) as play:
        run_id, _ = await asked(play, 2)
        await play.runs.delete(run_id, by="ada")
        journal = await play.means.store.read(run_id, deleted=True)
        assert isinstance(journal[-1].event, RunCancelled)
        assert [one.event.by for one in journal if isinstance(one.event, StopRequested)] == ["ada"]


async def test_a_run_under_way_is_ended_by_its_worker_when_it_is_deleted():
    async with stage(ScriptedModel(["Hel", Silence(1000)])) as play:
        run_id = await play.start()
        await play.until(run_id, ModelCalled)
        await play.runs.delete(run_id)
        await anyio.sleep(1)
        journal = await play.means.store.read(run_id, deleted=True)
        assert isinstance(journal[-1].event, RunCancelled)


async def test_a_run_that_was_deleted_takes_nothing_more():
    async with stage(ScriptedModel(["Hello!"])) as play:
        run_id = await play.start()
        await play.ended(run_id)
        await play.runs.delete(run_id)
        for wished in (
            play.runs.delete(run_id),
            play.runs.stop(run_id),
            play.runs.state(run_id),
            play.runs.answer(run_id, "once"),
            play.runs.add(run_id, (Text("more"),)),
        ):
            with pytest.raises(NotFound):
                await wished
