import contextlib
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import apsw
import pytest
from msgspec import UNSET

from holdfast.app import open_app
from holdfast.calls.tasks import task_group
from holdfast.config import Settings
from holdfast.core.events import InputAdded, StopRequested
from holdfast.core.messages import Text, UserMessage, plain
from holdfast.core.secrets import Secrets
from holdfast.core.session import SessionCreated
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import MOST_WAITING
from holdfast.errors import NotFound, RunFinished, RunStopping, SessionGone
from holdfast.ports import Review
from holdfast.server.problems import Problem
from holdfast.server.requests import read_run
from holdfast.server.service import LONGEST_WAIT, Service
from holdfast.stores.memory import MemoryStore
from holdfast.stores.reading import link
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage
from tests.server.conftest import DEMO

HELLO = b'{"input": "hello"}'
ASK = Review(gate="ask", reason="it spends money", subject="pay 1", key="pay")


class Talker(ScriptedModel):
    """Says the same to everybody."""

    def _choose(self, request):
        return ["Hello"]


async def submit(service, body=HELLO, *, key=None, by="ada"):
    once = service.once(body, principal=by, key=key)
    return await service.take_in(read_run(body), principal=by, once=once)


async def ended(service, run_id):
    status = await service.status(run_id, wait=30)
    assert status.status in {"completed", "failed", "cancelled"}
    return status


async def many(served, count, **fields):
    runs = [await served.run(**fields) for _ in range(count)]
    for run_id in runs:
        await ended(served.service, run_id)
    return runs


# --- waiting


async def test_whoever_waits_is_answered_as_soon_as_the_run_has_ended(inside):
    async with inside(ScriptedModel([Silence(5), "Hello"])) as served:
        run_id = (await submit(served.service)).run_id
        began = anyio.current_time()
        status = await served.service.status(run_id, wait=30)
        assert status.status == "completed"
        assert 5 <= anyio.current_time() - began < 6


async def test_nobody_waits_longer_than_asked_nor_longer_than_there_is_patience_for(inside):
    async with inside(ScriptedModel(["Hi", Silence()])) as served:
        run_id = (await submit(served.service)).run_id
        for wait, waited in ((0, 0), (2, 2), (1e6, LONGEST_WAIT)):
            began = anyio.current_time()
            assert (await served.service.status(run_id, wait=wait)).status in {"queued", "running"}
            assert anyio.current_time() - began == pytest.approx(waited, abs=0.5)


async def test_a_run_that_has_ended_is_not_waited_for(inside):
    async with inside(ScriptedModel(["Hello"])) as served:
        run_id = (await submit(served.service)).run_id
        await ended(served.service, run_id)
        began = anyio.current_time()
        await served.service.status(run_id, wait=30)
        assert anyio.current_time() == began


async def test_nobody_is_kept_waiting_by_a_server_that_leaves(inside):
    async with inside(ScriptedModel(["Hi", Silence()])) as served:
        run_id = (await submit(served.service)).run_id
        began = anyio.current_time()

        async def leave():
            await anyio.sleep(3)
            served.service.left.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            assert (await served.service.status(run_id, wait=30)).status == "running"
        assert anyio.current_time() - began == pytest.approx(3, abs=0.5)


# --- lists


async def pages(service, **query):
    """The ids on each page."""
    found, after = [], ""
    while True:
        page = await service.list({**query, "after": after})
        found.append([status.run_id for status in page.data])
        if not page.has_more:
            assert page.next == ""
            return found
        assert page.next
        after = page.next


async def test_pages_hold_what_was_asked_for_and_every_run_is_on_one_of_them(inside):
    async with inside(Talker()) as served:
        runs = await many(served, 7)
        found = await pages(served.service, limit="3")
        assert [len(page) for page in found] == [3, 3, 1]
        assert [run_id for page in found for run_id in page] == runs[::-1]
        assert await pages(served.service, limit="7") == [runs[::-1]]
        assert await pages(served.service) == [runs[::-1]]


async def test_a_page_by_status_is_full_however_far_apart_the_runs_are(inside):
    async with inside(
        ScriptedModel(*([["Hello"]] * 2 + [[Call("none")]] + [["Hi"]] * 5))
    ) as served:
        runs = []
        for _ in range(7):
            run_id = await served.run()
            runs.append(run_id)
            await ended(served.service, run_id)
        statuses = [(await served.service.status(run_id)).status for run_id in runs]
        for wanted in ("completed", "failed"):
            meant = [r for r, s in zip(runs, statuses, strict=True) if s == wanted][::-1]
            found = await pages(served.service, status=wanted, limit="2")
            assert [run_id for page in found for run_id in page] == meant
            assert all(len(page) == 2 for page in found[:-1])


async def test_a_status_that_few_runs_have_is_found_behind_many_that_have_another(inside):
    async with inside(Talker()) as served:
        first = await served.run(session_id="s")
        await served.service.stop(first, b"", principal="ada")
        assert (await ended(served.service, first)).status == "cancelled"
        await many(served, 5)
        page = await served.service.list({"status": "cancelled", "limit": "1"})
        assert [status.run_id for status in page.data] == [first]
        assert not page.has_more
        assert (await served.service.list({"status": "failed", "limit": "1"})).data == []


async def test_no_page_takes_longer_to_find_than_it_may(inside):
    async with inside(Talker()) as served:
        first = await served.run()
        await served.service.stop(first, b"", principal="ada")
        await ended(served.service, first)
        await many(served, 9)
        served.service.most_looked = 4
        page = await served.service.list({"status": "cancelled", "limit": "1"})
        assert page.data == [] and page.has_more
        found = await pages(served.service, status="cancelled", limit="1")
        assert [run_id for page in found for run_id in page] == [first] and len(found) > 2


@pytest.mark.real_time
async def test_a_run_that_cannot_be_read_is_marked_and_hides_no_other(tmp_path):
    models = {"main": ScriptedModel([Silence()], [Silence()])}
    async with open_app(data=tmp_path, models=models) as app:
        spoilt, fine = [await app.runs.accept(app.prepare("hi")) for _ in range(2)]
        await anyio.sleep(0.1)
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    connection.execute("update event set body = x'00' where run = 1 and seq = 2")
    connection.close()
    async with open_app(data=tmp_path, models=models, work=False) as app:
        service = Service(app.runs, app.means, Settings(data=tmp_path))
        page = await service.list({})
    assert [(status.run_id, status.status) for status in page.data] == [
        (fine, "queued"),
        (spoilt, "damaged"),
    ]
    assert page.data[1].error_code == "journal_damaged" and "damaged at 2" in page.data[1].error


@pytest.mark.real_time
async def test_a_run_whose_journal_makes_no_sense_is_marked_too(tmp_path):
    models = {"main": ScriptedModel([Silence()])}
    async with open_app(data=tmp_path, models=models, work=False) as app:
        run_id = await app.runs.accept(app.prepare("hi"))
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    at, body, sum = connection.execute("select at, body, sum from event").get
    again = (1, 2, at, body, link(sum, 2, at, body))
    insert = "insert into event (run, seq, at, body, sum) values (?, ?, ?, ?, ?)"
    connection.execute(insert, again)
    connection.close()
    async with open_app(data=tmp_path, models=models, work=False) as app:
        service = Service(app.runs, app.means, Settings(data=tmp_path))
        page = await service.list({})
    assert [(status.run_id, status.status) for status in page.data] == [(run_id, "damaged")]


@pytest.mark.real_time
async def test_a_run_whose_end_cannot_be_read_does_not_end_the_list(tmp_path):
    models = {"main": ScriptedModel()}
    async with open_app(data=tmp_path, models=models, work=False) as app:
        *runs, spoilt = [await app.runs.accept(app.prepare("hi")) for _ in range(6)]
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    connection.execute("update event set body = cast('nonsense' as blob) where run = 6")
    connection.close()
    async with open_app(data=tmp_path, models=models, work=False) as app:
        service = Service(app.runs, app.means, Settings(data=tmp_path))
        found = await pages(service, limit="2")
    assert [run_id for page in found for run_id in page] == runs[::-1] and spoilt not in runs


async def test_a_list_is_by_session(inside):
    async with inside(Talker()) as served:
        mine = await many(served, 2, session_id="mine")
        await many(served, 2, session_id="other")
        page = await served.service.list({"session_id": "mine"})
        assert [status.run_id for status in page.data] == mine[::-1]
        assert {status.session_id for status in page.data} == {"mine"}


async def test_live_runs_are_listed_as_they_stand(inside):
    pay = ScriptedTool(review=Review(gate="ask"))
    async with inside(ScriptedModel([Call("pay")], [Silence()]), pay) as served:
        asking = await served.run()
        assert (await served.service.status(asking, wait=1)).status == "waiting_for_approval"
        silent = await served.run()
        await served.service.status(silent, wait=1)
        for wanted, run_id in (("waiting_for_approval", asking), ("running", silent)):
            page = await served.service.list({"status": wanted})
            assert [status.run_id for status in page.data] == [run_id]
        assert page.data[0] == await served.service.status(silent)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "few"}, "limit"),
        ({"status": "tired"}, "status"),
    ],
)
async def test_a_filter_that_is_none_is_refused_by_its_name(inside, query, param):
    async with inside(Talker()) as served:
        with pytest.raises(Problem) as refusal:
            await served.service.list(query)
        assert (refusal.value.status, refusal.value.complaint.param) == (400, param)


async def test_a_cursor_that_is_no_run_is_not_found(inside):
    async with inside(Talker()) as served:
        with pytest.raises(NotFound):
            await served.service.list({"after": "run_none"})


# --- taking in


async def test_what_is_said_to_a_run_under_way_needs_no_room_and_is_heard_by_who_leaves(inside):
    full = {"max_concurrent_runs": 1, "max_queued_runs": 0}
    async with inside(ScriptedModel(["one", Silence()]), **full) as served:
        first = await begun(served)
        assert await say(served, "psst", on_busy="steer") == (first, False, "steered")
        with pytest.raises(Problem, match=first) as refusal:
            await say(served, on_busy="reject")
        assert refusal.value.code == "session_busy"
        served.service.draining.set()
        assert await say(served, "psst", on_busy="steer") == (first, False, "steered")
        with pytest.raises(Problem) as refusal:
            await say(served, "more", on_busy="queue")
        assert refusal.value.status == 503


async def test_a_queue_that_is_full_takes_no_more_and_says_when_to_come_back(inside):
    full = {"max_concurrent_runs": 1, "max_queued_runs": 0}
    async with inside(ScriptedModel([Silence()]), **full) as served:
        taken = await submit(served.service, key="k")
        with pytest.raises(Problem) as refusal:
            await submit(served.service)
        assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")
        assert refusal.value.headers == {"Retry-After": "1"}
        # Who was let in before is told the same again.
        assert (await submit(served.service, key="k")).run_id == taken.run_id


async def test_of_many_who_come_at_once_no_more_are_taken_in_than_may_wait(inside):
    limits = {"max_concurrent_runs": 1, "max_queued_runs": 7}
    async with inside(ScriptedModel([Silence()]), **limits) as served:
        # Whatever is said in a session waits until the first run of it has ended.
        said, taken, refused = b'{"input": "hello", "session_id": "s"}', [], []
        for _ in range(4):
            await submit(served.service, said)

        async def take():
            try:
                taken.append((await submit(served.service, said)).how)
            except Problem as refusal:
                refused.append(refusal.code)

        async with task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(take)
        assert (taken, refused) == (["queued"] * 4, ["rate_limit_exceeded"] * 46)
        assert (await served.service.store.census()).queued == 7


class Looked(MemoryStore):
    """Counts how often it is looked how a session is."""

    looks = 0

    async def session(self, session_id):
        self.looks += 1
        return await super().session(session_id)


async def test_a_session_is_looked_up_once_for_what_is_said_in_it(tmp_path):
    store = Looked()
    async with stage({"demo": ScriptedModel([Silence()])}, store=store) as play:
        service = Service(play.runs, play.means, Settings(tmp_path), sessions=play.sessions)
        await submit(service, b'{"input": "a", "session_id": "s"}')
        for busy, how in (("queue", "queued"), ("steer", "steered")):
            body = {"input": "b", "session_id": "s", "on_busy": busy}
            store.looks = 0
            sent = await submit(service, json.dumps(body).encode())
            assert (sent.how, store.looks) == (how, 1)


@pytest.mark.real_time
async def test_of_many_who_ask_a_server_at_once_no_more_are_taken_in_than_may_wait(server):
    await server.start_host("max_concurrent_runs = 1\nmax_queued_runs = 7\n" + DEMO)
    await server.reached(await server.run([[{"wait": 600}]]), "running")
    statuses = []

    async def ask():
        statuses.append((await server.post("/v1/runs", {"input": "hello"})).status)

    async with task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(ask)
    assert sorted(statuses) == [202] * 7 + [429] * 53


@pytest.mark.real_time
async def test_a_server_without_a_queue_takes_as_many_at_once_as_it_can_carry(server):
    await server.start_host("max_concurrent_runs = 20\nmax_queued_runs = 0\n" + DEMO)
    statuses = []

    async def ask():
        script = json.dumps([[{"wait": 600}]])
        statuses.append((await server.post("/v1/runs", {"input": script})).status)

    async with task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(ask)
    assert sorted(statuses) == [202] * 20 + [429] * 10


async def test_a_server_that_leaves_takes_nothing_new_and_still_answers_for_what_it_took(inside):
    async with inside(Talker()) as served:
        taken = await submit(served.service, key="k")
        served.service.draining.set()
        with pytest.raises(Problem) as refusal:
            await submit(served.service)
        assert (refusal.value.status, refusal.value.code) == (503, "gateway_draining")
        again = await submit(served.service, key="k")
        assert (again.run_id, again.replayed) == (taken.run_id, True)
        assert (await ended(served.service, taken.run_id)).status == "completed"


async def test_a_key_stands_for_one_request_however_it_is_written(inside):
    async with inside(Talker()) as served:
        first = await submit(served.service, b'{"input":"a","model":"m"}', key="k")
        spaced = await submit(served.service, b'{ "model": "m", "input": "a" }', key="k")
        assert spaced == (first.run_id, True, "started")
        with pytest.raises(Problem) as refusal:
            await submit(served.service, b'{"input":"b"}', key="k")
        assert refusal.value.code == "idempotency_key_conflict"


async def test_a_key_stands_for_a_request_of_whoever_sent_it(inside):
    async with inside(Talker()) as served:
        of_ada = await submit(served.service, key="k")
        of_bob = await submit(served.service, key="k", by="bob")
        assert not of_bob.replayed and of_bob.run_id != of_ada.run_id
        # Nor does anyone learn what others have used.
        await submit(served.service, b'{"input": "bye"}', key="k", by="eve")
        assert (await submit(served.service, key="k", by="bob")).run_id == of_bob.run_id


async def test_the_same_request_at_the_same_time_is_taken_in_once(inside):
    async with inside(Talker()) as served:
        taken = []

        async def take(body):
            try:
                taken.append(await submit(served.service, body, key="k"))
            except Problem as refusal:
                taken.append(refusal.code)

        async with anyio.create_task_group() as tasks:
            for body in (HELLO, HELLO, HELLO, b'{"input": "bye"}'):
                tasks.start_soon(take, body)
        assert taken.count("idempotency_key_conflict") in {1, 3}
        runs = [one for one in taken if one != "idempotency_key_conflict"]
        assert len({one.run_id for one in runs}) == 1
        assert [one.replayed for one in runs].count(False) == 1
        assert len((await served.service.list({})).data) == 1


async def test_what_was_said_of_a_run_at_its_start_is_found_in_its_status(inside):
    async with inside(Talker()) as served:
        run_id = await served.run(metadata={"for": "me"}, session_id="s")
        status = await ended(served.service, run_id)
        assert (status.metadata, status.session_id) == ({"for": "me"}, "s")
        (listed,) = (await served.service.list({})).data
        assert (listed.metadata, listed.status, listed.seq) == (
            {"for": "me"},
            "completed",
            status.seq,
        )


# --- wishes


async def test_a_run_that_never_was_is_not_found_whatever_the_answer_says(inside):
    async with inside(Talker()) as served:
        with pytest.raises(NotFound):
            await served.service.answer("run_none", b"nonsense", principal="ada")
        with pytest.raises(NotFound):
            await served.service.exists("run_none")


async def test_a_run_that_has_ended_is_said_to_have(inside):
    async with inside(Talker()) as served:
        run_id = await served.run()
        await ended(served.service, run_id)
        with pytest.raises(RunFinished):
            await served.service.stop(run_id, b"", principal="ada")


async def test_why_a_run_was_stopped_and_by_whom_is_on_record(inside):
    async with inside(ScriptedModel([Silence()])) as served:
        run_id = await served.run()
        told = await served.service.stop(run_id, b'{"reason": "enough"}', principal="ada")
        assert told == "stopping"
        journal = await served.service.journal(run_id)
        stop = next(r.event for r in journal if hasattr(r.event, "reason"))
        assert (stop.reason, stop.by) == ("enough", "ada")


# --- in a session


async def say(served, text="hello", *, key=None, session="s", **fields):
    body = json.dumps({"input": text, "session_id": session, **fields}).encode()
    return await submit(served.service, body, key=key)


async def begun(served, **fields):
    """A run of the session that is under way."""
    run_id = (await say(served, **fields)).run_id
    await served.service.status(run_id, wait=1)
    return run_id


def heard(served):
    """What the model was told in its last call, by people."""
    said = served.app.means.models["demo"].requests[-1].messages
    return [plain(one.parts) for one in said if isinstance(one, UserMessage)]


async def test_a_message_to_a_busy_session_waits_and_says_what_for(inside):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"]), ScriptedTool()) as served:
        first = await begun(served)
        second = await say(served, "second")
        assert second.how == "queued"
        told = await served.service.status(second.run_id)
        assert (told.status, told.waiting_for.waiting_for) == ("queued", "turn")
        assert (told.waiting_for.name, told.behind.run_id) == (first, first)
        assert (told.behind.status, told.behind.waiting_for.name) == ("running", "demo")
        listed = {one.run_id: one for one in (await served.service.list({})).data}
        assert listed[second.run_id].behind.run_id == first
        done = await ended(served.service, second.run_id)
        assert done.status == "completed" and done.behind is UNSET
        assert heard(served) == ["hello", "second"]


async def test_a_run_that_is_about_to_begin_waits_for_no_other():
    async with open_app(models={"demo": ScriptedModel()}, work=False) as app:
        service = Service(app.runs, app.means, Settings(data=Path("nowhere")))
        run_id = (await submit(service, b'{"input": "hi", "session_id": "s"}')).run_id
        await app.means.store.seize(run_id, "worker", ttl=10)
        told = await service.status(run_id)
        assert (told.status, told.waiting_for.waiting_for, told.behind) == (
            "queued",
            "worker",
            UNSET,
        )


async def test_a_message_that_waits_says_what_question_it_waits_for(inside):
    model = ScriptedModel([Call("pay")], ["paid"])
    async with inside(model, ScriptedTool(review=ASK)) as served:
        first = await begun(served)
        second = await say(served, "second")
        ahead = (await served.service.status(second.run_id)).behind
        assert (ahead.status, ahead.waiting_for.waiting_for) == ("waiting_for_approval", "approval")
        assert ahead.approvals[0]["command"] == "pay 1"
        await served.service.answer(first, b'{"choice": "deny"}', principal="ada")
        assert (await ended(served.service, first)).status == "completed"


@pytest.mark.real_time
async def test_a_message_that_waits_behind_what_nobody_can_read_says_so(tmp_path):
    models = {"demo": ScriptedModel()}
    async with open_app(data=tmp_path, models=models, work=False) as app:
        service = Service(app.runs, app.means, Settings(data=tmp_path), sessions=app.sessions)
        body = b'{"input": "hello", "session_id": "s"}'
        first, second = [(await submit(service, body)).run_id for _ in range(2)]
        await service.steer(first, b'{"input": "psst"}', principal="ada")
    with closing(apsw.Connection(str(tmp_path / "journal.db"))) as db:
        db.execute("update event set at = at + 1 where run = 1 and seq = 2")
    async with open_app(data=tmp_path, models=models, work=False) as app:
        service = Service(app.runs, app.means, Settings(data=tmp_path), sessions=app.sessions)
        told = await service.status(second)
        assert (told.behind.run_id, told.behind.status) == (first, "damaged")


async def test_a_message_may_be_refused_while_a_run_is_under_way(inside):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"])) as served:
        first = await begun(served)
        with pytest.raises(Problem, match=first) as refusal:
            await say(served, on_busy="reject")
        assert refusal.value.code == "session_busy"
        assert refusal.value.headers == {"X-Run-Id": first}
        await ended(served.service, first)
        assert (await say(served, on_busy="reject")).how == "started"


async def test_a_message_may_stop_the_run_that_is_under_way(inside):
    async with inside(ScriptedModel(["one", Silence()], ["two"])) as served:
        first = await begun(served)
        second = await say(served, "second", on_busy="interrupt")
        assert (await ended(served.service, second.run_id)).output == "two"
        assert (await ended(served.service, first)).status == "cancelled"


@pytest.mark.parametrize("named", [{"key": "k"}, {"message_id": "mine"}])
async def test_a_message_to_the_run_under_way_is_heard_once_however_often_it_comes(inside, named):
    model = ScriptedModel(["one", Silence(20)], ["two"], ["three"])
    async with inside(model) as served:
        first = await begun(served)
        sent = await say(served, "psst", on_busy="steer", **named)
        assert sent == (first, False, "steered")
        assert await say(served, "psst", on_busy="steer", **named) == (first, True, "steered")
        assert (await ended(served.service, first)).output == "two"
        # Even when the run it was said to has ended.
        assert await say(served, "psst", on_busy="steer", **named) == (first, True, "steered")
        assert heard(served) == ["hello", "psst"]
        assert len((await served.service.list({})).data) == 1
        assert (await say(served, "psst", on_busy="steer")).how == "started"


async def test_a_message_that_began_a_run_is_not_taken_for_one_that_was_said_to_it_since(inside):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"])) as served:
        first = await begun(served, on_busy="steer", key="k")
        assert (await say(served, "psst", on_busy="steer")).how == "steered"
        assert await say(served, on_busy="steer", key="k") == (first, True, "started")
        await ended(served.service, first)


async def test_a_message_under_a_key_and_the_id_of_another_is_that_one_or_is_refused(inside):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"])) as served:
        secrets = Secrets(["hunter2hunter2"])
        means = replace(served.app.means, secrets=secrets)
        served.service = Service(Runs(means), means, served.settings)
        first = await begun(served)
        psst = {"text": "psst, hunter2hunter2", "on_busy": "steer", "message_id": "mine"}
        assert await say(served, **psst, key="k") == (first, False, "steered")
        assert await say(served, **psst, key="l") == (first, True, "steered")
        with pytest.raises(Problem) as refusal:
            await say(served, **{**psst, "text": "other"}, key="m")
        assert refusal.value.code == "idempotency_key_conflict"
        await ended(served.service, first)


async def test_a_key_of_a_message_to_the_run_under_way_stands_for_that_message(inside):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"])) as served:
        first = await begun(served)
        await say(served, "psst", on_busy="steer", key="k")
        with pytest.raises(Problem) as refusal:
            await say(served, "other", on_busy="steer", key="k")
        assert refusal.value.code == "idempotency_key_conflict"
        await ended(served.service, first)


async def test_a_message_that_nobody_heard_for_a_stop_is_carried_by_a_run_of_its_own(inside):
    async with inside(ScriptedModel(["one", Silence()], ["two"])) as served:
        first = await begun(served)
        wish = InputAdded(parts=(Text("psst"),), message_id="mine")
        await served.service.store.wish(first, StopRequested())
        with contextlib.suppress(RunFinished, RunStopping):
            await served.service.store.wish(first, wish)
        sent = await say(served, "psst", on_busy="steer", message_id="mine")
        assert sent.run_id != first and not sent.replayed
        assert (await ended(served.service, sent.run_id)).output == "two"


async def test_a_message_that_began_a_run_is_not_sent_again_under_its_id(inside):
    async with inside(ScriptedModel(["one"])) as served:
        first = await say(served, "hi", on_busy="steer", message_id="mine")
        await ended(served.service, first.run_id)
        again = await say(served, "hi", on_busy="steer", message_id="mine")
        assert again == (first.run_id, True, "started")


async def test_a_message_whose_run_was_deleted_is_not_said_again(inside):
    async with inside(ScriptedModel(["one"])) as served:
        first = await say(served, "hi", on_busy="steer", message_id="mine")
        await ended(served.service, first.run_id)
        await served.service.runs.delete(first.run_id)
        again = await say(served, "hi", on_busy="steer", message_id="mine")
        assert again == (first.run_id, True, "started")


async def test_a_run_waits_for_one_that_was_deleted_until_that_has_ended(inside):
    async def cling(use):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
        return "late"

    tool = ScriptedTool("cling", work=cling)
    async with inside(ScriptedModel([Call("cling")], ["two"]), tool) as served:
        first = (await say(served)).run_id
        await anyio.sleep(1)
        second = (await say(served, "second")).run_id
        await served.service.runs.delete(first)
        waits = await served.service.status(second)
        assert (waits.status, waits.behind.run_id, waits.behind.status) == (
            "queued",
            first,
            "stopping",
        )
        queue = (await served.get("/v1/sessions/s/queue")).json
        assert (queue["behind"]["run_id"], len(queue["data"])) == (first, 1)
        assert [one.run_id for one in (await served.service.list({})).data] == [second]
        assert (await ended(served.service, second)).output == "two"


async def test_a_repeated_request_that_still_waits_is_told_that_it_does(inside):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"])) as served:
        await begun(served)
        second = await say(served, "second", key="k")
        assert await say(served, "second", key="k") == (second.run_id, True, "queued")
        await ended(served.service, second.run_id)
        assert await say(served, "second", key="k") == (second.run_id, True, "started")


async def test_too_many_messages_in_one_session_are_sent_away_for_a_while(inside):
    async with inside(ScriptedModel(["one", Silence()])) as served:
        await begun(served)
        for _ in range(MOST_WAITING):
            await say(served)
        with pytest.raises(Problem) as refusal:
            await say(served)
        assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")
        assert (await say(served, session="other")).how == "started"


async def test_nothing_is_said_in_a_session_that_was_deleted(inside):
    async with inside(ScriptedModel(["one"])) as served:
        await ended(served.service, (await say(served, key="k")).run_id)
        await served.service.sessions.delete("s")
        with pytest.raises(SessionGone):
            await say(served)
        # What was taken in before is not taken in again, and comes back with its session.
        with pytest.raises(Problem) as refusal:
            await say(served, key="k")
        assert (refusal.value.status, refusal.value.code) == (404, "run_not_found")
        await served.service.sessions.restore("s")
        assert (await say(served, key="k")).replayed


async def test_a_run_that_brings_nothing_gets_what_was_settled_with_its_session(inside):
    async with inside(ScriptedModel(["one"], ["two"])) as served:
        settled = SessionCreated(instructions="be kind", model="mine")
        await served.service.sessions.create("s", settled)
        told = await ended(served.service, (await say(served)).run_id)
        assert told.model == "mine"
        assert "be kind" in served.app.means.models["demo"].requests[-1].instructions
        own = await say(served, model="own", instructions="be brief")
        assert (await ended(served.service, own.run_id)).model == "own"
        given = served.app.means.models["demo"].requests[-1].instructions
        assert "be brief" in given and "be kind" not in given


async def test_a_message_to_a_run_is_taken_to_be_accepted_if_it_was_though_the_run_has_ended(
    inside,
):
    async with inside(ScriptedModel(["one", Silence(20)], ["two"])) as served:
        first = await begun(served)
        body = b'{"input": "psst", "message_id": "mine"}'
        for _ in range(2):
            await served.service.steer(first, body, principal="ada")
        await ended(served.service, first)
        assert heard(served) == ["hello", "psst"]
        await served.service.steer(first, body, principal="ada")
        for other in (b'{"input": "psst"}', b'{"input": "psst", "message_id": "other"}'):
            with pytest.raises(RunFinished):
                await served.service.steer(first, other, principal="ada")


async def test_a_request_that_was_taken_in_is_answered_so_whatever_tools_there_are_now(inside):
    body = b'{"input": "hello", "tools": ["pay"]}'
    async with inside(ScriptedModel(["one"]), ScriptedTool()) as served:
        first = await submit(served.service, body, key="k")
        means = replace(served.app.means, tools={})
        later = Service(served.app.runs, means, served.settings, sessions=served.app.sessions)
        assert await submit(later, body, key="k") == (first.run_id, True, "started")
        with pytest.raises(Problem, match="no tool"):
            await submit(later, body, key="another")
