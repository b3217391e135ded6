"""`holdfast tail`: a run's events as they come, read from the file or from a server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data, JsonLines, ReadUrl, RunWord
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.far import Far
    from holdfast.cli.screen import Viewer
    from holdfast.cli.shelf import Shelf
    from holdfast.cli.terminal import Terminal
    from holdfast.core.events import Recorded
    from holdfast.core.state import RunState

#: Seconds between two looks at the file: soon after something came, and ever less often after that.
LOOK = 0.05
LONGEST = 1.0

command = App(
    name="tail",
    usage="Usage: holdfast tail [OPTIONS] RUN",
    help="Follow a run until it ends: what is recorded so far, and then what comes.\n\n"
    "Reads the file, so it works beside the process that carries the run and is in nobody's way;"
    " with --url it asks a server, and goes on where it was should that be gone for a while. Ctrl-C"
    " leaves the run alone.",
    help_epilogue=f"""\
Examples:

  holdfast tail 3f9a
  holdfast tail 3f9a --after 120 --json
  holdfast tail 3f9a --url https://runs.example.com

Exit codes:

  0    the run has ended
{EXIT_CODES}\
  130  left, as by Ctrl-C
""",
)


@command.default
def tail(
    run: RunWord,
    /,
    *,
    after: Annotated[
        int,
        Parameter(help="Begin after this place in the journal, the seq of the last event you saw."),
    ] = 0,
    json: JsonLines = False,
    url: ReadUrl = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    import anyio

    from holdfast.cli import screen
    from holdfast.cli.shelf import open_shelf, server_at
    from holdfast.cli.terminal import Terminal

    if after < 0:
        raise InvalidRequest(f"--after is {after}; it must be 0 or more")
    words = Terminal(sys.stdout)
    notes = Terminal(sys.stderr) if json or not words.is_terminal else words
    viewer: Viewer = screen.JsonLines(sys.stdout.buffer) if json else screen.Screen(words, notes)
    if url is not None:
        there = server_at(url, data)
        # Before there is a loop: here Ctrl-C ends a wait at once.
        run_id = there.find(run)
        asked = _Questions(run_id, notes, url)
        anyio.run(_follow_far, there, run_id, there.journal(run_id), after, viewer, asked)
        return 0
    with open_shelf(data) as shelf:
        run_id = shelf.archive.find(run)
        anyio.run(_follow, shelf, run_id, after, viewer, notes)
    return 0


async def _follow(shelf: Shelf, run_id: str, after: int, viewer: Viewer, notes: Terminal) -> None:
    import anyio

    from holdfast.cli.shelf import short
    from holdfast.cli.summary import interrupted
    from holdfast.core.run import fold, replay

    journal = list(shelf.archive.events(run_id))
    state, asked = replay(journal), _Questions(run_id, notes)
    viewer.begin(run_id, journal, after=after)
    told, pause = False, LOOK
    while not state.status.final:
        asked.show(state)
        if interrupted(state, shelf.owner) and not told:
            told = True
            notes.line(
                f"! nobody carries this run now; holdfast resume {short(run_id)} does", "yellow"
            )
        await anyio.sleep(pause)
        pause = min(2 * pause, LONGEST)
        for recorded in shelf.archive.events(run_id, after=state.seq):
            state, told, pause = fold(state, recorded), False, LOOK
            _tell(viewer, recorded, after)


async def _follow_far(
    there: Far,
    run_id: str,
    journal: Sequence[Recorded],
    after: int,
    viewer: Viewer,
    asked: _Questions,
) -> None:
    from contextlib import aclosing

    from holdfast.core.run import fold, replay

    there.warn = viewer.warn
    viewer.begin(run_id, journal, after=after)
    state = replay(journal)
    if state.status.final:
        return
    asked.show(state)
    async with aclosing(there.follow(run_id, after=state.seq)) as news:
        async for recorded in news:
            state = fold(state, recorded)
            _tell(viewer, recorded, after)
            asked.show(state)


class _Questions:
    """What a run asks people, each shown once: who follows it may be the one it waits for."""

    def __init__(self, run_id: str, notes: Terminal, url: str | None = None) -> None:
        self._run_id, self._notes, self._url = run_id, notes, url
        self._shown: set[str] = set()

    def show(self, state: RunState) -> None:
        """Those that nobody has answered."""
        from holdfast.cli.question import show_open

        for pending in state.pending:
            if (id := pending.request.approval_id) not in self._shown:
                self._shown.add(id)
                show_open(pending.request, self._run_id, self._notes, url=self._url)


def _tell(viewer: Viewer, recorded: Recorded, after: int) -> None:
    if recorded.seq > after:
        viewer.show(recorded)
    else:
        viewer.skip(recorded)
