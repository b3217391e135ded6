import pytest

from holdfast.core.events import RunCancelled, RunCompleted, RunFailed, StopRequested
from holdfast.core.usage import Usage
from holdfast.server.openai.ending import Ending, ending, hermes, spent
from tests.core.stories import accepted, called, replied, started, state

REPLIED = (accepted(), started(), called(), replied(text="a"))


@pytest.mark.parametrize(
    ("events", "reason", "code"),
    [
        ((RunCompleted(),), "stop", ""),
        ((RunCompleted(incomplete="length"),), "length", "length"),
        ((RunCompleted(incomplete="refusal"),), "content_filter", "refusal"),
        ((RunFailed(code="budget", message="too dear"),), "error", "budget"),
        ((StopRequested(), RunCancelled()), "error", "cancelled"),
        ((), "error", "unfinished"),
    ],
)
def test_each_end_has_its_reason(events, reason, code):
    end = ending(state(*REPLIED, *events))
    assert (end.finish_reason, end.code, end.failed) == (reason, code, reason == "error")
    assert bool(end.message) == bool(code)


def test_what_became_of_it_is_told_in_full():
    assert hermes(Ending("error", "model", "gone"), partial=True) == {
        "completed": False,
        "partial": True,
        "failed": True,
        "error": "gone",
        "error_code": "model",
    }


def test_what_was_spent_is_told_with_its_parts():
    assert spent(Usage(input=5, output=3, cached=2, reasoning=1, written=4)) == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
