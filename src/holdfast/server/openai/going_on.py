"""Runs that are asked for as runs, and go on from a response.

Who names a conversation of their own means that one. A response that is not there is passed over,
as it always was on this wire; and whoever named it is told so.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.events import RunAccepted
from holdfast.ports import Once
from holdfast.server.openai.kept import Found, Kept
from holdfast.server.openai.taking import up_to
from holdfast.server.problems import Problem
from holdfast.server.requests import RunRequest, read_run
from holdfast.server.service import Service, Submitted


class Begun(NamedTuple):
    """`ignored` are fields that nobody obeyed."""

    submitted: Submitted
    ignored: tuple[str, ...] = ()


async def take_run(service: Service, body: bytes, *, principal: str, key: str | None) -> Begun:
    """Take a request in. Raises Problem or HoldfastError, and then nothing was allocated."""
    once = service.once(body, principal=principal, key=key)
    asked, ignored, instructions = read_run(body), tuple[str, ...](), ""
    if asked.previous_response_id and not asked.continues and not await _known(service, once):
        asked, ignored = await _gone_on(service, asked)
        instructions = asked.instructions
    finish = partial(_as_instructed, instructions)
    submitted = await service.take_in(asked, principal=principal, once=once, finish=finish)
    return Begun(submitted, ignored)


def _as_instructed(instructions: str, run: RunAccepted) -> RunAccepted:
    """So that who goes on from this one finds them: in the run itself they stand among others."""
    return replace(run, asked={"instructions": instructions}) if instructions else run


async def _known(service: Service, once: Once | None) -> bool:
    """Taken in before: what it went on from may have been deleted since."""
    return once is not None and await service.earlier(once) is not None


async def _gone_on(service: Service, asked: RunRequest) -> tuple[RunRequest, tuple[str, ...]]:
    try:
        found = await Kept(service).find(asked.previous_response_id, named="previous_response")
    except Problem:
        return asked, ("previous_response_id",)
    earlier = await up_to(service, found, asked.previous_response_id)
    return _from(found, replace(asked, history=(*earlier, *asked.history))), ()


def _from(found: Found, asked: RunRequest) -> RunRequest:
    """In the same session and as it was instructed, unless it says otherwise."""
    session = found.accepted.session_id if found.accepted else ""
    return replace(
        asked,
        session_id=asked.session_id or session,
        instructions=asked.instructions or found.echo.instructions or "",
    )
