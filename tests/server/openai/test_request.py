from pathlib import Path

import msgspec
import pytest

from holdfast.config import ModelSettings, Settings
from holdfast.core.codec import decode, encode
from holdfast.core.events import ModelChoice
from holdfast.core.messages import Text
from holdfast.core.run import replay
from holdfast.server.openai.request import (
    Echo,
    OpenAIRequest,
    biases,
    finish,
    length,
    on_disconnect,
    read_echo,
    sampling,
    shape,
    stops,
)
from holdfast.server.problems import Problem
from holdfast.server.requests import RunRequest, accept
from holdfast.server.status import status
from tests.core.stories import accepted, journal

SAID = RunRequest(parts=(Text("hi"),))
SAID_IN_SESSION = RunRequest(parts=(Text("hi"),), session_id="s")


def refused(read, *given):
    with pytest.raises(Problem) as caught:
        read(*given)
    assert caught.value.status == 400
    return caught.value.complaint.param


def test_options_go_to_each_model_that_may_be_asked():
    main = ModelSettings(
        name="main",
        wire="openai-chat",
        model="m",
        fallback=("spare",),
        options={"temperature": 1, "seed": 3},
    )
    spare = ModelSettings(name="spare", wire="anthropic", model="s")
    settings = Settings(
        data=Path("data"), default_model="main", models={"main": main, "spare": spare}
    )
    run = RunRequest(parts=(Text("hi"),), model="main", reasoning_effort="low")
    request = OpenAIRequest(run=run, options={"temperature": 0.5}, store=True)
    admission = accept(run, settings=settings, tools=(), principal="ada")
    finished = finish(request, admission.run)
    assert [choice.options for choice in finished.models] == [
        {"temperature": 0.5, "seed": 3, "reasoning_effort": "low"},
        {"temperature": 0.5, "reasoning_effort": "low"},
    ]
    assert (finished.asked_model, finished.principal, finished.metadata) == ("main", "ada", {})


def test_a_length_that_is_asked_for_counts_whatever_the_usual_one_is_called():
    main = ModelChoice("main", {"max_tokens": 9, "seed": 1})
    for own in ({"max_completion_tokens": 5}, {"max_tokens": 5}):
        run = finish(OpenAIRequest(run=SAID, options=own), accepted(models=(main,)))
        assert run.models[0].options == {"seed": 1, **own}


def test_what_a_request_said_of_itself_is_kept_with_the_run_and_told_to_nobody_else():
    echo = Echo(instructions="Be brief.", store=False, text={"format": {"type": "text"}})
    request = OpenAIRequest(run=SAID, echo=echo, background=True)
    run = finish(request, accepted(metadata={"a": "b"}))
    assert read_echo(run) == read_echo(decode(encode(run))) == echo
    assert run.metadata == {"a": "b"}
    told = status("run_1", replay(journal(run)), created_at=0.0)
    assert told.metadata == {"a": "b"} and b"Be brief." not in msgspec.json.encode(told)


@pytest.mark.parametrize(
    ("fields", "goes_on"),
    [
        ({}, False),
        ({"store": False}, False),
        ({"store": True}, True),
        ({"background": True}, True),
        ({"run": SAID_IN_SESSION}, True),
        ({"run": SAID_IN_SESSION, "store": True, "on_disconnect": "stop"}, False),
        ({"on_disconnect": "continue"}, True),
    ],
)
def test_a_run_goes_on_without_readers_if_it_is_for_more_than_them_and_that_is_kept(
    fields, goes_on
):
    asked = OpenAIRequest(**{"run": SAID, **fields})
    assert asked.goes_on is goes_on
    assert read_echo(finish(asked, accepted())).attended is not goes_on


@pytest.mark.parametrize("asked", [{"store": 5}, {"text": []}, {"temperature": "hot"}])
def test_what_is_kept_and_means_nothing_is_passed_over(asked):
    assert read_echo(accepted(asked=asked)) == Echo()
    assert read_echo(accepted(asked={"later": 1})) == Echo()
    assert read_echo(accepted()) == read_echo(None) == Echo()


def test_an_echo_is_told_as_the_wire_has_it():
    assert Echo(attended=True, conversation="s1", reasoning_effort="low").told() == {
        "background": False,
        "conversation": {"id": "s1"},
        "instructions": None,
        "max_output_tokens": None,
        "previous_response_id": None,
        "reasoning": {"effort": "low", "summary": None},
        "service_tier": None,
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "top_p": None,
        "truncation": "disabled",
        "user": None,
    }
    assert Echo().told()["conversation"] is None


def test_sampling_is_within_its_limits():
    assert sampling({"temperature": 0, "top_p": 1.0, "other": 1}) == {"temperature": 0, "top_p": 1}
    assert sampling({"temperature": None}) == {}
    assert refused(sampling, {"temperature": 3}) == "temperature"
    assert refused(sampling, {"top_p": "1"}) == "top_p"


def test_a_length_is_a_number_of_tokens():
    assert length({"max_tokens": 5}, "max_tokens") == 5
    assert refused(length, {"max_tokens": 0}, "max_tokens") == "max_tokens"


def test_a_reader_says_what_becomes_of_a_run_it_leaves():
    assert [on_disconnect({"on_disconnect": s}) for s in ("stop", "continue", None)] == [
        "stop",
        "continue",
        "",
    ]
    assert refused(on_disconnect, {"on_disconnect": "cancel"}) == "on_disconnect"


def test_a_shape_has_a_type_and_any_shape_is_none():
    assert shape({"type": "json_object"}, "response_format") == {"type": "json_object"}
    assert shape({"type": "text"}, "response_format") is None
    assert shape(None, "response_format") is None
    large = {"type": "json_schema", "json_schema": {"name": "x" * 200_000}}
    for bad in ({}, [], "json", {"type": 1}, large):
        assert refused(shape, bad, "text.format") == "text.format"


def test_a_bias_is_a_number_for_a_token():
    assert biases({"logit_bias": {"50256": -100, "1": 0.5}}) == {"50256": -100, "1": 0.5}
    assert biases({"logit_bias": {}}) == {}
    assert biases({}) is None
    many = {str(n): 1 for n in range(1001)}
    for bad in ({"1": 101}, {"1": True}, {"1": None}, {"1": "1"}, {"1" * 101: 1}, many, []):
        assert refused(biases, {"logit_bias": bad}) == "logit_bias"


def test_stops_are_a_word_or_a_few():
    assert stops("END") == "END"
    assert stops(["a", "b"]) == ["a", "b"]
    assert stops(None) is None
    for bad in (1, [1], ["a"] * 17, "a" * 1001, {}):
        assert refused(stops, bad) == "stop"


def test_metadata_is_the_client_s_own_whatever_its_names():
    request = OpenAIRequest(run=SAID, store=True)
    own = {"asked": '{"store":false}', "holdfast.asked": '{"store":false}'}
    run = finish(request, accepted(metadata=own))
    assert (read_echo(run), run.metadata) == (Echo(), own)
