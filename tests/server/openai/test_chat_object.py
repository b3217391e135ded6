import msgspec
import pytest
from hypothesis import given, settings

from holdfast.core.events import (
    ReasoningStreamed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StopRequested,
)
from holdfast.core.messages import Reasoning
from holdfast.core.run import replay
from holdfast.core.usage import Usage
from holdfast.server.openai.chat_object import Incomplete, chat_completion, headers
from holdfast.testing.strategies import journals
from tests.core.stories import accepted, called, replied, said, started, state

RUN = "run_1"
CALLING = (accepted(asked_model="gpt"), started(), called())
FAILED = RunFailed(code="model", message="nobody is there")


def test_a_run_that_ended_well_is_a_completion():
    reply = replied(
        text="Hello",
        reasoning=(Reasoning("hm"), Reasoning(seal="x"), Reasoning("well")),
        usage=Usage(input=3, output=1),
    )
    told = chat_completion(RUN, state(*CALLING, reply, RunCompleted()), created=7.9)
    assert told == {
        "id": "chatcmpl-run_1",
        "object": "chat.completion",
        "created": 7,
        "model": "gpt",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hello",
                    "refusal": None,
                    "reasoning_content": "hm\n\nwell",
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 1,
            "total_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert headers(state(*CALLING, reply, RunCompleted())) == {}


def test_what_was_cut_off_says_so():
    cut = state(*CALLING, replied(text="Hel", stop="length"), RunCompleted(incomplete="length"))
    told = chat_completion(RUN, cut, created=1)
    assert told["choices"][0]["finish_reason"] == "length"
    assert (told["hermes"]["partial"], told["hermes"]["failed"]) == (True, False)
    assert headers(cut) == {
        "X-Hermes-Completed": "false",
        "X-Hermes-Partial": "true",
        "X-Hermes-Error": "length",
    }


def test_words_that_stand_are_told_though_the_run_failed():
    thought = ReasoningStreamed(turn=1, attempt=1, text="hm")
    stopped = state(*CALLING, thought, said("Hel"), StopRequested(), RunCancelled())
    told = chat_completion(RUN, stopped, created=1)
    message = told["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hel", "hm")
    assert told["choices"][0]["finish_reason"] == "error"
    assert told["hermes"]["error_code"] == "cancelled"


def test_a_run_that_failed_without_a_word_is_a_problem():
    with pytest.raises(Incomplete) as caught:
        chat_completion(RUN, state(*CALLING, FAILED), created=1)
    assert (caught.value.status, caught.value.code) == (502, "agent_incomplete")
    assert caught.value.headers["X-Hermes-Error"] == "model"
    assert msgspec.json.decode(caught.value.body) == {
        "error": {
            "message": "nobody is there",
            "type": "server_error",
            "param": None,
            "code": "agent_incomplete",
            "hermes": {
                "completed": False,
                "partial": False,
                "failed": True,
                "error": "nobody is there",
                "error_code": "model",
            },
        }
    }


def test_a_run_accepted_by_a_newer_version_is_no_answer_yet():
    with pytest.raises(Incomplete):
        chat_completion(RUN, replay([]), created=1)


@settings(max_examples=25)
@given(journals())
def test_every_run_that_completed_tells_its_output_and_its_usage(events):
    last = replay(events)
    try:
        told = chat_completion(RUN, last, created=events[0].at)
    except Incomplete:
        assert not isinstance(last.ended, RunCompleted)
        return
    assert told["usage"]["total_tokens"] == last.usage.total
    if isinstance(last.ended, RunCompleted):
        assert told["choices"][0]["message"]["content"] == last.output
    assert ("hermes" in told) == (told["choices"][0]["finish_reason"] != "stop")
