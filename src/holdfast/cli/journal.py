"""`holdfast journal`: look after what is stored. Verify it, and carry it elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data
from holdfast.errors import InvalidRequest

#: What is stored, or was to be taken in, is damaged.
DAMAGED = 65

command = App(
    name="journal",
    usage="Usage: holdfast journal verify|export|import",
    help="Look after what is stored: check it, write it out, take it in.",
    help_epilogue="""\
Examples:

  holdfast journal verify
  holdfast journal export > runs.jsonl
""",
)

_Runs = Annotated[
    str,
    Parameter(
        name="RUN",
        show_default=False,
        help="Ids of runs, or the beginnings of them. Every run, unless given.",
    ),
]

_verify = App(
    name="verify",
    usage="Usage: holdfast journal verify [OPTIONS] [RUN...]",
    help="Check every event against its checksum, which is chained to the one before it.\n\n"
    "Names the run and the place of the first damage in each run that has any. Works beside a process"
    " that owns the data directory.",
    help_epilogue=f"""\
Examples:

  holdfast journal verify
  holdfast journal verify 3f9a

Exit codes:

  0    everything is as it was written
{EXIT_CODES}""",
)

_export = App(
    name="export",
    usage="Usage: holdfast journal export [OPTIONS] [RUN...]",
    help="Write runs to standard output as lines of JSON: a header for each run, then its blobs,"
    " then its events.\n\n"
    "Values of environment variables with KEY, TOKEN, SECRET or PASSWORD in their names are masked;"
    " the header lists the events that a mask is in, whose checksums no longer match.",
    help_epilogue=f"""\
Examples:

  holdfast journal export > runs.jsonl
  holdfast journal export 3f9a | jq -c 'select(.seq) | .body'

Exit codes:

  0    written
{EXIT_CODES}""",
)

_import = App(
    name="import",
    usage="Usage: holdfast journal import [OPTIONS] FILE",
    help="Take in runs that were exported. Each is taken whole or not at all.\n\n"
    "A run that is here already, or is not what was exported, is refused; the others are taken."
    " One that has not ended can be resumed here.",
    help_epilogue=f"""\
Examples:

  holdfast journal import runs.jsonl
  holdfast journal import - --data elsewhere < runs.jsonl

Exit codes:

  0    every run was taken
{EXIT_CODES}""",
)

command.command(_verify)
command.command(_export)
command.command(_import)


@_verify.default
def verify(*runs: _Runs, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.shelf import open_shelf
    from holdfast.errors import JournalDamaged

    checked = events = damaged = 0
    with open_shelf(data) as shelf:
        archive = shelf.archive
        for run_id in [archive.find(run) for run in runs] or archive.ids():
            checked += 1
            try:
                events += archive.verify(run_id)
            except JournalDamaged as error:
                damaged += 1
                _say(str(error))
        if not runs:
            archive.verify_file()
    if damaged:
        _say(f"{damaged} of {_runs(checked)} {'is' if damaged == 1 else 'are'} damaged")
        return DAMAGED
    print(f"{_runs(checked)}, {events} events: all as they were written")
    return 0


@_export.default
def export(*runs: _Runs, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.shelf import open_shelf
    from holdfast.config import secrets
    from holdfast.stores.transfer import export as lines_of

    hidden = secrets()
    with open_shelf(data) as shelf:
        for run_id in [shelf.archive.find(run) for run in runs] or shelf.archive.ids():
            for line in lines_of(shelf.archive, run_id, secrets=hidden):
                sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


@_import.default
def import_(
    file: Annotated[
        str, Parameter(name="FILE", help="The exported lines, or a hyphen for standard input.")
    ],
    /,
    *,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    import anyio

    from holdfast.cli.shelf import JOURNAL
    from holdfast.config import read_data

    folder = read_data(data=data)
    with _lines(file) as lines:
        taken, refused = anyio.run(_take_in, folder, folder / JOURNAL, lines)
    if taken or not refused:
        print(f"{_runs(taken)} taken in")
    return DAMAGED if refused else 0


async def _take_in(folder: Path, path: Path, lines: Iterator[bytes]) -> tuple[int, int]:
    from holdfast.errors import Conflict, JournalDamaged
    from holdfast.stores.owner import own
    from holdfast.stores.transfer import parcels, take_in

    taken = refused = 0
    async with own(folder):
        for parcel in parcels(lines):
            try:
                take_in(path, parcel)
                taken += 1
            except (Conflict, JournalDamaged) as error:
                _say(f"{error}; nothing of it was taken")
                refused += 1
    return taken, refused


@contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    if file == "-":
        yield iter(sys.stdin.buffer if sys.stdin else ())
        return
    try:
        with Path(file).open("rb") as lines:
            yield iter(lines)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _say(sentence: str) -> None:
    from holdfast.cli.visible import visible

    print(f"holdfast: {visible(sentence)}", file=sys.stderr)
