"""Answers to one client: a run told as it goes, or told when it has ended.

Whoever asked for a run may leave before that. Some runs go on; the others are stopped a while after
the last reader has left, and not before: somebody who lost the line comes back. That the server has
to leave is no reason to stop anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio

from holdfast.calls.tasks import task_group
from holdfast.core.events import FINAL, Recorded
from holdfast.errors import RunFinished
from holdfast.server.frames import retracted_attempts
from holdfast.server.openai.chat_frames import ChatProjection
from holdfast.server.openai.kept import Found
from holdfast.server.openai.reading import comment
from holdfast.server.openai.response_frames import ResponseProjection
from holdfast.server.openai.taking import Taken
from holdfast.server.problems import ASK_NO_MORE, draining
from holdfast.server.service import Service
from holdfast.server.streams import Caller, Receive, RunStream, Scope, Send, View

#: Seconds for which a run that nobody reads goes on.
LINGER = 5.0

_LEFT = "whoever asked for it has left"


class OpenAIStream(RunStream):
    """`taken` is the request that is answered so, if it is one that asked for the run."""

    def __init__(
        self, service: Service, run_id: str, *, taken: Taken | None = None, after: int = 0
    ) -> None:
        super().__init__(service, run_id, after=after)
        self._taken, self._once = taken, taken.once if taken else None
        told = {**taken.headers} if taken else {"X-Run-Id": run_id}
        self.headers = [(name.lower().encode(), told[name].encode()) for name in told]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.unheard.answering(self._once, self._run_id) as self._answer:
            await super().__call__(scope, receive, send)
        if self._taken and not self._answer.whole:
            await see_off(self._service, self._taken, by=scope["state"]["principal"])

    async def tell(self) -> None:
        await super().tell()
        self._answer.whole = True

    def farewell(self) -> bytes:
        return comment("server.draining", {"run_id": self._run_id})


class ChatStream(OpenAIStream):
    def view(self, stored: Sequence[Recorded]) -> View:
        asked = self._taken.asked if self._taken else None
        return ChatProjection(
            self._run_id,
            include_usage=asked is not None and asked.include_usage,
            retracted=retracted_attempts(stored),
        )


class ResponseStream(OpenAIStream):
    def view(self, stored: Sequence[Recorded]) -> View:
        echo = Found(self._run_id, stored).echo
        return ResponseProjection(self._run_id, after=self._after, echo=echo)


async def ended(service: Service, taken: Taken, caller: Caller, *, by: str) -> Sequence[Recorded]:
    """The journal of a run that has ended. Raises Problem if the server has to leave before."""
    with (
        service.unheard.answering(taken.once, taken.run_id) as answer,
        anyio.CancelScope() as waiting,
        service.attendance.reading(taken.run_id),
    ):
        caller.when_gone(waiting.cancel)
        await service.outcome(taken.run_id)
        journal = await service.journal(taken.run_id)
        answer.whole = isinstance(journal[-1].event, FINAL)
        if answer.whole:
            return journal
    if waiting.cancelled_caught:
        await see_off(service, taken, by=by)
    journal = await service.journal(taken.run_id)
    if not isinstance(journal[-1].event, FINAL):
        refusal = draining()
        refusal.headers |= taken.headers
        # It is on record, and is carried on.
        refusal.headers |= {} if taken.again else ASK_NO_MORE
        raise refusal
    return journal


async def begun(service: Service, taken: Taken, caller: Caller) -> Sequence[Recorded]:
    """The journal as it stands."""
    with service.unheard.answering(taken.once, taken.run_id) as answer:
        journal = await service.journal(taken.run_id)
        answer.whole = True
        caller.when_gone(partial(setattr, answer, "whole", False))
    return journal


async def see_off(service: Service, taken: Taken, *, by: str) -> None:
    """Whoever asked for the run has left: see that it does not go on for nobody, if it should not."""
    if taken.goes_on:
        return
    async with task_group() as tasks:
        tasks.start_soon(_leave, service, tasks.cancel_scope)
        await service.attendance.deserted(taken.run_id, LINGER)
        unheard = service.unheard.forget(taken.once, taken.run_id)
        tasks.cancel_scope.cancel()
    if service.draining.is_set():
        return
    try:
        await service.runs.stop(taken.run_id, by=by, reason=_LEFT)
    except RunFinished:
        # It was quicker. If nobody came back for the answer yet, they still may.
        if unheard:
            service.unheard.leave(taken.once, taken.run_id)


async def _leave(service: Service, waiting: anyio.CancelScope) -> None:
    await service.draining.wait()
    waiting.cancel()
