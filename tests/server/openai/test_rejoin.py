"""Requests that a client sends again by itself, on virtual time. `test_client` has the processes."""

import json

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.core.codec import record
from holdfast.core.events import RunCancelled, RunCompleted, StopRequested
from holdfast.core.messages import Text
from holdfast.server.metrics import Metrics
from holdfast.server.openai.rejoin import RETRIES, cut_off, latest, rejoin, rejoins, sent_again
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.openai.streams import LINGER
from holdfast.server.requests import RunRequest
from holdfast.server.unheard import COME_BACK
from holdfast.testing.scripted import ScriptedModel, Silence
from tests.core.stories import accepted, started
from tests.server.conftest import Inside
from tests.server.openai.test_chat_routes import CHAT, asking, runs
from tests.server.openai.test_response_routes import RESPONSES

FIRST, AGAIN = {RETRIES: "0"}, {RETRIES: "1"}
SESSION = {"X-Session-Id": "talk"}
SLOW = ["a", Silence(3), "b"]


class Caller:
    """One who may leave."""

    def __init__(self):
        self._leave, self._gone = (lambda: None), False

    def when_gone(self, leave):
        self._leave = leave
        if self._gone:
            leave()

    def leave(self):
        self._gone = True
        self._leave()

    def hang_up(self):
        self.leave()


def request(path=CHAT, **fields):
    return asking(**fields) if path == CHAT else {"model": "demo", "input": "hi", **fields}


async def lose_the_line(served, tasks, path, fields, headers=FIRST):
    """Ask, and be gone in a second."""
    caller = Caller()

    async def ask():
        await served.post(path, fields, headers=headers, caller=caller)

    tasks.start_soon(ask)
    await anyio.sleep(1)
    caller.leave()
    await anyio.sleep(0.1)


def again(served):
    """The same server after a crash, as far as anybody can tell."""
    return Inside(served.app, served.settings, Metrics())


# --- decisions


@pytest.mark.parametrize(
    ("said", "is_so"),
    [("1", True), ("12", True), ("01", True), ("0", False), ("00", False), ("", False)]
    + [(odd, False) for odd in ("-1", "1.0", "x", " 1", "٣", "9" * 20, "1, 1")],
)
def test_a_client_says_that_it_sends_a_request_again_by_a_number(said, is_so):
    assert sent_again({RETRIES: said}) is is_so
    assert sent_again({}) is False


def test_a_request_is_the_same_if_the_same_asks_for_the_same_of_the_same():
    one = latest(b"{}", principal="ada", of="chat")
    assert (one.principal, one.latest) == ("ada", True)
    assert one == latest(b"{}", principal="ada", of="chat")
    others = {
        latest(b"{}", principal="bob", of="chat"),
        latest(b"{ }", principal="ada", of="chat"),
        latest(b"{}", principal="ada", of="response"),
        latest(b"{}", principal="ada", of="chat s"),
    }
    assert len({(other.principal, other.key) for other in (one, *others)}) == 5


def happened(*events, at=10.0):
    all = (accepted(), *events)
    return [record(seq, at, event) for seq, event in enumerate(all, 1)]


STOP, STOPPED, DONE = StopRequested(), RunCancelled(), RunCompleted()
IN_SESSION, STORED = {"session_id": "s"}, {"store": True}


@pytest.mark.parametrize(
    ("events", "said", "left", "is_so"),
    [
        # Nobody was told, whether there is more to come or not.
        ([started()], {}, True, True),
        ([started(), DONE], {}, True, True),
        ([started(), DONE], IN_SESSION, True, True),
        # Somebody is being told, or seems to be; or has been told all of it.
        ([started()], {}, False, False),
        ([started()], STORED, False, False),
        ([started()], IN_SESSION, False, True),
        ([started(), DONE], IN_SESSION, False, False),
        # It was stopped: for want of readers, or as somebody wished.
        ([started(), STOP], {}, True, False),
        ([started(), STOP, STOPPED], {}, True, False),
        ([started(), STOP, STOPPED], STORED, True, True),
        ([started(), STOP], IN_SESSION, True, True),
        ([started(), STOP], {**IN_SESSION, "on_disconnect": "stop"}, True, False),
    ],
)
def test_who_asks_again_is_led_to_what_nobody_was_told(events, said, left, is_so):
    run = RunRequest(parts=(Text("hi"),), session_id=said.get("session_id", ""))
    more = {name: value for name, value in said.items() if name != "session_id"}
    asked = OpenAIRequest(run=run, **more)
    assert rejoins(happened(*events), asked, left=left) is is_so


def test_nobody_is_led_to_a_run_of_which_nothing_is_known():
    asked = OpenAIRequest(run=RunRequest(parts=(Text("hi"),), session_id="s"))
    assert rejoins((), asked, left=True) is False
    assert cut_off((), began=1, now=1) is False


@pytest.mark.parametrize(
    ("journal", "is_so"),
    [
        (happened(started(), at=99), True),
        (happened(started(), DONE, at=99), False),
        ([*happened(started(), at=99), record(3, 100, DONE)], True),
        (happened(started(), at=100), False),
        (happened(started(), DONE, at=101), False),
    ],
)
def test_who_asked_another_server_was_told_nothing_of_what_had_not_ended(journal, is_so):
    assert cut_off(journal, began=100, now=100 + COME_BACK) is is_so


def test_what_ended_long_ago_is_waited_for_by_nobody():
    journal = [*happened(started(), at=99), record(3, 100, DONE)]
    assert cut_off(journal, began=100, now=101 + COME_BACK) is False
    assert cut_off(happened(started(), at=99), began=100, now=101 + COME_BACK) is True


# --- whoever lost the line


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "headers", "fields"),
    [(CHAT, {}, {}), (CHAT, SESSION, {}), (RESPONSES, {}, {}), (RESPONSES, {}, {"store": False})],
)
async def test_who_lost_the_line_is_led_to_the_run_they_began(
    inside, path, headers, fields, stream
):
    fields = request(path, stream=stream, **fields)
    async with inside(ScriptedModel(SLOW, ["another"])) as served:
        async with task_group() as tasks:
            await lose_the_line(served, tasks, path, fields, {**headers, **FIRST})
            answer = await served.post(path, fields, headers={**headers, **AGAIN})
        (run,) = await runs(served)
        assert (answer.status, answer.headers["x-run-id"]) == (200, run["run_id"])
        assert answer.headers["idempotency-replayed"] == "true"
        whole = (await served.get(f"/v1/runs/{run['run_id']}")).json
        assert (whole["status"], whole["output"]) == ("completed", "ab")
        # The answer was told, and is nobody else's.
        other = await served.post(path, fields, headers={**headers, **AGAIN})
        assert other.headers["x-run-id"] != run["run_id"]


@pytest.mark.parametrize(("path", "headers"), [(CHAT, {}), (CHAT, SESSION), (RESPONSES, {})])
async def test_who_comes_back_when_the_run_has_ended_is_told_how(inside, path, headers):
    async with inside(ScriptedModel(SLOW)) as served, task_group() as tasks:
        await lose_the_line(served, tasks, path, request(path), {**headers, **FIRST})
        await anyio.sleep(60)
        answer = await served.post(path, request(path), headers={**headers, **AGAIN})
        (run,) = await runs(served)
        assert (answer.status, answer.headers["x-run-id"]) == (200, run["run_id"])


async def test_a_response_in_the_background_whose_asker_is_gone_is_begun_once(inside):
    fields, gone = request(RESPONSES, background=True), Caller()
    async with inside(ScriptedModel(SLOW, SLOW)) as served:
        gone.leave()
        await served.post(RESPONSES, fields, headers=FIRST, caller=gone)
        answer = await served.post(RESPONSES, fields, headers=AGAIN)
        (run,) = await runs(served)
        assert answer.headers["x-run-id"] == run["run_id"]
        other = await served.post(RESPONSES, fields, headers=AGAIN)
        assert other.headers["x-run-id"] != run["run_id"]


async def test_who_loses_the_line_over_and_over_is_led_there_each_time(inside):
    async with inside(ScriptedModel(["a", Silence(20), "b"])) as served, task_group() as tasks:
        for number in range(4):
            await lose_the_line(served, tasks, CHAT, request(), {RETRIES: str(number)})
            await anyio.sleep(LINGER - 2)
        answer = await served.post(CHAT, request(), headers={RETRIES: "4"})
        (run,) = await runs(served)
        assert (answer.status, run["status"]) == (200, "completed")


@pytest.mark.parametrize("wait", [LINGER - 0.2, LINGER])
async def test_a_run_that_was_stopped_for_want_of_readers_is_asked_for_anew(inside, wait):
    async with inside(ScriptedModel(["a", Silence(10)], ["b"])) as served, task_group() as tasks:
        await lose_the_line(served, tasks, CHAT, request())
        await anyio.sleep(wait)
        answer = await served.post(CHAT, request(), headers=AGAIN)
        late = wait == LINGER
        assert served.service.unheard._left == {}
        assert answer.status == 200
        told = answer.json["choices"][0]["message"]["content"]
        assert (told, len(await runs(served))) == (("b", 2) if late else ("a", 1))


async def test_a_run_is_not_stopped_while_somebody_is_coming_back_for_it(inside):
    async with inside(ScriptedModel(["a", Silence()])) as served, task_group() as tasks:
        await lose_the_line(served, tasks, CHAT, request())
        await anyio.sleep(LINGER - 1)
        (once,) = served.service.unheard._left
        asked = OpenAIRequest(run=RunRequest(parts=(Text("hi"),)))
        assert await rejoin(served.service, once, asked, ())
        await anyio.sleep(LINGER - 1)
        assert [run["status"] for run in await runs(served)] == ["running"]
        await anyio.sleep(2)
        assert [run["status"] for run in await runs(served)] == ["cancelled"]


async def test_the_same_asked_on_purpose_is_another_run(inside):
    async with inside(ScriptedModel(SLOW, ["b"], ["c"])) as served, task_group() as tasks:
        await lose_the_line(served, tasks, RESPONSES, request(RESPONSES))
        second = await served.post(RESPONSES, request(RESPONSES), headers=FIRST)
        # Whoever comes back now asked after that one, which was told.
        third = await served.post(RESPONSES, request(RESPONSES), headers=AGAIN)
        assert second.headers["x-run-id"] != third.headers["x-run-id"]
        assert len(await runs(served)) == 3


async def test_each_of_many_who_asked_alike_is_told_an_answer_of_their_own(inside):
    many, told = 5, []

    async def come_back():
        told.append((await served.post(CHAT, request(), headers=AGAIN)).headers["x-run-id"])

    async with inside(ScriptedModel(*[["a", Silence(30), "b"]] * many)) as served:
        async with task_group() as tasks:
            callers = [Caller() for _ in range(many)]
            for caller in callers:
                ask = lambda caller=caller: served.post(CHAT, request(), caller=caller)  # noqa: E731
                tasks.start_soon(ask)
            await anyio.sleep(1)
            for caller in callers:
                caller.leave()
            await anyio.sleep(1)
            async with task_group() as coming:
                for _ in callers:
                    coming.start_soon(come_back)
        assert sorted(told) == sorted(run["run_id"] for run in await runs(served))


@pytest.mark.parametrize("headers", [{}, SESSION])
async def test_a_line_may_be_lost_without_our_noticing(inside, headers):
    """To say something twice in a session would be wrong; elsewhere each is told of their own."""
    async with inside(ScriptedModel(SLOW, ["b"])) as served, task_group() as tasks:
        ask = lambda: served.post(CHAT, request(), headers={**headers, **FIRST})  # noqa: E731
        tasks.start_soon(ask)
        await anyio.sleep(1)
        await served.post(CHAT, request(), headers={**headers, **AGAIN})
        assert len(await runs(served)) == (1 if headers else 2)


async def test_who_asks_again_waits_for_what_is_being_taken_in(inside):
    asked = OpenAIRequest(run=RunRequest(parts=(Text("hi"),), session_id="s"))
    once, found = latest(b"{}", principal="ada", of="chat"), []

    async def come_back():
        with served.service.unheard.taking(once, again=True) as before:
            found.append(await rejoin(served.service, once, asked, before))

    async with inside(ScriptedModel([Silence()])) as served:
        async with task_group() as tasks:
            with served.service.unheard.taking(once, again=False):
                tasks.start_soon(come_back)
                await anyio.sleep(5)
                submitted = await served.service.take_in(asked.run, principal="ada", once=once)
                assert found == []
        assert found == [submitted.run_id]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "of"), [(CHAT, "chat"), (RESPONSES, "response")])
async def test_who_lost_the_line_before_the_run_began_is_led_to_it(inside, path, of, stream):
    fields, gone, answers = request(path, stream=stream), Caller(), []
    once = latest(json.dumps(fields).encode(), principal="ada", of=of)

    async def ask(caller):
        answers.append(await served.post(path, fields, headers=AGAIN, caller=caller))

    async with inside(ScriptedModel(SLOW, ["another"])) as served:
        async with task_group() as tasks:
            # Both wait for this one, which is never taken in; and one leaves before it is.
            with served.service.unheard.taking(once, again=False):
                tasks.start_soon(ask, gone)
                await anyio.sleep(1)
                gone.leave()
                tasks.start_soon(ask, None)
                await anyio.sleep(1)
        (run,) = await runs(served)
        assert answers[-1].headers["x-run-id"] == run["run_id"]
        # It was told, and is nobody else's.
        await ask(None)
        assert answers[-1].headers["x-run-id"] != run["run_id"]


async def test_nobody_is_led_to_a_run_that_is_gone(inside):
    async with inside(ScriptedModel(["a"])) as served:
        asked = OpenAIRequest(run=RunRequest(parts=(Text("hi"),)))
        once = latest(b"{}", principal="ada", of="chat")
        served.service.unheard.leave(once, "run_none")
        assert await rejoin(served.service, once, asked, ()) is None


async def test_a_request_that_is_refused_again_changes_nothing(inside):
    async with inside(ScriptedModel(SLOW), max_queued_runs=1) as served, task_group() as tasks:
        await lose_the_line(served, tasks, RESPONSES, request(RESPONSES))
        (run,) = await runs(served)
        served.service.draining.set()
        served.service.left.set()
        for _ in range(2):
            answer = await served.post(RESPONSES, request(RESPONSES), headers=AGAIN)
            assert (answer.status, answer.headers["x-run-id"]) == (503, run["run_id"])
            assert "x-should-retry" not in answer.headers
            other = await served.post(CHAT, request(), headers=AGAIN)
            assert (other.status, "x-run-id" in other.headers) == (503, False)
        assert len(await runs(served)) == 1


# --- whoever asked another server


@pytest.mark.parametrize("wait", [0, 60])
@pytest.mark.parametrize(("path", "headers"), [(CHAT, {}), (CHAT, SESSION), (RESPONSES, {})])
async def test_who_asked_a_server_that_died_is_led_to_the_run_by_the_next(
    inside, path, headers, wait
):
    async with inside(ScriptedModel(SLOW, ["b"])) as served:
        ask = {"headers": {**headers, **FIRST}, "patience": 1}
        with pytest.raises(IndexError):  # there is no answer
            await served.post(path, request(path), **ask)
        (run,) = await runs(served)
        later = again(served)
        await anyio.sleep(wait)
        answer = await later.post(path, request(path), headers={**headers, **AGAIN})
        assert (answer.status, answer.headers["x-run-id"]) == (200, run["run_id"])
        # It was told now.
        other = await later.post(path, request(path), headers={**headers, **AGAIN})
        assert other.headers["x-run-id"] != run["run_id"]


async def test_what_had_ended_when_the_server_began_is_told_to_nobody_again(inside):
    async with inside(ScriptedModel(["a"], ["b"])) as served:
        first = await served.post(CHAT, request(), headers=FIRST)
        second = await again(served).post(CHAT, request(), headers=AGAIN)
        assert first.headers["x-run-id"] != second.headers["x-run-id"]
