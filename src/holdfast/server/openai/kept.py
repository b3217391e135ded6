"""Responses that are kept: found by their id, cancelled, deleted. Behind each is a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.core.codec import decode_history
from holdfast.core.events import Recorded, RunAccepted
from holdfast.core.messages import Message
from holdfast.errors import NotFound, RunFinished
from holdfast.ports import Store
from holdfast.server.frames import Fields
from holdfast.server.openai.ids import run_id
from holdfast.server.openai.request import Echo, read_echo
from holdfast.server.openai.response_object import inputs, response_object
from holdfast.server.problems import Problem
from holdfast.server.requests import STOPPED
from holdfast.server.service import Service

#: Seconds in which a run that is stopped should have ended. It is told as it stands then.
PATIENCE = 5.0


class Found(NamedTuple):
    """A run that is kept as a response, and its journal at that moment."""

    run_id: str
    journal: Sequence[Recorded]

    @property
    def accepted(self) -> RunAccepted | None:
        first = self.journal[0].event
        return first if isinstance(first, RunAccepted) else None

    @property
    def echo(self) -> Echo:
        return read_echo(self.accepted)

    @property
    def told(self) -> Mapping[str, Any]:
        return response_object(self.run_id, self.journal, echo=self.echo)


class Kept:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def find(self, id: str, *, named: str = "response") -> Found:
        """Raises Problem for one that there is not, or that was not to be kept."""
        run = run_id(id, named=named)
        try:
            found = Found(run, await self._service.journal(run))
        except NotFound as error:
            raise _missing(id, named) from error
        if not found.echo.store:
            raise _missing(id, named)
        return found

    async def inputs(self, found: Found) -> list[Fields]:
        """What it was given, as items."""
        accepted = found.accepted
        return list(
            inputs(
                found.run_id,
                found.journal,
                instructed=found.echo.instructed or (),
                history=await given(self._service.store, accepted) if accepted else (),
            )
        )

    async def cancel(self, id: str, *, principal: str) -> Mapping[str, Any]:
        """The response as it stands then. One that has ended stays as it is."""
        found = await self.find(id)
        try:
            await self._service.runs.stop(found.run_id, by=principal, reason=STOPPED)
            await self._service.status(found.run_id, wait=PATIENCE)
        except (RunFinished, NotFound):
            pass  # all the better, or it was deleted
        return (await self.find(id)).told

    async def delete(self, id: str, *, principal: str) -> None:
        """Its run is found no more by anybody, and is stopped if it has not ended."""
        found = await self.find(id)
        try:
            await self._service.runs.delete(found.run_id, by=principal)
        except NotFound as error:
            raise _missing(id, "response") from error


def _missing(id: str, named: str) -> Problem:
    return Problem(
        404, f"there is no response {id}", code=f"{named}_not_found", param=f"{named}_id"
    )


async def given(store: Store, accepted: RunAccepted) -> tuple[Message, ...]:
    """The conversation that came with a request."""
    chains = [await store.chain(ref.sha256) for ref in accepted.history]
    return decode_history(body for chain in chains for body in chain)
