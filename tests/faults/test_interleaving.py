"""What may slip in between a decision and its effect, told as small stories."""

import anyio
import pytest

from holdfast.core.codec import recall
from holdfast.core.events import (
    ApprovalAnswered,
    InputAdded,
    StopRequested,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text, UserMessage, plain
from holdfast.core.phase import phase
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.stage import stage


class Slipping(FaultyStore):
    """A store where somebody's wish is recorded just before the worker's first event of a kind."""

    def __init__(self, before, wish):
        self.store = MemoryStore(now=anyio.current_time)
        super().__init__(self.store)
        self._before, self._wish = before, wish

    async def append(self, lease, *events, **kwargs):
        if self._wish and any(type(event).__name__ == self._before for event in events):
            wish, self._wish = self._wish, None
            await self.store.wish(lease.run_id, wish)
        return await super().append(lease, *events, **kwargs)


KINDS = [
    "RunStarted",
    "ModelCalled",
    "TextStreamed",
    "ModelReplied",
    "ToolStarted",
    "ToolFinished",
    "ApprovalRequested",
    "RunCompleted",
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stop_may_slip_in_before_anything_a_worker_writes(kind):
    store = Slipping(kind, StopRequested(by="ada"))
    look, pay = ScriptedTool("look"), ScriptedTool("pay", review=Review(gate="ask"))
    turns = (
        [["a", Call("look")], ["b"]]
        if kind == "RunCompleted"
        else [["a", Call("look")], ["b", Call("pay")]]
    )
    async with stage(ScriptedModel.by_turn(*turns), look, pay, store=store) as play:
        run_id = await play.start()
        state = await play.ended(run_id)
        events = await play.journal(run_id)
    assert state.status is Status.CANCELLED
    stop = next(n for n, event in enumerate(events) if isinstance(event, StopRequested))
    started = [event.call_id for event in events[:stop] if isinstance(event, ToolStarted)]
    assert look.effects == started
    assert all(tool.result for tool in state.tools)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_may_slip_in_anywhere_and_is_never_lost(kind):
    store = Slipping(kind, InputAdded(parts=(Text("wait!"),), message_id="m2"))
    look = ScriptedTool("look")
    pay = ScriptedTool("pay", review=Review(gate="ask"))
    model = ScriptedModel.by_turn(["a", Call("look")], ["b", Call("pay")], ["c"], ["d"], ["e"])
    async with stage(model, look, pay, store=store) as play:
        run_id = await play.start(approval_timeout=10.0)
        state = await play.ended(run_id)
    assert state.status is Status.COMPLETED
    said = [message for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert any("wait!" in plain(message.parts) for message in said)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_before_its_question_is_no_answer(kind):
    store = Slipping(kind, ApprovalAnswered(approval_id="apr_1", choice="always"))
    pay = ScriptedTool("pay", review=Review(gate="ask"))
    look = ScriptedTool("look")
    model = ScriptedModel.by_turn([Call("look")], [Call("pay")], ["no?"])
    async with stage(model, look, pay, store=store) as play:
        object.__setattr__(play.means, "new_id", iter_ids())
        run_id = await play.start(approval_timeout=10.0)
        await play.ended(run_id)
    assert pay.effects == []


def iter_ids():
    count = {}

    def new_id(prefix):
        count[prefix] = count.get(prefix, 0) + 1
        return f"{prefix}_{count[prefix]}"

    return new_id


async def test_a_run_with_an_event_of_a_newer_version_is_shown_and_not_driven():
    store = MemoryStore(now=anyio.current_time)
    model = ScriptedModel(["never"])
    async with stage(model, store=store, capacity=0) as play:
        run_id = await play.start()
        store._runs[run_id].log.append(recall(2, 0.0, b'{"type":"run.danced","with":"ada"}'))
    async with stage(model, store=store) as play:
        await anyio.sleep(600)
        state = await play.runs.state(run_id)
        assert phase(state).waiting_for == "newer_version"
        assert [r.body for r in await store.read(run_id, after=1)] == [
            b'{"type":"run.danced","with":"ada"}'
        ]
    assert model.calls == 0


async def test_a_stop_that_nobody_hints_at_is_seen_at_the_next_write():
    class Deaf(Slipping):
        async def changes(self):
            await anyio.sleep_forever()
            yield ""

    async def work(use):
        await anyio.sleep(1)
        return "ok"

    store, look = Deaf("ToolFinished", StopRequested()), ScriptedTool("look", work=work)
    async with stage(ScriptedModel([Call("look")]), look, store=store) as play:
        run_id = await play.start()
        started = await play.until(run_id, ToolStarted)
        state = await play.ended(run_id)
        assert anyio.current_time() == started.at + 1
    assert (state.status, state.tools[0].result.outcome) == (Status.CANCELLED, "ok")


async def test_a_stop_of_a_run_of_a_newer_version_is_recorded_and_left_to_a_newer_worker():
    store = MemoryStore(now=anyio.current_time)
    async with stage(ScriptedModel(), store=store) as play:
        play.worker.leave()
        run_id = await play.start()
        store._runs[run_id].log.append(recall(2, 0.0, b'{"type":"run.danced"}'))
        await play.runs.stop(run_id)
        assert (await play.runs.state(run_id)).status is Status.STOPPING
