"""`holdfast resume`: take up what was left unfinished."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Config, Data, JsonLines
from holdfast.cli.run import Pace, check_pace

command = App(
    name="resume",
    usage="Usage: holdfast resume [OPTIONS] [RUN]",
    help="Take up a run that has not ended, or all of them, one after the other.\n\n"
    "Shows what there is of it, carries it on from the last thing on record, and asks what it has to"
    " ask, as holdfast run does. A tool that was cut off is not started again behind your back,"
    " unless it says that this is safe. Where nobody can be asked, a run that waits for an approval is"
    " left waiting.",
    help_epilogue=f"""\
Examples:

  holdfast resume
  holdfast resume 3f9a

Exit codes:

  0    completed, or there was nothing to resume
  1    a run failed
  3    a run was left waiting for somebody, or for what is not here
{EXIT_CODES}\
  130  stopped, as by Ctrl-C, now or before
  143  terminated
""",
)


@command.default
def resume(
    run: Annotated[
        str,
        Parameter(
            name="RUN",
            show_default=False,
            help="The run's id, or the beginning of it. Every unfinished run, unless given.",
        ),
    ] = "",
    /,
    *,
    json: JsonLines = False,
    pace: Pace = 0.03,
    config: Config = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    check_pace(pace)
    from holdfast.cli.desk import Desk
    from holdfast.cli.shelf import open_shelf, short
    from holdfast.config import read_settings
    from holdfast.errors import RunFinished

    settings = read_settings(data=data, config=config)
    with open_shelf(str(settings.data)) as shelf:
        if run:
            ids = [shelf.archive.find(run)]
            if shelf.archive.entry(ids[0]).ended:
                raise RunFinished(short(ids[0]))
        else:
            ids = shelf.archive.unfinished()
    if not ids:
        print("there is nothing to resume: every run has ended", file=sys.stderr)
        return 0
    desk = Desk(settings, json=json, pace=pace)
    return desk.resume(ids, ask=desk.person and not json)
