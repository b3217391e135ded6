import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.messages import AssistantMessage, Text, UserMessage
from holdfast.server.openai.chat_request import read_chat
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.problems import Problem

HI = {"role": "user", "content": "hi"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = [
    "messages",
    "model",
    "stream",
    "stream_options",
    "n",
    "tools",
    "stop",
    "temperature",
    "max_tokens",
    "response_format",
    "metadata",
    "store",
    "background",
    "on_disconnect",
    "reasoning_effort",
    "logit_bias",
    "seed",
    "user",
]


def read(**fields):
    return read_chat(msgspec.json.encode({"messages": [HI], **fields}))


def refused(**fields):
    with pytest.raises(Problem) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value.complaint


def test_the_least_there_can_be():
    request = read()
    assert request.run.parts == (Text("hi"),)
    assert (request.stream, request.include_usage, request.background) == (False, False, False)
    assert (request.store, request.on_disconnect, request.ignored) == (None, "", ())
    assert request.options == {}


def test_a_conversation_that_is_given_counts():
    messages = [
        {"role": "system", "content": "Be brief."},
        HI,
        {"role": "assistant", "content": "Hello"},
        {"role": "developer", "content": "In French."},
        {"role": "user", "content": "Why?"},
    ]
    run = read(messages=messages, model="main").run
    assert run.parts == (Text("Why?"),)
    assert run.history == (UserMessage((Text("hi"),)), AssistantMessage("Hello"))
    assert run.instructions == "Be brief.\n\nIn French."
    assert run.model == "main"


def test_how_to_choose_words_goes_to_the_model():
    asked = {
        "temperature": 0.2,
        "top_p": 0.9,
        "presence_penalty": -1,
        "frequency_penalty": 1.5,
        "seed": -7,
        "max_tokens": 5,
        "max_completion_tokens": 6,
        "logit_bias": {"50256": -100},
        "stop": ["a"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    }
    request = read(**asked, reasoning_effort="low", service_tier="flex", user="ada", novel=1)
    assert request.options == asked
    assert (request.run.reasoning_effort, request.run.service_tier) == ("low", "flex")


def test_how_to_answer():
    request = read(
        stream=True,
        stream_options={"include_usage": True},
        store=False,
        background=True,
        on_disconnect="continue",
        metadata={"a": "b"},
    )
    assert (request.stream, request.include_usage, request.background) == (True, True, True)
    assert (request.store, request.on_disconnect) == (False, "continue")
    assert request.run.metadata == {"a": "b"}


def test_tools_of_the_client_are_not_run_and_said_to_be_ignored():
    request = read(tools=[{"type": "function"}], tool_choice="auto", functions=[], audio=None)
    assert request.ignored == ("tools", "tool_choice")
    assert request.run.tools is None


@pytest.mark.parametrize(
    "name",
    [
        "functions",
        "function_call",
        "parallel_tool_calls",
        "logprobs",
        "top_logprobs",
        "modalities",
        "audio",
        "prediction",
        "web_search_options",
    ],
)
def test_what_nobody_obeys_is_said_to_be_ignored(name):
    assert read(**{name: "x"}).ignored == (name,)


def test_a_run_comes_to_one_end():
    assert read(n=1).stream is False
    assert (refused(n=2).param, refused(n=2).code) == ("n", "unsupported_n")
    assert refused(n=0).param == refused(n="1").param == "n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messages", "hi"),
        ("messages", None),
        ("messages", {"a": 1}),
        ("model", 5),
        ("stream", "perhaps"),
        ("stream_options", []),
        ("temperature", "hot"),
        ("seed", 1.5),
        ("seed", 2**63),
        ("max_completion_tokens", -1),
        ("logit_bias", []),
        ("stop", 1),
        ("response_format", "json"),
        ("metadata", {str(n): "" for n in range(17)}),
        ("metadata", []),
        ("store", 1),
        ("background", "yes"),
        ("on_disconnect", "cancel"),
        ("reasoning_effort", 1),
        ("service_tier", []),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_by_its_name(name, value):
    assert refused(**{name: value}).param == name


def test_what_is_within_another_field_is_refused_as_well():
    assert refused(stream_options={"include_usage": 1}).param == "stream_options.include_usage"


def test_what_is_no_object_is_refused():
    for body in (b"", b"[]", b"{", b'"hi"', b"null", b"\xff"):
        with pytest.raises(Problem) as caught:
            read_chat(body)
        assert caught.value.status == 400


def test_instructions_have_a_limit():
    long = [{"role": "system", "content": "x" * 200_001}, HI]
    assert refused(messages=long).code == "text_too_long"


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_whatever_comes_is_taken_or_refused_in_order(fields):
    try:
        taken, refusal = read(**fields), None
    except Problem as problem:
        taken, refusal = None, problem
    if refusal:
        assert refusal.status == 400
        assert msgspec.json.decode(refusal.body)["error"]["message"]
    else:
        assert isinstance(taken, OpenAIRequest)


def test_what_nobody_here_answers_is_said_to_be_passed_over():
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    request = read(messages=[HI, called, {"role": "tool", "content": "rain"}, HI], tools=[{}])
    assert request.ignored == ("tools", "messages.tool_calls", "messages.tool")


def test_how_much_to_say_is_for_the_model():
    assert read(verbosity="low").options == {"verbosity": "low"}


def test_what_a_client_calls_its_own_words_has_the_length_of_openais():
    assert read(metadata={"k" * 64: "v" * 512}).run.metadata == {"k" * 64: "v" * 512}
    with pytest.raises(Problem) as caught:
        read(metadata={"k" * 65: "v"})
    assert caught.value.complaint.param == "metadata"
