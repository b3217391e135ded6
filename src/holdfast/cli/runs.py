"""`holdfast runs`: the runs there are, and where each one stands."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data
from holdfast.errors import InvalidRequest

_HEAD = ("RUN", "ACCEPTED", "STATUS", "WAITS FOR", "ASKED")
_SPARE = ("WAITS FOR", "ACCEPTED", "ASKED")

command = App(
    name="runs",
    usage="Usage: holdfast runs [OPTIONS]",
    help="List the runs, the newest first: where each stands, and what it waits for.\n\n"
    "A run is interrupted when it has not ended and nobody carries it, as after a crash;"
    " holdfast resume takes it up. Works beside a process that owns the data directory.",
    help_epilogue=f"""\
Examples:

  holdfast runs
  holdfast runs --all --json | jq -r 'select(.status == "failed") | .run'

Exit codes:

  0    listed, if only that there are none
{EXIT_CODES}""",
)


@command.default
def runs(
    *,
    limit: Annotated[int, Parameter(help="How many to list.")] = 20,
    all: Annotated[
        bool, Parameter(negative="", show_default=False, help="List every run there is.")
    ] = False,
    json: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Print each run as one line of JSON."),
    ] = False,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.shelf import open_shelf
    from holdfast.cli.summary import summarise

    if limit < 1:
        raise InvalidRequest(f"--limit is {limit}; it must be at least 1")
    with open_shelf(data) as shelf:
        owner = shelf.owner
        entries = shelf.archive.entries(limit=-1 if all else limit)
        listed = (summarise(shelf.archive, entry, owner) for entry in entries)
        if json:
            import msgspec

            for summary in listed:
                sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
            return 0
        from holdfast.cli.screen import moment
        from holdfast.cli.shelf import short
        from holdfast.cli.table import show_table
        from holdfast.cli.terminal import Terminal

        terminal = Terminal(sys.stdout)
        rows = [
            (
                short(summary.run) if terminal.is_terminal else summary.run,
                moment(summary.accepted_at),
                summary.stands,
                summary.awaits or "-",
                summary.input,
            )
            for summary in listed
        ]
        more = shelf.archive.count() - len(rows)
    notes = Terminal(sys.stderr)
    if not rows:
        notes.line('there are no runs yet; start one with: holdfast run "hello"')
        return 0
    show_table(terminal, _HEAD, rows, spare=_SPARE)
    if more > 0:
        notes.line(f"and {more} older; --all lists them", "dim")
    return 0
