"""What all routes share: how they are described, who asks, and how a stream is answered with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from litestar import Request, Response
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import PathParameter, SkipValidation
from msgspec import Struct

from holdfast.errors import HoldfastError
from holdfast.server.conversations import Conversations
from holdfast.server.keys import Welcome, always
from holdfast.server.problems import Asked, Envelope, problem
from holdfast.server.service import Service
from holdfast.server.streams import Stream

Ask = Request[Any, Any, Any]
RunId = Annotated[str, PathParameter(description="The run's id.", max_length=256)]
SessionId = Annotated[str, PathParameter(description="The session's id.", max_length=256)]
#: What the routes are given; it is ours, so nobody need look whether it fits.
TheService = NamedDependency[SkipValidation[Service]]
TheConversations = NamedDependency[SkipValidation[Conversations]]


class Frame(Struct, frozen=True):
    """One of a stream. `data` is an object of JSON that names its event and what that is about."""

    data: str
    id: str = ""


class Streamed(Response[Frame]):
    """An answer that is an ASGI app of its own."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(Frame(""), media_type="text/event-stream")
        self._stream = stream

    def to_asgi_response(self, *_arguments: Any, **_options: Any) -> Any:
        return self._stream


#: What stands in the head of an answer, for those who come for a run.
_HEADS = {
    "X-Run-Id": "The run behind it.",
    "X-Holdfast-Ignored": "What was asked for and is passed over.",
    "Idempotency-Replayed": "true, if the same request was taken in before.",
    "X-Hermes-Session-Key": "As it came.",
    "X-Hermes-Session-Id": "The session it is part of.",
    "X-Hermes-Completed": "false, if the answer is not whole.",
    "X-Hermes-Partial": "Whether there is some of it, then.",
    "X-Hermes-Error": "Why it is not whole, then.",
    "Content-Disposition": "The name of a file to keep it in.",
}
STARTED = ("X-Run-Id", "X-Holdfast-Ignored", "Idempotency-Replayed", "X-Hermes-Session-Key")


def heads(*names: str) -> Sequence[ResponseHeader]:
    """That an answer has these, for the schema: whoever answers sets them."""
    return [
        ResponseHeader(name=name, value="", description=_HEADS[name], documentation_only=True)
        for name in names
    ]


def refusals(*statuses: int) -> dict[int, ResponseSpec]:
    every = (400, 401, 403, 408, 413, 414, 421, 429, 431, 500, 503, 507)
    return {
        status: ResponseSpec(data_container=Envelope, description="Why not.")
        for status in sorted({*every, *statuses})
    }


@contextmanager
def asking(what: Asked) -> Iterator[None]:
    """The same error means another thing to who asks for another."""
    try:
        yield
    except HoldfastError as error:
        raise problem(error, asked=what) from error


def who(request: Ask) -> str:
    return str(request.scope["state"].get("principal", ""))


def welcome(request: Ask) -> Welcome:
    """To look whether they still are, while they wait."""
    found: Welcome = request.scope["state"].get("welcome", always)
    return found
