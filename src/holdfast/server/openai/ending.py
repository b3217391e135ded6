"""How a run came out, in the words of chat completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.core.events import RunCancelled, RunCompleted, RunFailed
from holdfast.core.state import RunState
from holdfast.core.usage import Usage


class Ending(NamedTuple):
    """`code` and `message` say why it is not a whole answer; both are "" if it is one."""

    finish_reason: str
    code: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.finish_reason == "error"


_CUT = {
    "length": Ending("length", "length", "the reply was cut off at its greatest length"),
    "refusal": Ending("content_filter", "refusal", "the model declined to go on"),
}


def ending(state: RunState) -> Ending:
    match state.ended:
        case RunCompleted(incomplete=why):
            return _CUT.get(why, Ending("stop"))
        case RunFailed(code=code, message=message):
            return Ending("error", code, message)
        case RunCancelled():
            return Ending("error", "cancelled", "the run was stopped before it came to an end")
        case None:
            return Ending("error", "unfinished", "the run has not come to an end yet")


def hermes(end: Ending, *, partial: bool) -> Mapping[str, Any]:
    """What became of it, for clients that ask more than a finish reason can say."""
    return {
        "completed": False,
        "partial": partial,
        "failed": end.failed,
        "error": end.message,
        "error_code": end.code,
    }


def spent(usage: Usage) -> Mapping[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.written,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
