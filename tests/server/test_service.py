import anyio
import apsw
import pytest

from holdfast.app import open_app
from holdfast.config import Settings
from holdfast.errors import NotFound, RunFinished
from holdfast.ports import Review
from holdfast.server.problems import Problem
from holdfast.server.service import LONGEST_WAIT, Service
from holdfast.stores.reading import link
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence

HELLO = b'{"input": "hello"}'


class Talker(ScriptedModel):
    """Says the same to everybody."""

    def _choose(self, request):
        return ["Hello"]


async def submit(service, body=HELLO, *, key=None):
    return await service.submit(body, principal="ada", key=key)


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


async def test_a_queue_that_is_full_takes_no_more_and_says_when_to_come_back(inside):
    async with inside(ScriptedModel([Silence()]), max_queued_runs=0) as served:
        with pytest.raises(Problem) as refusal:
            await submit(served.service)
        assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")
        assert refusal.value.headers == {"Retry-After": "1"}


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
        assert spaced == (first.run_id, True)
        with pytest.raises(Problem) as refusal:
            await submit(served.service, b'{"input":"b"}', key="k")
        assert refusal.value.code == "idempotency_key_conflict"


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
        assert len({run_id for run_id, _ in runs}) == 1
        assert [replayed for _, replayed in runs].count(False) == 1
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
