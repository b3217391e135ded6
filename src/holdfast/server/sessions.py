"""What is told of a session: its row in a list, its transcript, and what waits in it.

Computed from what is on record and never kept. A field that says nothing at this point is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.core.entries import Entry
from holdfast.core.messages import plain
from holdfast.core.state import RunState
from holdfast.engine.pages import Page
from holdfast.engine.sessions import Badge
from holdfast.ports import SessionEntry
from holdfast.server.status import Ahead


class Row(Struct, frozen=True, kw_only=True):
    """`moved_at` is when somebody last said something in it, which is what a list goes by.

    `queued` messages wait behind `current_run_id`, the run under way.
    """

    object: str = "session"
    session_id: str
    title: str
    created_at: float
    moved_at: float
    pinned: bool
    archived: bool
    runs: int
    status: Badge
    queued: int
    current_run_id: str | UnsetType = UNSET
    last_run_id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    #: Told of one session, not in a list.
    instructions: str | UnsetType = UNSET
    #: It can be restored until it is purged.
    deleted_at: float | UnsetType = UNSET


class Rows(Struct, frozen=True):
    """Those that are pinned first, then the one that moved last. `next` is what to go on with."""

    data: Sequence[Row]
    has_more: bool
    next: str
    object: str = "list"


class Messages(Struct, frozen=True, kw_only=True):
    """Part of a transcript, in order: entries, told apart by their `kind`.

    `earlier` is the `before` of the page before this one, "" at the beginning. `cursor` is where the
    events go on that follow on the last page.
    """

    object: str = "list"
    session_id: str
    data: Sequence[Mapping[str, Any]]
    earlier: str
    cursor: str | UnsetType = UNSET


class Queued(Struct, frozen=True, kw_only=True):
    """A message that waits for its turn. It can be edited or taken back until its run has begun."""

    run_id: str
    message_id: str
    input: str
    updated_at: float


class Queue(Struct, frozen=True, kw_only=True):
    """What waits in a session, the next first, and the run that all of it waits for."""

    object: str = "list"
    session_id: str
    data: Sequence[Queued]
    behind: Ahead | UnsetType = UNSET


class Removed(Struct, frozen=True):
    run_id: str
    removed: bool = True


class Deleted(Struct, frozen=True):
    """`purged_at` is when it will be gone for good, if nobody restores it before."""

    session_id: str
    deleted: bool = True
    purged_at: float | UnsetType = UNSET


def row(entry: SessionEntry, badge: Badge, *, whole: bool = False) -> Row:
    state = entry.state
    live = entry.run.run_id if entry.run and entry.live else ""
    return Row(
        session_id=entry.session_id,
        title=state.name,
        created_at=state.created_at,
        moved_at=state.moved_at,
        pinned=state.pinned,
        archived=state.archived,
        runs=state.runs,
        status=badge,
        queued=max(entry.live - 1, 0),
        current_run_id=live or UNSET,
        last_run_id=state.last_run or UNSET,
        model=state.model or UNSET,
        instructions=(whole and state.instructions) or UNSET,
        deleted_at=UNSET if state.deleted_at is None else state.deleted_at,
    )


def messages(session_id: str, page: Page, *, last: bool) -> Messages:
    """`last`: this page ends where the transcript does."""
    return Messages(
        session_id=session_id,
        data=told(page.entries),
        earlier=page.earlier,
        cursor=str(page.bookmark) if last else UNSET,
    )


def told(entries: Iterable[Entry]) -> list[Mapping[str, Any]]:
    return [msgspec.to_builtins(entry) for entry in entries]


def queued(run_id: str, state: RunState) -> Queued:
    accepted = state.accepted
    return Queued(
        run_id=run_id,
        message_id=accepted.message_id if accepted else "",
        input=plain(accepted.input) if accepted else "",
        updated_at=state.at,
    )
