"""A run that has ended, as one chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict

from holdfast.core.state import RunState
from holdfast.server.openai.ending import Ending, ending, hermes, spent
from holdfast.server.openai.ids import completion_id
from holdfast.server.problems import ASK_NO_MORE, OURS, Problem


class Incomplete(Problem):
    """A run that failed without a word. The answer says what became of it.

    OpenAI's clients ask again after such a status, which would be another run, and whatever its
    tools do once more. The run has had its retries.
    """

    def __init__(self, end: Ending) -> None:
        super().__init__(
            502,
            end.message,
            code="agent_incomplete",
            type=OURS,
            headers={**_headers(end, partial=False), **ASK_NO_MORE},
        )
        self._hermes = hermes(end, partial=False)

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": {**asdict(self.complaint), "hermes": self._hermes}})


def chat_completion(run_id: str, state: RunState, *, created: float) -> Mapping[str, Any]:
    """`created` is when the run was accepted. Raises Problem if it failed without a word."""
    end, text = ending(state), _words(state)
    if end.failed and not text:
        raise Incomplete(end)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if thoughts := _thoughts(state):
        message["reasoning_content"] = thoughts
    accepted = state.accepted
    told: dict[str, Any] = {
        "id": completion_id(run_id),
        "object": "chat.completion",
        "created": int(created),
        "model": (accepted.asked_model or accepted.models[0].name) if accepted else "",
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": end.finish_reason}
        ],
        "usage": spent(state.usage),
    }
    return {**told, "hermes": hermes(end, partial=bool(text))} if end.code else told


def headers(state: RunState) -> Mapping[str, str]:
    """What a client is told beside an answer that is not whole."""
    end = ending(state)
    return _headers(end, partial=bool(_words(state))) if end.code else {}


def _headers(end: Ending, *, partial: bool) -> Mapping[str, str]:
    # The code, since a message may be in any language, and a header may not.
    return {
        "X-Hermes-Completed": "false",
        "X-Hermes-Partial": str(partial).lower(),
        "X-Hermes-Error": end.code,
    }


def _words(state: RunState) -> str:
    """Those of the last turn that still stand."""
    unfinished = "".join(state.attempt.text) if state.attempt else ""
    return unfinished or state.output


def _thoughts(state: RunState) -> str:
    unfinished = "".join(state.attempt.reasoning) if state.attempt else ""
    whole = state.reply.reasoning if state.reply else ()
    return unfinished or "\n\n".join(one.text for one in whole if one.text)
