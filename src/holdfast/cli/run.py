"""`holdfast run`: one agent run, carried by this process and kept in the data directory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Busy, Config, Data, Url
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.config import Settings


Approval: TypeAlias = Literal["ask", "deny"]
Pace: TypeAlias = Annotated[
    float, Parameter(help="Seconds that the demo model takes for each word.")
]

command = App(
    name="run",
    usage="Usage: holdfast run [OPTIONS] [PROMPT]",
    help="Run an agent on a prompt, and show it as it goes.\n\n"
    "The model is the one that is configured, as holdfast models lists it, and without any the"
    " built-in demo, which needs no network. Whatever is shown is on record, and a"
    " run that is cut off can be taken up by holdfast resume. Where a server owns the data directory"
    " the server carries the run. Ctrl-C stops the run in good order and"
    " says what was cut off; a second Ctrl-C leaves at once. Output that is not a terminal holds"
    " what the model says and nothing else; the rest goes to standard error.",
    help_epilogue=f"""\
Examples:

  holdfast run "hello"
  holdfast run - < question.txt
  holdfast run "hello" --model demo
  holdfast run --session new "plan my garden"
  holdfast run --session 3f9a "and what likes shade?"
  holdfast run "hello" --json | jq .event.type
  holdfast run "hello" --url https://runs.example.com

Exit codes:

  0    completed
  1    the run failed
{EXIT_CODES}\
  130  stopped, as by Ctrl-C
  141  whoever read its output went away
  143  terminated
""",
)


@command.default
def run(
    prompt: Annotated[
        str,
        Parameter(
            show_default=False,
            help="What the agent is asked to do. Read from standard input if it is a hyphen, or if"
            " there is none and something is piped in.",
        ),
    ] = "",
    /,
    *,
    json: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Print each event as one line of JSON, as it was recorded, and nothing else."
            " Nobody is asked anything, unless --approval ask is given.",
        ),
    ] = False,
    approval: Annotated[
        Approval | None,
        Parameter(
            help="What to do when a tool needs a yes: ask you, or deny it. Unless told, you are"
            " asked if you are at a terminal.",
        ),
    ] = None,
    model: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Which of the configured models to ask; the default one, unless given.",
        ),
    ] = "",
    session: Annotated[
        str,
        Parameter(
            show_default=False,
            help="The conversation to go on with: its id, or the beginning of it. One that is not"
            " there begins under this id; new makes one up.",
        ),
    ] = "",
    on_busy: Annotated[
        Busy,
        Parameter(
            help="What to do while a run of the conversation is under way: let this wait until it"
            " ends, say it to that run, stop that run first, or give up.",
        ),
    ] = "queue",
    pace: Pace = 0.03,
    url: Url = None,
    config: Config = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.conversation import find_or_new
    from holdfast.cli.desk import Desk, Where
    from holdfast.cli.shelf import server_of
    from holdfast.config import read_settings

    check_pace(pace)
    settings = read_settings(data=data, config=config)
    there = server_of(settings.data, url)
    if there is None:
        check_model(settings, model)
    text = _read(prompt)
    desk = Desk(settings, json=json, pace=pace)
    asked = _approval(approval, json=json, person=desk.person)
    where = Where(*find_or_new(session, there, settings.data)) if session else Where()
    if there is not None:
        return desk.run_far(there, text, where, model=model, approval=asked, busy=on_busy)
    return desk.run(text, where, model=model, approval=asked, busy=on_busy)


def check_model(settings: Settings, name: str) -> None:
    if name and name not in settings.models:
        known = ", ".join(settings.models)
        raise InvalidRequest(f"there is no model {name!r}; those configured are: {known}")


def check_pace(pace: float) -> None:
    if not 0 <= pace <= 60:
        raise InvalidRequest(f"--pace is {pace:g}; it must be between 0 and 60 seconds")


def _read(prompt: str) -> str:
    """The prompt, from where it is. Raises InvalidRequest if there is none."""
    piped = not sys.stdin.isatty()
    if prompt == "-" or (not prompt and piped):
        prompt = _standard_input()
    if not prompt.strip():
        raise InvalidRequest('the prompt is empty; say what to do, as in: holdfast run "hello"')
    return prompt


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"standard input is not text in UTF-8: {error}") from error
    except OSError as error:
        raise InvalidRequest(f"standard input cannot be read: {error.strerror}") from error


def _approval(wanted: Approval | None, *, json: bool, person: bool) -> Approval:
    if wanted == "ask" and not person:
        raise InvalidRequest("--approval ask needs a terminal to ask at, and there is none")
    if wanted:
        return wanted
    return "ask" if person and not json else "deny"
