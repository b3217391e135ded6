"""Sessions as commands see them: how each is, in a few words, and what can be made of it.

They are read where they are kept, beside whoever owns them, or asked of a server. What is changed
goes through the server that owns the data directory, or, if none does, through this process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from holdfast.cli.row import Row
from holdfast.cli.shelf import Shelf, journal_of, open_shelf, server_at, server_of
from holdfast.cli.summary import interrupted
from holdfast.config import read_data
from holdfast.core.entries import Entry
from holdfast.core.events import FINAL, RunFailed
from holdfast.core.lifecycle import Status
from holdfast.core.run import replay
from holdfast.core.session import (
    SessionArchived,
    SessionEvent,
    SessionPinned,
    SessionRenamed,
)
from holdfast.errors import Conflict, IllegalEvent, InvalidRequest, JournalDamaged, NotFound
from holdfast.ports import SessionEntry
from holdfast.stores.owner import Owner, living

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.cli.far import Far

    Act: TypeAlias = Callable[[App], Awaitable[Any]]

#: Characters of a title.
LONGEST_TITLE = 200

#: Who it was, for the record.
BY = "terminal"


class Talk(Struct, frozen=True):
    """A session and what was said in it: all of it, or the end. `earlier`: there is more before."""

    row: Row
    entries: Sequence[Entry]
    earlier: bool


# --- looking


def rows(shelf: Shelf, *, archived: bool | None, deleted: bool, limit: int) -> Iterator[Row]:
    owner = shelf.owner if living(shelf.owner) else None
    for entry in shelf.sessions.list(archived=archived, deleted=deleted, limit=limit):
        yield _row(shelf, entry, owner)


def look(shelf: Shelf, session_id: str, *, limit: int, now: float) -> Talk:
    """What there is of a session, seen as of one moment. Raises NotFound or JournalDamaged."""
    found = shelf.owner
    lives = living(found)
    row = _row(shelf, shelf.sessions.entry(session_id), found if lives else None)
    last: list[Entry] = []
    for entry in shelf.sessions.transcript(session_id, lives=lives, now=now):
        if len(last) == limit:
            return Talk(row, last[::-1], True)
        last.append(entry)
    return Talk(row, last[::-1], False)


def _row(shelf: Shelf, entry: SessionEntry, owner: Owner | None) -> Row:
    state = entry.state
    return Row(
        session_id=entry.session_id,
        title=state.name,
        created_at=state.created_at,
        moved_at=state.moved_at,
        pinned=state.pinned,
        archived=state.archived,
        runs=state.runs,
        status=_status(shelf, entry, owner),
        queued=max(entry.live - 1, 0),
        current_run_id=entry.run.run_id if entry.run and entry.live else "",
        deleted_at=state.deleted_at,
    )


def _status(shelf: Shelf, entry: SessionEntry, owner: Owner | None) -> str:
    if entry.run is None:
        return "damaged" if entry.state.runs else "idle"
    last = entry.run.last.event
    if isinstance(last, FINAL):
        return "failed" if isinstance(last, RunFailed) else "idle"
    try:
        state = replay(shelf.archive.events(entry.run.run_id))
    except (JournalDamaged, IllegalEvent):
        return "damaged"
    if interrupted(state, owner):
        return "interrupted"
    return "waiting" if state.status is Status.WAITING else "running"


# --- finding


def find(word: str, *, url: str | None, data: str | None, deleted: bool = False) -> str:
    """The session that is meant. Raises NotFound, InvalidRequest, or SessionGone."""
    if url is not None:
        return server_at(url, data).find_session(word, deleted=deleted)
    with open_shelf(data) as shelf:
        return shelf.sessions.find(word, deleted=deleted)


def find_or_new(word: str, there: Far | None, folder: Path) -> tuple[str, bool]:
    """The session that is meant, or else one that is to begin under this id; and whether it is new."""
    from holdfast.core.luggage import is_session_id
    from holdfast.engine.means import random_id

    if word == "new":
        return random_id("ses"), True
    try:
        if there is not None:
            return there.find_session(word), False
        with open_shelf(str(folder)) as shelf:
            return shelf.sessions.find(word), False
    except NotFound:
        if not is_session_id(word):
            raise InvalidRequest(f"{word!r} is no id that a session can have") from None
        return word, True


# --- changing


def rename(session_id: str, title: str, *, url: str | None, data: str | None) -> None:
    if not title.strip() or len(title) > LONGEST_TITLE or not title.isprintable():
        raise InvalidRequest(f"a title is 1 to {LONGEST_TITLE} visible characters")
    _change(session_id, {"title": title}, SessionRenamed(title=title, by=BY), url, data)


def pin(session_id: str, pinned: bool, *, url: str | None, data: str | None) -> None:
    _change(session_id, {"pinned": pinned}, SessionPinned(pinned=pinned, by=BY), url, data)


def archive(session_id: str, archived: bool, *, url: str | None, data: str | None) -> None:
    event = SessionArchived(archived=archived, by=BY)
    _change(session_id, {"archived": archived}, event, url, data)


def _change(
    session_id: str,
    fields: dict[str, object],
    event: SessionEvent,
    url: str | None,
    data: str | None,
) -> None:
    folder = read_data(data=data)
    if there := server_of(folder, url):
        there.change_session(session_id, fields)
    else:
        _here(folder, lambda app: app.sessions.change(session_id, event))


def delete(session_id: str, *, url: str | None, data: str | None) -> None:
    folder = read_data(data=data)
    if there := server_of(folder, url):
        there.delete_session(session_id)
    else:
        _here(folder, lambda app: app.sessions.delete(session_id, by=BY))


def restore(session_id: str, *, url: str | None, data: str | None) -> None:
    folder = read_data(data=data)
    if there := server_of(folder, url):
        there.restore_session(session_id)
    else:
        _here(folder, lambda app: app.sessions.restore(session_id, by=BY))


def take_in(body: bytes, *, as_new: bool, url: str | None, data: str | None) -> tuple[str, int]:
    """The session that was taken in, and how many runs it has. Raises InvalidRequest or Conflict."""
    from holdfast.engine.carrier import Carrier

    folder = read_data(data=data)

    async def act(app: App) -> tuple[str, int]:
        carrier = Carrier(app.means, workers=lambda: False)
        luggage = await carrier.take_in(body, as_new=as_new)
        return luggage.session_id, len(luggage.runs)

    try:
        if there := server_of(folder, url):
            return there.import_session(body, as_new=as_new)
        taken: tuple[str, int] = _here(folder, act)
    except Conflict as error:
        raise Conflict(f"{error}; --as-new takes it in under other ids") from error
    return taken


def _here(folder: Path, act: Act) -> Any:
    """Own the directory for as long as this takes. Raises DataInUse."""
    import anyio

    return anyio.run(partial(_in_app, folder, act))


async def _in_app(folder: Path, act: Act) -> Any:
    from holdfast.app import open_app

    # Nothing is carried meanwhile.
    async with open_app(data=folder, journal=journal_of(folder), work=False) as app:
        return await act(app)
