import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.messages import AssistantMessage, Text, UserMessage
from holdfast.server.content import Instruction
from holdfast.server.openai.request import Echo, OpenAIRequest
from holdfast.server.openai.response_request import read_response
from holdfast.server.problems import Problem

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = [
    "input",
    "model",
    "stream",
    "instructions",
    "previous_response_id",
    "conversation",
    "store",
    "background",
    "text",
    "truncation",
    "metadata",
    "max_output_tokens",
    "reasoning",
    "response_format",
    "tools",
    "user",
]
SCHEMA = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}


def read(**fields):
    return read_response(msgspec.json.encode({"input": "hi", **fields}))


def refused(**fields):
    with pytest.raises(Problem) as caught:
        read(**fields)
    assert caught.value.status in (400, 404)
    return caught.value.complaint


def test_the_least_there_can_be():
    request = read()
    assert request.run.parts == (Text("hi"),)
    assert (request.stream, request.background, request.store) == (False, False, True)
    assert (request.options, request.ignored, request.echo) == ({}, (), Echo())


def test_an_input_may_be_a_conversation():
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "item_reference", "id": "msg_1"},
        "c",
    ]
    asked = read(input=items, instructions="In French.")
    run = asked.run
    assert run.parts == (Text("c"),)
    assert run.history == (UserMessage((Text("a"),)), AssistantMessage("b"))
    assert run.instructions == "In French."
    assert asked.told == (Instruction("developer", "Be brief."),)


def test_what_a_request_says_of_itself_is_kept_for_its_response():
    request = read(
        instructions="Be brief.",
        previous_response_id="resp_1",
        background=True,
        store=False,
        truncation="auto",
        temperature=0.5,
        top_p=1,
        max_output_tokens=9,
        reasoning={"effort": "high", "summary": "auto"},
        service_tier="flex",
        text={"format": SCHEMA, "verbosity": "low"},
        user="ada",
    )
    assert request.echo == Echo(
        instructions="Be brief.",
        previous_response_id="resp_1",
        background=True,
        store=False,
        truncation="auto",
        temperature=0.5,
        top_p=1,
        max_output_tokens=9,
        reasoning_effort="high",
        service_tier="flex",
        text={"format": SCHEMA, "verbosity": "low"},
        user="ada",
    )
    assert (request.store, request.background) == (False, True)


def test_options_are_in_the_words_that_all_wires_know():
    request = read(
        temperature=0.5, max_output_tokens=9, text={"format": SCHEMA}, reasoning={"effort": "low"}
    )
    inner = {"name": "x", "schema": {"type": "object"}, "strict": True}
    assert request.options == {
        "temperature": 0.5,
        "max_tokens": 9,
        "response_format": {"type": "json_schema", "json_schema": inner},
    }
    assert request.run.reasoning_effort == "low"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"text": {"format": {"type": "json_object"}}}, {"type": "json_object"}),
        ({"response_format": {"type": "json_object"}}, {"type": "json_object"}),
        ({"text": {"format": {"type": "text"}}}, None),
        ({"text": {"verbosity": "low"}}, None),
        ({"text": None}, None),
    ],
)
def test_a_shape_may_be_asked_for_in_either_way(fields, wanted):
    assert read(**fields).options.get("response_format") == wanted


def test_a_conversation_is_a_session():
    for named in ("s1", {"id": "s1"}):
        request = read(conversation=named)
        assert (request.run.session_id, request.echo.conversation) == ("s1", "s1")
    assert refused(conversation={}).param == "conversation"
    assert refused(conversation="../etc").param == "conversation"
    assert refused(conversation=5).param == "conversation"


def test_what_came_before_is_said_in_one_way():
    said = refused(conversation="s1", previous_response_id="resp_1")
    assert (said.param, said.code) == ("previous_response_id", "mutually_exclusive_parameters")


def test_a_response_that_cannot_be_is_not_found():
    assert refused(previous_response_id="run_1").code == "previous_response_not_found"


def test_tools_of_the_client_are_not_run_and_said_to_be_ignored():
    request = read(tools=[{"type": "function"}], tool_choice="auto", include=["x"], prompt=None)
    assert request.ignored == ("tools", "tool_choice")


@pytest.mark.parametrize(
    "name", ["parallel_tool_calls", "max_tool_calls", "prompt", "top_logprobs"]
)
def test_what_nobody_obeys_is_said_to_be_ignored(name):
    assert read(**{name: 1}).ignored == (name,)


def test_items_that_are_only_named_are_said_to_be_ignored():
    asked = {"role": "user", "content": "and?"}
    request = read(input=["hi", {"type": "item_reference", "id": "msg_1"}, asked])
    assert request.ignored == ("input.item_reference",)
    assert read(input=["hi", asked]).ignored == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input", None),
        ("input", 5),
        ("model", 5),
        ("stream", "perhaps"),
        ("instructions", 5),
        ("previous_response_id", 5),
        ("store", 1),
        ("background", "yes"),
        ("truncation", "some"),
        ("metadata", {str(n): "" for n in range(17)}),
        ("max_output_tokens", 0),
        ("temperature", "hot"),
        ("reasoning", "low"),
        ("text", []),
        ("response_format", "json"),
        ("user", 5),
        ("on_disconnect", "cancel"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_by_its_name(name, value):
    assert refused(**{name: value}).param == name


def test_what_is_within_another_field_is_refused_as_well():
    assert refused(text={"format": "json"}).param == "text.format"
    assert refused(text={"verbosity": 1}).param == "text.verbosity"
    assert refused(reasoning={"effort": 1}).param == "reasoning.effort"


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_whatever_comes_is_taken_or_refused_in_order(fields):
    try:
        taken, refusal = read(**fields), None
    except Problem as problem:
        taken, refusal = None, problem
    if refusal:
        assert refusal.status in (400, 404)
        assert msgspec.json.decode(refusal.body)["error"]["message"]
    else:
        assert isinstance(taken, OpenAIRequest)


def test_how_much_to_say_is_for_the_model():
    asked = read(text={"verbosity": "low"})
    assert (asked.options, asked.echo.text) == ({"verbosity": "low"}, {"verbosity": "low"})


def test_what_a_client_calls_its_own_words_has_the_length_of_openais():
    with pytest.raises(Problem) as caught:
        read(metadata={"k" * 65: "v"})
    assert caught.value.complaint.param == "metadata"


def test_a_user_may_have_any_name():
    assert read(user="u" * 300).echo.user == "u" * 300


def test_what_nobody_here_answers_is_said_to_be_passed_over():
    output = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
    assert read(input=[output, "hi"]).ignored == ("input.function_call_output",)
