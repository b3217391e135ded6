"""The routes of OpenAI's responses."""

from __future__ import annotations

import re
from typing import Annotated, Any

from litestar import Response, delete, get, post
from litestar.params import PathParameter, QueryParameter

from holdfast.server.bodies import count
from holdfast.server.openai.chat_routes import Key
from holdfast.server.openai.kept import Found, Kept, given
from holdfast.server.openai.reference import RESPONSE, conversing, telling
from holdfast.server.openai.response_object import MOST_ITEMS, USUAL_ITEMS, Order, input_items
from holdfast.server.openai.streams import ResponseStream, begun, ended
from holdfast.server.openai.taking import take_response
from holdfast.server.problems import malformed
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

Id = Annotated[str, PathParameter(description="The response's id.")]
_FLAGS = {None: False, "": False, "false": False, "true": True}
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


@post(
    "/v1/responses",
    status_code=200,
    responses=refusals(404, 409, 415, 429),
    response_headers=heads(*STARTED, "X-Hermes-Session-Id"),
    operation_class=conversing(telling(taking(RESPONSE, "input"))),
    summary="Ask for a response, for OpenAI's clients",
)
async def create_response(
    request: Ask, service: TheService, idempotency_key: Key = None
) -> Response[Any]:
    """With `stream`, as it comes; with `background`, as it stands now. X-Run-Id names the run."""
    principal, caller = who(request), request.scope["state"]["caller"]
    taken = await take_response(
        service,
        await request.body(),
        principal=principal,
        key=idempotency_key,
        headers=request.headers,
        caller=caller,
    )
    if taken.asked.stream:
        return Streamed(ResponseStream(service, taken.run_id, taken=taken))
    if taken.asked.background:
        journal = await begun(service, taken, caller)
    else:
        journal = await ended(service, taken, caller, by=principal, welcome=welcome(request))
    told = Found(taken.run_id, journal).told
    return Response(told, status_code=200, headers=taken.headers)


@get(
    "/v1/responses/{id:str}",
    responses=refusals(404),
    response_headers=heads("X-Run-Id"),
    operation_class=telling(),
    summary="A response, for OpenAI's clients",
)
async def read_response(
    service: TheService,
    id: Id,
    stream: Annotated[
        str | None, QueryParameter(description="true to follow it from the start.")
    ] = None,
    starting_after: Annotated[
        str | None,
        QueryParameter(description="Only events after the one of this sequence_number."),
    ] = None,
) -> Response[Any]:
    """For as long as its run is kept, from any of its events on."""
    if stream not in _FLAGS:
        raise malformed("stream must be true or false", param="stream")
    after = _seen(starting_after)
    found = await Kept(service).find(id)
    if _FLAGS[stream]:
        return Streamed(ResponseStream(service, found.run_id, after=after))
    return Response(found.told, headers={"X-Run-Id": found.run_id})


@post(
    "/v1/responses/{id:str}/cancel",
    status_code=200,
    responses=refusals(404, 415),
    summary="Cancel a response, for OpenAI's clients",
)
async def cancel_response(request: Ask, service: TheService, id: Id) -> dict[str, Any]:
    """One that has ended stays as it is."""
    return dict(await Kept(service).cancel(id, principal=who(request)))


@delete(
    "/v1/responses/{id:str}",
    status_code=200,
    responses=refusals(404),
    summary="Delete a response, for OpenAI's clients",
)
async def delete_response(request: Ask, service: TheService, id: Id) -> dict[str, Any]:
    """It is stopped, and its run is found no more. What was said in a conversation stays there."""
    await Kept(service).delete(id, principal=who(request))
    return {"id": id, "object": "response", "deleted": True}


@get(
    "/v1/responses/{id:str}/input_items",
    responses=refusals(404),
    summary="What a response was asked, for OpenAI's clients",
)
async def read_input_items(
    service: TheService,
    id: Id,
    after: Annotated[str | None, QueryParameter(description="Go on after this item.")] = None,
    limit: Annotated[
        str | None, QueryParameter(description="At most so many, up to 100; 20 unless given.")
    ] = None,
    order: Annotated[
        str | None, QueryParameter(description="asc, or desc, which is usual: the last first.")
    ] = None,
) -> dict[str, Any]:
    found = await Kept(service).find(id)
    items = input_items(
        found.run_id,
        found.journal,
        instructed=found.echo.instructed or (),
        history=await given(service.store, found.accepted) if found.accepted else (),
        after=after or "",
        limit=count(limit, "limit", usual=USUAL_ITEMS, most=MOST_ITEMS),
        order=_order(order),
    )
    return dict(items)


def _seen(said: str | None) -> int:
    """Whoever says what they have seen and is not understood would be told all of it again."""
    if not said:
        return 0
    if not _NUMBER.fullmatch(said):
        raise malformed(
            "starting_after must be the sequence_number of an event", param="starting_after"
        )
    return int(said)


def _order(said: str | None) -> Order:
    match said:
        case "asc":
            return "asc"
        case None | "" | "desc":
            return "desc"
        case _:
            raise malformed("order must be asc or desc", param="order")


RESPONSE_ROUTES = (
    create_response,
    read_response,
    cancel_response,
    delete_response,
    read_input_items,
)
