"""The routes of sessions: what is asked, whom it is passed to, and how the answer is said."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, delete, get, patch, post
from litestar.params import HeaderParameter, PathParameter, QueryParameter

from holdfast.server.reference import EDIT, NEW_SESSION, SESSION, taking
from holdfast.server.routing import (
    Ask,
    Frame,
    SessionId,
    Streamed,
    TheConversations,
    TheService,
    refusals,
    who,
)
from holdfast.server.session_stream import ListStream, SessionStream
from holdfast.server.sessions import Deleted, Messages, Queue, Queued, Removed, Row, Rows

MessageId = Annotated[
    str, PathParameter(description="The id of the message, or of its run.", max_length=256)
]


@get("/v1/sessions", responses=refusals(404), summary="List sessions, the last used first")
async def list_sessions(
    conversations: TheConversations,
    q: Annotated[
        str | None, QueryParameter(description="Only those with this in their title.")
    ] = None,
    archived: Annotated[
        str | None,
        QueryParameter(description="true, false or all; false unless given."),
    ] = None,
    deleted: Annotated[
        str | None,
        QueryParameter(description="true for those that were deleted and can be restored."),
    ] = None,
    after: Annotated[
        str | None,
        QueryParameter(description="Go on after this session: `next` of the page before."),
    ] = None,
    limit: Annotated[
        str | None, QueryParameter(description="At most so many, up to 100; 20 unless given.")
    ] = None,
) -> Rows:
    asked = {"q": q, "archived": archived, "deleted": deleted, "after": after, "limit": limit}
    return await conversations.list({name: value for name, value in asked.items() if value})


@post(
    "/v1/sessions",
    status_code=201,
    responses=refusals(409, 415),
    operation_class=taking(NEW_SESSION),
    summary="Create a session",
)
async def create_session(request: Ask, conversations: TheConversations) -> Row:
    """A run that names a session which is not there creates it, too."""
    return await conversations.create(await request.body() or b"{}", principal=who(request))


@get("/v1/sessions/{session_id:str}", responses=refusals(404), summary="How a session is")
async def read_session(conversations: TheConversations, session_id: SessionId) -> Row:
    return await conversations.read(session_id)


@patch(
    "/v1/sessions/{session_id:str}",
    responses=refusals(404, 409, 415),
    operation_class=taking(SESSION),
    summary="Rename, pin or archive a session",
)
async def change_session(
    request: Ask, conversations: TheConversations, session_id: SessionId
) -> Row:
    return await conversations.change(session_id, await request.body(), principal=who(request))


@delete(
    "/v1/sessions/{session_id:str}",
    status_code=200,
    responses=refusals(404, 409),
    summary="Delete a session",
)
async def delete_session(
    request: Ask, conversations: TheConversations, session_id: SessionId
) -> Deleted:
    """What is under way in it is stopped. It can be restored until it is purged."""
    return await conversations.delete(session_id, principal=who(request))


@post(
    "/v1/sessions/{session_id:str}/restore",
    status_code=200,
    responses=refusals(404, 409, 415),
    summary="Bring back a session that was deleted",
)
async def restore_session(
    request: Ask, conversations: TheConversations, session_id: SessionId
) -> Row:
    return await conversations.restore(session_id, principal=who(request))


@get(
    "/v1/sessions/{session_id:str}/messages",
    responses=refusals(404),
    summary="The transcript, from its end",
)
async def read_messages(
    conversations: TheConversations,
    session_id: SessionId,
    before: Annotated[
        str | None, QueryParameter(description="What came before a page: its `earlier`.")
    ] = None,
    limit: Annotated[
        str | None, QueryParameter(description="At most so many, up to 200; 50 unless given.")
    ] = None,
) -> Messages:
    asked = {"before": before, "limit": limit}
    found = {name: value for name, value in asked.items() if value}
    return await conversations.messages(session_id, found)


@get(
    "/v1/sessions/{session_id:str}/queue",
    responses=refusals(404),
    summary="The messages that wait for their turn",
)
async def read_queue(conversations: TheConversations, session_id: SessionId) -> Queue:
    return await conversations.queue(session_id)


@patch(
    "/v1/sessions/{session_id:str}/queue/{message_id:str}",
    responses=refusals(404, 409, 415),
    operation_class=taking(EDIT, "input"),
    summary="Put a message that waits in other words",
)
async def edit_message(
    request: Ask, conversations: TheConversations, session_id: SessionId, message_id: MessageId
) -> Queued:
    """Its pictures stay. Once its run has begun it is too late."""
    return await conversations.edit(
        session_id, message_id, await request.body(), principal=who(request)
    )


@delete(
    "/v1/sessions/{session_id:str}/queue/{message_id:str}",
    status_code=200,
    responses=refusals(404, 409),
    summary="Take back a message that waits",
)
async def remove_message(
    request: Ask, conversations: TheConversations, session_id: SessionId, message_id: MessageId
) -> Removed:
    return await conversations.remove(session_id, message_id, principal=who(request))


@get(
    "/v1/sessions/{session_id:str}/events",
    responses=refusals(404),
    summary="Follow a session and its runs",
    media_type="text/event-stream",
)
async def follow_session(
    service: TheService,
    session_id: SessionId,
    last_event_id: Annotated[
        str | None,
        HeaderParameter(
            name="Last-Event-ID", description="The id of the last frame that was read."
        ),
    ] = None,
    after: Annotated[
        str | None,
        QueryParameter(
            description="Go on after the frame of this id, or a page's `cursor`, if there is no"
            " Last-Event-ID; `now` for what comes."
        ),
    ] = None,
) -> Response[Frame]:
    """Server-sent events, all that were and all that come, until the session is deleted.

    Those of a run are as they are where the run is followed.
    """
    return Streamed(SessionStream(service, session_id, last_event_id, after))


@get(
    "/v1/events",
    responses=refusals(),
    summary="Follow the list of sessions",
    media_type="text/event-stream",
)
async def follow_list(service: TheService, conversations: TheConversations) -> Response[Frame]:
    """Each session as it has changed, from now on. Read the list once the stream has begun."""
    return Streamed(ListStream(service, conversations))


SESSION_ROUTES = (
    list_sessions,
    create_session,
    read_session,
    change_session,
    delete_session,
    restore_session,
    read_messages,
    read_queue,
    edit_message,
    remove_message,
    follow_session,
    follow_list,
)
