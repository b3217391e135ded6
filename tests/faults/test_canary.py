"""A secret comes in through every door, whole and in pieces, and nobody finds it anywhere."""

import json
from contextlib import asynccontextmanager
from itertools import combinations, pairwise

import anyio
import pytest

from holdfast.calls.foreign import MOST_WORDS
from holdfast.calls.tasks import task_group
from holdfast.core.events import (
    ApprovalRequested,
    ModelReplied,
    ReasoningStreamed,
    RunQueued,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
)
from holdfast.core.messages import Asked, Done, Reasoning, Text, ToolSpec, UserMessage
from holdfast.core.secrets import MASK, Secrets
from holdfast.engine.means import Means, random_id
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.engine.use import PROGRESS_LIMIT
from holdfast.engine.worker import Worker
from holdfast.errors import ModelUnavailable, ToolError
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.scripted import Call, CutOff, ScriptedModel, ScriptedTool, Silence, Think
from holdfast.testing.stage import Stage

#: Characters of output that a model is shown unless its tool says otherwise.
OUTPUT_LIMIT = ToolSpec("").output

KEY = "sk-canary-0123456"
OTHERS = ("sk-cannery-row", "0123456-and-more", "another secret of ours")
NEARLY = "sk-canary-012345"
SECRETS = Secrets([KEY, *OTHERS])


def cuts(pieces):
    """All ways to cut the key into so many pieces."""
    for places in combinations(range(1, len(KEY)), pieces - 1):
        yield [KEY[start:end] for start, end in pairwise((0, *places, len(KEY)))]


TWO, THREE = list(cuts(2)), list(cuts(3))


@asynccontextmanager
async def stage(model, *tools, store=None, new_id=random_id):
    means = Means(
        store=store or MemoryStore(now=anyio.current_time),
        models={"model": model},
        tools={tool.spec.name: tool for tool in tools},
        clock=anyio.current_time,
        new_id=new_id,
        secrets=SECRETS,
    )
    runs = Runs(means)
    sessions = Sessions(means, runs, workers=lambda: True)
    play = Stage(means, runs, sessions, Worker(means, name="worker"))
    async with task_group() as tasks:
        await tasks.start(play.worker.run)
        yield play
        play.worker.leave(drain=0.0)


async def followed(play, run_id):
    """What a follower gets until the run ends, in which there must be nothing to find."""
    got = [recorded async for recorded in play.runs.follow(run_id)]
    events = [recorded.event for recorded in got]
    assert KEY.encode() not in b"".join(recorded.body for recorded in got)
    assert KEY not in repr(events)
    for kind in (TextStreamed, ReasoningStreamed, ToolProgressed):
        assert KEY not in joined(events, kind)
    return events


def joined(events, kind):
    return "".join(event.text for event in events if isinstance(event, kind))


def last(events, kind):
    return [event for event in events if isinstance(event, kind)][-1]


async def tell_everyone(pieces, store):
    """One run with the key in all that is said to it, by it and in it."""

    async def work(use):
        for piece in ("using ", *pieces):
            await use.progress(piece)
        return f"paid with {KEY}"

    asked = Asked("pay", "{}", model_id=KEY), Asked("send", json.dumps({"to": KEY}))
    thought = Reasoning(text=f"use {KEY}", wire="w", seal=KEY)
    model = ScriptedModel(
        [*map(Think, pieces), "see ", *pieces, Done(calls=asked, reasoning=(thought,), model=KEY)],
        ["done ", *pieces],
    )
    pay = ScriptedTool(work=work, review=Review("ask", KEY, KEY, KEY))
    send = ScriptedTool("send")
    async with stage(model, pay, send, store=store) as play:
        accepted = {"instructions": KEY, "principal": KEY, "message_id": KEY}
        run_id = await play.start(f"my key is {KEY}", **accepted)
        await play.until(run_id, ApprovalRequested)
        await anyio.sleep(0.01)
        await play.runs.add(run_id, (Text(f"again: {KEY}"),), by=KEY, message_id=KEY)
        await play.runs.answer(run_id, "once", by=KEY)
        events = await followed(play, run_id)
        state = await play.runs.state(run_id)
    assert (len(pay.effects), send.effects) == (1, [])
    assert KEY not in repr(model.requests)
    assert state.output == last(events, ModelReplied).text == f"done {MASK}"
    assert joined(events, TextStreamed) == f"see {MASK}done {MASK}"
    assert joined(events, ReasoningStreamed) == MASK
    assert joined(events, ToolProgressed) == f"using {MASK}"


@pytest.mark.parametrize("pieces", [[KEY], *TWO, list(KEY)], ids="|".join)
async def test_a_key_is_found_nowhere_however_it_was_cut_in_two(pieces):
    store = MemoryStore(now=anyio.current_time)
    await tell_everyone(pieces, store)
    assert KEY not in repr(vars(store))


async def test_a_key_is_found_nowhere_however_it_was_cut_in_three():
    for pieces in THREE:
        await tell_everyone(pieces, MemoryStore(now=anyio.current_time))


@pytest.mark.real_time
async def test_a_key_is_found_in_no_file(memory):
    def hits():
        files = [path for path in memory.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) > 10_000
        return [path.name for path in files if KEY.encode() in path.read_bytes()]

    async with open_sqlite(memory / "journal.db") as store:
        for pieces in [[KEY], *TWO, *THREE[::13]]:
            await tell_everyone(pieces, store)
        assert hits() == []
    assert hits() == []


async def test_a_call_with_a_key_in_it_is_not_run_and_the_model_is_told():
    spelled = '{"to":"' + "".join(f"\\u{ord(letter):04x}" for letter in KEY) + '"}'
    calls = [
        Call("send", json.dumps({"to": KEY})),
        Call("send", spelled),
        Call("send", f'{{"to":"{KEY}","to":"bob"}}'),
        Call("send", KEY),
        Call(KEY, "{}"),
    ]
    for call in calls:
        send, model = ScriptedTool("send"), ScriptedModel([call], ["ok"])
        async with stage(model, send) as play:
            events = await followed(play, await play.start())
        assert send.effects == [] and spelled[7:-2] not in repr(events)
        assert last(events, ToolFinished).outcome == "error"
        if call.tool == "send":
            assert "must not leave this machine" in model.requests[1].messages[-1].output


async def test_a_key_in_an_error_is_masked():
    async def work(use):
        raise ToolError(f"cannot log in with {KEY}") if use.arguments == "{}" else KeyError(KEY)

    model = ScriptedModel(
        [ModelUnavailable(f"401 for {KEY}")],
        ["a", ModelUnavailable("x" * 3990 + KEY)],
        [Call("pay"), Call("pay", '{"a":1}')],
        ["ok"],
    )
    async with stage(model, ScriptedTool(work=work)) as play:
        events = await followed(play, await play.start())
    assert "sk-canary" not in repr(events) and f"401 for {MASK}" in repr(events)


@pytest.mark.parametrize("kind", [ToolError, ValueError])
async def test_a_key_that_a_tool_did_not_get_to_spell_out_is_masked(kind):
    """Its error is cut short in the middle of one, and its progress ends there."""

    async def work(use):
        await use.progress(NEARLY)
        raise kind("x" * (MOST_WORDS - 10) + KEY)

    async with stage(ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work)) as play:
        events = await followed(play, await play.start())
    assert joined(events, ToolProgressed) == MASK
    assert last(events, ToolFinished).output.endswith(f"x{MASK}")


async def test_a_key_in_an_error_of_our_own_is_masked():
    stumbled = []

    def new_id(prefix):
        if prefix == "call" and not stumbled:
            stumbled.append(1)
            raise KeyError(KEY)
        return random_id(prefix)

    async with stage(
        ScriptedModel.by_turn([Call("pay")], ["b"]), ScriptedTool(), new_id=new_id
    ) as play:
        events = await followed(play, await play.start())
    assert last(events, RunQueued).detail == f"KeyError: '{MASK}'"


async def test_a_key_across_the_place_where_an_output_is_shortened_is_masked_in_the_blob_too():
    async def work(use):
        return "x" * (OUTPUT_LIMIT * 3 // 4 - 5) + KEY + "y" * OUTPUT_LIMIT

    store = MemoryStore(now=anyio.current_time)
    async with stage(
        ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work), store=store
    ) as play:
        events = await followed(play, await play.start())
        whole = await store.blob(last(events, ToolFinished).blob.sha256)
    assert MASK.encode() in whole and b"sk-canary" not in whole
    assert "sk-canary" not in repr(events)


async def test_a_key_in_a_conversation_that_came_along_is_masked():
    store = MemoryStore(now=anyio.current_time)
    model = ScriptedModel(["ok"])
    async with stage(model, store=store) as play:
        run_id = random_id("run")
        history = (UserMessage(parts=(Text(KEY),)),)
        accepted = (await play.runs.state(await play.start())).accepted
        await play.runs.accept(accepted, history=history, run_id=run_id)
        await followed(play, run_id)
    assert KEY not in repr(vars(store)) and KEY not in repr(model.requests)


@pytest.mark.parametrize("pieces", [[KEY], *TWO[::3]], ids="|".join)
async def test_what_was_there_of_a_key_when_a_run_was_stopped_is_masked(pieces):
    async with stage(ScriptedModel([pieces[0], Silence()])) as play:
        run_id = await play.start()
        await anyio.sleep(1)
        await play.runs.stop(run_id, by=KEY, reason=f"it shows {KEY}")
        events = await followed(play, run_id)
    assert joined(events, TextStreamed) == (MASK if len(pieces[0]) >= 8 else pieces[0])


async def test_what_was_there_of_a_key_when_a_stream_broke_is_masked():
    async with stage(ScriptedModel(["my ", NEARLY, CutOff()], ["ok"])) as play:
        events = await followed(play, await play.start())
    assert joined(events, TextStreamed) == f"my {MASK}ok"


async def test_what_progress_had_room_for_of_a_key_is_masked():
    async def work(use):
        await use.progress("x" * (PROGRESS_LIMIT - 10))
        await use.progress(KEY)
        await use.progress("more")
        return "ok"

    async with stage(ScriptedModel([Call("pay")], ["ok"]), ScriptedTool(work=work)) as play:
        events = await followed(play, await play.start())
    kept = joined(events, ToolProgressed)
    assert kept.endswith(f"x{MASK}\n[… further progress is not kept]\n")


async def test_text_that_only_begins_like_a_key_is_there_when_the_reply_ends():
    async def work(use):
        await use.progress(NEARLY)
        return NEARLY

    pay = ScriptedTool(work=work)
    async with stage(
        ScriptedModel([Think("sk-"), NEARLY, Call("pay")], ["a ", "sk-can", "e"]), pay
    ) as play:
        events = await followed(play, await play.start())
    kinds = [type(event) for event in events]
    assert joined(events, TextStreamed) == NEARLY + "a sk-cane"
    assert [e.text for e in events if isinstance(e, ModelReplied)] == [NEARLY, "a sk-cane"]
    assert joined(events, ReasoningStreamed) == "sk-" and joined(events, ToolProgressed) == NEARLY
    assert kinds.index(TextStreamed) < kinds.index(ModelReplied)
    assert kinds.index(ToolProgressed) < kinds.index(ToolFinished)


async def test_who_waits_for_a_model_knows_that_it_has_begun_though_its_words_are_held_back():
    async with stage(ScriptedModel(["sk-", Silence(50), "!"])) as play:
        run_id = await play.start()
        await anyio.sleep(10)
        assert (await play.tags(run_id))[-1] == "model.heard"
        assert (await play.ended(run_id)).output == "sk-!"
