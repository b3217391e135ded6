"""Carrying one run forward: plan a step, perform it, write down what happened.

The driver decides nothing; `plan` does. Between an intent and its effect it takes a last look
at what was recorded before the intent, so nothing starts after an acknowledged stop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, assert_never
from zlib import crc32

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from holdfast.calls.tasks import task_group
from holdfast.core.approval import Allowed, digest, verdict
from holdfast.core.events import ApprovalRequested, ToolFinished, ToolStarted
from holdfast.core.lease import remaining
from holdfast.core.messages import ToolCall
from holdfast.core.plan import (
    AskPerson,
    CallModel,
    Pause,
    Record,
    Rest,
    Rules,
    RunTools,
    Timer,
    changed,
    may_start,
    plan,
)
from holdfast.engine.call import call_model
from holdfast.engine.means import Means
from holdfast.engine.scribe import Scribe, nobody
from holdfast.engine.use import Look, Traces, look_again, use_tool
from holdfast.errors import IllegalEvent


class Again(Struct, frozen=True):
    """When to look at a resting run again: in so many seconds, or, if None, when somebody asks."""

    seconds: float | None = None
    #: It is what the run rests for.
    timed: bool = False
    #: How far the journal had come when that was decided. What was wished since is not in it.
    seen: int = 0


class Driver:
    """One run, as long as one worker holds it."""

    def __init__(self, scribe: Scribe, means: Means) -> None:
        self._scribe, self._means = scribe, means
        self._rules = Rules(
            worker=scribe.lease.worker,
            epoch=scribe.lease.epoch,
            models=means.models,
            tools=means.tools_for(scribe.state.accepted),
            spread=crc32(scribe.lease.run_id.encode()) / 0xFFFFFFFF,
        )
        #: Where others accompany it, and whether anybody did who may still be there when it is let go of.
        self._tasks: TaskGroup | None = None
        self._company = False
        self._deadlines: dict[tuple[float, float], float] = {}
        self._traces = Traces()
        #: The rules of the step at hand: what is planned by one must not be done by another.
        self._now = self._rules

    async def drive(self, begun: Callable[[], None] = nobody) -> Again:
        """Go on until the run ends or has to wait for someone. Returns when to look at it again.

        `begun` is called once somebody may `accompany` it.
        """
        again: Again | None = None
        async with task_group() as tasks:
            self._tasks = tasks
            self._scribe.begin = partial(self.accompany, self._scribe.keep_writing)
            begun()
            try:
                again = await self._go_on()
            finally:
                # Or each would keep the other until somebody looks for garbage.
                self._scribe.begin, self._tasks = nobody, None
            if self._company:
                # On a stop the tools end here, before the end is written.
                tasks.cancel_scope.cancel()
        if again is not None:
            return again
        if not self._scribe.state.stopping:
            raise IllegalEvent("a run was left without a stop and without a reason")
        await self.wind_down()
        return Again(seen=self._scribe.state.seq)

    def accompany(self, act: Callable[..., Coroutine[Any, Any, None]], *given: object) -> bool:
        """Have this done beside the run, for as long as it is driven. False if it is not."""
        if self._tasks is None:
            return False
        self._company = True
        self._tasks.start_soon(act, *given)
        return True

    async def wind_down(self) -> None:
        """Write the end of a run that was stopped. Nothing of it is running any more."""
        while self._scribe.state.stopping:
            step = plan(self._scribe.state, replace(self._rules, **self._traces.told()))
            if not isinstance(step, Record):
                return
            await self._scribe.record(*step.events)

    async def _go_on(self) -> Again | None:
        """Plan and perform until there is nothing to do, or a stop stands: then None."""
        due = self._scribe.lease.due
        while not self._scribe.state.stopping:
            self._now = self._standing()
            match plan(self._scribe.state, self._now):
                case Rest(timer) as rest:
                    if timer is None or (self._left(timer) and not due):
                        return self._again(rest)
                    await self._perform(timer.then)
                case Pause(timer):
                    await self._pause(timer)
                case step:
                    await self._perform(step)
            # It was the first plan that the time had come for.
            due = False
        return None

    async def _perform(self, step: Record | CallModel | RunTools | AskPerson) -> None:
        match step:
            case Record(events, then=CallModel() as call):
                await call_model(self._scribe, self._means, call, events)
            case Record(events):
                await self._scribe.record(*events)
            case CallModel():
                await call_model(self._scribe, self._means, step)
            case RunTools():
                await self._start_tools(step)
            case AskPerson():
                await self._ask(step)
            case _:
                assert_never(step)

    def _standing(self) -> Rules:
        """The rules as they stand now: a person may have granted or revoked one meanwhile."""
        state, book = self._scribe.state, self._means.rulebook
        if book is None or state.accepted is None or not state.open_tools:
            return self._rules
        grants = book.standing(self._scribe.lease.run_id, state.accepted)
        if not state.accepted.session_id:
            # Then the run is all the session there is, and its journal knows what was granted.
            grants += tuple(grant for grant in state.grants if grant.scope == "session")
        return replace(self._rules, grants=grants)

    async def _start_tools(self, step: RunTools) -> None:
        """Start those that are still what was looked at, and asked about, before."""
        looks = await self._look_again(step.calls)
        if changed := self._changed(looks):
            await self._scribe.record(*changed)
            return
        await self._scribe.record(*self._starts(step.calls, self._now))
        for call in step.calls:
            if may_start(self._scribe.state, call.id, self._now):
                self.accompany(use_tool, self._scribe, self._means, call, self._traces)

    async def _look_again(
        self, calls: Iterable[ToolCall], *, asking: bool = False
    ) -> Mapping[str, Look]:
        state = self._scribe.state
        return {
            call.id: await look_again(call, state, self._means, asking=asking) for call in calls
        }

    def _changed(self, looks: Mapping[str, Look]) -> list[ToolFinished]:
        """The ends of those that would not be what was looked at before."""
        found = ((tool, looks.get(tool.call.id)) for tool in self._scribe.state.open_tools)
        return [changed(tool, look.why) for tool, look in found if look and look.why]

    def _starts(self, calls: Sequence[ToolCall], rules: Rules) -> list[ToolStarted]:
        state = self._scribe.state
        tools = {tool.call.id: tool for tool in state.tools}
        verdicts = {call.id: verdict(state, tools[call.id], rules.grants) for call in calls}
        return [
            ToolStarted(call_id=id, rule=said.rule if isinstance(said, Allowed) else "")
            for id, said in verdicts.items()
        ]

    async def _ask(self, step: AskPerson) -> None:
        looks = await self._look_again((call for call, _ in step.asks), asking=True)
        if changed := self._changed(looks):
            await self._scribe.record(*changed)
            return
        # As things are now: what came ahead of a call may have made another thing of it.
        bound = {call.id: replace(call, binding=looks[call.id].binding) for call, _ in step.asks}
        accepted = self._scribe.state.accepted
        requests = [
            ApprovalRequested(
                approval_id=self._means.new_id("apr"),
                call_id=call.id,
                tool=call.tool,
                subject=call.subject or call.arguments,
                reason=ask.reason,
                doubt=ask.doubt,
                binding=bound[call.id].binding,
                digest=digest(bound[call.id]),
                key=call.key,
                expires=accepted.approval_timeout if accepted else 0.0,
            )
            for call, ask in step.asks
        ]
        await self._scribe.record(*requests)

    async def _pause(self, timer: Timer | None) -> None:
        """Wait for news, or for the timer and then do what it says."""
        news = self._scribe.news
        with anyio.move_on_after(self._left(timer) if timer else None) as wait:
            await news.wait()
        if timer and wait.cancelled_caught:
            await self._perform(timer.then)

    def _again(self, rest: Rest) -> Again:
        left = self._left(rest.timer) if rest.timer else inf
        seconds, seen = min(left, rest.again or inf), self._scribe.state.seq
        return Again(seconds, seconds == left, seen) if seconds < inf else Again(seen=seen)

    def _left(self, timer: Timer) -> float:
        """Seconds to go, by a deadline fixed on our own clock when the timer was first seen."""
        key, now = (timer.since, timer.seconds), anyio.current_time()
        if key not in self._deadlines:
            wall = self._means.clock()
            self._deadlines[key] = now + remaining(timer.since, timer.seconds, now=wall)
        return max(self._deadlines[key] - now, 0.0)
