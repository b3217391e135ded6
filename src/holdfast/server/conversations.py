"""What the server does with sessions, without HTTP: list them, show them, change them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET

from holdfast.core.session import (
    SessionArchived,
    SessionCreated,
    SessionEvent,
    SessionPinned,
    SessionRenamed,
)
from holdfast.errors import Conflict, NotFound, SessionGone
from holdfast.ports import ListPlace, SessionEntry
from holdfast.server.bodies import (
    LONGEST_NAME,
    count,
    flag,
    only,
    read_object,
    session_id,
    string,
    text,
)
from holdfast.server.content import LONGEST_INPUT, short
from holdfast.server.problems import malformed, session_exists
from holdfast.server.requests import LONGEST_INSTRUCTIONS
from holdfast.server.service import MOST_LISTED, Service
from holdfast.server.sessions import (
    Deleted,
    Messages,
    Queue,
    Queued,
    Removed,
    Row,
    Rows,
    messages,
    queued,
    row,
)
from holdfast.server.status import ahead

#: Entries of a transcript in one page.
MOST_ENTRIES = 200

#: Characters.
LONGEST_TITLE = 200

UNSUPPORTED = "unsupported_session_field"

_NEXT = re.compile(r"([01])\.(\d{1,12}\.\d{1,20})\.(.{1,256})", re.ASCII | re.DOTALL)
_DAY = 24 * 3600.0
_CREATE = ("session_id", "title", "model", "instructions")
_CHANGE = ("title", "pinned", "archived")
_ARCHIVED = {"": False, "false": False, "true": True, "all": None}


class Wanted(NamedTuple):
    """A session that somebody wants to have."""

    session_id: str
    begun: SessionCreated


class Conversations:
    """`keep` is how many days a session can be restored; 0 for as long as there is a server."""

    def __init__(self, service: Service, *, keep: float = 0.0) -> None:
        self._service, self._sessions, self._keep = service, service.sessions, keep

    # --- looking

    async def list(self, query: Mapping[str, str]) -> Rows:
        """Raises Problem for what cannot be asked, NotFound for a cursor that is none."""
        limit = count(query.get("limit"), "limit", usual=20, most=MOST_LISTED)
        archived, deleted = query.get("archived", ""), query.get("deleted", "")
        if archived not in _ARCHIVED:
            raise malformed("archived must be true, false or all", param="archived")
        if deleted not in ("", "true", "false"):
            raise malformed("deleted must be true or false", param="deleted")
        gone = deleted == "true"
        found = await self._service.store.sessions(
            # What was deleted is found wherever it was kept before.
            archived=None if gone and not archived else _ARCHIVED[archived],
            deleted=gone,
            text=short(query.get("q", ""), "q", LONGEST_NAME),
            before=_read_next(query.get("after", "")),
            limit=limit + 1,
        )
        page, more = found[:limit], len(found) > limit
        rows = [await self.row(entry) for entry in page]
        return Rows(rows, more, _next(page[-1].place) if more else "")

    async def row(self, entry: SessionEntry, *, whole: bool = False) -> Row:
        return row(entry, await self._sessions.badge(entry), whole=whole)

    async def read(self, session_id: str) -> Row:
        return await self.row(await self._sessions.entry(session_id), whole=True)

    async def messages(self, session_id: str, query: Mapping[str, str]) -> Messages:
        """The end of a transcript, or the page before one. Raises NotFound for what is none."""
        limit = count(query.get("limit"), "limit", usual=50, most=MOST_ENTRIES)
        before = query.get("before", "")
        page = await self._sessions.page(session_id, earlier=before, limit=limit)
        return messages(session_id, page, last=not before)

    # --- what people make of it

    async def create(self, body: bytes, *, principal: str) -> Row:
        fields = read_object(body)
        only(fields, _CREATE, code=UNSUPPORTED)
        begun = SessionCreated(
            title=read_title(fields),
            instructions=read_instructions(fields, "instructions"),
            model=text(fields, "model"),
            surface="http",
            principal=principal,
        )
        return await self.begin(Wanted(session_id(fields), begun))

    async def begin(self, wanted: Wanted) -> Row:
        self._service.keep_out(wanted.session_id)
        try:
            made = await self._sessions.create(wanted.session_id, wanted.begun)
        except Conflict as error:
            await self._check_there(wanted.session_id)
            raise session_exists(wanted.session_id) from error
        return await self.read(made)

    async def _check_there(self, session_id: str) -> None:
        try:
            await self._sessions.entry(session_id)
        except NotFound as error:
            raise SessionGone(session_id) from error

    async def change(self, session_id: str, body: bytes, *, principal: str) -> Row:
        fields = read_object(body)
        only(fields, _CHANGE, code=UNSUPPORTED)
        title = read_title(fields) if "title" in fields else None
        pinned, archived = flag(fields, "pinned"), flag(fields, "archived")
        return await self.put(session_id, title, pinned, archived, principal=principal)

    async def put(
        self,
        session_id: str,
        title: str | None,
        pinned: bool | None,
        archived: bool | None,
        *,
        principal: str,
    ) -> Row:
        """Change what is not None, and is not so already."""
        state = (await self._sessions.entry(session_id)).state
        events: list[SessionEvent] = []
        if title is not None and title != state.title:
            events.append(SessionRenamed(title=title, by=principal))
        if pinned is not None and pinned is not state.pinned:
            events.append(SessionPinned(pinned=pinned, by=principal))
        if archived is not None and archived is not state.archived:
            events.append(SessionArchived(archived=archived, by=principal))
        if events:
            await self._sessions.change(session_id, *events)
        return await self.read(session_id)

    async def delete(self, session_id: str, *, principal: str) -> Deleted:
        await self._sessions.delete(session_id, by=principal)
        until = self._service.clock() + self._keep * _DAY if self._keep else UNSET
        return Deleted(session_id, purged_at=until)

    async def restore(self, session_id: str, *, principal: str) -> Row:
        await self._sessions.restore(session_id, by=principal)
        return await self.read(session_id)

    # --- what waits in it

    async def queue(self, session_id: str) -> Queue:
        waiting = await self._sessions.waiting(session_id)
        front = await self._service.status(waiting[0].behind, deleted=True) if waiting else None
        return Queue(
            session_id=session_id,
            data=[queued(one.run_id, one.state) for one in waiting],
            behind=ahead(front) if front else UNSET,
        )

    async def edit(self, session_id: str, word: str, body: bytes, *, principal: str) -> Queued:
        """`word` is the id of the run, or of the message. Raises RunBegun if it is too late."""
        fields = read_object(body)
        only(fields, ("input",), code=UNSUPPORTED)
        said = short(string(fields, "input"), "input", LONGEST_INPUT)
        if not said.strip():
            raise malformed("'input' must be a string with something in it", param="input")
        run_id = await self._sessions.find_waiting(session_id, word)
        await self._service.runs.edit(run_id, said, by=principal)
        return queued(run_id, await self._service.runs.state(run_id))

    async def remove(self, session_id: str, word: str, *, principal: str) -> Removed:
        """The same for one that is taken back."""
        run_id = await self._sessions.find_waiting(session_id, word)
        await self._service.runs.remove(run_id, by=principal)
        return Removed(run_id)


# --- fields ----------------------------------------------------------------------------


def _next(place: ListPlace) -> str:
    return f"{place.pinned:d}.{place.moved_at!r}.{place.session_id}"


def _read_next(text: str) -> ListPlace | None:
    """The place to go on after: a session may stand elsewhere by now, and loses nobody their place."""
    if not text:
        return None
    found = _NEXT.fullmatch(text)
    if found is None:
        raise malformed("after must be what `next` of a page was", param="after")
    return ListPlace(found[1] == "1", float(found[2]), found[3])


def read_title(fields: Mapping[str, object]) -> str:
    """What to call it; "" is to call it by its first words."""
    title = string(fields, "title", code="invalid_title").strip()
    if len(title) > LONGEST_TITLE or not title.isprintable():
        raise malformed(
            f"'title' must be one line of at most {LONGEST_TITLE} characters",
            param="title",
            code="invalid_title",
        )
    return title


def read_instructions(fields: Mapping[str, object], name: str, *, code: str | None = None) -> str:
    told = string(fields, name, code=code)
    if len(told) > LONGEST_INSTRUCTIONS:
        raise malformed(
            f"'{name}' is longer than {LONGEST_INSTRUCTIONS} characters",
            param=name,
            code=code or "text_too_long",
        )
    return told
