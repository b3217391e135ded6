"""Sessions under the addresses and in the words that older clients know.

A session that somebody ends is archived here: it is out of the way, and there for whoever goes on.
There is no forking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import anyio
from litestar import Response, delete, get, patch, post
from litestar.params import HeaderParameter, QueryParameter
from msgspec import Struct

from holdfast.core.session import SessionCreated
from holdfast.server.bodies import (
    count,
    only,
    read_object,
    string,
    text,
)
from holdfast.server.bodies import (
    session_id as read_session_id,
)
from holdfast.server.chat import ChatStream, read_chat, spoken
from holdfast.server.conversations import UNSUPPORTED, Wanted, read_instructions, read_title
from holdfast.server.frames import Used
from holdfast.server.problems import OURS, Problem, draining
from holdfast.server.reference import CHAT, COMPATIBLE, COMPATIBLE_NEW, taking
from holdfast.server.routing import (
    Ask,
    Frame,
    SessionId,
    Streamed,
    TheConversations,
    TheService,
    asking,
    heads,
    refusals,
    welcome,
    who,
)
from holdfast.server.service import Service, Submitted
from holdfast.server.sessions import Row
from holdfast.server.status import Status

#: Sessions in one page, sessions that may be skipped, and entries of one transcript.
MOST_LISTED = 200
MOST_SKIPPED = 10_000
MOST_ENTRIES = 10_000

Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key", description="The same key and body again lead to the same run."
    ),
]


class Session(Struct, frozen=True, kw_only=True):
    """`end_reason` is given where it was archived, as a session ends by that here."""

    id: str
    title: str
    source: str = "api_server"
    model: str | None
    started_at: float
    last_active: float
    end_reason: str | None
    runs: int
    status: str


class OneSession(Struct, frozen=True):
    session: Session
    object: str = "hermes.session"


class SessionList(Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: Sequence[Session]
    limit: int
    offset: int
    has_more: bool


class DeletedSession(Struct, frozen=True):
    id: str
    deleted: bool = True
    object: str = "hermes.session.deleted"


class MessageList(Struct, frozen=True, kw_only=True):
    """`has_more`: there is more before these than is told here."""

    object: str = "list"
    session_id: str
    data: Sequence[Mapping[str, Any]]
    has_more: bool


class ChatMessage(Struct, frozen=True):
    content: str
    role: str = "assistant"


class Completion(Struct, frozen=True, kw_only=True):
    object: str = "hermes.session.chat.completion"
    session_id: str
    run_id: str
    message: ChatMessage
    usage: Used


@get("/api/sessions", responses=refusals(), summary="List sessions, for older clients")
async def list_compatible(
    conversations: TheConversations,
    service: TheService,
    limit: Annotated[
        str | None, QueryParameter(description="At most so many, up to 200; 50 unless given.")
    ] = None,
    offset: Annotated[
        str | None, QueryParameter(description="How many to skip, up to 10000.")
    ] = None,
) -> SessionList:
    most = count(limit, "limit", usual=50, most=MOST_LISTED)
    skipped = count(offset, "offset", usual=0, most=MOST_SKIPPED, least=0)
    with asking("session"):
        found = await service.store.sessions(archived=None, limit=skipped + most + 1)
        rows = [await conversations.row(entry) for entry in found[skipped : skipped + most]]
    return SessionList(
        data=[_session(row) for row in rows],
        limit=most,
        offset=skipped,
        has_more=len(found) > skipped + most,
    )


@post(
    "/api/sessions",
    status_code=201,
    responses=refusals(409, 415),
    operation_class=taking(COMPATIBLE_NEW),
    summary="Create a session, for older clients",
)
async def create_compatible(request: Ask, conversations: TheConversations) -> OneSession:
    fields = read_object(await request.body() or b"{}")
    begun = SessionCreated(
        title=read_title(fields),
        instructions=read_instructions(fields, "system_prompt", code="invalid_system_prompt"),
        model=text(fields, "model"),
        surface="http",
        principal=who(request),
    )
    wanted = read_session_id(fields, "id") or read_session_id(fields)
    with asking("session"):
        return OneSession(_session(await conversations.begin(Wanted(wanted, begun))))


@get(
    "/api/sessions/{session_id:str}",
    responses=refusals(404),
    summary="How a session is, for older clients",
)
async def read_compatible(conversations: TheConversations, session_id: SessionId) -> OneSession:
    with asking("session"):
        return OneSession(_session(await conversations.read(session_id)))


@patch(
    "/api/sessions/{session_id:str}",
    responses=refusals(404, 409, 415),
    operation_class=taking(COMPATIBLE),
    summary="Rename or end a session, for older clients",
)
async def change_compatible(
    request: Ask, conversations: TheConversations, session_id: SessionId
) -> OneSession:
    fields = read_object(await request.body())
    only(fields, ("title", "end_reason"), code=UNSUPPORTED)
    title = read_title(fields) if "title" in fields else None
    ended = bool(string(fields, "end_reason")) if "end_reason" in fields else None
    with asking("session"):
        row = await conversations.put(session_id, title, None, ended, principal=who(request))
    return OneSession(_session(row))


@delete(
    "/api/sessions/{session_id:str}",
    status_code=200,
    responses=refusals(404, 409),
    summary="Delete a session, for older clients",
)
async def delete_compatible(
    request: Ask, conversations: TheConversations, session_id: SessionId
) -> DeletedSession:
    with asking("session"):
        await conversations.delete(session_id, principal=who(request))
    return DeletedSession(session_id)


@get(
    "/api/sessions/{session_id:str}/messages",
    responses=refusals(404),
    summary="What was said in a session, for older clients",
)
async def compatible_messages(service: TheService, session_id: SessionId) -> MessageList:
    with asking("session"):
        page = await service.sessions.page(session_id, limit=MOST_ENTRIES)
    return MessageList(
        session_id=session_id, data=spoken(page.entries), has_more=bool(page.earlier)
    )


@post(
    "/api/sessions/{session_id:str}/chat",
    status_code=200,
    responses=refusals(404, 409, 415, 429, 502),
    response_headers=heads("X-Run-Id"),
    operation_class=taking(CHAT, "message"),
    summary="Say something and wait for the answer, for older clients",
)
async def chat(
    request: Ask, service: TheService, session_id: SessionId, idempotency_key: Key = None
) -> Response[Completion]:
    """Whoever leaves before the answer finds it in the session."""
    with asking("session"):
        sent = await _send(request, service, session_id, idempotency_key)
        told = await _outcome(request, service, sent.run_id)
    completion = Completion(
        session_id=session_id,
        run_id=sent.run_id,
        message=ChatMessage(_answer(told)),
        usage=told.usage,  # type: ignore[arg-type]
    )
    return Response(completion, status_code=200, headers={"X-Run-Id": sent.run_id})


@post(
    "/api/sessions/{session_id:str}/chat/stream",
    status_code=200,
    responses=refusals(404, 409, 415, 429),
    response_headers=heads("X-Run-Id"),
    operation_class=taking(CHAT, "message"),
    summary="Say something and follow the answer, for older clients",
    media_type="text/event-stream",
)
async def chat_stream(
    request: Ask, service: TheService, session_id: SessionId, idempotency_key: Key = None
) -> Response[Frame]:
    """Server-sent events with names. Whoever leaves before the end finds the rest in the session."""
    with asking("session"):
        sent = await _send(request, service, session_id, idempotency_key)
    return Streamed(ChatStream(service, sent.run_id, session_id))


async def _send(request: Ask, service: Service, session_id: str, key: str | None) -> Submitted:
    await service.sessions.entry(session_id)
    body = await request.body()
    asked = read_chat(session_id, body)
    once = service.once(body, principal=who(request), key=key, of=session_id)
    return await service.take_in(asked, principal=who(request), once=once)


async def _outcome(request: Ask, service: Service, run_id: str) -> Status:
    """How the run ended. Raises Problem if it did not end as it should, or the server leaves."""
    told: Status | None = None
    with anyio.CancelScope() as waiting:
        request.scope["state"]["caller"].when_gone(waiting.cancel)
        told = await service.outcome(run_id, welcome=welcome(request))
    if told is None or told.status not in ("completed", "failed", "cancelled"):
        raise draining()
    if told.status != "completed":
        words = told.error if told.status == "failed" else "the run was stopped"
        named = {"X-Run-Id": run_id}
        raise Problem(502, str(words), code="agent_incomplete", type=OURS, headers=named)
    return told


def _answer(told: Status) -> str:
    return told.output or ""


def _session(row: Row) -> Session:
    return Session(
        id=row.session_id,
        title=row.title,
        model=row.model or None,
        started_at=row.created_at,
        last_active=row.moved_at,
        end_reason="archived" if row.archived else None,
        runs=row.runs,
        status=row.status,
    )


COMPATIBLE_ROUTES = (
    list_compatible,
    create_compatible,
    read_compatible,
    change_compatible,
    delete_compatible,
    compatible_messages,
    chat,
    chat_stream,
)
