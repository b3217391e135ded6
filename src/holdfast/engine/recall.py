"""What was said in a session before a run began, as its model is shown it.

Earlier runs have ended by then, but for those that were set aside, so what they came to can be kept
at hand: a conversation is read once, and each turn adds to it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from msgspec import Struct

from holdfast.core.fit import conversation
from holdfast.core.messages import Message, Text, UserMessage, length
from holdfast.core.pile import grow
from holdfast.core.run import replay
from holdfast.engine.scribe import answered
from holdfast.errors import IllegalEvent, StoreError, StoreUnavailable
from holdfast.ports import Member, Store

#: Characters of all conversations that are kept at hand, about.
MOST = 16 * 1024 * 1024

#: Runs that are asked for at once.
PAGE = 500

_UNREADABLE = UserMessage(
    parts=(Text("[A part of this conversation stood here, and can no longer be read.]"),)
)

_log = logging.getLogger(__name__)


class _Told(Struct):
    """What was said up to and with this run, which has this ordinal."""

    ordinal: int = 0
    run_id: str = ""
    messages: tuple[tuple[Message, ...], ...] = ()
    size: int = 0


class Recall:
    """One for a process. `most` is how many characters it keeps at hand."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._told: OrderedDict[str, _Told] = OrderedDict()

    async def before(self, store: Store, session_id: str, run_id: str) -> tuple[Message, ...]:
        """What was said in the session before this run."""
        told = self._told.get(session_id, _Told())
        # With the last that was heard: the session may have been purged, and begun anew, since.
        earlier = await _earlier(store, session_id, run_id, after=max(told.ordinal - 1, 0))
        if told.ordinal and (not earlier or earlier[-1].run_id != told.run_id):
            told = _Told()
            earlier = await _earlier(store, session_id, run_id, after=0)
        kept, settled = told, True
        for member in reversed(earlier):
            if member.ordinal > told.ordinal:
                told = await _hear(store, told, member)
                # More may come of one that was set aside.
                settled = settled and member.ended
                kept = told if settled else kept
        self._keep(session_id, kept)
        return tuple(message for piece in told.messages for message in piece)

    def _keep(self, session_id: str, told: _Told) -> None:
        self._told.pop(session_id, None)
        self._told[session_id] = told
        while sum(one.size for one in self._told.values()) > self._most:
            self._told.popitem(last=False)


async def _earlier(store: Store, session_id: str, run_id: str, *, after: int) -> list[Member]:
    """What lies between this run and `after`, the last first."""
    own, earlier = 0, list[Member]()
    before = None
    while True:
        page = await answered(store.members(session_id, before=before, limit=PAGE))
        for member in page:
            if own and member.ordinal > after:
                earlier.append(member)
            elif member.run_id == run_id:
                own = member.ordinal
        if len(page) < PAGE or page[-1].ordinal <= after + 1:
            return earlier
        before = page[-1].ordinal


async def _hear(store: Store, told: _Told, member: Member) -> _Told:
    """A run that cannot be read must not keep those after it from going on."""
    try:
        journal = await answered(store.read(member.run_id, deleted=True))
        said = conversation(replay(journal))
    except StoreUnavailable:
        raise
    except (StoreError, IllegalEvent) as error:
        _log.warning("run %s is left out of its session: %s", member.run_id, error)
        said = (_UNREADABLE,)
    size = told.size + sum(map(length, said))
    return _Told(member.ordinal, member.run_id, grow(told.messages, said), size)
