"""Options that several commands have, said once."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

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

Url: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--url",
        show_default=False,
        help="A server to talk to. Unless given, it is the one that owns the data directory, if one"
        " does. Its key is HOLDFAST_API_KEY, or the one in the data directory.",
    ),
]

ReadUrl: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--url",
        show_default=False,
        help="A server to ask. Unless given, the data directory is read, which works beside a server"
        " too. Its key is HOLDFAST_API_KEY, or the one in the data directory.",
    ),
]

RunWord: TypeAlias = Annotated[
    str, Parameter(name="RUN", show_default=False, help="The run's id, or the beginning of it.")
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
