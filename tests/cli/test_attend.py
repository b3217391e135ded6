import signal
from contextlib import aclosing
from functools import partial

import anyio
import pytest

from holdfast.app import App, open_app
from holdfast.cli.attend import LEFT, Attendant, Near
from holdfast.core.events import (
    ApprovalRequested,
    ModelChoice,
    RunAccepted,
    RunCompleted,
    RunStarted,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import Text
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.errors import ModelRefused, StoreUnavailable
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.disk import Disk
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage


class Watcher:
    """A viewer that remembers what it was shown, and does something at a given event."""

    def __init__(self, at=(), do=lambda: None):
        self._at, self._do = at, do
        self.events = []
        self.waits = []
        self.warnings = []

    def begin(self, run_id, journal=(), *, after=0):
        self.begun = (run_id, [recorded.event for recorded in journal])

    def show(self, recorded):
        self.events.append(recorded.event)
        if isinstance(recorded.event, self._at):
            self._do()

    def wait(self, phase, *, now):
        self.waits.append((phase.waiting_for, now - phase.since))

    def warn(self, text):
        self.warnings.append(text)


class Answering:
    """A question that is answered after a while, or never."""

    def __init__(self, request, log, choice, after):
        self.request, self._log, self._choice, self._after = request, log, choice, after
        self._log.append("asked")

    async def ask(self):
        try:
            await anyio.sleep(self._after)
        except BaseException:
            self._log.append("withdrawn")
            raise
        return self._choice

    def remind(self):
        self._log.append("reminded")


async def attend(app, viewer, *, log=None, choice="once", after=0.0, leave=print, approval="ask"):
    log = [] if log is None else log
    attendant = Attendant(
        Near(app),
        viewer,
        ask=lambda request: Answering(request, log, choice, after),
        leave=leave,
    )
    return await attendant.attend(await app.runs.accept(app.prepare("hello", approval=approval)))


def asking(name="pay", **options):
    return ScriptedTool(name, review=Review(gate="ask"), **options)


def opened(*calls, tools=()):
    return open_app(models={"mine": ScriptedModel(*calls)}, tools=tools, clock=anyio.current_time)


def outcomes(viewer):
    return [event.outcome for event in viewer.events if isinstance(event, ToolFinished)]


async def test_a_run_that_completes_exits_with_0():
    viewer = Watcher()
    async with opened(["Hi"]) as app:
        assert await attend(app, viewer) == 0
    assert "Hi" in [event.text for event in viewer.events if isinstance(event, TextStreamed)]


async def test_a_run_that_fails_exits_with_1():
    async with opened([ModelRefused("no")]) as app:
        assert await attend(app, Watcher()) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_stops_the_run(number, code):
    viewer = Watcher(TextStreamed, lambda: signal.raise_signal(number))
    async with opened(["Once", Silence()]) as app:
        assert await attend(app, viewer) == code
    assert StopRequested in map(type, viewer.events)


async def test_a_signal_at_the_very_end_changes_nothing():
    viewer = Watcher(RunCompleted, lambda: signal.raise_signal(signal.SIGINT))
    async with opened(["Hi"]) as app:
        assert await attend(app, viewer) == 0


async def test_a_signal_that_comes_too_late_to_stop_anything_is_let_be():
    """The run ends between the signal and the stop."""
    async with opened(["Hi"]) as app:
        attendant = Attendant(Near(app), Watcher(), ask=None, leave=print)
        await attendant.attend(await app.runs.accept(app.prepare("hello")))

        class Late:
            came, name = anyio.Event(), "Ctrl-C"

        Late.came.set()
        await attendant._stop_when_told(Late)


async def test_a_yes_lets_the_tool_run():
    pay, viewer = asking(), Watcher()
    async with opened([Call("pay")], ["Paid"], tools=[pay]) as app:
        assert await attend(app, viewer) == 0
    assert outcomes(viewer) == ["ok"]


async def test_a_no_does_not():
    pay, viewer = asking(), Watcher()
    async with opened([Call("pay")], ["Not paid"], tools=[pay]) as app:
        assert await attend(app, viewer, choice="deny") == 0
    assert pay.effects == []


async def test_two_questions_are_asked_one_after_the_other():
    pay, log = asking(), []
    async with opened([Call("pay"), Call("pay")], ["Paid"], tools=[pay]) as app:
        assert await attend(app, Watcher(), log=log, after=5) == 0
    assert [entry for entry in log if entry != "reminded"] == ["asked", "asked"]
    assert len(pay.effects) == 2


async def test_a_stop_withdraws_the_question():
    log, viewer = [], Watcher()
    async with (
        opened([Call("pay")], tools=[asking()]) as app,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stop_later)
        assert await attend(app, viewer, log=log, after=1000) == 130
    assert log == ["asked", "reminded", "withdrawn"]


async def stop_later():
    await anyio.sleep(60)
    signal.raise_signal(signal.SIGINT)


async def test_a_stop_in_the_same_breath_as_the_question_keeps_it_from_being_put():
    log, viewer = [], Watcher()
    async with opened([Call("pay")], tools=[asking()]) as app:
        runs = app.runs
        follow = runs.follow

        async def in_one_breath(run_id, *, after):
            async for recorded in follow(run_id, after=after):
                if isinstance(recorded.event, ApprovalRequested):
                    await runs.stop(run_id)
                yield recorded

        runs.follow = in_one_breath
        assert await attend(app, viewer, log=log, after=1000) == 130
    assert "withdrawn" not in log


async def test_an_answer_from_elsewhere_withdraws_the_question():
    log, viewer = [], Watcher()
    async with (
        opened([Call("pay")], ["Paid"], tools=[asking()]) as app,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(answer_elsewhere, app)
        assert await attend(app, viewer, log=log, after=1000) == 0
    assert log[-1] == "withdrawn"
    assert outcomes(viewer) == ["ok"]


async def answer_elsewhere(app):
    await anyio.sleep(60)
    (run_id,) = app.means.store._runs
    await app.runs.answer(run_id, "once")


async def test_an_answer_that_comes_too_late_is_let_be():
    log, viewer = [], Watcher()
    async with opened([Call("pay")], ["Paid"], tools=[asking()]) as app:
        answer = app.runs.answer

        async def somebody_was_quicker(run_id, choice, **options):
            await answer(run_id, "deny")
            return await answer(run_id, choice, **options)

        app.runs.answer = somebody_was_quicker
        assert await attend(app, viewer, log=log) == 0
    assert outcomes(viewer) == ["denied"]


async def test_what_happens_beside_a_question_is_followed_by_a_reminder():
    async def work(use):
        await anyio.sleep(10)
        return "looked"

    look = ScriptedTool("look", work=work, parallel=True)
    log, viewer = [], Watcher(ToolFinished, lambda: log.append("shown"))
    calls = [Call("look"), Call("pay")]
    async with opened(calls, ["Done"], tools=[look, asking(parallel=True)]) as app:
        assert await attend(app, viewer, log=log, after=60) == 0
    assert log[log.index("shown") + 1] == "reminded"
    assert ToolStarted in map(type, viewer.events)


async def test_a_long_silence_is_explained_and_a_question_is_not_talked_over():
    viewer = Watcher()
    script = ([Silence(3.9), "Well", Call("pay")], ["Paid"])
    async with opened(*script, tools=[asking()]) as app:
        await attend(app, viewer, after=60)
    assert viewer.waits == [("first_event", seconds) for seconds in (1.5, 2.0, 2.5, 3.0, 3.5)]


# --- a run that is there already


async def left(app, *events):
    """A run of this app, as far as the last of these events."""
    run_id = await app.runs.accept(app.prepare("hello"))
    async with aclosing(app.runs.follow(run_id)) as journal:
        async for recorded in journal:
            if isinstance(recorded.event, events):
                break
    return run_id


async def test_a_run_is_shown_as_far_as_it_got_and_then_as_it_goes():
    viewer = Watcher()
    async with opened(["Once ", Silence(60), "upon a time"]) as app:
        run_id = await left(app, TextStreamed)
        code = await Attendant(Near(app), viewer, ask=None, leave=print).resume(run_id)
    assert code == 0
    assert viewer.begun[0] == run_id
    assert TextStreamed in map(type, viewer.begun[1])
    assert [event.text for event in viewer.events if isinstance(event, TextStreamed)] == [
        "upon a time"
    ]


async def test_a_run_that_has_ended_meanwhile_is_shown_whole():
    viewer = Watcher()
    async with opened(["Hi"]) as app:
        run_id = await left(app, RunCompleted)
        assert await Attendant(Near(app), viewer, ask=None, leave=print).resume(run_id) == 0
    assert viewer.begun[1][-1] == RunCompleted()
    assert viewer.events == []


async def test_a_question_that_waits_is_put_and_answered_ones_are_not():
    log = []
    async with opened([Call("pay"), Call("pay")], ["Paid"], tools=[asking()]) as app:
        run_id = await left(app, ApprovalRequested)
        pending = (await app.runs.state(run_id)).pending
        await app.runs.answer(run_id, "deny", approval_id=pending[0].request.approval_id)
        ask = partial(Answering, log=log, choice="once", after=1.0)
        assert await Attendant(Near(app), Watcher(), ask=ask, leave=print).resume(run_id) == 0
    assert log.count("asked") == 1


async def test_where_nobody_can_be_asked_it_is_left_once_nothing_else_goes_on():
    async def work(use):
        await anyio.sleep(10)
        return "looked"

    viewer = Watcher()
    look = ScriptedTool("look", work=work, parallel=True)
    calls = [Call("look"), Call("pay")]
    async with opened(calls, ["Done"], tools=[look, asking(parallel=True)]) as app:
        run_id = await left(app, ApprovalRequested)
        assert await Attendant(Near(app), viewer, ask=None, leave=print).resume(run_id) == LEFT
        assert (await app.runs.state(run_id)).status.live
    assert outcomes(viewer) == ["ok"]


@pytest.mark.parametrize(
    ("models", "tools"), [({"other": ScriptedModel()}, ()), ({"mine": ScriptedModel()}, ())]
)
async def test_what_is_not_here_is_not_waited_for(models, tools):
    store = MemoryStore()
    accepted = RunAccepted(input=(Text("hi"),), models=(ModelChoice("mine"),))
    lacking = RunWaiting(what="model" if "other" in models else "tool", name="mine")
    await store.accept("run_1", accepted)
    (lease,) = await store.claim("w", ttl=10.0)
    await store.append(lease, RunStarted(worker="w", epoch=1), lacking, seen=1)
    means = Means(store=store, models=models, tools={})
    runs = Runs(means)
    app = App(runs, Sessions(runs=runs, means=means, workers=lambda: True), means)
    with anyio.fail_after(5):
        assert await Attendant(Near(app), Watcher(), ask=None, leave=print).resume("run_1") == LEFT


async def test_a_store_that_takes_nothing_more_ends_it():
    async with opened(["Once", Silence()]) as app:
        run_id = await left(app, TextStreamed)
        app.means.store.broken = StoreUnavailable("the disk is gone")
        with pytest.raises(StoreUnavailable, match="the disk is gone"):
            await Attendant(Near(app), Watcher(), ask=None, leave=print).resume(run_id)


@pytest.mark.real_time
async def test_a_full_disk_is_named_once_and_the_run_goes_on_when_there_is_room(tmp_path, caplog):
    model = ScriptedModel.by_turn(["Hel", Silence(0.3), "lo"])
    reserve = tmp_path / "journal.db.reserve"
    with Disk() as disk:

        def fill():
            disk.break_for_good("full", on={"write"})
            reserve.unlink()
            # In the way, so that nothing can be set aside.
            reserve.mkdir()

        viewer = Watcher(TextStreamed, fill)
        async with (
            open_sqlite(tmp_path / "journal.db", vfs=disk.name) as store,
            stage(model, store=store, ttl=1.0) as play,
            anyio.create_task_group() as tasks,
        ):

            async def make_room():
                while not viewer.warnings:
                    await anyio.sleep(0.05)
                await anyio.sleep(1.2)
                viewer._do = lambda: None
                disk.mend()
                reserve.rmdir()

            tasks.start_soon(make_room)
            with anyio.fail_after(20):
                assert await attend(App(play.runs, play.sessions, play.means), viewer) == 0
    full = "there is no space left on the disk; the run goes on when there is"
    assert (viewer.warnings[0], viewer.warnings.count(full)) == (full, 1)


async def test_a_run_that_waits_for_its_turn_says_so_until_it_has_begun():
    model = ScriptedModel(["Once", Silence(10)], ["Sure", Silence(5)])
    viewer = Watcher()
    async with stage(model) as play:
        first = await play.say("sun?")
        second = await play.say("rain?")
        app = App(play.runs, play.sessions, play.means)
        attendant = Attendant(Near(app), viewer, ask=None, leave=print, ahead=first.run_id)
        assert await attendant.attend(second.run_id) == 0
    waits = list(dict.fromkeys(what for what, _ in viewer.waits))
    assert waits == ["turn", "next_event"]
