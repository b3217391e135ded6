"""Where wishes from outside come in: start a run, stop it, answer it, add to it.

A wish is checked against the journal, written, and checked again against what was written
before it, so what is answered here is what counts. Nobody here touches a run that a
worker holds; a run that nobody holds is ended by whoever stops it. Secrets that somebody lets
slip are masked before they are written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import get_args

import anyio
from msgspec.structs import replace

from holdfast.core.codec import link_messages
from holdfast.core.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Choice,
    InputAdded,
    InputEdited,
    Recorded,
    RunAccepted,
    StopRequested,
    Wish,
)
from holdfast.core.messages import BlobRef, Image, Message, Part, Text
from holdfast.core.run import fold, replay
from holdfast.core.state import RunState
from holdfast.core.transcript import taken_back
from holdfast.engine.driver import Driver
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe
from holdfast.errors import (
    ApprovalAmbiguous,
    ApprovalChanged,
    ApprovalSettled,
    IllegalEvent,
    InvalidRequest,
    NotFound,
    NothingPending,
    RunBegun,
    RunFinished,
    RunStopping,
    StoreError,
)
from holdfast.ports import Once

#: Seconds for which whoever stops a run that nobody holds takes it, and may take to end it.
END_LEASE = 10.0
END_LIMIT = 5.0

#: Past every place in a journal: whoever has seen that need not be told anything.
_EVERYTHING = sys.maxsize

_log = logging.getLogger(__name__)


@dataclass
class _Stop:
    """A stop under way. Whoever asks for the same meanwhile waits for this one."""

    recorded: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)


class Runs:
    def __init__(self, means: Means, *, name: str = "door") -> None:
        self._means, self._store, self._name = means, means.store, name
        self._mask = means.secrets.mask_event
        self._stops: dict[str, _Stop] = {}

    async def accept(
        self,
        accepted: RunAccepted,
        *,
        history: tuple[Message, ...] = (),
        blobs: Mapping[str, bytes] = {},
        once: Once | None = None,
        alone: bool = False,
        stop: StopRequested | None = None,
        run_id: str = "",
    ) -> str:
        """Take a run in. Once this returns it is on record, and will be carried to an end.

        `blobs` are the pictures in its input. Raises AlreadyAccepted or KeyReused, see `once`, and
        SessionBusy or SessionGone, see `ports.Journal.accept`.
        """
        if not accepted.models or not accepted.input:
            raise InvalidRequest("a run needs something to do, and a model to do it")
        links = link_messages(self._mask(history))
        if links:
            head = BlobRef(sha256=links[-1].name, size=len(links[-1].body))
            accepted = replace(accepted, history=(*accepted.history, head))
        if accepted.session_id and not accepted.message_id:
            accepted = replace(accepted, message_id=self._means.new_id("msg"))
        run_id = run_id or self._means.new_id("run")
        await self._store.accept(
            run_id,
            self._mask(accepted),
            blobs=blobs,
            history=links,
            once=once,
            alone=alone,
            stop=stop,
        )
        return run_id

    async def state(self, run_id: str) -> RunState:
        return replay(await self._store.read(run_id))

    def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]:
        return self._store.follow(run_id, after=after)

    async def stop(
        self, run_id: str, *, by: str = "", reason: str = "", removed: bool = False
    ) -> None:
        """Have the run end. Once this returns the wish is on record, and nothing new starts.

        May be repeated while the run lives. Whatever fails while it is being ended is not the
        caller's trouble. `removed`: it has not begun, and whoever asked for it takes that back.
        """
        while under_way := self._stops.get(run_id):
            await under_way.over.wait()
            if under_way.recorded:
                return
        stop = self._stops[run_id] = _Stop()
        try:
            wish = StopRequested(by=by, reason=reason, removed=removed)
            # Without a look at its journal, which may be long, or make no sense: then the run must be
            # stopped all the more.
            await self._store.wish(run_id, self._mask(wish), seen=_EVERYTHING)
            stop.recorded = True
            stop.over.set()
            await self._end_unheld(run_id)
        finally:
            if self._stops.get(run_id) is stop:
                del self._stops[run_id]
            stop.over.set()

    async def delete(self, run_id: str, *, by: str = "") -> None:
        """Have nobody find the run any more. One that has not ended is stopped. Raises NotFound."""
        await self._store.delete(run_id, by=by)
        await self._end_unheld(run_id)

    async def answer(
        self,
        run_id: str,
        choice: Choice,
        *,
        approval_id: str = "",
        everything: bool = False,
        digest: str = "",
        by: str = "",
        tell: Callable[[str], None] = _log.warning,
    ) -> tuple[str, ...]:
        """Answer an approval, or all that are pending. Returns the ids this answer settled.

        `digest` is that of what was shown to whoever answers, if they say so. Raises ApprovalChanged
        if that is not what is asked. `tell` hears why a standing yes holds for this call alone.
        """
        if choice not in get_args(Choice):
            choices = ", ".join(get_args(Choice))
            raise InvalidRequest(f"{choice!r} is no answer; it must be one of {choices}")
        state = await self._living(run_id)
        settled: list[str] = []
        ids = _meant(run_id, state, approval_id, everything=everything)
        _check_digest(state, ids, digest)
        for id in ids:
            wish = ApprovalAnswered(approval_id=id, choice=choice, by=by)
            before, state = await self._wish(run_id, wish, state)
            for pending in before.pending:
                if pending.request.approval_id == id:
                    settled.append(id)
                    if problem := await self._keep_rule(run_id, state, pending.request, wish):
                        tell(f"the answer to run {run_id} holds once: {problem}")
        if state.stopping:
            raise RunStopping(run_id)
        if not settled:
            # Somebody was quicker: say how.
            raise ApprovalSettled(ids[0], state.settled.get(ids[0], "is not asked any more"))
        return tuple(settled)

    async def _keep_rule(
        self, run_id: str, state: RunState, request: ApprovalRequested, answer: ApprovalAnswered
    ) -> str:
        """Have a standing yes stand. Says why it does not; the answer counts all the same, once."""
        book, choice = self._means.rulebook, answer.choice
        if choice not in ("session", "always"):
            return ""
        call = next(tool.call for tool in state.tools if tool.call.id == request.call_id)
        if not call.key:
            return "no rule could cover a call like this one"
        if book is None or state.accepted is None:
            return ""
        try:
            # Whoever answered may be gone as soon as the answer is seen.
            with anyio.CancelScope(shield=True):
                await book.grant(run_id, state.accepted, call, choice, by=answer.by)
        except StoreError as error:
            return str(error)
        return ""

    async def add(
        self,
        run_id: str,
        parts: tuple[Part, ...],
        *,
        blobs: Mapping[str, bytes] = {},
        message_id: str = "",
        by: str = "",
        once: Once | None = None,
    ) -> None:
        """Say something to a live run; the model sees it at its next call.

        `blobs` are the pictures in it. Raises RunFinished or RunStopping if the run takes no more, and
        AlreadyAccepted or KeyReused, see `once`.
        """
        state = await self._living(run_id)
        if state.stopping:
            raise RunStopping(run_id)
        wish = InputAdded(parts=parts, message_id=message_id, by=by)
        await self._store.wish(run_id, self._mask(wish), seen=state.seq, blobs=blobs, once=once)

    async def edit(self, run_id: str, text: str, *, by: str = "") -> None:
        """Put what was asked in other words; its pictures stay. Raises RunBegun if it is too late."""
        state = await self._waiting(run_id)
        assert state.accepted is not None
        pictures = (part for part in state.accepted.input if isinstance(part, Image))
        wish = InputEdited(parts=(Text(text), *pictures), by=by)
        before, _ = await self._wish(run_id, wish, state)
        if before.stopping:
            raise RunStopping(run_id)
        if before.epoch:
            raise RunBegun(run_id)

    async def remove(self, run_id: str, *, by: str = "") -> None:
        """Take back what was asked. Raises RunBegun if it is too late.

        Should the run begin at this very moment, it is stopped, and that it had begun is said.
        """
        await self._waiting(run_id)
        await self.stop(run_id, by=by, reason="taken back before it began", removed=True)
        if not taken_back(await self.state(run_id)):
            raise RunBegun(run_id)

    async def _waiting(self, run_id: str) -> RunState:
        state = await self._living(run_id)
        if state.stopping:
            raise RunStopping(run_id)
        if state.epoch:
            raise RunBegun(run_id)
        return state

    async def _living(self, run_id: str) -> RunState:
        state = await self.state(run_id)
        if state.status.final:
            raise RunFinished(run_id)
        return state

    async def _wish(self, run_id: str, wish: Wish, state: RunState) -> tuple[RunState, RunState]:
        """Write the wish. Returns the states just before it and just after."""
        *others, own = await self._store.wish(run_id, self._mask(wish), seen=state.seq)
        before = reduce(fold, others, state)
        return before, fold(before, own)

    async def _end_unheld(self, run_id: str) -> None:
        try:
            with anyio.move_on_after(END_LIMIT, shield=True):
                if await self._store.held([run_id]):
                    return  # by somebody who cannot let go of it before they have seen the wish
                lease = await self._store.seize(run_id, self._name, ttl=END_LEASE)
                if lease is None:
                    return
                scribe = await Scribe.open(self._store, lease, self._means.secrets)
                scribe.limit = END_LIMIT
                await Driver(scribe, self._means).wind_down()
                await self._store.release(lease, seen=scribe.state.seq, ready_in=0.0)
        except RunFinished:
            pass  # somebody else was quicker
        except (StoreError, IllegalEvent) as error:
            _log.warning(
                "run %s will be ended by a worker: %s", run_id, error, extra={"run_id": run_id}
            )


def _meant(run_id: str, state: RunState, approval_id: str, *, everything: bool) -> Sequence[str]:
    """Which approvals an answer is for. Raises if that is none, or not clear."""
    if state.stopping:
        raise RunStopping(run_id)
    pending = [pending.request.approval_id for pending in state.pending]
    if approval_id:
        if approval_id in state.settled:
            raise ApprovalSettled(approval_id, state.settled[approval_id])
        if approval_id not in pending:
            raise NotFound("approval", approval_id)
        return [approval_id]
    if not pending:
        raise NothingPending(run_id)
    if len(pending) > 1 and not everything:
        raise ApprovalAmbiguous(pending)
    return pending


def _check_digest(state: RunState, ids: Sequence[str], digest: str) -> None:
    asked = [one.request for one in state.pending if one.request.approval_id in ids]
    if digest and any(request.digest != digest for request in asked):
        raise ApprovalChanged(asked[0].approval_id)
