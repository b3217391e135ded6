"""The routes: what is asked, whom it is passed to, and how the answer is said. Sentences only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Never

from litestar import Litestar, MediaType, Response, get, post
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import HeaderParameter, QueryParameter, SkipValidation
from msgspec import Raw, Struct

from holdfast.core.events import Recorded
from holdfast.errors import HoldfastError
from holdfast.server.about import About
from holdfast.server.carry import CARRY_ROUTES
from holdfast.server.compat_sessions import COMPATIBLE_ROUTES
from holdfast.server.conversations import Conversations
from holdfast.server.guard import OPEN
from holdfast.server.lane import Started, Stopping, start
from holdfast.server.openai.chat_routes import CHAT_ROUTES
from holdfast.server.openai.response_routes import RESPONSE_ROUTES
from holdfast.server.problems import (
    Problem,
    malformed,
    no_such_path,
    problem,
    wrong_method,
)
from holdfast.server.reference import (
    APPROVAL,
    RUN,
    STEER,
    STOP,
    complete,
    page,
    starting,
    taking,
)
from holdfast.server.requests import cursor
from holdfast.server.routing import (
    STARTED,
    Ask,
    Frame,
    RunId,
    Streamed,
    TheService,
    asking,
    heads,
    refusals,
    welcome,
    who,
)
from holdfast.server.service import Page, Service
from holdfast.server.session_routes import SESSION_ROUTES
from holdfast.server.status import Status
from holdfast.server.streams import RunStream

TheAbout = NamedDependency[SkipValidation[About]]


class Answered(Struct, frozen=True):
    run_id: str
    choice: str
    resolved: int
    approval_ids: tuple[str, ...]
    #: The one it settled, under the other of its names; "" if it settled several.
    request_id: str
    #: Why a standing yes holds for this call alone, if it does.
    problems: tuple[str, ...] = ()
    object: str = "hermes.run.approval_response"


class Steered(Struct, frozen=True):
    run_id: str
    accepted: bool = True
    object: str = "hermes.run.steer"


class Line(Struct, frozen=True):
    """An event as it stands in the journal."""

    seq: int
    at: float
    event: Raw


class Journal(Struct, frozen=True):
    data: list[Line]
    object: str = "list"


# --- runs -------------------------------------------------------------------------------------


@post(
    "/v1/runs",
    status_code=202,
    responses=refusals(404, 409, 415, 429),
    response_headers=heads(*STARTED),
    operation_class=starting(RUN, "input"),
    summary="Start a run",
)
async def start_run(
    request: Ask,
    service: TheService,
    idempotency_key: Annotated[  # noqa: ARG001 - read with the other headers
        str | None,
        HeaderParameter(
            name="Idempotency-Key", description="The same key and body again lead to the same run."
        ),
    ] = None,
    session_id: Annotated[  # noqa: ARG001 - as above
        str | None,
        HeaderParameter(
            name="X-Hermes-Session-Id", description="The session, if the body names none."
        ),
    ] = None,
) -> Response[Started]:
    """The run is on record when this is answered, and will be carried to an end."""
    started, headers = await start(
        service, await request.body(), principal=who(request), headers=request.headers
    )
    return Response(started, status_code=202, headers=headers)


@get("/v1/runs", responses=refusals(404), summary="List runs, the newest first")
async def list_runs(
    service: TheService,
    status: Annotated[str | None, QueryParameter(description="Only runs that stand so.")] = None,
    session_id: Annotated[
        str | None, QueryParameter(description="Only runs of this session.")
    ] = None,
    after: Annotated[
        str | None, QueryParameter(description="Go on after this run: `next` of the page before.")
    ] = None,
    limit: Annotated[
        str | None, QueryParameter(description="At most so many, up to 100; 20 unless given.")
    ] = None,
) -> Page:
    asked = {"status": status, "session_id": session_id, "after": after, "limit": limit}
    return await service.list({name: value for name, value in asked.items() if value})


@get("/v1/runs/{run_id:str}", responses=refusals(404), summary="How a run stands")
async def read_run(
    request: Ask,
    service: TheService,
    run_id: RunId,
    wait: Annotated[
        str | None,
        QueryParameter(
            description="Answer once the run has ended, or after so many seconds; at most 60."
        ),
    ] = None,
) -> Status:
    """With `wait`, once it has ended or that many seconds have passed."""
    return await service.status(run_id, wait=_seconds(wait), welcome=welcome(request))


@get(
    "/v1/runs/{run_id:str}/events",
    responses=refusals(404),
    summary="Follow a run",
    media_type="text/event-stream",
)
async def follow_run(
    service: TheService,
    run_id: RunId,
    last_event_id: Annotated[
        str | None,
        HeaderParameter(
            name="Last-Event-ID", description="The id of the last frame that was read."
        ),
    ] = None,
    after: Annotated[
        str | None,
        QueryParameter(
            description="Go on after the frame of this id, if there is no Last-Event-ID."
        ),
    ] = None,
) -> Response[Frame]:
    """Server-sent events, all that were and all that come, until the run has ended."""
    return Streamed(RunStream(service, run_id, after=cursor(last_event_id, after)))


@get("/v1/runs/{run_id:str}/journal", responses=refusals(404), summary="The events on record")
async def read_journal(
    service: TheService,
    run_id: RunId,
    after: Annotated[str | None, QueryParameter(description="Only events after this seq.")] = None,
) -> Journal:
    return Journal([_line(one) for one in await service.journal(run_id, after=cursor(None, after))])


@post(
    "/v1/runs/{run_id:str}/approval",
    status_code=200,
    responses=refusals(404, 409, 415),
    operation_class=taking(APPROVAL, "choice"),
    summary="Answer an approval",
)
async def answer_approval(request: Ask, service: TheService, run_id: RunId) -> Answered:
    with asking("approval"):
        choice, settled, problems = await service.answer(
            run_id, await request.body(), principal=who(request)
        )
    one = settled[0] if len(settled) == 1 else ""
    return Answered(run_id, choice, len(settled), tuple(settled), one, tuple(problems))


@post(
    "/v1/runs/{run_id:str}/steer",
    status_code=200,
    responses=refusals(404, 409, 415),
    operation_class=taking(STEER, "input"),
    summary="Say something to a run that is under way",
)
async def steer_run(request: Ask, service: TheService, run_id: RunId) -> Steered:
    """The model hears it at its next call; the run does not end before that."""
    with asking("steer"):
        await service.steer(run_id, await request.body(), principal=who(request))
    return Steered(run_id)


@post(
    "/v1/runs/{run_id:str}/stop",
    status_code=200,
    responses=refusals(404),
    operation_class=taking(STOP),
    summary="Stop a run",
)
async def stop_run(request: Ask, service: TheService, run_id: RunId) -> Stopping:
    """Answered as soon as the wish is on record; nothing new starts from then on.

    A body that is no such object, or of another type, stops the run all the same.
    """
    stands = await service.stop(run_id, await request.body(), principal=who(request))
    return Stopping(run_id, stands)


# --- the service ------------------------------------------------------------------------------


@get(["/health", "/v1/health"], responses=refusals(), summary="Whether it lives", security=[])
async def health(about: TheAbout) -> dict[str, str]:
    return about.health()


@get("/health/detailed", responses=refusals(), summary="How it is")
async def detailed_health(about: TheAbout) -> dict[str, Any]:
    return await about.detailed()


@get("/v1/capabilities", responses=refusals(), summary="What it can do")
async def capabilities(about: TheAbout) -> dict[str, Any]:
    return about.capabilities()


@get("/v1/toolsets", responses=refusals(), summary="The tools there are")
async def toolsets(about: TheAbout) -> dict[str, Any]:
    return about.toolsets()


@get("/metrics", responses=refusals(), summary="Numbers for Prometheus", media_type=MediaType.TEXT)
async def metrics(about: TheAbout) -> Response[bytes]:
    numbers, kind = await about.metrics()
    return Response(numbers, headers={"Content-Type": kind})


@get("/openapi.json", responses=refusals(), summary="This, for machines", include_in_schema=False)
async def openapi(request: Ask) -> dict[str, Any]:
    return complete(request.app.openapi_schema.to_schema())


@get("/docs", summary="This, for people", include_in_schema=False)
async def reference(request: Ask) -> Response[str]:
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy}
    whole = page(complete(request.app.openapi_schema.to_schema()))
    return Response(whole, media_type=MediaType.HTML, headers=headers)


# --- putting it together ----------------------------------------------------------------------

ROUTES = [
    start_run,
    list_runs,
    read_run,
    follow_run,
    read_journal,
    answer_approval,
    steer_run,
    stop_run,
    health,
    detailed_health,
    capabilities,
    toolsets,
    metrics,
    openapi,
    reference,
    *SESSION_ROUTES,
    *COMPATIBLE_ROUTES,
    *CARRY_ROUTES,
    *CHAT_ROUTES,
    *RESPONSE_ROUTES,
]


def make_routes(service: Service, about: About) -> Litestar:
    """The routes with what they need. Whoever serves them guards them."""
    return Litestar(
        route_handlers=ROUTES,
        dependencies={
            "service": _given(service),
            "about": _given(about),
            "conversations": _given(Conversations(service, keep=about.settings.retention.deleted)),
        },
        exception_handlers={
            Problem: _refuse,
            HoldfastError: _explain,
            HTTPException: _no_route,
            Exception: _unexpected,
        },
        state=State({"secrets": service.secrets}),
        before_request=_allow,
        logging_config=None,
        # Whoever guards the routes has read the body by then, and knows how large it may be.
        request_max_body_size=None,
        openapi_config=OpenAPIConfig(
            title="Holdfast",
            version=about.version,
            description="Runs AI agents so that a run never hangs, never loses anything, and can"
            " always be stopped.",
            components=Components(
                security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}
            ),
            security=[{"token": []}],
            render_plugins=[],
        ),
        debug=False,
    )


def _given(value: Any) -> Provide:
    async def give() -> Any:
        return value

    return Provide(give)


def _seconds(value: str | None) -> float:
    try:
        seconds = float(value or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise malformed("wait must be a number of seconds", param="wait")
    return seconds


def _line(recorded: Recorded) -> Line:
    return Line(recorded.seq, recorded.at, Raw(recorded.body))


def _refuse(request: Ask, refusal: Problem) -> Response[bytes]:
    refusal.without(request.app.state.secrets)
    return Response(
        refusal.body,
        status_code=refusal.status,
        headers=dict(refusal.headers),
        media_type=MediaType.JSON,
    )


def _explain(request: Ask, error: HoldfastError) -> Response[bytes]:
    return _refuse(request, problem(error))


def _no_route(request: Ask, error: HTTPException) -> Response[bytes]:
    """What the framework itself refuses, in our own words."""
    if error.status_code == 404:
        return _refuse(request, no_such_path())
    if error.status_code == 405:
        return _refuse(request, wrong_method(*_methods(request)))
    if error.status_code < 500:
        return _refuse(request, malformed(error.detail))
    raise error


def _unexpected(_request: Ask, error: Exception) -> Never:
    """Whoever guards the routes writes it down and answers."""
    raise error


async def _allow(request: Ask) -> Response[None] | None:
    """What may be asked here: the framework would tell of one of the handlers there are."""
    if request.method != "OPTIONS":
        return None
    allowed = {"Allow": ", ".join(_methods(request))}
    return Response(None, status_code=204, headers=allowed, media_type=MediaType.TEXT)


def _methods(request: Ask) -> list[str]:
    """What may be asked at this address."""
    words = request.scope["path"].strip("/").split("/")
    fitting = (route for route in request.app.routes if _fits(route.path_components, words))
    methods = {method for route in fitting for method in getattr(route, "methods", ())}
    # What is open can be asked for without wanting to read it.
    return sorted({*methods, "HEAD"} if request.scope["path"] in OPEN else methods)


def _fits(components: Sequence[object], words: Sequence[str]) -> bool:
    """What is no word of an address stands for any, and a path for all the rest."""
    if components and getattr(components[-1], "type", None) is Path:
        words = words[: len(components)]
    if len(components) != len(words):
        return False
    return all(
        component == word or not isinstance(component, str)
        for component, word in zip(components, words, strict=True)
    )
