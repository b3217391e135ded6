"""`holdfast resume`: take up what was left unfinished."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Config, Data, JsonLines, Url
from holdfast.cli.run import Pace, check_pace

if TYPE_CHECKING:
    from holdfast.cli.far import Far

command = App(
    name="resume",
    usage="Usage: holdfast resume [OPTIONS] [RUN]",
    help="Take up a run that has not ended, or all of them, one after the other.\n\n"
    "Shows what there is of it, carries it on from the last thing on record, and asks what it has to"
    " ask, as holdfast run does. A tool that was cut off is not started again behind your back,"
    " unless it says that this is safe. Where nobody can be asked, a run that waits for an approval is"
    " left waiting. A run of a server is carried on there; here it is shown, asked about and stopped.",
    help_epilogue=f"""\
Examples:

  holdfast resume
  holdfast resume 3f9a
  holdfast resume 3f9a --url https://runs.example.com

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
    url: Url = None,
    config: Config = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    check_pace(pace)
    from holdfast.cli.desk import Desk
    from holdfast.cli.shelf import server_of
    from holdfast.config import read_settings

    settings = read_settings(data=data, config=config)
    there = server_of(settings.data, url)
    ids = _meant(run, str(settings.data)) if there is None else _meant_far(run, there)
    if not ids:
        print("there is nothing to resume: every run has ended", file=sys.stderr)
        return 0
    desk = Desk(settings, json=json, pace=pace)
    return desk.resume(ids, ask=desk.person and not json, there=there)


def _meant(run: str, data: str) -> list[str]:
    from holdfast.cli.shelf import open_shelf, short
    from holdfast.errors import RunFinished

    with open_shelf(data) as shelf:
        if not run:
            return shelf.archive.unfinished()
        run_id = shelf.archive.find(run)
        if shelf.archive.entry(run_id).ended:
            raise RunFinished(short(run_id))
        return [run_id]


def _meant_far(run: str, there: Far) -> list[str]:
    from holdfast.cli.shelf import short
    from holdfast.core.events import FINAL
    from holdfast.errors import RunFinished

    if not run:
        return there.unfinished()
    run_id = there.find(run)
    if isinstance(there.journal(run_id)[-1].event, FINAL):
        raise RunFinished(short(run_id))
    return [run_id]
