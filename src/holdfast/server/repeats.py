"""Messages that come again, known by the id that whoever sends them gave them.

For who names their messages and has no key, which the store would know.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from holdfast.core.events import InputAdded, Recorded, RunAccepted, StopRequested
from holdfast.core.messages import Part
from holdfast.ports import Once, Store

#: Runs of a session, the last ones, in which a message that comes again is looked for.
LOOKED_BACK = 20


class Repeat(NamedTuple):
    """Where a message went, and its words. `added`: to a run that was under way."""

    run_id: str
    words: tuple[Part, ...]
    added: bool


def named_after(once: Once | None) -> str:
    """The id of a message whose request has a key, so that it is heard once."""
    if once is None:
        return ""
    return f"msg_{sha256(f'{once.principal} {once.key}'.encode()).hexdigest()[:32]}"


def said(journal: Sequence[Recorded], message_id: str) -> RunAccepted | InputAdded | None:
    """How it was said under that id. What came after a stop was heard by nobody."""
    for recorded in journal:
        event = recorded.event
        if isinstance(event, StopRequested):
            return None
        if isinstance(event, RunAccepted | InputAdded) and event.message_id == message_id:
            return event
    return None


async def find(store: Store, session_id: str, message_id: str) -> Repeat | None:
    """What became of it, if it came before."""
    if not message_id:
        return None
    for member in await store.members(session_id, limit=LOOKED_BACK):
        event = said(await store.read(member.run_id, deleted=True), message_id)
        match event:
            case RunAccepted(input=words):
                return Repeat(member.run_id, words, added=False)
            case InputAdded(parts=words):
                return Repeat(member.run_id, words, added=True)
    return None
