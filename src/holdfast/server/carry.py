"""The routes by which a session is carried elsewhere, and taken in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from litestar import MediaType, Response, get, post
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Schema,
)
from litestar.params import QueryParameter
from msgspec import Struct

from holdfast.server.problems import draining, holds_a_secret, malformed
from holdfast.server.reference import DOCUMENT, taking
from holdfast.server.routing import Ask, SessionId, TheService, heads, refusals

#: What a file name may hold anywhere, and how long it may be.
_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 64


class Taken(Struct, frozen=True):
    """A session that was taken in, and how many runs it has."""

    session_id: str
    runs: int


@dataclass
class _Exporting(Operation):
    """The answer is of one kind or of the other, which only one who asks can say."""

    def __post_init__(self) -> None:
        found = (self.responses or {}).get("200")
        if isinstance(found, OpenAPIResponse) and found.content is not None:
            page = OpenAPIMediaType(Schema(type=OpenAPIType.STRING))
            found.content = {**found.content, "text/markdown": page}


@get(
    "/v1/sessions/{session_id:str}/export",
    responses=refusals(404),
    response_headers=heads("Content-Disposition"),
    operation_class=_Exporting,
    summary="A session as one document",
)
async def export_session(
    service: TheService,
    session_id: SessionId,
    format: Annotated[
        str | None,
        QueryParameter(
            description="json, which can be taken in again, or markdown, to be read; json unless"
            " given."
        ),
    ] = None,
) -> Response[Any]:
    """Its journal and those of its runs, with what they refer to. Secrets of the server are masked."""
    if format not in (None, "json", "markdown"):
        raise malformed("format must be json or markdown", param="format")
    if format == "markdown":
        page = await service.carrier.export_page(session_id)
        return _file(page.encode(), session_id, "md", "text/markdown")
    return _file(await service.carrier.export(session_id), session_id, "json", MediaType.JSON)


@post(
    "/v1/sessions/import",
    status_code=201,
    responses=refusals(409, 415),
    operation_class=taking(DOCUMENT, *DOCUMENT),
    summary="Take in a session that was exported",
)
async def import_session(
    request: Ask,
    service: TheService,
    as_new: Annotated[
        str | None,
        QueryParameter(description="true to take it in under other ids than it had."),
    ] = None,
) -> Taken:
    """All of it or nothing. A run that had not ended is ended: nothing in it is carried out here."""
    if as_new not in (None, "true", "false"):
        raise malformed("as_new must be true or false", param="as_new")
    if service.draining.is_set():
        raise draining()
    body = await request.body()
    if service.secrets.found_in(body):
        raise holds_a_secret("the document")
    luggage = await service.carrier.take_in(body, as_new=as_new == "true")
    return Taken(luggage.session_id, len(luggage.runs))


def _file(body: bytes, session_id: str, ending: str, kind: str) -> Response[bytes]:
    """To be kept under a name that is one everywhere."""
    name = _ODD.sub("-", session_id)[:_LONGEST].strip("-") or "session"
    disposition = f'attachment; filename="{name}.{ending}"'
    return Response(body, media_type=kind, headers={"Content-Disposition": disposition})


CARRY_ROUTES = (export_session, import_session)
