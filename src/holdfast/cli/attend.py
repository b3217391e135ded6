"""One run, attended from the command line: shown as it goes, asked about, stopped when told to.

Where nobody can be asked, a run that waits for somebody is left waiting: its journal keeps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from holdfast.app import App
from holdfast.calls.tasks import task_group
from holdfast.cli.interrupts import Interrupts
from holdfast.cli.question import Question
from holdfast.cli.screen import Viewer
from holdfast.core.events import (
    ApprovalRequested,
    Choice,
    Recorded,
    RunAccepted,
    RunCompleted,
    RunFailed,
)
from holdfast.core.phase import Phase, behind, phase
from holdfast.core.run import fold, replay
from holdfast.core.state import RunState
from holdfast.errors import Conflict, HoldfastError

#: Seconds without news after which somebody wonders what is going on, and between two looks.
WONDER = 1.5
TICK = 0.5


_FULL = "there is no space left on the disk; the run goes on when there is"
_ROOM = "there is space on the disk again"

#: The code to exit with when the run was left waiting for somebody.
LEFT = 3


class Place(Protocol):
    """Where a run is carried and can be talked to: here, or on a server."""

    @property
    def full(self) -> bool: ...

    @property
    def trouble(self) -> HoldfastError | None: ...

    def clock(self) -> float: ...

    def has(self, kind: str, name: str, accepted: RunAccepted | None) -> bool: ...

    async def read(self, run_id: str) -> Sequence[Recorded]: ...

    def follow(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Recorded, None]: ...

    async def stop(self, run_id: str, *, by: str = "", reason: str = "") -> None: ...

    def hurry(self) -> None:
        """Somebody wants to leave: what is silent is not waited for any more."""

    async def answer(
        self,
        run_id: str,
        choice: Choice,
        *,
        approval_id: str = "",
        digest: str = "",
        by: str = "",
        tell: Callable[[str], None],
    ) -> tuple[str, ...]: ...


class Near:
    """Here, in an app of this process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.clock = app.clock
        self.follow, self.stop, self.answer = app.runs.follow, app.runs.stop, app.runs.answer
        self.read = app.means.store.read

    @property
    def trouble(self) -> HoldfastError | None:
        return self._app.trouble

    @property
    def full(self) -> bool:
        return bool(getattr(self._app.means.store, "full", False))

    def hurry(self) -> None:
        """Nothing here is silent for long."""

    def has(self, kind: str, name: str, accepted: RunAccepted | None) -> bool:
        means = self._app.means
        return name in (means.models if kind == "model" else means.tools_for(accepted))


class Attendant:
    """`ask` makes the question that is put to a person; None: nobody is there to be asked.

    `leave` ends the process. `ahead` is the run that has to end before this one can begin.
    """

    def __init__(
        self,
        place: Place,
        viewer: Viewer,
        *,
        ask: Callable[[ApprovalRequested], Question] | None,
        leave: Callable[[int], object],
        ahead: str = "",
    ) -> None:
        self._place, self._viewer, self._ahead = place, viewer, ahead
        self._ask, self._leave = ask, leave
        self._run_id = ""
        self._state = RunState()
        self._heard = 0.0
        self._question: Question | None = None
        self._asking = anyio.CancelScope()
        self._asked: set[str] = set()

    async def attend(self, run_id: str) -> int:
        """See a new run to its end. Returns the code to exit with."""
        self._run_id = run_id
        return await self._see_through(())

    async def resume(self, run_id: str) -> int:
        """Show what there is of a run, and see it to its end."""
        self._run_id = run_id
        return await self._see_through(await self._place.read(run_id))

    async def _see_through(self, journal: Sequence[Recorded]) -> int:
        self._state = replay(journal)
        self._heard = anyio.current_time()
        with Interrupts(self._leave) as interrupts:
            self._viewer.begin(self._run_id, journal)
            async with task_group() as tasks:
                tasks.start_soon(self._stop_when_told, interrupts)
                tasks.start_soon(self._keep_time)
                self._see_to_questions(tasks)
                await self._watch(tasks)
                tasks.cancel_scope.cancel()
        match self._state.ended:
            case RunCompleted():
                return 0
            case RunFailed():
                return 1
            case None:
                return LEFT
            case _:
                return interrupts.code

    async def _watch(self, tasks: TaskGroup) -> None:
        if self._stuck():
            return
        journal = self._place.follow(self._run_id, after=self._state.seq)
        async with aclosing(journal):
            async for recorded in journal:
                self._state = fold(self._state, recorded)
                self._heard = anyio.current_time()
                self._see_to_questions(tasks)
                self._viewer.show(recorded)
                if self._question and not self._asking.cancel_called:
                    self._question.remind()
                if self._stuck():
                    return

    def _stuck(self) -> bool:
        """The run waits for something that cannot come while this process lives."""
        state, waits = self._state, phase(self._state)
        if waits is None or any(state.running(tool) for tool in state.open_tools):
            return False
        match waits.waiting_for:
            case "approval":
                return self._ask is None
            case "missing_model":
                return not self._place.has("model", waits.name, state.accepted)
            case "missing_tool":
                return not self._place.has("tool", waits.name, state.accepted)
            case other:
                return other == "newer_version"

    async def _stop_when_told(self, interrupts: Interrupts) -> None:
        await interrupts.came.wait()
        self._place.hurry()
        try:
            await self._place.stop(self._run_id, by="terminal", reason=interrupts.name)
        except Conflict:
            pass  # it has just ended by itself

    async def _keep_time(self) -> None:
        """Once nothing has happened for a while, say why."""
        full = False
        while True:
            await anyio.sleep(TICK)
            if trouble := self._place.trouble:
                raise trouble
            if full != self._place.full:
                full = not full
                self._viewer.warn(_FULL if full else _ROOM)
            if not self._question and anyio.current_time() - self._heard >= WONDER:
                self._viewer.wait(self._phase(), now=self._place.clock())

    def _phase(self) -> Phase | None:
        state = self._state
        waits = self._ahead and not state.epoch and not state.stopping
        return behind(state, self._ahead) if waits else phase(state)

    # --- questions

    def _see_to_questions(self, tasks: TaskGroup) -> None:
        """Withdraw the question that no longer stands; ask the next one that does."""
        open = {pending.request.approval_id: pending.request for pending in self._state.pending}
        if self._question and self._question.request.approval_id not in open:
            self._asking.cancel()
        unasked = [request for id, request in open.items() if id not in self._asked]
        if self._ask and unasked and not self._question:
            self._asked.add(unasked[0].approval_id)
            self._question, self._asking = self._ask(unasked[0]), anyio.CancelScope()
            tasks.start_soon(self._put, self._question, self._asking, tasks)

    async def _put(self, question: Question, scope: anyio.CancelScope, tasks: TaskGroup) -> None:
        with scope:
            # It may have been withdrawn in the same breath.
            await anyio.lowlevel.checkpoint()
            choice = await question.ask()
            try:
                await self._place.answer(
                    self._run_id,
                    choice,
                    approval_id=question.request.approval_id,
                    digest=question.request.digest,
                    by="terminal",
                    tell=self._viewer.warn,
                )
            except Conflict:
                pass  # settled meanwhile; the journal says how
        self._question = None
        self._see_to_questions(tasks)
