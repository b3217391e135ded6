"""Requests of OpenAI's clients taken in: each becomes a run, or the run that it led to before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.fit import conversation
from holdfast.core.messages import Message, UserMessage
from holdfast.core.run import replay
from holdfast.engine.recall import Recall
from holdfast.ports import Once
from holdfast.server.bodies import session_id
from holdfast.server.content import Instruction
from holdfast.server.openai.chat_request import read_chat
from holdfast.server.openai.instructed import in_session, together
from holdfast.server.openai.kept import Found, Kept, given
from holdfast.server.openai.referred import read_referring
from holdfast.server.openai.rejoin import RETRIES, latest, rejoin, sent_again
from holdfast.server.openai.request import OpenAIRequest, finish
from holdfast.server.problems import Problem, malformed
from holdfast.server.requests import RunRequest, session_key
from holdfast.server.service import Service, Submitted
from holdfast.server.streams import Caller

#: Headers by which a client names the conversation, the first that is there counts.
SESSION_HEADERS = ("X-Hermes-Session-Id", "X-OpenWebUI-Chat-Id", "X-Session-Id")

#: Who names it so sends with each message all that was said before it, be it nothing: a first message
#: may be edited, answered anew, or put to several models.
_SENDS_ALL = "X-OpenWebUI-Chat-Id"

#: Messages of a conversation that are gone on with, where it may be cut.
MOST_EARLIER = 100


class Taken(NamedTuple):
    """`again`: the same request leads to it if the client sends it again by itself. `left`: whoever
    asked had gone before there was anything to tell them, and may come back for it already. What they
    call the key of their session is said again."""

    run_id: str
    asked: OpenAIRequest
    replayed: bool
    once: Once | None = None
    again: bool = False
    left: bool = False
    session_key: str = ""

    @property
    def goes_on(self) -> bool:
        return self.asked.goes_on

    @property
    def owed(self) -> Once | None:
        """The request to remember should the answer break off, if there is one to remember still."""
        return None if self.left else self.once

    @property
    def headers(self) -> dict[str, str]:
        told = {"X-Run-Id": self.run_id}
        session = self.asked.run.session_id
        # A session may have a name that no header can hold.
        if session and session.isascii():
            told["X-Hermes-Session-Id"] = session
        if self.session_key.isascii() and self.session_key:
            told["X-Hermes-Session-Key"] = self.session_key
        if self.asked.ignored:
            told["X-Holdfast-Ignored"] = ", ".join(self.asked.ignored)
        if self.replayed:
            told["Idempotency-Replayed"] = "true"
        return told


async def take_chat(
    service: Service,
    body: bytes,
    *,
    principal: str,
    key: str | None,
    headers: Mapping[str, str],
    caller: Caller,
) -> Taken:
    """Raises Problem or HoldfastError."""
    asked = _in_session(read_chat(body), headers)
    once = _known_by(service, body, principal, key, of=f"chat {asked.run.session_id}".strip())
    return await _take(service, asked, once, headers, caller)


async def take_response(
    service: Service,
    body: bytes,
    *,
    principal: str,
    key: str | None,
    headers: Mapping[str, str],
    caller: Caller,
) -> Taken:
    """Raises Problem or HoldfastError."""
    asked = await read_referring(service, body)
    if asked.background and not asked.store:
        raise malformed("a response in the background has to be stored", param="background")
    if asked.background and not asked.stream and asked.on_disconnect == "stop":
        raise malformed(
            "a response in the background is answered at once, so there is nobody whose leaving could"
            " stop it: ask for a stream, or cancel it",
            param="on_disconnect",
        )
    of = "response"
    if not asked.run.session_id and not asked.run.previous_response_id:
        asked = _in_session(asked, headers)
        of = f"response {asked.run.session_id}".strip()
    once = _known_by(service, body, principal, key, of=of)
    return await _take(service, asked, once, headers, caller, before=partial(_continued, service))


def _known_by(service: Service, body: bytes, principal: str, key: str | None, *, of: str) -> Once:
    """By its key, or else by what it says."""
    once = service.once(body, principal=principal, key=key, of=of)
    return once or latest(body, principal=principal, of=of)


async def _take(
    service: Service,
    asked: OpenAIRequest,
    once: Once,
    headers: Mapping[str, str],
    caller: Caller,
    *,
    before: Callable[[OpenAIRequest], Awaitable[OpenAIRequest]] | None = None,
) -> Taken:
    """`before` adds what was said earlier."""
    key = service.secrets.mask(session_key(headers))
    leads_again = not once.latest or RETRIES in headers
    again = sent_again(headers)
    with service.unheard.taking(once, again=again) as others:
        # What it went on from may have been deleted since, so this comes first.
        earlier = None
        if not once.latest:
            earlier = await service.earlier(once)
        elif again:
            earlier = await rejoin(service, once, asked, others)
        else:
            service.unheard.clear(once)
        if before and not earlier:
            asked = await before(asked)
        submitted = Submitted(earlier, replayed=True) if earlier else None
        submitted = submitted or await service.take_in(
            asked.run,
            principal=once.principal,
            once=once,
            finish=partial(finish, asked),
        )
        # Who comes back for it may be waiting for just this, and would look before it is answered.
        if left := _gone(caller):
            service.unheard.leave(once, submitted.run_id)
    return Taken(submitted.run_id, asked, submitted.replayed, once, leads_again, left, key)


def _gone(caller: Caller) -> bool:
    told: list[bool] = []
    caller.when_gone(partial(told.append, True))
    return bool(told)


def session_of(headers: Mapping[str, str]) -> str:
    """The session that is named in the headers of a request, "" if none is."""
    name = _naming(headers)
    return session_id({name: _as_written(headers.get(name, ""))}, name) if name else ""


def _as_written(value: str) -> str:
    """What a header says: most clients write UTF-8, which is read as Latin-1 on the way here."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _naming(headers: Mapping[str, str]) -> str:
    return next((name for name in SESSION_HEADERS if headers.get(name)), "")


def _in_session(asked: OpenAIRequest, headers: Mapping[str, str]) -> OpenAIRequest:
    """As part of the session that is named in the headers. What the client knows of it counts more
    than what is known here, if it says any of that."""
    sends_all = bool(asked.run.history) or _naming(headers) == _SENDS_ALL
    run = replace(
        asked.run,
        session_id=session_of(headers),
        continues=asked.run.continues or sends_all,
    )
    return replace(asked, run=run)


def _joined(run: RunRequest) -> RunRequest:
    """What was said before is known to the session, so all that is given is new."""
    if not run.history:
        return run
    new = [message.parts for message in run.history if isinstance(message, UserMessage)]
    if len(new) < len(run.history):
        raise malformed(
            "with 'conversation', 'input' has only messages of a user: what was answered before is"
            " known",
            param="input",
        )
    parts = (part for parts in (*new, run.parts) for part in parts)
    return replace(run, parts=tuple(parts), history=())


async def _continued(service: Service, asked: OpenAIRequest) -> OpenAIRequest:
    """With what was said before, in its session or up to and with the response it goes on from."""
    run, told = asked.run, tuple[Instruction, ...]()
    if run.continues:
        pass
    elif run.session_id:
        run, told = _joined(run), await in_session(service.store, run.session_id)
    elif previous := run.previous_response_id:
        found = await Kept(service).find(previous, named="previous_response")
        run = replace(run, history=(*await up_to(service, found, previous), *run.history))
        told = found.echo.instructed or ()
    if asked.echo.truncation == "auto":
        run = replace(run, history=run.history[-MOST_EARLIER:], recall=MOST_EARLIER)
    told = together(told, asked.told)
    return replace(asked, run=run, told=told, echo=replace(asked.echo, instructed=told))


async def up_to(service: Service, kept: Found, response_id: str) -> tuple[Message, ...]:
    """What was said up to and with this response. Raises Problem if it has not ended."""
    state = replay(kept.journal)
    if state.accepted is None or not state.ended:
        raise Problem(
            409,
            f"response {response_id} has not come to an end yet",
            code="previous_response_in_progress",
            param="previous_response_id",
        )
    before = await given(service.store, state.accepted)
    session = state.accepted.session_id
    if session and not state.accepted.history and state.accepted.recall != 0:
        before = await Recall(most=0).before(service.store, session, kept.run_id)
    return (*before, *conversation(state))
