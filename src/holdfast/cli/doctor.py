"""`holdfast doctor`: how things stand on this machine, and what to do about them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter
from msgspec import Struct

from holdfast.cli.options import Config, Data

if TYPE_CHECKING:
    from holdfast.cli.terminal import Terminal
    from holdfast.config import ModelSettings, Settings
    from holdfast.tools.jail import Jail
    from holdfast.tools.selftest import Probe

State: TypeAlias = Literal["ok", "warning", "problem"]

_MARKS: tuple[tuple[State, str, str], ...] = (
    ("ok", "✓", "green"),
    ("warning", "!", "yellow"),
    ("problem", "✗", "red"),
)

#: Bytes. Below the first the next run may not be kept; below the second it is time to look.
_TOO_LITTLE = 50_000_000
_LITTLE = 1_000_000_000

#: Columns from which there is room for the names to stand beside the words.
_WIDE = 60

_WITHOUT_A_JAIL = "commands outside a short read-only list are asked about"
_DISTRUST_THE_JAIL = 'update the kernel and bubblewrap, or set tools.jail to "off" and be asked'
_MEND_THE_JAIL = "install a recent bubblewrap, and allow its user to make namespaces"

command = App(
    name="doctor",
    usage="Usage: holdfast doctor [OPTIONS]",
    help="Say how things stand on this machine: a line each, with what to do about it.\n\n"
    "✓ is as it should be, ! is worth knowing, ✗ is in the way. The jail is tried by running harmless"
    " commands in it. No model is asked, nothing is sent anywhere, and no run is touched. Works beside"
    " a process that owns the data directory.",
    help_epilogue="""\
Examples:

  holdfast doctor
  holdfast doctor --json \\
    | jq -r '.checks[] | select(.state == "problem") | .remedy'

Exit codes:

  0    nothing is in the way
  1    something is
""",
)


class Check(Struct, frozen=True):
    name: str
    state: State
    says: str
    remedy: str = ""


class Report(Struct, frozen=True):
    ok: bool
    checks: Sequence[Check]


@command.default
def doctor(
    *,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print one object of JSON.")
    ] = False,
    config: Config = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.terminal import Terminal

    checks = []
    terminal = Terminal(sys.stdout)
    for check in _checks(config, data):
        checks.append(check)
        if not json:
            _show(terminal, check)
    ok = all(check.state != "problem" for check in checks)
    if json:
        import msgspec

        from holdfast.cli.visible import visible_json

        line = msgspec.json.encode(Report(ok, checks))
        sys.stdout.buffer.write(visible_json(line, sys.stdout.buffer) + b"\n")
    return 0 if ok else 1


def _show(terminal: Terminal, check: Check) -> None:
    from textwrap import wrap

    mark, style = next((mark, style) for state, mark, style in _MARKS if state == check.state)
    wide = not terminal.is_terminal or terminal.width >= _WIDE
    head = f"{mark} {check.name:<11} " if wide else f"{mark} {check.name}: "
    margin = " " * (len(head) if wide else 2)
    room = terminal.width - 1 if terminal.is_terminal else sys.maxsize
    words = [(head, check.says, style)]
    if check.remedy:
        words.append((margin, f"→ {check.remedy}", ""))
    for begin, text, colour in words:
        lines = wrap(
            " ".join(text.split()),
            room,
            initial_indent=begin,
            subsequent_indent=margin,
            # A path or a command is easier to take along whole.
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines:
            terminal.line(line, colour)


def _checks(config: str | None, data: str | None) -> Iterator[Check]:
    from shutil import disk_usage

    from holdfast.config import read_data, read_settings
    from holdfast.errors import ConfigError

    yield _python()
    yield _platform(sys.platform)
    settings = folder = None
    try:
        folder = read_data(data=data, config=config)
        settings = read_settings(data=data, config=config)
        where = settings.file or "there is no file of settings; the defaults hold"
        yield Check("settings", "ok", str(where))
    except ConfigError as error:
        yield Check("settings", "problem", str(error), "correct it; then look here again")
    if folder:
        yield _folder(folder)
        yield _space(disk_usage(_nearest(folder)).free)
        yield from _rules(folder)
    if settings:
        yield _files(settings.max_concurrent_runs)
        yield from _models(settings)
        jail = _opened(settings)
        yield from _tools(settings, jail)
        yield from _jail(settings, jail)


def _python() -> Check:
    from platform import python_implementation, python_version

    from holdfast import __version__

    return Check(
        "python", "ok", f"{python_implementation()} {python_version()}, holdfast {__version__}"
    )


def _platform(kind: str) -> Check:
    from platform import machine, release, system

    here = f"{system()} {release()}, {machine()}"
    if kind == "linux":
        return Check("platform", "ok", here)
    return Check("platform", "warning", f"{here}; the jail for commands needs Linux")


def _files(runs: int) -> Check:
    from holdfast.server.files import allow_many, for_callers

    many = for_callers(allow_many())
    says = f"a server may have {many} connections, and as many to models"
    if many >= runs:
        return Check("files", "ok", says)
    remedy = "allow it more open files (ulimit -Hn), or lower max_concurrent_runs"
    return Check("files", "warning", f"{says}, for {runs} runs at once", remedy)


# --- the data directory ----------------------------------------------------------------


def _folder(folder: Path) -> Check:
    try:
        there = folder.stat()
    except FileNotFoundError:
        above = _nearest(folder)
        if os.access(above, os.W_OK | os.X_OK):
            return Check("data", "ok", f"{folder} will be made when it is first needed")
        return _bad_folder(f"{folder} cannot be made: {above} is not writable")
    except OSError as error:
        return _bad_folder(f"{folder} cannot be used: {error.strerror}")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return _bad_folder(f"{folder} is not writable")
    # An empty one is closed by whoever uses it first.
    if there.st_mode & 0o077 and any(folder.iterdir()):
        return Check(
            "data",
            "problem",
            f"{folder} is open to others, and runs hold what nobody else should read",
            f"chmod 700 {folder}",
        )
    if there.st_uid != os.geteuid():
        return Check(
            "data",
            "warning",
            f"{folder} belongs to another user, whose number is {there.st_uid}",
            "run holdfast as that user, or choose another directory with --data",
        )
    return Check("data", "ok", f"{folder}{_owned(folder)}")


def _bad_folder(why: str) -> Check:
    return Check("data", "problem", why, "choose another with --data or HOLDFAST_DATA")


def _owned(folder: Path) -> str:
    from holdfast.stores.owner import owner

    found = owner(folder)
    if not found:
        return "; nobody is using it"
    where = f", which listens on {found.address}" if found.address else ""
    return f"; process {found.pid} is using it{where}"


def _space(free: int) -> Check:
    says = f"{free / 1e9:,.1f} GB free where the data is"
    if free < _TOO_LITTLE:
        return Check("disk", "problem", says, "make room: no more runs are taken without")
    if free < _LITTLE:
        return Check("disk", "warning", says, "make room before it runs out")
    return Check("disk", "ok", says)


def _nearest(path: Path) -> Path:
    """It, or what is there of the way to it."""
    return next((each for each in (path, *path.parents) if os.access(each, os.F_OK)), Path("/"))


def _rules(folder: Path) -> Iterator[Check]:
    from holdfast.stores.rules import RuleFile

    book = RuleFile(folder)
    for problem in book.problems():
        remedy = f"edit {book.path}; until then no rule can be added"
        yield Check("rules", "problem", problem, remedy)
    if not book.problems():
        number = len(book.rules())
        yield Check("rules", "ok", "1 rule stands" if number == 1 else f"{number} rules stand")


# --- what is configured ----------------------------------------------------------------


def _models(settings: Settings) -> Iterator[Check]:
    for model in settings.models.values():
        yield _model(model)


def _model(model: ModelSettings) -> Check:
    from holdfast.config.addresses import is_loopback_url

    name = f"model {model.name}"
    if model.wire == "demo":
        return Check(
            name,
            "ok",
            "the demo, which only plays at being a model",
        )
    says = f"{model.model or 'the first it has'} at {model.base_url}"
    if model.key:
        return Check(name, "ok", f"{says}, with the key in {model.key_env}")
    if is_loopback_url(model.base_url):
        return Check(name, "ok", f"{says}, without a key")
    return Check(
        name, "warning", f"{says}, without a key", "if it wants one, name it in api_key_env"
    )


def _tools(settings: Settings, jail: Jail | str) -> Iterator[Check]:
    tools = settings.tools
    yield Check("terminal", "ok", "on" if tools.terminal else "off; agents run no commands")
    match tools.approval:
        case "yolo":
            remedy = 'set tools.approval to "ask"'
            yield Check(
                "approval", "warning", "yolo: nobody is asked about what stays in the jail", remedy
            )
        case "deny":
            yield Check("approval", "ok", "deny: what somebody would be asked about is refused")
        case _:
            about = "what leaves the jail or is hard to take back"
            if isinstance(jail, str):
                about = "each command that does more than read"
            yield Check("approval", "ok", f"ask: about {about}")


# --- the jail --------------------------------------------------------------------------


def _opened(settings: Settings) -> Jail | str:
    """The jail, or why there is none."""
    import anyio

    from holdfast.toolbox import jail_for

    return anyio.run(jail_for, settings) if settings.tools.terminal else ""


def _jail(settings: Settings, jail: Jail | str) -> Iterator[Check]:
    import anyio

    from holdfast.tools.selftest import self_test

    if not settings.tools.terminal:
        yield Check("jail", "ok", "not needed, since there are no commands to confine")
    elif settings.tools.jail == "off":
        yield Check("jail", "warning", f"off; {_WITHOUT_A_JAIL}", 'set tools.jail to "auto"')
    elif not isinstance(jail, str):
        yield Check("jail", "ok", f"bubblewrap at {jail.bwrap}")
        yield from map(_probed, anyio.run(self_test, jail))
    elif settings.tools.jail == "bwrap":
        says = f"{jail}; tools.jail insists on one, so nothing starts without"
        yield Check("jail", "problem", says, _remedy(settings))
    else:
        yield Check("jail", "warning", f"{jail}; {_WITHOUT_A_JAIL}", _remedy(settings))


def _remedy(settings: Settings) -> str:
    """What helps, by what is in the way."""
    from holdfast.errors import ToolError
    from holdfast.tools.homes import no_workspace, resolved
    from holdfast.tools.jail_names import bound, protected

    workspace = settings.workspace
    if no_workspace(workspace) or not workspace.is_dir():
        return "choose another workspace"
    real = resolved(workspace)
    try:
        bound(real, protected(real), set())
    except ToolError:
        return "mend what it names in the workspace"
    return _MEND_THE_JAIL


def _probed(probe: Probe) -> Check:
    if probe.ok:
        return Check("jail", "ok", probe.name)
    return Check("jail", "problem", f"{probe.name}: {probe.detail}", _DISTRUST_THE_JAIL)
