"""`holdfast journal`: look after what is stored. Verify it, and carry it elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.stores.archive_sessions import ArchivedSessions

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
    "Names the run and the place of the first damage in each run that has any; sessions are checked"
    " the same way, unless runs are named. Works beside a process"
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
    " the header lists the events that a mask is in, whose checksums no longer match. A run that is"
    " damaged is left out.",
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
    " One that has not ended can be resumed here: its open tool calls are closed, for the model to ask"
    " again, and a standing yes in it is refused. What a file says about either is anybody's word.",
    help_epilogue=f"""\
Examples:

  holdfast journal import runs.jsonl
  holdfast journal import - --data elsewhere < runs.jsonl

Exit codes:

  0    taken; what was here already is as it was
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
    whole = True
    with open_shelf(data) as shelf:
        archive = shelf.archive
        for run_id in [archive.find(run) for run in runs] or archive.ids(deleted=True):
            checked += 1
            try:
                events += archive.verify(run_id)
            except JournalDamaged as error:
                damaged += 1
                _say(str(error))
        try:
            if not runs:
                whole = _verify_sessions(shelf.sessions)
                archive.verify_file()
        except JournalDamaged as error:
            whole = False
            _say(str(error))
    if damaged or not whole:
        _say(f"{damaged} of {_runs(checked)} {'is' if damaged == 1 else 'are'} damaged")
        return DAMAGED
    print(f"{_runs(checked)}, {events} events: all as they were written")
    return 0


def _verify_sessions(sessions: ArchivedSessions) -> bool:
    from holdfast.errors import JournalDamaged

    whole = True
    for session_id in sessions.ids():
        try:
            sessions.verify(session_id)
        except JournalDamaged as error:
            whole = False
            _say(str(error))
    return whole


@_export.default
def export(*runs: _Runs, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.shelf import open_shelf
    from holdfast.config import secrets
    from holdfast.errors import JournalDamaged
    from holdfast.stores.transfer import export as lines_of

    hidden, code = secrets(), 0
    with open_shelf(data) as shelf:
        for run_id in [shelf.archive.find(run) for run in runs] or shelf.archive.ids():
            try:
                for line in lines_of(shelf.archive, run_id, secrets=hidden):
                    sys.stdout.buffer.write(line)
            except JournalDamaged as error:
                _say(f"{error}; nothing of it was written")
                code = DAMAGED
    sys.stdout.buffer.flush()
    return code


@_import.default
def import_(
    file: Annotated[
        str, Parameter(name="FILE", help="The exported lines, or a hyphen for standard input.")
    ],
    /,
    *,
    trust: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Take runs in as they are, open calls and standing answers too: for lines of your"
            " own that nobody could have changed.",
        ),
    ] = False,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    import anyio

    from holdfast.cli.leaving import leaving
    from holdfast.config import read_data

    folder = read_data(data=data)
    tally = _Tally()
    with leaving(), _open(file) as opened:
        try:
            anyio.run(_take_in, folder, _lines(opened, file), trust, tally)
            tally.done = True
        finally:
            tally.tell()
    return tally.code


@dataclass
class _Tally:
    """What came of the runs so far, whatever comes after them."""

    taken: int = 0
    here: int = 0
    refused: int = 0
    damaged: int = 0
    done: bool = False

    def tell(self) -> None:
        if self.taken or (self.done and not (self.here or self.refused or self.damaged)):
            print(f"{_runs(self.taken)} taken in")

    @property
    def code(self) -> int:
        if self.damaged:
            return DAMAGED
        return 2 if self.refused or (self.here and not self.taken) else 0


async def _take_in(folder: Path, lines: Iterator[bytes], trust: bool, tally: _Tally) -> None:
    from time import time  # noqa: TID251 (it happens now)

    from holdfast.cli.shelf import journal_of
    from holdfast.errors import Conflict, JournalDamaged
    from holdfast.stores.owner import own
    from holdfast.stores.transfer import open_intake, parcels

    path = journal_of(folder)
    async with own(folder, journal=path):
        with open_intake(path, now=time) as intake:
            for parcel in parcels(lines):
                try:
                    intake.take(parcel, trust=trust)
                    tally.taken += 1
                except Conflict as error:
                    tally.here += 1
                    _say(f"{error}; nothing of it was taken")
                except InvalidRequest as error:
                    tally.refused += 1
                    _say(str(error))
                except JournalDamaged as error:
                    tally.damaged += 1
                    _say(f"{error}; nothing of it was taken")


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer if sys.stdin else BytesIO()
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 (closed below, where other trouble is not its)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error
    with opened:
        yield opened


def _lines(opened: IO[bytes], file: str) -> Iterator[bytes]:
    from holdfast.stores.transfer import read_lines

    try:
        yield from read_lines(opened)
    except OSError as error:
        name = "standard input" if file == "-" else file
        raise InvalidRequest(f"{name} cannot be read: {error.strerror}") from error


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _say(sentence: str) -> None:
    from holdfast.cli.visible import visible

    print(f"holdfast: {visible(sentence)}", file=sys.stderr)
