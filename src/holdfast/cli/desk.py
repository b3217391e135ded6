"""Where a command is run: its three streams, whether anyone sits at them, and how to leave."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple, NoReturn

import anyio
from msgspec.structs import replace

from holdfast.app import App, open_app
from holdfast.cli.attend import LEFT, Attendant, Near, Place
from holdfast.cli.far import Far
from holdfast.cli.keyboard import Keyboard
from holdfast.cli.options import Busy
from holdfast.cli.question import Question
from holdfast.cli.screen import JsonLines, Screen, Viewer
from holdfast.cli.shelf import live_runs, runs_ahead, short
from holdfast.cli.terminal import Terminal
from holdfast.config import Settings
from holdfast.core.events import RunAccepted, StopRequested
from holdfast.core.session import SessionState
from holdfast.engine.means import random_id
from holdfast.errors import NotFound, StoreUnavailable
from holdfast.models.demo import DemoModel

_INTERRUPTED = "another message came first"


class Where(NamedTuple):
    """The session a run is part of, "" for none, and whether it begins with it."""

    session_id: str = ""
    new: bool = False


class Desk:
    """The settings' data directory is owned while a run is carried. `pace` is the demo's."""

    def __init__(self, settings: Settings, *, json: bool, pace: float = 0.0) -> None:
        words = Terminal(sys.stdout)
        #: Where questions are put, and notes go.
        self._notes = Terminal(sys.stderr) if json or not sys.stdout.isatty() else words
        self._viewer: Viewer = JsonLines(sys.stdout.buffer) if json else Screen(words, self._notes)
        self._keyboard = Keyboard()
        self._settings, self._pace = settings, pace
        self._run_id = ""
        self.person = sys.stdin is not None and sys.stdin.isatty() and self._notes.is_terminal
        # What goes wrong with a run is among its events; the screen is no place for a log.
        logging.getLogger("holdfast").addHandler(logging.NullHandler())

    def run(
        self,
        prompt: str,
        where: Where,
        *,
        model: str = "",
        approval: Literal["ask", "deny"],
        busy: Busy = "queue",
    ) -> int:
        """Carry one run from beginning to end. Returns the code to exit with.

        What has not ended in its session is carried first, or is stopped, or is what this is said to.
        """
        run_id, ask, session = random_id("run"), approval == "ask", where.session_id
        ahead = live_runs(self._settings.data, session) if session else []

        async def attend(app: App) -> int:
            accepted = app.prepare(prompt, model=model, approval=approval, surface="terminal")
            if session:
                accepted = await self._in_session(app, accepted, session, model)
            if ahead and busy == "steer":
                await app.runs.add(ahead[0], accepted.input, by="terminal")
                return await self._see(app, ahead[0], ask=ask)
            stop = (
                StopRequested(by="terminal", reason=_INTERRUPTED) if busy == "interrupt" else None
            )
            await app.runs.accept(accepted, run_id=run_id, alone=busy == "reject", stop=stop)
            self._tell_new(where)
            code = 0 if stop else await self._see_all(app, ahead, ask=ask)
            return code or await self._see(app, run_id, ask=ask, new=True)

        return self._carry((*ahead, run_id), attend)

    async def _in_session(
        self, app: App, accepted: RunAccepted, session_id: str, model: str
    ) -> RunAccepted:
        """With what the session has for runs that bring none of their own."""
        try:
            state = (await app.means.store.session(session_id)).state
        except NotFound:
            state = SessionState()
        if not model and state.model in app.means.models:
            chosen = app.prepare("", model=state.model)
            accepted = replace(accepted, models=chosen.models)
        told = filter(None, (accepted.instructions, state.instructions))
        return replace(accepted, session_id=session_id, instructions="\n\n".join(told))

    def run_far(
        self,
        there: Far,
        prompt: str,
        where: Where,
        *,
        model: str = "",
        approval: Literal["ask", "deny"],
        busy: Busy = "queue",
    ) -> int:
        """Have a server carry one run, and see it to its end. Returns the code to exit with."""
        with there.owning_up():
            sent = there.submit(
                prompt, model=model, approval=approval, session=where.session_id, busy=busy
            )
        self._tell_new(where)
        ahead = ""
        if sent.status == "queued":
            ahead = there.session(where.session_id).current_run_id
            words = "another run of the session is under way; this one waits for it to end"
            self._notes.line(words, "dim")
        elif sent.status == "steered":
            self._notes.line(f"said to {short(sent.run_id)}, which is under way", "dim")
        see = Attendant.resume if sent.status == "steered" else Attendant.attend
        return self._attend_far(there, sent.run_id, see, ask=approval == "ask", ahead=ahead)

    def _tell_new(self, where: Where) -> None:
        """Whoever makes a slip in an id is told that something new begins."""
        if where.new:
            self._notes.line(f"session {where.session_id} begins", "dim")

    def resume(self, run_ids: Sequence[str], *, ask: bool, there: Far | None = None) -> int:
        """Carry these on, one after the other, or see `there` do it. Returns the code to exit with.

        That is the code of the last, or of the first that was left waiting or did not complete.
        Being told to stop ends the one at hand, and leaves the others as they are.
        """
        code = 0
        for run_id in run_ids:
            one = self._resume(run_id, there, ask=ask)
            code = code or one
            if one >= 128:
                return one
        return code

    def _resume(self, run_id: str, there: Far | None, *, ask: bool) -> int:
        if there is not None:
            return self._attend_far(there, run_id, Attendant.resume, ask=ask)
        ahead = runs_ahead(self._settings.data, run_id)

        async def attend(app: App) -> int:
            return await self._see_all(app, [*ahead, run_id], ask=ask)

        return self._carry((*ahead, run_id), attend)

    def _attend_far(
        self,
        there: Far,
        run_id: str,
        attend: Callable[[Attendant, str], Awaitable[int]],
        *,
        ask: bool,
        ahead: str = "",
    ) -> int:
        self._run_id, there.warn = run_id, self._viewer.warn

        async def see_through() -> int:
            # Nobody is ahead of itself: it may have begun meanwhile.
            first = ahead if ahead != run_id else ""
            return await attend(self._attendant(there, ask=ask, ahead=first), run_id)

        try:
            return self._said(anyio.run(see_through))
        except StoreUnavailable:
            # What was said to it last may not have got there, a stop included.
            left = f"! left to the server, which may go on with it: holdfast show {short(run_id)}"
            self._notes.line(left, "yellow")
            raise

    def _carry(self, run_ids: Sequence[str], attend: Callable[[App], Awaitable[int]]) -> int:
        self._run_id = run_ids[-1]
        return self._said(anyio.run(partial(self._open, run_ids, attend)))

    async def _see_all(self, app: App, run_ids: Sequence[str], *, ask: bool) -> int:
        """One after the other, as long as each comes to a good end."""
        for run_id in run_ids:
            if code := await self._see(app, run_id, ask=ask):
                return code
        return 0

    async def _see(self, app: App, run_id: str, *, ask: bool, new: bool = False) -> int:
        self._run_id = run_id
        attendant = self._attendant(Near(app), ask=ask)
        return await (attendant.attend(run_id) if new else attendant.resume(run_id))

    def _said(self, code: int) -> int:
        run = short(self._run_id)
        if code == LEFT:
            self._notes.line(f"! left waiting; holdfast show {run} says for what", "yellow")
        elif code and self._notes.is_terminal:
            self._notes.line(f"kept; see it with: holdfast show {run}", "dim")
        return code

    async def _open(self, run_ids: Sequence[str], attend: Callable[[App], Awaitable[int]]) -> int:
        async with open_app(
            self._settings,
            demo=DemoModel(pace=self._pace),
            # Whatever else is unfinished waits to be resumed, not to go on behind somebody's back.
            only=run_ids,
        ) as app:
            box = app.toolbox
            if box and box.jail is None and self._settings.tools.terminal and self.person:
                asked = "you are asked about each command that does more than read"
                self._viewer.warn(f"there is no jail here ({box.why}): {asked}")
            return await attend(app)

    def _attendant(self, place: Place, *, ask: bool, ahead: str = "") -> Attendant:
        question = partial(Question, terminal=self._notes, keyboard=self._keyboard)
        asking = question if ask else None
        return Attendant(place, self._viewer, ask=asking, leave=self._leave, ahead=short(ahead))

    def _leave(self, code: int) -> NoReturn:
        """Go without waiting for anything; whatever hangs is left hanging."""
        self._keyboard.restore()
        if self._notes.is_terminal:
            os.write(2, f"\nleft; holdfast resume {short(self._run_id)} takes it up\n".encode())
        os._exit(code)
