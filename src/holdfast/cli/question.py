"""An approval, asked at the terminal.

Only a word that says yes is a yes. Enter, the escape key and the end of input are a no, and
what was typed before the question was shown does not answer it.
"""

from __future__ import annotations

from rich.cells import chop_cells

from holdfast.cli.keyboard import Keyboard
from holdfast.cli.shelf import short
from holdfast.cli.terminal import Terminal
from holdfast.cli.visible import one_line, visible
from holdfast.core.events import ApprovalRequested, Choice

_PASSING: tuple[Choice, ...] = ("once", "deny")
_LASTING: tuple[Choice, ...] = ("session", "always")
_PROMPT = "  Allow it: once, session, always, or deny? [deny] "
_PROMPT_ONCE = "  Allow it: once, or deny? [deny] "


class Question:
    """One request, put to whoever sits at this keyboard."""

    def __init__(self, request: ApprovalRequested, terminal: Terminal, keyboard: Keyboard) -> None:
        self.request = request
        self._terminal, self._keyboard = terminal, keyboard
        self._prompted = False

    async def ask(self) -> Choice:
        with self._keyboard.attention():
            show_request(self.request, self._terminal)
            while True:
                self._prompt()
                line = await self._keyboard.line()
                if line is None:
                    self._terminal.line("")
                    return "deny"
                # The terminal has echoed the line break.
                self._terminal.returned()
                if choice := choose(line, standing=_may_stand(self.request)):
                    return choice
                self._terminal.line(f"  “{line}” is none of the answers.", "yellow")

    def remind(self) -> None:
        """Something may have been written since the question was: then say again what is asked."""
        if self._prompted and self._terminal.fresh_line:
            self._prompt()

    def _prompt(self) -> None:
        self._prompted = True
        self._terminal.fresh()
        self._terminal.write(_PROMPT if _may_stand(self.request) else _PROMPT_ONCE, "bold")


def show_request(request: ApprovalRequested, terminal: Terminal) -> None:
    """What is asked, why, and for exactly what."""
    terminal.gap()
    terminal.line(f"? {one_line(request.tool)} needs your approval", "bold yellow")
    if request.reason:
        terminal.line(f"  Why: {one_line(request.reason)}")
    if request.doubt:
        terminal.line(
            f"  Careful: this may repeat {one_line(request.doubt)}, of which nobody knows whether it"
            " took effect.",
            "bold red",
        )
    _show_exactly(request.subject, terminal)
    if request.binding:
        terminal.line("  With:")
        _show_exactly(request.binding, terminal)
    if _may_stand(request):
        terminal.line("  For this session, or always, that would cover:")
        _show_exactly(request.key, terminal)


def show_open(
    request: ApprovalRequested, run_id: str, terminal: Terminal, *, url: str | None = None
) -> None:
    """The same, and how to answer it, for whoever is not asked here."""
    show_request(request, terminal)
    where = f" --url {url}" if url else ""
    answers = "once|session|always|deny" if _may_stand(request) else "once|deny"
    answer = f"{short(run_id)} {request.approval_id[:12]} {answers}{where}"
    terminal.line(f"  Answer: holdfast approve {answer}")


def _may_stand(request: ApprovalRequested) -> bool:
    """A rule can cover it. A standing yes never covers a doubt."""
    return bool(request.key) and not request.doubt


def _show_exactly(text: str, terminal: Terminal) -> None:
    for line in visible(text, exact=True).split("\n"):
        # Cut here and not by the terminal, so that no line can pass for one of ours.
        for piece in chop_cells(line, max(terminal.width - 5, 20)) or [""]:
            terminal.line(f"  │ {piece}")


def choose(line: str, *, standing: bool = True) -> Choice | None:
    """The answer in these words, or None if they are no answer. `standing`: it may be for longer."""
    word = line.strip().lower()
    if word in ("", "n", "no"):
        return "deny"
    # What is to last is spelled out: one slip of a finger must not stand for good.
    spelled = [choice for choice in _LASTING if standing and choice == word]
    fitting = [choice for choice in _PASSING if choice.startswith(word)]
    return next(iter((*spelled, *fitting)), None)
