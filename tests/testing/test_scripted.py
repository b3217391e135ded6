from contextlib import aclosing

import anyio
import pytest

from holdfast.core.messages import (
    Asked,
    AssistantMessage,
    Calling,
    Done,
    Heard,
    Request,
    Said,
    Text,
    Thought,
    UserMessage,
)
from holdfast.core.usage import Usage
from holdfast.errors import ModelRefused, ModelUnavailable
from holdfast.ports import Review
from holdfast.testing.scripted import (
    Ack,
    Call,
    CutOff,
    ScriptedModel,
    ScriptedTool,
    Silence,
    Think,
)

ASKED = Request("model", "", (UserMessage(parts=(Text("hi"),)),))


async def chunks(model, request=ASKED):
    return [chunk async for chunk in model.stream(request)]


async def test_each_line_becomes_a_chunk_and_a_script_ends_with_done():
    model = ScriptedModel([Ack(), Think("hm"), "Hello", Call("pay", '{"euro":5}', "theirs")])
    assert await chunks(model) == [
        Heard(),
        Thought("hm"),
        Said("Hello"),
        Calling("pay"),
        Done(calls=(Asked("pay", '{"euro":5}', "theirs"),), usage=Usage(input=10, output=4)),
    ]


async def test_a_script_may_have_an_end_of_its_own_or_none():
    assert await chunks(ScriptedModel([Done(stop="length"), "never"])) == [Done(stop="length")]
    assert await chunks(ScriptedModel(["half", CutOff(), "never"])) == [Said("half")]


async def test_silence_takes_as_long_as_it_says_and_an_exception_is_raised():
    with pytest.raises(ModelUnavailable):
        await chunks(ScriptedModel([Silence(50), ModelUnavailable("gone")]))
    assert anyio.current_time() == 50


async def test_each_call_has_its_own_script_and_then_there_is_none():
    model = ScriptedModel(["one"], ["two"])
    assert [(await chunks(model))[0] for _ in range(2)] == [Said("one"), Said("two")]
    with pytest.raises(ModelRefused, match="no further call"):
        await chunks(model)
    assert (model.calls, model.requests) == (3, [ASKED] * 3)


async def test_by_turn_the_conversation_chooses():
    model = ScriptedModel.by_turn(["one"], ["two"])
    later = Request("model", "", (*ASKED.messages, AssistantMessage(text="one")))
    assert [(await chunks(model, r))[0] for r in (later, ASKED)] == [Said("two"), Said("one")]


async def test_it_knows_which_streams_are_open():
    model = ScriptedModel(["one", Silence()])
    async with aclosing(model.stream(ASKED)) as stream:
        await anext(stream)
        assert model.open == 1
    assert model.open == 0


def test_a_tool_is_reviewed_as_it_was_told_to():
    assert ScriptedTool().review("{}") == Review()
    assert ScriptedTool(review=Review(gate="ask")).review("{}").gate == "ask"
    assert ScriptedTool(review=lambda arguments: Review(key=arguments)).review("{}").key == "{}"
