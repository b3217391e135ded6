"""Options that several commands have, said once."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

#: More than anybody lists.
MOST = 1_000_000

Data: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--data",
        show_default=False,
        help="The directory that holds the runs. Unless given, HOLDFAST_DATA names it, or else it"
        " is where this system keeps the data of its users' programs.",
    ),
]

Config: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--config",
        show_default=False,
        help="The file of settings. Unless given, HOLDFAST_CONFIG names it, or else it is"
        " holdfast.toml in this directory, if there is one.",
    ),
]

_ITS_KEY = "Its key is HOLDFAST_API_KEY. The one in the data directory is shown to the owner of that alone."

Url: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--url",
        show_default=False,
        help="A server to talk to. Unless given, it is the one that owns the data directory, if one"
        f" does. {_ITS_KEY}",
    ),
]

ReadUrl: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--url",
        show_default=False,
        help="A server to ask. Unless given, the data directory is read, which works beside a server"
        f" too. {_ITS_KEY}",
    ),
]

RunWord: TypeAlias = Annotated[
    str, Parameter(name="RUN", show_default=False, help="The run's id, or the beginning of it.")
]

#: As in `holdfast.engine.sessions`, which takes too long to load for this.
Busy: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]

SessionWord: TypeAlias = Annotated[
    str,
    Parameter(name="SESSION", show_default=False, help="The session's id, or the beginning of it."),
]

JsonLines: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--json",
        negative="",
        show_default=False,
        help="Print each event as one line of JSON, as it was recorded, and nothing else.",
    ),
]

#: What every command may exit with, beside codes of its own.
EXIT_CODES = """\
  2    it could not be done as asked
  65   what is stored is damaged
  74   the journal cannot be read or written, or the server does not answer
  75   another process owns the data directory
  78   a setting is wrong
"""


def flag(help: str) -> Parameter:
    """An option that is given or not."""
    return Parameter(negative="", show_default=False, help=help)


def session_app(name: str, words: str, help: str, *examples: str) -> App:
    """What is done to a session: a command of these words, taught by these examples."""
    lines = "\n".join(f"  holdfast sessions {example}" for example in examples)
    return App(
        name=name,
        usage=f"Usage: holdfast sessions {name} [OPTIONS] {words}",
        help=help,
        help_epilogue=f"Examples:\n\n{lines}\n\nExit codes:\n\n  0    done\n{EXIT_CODES}",
    )
