"""The routes of OpenAI's chat completions, and of the models there are."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, PathParameter, SkipValidation

from holdfast.core.run import replay
from holdfast.server.about import About
from holdfast.server.openai.chat_object import chat_completion, headers
from holdfast.server.openai.models import ModelList, ModelRow, model, models
from holdfast.server.openai.reference import COMPLETION, conversing, telling
from holdfast.server.openai.streams import ChatStream, ended
from holdfast.server.openai.taking import take_chat
from holdfast.server.problems import Problem
from holdfast.server.reference import taking
from holdfast.server.routing import (
    STARTED,
    Ask,
    Streamed,
    TheService,
    heads,
    refusals,
    welcome,
    who,
)

TheAbout = NamedDependency[SkipValidation[About]]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key", description="The same key and body again lead to the same run."
    ),
]


@get("/v1/models", responses=refusals(), summary="The models there are, for OpenAI's clients")
async def list_models(about: TheAbout) -> ModelList:
    return models(about.settings, created=int(about.service.began))


@get(
    "/v1/models/{model_id:path}",
    responses=refusals(404),
    summary="A model, for OpenAI's clients",
)
async def read_model(
    request: Ask,
    about: TheAbout,
    model_id: Annotated[  # noqa: ARG001 (the address has to have a place for it)
        str, PathParameter(description="Its name, which may have slashes.")
    ],
) -> ModelRow:
    # As it was asked for: on the way here slashes are put in order, and a name may have any.
    asked = unquote(request.scope["raw_path"].decode("latin-1"))
    named = asked.removeprefix("/v1/models/")
    return model(about.settings, named, created=int(about.service.began))


@post(
    "/v1/chat/completions",
    status_code=200,
    responses=refusals(404, 409, 415, 429, 502),
    response_headers=heads(
        *STARTED,
        "X-Hermes-Session-Id",
        "X-Hermes-Completed",
        "X-Hermes-Partial",
        "X-Hermes-Error",
    ),
    operation_class=conversing(telling(taking(COMPLETION, "messages"))),
    summary="Say something and have it answered, for OpenAI's clients",
)
async def complete_chat(
    request: Ask, service: TheService, idempotency_key: Key = None
) -> Response[Any]:
    """With `stream`, as it comes. Behind it is a run, which X-Run-Id names.

    X-Hermes-Session-Id, X-OpenWebUI-Chat-Id or X-Session-Id name the session it is part of.
    """
    caller = request.scope["state"]["caller"]
    taken = await take_chat(
        service,
        await request.body(),
        principal=who(request),
        key=idempotency_key,
        headers=request.headers,
        caller=caller,
    )
    if taken.asked.stream:
        return Streamed(ChatStream(service, taken.run_id, taken=taken))
    journal = await ended(service, taken, caller, by=who(request), welcome=welcome(request))
    state = replay(journal)
    try:
        told = chat_completion(taken.run_id, state, created=journal[0].at)
    except Problem as refusal:
        refusal.headers |= taken.headers
        raise
    return Response(told, status_code=200, headers={**taken.headers, **headers(state)})


CHAT_ROUTES = (list_models, read_model, complete_chat)
