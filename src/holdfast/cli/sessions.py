"""`holdfast sessions`: the conversations there are, and what can be made of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from holdfast.cli.carry import export_command, import_command
from holdfast.cli.options import (
    EXIT_CODES,
    MOST,
    Data,
    ReadUrl,
    SessionWord,
    Url,
    flag,
    session_app,
)
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.cli.conversation import Talk
    from holdfast.cli.row import Row
    from holdfast.core.entries import Entry

_HEAD = ("SESSION", "MOVED", "STATUS", "RUNS", "TITLE")
_SPARE = ("RUNS", "MOVED", "TITLE")

command = App(
    name="sessions",
    usage="Usage: holdfast sessions [COMMAND] [OPTIONS]",
    help="List the conversations, the one that moved last first, or do something with one.\n\n"
    "A conversation begins with holdfast run --session, or on a server. Its status is running while"
    " a run of it is under way, waiting while that waits for a person, interrupted when nobody"
    " carries that, failed when its last run failed, and idle otherwise. Works beside a process that"
    " owns the data directory.",
    help_epilogue=f"""\
Examples:

  holdfast sessions
  holdfast sessions --all --json | jq -r .title
  holdfast sessions show 3f9a
  holdfast run --session 3f9a "and then?"

Exit codes:

  0    done; listed, if only that there are none
{EXIT_CODES}""",
)


_show = session_app(
    "show",
    "SESSION",
    "Show a conversation: what was said and done in each of its runs, what waits for its turn, and"
    " what is not as it should be.\n\nThe same as holdfast show SESSION. Works beside a process that"
    " owns the data directory, be it one that hangs or was killed.",
    "show 3f9a",
    "show 3f9a -n 10",
    "show 3f9a --json | jq -r '.entries[] | select(.kind == \"assistant\") | .text'",
)
_rename = session_app(
    "rename", "SESSION TITLE", "Give a conversation a title.", 'rename 3f9a "Garden"'
)
_pin = session_app("pin", "SESSION", "Keep a conversation at the top of the list.", "pin 3f9a")
_unpin = session_app("unpin", "SESSION", "Let a conversation go by its time again.", "unpin 3f9a")
_archive = session_app(
    "archive",
    "SESSION",
    "Put a conversation away: it is left out of the list until somebody says something in it.",
    "archive 3f9a",
    "--archived",
)
_unarchive = session_app(
    "unarchive", "SESSION", "Bring back a conversation that was put away.", "unarchive 3f9a"
)
_delete = session_app(
    "delete",
    "SESSION",
    "Delete a conversation, and stop what is under way in it.\n\nIt can be restored until the server"
    " that owns the data directory removes it for good. You are asked first, if you are at a"
    " terminal.",
    "delete 3f9a",
    "delete 3f9a --yes",
)
_restore = session_app(
    "restore",
    "SESSION",
    "Bring back a conversation that was deleted.",
    "--deleted",
    "restore 3f9a",
)

for _one in (_show, export_command, import_command, _rename, _pin, _unpin):
    command.command(_one)
for _one in (_archive, _unarchive, _delete, _restore):
    command.command(_one)

Limit = Annotated[int, Parameter(name=["--limit", "-n"], help="How many to list.")]
Last = Annotated[
    int,
    Parameter(
        name=["--limit", "-n"],
        show_default=False,
        help="Only the last so many entries; all, unless given.",
    ),
]


@command.default
def sessions(
    *,
    limit: Limit = 20,
    all: Annotated[bool, flag("List every conversation, those put away too.")] = False,
    archived: Annotated[bool, flag("List those that were put away.")] = False,
    deleted: Annotated[bool, flag("List those that were deleted and can be restored.")] = False,
    json: Annotated[bool, flag("Print each as one line of JSON.")] = False,
    url: ReadUrl = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.conversation import rows
    from holdfast.cli.shelf import open_shelf, server_at

    check_limit(limit)
    most = MOST if all else limit
    kind = None if all or deleted else archived
    if url is not None:
        far = server_at(url, data).sessions(archived=kind, deleted=deleted, page=most + 1)
        more = _show_list(far, most, json=json)
    else:
        with open_shelf(data) as shelf:
            near = rows(shelf, archived=kind, deleted=deleted, limit=most + 1)
            more = _show_list(near, most, json=json)
    if more and not json:
        from holdfast.cli.terminal import Terminal

        Terminal(sys.stderr).line("and older ones; --all lists them", "dim")
    return 0


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"--limit is {limit}; it must be between 1 and {MOST}")


def _show_list(listed: Iterable[Row], most: int, *, json: bool) -> bool:
    """Returns whether there are more."""
    found = iter(listed)
    (_show_lines if json else _show_rows)(list(islice(found, most)))
    return next(found, None) is not None


def _show_lines(listed: list[Row]) -> None:
    import msgspec

    from holdfast.cli.visible import visible_json

    for row in listed:
        line = msgspec.json.encode(row)
        sys.stdout.buffer.write(visible_json(line, sys.stdout.buffer) + b"\n")


def _show_rows(listed: list[Row]) -> None:
    from holdfast.cli.table import show_table
    from holdfast.cli.terminal import Terminal

    terminal = Terminal(sys.stdout)
    if not listed:
        begin = 'holdfast run --session new "hello"'
        Terminal(sys.stderr).line(
            f"there are none to list; --all lists every one, {begin} begins one"
        )
        return
    rows = [_row(row, whole=not terminal.is_terminal) for row in listed]
    show_table(terminal, _HEAD, rows, spare=_SPARE)


def _row(row: Row, *, whole: bool) -> tuple[str, ...]:
    from holdfast.cli.screen import moment
    from holdfast.cli.shelf import short

    waits = f", {row.queued} waiting" if row.queued else ""
    marks = [name for name in ("pinned", "archived") if getattr(row, name)]
    title = f"[{', '.join(marks)}] {row.title}" if marks else row.title
    return (
        row.session_id if whole else short(row.session_id),
        moment(row.moved_at),
        f"{row.status}{waits}",
        str(row.runs),
        title or "-",
    )


# --- one of them


@_show.default
def show(
    session: SessionWord,
    /,
    *,
    limit: Last = MOST,
    json: Annotated[bool, flag("Print it as one JSON object.")] = False,
    url: ReadUrl = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli.conversation import find

    check_limit(limit)
    session_id = find(session, url=url, data=data)
    show_session(session_id, limit=limit, json=json, url=url, data=data)
    return 0


def show_session(
    session_id: str, *, limit: int, json: bool, url: str | None, data: str | None
) -> None:
    talk = _talk(session_id, limit=limit, url=url, data=data)
    if json:
        import msgspec

        from holdfast.cli.visible import visible_json

        told = msgspec.to_builtins(talk.row)
        whole = {**told, "entries": talk.entries, "earlier": talk.earlier}
        line = msgspec.json.encode(whole) + b"\n"
        sys.stdout.buffer.write(visible_json(line, sys.stdout.buffer))
        return
    _show_talk(talk)


def _talk(session_id: str, *, limit: int, url: str | None, data: str | None) -> Talk:
    from time import time  # noqa: TID251 (what is shown is seen now)

    from holdfast.cli.conversation import Talk, look
    from holdfast.cli.shelf import open_shelf, server_at

    if url is None:
        with open_shelf(data) as shelf:
            return look(shelf, session_id, limit=limit, now=time())
    there = server_at(url, data)
    row, entries = there.session(session_id), there.messages(session_id)
    last: list[Entry] = list(islice(entries, limit))
    return Talk(row, last[::-1], next(entries, None) is not None)


def _show_talk(talk: Talk) -> None:
    from holdfast.cli.screen import moment
    from holdfast.cli.shelf import short
    from holdfast.cli.telling import tell
    from holdfast.cli.terminal import Terminal

    terminal, row = Terminal(sys.stdout), talk.row
    terminal.line(f"{row.title or 'Untitled'}", "bold")
    terminal.line(f"{row.session_id} · {moment(row.created_at)}", "dim")
    if talk.earlier:
        terminal.line("… what came before is left out", "dim")
    tell(terminal, talk.entries)
    terminal.gap()
    runs = "1 run" if row.runs == 1 else f"{row.runs} runs"
    terminal.line(f"{row.status} · {runs}", "dim")
    if row.queued:
        waits = "1 message waits" if row.queued == 1 else f"{row.queued} messages wait"
        terminal.line(f"{waits} for {short(row.current_run_id)} to end", "yellow")
    if row.status == "interrupted":
        again = f"holdfast resume {short(row.current_run_id)} takes it up"
        terminal.line(f"nobody carries it now; {again}", "yellow")


# --- what is made of it


@_rename.default
def rename(
    session: SessionWord,
    title: Annotated[str, Parameter(name="TITLE", show_default=False, help="What to call it.")],
    /,
    *,
    url: Url = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli import conversation

    session_id = conversation.find(session, url=url, data=data)
    conversation.rename(session_id, title, url=url, data=data)
    return _done(session_id, f"is called {title} now")


@_pin.default
def pin(session: SessionWord, /, *, url: Url = None, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    return _put(session, "pin", True, "is pinned", url=url, data=data)


@_unpin.default
def unpin(session: SessionWord, /, *, url: Url = None, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    return _put(session, "pin", False, "is pinned no more", url=url, data=data)


@_archive.default
def archive(session: SessionWord, /, *, url: Url = None, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    return _put(session, "archive", True, "is put away", url=url, data=data)


@_unarchive.default
def unarchive(session: SessionWord, /, *, url: Url = None, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    return _put(session, "archive", False, "is back in the list", url=url, data=data)


def _put(word: str, what: str, on: bool, said: str, *, url: str | None, data: str | None) -> int:
    from holdfast.cli import conversation

    session_id = conversation.find(word, url=url, data=data)
    change = conversation.pin if what == "pin" else conversation.archive
    change(session_id, on, url=url, data=data)
    return _done(session_id, said)


@_delete.default
def delete(
    session: SessionWord,
    /,
    *,
    yes: Annotated[bool, flag("Do not ask.")] = False,
    url: Url = None,
    data: Data = None,
) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli import conversation
    from holdfast.cli.shelf import short

    session_id = conversation.find(session, url=url, data=data)
    if not yes and not _agreed(session_id, url=url, data=data):
        print("nothing was deleted", file=sys.stderr)
        return 1
    conversation.delete(session_id, url=url, data=data)
    back = f"holdfast sessions restore {short(session_id)} brings it back"
    return _done(session_id, f"is deleted; {back}")


def _agreed(session_id: str, *, url: str | None, data: str | None) -> bool:
    """Only a yes is a yes. Where nobody can be asked, it has to be said beforehand."""
    from holdfast.cli.visible import one_line

    if not sys.stdin.isatty():
        raise InvalidRequest("there is nobody to ask whether to delete it; --yes says so")
    row = _talk(session_id, limit=1, url=url, data=data).row
    runs = "1 run" if row.runs == 1 else f"{row.runs} runs"
    live = ", and stop what is under way in it" if row.current_run_id else ""
    name = one_line(row.title) or session_id
    print(f"Delete “{name}” with {runs}{live}? [no] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@_restore.default
def restore(session: SessionWord, /, *, url: Url = None, data: Data = None) -> int:
    """Carry out the command, and return the code to exit with."""
    from holdfast.cli import conversation

    session_id = conversation.find(session, url=url, data=data, deleted=True)
    conversation.restore(session_id, url=url, data=data)
    return _done(session_id, "is back")


def _done(session_id: str, said: str) -> int:
    from holdfast.cli.shelf import short
    from holdfast.cli.visible import one_line

    print(one_line(f"session {short(session_id)} {said}"))
    return 0
