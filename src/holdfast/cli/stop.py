"""`holdfast stop`: have a run end that nobody carries, or that a server does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from holdfast.cli.options import EXIT_CODES, Data, RunWord, Url
from holdfast.errors import JournalDamaged

if TYPE_CHECKING:
    from holdfast.cli.far import Far
    from holdfast.core.events import Recorded

#: The code to exit with when the run is left for somebody else to end.
LEFT = 3

command = App(
    name="stop",
    usage="Usage: holdfast stop [OPTIONS] RUN",
    help="End a run that was left unfinished, without taking it up.\n\n"
    "Says what was cut off. A run of a server is stopped by the server. One that another process"
    " carries is stopped there, by Ctrl-C: a data directory has one owner at a time.",
    help_epilogue=f"""\
Examples:

  holdfast stop 3f9a
  holdfast stop 3f9a --url https://runs.example.com

Exit codes:

  0    stopped
  3    on record, and left to be ended by whoever takes the run up
{EXIT_CODES}""",
)


@command.default
def stop(run: RunWord, /, *, url: Url = None, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    import anyio

    from holdfast.cli.shelf import server_of
    from holdfast.config import read_data

    if (there := server_of(read_data(data=data), url)) is not None:
        # Before there is a loop: here Ctrl-C ends a wait at once.
        run_id = there.find(run)
        known = there.journal(run_id)
        with there.owning_up():
            return anyio.run(_stop_far, there, run_id, known)

    from holdfast.cli.screen import Screen
    from holdfast.cli.shelf import open_shelf
    from holdfast.cli.terminal import Terminal
    from holdfast.core.run import replay

    with open_shelf(data) as shelf:
        where, run_id = (shelf.folder, shelf.path), shelf.archive.find(run)
        before = shelf.archive.length(run_id)
    after = anyio.run(_stop, *where, run_id)
    terminal = Terminal(sys.stdout)
    Screen(terminal, terminal).begin(run_id, after, after=before)
    state = replay(after)
    if state.status.final:
        return 0
    whose = f"a newer version, which understands {state.unknown}," if state.unknown else "somebody"
    terminal.line(f"! that it is to stop is on record; it ends when {whose} takes it up", "yellow")
    return LEFT


async def _stop_far(there: Far, run_id: str, before: Sequence[Recorded]) -> int:
    from holdfast.cli.screen import Screen
    from holdfast.cli.terminal import Terminal

    await there.stop(run_id, reason="holdfast stop")
    terminal = Terminal(sys.stdout)
    screen = Screen(terminal, terminal)
    screen.begin(run_id, before, after=before[-1].seq)
    async for recorded in there.follow(run_id, after=before[-1].seq):
        screen.show(recorded)
    return 0


async def _stop(folder: Path, journal: Path, run_id: str) -> Sequence[Recorded]:
    from holdfast.app import open_app

    async with open_app(data=folder, journal=journal, work=False) as app:
        await app.runs.stop(run_id, by="terminal", reason="holdfast stop")
        try:
            return await app.means.store.read(run_id)
        except JournalDamaged as error:
            what = f"{error.what}; that it is to stop is on record"
            raise JournalDamaged(run_id, error.seq, what) from error
