"""What a run is called where clients of OpenAI meet it: the same id, in another coat."""

from __future__ import annotations

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
    if not response_id.startswith(_RESPONSE):
        said = f"there is no response {response_id}"
        raise Problem(404, said, code=f"{named}_not_found", param=f"{named}_id")
    return _RUN + response_id.removeprefix(_RESPONSE)


def bare(run_id: str) -> str:
    """What makes it different from the others, to make other ids of."""
    return run_id.removeprefix(_RUN)
