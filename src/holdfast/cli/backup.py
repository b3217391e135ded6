"""`holdfast backup`: a copy of everything, at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data

command = App(
    name="backup",
    usage="Usage: holdfast backup [OPTIONS] FILE",
    help="Write a copy of all runs to a file, as of now, while they go on.\n\n"
    "To restore it, make a new directory, put the file there under the name journal.db, and use that"
    " directory as the data directory.",
    help_epilogue=f"""\
Examples:

  holdfast backup runs-monday.db
  mkdir -m 700 restored && cp runs-monday.db restored/journal.db
  holdfast runs --data restored

Exit codes:

  0    the copy is whole, and on the disk
{EXIT_CODES}""",
)


@command.default
def backup(
    file: Annotated[str, Parameter(name="FILE", help="Where to write the copy.")],
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Replace the file if it is there already."),
    ] = False,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.leaving import leaving
    from holdfast.cli.shelf import open_shelf

    with leaving(), open_shelf(data) as shelf:
        shelf.archive.back_up(Path(file).absolute(), force=force)
        count = shelf.archive.count()
    print(f"{'1 run' if count == 1 else f'{count} runs'} copied to {file}")
    return 0
