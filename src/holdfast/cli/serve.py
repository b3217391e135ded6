"""`holdfast serve`: runs over HTTP, for as long as it is let."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Config, Data

command = App(
    name="serve",
    usage="Usage: holdfast serve [OPTIONS]",
    help="Serve runs over HTTP: start them, follow them live, answer and stop them.\n\n"
    "Prints one line when it is ready. Every request but /health has to show the key, which is made"
    " at the first start and kept in the data directory as api_key, for its owner alone; /docs"
    " describes the rest. Runs that were left unfinished are taken up at once. SIGTERM or Ctrl-C lets"
    " what is under way finish for a while, leaves the rest to the next start, and exits with 0; a"
    " second one leaves at once.\n\n"
    "Trouble is logged to standard error: where that is a terminal as a line to be read, and elsewhere"
    " as one JSON object a line, with time, level, logger, message, and run_id if it is about a run.",
    help_epilogue=f"""\
Examples:

  holdfast serve
  holdfast serve --port 0 --data /srv/runs
  holdfast serve 2>&1 >/dev/null | jq 'select(.run_id)'
  curl -H "Authorization: Bearer $(cat ~/.local/share/holdfast/api_key)" \\
    -H "Content-Type: application/json" -d '{{"input": "hello"}}' \\
    http://127.0.0.1:8642/v1/runs

Exit codes:

  0    drained, and gone
{EXIT_CODES}\
  130  left at once, by a second Ctrl-C
  143  left at once, by a second SIGTERM
""",
)


@command.default
def serve(
    *,
    host: Annotated[
        str | None, Parameter(show_default=False, help="Where to listen; 127.0.0.1 unless given.")
    ] = None,
    port: Annotated[
        str | None,
        Parameter(show_default=False, help="The port; 8642 unless given, 0 for any that is free."),
    ] = None,
    store: Annotated[
        str | None,
        Parameter(
            show_default=False,
            help="The file that holds the runs, as sqlite:PATH, if not journal.db in the data"
            " directory. It needs a directory of its own. Other commands find it beside the server,"
            " or by HOLDFAST_STORE.",
        ),
    ] = None,
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Parameter(
            help="How trouble is logged: text for people, json for programs; auto is text at a"
            " terminal.",
        ),
    ] = "auto",
    config: Config = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    import sys

    import anyio

    from holdfast.cli.readable import log_to
    from holdfast.config import read_settings
    from holdfast.host import serve as host_runs

    settings = read_settings(data=data, config=config, host=host, port=port, store=store)
    for_people = sys.stderr.isatty() if log_format == "auto" else log_format == "text"
    log_to(sys.stderr, for_people=for_people)
    anyio.run(host_runs, settings, _ready, backend_options={"use_uvloop": True})
    return 0


def _ready(where: str) -> None:
    print(f"holdfast is listening on {where}", flush=True)
