"""What a run is called where clients of OpenAI meet it: the same id, in another coat."""

from __future__ import annotations

from holdfast.server.bodies import LONGEST_NAME
from holdfast.server.frames import short
from holdfast.server.problems import Problem

_RUN, _RESPONSE = "run_", "resp_"


def completion_id(run_id: str) -> str:
    return f"chatcmpl-{run_id}"


def response_id(run_id: str) -> str:
    return _RESPONSE + bare(run_id)


def run_id(response_id: str, *, named: str = "response") -> str:
    """The run behind a response. Raises Problem for what cannot be the id of one.

    `named` is what the response is in the request.
    """
    if not response_id.startswith(_RESPONSE) or len(response_id) > LONGEST_NAME:
        said = f"there is no response {short(response_id, LONGEST_NAME)}"
        raise Problem(404, said, code=f"{named}_not_found", param=f"{named}_id")
    return _RUN + response_id.removeprefix(_RESPONSE)


def response_of(item_id: str) -> str:
    """The response that a message is part of, by the message's id."""
    return _RESPONSE + item_id.partition("_")[2].rpartition("_")[0]


def bare(run_id: str) -> str:
    """What makes it different from the others, to make other ids of."""
    return run_id.removeprefix(_RUN)
