"""`holdfast show`: one run, or one conversation, as far as it got."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, MOST, Data, ReadUrl
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.terminal import Terminal
    from holdfast.core.events import Recorded
    from holdfast.core.state import RunState

command = App(
    name="show",
    usage="Usage: holdfast show [OPTIONS] RUN|SESSION",
    help="Show a run as far as it got: what was said and done, where it stands, what it waits for"
    " and what it used; or a conversation, with all its runs.\n\nWords that a model took back are left"
    " out. Works beside a process that owns the data directory.",
    help_epilogue=f"""\
Examples:

  holdfast show run_3f9a1c20
  holdfast show 3f9a --json | jq -r .output
  holdfast show ses_81c2 -n 10
  holdfast show 3f9a --url https://runs.example.com

Exit codes:

  0    shown
{EXIT_CODES}""",
)


@command.default
def show(
    word: Annotated[
        str,
        Parameter(
            name="RUN|SESSION",
            show_default=False,
            help="The id of a run or of a session, or the beginning of it.",
        ),
    ],
    /,
    *,
    limit: Annotated[
        int,
        Parameter(
            name=["--limit", "-n"],
            show_default=False,
            help="Of a conversation, only the last so many entries.",
        ),
    ] = MOST,
    json: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Print it as one JSON object: status, conversation, output, pending approvals and"
            " usage.",
        ),
    ] = False,
    url: ReadUrl = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.conversation import find
    from holdfast.cli.sessions import check_limit, show_session

    check_limit(limit)
    try:
        return _show_run(word, json=json, url=url, data=data)
    except NotFound as error:
        if error.kind != "run" or word.startswith("run_"):
            raise
    try:
        session_id = find(word, url=url, data=data)
    except NotFound as error:
        raise NotFound("run or session", word) from error
    show_session(session_id, limit=limit, json=json, url=url, data=data)
    return 0


def _show_run(word: str, *, json: bool, url: str | None, data: str | None) -> int:
    from holdfast.cli.shelf import open_shelf, server_at
    from holdfast.cli.summary import interrupted
    from holdfast.core.run import replay

    if url is not None:
        there = server_at(url, data)
        run_id = there.find(word)
        journal = there.journal(run_id)
        # A server carries whatever it has.
        state, left = replay(journal), False
    else:
        with open_shelf(data) as shelf:
            run_id = shelf.archive.find(word)
            journal = list(shelf.archive.events(run_id))
            state = replay(journal)
            left = interrupted(state, shelf.owner)
    if json:
        from holdfast.cli.visible import visible_json

        line = _as_json(run_id, journal, state, left=left) + b"\n"
        sys.stdout.buffer.write(visible_json(line, sys.stdout.buffer))
    else:
        _show(run_id, journal, state, left=left)
    return 0


def _as_json(run_id: str, journal: Sequence[Recorded], state: RunState, *, left: bool) -> bytes:
    import msgspec

    from holdfast.core.phase import phase

    return msgspec.json.encode(
        {
            "run": run_id,
            "status": state.status.value,
            "interrupted": left,
            "waiting_for": phase(state),
            "accepted_at": journal[0].at,
            "at": state.at,
            "seq": state.seq,
            "models": [choice.name for choice in state.accepted.models] if state.accepted else [],
            "messages": state.conversation,
            "partial": "".join(state.attempt.text) if state.attempt else "",
            "output": state.output,
            "pending": [pending.request for pending in state.pending],
            "end": state.ended,
            "usage": state.usage,
            "turns": state.replies,
            "seconds": state.seconds,
        }
    )


def _show(run_id: str, journal: Sequence[Recorded], state: RunState, *, left: bool) -> None:
    from holdfast.cli.screen import Screen
    from holdfast.cli.terminal import Terminal

    terminal = Terminal(sys.stdout)
    Screen(terminal, terminal).begin(run_id, journal)
    terminal.gap()
    for line, style in _standing(run_id, state, left=left):
        terminal.line(line, style)
    _show_pending(terminal, run_id, state)


def _standing(run_id: str, state: RunState, *, left: bool) -> list[tuple[str, str]]:
    from holdfast.cli.shelf import short
    from holdfast.cli.waiting import waiting
    from holdfast.core.phase import phase

    used = state.usage
    sums = " · ".join(
        (
            state.status.value.replace("_", " "),
            _counted(state.replies, "reply", "replies"),
            f"{used.input} tokens in, {used.output} out",
            f"{state.seconds:.1f} s of work",
        )
    )
    lines = [(sums, "dim")]
    if left:
        lines.append((f"interrupted; holdfast resume {short(run_id)} takes it up", "yellow"))
    elif waits := phase(state):
        lines.append((waiting(waits, now=_now()), "yellow"))
    lacks = state.waiting is not None and state.waiting.what == "tool"
    if lacks and state.accepted and state.accepted.workspace:
        lines.append((f"the run works in {state.accepted.workspace}", "yellow"))
    return lines


def _show_pending(terminal: Terminal, run_id: str, state: RunState) -> None:
    from holdfast.cli.question import show_open

    for pending in state.pending:
        show_open(pending.request, run_id, terminal)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _now() -> float:
    from time import time  # noqa: TID251 (what is shown is seen now)

    return time()
