"""`holdfast runs`: the runs there are, and where each one stands."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data, ReadUrl
from holdfast.errors import IllegalEvent, InvalidRequest, JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.cli.shelf import Shelf
    from holdfast.cli.summary import Summary

    #: Of each run where it stands, or what is wrong with it.
    Listed: TypeAlias = Iterator[Summary | dict[str, str]]

#: How a run stands whose journal is not what was written.
DAMAGED = "damaged"

_HEAD = ("RUN", "ACCEPTED", "STATUS", "WAITS FOR", "ASKED")
#: More runs than anybody lists.
MOST = 1_000_000
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
  holdfast runs --url https://runs.example.com

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
    url: ReadUrl = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.shelf import open_shelf, server_at

    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"--limit is {limit}; it must be between 1 and {MOST}")
    most = MOST if all else limit
    show = _show_lines if json else _show_rows
    if url is not None:
        there = server_at(url, data)
        stands = there.runs(page=most)
        show(_summaries_far(islice(stands, most)))
        older = "older ones" if not json and next(stands, None) else ""
    else:
        with open_shelf(data) as shelf:
            more = shelf.archive.count() - show(_summaries(shelf, limit=most))
        older = f"{more} older" if not json and more > 0 else ""
    if older:
        from holdfast.cli.terminal import Terminal

        Terminal(sys.stderr).line(f"and {older}; --all lists them", "dim")
    return 0


def _show_lines(listed: Listed) -> int:
    """Returns how many there are."""
    import msgspec

    from holdfast.cli.visible import visible_json

    shown = 0
    for summary in listed:
        line = msgspec.json.encode(summary)
        sys.stdout.buffer.write(visible_json(line, sys.stdout.buffer) + b"\n")
        shown += 1
    return shown


def _show_rows(listed: Listed) -> int:
    """Returns how many there are."""
    from holdfast.cli.table import show_table
    from holdfast.cli.terminal import Terminal

    terminal, notes = Terminal(sys.stdout), Terminal(sys.stderr)
    rows = [_row(summary, whole=not terminal.is_terminal) for summary in listed]
    if not rows:
        notes.line('there are no runs yet; start one with: holdfast run "hello"')
        return 0
    show_table(terminal, _HEAD, rows, spare=_SPARE)
    if damaged := [row for row in rows if row[2] == DAMAGED]:
        are = "is" if len(damaged) == 1 else "are"
        notes.line(f"{len(damaged)} {are} damaged; holdfast journal verify says where", "yellow")
    return len(rows)


def _summaries_far(stands: Iterable[dict[str, Any]]) -> Listed:
    from holdfast.cli.summary import summarise_far

    for told in stands:
        if told["status"] == DAMAGED:
            yield {"run": told["run_id"], "status": DAMAGED, "damage": told["error"]}
        else:
            yield summarise_far(told)


def _summaries(shelf: Shelf, *, limit: int) -> Listed:
    """One that cannot be read hides no other."""
    from holdfast.cli.summary import summarise

    owner = shelf.owner
    for run_id in shelf.archive.newest(limit=limit):
        try:
            yield summarise(shelf.archive, shelf.archive.entry(run_id), owner)
        except (JournalDamaged, IllegalEvent) as error:
            yield {"run": run_id, "status": DAMAGED, "damage": str(error)}


def _row(summary: Summary | dict[str, str], *, whole: bool) -> tuple[str, ...]:
    from holdfast.cli.screen import moment
    from holdfast.cli.shelf import short

    if isinstance(summary, dict):
        run, *rest = summary["run"], "-", DAMAGED, "-", ""
    else:
        run, *rest = (
            summary.run,
            moment(summary.accepted_at),
            summary.stands,
            summary.awaits or "-",
            summary.input,
        )
    return (run if whole else short(run), *rest)
