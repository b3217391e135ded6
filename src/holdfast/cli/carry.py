"""`holdfast sessions export` and `import`: a conversation carried elsewhere, and taken in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from holdfast.cli.options import Data, ReadUrl, SessionWord, Url, flag, session_app
from holdfast.errors import InvalidRequest

export_command = session_app(
    "export",
    "SESSION",
    "Write a conversation out: as Markdown, for people, or as JSON, which holdfast sessions import"
    " takes in elsewhere.\n\nValues of environment variables with KEY, TOKEN, SECRET or PASSWORD in"
    " their names are masked. Works beside a process that owns the data directory.",
    "export 3f9a > garden.json",
    "export 3f9a --format md -o garden.md",
)
import_command = session_app(
    "import",
    "FILE",
    "Take in a conversation that was exported as JSON. It is taken whole or not at all.\n\n"
    "It can be gone on with here. A run that had not ended where it came from is ended: what a file"
    " says is anybody's word, and nothing in it is carried out. One whose id is here already is"
    " refused, unless it is taken in under other ids.",
    "import garden.json",
    "import - --as-new < garden.json",
)


@export_command.default
def export(
    session: SessionWord,
    /,
    *,
    output: Annotated[
        str,
        Parameter(
            name=["--output", "-o"],
            show_default=False,
            help="The file to write, which must not be there yet; standard output, unless given.",
        ),
    ] = "",
    format: Annotated[
        Literal["json", "md"], Parameter(help="JSON to be taken in again, or Markdown to be read.")
    ] = "json",
    url: ReadUrl = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.conversation import find

    session_id = find(session, url=url, data=data)
    written = _exported(session_id, format, url=url, data=data)
    if not output:
        from holdfast.cli.visible import visible, visible_json

        out = sys.stdout.buffer
        if format == "md" and out.isatty():
            written = visible(written.decode()).encode()
        out.write(visible_json(written, out) if format == "json" else written)
        out.flush()
        return 0
    try:
        with Path(output).open("xb") as file:
            file.write(written)
    except FileExistsError:
        raise InvalidRequest(f"{output} is there already, and is left as it is") from None
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}") from error
    print(f"written to {output}", file=sys.stderr)
    return 0


def _exported(session_id: str, format: str, *, url: str | None, data: str | None) -> bytes:
    from time import time  # noqa: TID251 (what is written is seen now)

    from holdfast.cli.shelf import open_shelf, server_at
    from holdfast.config import secrets
    from holdfast.core.luggage import pack, write_page
    from holdfast.stores.owner import living

    if url is not None:
        wire = "markdown" if format == "md" else "json"
        return server_at(url, data).export_session(session_id, wire)
    with open_shelf(data) as shelf:
        lives = living(shelf.owner)
        luggage = shelf.sessions.luggage(session_id)
    if format == "json":
        return pack(luggage, secrets=secrets()) + b"\n"
    leased = [run.run_id for run in luggage.runs if lives]
    page = write_page(luggage, leased=leased, workers=lives, now=time(), secrets=secrets())
    return page.encode()


@import_command.default
def import_(
    file: Annotated[
        str, Parameter(name="FILE", help="The exported JSON, or a hyphen for standard input.")
    ],
    /,
    *,
    as_new: Annotated[
        bool, flag("Take it in under other ids, whether or not it is here already.")
    ] = False,
    url: Url = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.conversation import take_in

    session_id, runs = take_in(_read(file), as_new=as_new, url=url, data=data)
    print(f"session {session_id} taken in, with {runs} {'run' if runs == 1 else 'runs'}")
    return 0


def _read(file: str) -> bytes:
    """Not more of it than could be a session."""
    from holdfast.core.luggage import LARGEST

    try:
        if file == "-":
            return sys.stdin.buffer.read(LARGEST + 1) if sys.stdin else b""
        with Path(file).open("rb") as opened:
            return opened.read(LARGEST + 1)
    except OSError as error:
        name = "standard input" if file == "-" else file
        raise InvalidRequest(f"{name} cannot be read: {error.strerror}") from error
