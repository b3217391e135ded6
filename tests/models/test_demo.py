from contextlib import aclosing

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.app import open_app
from holdfast.core.events import ToolFinished
from holdfast.core.lifecycle import Status
from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Done,
    Heard,
    Image,
    Request,
    Said,
    Text,
    Thought,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from holdfast.core.plan import Rules, plan
from holdfast.core.run import RunState, ToolState
from holdfast.models.demo import LOOK, NOTE, TERMINAL, DemoModel, compose, pieces
from holdfast.tools.demo import KeepNote, LookAround

TOOLS = (LookAround.spec, KeepNote.spec)
LOOKED = ToolCall(id="call_1", tool=LOOK)
NOTED = ToolCall(id="call_2", tool=NOTE)


def said(words):
    return UserMessage(parts=(Text(words),))


def told(tool, output, ok=True):
    return ToolMessage(call_id="call_0", tool=tool, output=output, ok=ok)


def ask(*messages, tools=TOOLS):
    return compose(Request(model="demo", instructions="", messages=messages, tools=tools))


def called(reply):
    return [call.tool for call in reply.calls]


OPENING = (said("hello"), AssistantMessage(text="…", calls=(LOOKED,)), told(LOOK, "a machine"))
ASKED = (*OPENING, AssistantMessage(text="…", calls=(NOTED,)))


async def test_it_streams_in_small_pieces_at_its_pace_and_ends_once():
    request = Request(model="demo", instructions="", messages=(said("hi"),), tools=TOOLS)
    chunks = [chunk async for chunk in DemoModel(pace=0.5).stream(request)]
    words = [chunk for chunk in chunks if isinstance(chunk, Said | Thought)]
    assert anyio.current_time() == len(words) / 2
    assert all(len(word.text) < 50 for word in words)
    assert isinstance(chunks[0], Heard)
    assert [type(chunk) for chunk in chunks[-2:]] == [Calling, Done]
    assert sum(isinstance(chunk, Done) for chunk in chunks) == 1
    assert "".join(chunk.text for chunk in words if isinstance(chunk, Said)) == ask(said("hi")).text


@pytest.mark.parametrize(
    ("asked", "pause"), [(0, 0), (0.25, 0.25), (2, 2), (-1, 0.5), (61, 0.5), ("fast", 0.5)]
)
async def test_another_pace_may_be_asked_for(asked, pause):
    request = Request("demo", "", (said("hi"),), options={"pace": asked})
    chunks = [chunk async for chunk in DemoModel(pace=0.5).stream(request)]
    words = sum(isinstance(chunk, Said | Thought) for chunk in chunks)
    assert anyio.current_time() == pytest.approx(words * pause)


async def test_closing_the_stream_hangs_up():
    async with aclosing(DemoModel(pace=1).stream(Request("demo", "", ()))) as stream:
        assert await anext(stream) == Heard()
        await anext(stream)
    assert anyio.current_time() == 1
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def test_it_says_back_what_was_said_and_that_it_is_a_demo():
    reply = ask(said("find  my\nkeys"))
    assert "You said: “find my keys”" in reply.text
    assert "not a real model" in reply.text
    assert reply.thought


def test_it_says_long_words_back_shortened():
    assert "x" * 200 + "…" in ask(said("x" * 1000)).text


def test_it_owns_up_to_not_reading_pictures():
    assert "without words" in ask(UserMessage(parts=(Image(url="a"),))).text


def test_it_looks_around_first_then_asks_to_keep_a_note_then_is_done():
    assert called(ask(said("hello"))) == [LOOK]
    second = ask(*OPENING)
    assert second.calls == (Asked(NOTE, '{"text":"hello"}', "demo_note"),)
    assert "look_around says: a machine." in second.text
    third = ask(*ASKED, told(NOTE, "kept; there is 1 note now"))
    assert called(third) == []
    assert "kept; there is 1 note now" in third.text


def test_told_a_command_it_runs_that_in_the_terminal_and_is_done():
    tools = (*TOOLS, ToolSpec(TERMINAL))
    reply = ask(said("$ ls -l | wc"), tools=tools)
    assert [(call.tool, call.arguments) for call in reply.calls] == [
        (TERMINAL, '{"command":"ls -l | wc"}')
    ]
    ran = AssistantMessage(calls=(ToolCall(id="call_3", tool=TERMINAL),))
    end = ask(said("$ ls -l | wc"), ran, told(TERMINAL, "3 4 5"), tools=tools)
    assert called(end) == [] and "terminal says: 3 4 5" in end.text
    assert called(ask(said("$ ls"))) == [LOOK]
    assert called(ask(said("$ "), tools=tools)) == [LOOK]


def test_without_tools_it_just_talks():
    reply = ask(said("hello"), tools=())
    assert called(reply) == []
    assert "I have no tools here" in reply.text


def test_with_one_tool_it_uses_that_one():
    assert called(ask(said("hello"), tools=(KeepNote.spec,))) == [NOTE]
    assert called(ask(said("hello"), tools=(LookAround.spec,))) == [LOOK]
    assert called(ask(*OPENING, tools=(LookAround.spec,))) == []


def test_a_tool_that_went_wrong_is_reported():
    reply = ask(*ASKED, told(NOTE, "the pencil broke", ok=False))
    assert "keep_note did not work: the pencil broke." in reply.text


def test_a_message_thrown_in_is_heard_at_the_next_turn_and_once():
    steered = ask(*ASKED, told(NOTE, "kept"), said("and be quick"))
    assert "You said: “and be quick”" in steered.text
    assert "hello" not in steered.text


def test_words_thrown_in_are_kept_too():
    note = ask(*OPENING, said("and be quick")).calls[0]
    assert note.arguments == '{"text":"hello\\nand be quick"}'


def test_once_acquainted_it_asks_only_when_a_note_is_mentioned():
    past = (*ASKED, told(NOTE, "kept"), AssistantMessage(text="That was all."))
    assert called(ask(*past, said("thanks"))) == []
    assert "Say the word “note”" in ask(*past, said("thanks")).text
    again = ask(*past, said("Another note: milk"))
    assert again.calls[0].arguments == '{"text":"Another note: milk"}'
    answered = AssistantMessage(text="…", calls=again_calls(again))
    done = ask(*past, said("Another note: milk"), answered, told(NOTE, "kept"))
    assert called(done) == []


def again_calls(reply):
    return tuple(ToolCall(id="call_9", tool=call.tool) for call in reply.calls)


@pytest.mark.parametrize(
    ("choice", "reaction"),
    [("once", "there is 1 note now"), ("deny", "You said no, so nothing was done")],
)
async def test_it_reacts_to_a_person_s_answer(choice, reaction):
    async with open_app(models={"demo": DemoModel()}, tools=(LookAround(), KeepNote())) as app:
        run_id = await app.runs.accept(app.prepare("hello"))
        async for _ in app.runs.follow(run_id):
            if (await app.runs.state(run_id)).pending:
                await app.runs.answer(run_id, choice)
        assert reaction in (await app.runs.state(run_id)).output


async def test_it_reacts_to_nobody_being_there():
    async with open_app(models={"demo": DemoModel()}, tools=(LookAround(), KeepNote())) as app:
        run_id = await app.runs.accept(app.prepare("hello", approval="deny"))
        [_ async for _ in app.runs.follow(run_id)]
        assert "There is nobody here to ask" in (await app.runs.state(run_id)).output


async def test_it_reacts_to_nobody_answering_in_time():
    async with open_app(clock=anyio.current_time) as app:
        run_id = await app.runs.accept(app.prepare("hello"))
        [_ async for _ in app.runs.follow(run_id)]
        assert "Nobody answered in time" in (await app.runs.state(run_id)).output


def test_it_reacts_to_an_outcome_that_a_crash_hid():
    tool = ToolState(NOTED, starts=1, epoch=1)
    lost = RunState(status=Status.RUNNING, epoch=2, tools=(tool,))
    step = plan(lost, Rules(worker="w", epoch=2, models=(), tools=()))
    (finished,) = step.events
    assert isinstance(finished, ToolFinished)
    reply = ask(*ASKED, told(NOTE, finished.output, ok=False))
    assert "I cannot tell whether anything was done" in reply.text


texts = st.text(max_size=20)
messages = st.lists(
    st.one_of(
        st.builds(said, texts),
        st.builds(told, st.sampled_from([LOOK, NOTE, "other"]), texts, st.booleans()),
        st.builds(AssistantMessage, text=texts, calls=st.sampled_from([(), (LOOKED,), (NOTED,)])),
    )
)


@given(messages, st.lists(st.sampled_from([*TOOLS, ToolSpec(name="other")]), unique=True))
def test_it_has_something_to_say_to_any_conversation(conversation, tools):
    reply = ask(*conversation, tools=tuple(tools))
    assert reply.text
    assert set(called(reply)) <= {spec.name for spec in tools}


@given(st.text())
def test_the_pieces_add_up_to_the_text(text):
    assert "".join(pieces(text)) == text


async def test_it_counts_words_as_tokens():
    request = Request("demo", "be kind", (said("a b"), *OPENING[1:]))
    *_, done = [chunk async for chunk in DemoModel(pace=0).stream(request)]
    assert isinstance(done, Done)
    assert done.usage.input == 2 + 2 + 1 + 2
    assert 0 < done.usage.reasoning < done.usage.output
