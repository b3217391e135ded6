"""The command line. One file a command, and what the commands share.

What a command needs is imported when it runs, so that asking for help stays quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

#: What a shell reports of a program whose reader went away.
_READER_GONE = 141

_HELP = "Runs AI agents so that a run never hangs, never loses anything, and can always be stopped."

_EXAMPLE = """\
Try it; no model and no key are needed:

  holdfast run "hello"
"""


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command in `tokens`, or in the process's own arguments, and exit."""
    try:
        code = _run(sys.argv[1:] if tokens is None else tokens)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # So that the interpreter's own last flush finds somewhere to go.
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 (quicker than a Path)
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        code = _READER_GONE
    sys.exit(code)


def _run(tokens: Sequence[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    from holdfast.errors import HoldfastError, RequestError

    _prepare_streams()
    try:
        done = commands()(
            _spare_the_hyphen(tokens),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except UnusedCliTokensError as error:
        extra = " ".join(error.unused_tokens or ())
        return _complain(f"too many words: {extra!r}; put a prompt in quotes", code=2)
    except (CycloptsError, RequestError) as error:
        return _complain(str(error), code=2)
    except HoldfastError as error:
        return _complain(str(error), code=1)
    return int(done or 0)


def commands() -> App:
    """Every command there is."""
    from cyclopts import App

    from holdfast.cli import run

    root = App(
        name="holdfast",
        help=_HELP,
        help_format="plaintext",
        help_epilogue=_EXAMPLE,
        usage="Usage: holdfast COMMAND",
        version=_version,
    )
    root.command(run.command)
    return root


def _version() -> str:
    from holdfast import __version__

    return f"holdfast {__version__}"


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by whoever started us.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        # An old locale may lack our characters; that is no reason to end a run.
        getattr(sys, name).reconfigure(errors="backslashreplace")


def _spare_the_hyphen(tokens: Sequence[str]) -> Sequence[str]:
    """A lone hyphen stands for standard input and is no option."""
    if "--" in tokens or "-" not in tokens:
        return tokens
    return [*(word for word in tokens if word != "-"), "--", "-"]


def _complain(sentence: str, *, code: int) -> int:
    from holdfast.cli.visible import visible

    print(f"holdfast: {visible(' '.join(sentence.split()))}", file=sys.stderr)
    return code
