"""Answers to one client: a run told as it goes, or told when it has ended.

Whoever asked for a run may leave before that. Some runs go on; the others are stopped a while after
the last reader has left, and not before: somebody who lost the line comes back. That the server has
to leave is no reason to stop anything; the next one gives its readers the same time to come back.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from functools import partial

import anyio

from holdfast.calls.tasks import task_group
from holdfast.core.events import FINAL, Recorded, RunAccepted
from holdfast.errors import HoldfastError, NotFound, RunFinished
from holdfast.ports import Once, Store
from holdfast.server.frames import retracted_attempts
from holdfast.server.keys import Welcome, always
from holdfast.server.openai.chat_frames import ChatProjection
from holdfast.server.openai.kept import Found
from holdfast.server.openai.reading import comment
from holdfast.server.openai.request import read_echo
from holdfast.server.openai.response_frames import ResponseProjection
from holdfast.server.openai.taking import Taken
from holdfast.server.problems import ASK_NO_MORE, Problem, draining
from holdfast.server.service import Service
from holdfast.server.streams import Caller, Receive, RunStream, Scope, Send, View

#: Seconds for which a run that nobody reads goes on.
LINGER = 5.0

_LEFT = "whoever asked for it has left"

_log = logging.getLogger(__name__)


class OpenAIStream(RunStream):
    """`taken` is the request that is answered so, if it is one that asked for the run."""

    def __init__(
        self, service: Service, run_id: str, *, taken: Taken | None = None, after: int = 0
    ) -> None:
        super().__init__(service, run_id, after=after)
        self._taken, self._owed = taken, taken.owed if taken else None
        told = {**taken.headers} if taken else {"X-Run-Id": run_id}
        self.headers = [(name.lower().encode(), told[name].encode()) for name in told]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.unheard.answering(self._owed, self._run_id) as self._answer:
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


async def ended(
    service: Service, taken: Taken, caller: Caller, *, by: str, welcome: Welcome = always
) -> Sequence[Recorded]:
    """The journal of a run that has ended. Raises Problem if the server has to leave before, or if
    who asks is no longer welcome."""
    try:
        with (
            service.unheard.answering(taken.owed, taken.run_id) as answer,
            anyio.CancelScope() as waiting,
            service.attendance.reading(taken.run_id),
        ):
            caller.when_gone(waiting.cancel)
            await service.outcome(taken.run_id, welcome=welcome)
            journal = await service.journal(taken.run_id)
            answer.whole = isinstance(journal[-1].event, FINAL)
            if answer.whole:
                return journal
    except Problem:
        # To the run it is the same as if they had left.
        await see_off(service, taken, by=by)
        raise
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
    with service.unheard.answering(taken.owed, taken.run_id) as answer:
        journal = await service.journal(taken.run_id)
        answer.whole = True
        caller.when_gone(partial(setattr, answer, "whole", False))
    return journal


async def see_off(service: Service, taken: Taken, *, by: str) -> None:
    """Whoever asked for the run has left: see that it does not go on for nobody, if it should not."""
    if not taken.goes_on:
        await _stop_deserted(service, taken.run_id, by=by, once=taken.once)


async def _stop_deserted(
    service: Service, run_id: str, *, by: str, once: Once | None = None
) -> None:
    """Once nobody has read it for a while. `once` is the request that it was for."""
    async with task_group() as tasks:
        tasks.start_soon(_leave, service, tasks.cancel_scope)
        await service.attendance.deserted(run_id, LINGER)
        unheard = service.unheard.forget(once, run_id)
        tasks.cancel_scope.cancel()
    if service.draining.is_set():
        return
    try:
        await service.runs.stop(run_id, by=by, reason=_LEFT)
    except NotFound:
        pass  # it was deleted
    except RunFinished:
        # It was quicker. If nobody came back for the answer yet, they still may.
        if unheard:
            service.unheard.leave(once, run_id)


async def _leave(service: Service, waiting: anyio.CancelScope) -> None:
    await service.draining.wait()
    waiting.cancel()


async def see_off_the_deserted(service: Service, *, page: int = 200) -> None:
    """The last server took all its readers with it: see off each run that was for them alone.

    Whoever comes back in time has theirs go on. What was asked for since may be among them, and is
    seen off by the same rule. They are looked for so many at a time. Where several servers shared a
    store, this would have to know whose readers were whose.
    """
    async with task_group() as tasks:
        try:
            async for run_id, accepted in _attended(service.store, page):
                tasks.start_soon(_see_off, service, run_id, accepted.principal)
        except HoldfastError as error:
            _log.warning("runs that nobody reads may go on: %s", error)


async def _attended(store: Store, page: int) -> AsyncGenerator[tuple[str, RunAccepted], None]:
    before = ""
    while entries := await store.list(live=True, before=before, limit=page):
        before = entries[-1].run_id
        for entry in entries:
            accepted = entry.first.event
            if isinstance(accepted, RunAccepted) and read_echo(accepted).attended:
                yield entry.run_id, accepted


async def _see_off(service: Service, run_id: str, by: str) -> None:
    try:
        await _stop_deserted(service, run_id, by=by)
    except HoldfastError as error:
        _log.warning("nobody reads run %s, and it could not be stopped: %s", run_id, error)
