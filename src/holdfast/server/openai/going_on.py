"""Runs that are asked for as runs, and go on from a response.

Who names a conversation of their own means that one. A response that is not there is passed over,
as it always was on this wire; and whoever named it is told so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.core.events import RunAccepted
from holdfast.ports import Once
from holdfast.server.content import laid_over
from holdfast.server.openai.kept import Found, Kept
from holdfast.server.openai.request import Echo
from holdfast.server.openai.taking import session_of, up_to
from holdfast.server.problems import Problem
from holdfast.server.requests import RunRequest, read_run
from holdfast.server.service import Service, Submitted


class Begun(NamedTuple):
    """`ignored` are fields that nobody obeyed."""

    submitted: Submitted
    ignored: tuple[str, ...] = ()


async def take_run(
    service: Service,
    body: bytes,
    *,
    principal: str,
    key: str | None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Begun:
    """Take a request in. Raises Problem or HoldfastError, and then nothing was allocated."""
    asked, found, ignored = read_run(body), None, tuple[str, ...]()
    # What the body says counts more.
    session = "" if asked.session_id else session_of(headers)
    once = service.once(body, principal=principal, key=key, of=session)
    asked = replace(asked, session_id=asked.session_id or session)
    if asked.previous_response_id and not asked.continues and not await _known(service, once):
        found = await _find(service, asked.previous_response_id)
        if found:
            asked = await _gone_on(service, found, asked)
        else:
            ignored = ("previous_response_id",)
    finish = partial(_as_instructed, found, asked.instructions)
    submitted = await service.take_in(asked, principal=principal, once=once, finish=finish)
    return Begun(submitted, ignored)


def _as_instructed(found: Found | None, instructions: str, run: RunAccepted) -> RunAccepted:
    """So that who goes on from this one finds them: in the run itself they stand among others."""
    if found is None:
        return run
    told = found.echo.instructed
    return replace(
        run,
        instructions=laid_over(run.instructions, told or ()),
        asked=msgspec.to_builtins(Echo(instructions=instructions or None, instructed=told)),
    )


async def _known(service: Service, once: Once | None) -> bool:
    """Taken in before: what it went on from may have been deleted since."""
    return once is not None and await service.earlier(once) is not None


async def _find(service: Service, response_id: str) -> Found | None:
    try:
        return await Kept(service).find(response_id, named="previous_response")
    except Problem:
        return None


async def _gone_on(service: Service, found: Found, asked: RunRequest) -> RunRequest:
    """In the same session and as it was instructed, unless it says otherwise."""
    earlier = await up_to(service, found, asked.previous_response_id)
    session = found.accepted.session_id if found.accepted else ""
    return replace(
        asked,
        history=(*earlier, *asked.history),
        session_id=asked.session_id or session,
        instructions=asked.instructions or found.echo.instructions or "",
    )
