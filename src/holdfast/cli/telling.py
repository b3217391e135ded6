"""A transcript, as somebody at a terminal wants to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.cli.screen import moment
from holdfast.cli.shelf import short
from holdfast.cli.terminal import Terminal
from holdfast.cli.visible import one_line
from holdfast.core.entries import Card, Entry, Mark, Notice, Question, Reply, Said
from holdfast.core.messages import plain


def tell(terminal: Terminal, entries: Iterable[Entry]) -> None:
    """Each run below a line that names it."""
    run_id = ""
    for entry in entries:
        if entry.run_id != run_id:
            run_id = entry.run_id
            terminal.gap()
            terminal.line(f"{short(run_id)} · {moment(entry.at)}", "dim")
        _TELL[type(entry)](terminal, entry)


def _said(terminal: Terminal, entry: Said) -> None:
    words = plain(entry.parts) or "(a picture)"
    if entry.queued:
        terminal.line(f"> {words}", "bold")
        terminal.line("  waits for its turn", "yellow")
        return
    terminal.line(f"{'+' if entry.steered else '>'} {words}", "bold")
    if entry.unheard:
        terminal.line("  came too late to be heard", "yellow")
    terminal.gap()


def _reply(terminal: Terminal, entry: Reply) -> None:
    terminal.gap()
    if entry.reasoning:
        terminal.line(entry.reasoning, "dim italic")
        terminal.gap()
    if entry.text:
        terminal.line(entry.text)
        terminal.gap()


def _card(terminal: Terminal, entry: Card) -> None:
    what = "" if entry.arguments == "{}" else entry.arguments
    by = f" (by {entry.rule})" if entry.rule else ""
    terminal.line(_short(terminal, f"→ {entry.name}{by} {what}"), "cyan")
    if entry.outcome == "ok":
        terminal.line(_short(terminal, f"✓ {entry.name}: {entry.result}"), "green")
    elif entry.outcome:
        said = f": {entry.result}" if entry.result else ""
        outcome = entry.outcome.replace("_", " ")
        terminal.line(_short(terminal, f"✗ {entry.name}, {outcome}{said}"), "red")
    elif entry.state == "running":
        terminal.line(f"  {one_line(entry.name)} is at work", "yellow")


def _question(terminal: Terminal, entry: Question) -> None:
    by = f" by {entry.by}" if entry.by else ""
    became = f"answered {entry.choice}{by}" if entry.choice else entry.state
    about = entry.subject or entry.tool
    style = "bold yellow" if entry.state == "pending" else "dim"
    terminal.line(_short(terminal, f"? {entry.tool} needs an approval ({became}): {about}"), style)
    if entry.state == "pending":
        answer = f"holdfast approve {short(entry.run_id)} {entry.id[:12]}"
        terminal.line(f"  Answer: {answer} once|session|always|deny")


def _told(terminal: Terminal, entry: Notice | Mark) -> None:
    terminal.line(f"! {entry.words}", "yellow")


def _short(terminal: Terminal, text: str) -> str:
    """One line of it."""
    line = one_line(text)
    room = max(terminal.width - 1, 20)
    return line if len(line) <= room else line[: room - 1] + "…"


_TELL: Mapping[type[Any], Callable[[Terminal, Any], None]] = {
    Said: _said,
    Reply: _reply,
    Card: _card,
    Question: _question,
    Notice: _told,
    Mark: _told,
}
