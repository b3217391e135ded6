"""`holdfast approve`: answer an approval of a run that waits for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.options import EXIT_CODES, Data, RunWord, Url
from holdfast.errors import (
    ApprovalAmbiguous,
    ApprovalSettled,
    InvalidRequest,
    NotFound,
    NothingPending,
    RunFinished,
    RunStopping,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.cli.far import Far
    from holdfast.core.events import ApprovalRequested, Choice
    from holdfast.core.state import RunState
    from holdfast.engine.runs import Runs

_CHOICES = ("once", "session", "always", "deny")

command = App(
    name="approve",
    usage="Usage: holdfast approve [OPTIONS] RUN [APPROVAL] once|session|always|deny",
    help="Answer an approval that a run waits for. What is answered is shown, and nothing else is"
    " answered. If you name no approval, the only one is meant, and at a terminal you say yes to it once"
    " more.\n\n"
    "The answer is on record when this returns, and takes effect when the run is taken up: see"
    " holdfast resume. A run of a server takes it up by itself; what is asked by a run that another"
    " process carries is answered there.",
    help_epilogue=f"""\
Examples:

  holdfast approve 3f9a once
  holdfast approve 3f9a apr_77e0 deny && holdfast resume 3f9a
  holdfast approve 3f9a once --url https://runs.example.com

Exit codes:

  0    answered
{EXIT_CODES}""",
)


@command.default
def approve(
    run: RunWord,
    /,
    *words: Annotated[
        str,
        Parameter(
            name="ANSWER",
            help="once answers this call; session and always answer the very same call as well, in"
            " this session or whenever it comes up in this workspace, until the rule is revoked (see"
            " holdfast rules); deny is a no. Before it the approval's id, or the beginning of it, if several"
            " are pending.",
        ),
    ],
    url: Url = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    import anyio

    from holdfast.cli.shelf import open_shelf, server_of, short
    from holdfast.cli.visible import one_line
    from holdfast.config import read_data

    approval, choice = _read(words)
    if (there := server_of(read_data(data=data), url)) is not None:
        # Before there is a loop: here Ctrl-C ends a wait at once.
        run_id = there.find(run)
        with there.owning_up():
            tool = anyio.run(_settle, there, run_id, approval, choice)
        print(one_line(f"{tool}: {choice}"))
        return 0
    with open_shelf(data) as shelf:
        where, run_id = (shelf.folder, shelf.path), shelf.archive.find(run)
    tool = anyio.run(_answer, *where, run_id, approval, choice)
    print(one_line(f"{tool}: {choice}; holdfast resume {short(run_id)} carries the run on"))
    return 0


def _read(words: tuple[str, ...]) -> tuple[str, Choice]:
    *approval, choice = words or ("",)
    for known in _CHOICES:
        if choice == known and len(approval) <= 1:
            return "".join(approval), known  # type: ignore[return-value]
    raise InvalidRequest(
        "an answer is once, session, always or deny, as in: holdfast approve 3f9a once"
    )


async def _answer(folder: Path, journal: Path, run_id: str, approval: str, choice: Choice) -> str:
    from holdfast.app import open_app

    async with open_app(data=folder, journal=journal, work=False) as app:
        return await _settle(app.runs, run_id, approval, choice)


async def _settle(runs: Runs | Far, run_id: str, approval: str, choice: Choice) -> str:
    """The tool whose call was answered: the one that is shown here, and no other that came since."""
    from holdfast.cli.question import show_request
    from holdfast.cli.terminal import Terminal

    request = _meant(approval, run_id, await runs.state(run_id))
    show_request(request, Terminal(sys.stderr))
    if not approval and choice != "deny" and sys.stdin.isatty():
        await _make_sure(choice)
    await runs.answer(
        run_id,
        choice,
        approval_id=request.approval_id,
        digest=request.digest,
        by="terminal",
        tell=_warn,
    )
    return request.tool


async def _make_sure(choice: Choice) -> None:
    """Whoever has named no approval may have meant another, which has expired meanwhile."""
    from holdfast.cli.keyboard import Keyboard

    keyboard = Keyboard()
    with keyboard.attention():
        print(f"  Answer it with {choice}? [no] ", end="", file=sys.stderr, flush=True)
        line = await keyboard.line()
    if (line or "").lower() not in ("y", "yes", choice):
        raise InvalidRequest("nothing was answered")


def _warn(text: str) -> None:
    from holdfast.cli.visible import one_line

    print(f"! {one_line(text)}", file=sys.stderr)


def _meant(word: str, run_id: str, state: RunState) -> ApprovalRequested:
    """The request that is meant, by the beginning of its id or because it is the only one."""
    if state.status.final:
        raise RunFinished(run_id)
    if state.stopping:
        raise RunStopping(run_id)
    pending = {one.request.approval_id: one.request for one in state.pending}
    if not word:
        return _only(run_id, list(pending.values()))
    fitting = [id for id in (*pending, *state.settled) if id.startswith((word, f"apr_{word}"))]
    if len(fitting) > 1:
        raise InvalidRequest(f"{word} could be {' or '.join(fitting)}; type more of it")
    if not fitting:
        raise NotFound("approval", word)
    if fitting[0] not in pending:
        raise ApprovalSettled(fitting[0], state.settled[fitting[0]])
    return pending[fitting[0]]


def _only(run_id: str, pending: Sequence[ApprovalRequested]) -> ApprovalRequested:
    if not pending:
        raise NothingPending(run_id)
    if len(pending) == 1:
        return pending[0]
    from holdfast.cli.question import show_request
    from holdfast.cli.terminal import Terminal

    terminal = Terminal(sys.stderr)
    for request in pending:
        show_request(request, terminal)
        terminal.line(f"  This is {request.approval_id}")
    raise ApprovalAmbiguous([request.approval_id for request in pending])
