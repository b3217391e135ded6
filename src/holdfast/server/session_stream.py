"""A session's events to one reader: what is on record of it and of its runs, and what comes.

Each frame's id is the bookmark after it. So a reader may leave anywhere and come back
anywhere; and what it is told depends on the journals and that bookmark alone.
"""

from __future__ import annotations

from contextlib import aclosing

import msgspec

from holdfast.core.bookmark import Bookmark, Heard, read_bookmark
from holdfast.core.events import FINAL, Recorded, Unknown
from holdfast.errors import NotFound
from holdfast.server.conversations import Conversations
from holdfast.server.frames import CLOSED, Projection, frame, retracted_attempts
from holdfast.server.service import Service
from holdfast.server.streams import Stream

#: In place of a cursor: only what comes.
NOW = "now"


class SessionStream(Stream):
    """`cursors` are what the reader says it has seen; the first that can be used counts."""

    def __init__(self, service: Service, session_id: str, *cursors: str | None) -> None:
        super().__init__(service)
        self._sessions, self._session_id, self._cursors = service.sessions, session_id, cursors
        #: The reader's view of each run that is open.
        self._views: dict[str, Projection] = {}

    async def prepare(self) -> None:
        await self._sessions.entry(self._session_id)
        self._mark = await self._begin()

    async def _begin(self) -> Bookmark:
        for text in self._cursors:
            if text == NOW:
                return (await self._sessions.page(self._session_id, limit=1)).bookmark
            if text and (mark := read_bookmark(text)):
                return mark
        return Bookmark()

    async def tell(self) -> None:
        there = True
        while there:
            await self._follow()
            # It may have been deleted long ago, and restored since.
            there = await self._is_there()
        await self.put(CLOSED, last=True)

    async def _follow(self) -> None:
        """Until the session is deleted."""
        events = self._sessions.follow(self._session_id, after=self._mark)
        async with aclosing(events):
            async for heard in events:
                self._mark = heard.bookmark
                if told := await self._frames(heard):
                    await self.put(told)

    async def _is_there(self) -> bool:
        try:
            await self._sessions.entry(self._session_id)
        except NotFound:
            return False
        return True

    async def _frames(self, heard: Heard) -> bytes:
        id = str(heard.bookmark).encode()
        if heard.recorded:
            frames = await self._of_run(heard.run_id, heard.recorded)
            # A line of data is JSON and ends with a bracket, so this is the id and nothing else.
            early, own, data = frames.rpartition(b"id: %d\n" % heard.recorded.seq)
            return b"%bid: %b\n%b" % (early, id, data) if own else b""
        if isinstance(heard.event, Unknown):
            return b""
        fields = {**msgspec.to_builtins(heard.event), "session_id": self._session_id}
        return b"id: %b\n%b" % (id, frame(fields.pop("type"), heard.at, fields))

    async def _of_run(self, run_id: str, recorded: Recorded) -> bytes:
        view = self._views.get(run_id) or await self._view(run_id, recorded.seq)
        if isinstance(recorded.event, FINAL):
            self._views.pop(run_id)
        return view.frames(recorded)

    async def _view(self, run_id: str, seq: int) -> Projection:
        """The view of somebody who has seen all of the run before this event, and nothing since."""
        journal = await self._service.store.read(run_id, deleted=True)
        view = Projection(run_id, after=seq - 1, retracted=retracted_attempts(journal))
        for recorded in journal[: seq - 1]:
            view.frames(recorded)
        self._views[run_id] = view
        return view

    def farewell(self) -> bytes:
        about = {"session_id": self._session_id}
        return frame("server.draining", self._service.clock(), about)


class ListStream(Stream):
    """Which sessions have changed, as they are in a list now.

    Nothing of it is on record, so there is nothing to go on with: whoever comes reads the list then.
    """

    def __init__(self, service: Service, conversations: Conversations) -> None:
        super().__init__(service)
        self._conversations = conversations

    async def prepare(self) -> None:
        """There is always a list."""

    async def tell(self) -> None:
        changes = self._service.store.session_changes()
        async with aclosing(changes):
            async for session_id in changes:
                await self.put(await self._changed(session_id))

    async def _changed(self, session_id: str) -> bytes:
        fields = {"session_id": session_id}
        try:
            entry = await self._service.store.session(session_id)
        except NotFound:
            return frame("session.purged", self._service.clock(), fields)
        row = msgspec.to_builtins(await self._conversations.row(entry))
        return frame("session.changed", self._service.clock(), {**fields, "session": row})

    def farewell(self) -> bytes:
        return frame("server.draining", self._service.clock(), {})
