import json
import re
from base64 import b64decode
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.messages import (
    AssistantMessage,
    BlobRef,
    Image,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from holdfast.errors import ModelRefused
from holdfast.models.anthropic import MOST_TOKENS, MOST_TOKENS_WITH_THOUGHTS, Anthropic
from holdfast.models.wire import Wire

BYTES = Path(__file__).parent / "bytes"
STREAMS = sorted(path.stem.removeprefix("anthropic_") for path in BYTES.glob("anthropic_*.txt"))
HERE, THERE = "https://here.example/v1", "https://there.example/v1"

#: One that thinks by itself, one that does so when asked, one that goes by a budget, and another's.
NEW, ASKED, OLD, OTHER = "claude-sonnet-5-5", "claude-opus-4-7", "claude-sonnet-4-5", "glm-5"
LOOK = ToolSpec(name="look", description="Looks.", schema='{"type": "object"}')
CACHED = {"type": "ephemeral"}


# --- what is asked -------------------------------------------------------------------------


def said(*words):
    return UserMessage(parts=tuple(map(Text, words)))


def call(id, arguments="{}"):
    return ToolCall(id=id, tool="look", arguments=arguments, model_id="toolu_theirs")


def told(id, output="seen", ok=True):
    return ToolMessage(call_id=id, tool="look", output=output, ok=ok)


def ask(
    *messages,
    instructions="",
    tools=(),
    blobs=(),
    stretch=1,
    stream=True,
    model=OLD,
    origin="",
    **options,
):
    """The body of a request, unmarked unless the test is about marks."""
    request = Request(
        model="ours",
        instructions=instructions,
        messages=messages or (said("hello"),),
        tools=tools,
        options={"cache": False, **options},
        blobs=dict(blobs),
        stretch=stretch,
    )
    return json.loads(Anthropic().body(request, model=model, stream=stream, origin=origin))


def turns(*messages, **more):
    return [(turn["role"], turn["content"]) for turn in ask(*messages, **more)["messages"]]


def text(words):
    return {"type": "text", "text": words}


def used(id, given=None):
    return {"type": "tool_use", "id": id, "name": "look", "input": given or {}}


def result(id, output="seen", **more):
    return {"type": "tool_result", "tool_use_id": id, "content": output, **more}


def test_it_is_a_wire():
    wire: Wire = Anthropic()
    assert (wire.name, wire.path) == ("anthropic", "/messages")


def test_a_key_is_shown_where_there_is_one():
    version = {"anthropic-version": "2023-06-01"}
    assert Anthropic().headers("secret") == {"x-api-key": "secret", **version}
    assert Anthropic().headers("") == version


def test_a_plain_request_says_no_more_than_it_must():
    assert ask(stream=False) == {
        "model": OLD,
        "messages": [{"role": "user", "content": [text("hello")]}],
        "max_tokens": MOST_TOKENS,
        "stream": False,
    }


def test_instructions_and_tools_go_out():
    body = ask(instructions="Be brief.", tools=(LOOK,))
    assert body["system"] == [text("Be brief.")]
    assert body["tools"] == [
        {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    ]


def test_instructions_without_a_visible_character_do_not_go_out():
    assert "system" not in ask(instructions=" \n")


def test_messages_of_one_side_are_one_turn():
    assert turns(
        said("one", "two"), said("three"), AssistantMessage("a"), AssistantMessage("b")
    ) == [
        ("user", [text("one"), text("two"), text("three")]),
        ("assistant", [text("a"), text("b")]),
    ]


def test_nobody_is_made_to_begin():
    assert turns(AssistantMessage("I begin."), said("Oh."))[0][0] == "assistant"


@pytest.mark.parametrize("nothing", ["", " ", "\n\t "])
def test_a_text_without_a_visible_character_does_not_go_out(nothing):
    assert turns(said("a", nothing), AssistantMessage(nothing), said(nothing), said("b")) == [
        ("user", [text("a"), text("b")])
    ]


def test_a_call_goes_out_under_our_id_and_its_result_comes_first_in_the_next_turn():
    conversation = (
        said("look"),
        AssistantMessage("I look.", calls=(call("call_1", '{"at": 1.50}'), call("call_2"))),
        said("wait"),
        told("call_2", "no", ok=False),
        told("call_1"),
    )
    assert turns(*conversation)[1:] == [
        ("assistant", [text("I look."), used("call_1", {"at": 1.5}), used("call_2")]),
        ("user", [result("call_1"), result("call_2", "no", is_error=True), text("wait")]),
    ]


def test_a_late_result_stands_behind_its_call_and_one_without_a_call_nowhere():
    conversation = (
        AssistantMessage(calls=(call("call_1"),)),
        said("and?"),
        AssistantMessage("Soon."),
        told("call_1"),
        told("call_0"),
    )
    assert turns(*conversation) == [
        ("assistant", [used("call_1")]),
        ("user", [result("call_1"), text("and?")]),
        ("assistant", [text("Soon.")]),
    ]


@pytest.mark.parametrize("ok", [True, False])
def test_a_tool_that_said_nothing_is_said_to_have_said_nothing(ok):
    conversation = (AssistantMessage(calls=(call("call_1"),)), told("call_1", " ", ok=ok))
    (block,) = turns(*conversation)[1][1]
    assert block["content"] == "(no output)"


@pytest.mark.parametrize("arguments", ["", "[1]", "null", '{"a":', "nonsense", '{"a":' * 100_000])
def test_arguments_that_are_no_object_go_back_as_none(arguments):
    assert turns(AssistantMessage(calls=(call("call_1", arguments),)))[0][1] == [used("call_1")]


def test_arguments_go_back_letter_by_letter():
    request = Request(
        model="ours",
        instructions="",
        messages=(AssistantMessage(calls=(call("call_1", '{"n": 1.500e0}'),)),),
    )
    assert b'"input":{"n": 1.500e0}' in Anthropic().body(request, model="m", stream=True)


def test_sealed_thoughts_of_several_messages_go_back_before_all_else():
    sealed = Reasoning("hm", wire="anthropic", seal="EqQB")
    redacted = Reasoning("", wire="anthropic", seal="redacted:Eow=")
    foreign = Reasoning("secret", wire="responses", seal="abc")
    unsealed = Reasoning("secret", wire="anthropic")
    first = AssistantMessage("One.", reasoning=(foreign, redacted, unsealed))
    second = AssistantMessage("Two.", reasoning=(sealed,), calls=(call("call_1"),))
    assert turns(said("go"), first, second)[1][1] == [
        {"type": "redacted_thinking", "data": "Eow="},
        {"type": "thinking", "thinking": "hm", "signature": "EqQB"},
        text("One."),
        text("Two."),
        used("call_1"),
    ]


def test_thoughts_go_back_in_the_order_they_came_in():
    thoughts = tuple(
        Reasoning("", wire="anthropic", seal=f"s{number}", before=before, said=said)
        for number, (before, said) in enumerate([(0, 0), (0, 3), (1, 3)])
    )
    message = AssistantMessage("Hm.Two looks.", thoughts, (call("call_1"), call("call_2")))
    assert turns(said("go"), message)[1][1] == [
        {"type": "thinking", "thinking": "", "signature": "s0"},
        text("Hm."),
        {"type": "thinking", "thinking": "", "signature": "s1"},
        used("call_1"),
        {"type": "thinking", "thinking": "", "signature": "s2"},
        text("Two looks."),
        used("call_2"),
    ]


def test_what_another_endpoint_sealed_does_not_go_out():
    here, there, old = (
        Reasoning("", wire="anthropic", seal=origin or "old", origin=origin)
        for origin in (HERE, THERE, "")
    )
    body = ask(said("go"), AssistantMessage("Hm.", (here, there, old)), origin=HERE)
    seals = [block.get("signature") for block in body["messages"][1]["content"]]
    assert seals == [HERE, "old", None]


def test_thoughts_that_nothing_follows_are_no_turn():
    thought = Reasoning("hm", wire="anthropic", seal="EqQB")
    alone = AssistantMessage(reasoning=(thought,))
    assert turns(said("a"), alone, said("b")) == [("user", [text("a"), text("b")])]
    late = AssistantMessage("a", (msgspec.structs.replace(thought, said=1),))
    assert turns(late) == [("assistant", [text("a")])]


def test_an_image_goes_out_as_its_bytes_or_its_address():
    kept = Image(media_type="image/png", blob=BlobRef("abc", 3))
    found = Image(url="https://example.com/a.png")
    [(_, [first, words, second])] = turns(
        UserMessage(parts=(kept, Text("and"), found)), blobs={"abc": b"\x89PN"}
    )
    assert b64decode(first["source"].pop("data")) == b"\x89PN"
    assert first == {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
    assert words == text("and")
    assert second["source"] == {"type": "url", "url": "https://example.com/a.png"}


@pytest.mark.parametrize("image", [Image(), Image(blob=BlobRef("abc", 3))])
def test_an_image_that_is_nowhere_cannot_be_sent(image):
    with pytest.raises(ModelRefused, match="neither its bytes"):
        ask(UserMessage(parts=(image,)))


# --- options -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_tokens", "max_output_tokens", "max_completion_tokens"])
def test_the_longest_reply_has_three_names_and_can_be_stretched(name):
    body = ask(stretch=2, **{name: 100})
    assert body["max_tokens"] == 200
    assert not body.keys() & {"max_output_tokens", "max_completion_tokens"}


def test_what_only_chats_have_a_word_for_is_left_out():
    chat = {"seed": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}}
    assert ask(**chat, verbosity="low") == ask()


@pytest.mark.parametrize(
    ("effort", "budget"), [("minimal", 1024), ("low", 4096), ("medium", 8192), ("high", 16384)]
)
def test_an_effort_becomes_a_budget_beside_the_reply(effort, budget):
    body = ask(
        reasoning_effort=effort, max_tokens=100, stretch=2, temperature=0.2, top_k=5, top_p=1
    )
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert body["max_tokens"] == 200 + budget
    assert body["top_p"] == 1
    assert not body.keys() & {"temperature", "top_k", "reasoning_effort"}


@pytest.mark.parametrize("effort", ["none", "a lot", None, ["high"]])
@pytest.mark.parametrize("model", [OLD, ASKED, NEW, OTHER])
def test_an_effort_that_is_none_is_no_thinking(effort, model):
    assert ask(reasoning_effort=effort, model=model) == ask(model=model)


@pytest.mark.parametrize(
    ("effort", "becomes"), [("minimal", "low"), ("low", "low"), ("high", "high"), ("max", "max")]
)
def test_an_effort_is_one_to_those_who_know_no_budget(effort, becomes):
    for model in (ASKED, NEW, OTHER):
        body = ask(reasoning_effort=effort, model=model)
        assert body["output_config"] == {"effort": becomes}
        assert body.get("thinking") == ({"type": "adaptive"} if model == ASKED else None)
        assert "reasoning_effort" not in body


def test_an_effort_goes_beside_a_form_and_gives_way_to_what_is_said_outright():
    form = {"type": "json_schema", "json_schema": {"schema": {}}}
    body = ask(model=NEW, reasoning_effort="low", response_format=form)
    assert body["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {}},
    }
    body = ask(model=NEW, reasoning_effort="low", output_config={"effort": "max"})
    assert body["output_config"] == {"effort": "max"}


def test_who_thinks_as_it_sees_fit_is_given_room_for_it():
    assert ask(model=NEW)["max_tokens"] == ask(model=ASKED)["max_tokens"] == 32_000
    assert MOST_TOKENS_WITH_THOUGHTS == 32_000
    assert ask(model=OTHER)["max_tokens"] == ask(model=OLD)["max_tokens"] == MOST_TOKENS


def test_thinking_in_the_words_of_the_wire_wins():
    body = ask(thinking={"type": "adaptive"}, reasoning_effort="high", temperature=0.2)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["max_tokens"] == MOST_TOKENS
    assert "temperature" not in body
    body = ask(thinking={"type": "disabled"}, reasoning_effort="high", model=ASKED)
    assert body["thinking"] == {"type": "disabled"}


WORDS_OF_CHOICE = {"temperature": 0.2, "top_k": 5, "top_p": 0.9}


@pytest.mark.parametrize(
    ("model", "options", "kept"),
    [
        (OLD, {}, {"temperature", "top_k", "top_p"}),
        (OLD, {"thinking": {"type": "disabled"}}, {"temperature", "top_k", "top_p"}),
        (OLD, {"thinking": {"type": "adaptive"}}, {"top_p"}),
        (OTHER, {}, {"temperature", "top_k", "top_p"}),
        (OTHER, {"thinking": {"type": "enabled"}}, {"top_p"}),
        (ASKED, {}, set()),
        (NEW, {}, set()),
        (NEW, {"thinking": {"type": "disabled"}}, set()),
    ],
)
def test_how_to_choose_words_is_told_only_to_those_who_take_it(model, options, kept):
    body = ask(model=model, **WORDS_OF_CHOICE, **options)
    assert body.keys() & WORDS_OF_CHOICE.keys() == kept


@pytest.mark.parametrize("choice", ["required", {"type": "tool", "name": "look"}])
@pytest.mark.parametrize(
    ("model", "options", "free"),
    [
        (OLD, {}, False),
        (OLD, {"reasoning_effort": "low"}, True),
        (ASKED, {}, False),
        (ASKED, {"reasoning_effort": "low"}, True),
        (NEW, {}, True),
        (NEW, {"thinking": {"type": "disabled"}}, False),
    ],
)
def test_who_thinks_is_not_forced_to_use_a_tool(choice, model, options, free):
    body = ask(tools=(LOOK,), model=model, tool_choice=choice, **options)
    assert (body["tool_choice"] == {"type": "auto"}) is free


def test_freeing_the_choice_of_a_tool_keeps_what_else_was_said_of_it():
    choice = {"type": "tool", "name": "look", "disable_parallel_tool_use": True}
    body = ask(tools=(LOOK,), model=NEW, tool_choice=choice)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_a_form_for_the_reply_goes_beside_what_is_said_of_it_already():
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    wanted = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    body = ask(response_format=form)
    assert body["output_config"] == wanted
    assert "response_format" not in body
    body = ask(response_format=form, output_config={"effort": "low"})
    assert body["output_config"] == {"effort": "low", **wanted}


def test_another_form_is_not_known_here():
    assert ask(response_format={"type": "text"}) == ask()


@pytest.mark.parametrize(
    ("choice", "becomes"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ({"type": "tool", "name": "look"}, {"type": "tool", "name": "look"}),
    ],
)
def test_a_choice_among_tools_is_put_in_the_words_of_the_wire(choice, becomes):
    assert ask(tools=(LOOK,), tool_choice=choice)["tool_choice"] == becomes
    assert "tool_choice" not in ask(tool_choice=choice)


@pytest.mark.parametrize("stop", ["END", ["END"]])
def test_words_to_stop_at(stop):
    body = ask(stop=stop)
    assert body["stop_sequences"] == ["END"]
    assert "stop" not in body


def test_other_options_pass_but_never_instead_of_what_is_ours():
    ours = {"model": "x", "messages": [], "stream": 3, "tools": [1], "system": "x", "cache": False}
    request = Request(
        model="ours",
        instructions="",
        messages=(said("hello"),),
        options={**ours, "metadata": {"user_id": "u"}},
    )
    body = json.loads(Anthropic().body(request, model=OLD, stream=True))
    assert body == {**ask(), "metadata": {"user_id": "u"}}


def test_the_end_of_instructions_and_conversation_are_marked_for_the_cache():
    conversation = (AssistantMessage(calls=(call("call_1"),)), told("call_1"))
    body = ask(*conversation, instructions="Be brief.", tools=(LOOK,), cache=True)
    assert body["system"] == [{**text("Be brief."), "cache_control": CACHED}]
    assert body["messages"][-1]["content"] == [{**result("call_1"), "cache_control": CACHED}]
    assert json.dumps(body).count("cache_control") == 2
    assert "cache" not in body


def test_the_cache_is_used_unless_it_is_forbidden():
    request = Request(model="ours", instructions="", messages=(said("a", "b"),))
    body = json.loads(Anthropic().body(request, model="m", stream=True))
    assert body["messages"][0]["content"] == [text("a"), {**text("b"), "cache_control": CACHED}]


def test_a_request_without_a_word_has_nothing_to_mark():
    assert ask(said(" "), cache=True)["messages"] == []


# --- any conversation ----------------------------------------------------------------------

WORDS = st.sampled_from(["", " ", "\n", "a", "b c", "🌊"])
THOUGHTS = st.builds(
    Reasoning,
    text=WORDS,
    wire=st.sampled_from(["", "anthropic", "responses"]),
    seal=st.sampled_from(["", "EqQB", "redacted:Eow="]),
    before=st.integers(0, 3),
    said=st.integers(0, 3),
)
CALL_IDS = st.sampled_from([f"call_{n}" for n in range(6)])


@st.composite
def conversations(draw):
    """Any messages in any order; only that a call's id is ours, and so unique."""
    users = st.builds(UserMessage, parts=st.lists(st.builds(Text, WORDS)).map(tuple))
    results = st.builds(told, CALL_IDS, WORDS, st.booleans())
    calls = st.lists(st.builds(call, CALL_IDS, st.sampled_from(["{}", "", '{"a":1}'])), max_size=3)
    models = st.builds(
        AssistantMessage,
        text=WORDS,
        reasoning=st.lists(THOUGHTS, max_size=2).map(tuple),
        calls=calls.map(tuple),
    )
    seen, messages = set(), []
    for message in draw(st.lists(users | results | models, max_size=12)):
        if isinstance(message, AssistantMessage):
            fresh = []
            for each in message.calls:
                if each.id not in seen:
                    seen.add(each.id)
                    fresh.append(each)
            message = msgspec.structs.replace(message, calls=tuple(fresh))  # noqa: PLW2901
        messages.append(message)
    return messages


@given(conversations())
def test_any_conversation_becomes_turns_that_are_accepted(messages):
    request = Request(model="ours", instructions="", messages=tuple(messages))
    body = json.loads(Anthropic().body(request, model="m", stream=True))["messages"]
    assert all(one["role"] != other["role"] for one, other in pairwise(body))
    told_ids = {each.call_id for each in messages if isinstance(each, ToolMessage)}
    for turn, following in pairwise([*body, {"content": []}]):
        kinds = [block["type"] for block in turn["content"]]
        assert kinds, "a turn without a block"
        places = [kind != "tool_result" for kind in kinds]
        assert places == sorted(places)
        assert "thinking" not in kinds[-1]
        assert all(b["text"].strip() for b in turn["content"] if b["type"] == "text")
        asked = [b["id"] for b in turn["content"] if b["type"] == "tool_use"]
        answers = [b["tool_use_id"] for b in following["content"] if b["type"] == "tool_result"]
        assert answers == [id for id in asked if id in told_ids]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", id) for id in asked)
