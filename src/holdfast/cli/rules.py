"""`holdfast rules`: the standing answers that were given, and how to take one back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.stores.rules import Rule, RuleFile

#: Something in the file cannot be read, and does not count.
DAMAGED = 65

_HEAD = ("RULE", "TOOL", "HOW LONG", "WHERE", "GRANTED", "WHAT")
_SPARE = ("GRANTED", "WHERE", "HOW LONG", "TOOL")

#: Characters of a path that are shown at a terminal.
_SHORT = 24

_NONE = (
    "there are no rules yet; one is made when an approval is answered with session or always,"
    " as in: holdfast approve RUN always"
)

_MEANING = (
    "A rule is made when an approval is answered with session or always. It allows that tool, as far"
    " as its key reaches, in runs of that workspace, without asking again. What is refused stays"
    " refused, and what may repeat a call that was cut off is asked about all the same. The rules are"
    " kept in the data directory as rules.toml, which you can read and edit."
)

command = App(
    name="rules",
    usage="Usage: holdfast rules [list|revoke] [OPTIONS]",
    help=f"List the standing answers, or revoke them.\n\n{_MEANING}",
    help_epilogue=f"""\
Examples:

  holdfast rules
  holdfast rules revoke 4be1

Exit codes:

  0    listed, if only that there are none
{EXIT_CODES}""",
)

_list = App(
    name="list",
    usage="Usage: holdfast rules list [OPTIONS]",
    help=f"List the standing answers, the oldest first.\n\n{_MEANING}",
    help_epilogue=f"""\
Examples:

  holdfast rules list
  holdfast rules list --json | jq -r 'select(.session == "") | .key'

Exit codes:

  0    listed, if only that there are none
{EXIT_CODES}""",
)

_revoke = App(
    name="revoke",
    usage="Usage: holdfast rules revoke [OPTIONS] RULE...",
    help="Revoke rules: what they allowed is asked about again.\n\n"
    "Works beside a server, and counts from its next decision on; what is under way is not ended."
    " Either all that are named are found, or none is revoked. The rest of the file is left as it is.",
    help_epilogue=f"""\
Examples:

  holdfast rules revoke 4be1
  holdfast rules revoke rule_4be1a902 rule_77c0d3e5

Exit codes:

  0    revoked
{EXIT_CODES}""",
)

command.command(_list)
command.command(_revoke)

_Json = Annotated[
    bool,
    Parameter(negative="", show_default=False, help="Print each rule as one line of JSON."),
]


@command.default
@_list.default
def rules(*, json: _Json = False, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.terminal import Terminal

    book = _open(data)
    show = _show_lines if json else _show_rows
    show(book)
    problems = book.problems()
    for problem in problems:
        Terminal(sys.stderr).line(f"! {problem}", "yellow")
    return DAMAGED if problems else 0


@_revoke.default
def revoke(
    *rules: Annotated[
        str,
        Parameter(name="RULE", show_default=False, help="Ids of rules, or the beginnings of them."),
    ],
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.visible import one_line, visible

    if not rules:
        raise InvalidRequest("there is no rule named to revoke; holdfast rules lists them")
    book = _open(data)
    # All of them first, so that a mistake in the last one does not come too late.
    for id in dict.fromkeys(book.find(word).id for word in rules):
        rule = book.revoke(id)
        print(f"revoked {rule.id}: {one_line(f'{rule.tool} {visible(rule.key, exact=True)}')}")
    return 0


def _open(data: str | None) -> RuleFile:
    from holdfast.config import read_data
    from holdfast.stores.rules import RuleFile

    return RuleFile(read_data(data=data))


def _show_lines(book: RuleFile) -> None:
    import msgspec

    from holdfast.cli.visible import visible_json

    for rule in book.rules():
        line = msgspec.json.encode(rule)
        sys.stdout.buffer.write(visible_json(line, sys.stdout.buffer) + b"\n")


def _show_rows(book: RuleFile) -> None:
    from holdfast.cli.table import show_table
    from holdfast.cli.terminal import Terminal

    terminal = Terminal(sys.stdout)
    rows = [_row(rule, whole=not terminal.is_terminal) for rule in book.rules()]
    if rows:
        show_table(terminal, _HEAD, rows, spare=_SPARE)
    elif not book.problems():
        Terminal(sys.stderr).line(_NONE)


def _row(rule: Rule, *, whole: bool) -> tuple[str, ...]:
    from holdfast.cli.screen import moment
    from holdfast.cli.shelf import short
    from holdfast.cli.visible import visible

    session = rule.session if whole else short(rule.session)
    return (
        rule.id,
        rule.tool,
        f"session {session}" if session else "always",
        (rule.workspace if whole else _end(rule.workspace)) or "-",
        moment(rule.granted.timestamp()),
        visible(rule.key, exact=True),
    )


def _end(path: str) -> str:
    """The part of it that tells it from others, as a rule."""
    return path if len(path) <= _SHORT else f"…{path[1 - _SHORT :]}"
