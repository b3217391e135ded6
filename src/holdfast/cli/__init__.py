"""The command line. One file a command, and what the commands share.

What a command needs is imported when it runs, so that asking for help stays quick.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from cyclopts import App

    from holdfast.errors import HoldfastError

#: What a shell reports of a program whose reader went away.
_READER_GONE = 141

_HELP = "Runs AI agents so that a run never hangs, never loses anything, and can always be stopped."

_EXAMPLE = """\
Try it; no model and no key are needed:

  holdfast run "hello"
  holdfast runs
"""


#: Each with what the list of commands says of it.
_COMMANDS = {
    "serve": "Serve runs over HTTP.",
    "run": "Run an agent on a prompt, and show it as it goes.",
    "resume": "Take up runs that were left unfinished.",
    "runs": "List the runs, and where each one stands.",
    "sessions": "List the conversations, and do something with one.",
    "show": "Show a run, or a conversation, as far as it got.",
    "tail": "Follow a run as it goes.",
    "stop": "End a run that was left unfinished.",
    "approve": "Answer an approval that a run waits for.",
    "rules": "List the standing answers, and revoke them.",
    "models": "List the models, and try one.",
    "journal": "Verify, export and import what is stored.",
    "backup": "Copy all runs to a file.",
    "doctor": "Say how things stand on this machine.",
}


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command in `tokens`, or in the process's own arguments, and exit."""
    # What is loaded stays: to look for garbage among it again and again slows down every start.
    gc.set_threshold(400_000, 20, 100)
    if tokens is None:
        sys.unraisablehook = _heed
    try:
        code = _run(sys.argv[1:] if tokens is None else tokens)
        # Now, while it can still be said that it did not work.
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        _speak_no_more(sys.stdout)
        code = _READER_GONE
    except OSError as error:
        code = _complain(_trouble(error), code=74)
    sys.exit(code)


def _heed(lost: sys.UnraisableHookArgs) -> None:
    """A Ctrl-C in the middle of what the interpreter does by itself, as it does while it loads things,
    can be raised to nobody and would be forgotten."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(lost)


def _trouble(error: OSError) -> str:
    """What is written to has no name; whatever has one is something else."""
    why = error.strerror or error
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)} cannot be used: {why}"
    _speak_no_more(sys.stdout)
    return f"the output cannot be written: {why}"


def _speak_no_more(stream: TextIO) -> None:
    """So that the interpreter's own last flush finds somewhere to go."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 (quicker than a Path)
        os.dup2(nowhere.fileno(), stream.fileno())


def _run(tokens: Sequence[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    from holdfast.errors import HoldfastError

    _prepare_streams()
    try:
        done = commands(tokens)(
            _spare_the_hyphen(tokens),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except UnusedCliTokensError as error:
        extra = " ".join(error.unused_tokens or ())
        hint = "; put a prompt in quotes" if "run" in tokens[:1] else ""
        return _complain(f"too many words: {extra!r}{hint}", code=2)
    except CycloptsError as error:
        hint = "; a prompt that begins with a hyphen goes after --" if _prompts(tokens) else ""
        return _complain(f"{str(error).rstrip('.')}{hint}", code=2)
    except HoldfastError as error:
        return _complain(str(error), code=_code(error))
    return int(done or 0)


def _prompts(tokens: Sequence[str]) -> bool:
    """Somebody meant to run a prompt that looks like an option."""
    return tokens[:1] == ["run"] and any(word[:1] == "-" and " " in word for word in tokens)


def _code(error: HoldfastError) -> int:
    """What to exit with: the numbers are those of sysexits.h where it has one."""
    from holdfast.errors import ConfigError, DataInUse, JournalDamaged, RequestError, StoreError

    codes: tuple[tuple[type[HoldfastError], int], ...] = (
        (RequestError, 2),
        (JournalDamaged, 65),
        (DataInUse, 75),
        (StoreError, 74),
        (ConfigError, 78),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), 1)


def commands(tokens: Sequence[str] = ()) -> App:
    """Every command there is. One is loaded when it is called for, as it is by these tokens."""
    from cyclopts import App

    root = App(
        name="holdfast",
        help=_HELP,
        help_format="plaintext",
        help_epilogue=_EXAMPLE,
        usage="Usage: holdfast COMMAND",
        version=_version,
    )
    for place, (name, line) in enumerate(_COMMANDS.items()):
        # A line for the list would replace what the command has to say for itself.
        help = None if name in tokens else line
        root.command(f"holdfast.cli.{name}:command", name=name, help=help, sort_key=place)
    return root


def _version() -> str:
    from holdfast import __version__

    return f"holdfast {__version__}"


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Closed by whoever started us. Whatever else got its number could not be closed any more:
            # a server's loop would rather end the process.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        # An old locale may lack our characters; that is no reason to end a run.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _spare_the_hyphen(tokens: Sequence[str]) -> Sequence[str]:
    """A lone hyphen stands for standard input and is no option."""
    if "--" in tokens or "-" not in tokens:
        return tokens
    return [*(word for word in tokens if word != "-"), "--", "-"]


def _complain(sentence: str, *, code: int) -> int:
    from holdfast.cli.visible import visible

    try:
        print(f"holdfast: {visible(' '.join(sentence.split()))}", file=sys.stderr)
    except OSError:
        # There is nobody left to tell; the code says it.
        _speak_no_more(sys.stderr)
    return code
