from itertools import count, groupby, pairwise
from operator import attrgetter

import anyio
import pytest

from holdfast.core.events import (
    ApprovalRequested,
    ModelCalled,
    ModelChoice,
    ModelFailed,
    RunAccepted,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text, ToolMessage, UserMessage, plain
from holdfast.core.usage import Budget
from holdfast.errors import ModelRefused, ModelUnavailable
from holdfast.ports import Review
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

ASK = Review(gate="ask", reason="it costs money", subject="pay 5", key="pay 5")


async def test_a_run_without_tools_is_a_call_and_a_reply():
    async with stage(ScriptedModel(["Hello"])) as play:
        run_id = await play.start()
        state = await play.ended(run_id)
        assert await play.tags(run_id) == [
            "run.accepted",
            "run.started",
            "model.called",
            "model.text",
            "model.replied",
            "run.completed",
        ]
    assert (state.status, state.output) == (Status.COMPLETED, "Hello")


async def test_few_commits_carry_a_run_from_its_beginning_to_its_end():
    """Whoever looks sees one moment for what was written together."""
    ticks = count()
    async with stage(ScriptedModel(["Hello"]), clock=lambda: float(next(ticks))) as play:
        run_id = await play.start()
        await play.ended(run_id)
        journal = await play.means.store.read(run_id)
    together = [
        [str(r.event.__struct_config__.tag) for r in same]
        for _, same in groupby(journal, attrgetter("at"))
    ]
    assert together == [
        ["run.accepted"],
        ["run.started", "model.called"],
        ["model.text"],
        ["model.replied", "run.completed"],
    ]


async def test_a_stall_costs_one_attempt_and_the_run_completes():
    model = ScriptedModel([Silence()], ["Hello"])
    async with stage(model) as play:
        run_id = await play.start()
        state = await play.ended(run_id)
        assert anyio.current_time() == 45
        failed = next(e for e in await play.journal(run_id) if isinstance(e, ModelFailed))
    assert (failed.reason, failed.waited) == ("ttfb_kill", 45)
    assert (state.output, model.calls, model.open) == ("Hello", 2, 0)


async def test_a_tool_runs_and_the_model_is_told():
    model, pay = ScriptedModel([Call("pay", '{"euro":5}')], ["Paid."]), ScriptedTool()
    async with stage(model, pay) as play:
        state = await play.ended(await play.start("pay the bill"))
    asked, replied, told = model.requests[1].messages
    assert isinstance(asked, UserMessage) and replied.calls[0].tool == "pay"
    assert told == ToolMessage(call_id=replied.calls[0].id, tool="pay", output="ok")
    assert (state.output, pay.effects) == ("Paid.", [replied.calls[0].id])


async def test_calls_are_known_by_ids_of_ours_though_the_model_reuses_its_own():
    again = [Call("pay", model_id="call_0")]
    model, pay = ScriptedModel(again, again, ["Paid twice."]), ScriptedTool()
    async with stage(model, pay) as play:
        await play.ended(await play.start())
    assert len(set(pay.effects)) == 2


async def test_parallel_calls_run_side_by_side_and_others_in_order():
    busy: list[str] = []
    together: list[int] = []

    async def work(use):
        busy.append(use.effect_id)
        together.append(len(busy))
        await anyio.sleep(10)
        busy.remove(use.effect_id)
        return "ok"

    look = ScriptedTool("look", work=work, parallel=True)
    model = ScriptedModel([Call("look"), Call("look"), Call("pay"), Call("look")], ["Done."])
    async with stage(model, look, ScriptedTool("pay", work=work)) as play:
        await play.ended(await play.start())
        assert anyio.current_time() == pytest.approx(30)
    assert together == [1, 2, 1, 1]


async def test_a_tool_s_error_is_told_to_the_model_and_never_ends_the_run():
    async def work(use):
        raise ZeroDivisionError("by nothing")

    model = ScriptedModel([Call("pay")], ["It failed."])
    async with stage(model, ScriptedTool(work=work)) as play:
        state = await play.ended(await play.start())
    assert model.requests[1].messages[-1].output == "ZeroDivisionError: by nothing"
    assert not model.requests[1].messages[-1].ok
    assert state.status is Status.COMPLETED


async def test_a_tool_that_takes_too_long_is_ended_and_the_model_is_told():
    async def work(use):
        await anyio.sleep_forever()

    model = ScriptedModel([Call("pay")], ["Too slow."])
    async with stage(model, ScriptedTool(work=work, timeout=60)) as play:
        run_id = await play.start()
        await play.ended(run_id)
        assert anyio.current_time() == 60
        finished = next(e for e in await play.journal(run_id) if isinstance(e, ToolFinished))
    assert (finished.outcome, finished.seconds) == ("timeout", 60)


async def test_progress_of_a_tool_is_recorded_as_it_comes():
    async def work(use):
        for line in ("one\n", "two\n"):
            await use.progress(line)
            await anyio.sleep(1)
        return "ok"

    async with stage(ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work)) as play:
        run_id = await play.start()
        await play.ended(run_id)
        lines = [e.text for e in await play.journal(run_id) if isinstance(e, ToolProgressed)]
    assert lines == ["one\n", "two\n"]


async def test_an_approval_is_asked_for_and_a_yes_lets_the_call_run():
    model, pay = ScriptedModel([Call("pay")], ["Paid."]), ScriptedTool(review=ASK)
    async with stage(model, pay) as play:
        run_id = await play.start()
        request = (await play.until(run_id, ApprovalRequested)).event
        assert (request.subject, request.reason, pay.effects) == ("pay 5", "it costs money", [])
        assert await play.runs.answer(run_id, "once") == (request.approval_id,)
        state = await play.ended(run_id)
    assert (state.output, len(pay.effects)) == ("Paid.", 1)


async def test_a_no_is_told_to_the_model_and_nothing_runs():
    model, pay = ScriptedModel([Call("pay")], ["Then not."]), ScriptedTool(review=ASK)
    async with stage(model, pay) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await play.runs.answer(run_id, "deny")
        await play.ended(run_id)
    assert "said no" in model.requests[1].messages[-1].output
    assert pay.effects == []


async def test_silence_is_not_consent():
    model, pay = ScriptedModel([Call("pay")], ["Then not."]), ScriptedTool(review=ASK)
    async with stage(model, pay) as play:
        await play.ended(await play.start(approval_timeout=3600.0))
        assert anyio.current_time() == pytest.approx(3600, abs=1)
    assert "nobody answered" in model.requests[1].messages[-1].output
    assert pay.effects == []


async def test_an_approved_call_starts_while_another_still_runs():
    async def slow(use):
        await anyio.sleep(1000)
        return "ok"

    look = ScriptedTool("look", work=slow, parallel=True)
    pay = ScriptedTool(review=ASK, parallel=True)
    async with stage(ScriptedModel([Call("look"), Call("pay")], ["ok"]), look, pay) as play:
        run_id = await play.start()
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(10)
        await play.runs.answer(run_id, "once")
        await play.until(run_id, ToolFinished)
        assert (anyio.current_time(), len(pay.effects)) == (10, 1)
        await play.ended(run_id)


async def test_an_approval_that_runs_out_while_another_tool_runs_is_recorded_in_time():
    async def slow(use):
        await anyio.sleep(1000)
        return "ok"

    look = ScriptedTool("look", work=slow, parallel=True)
    pay = ScriptedTool(review=ASK, parallel=True)
    async with stage(ScriptedModel([Call("look"), Call("pay")], ["ok"]), look, pay) as play:
        run_id = await play.start(approval_timeout=100.0)
        finished = await play.until(run_id, ToolFinished)
        assert (finished.event.outcome, finished.at) == ("expired", 100)
        await play.ended(run_id)


async def test_a_message_sent_meanwhile_is_seen_at_the_next_call():
    model = ScriptedModel(["First", Silence(10), "."], ["Second."])
    async with stage(model) as play:
        run_id = await play.start()
        await play.until(run_id, TextStreamed)
        await play.runs.add(run_id, (Text("and more"),), message_id="m2")
        state = await play.ended(run_id)
    assert model.requests[1].messages[-1] == UserMessage(parts=(Text("and more"),), id="m2")
    assert state.output == "Second."


async def test_a_refusal_is_not_repeated():
    model = ScriptedModel([ModelRefused("the key is not valid", status=401)])
    async with stage(model) as play:
        state = await play.ended(await play.start())
    assert (state.ended.code, state.ended.message) == ("model", "the key is not valid")
    assert model.calls == 1


async def test_the_fallback_takes_over_and_the_next_turn_begins_with_the_first_choice():
    first = ScriptedModel([ModelRefused("no quota", status=402)], ["Done."])
    second = ScriptedModel([Call("pay")])
    async with stage({"first": first, "second": second}, ScriptedTool()) as play:
        state = await play.ended(await play.start())
    assert (first.calls, second.calls, state.output) == (2, 1, "Done.")


async def test_back_off_waits_longer_each_time_and_then_gives_up():
    broken = [ModelUnavailable("hung up")]
    async with stage(ScriptedModel(*[broken] * 4)) as play:
        run_id = await play.start(attempts=4)
        state = await play.ended(run_id)
        events = await play.means.store.read(run_id)
    calls = [r.at for r in events if isinstance(r.event, ModelCalled)]
    waits = [later - sooner for sooner, later in pairwise(calls)]
    assert len(waits) == 3 and waits == sorted(waits) and waits[0] >= 0.5
    assert state.ended.message == "gave up after 4 attempts; the last: hung up"


async def test_a_budget_ends_a_run_that_does_not_end_itself():
    model = ScriptedModel(*[[Call("pay")]] * 5)
    async with stage(model, ScriptedTool()) as play:
        state = await play.ended(await play.start(budget=Budget(turns=3)))
    assert (state.ended.code, model.calls) == ("budget", 3)


async def test_a_run_whose_model_is_gone_waits_and_says_so_and_goes_on_when_it_is_back():
    models = {"here": ScriptedModel()}
    async with stage(models) as play:
        run_id = await play.start(models=(ModelChoice("gone"),))
        await anyio.sleep(600)
        assert (await play.tags(run_id)).count("run.waiting") == 1
        models["gone"] = ScriptedModel(["Back."])
        assert (await play.ended(run_id)).output == "Back."


async def test_the_history_that_came_with_a_run_is_shown_first():
    model = ScriptedModel(["Yes."])
    earlier = (UserMessage(parts=(Text("earlier"),)),)
    async with stage(model) as play:
        run_id = await play.runs.accept(
            RunAccepted(input=(Text("now"),), models=(ModelChoice("model"),)), history=earlier
        )
        await play.ended(run_id)
    (shown,) = model.requests[0].messages
    assert plain(shown.parts) == "earlier\nnow"


async def test_a_stop_in_a_back_off_ends_the_run_at_once():
    broken = [ModelUnavailable("busy", reason="overloaded", retry_after=50)]
    async with stage(ScriptedModel(broken)) as play:
        run_id = await play.start()
        await play.until(run_id, ModelFailed)
        await anyio.sleep(5)
        await play.runs.stop(run_id)
        state = await play.ended(run_id)
        assert (anyio.current_time(), state.status) == (5, Status.CANCELLED)
