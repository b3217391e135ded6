"""A transcript by pages, from its end.

Runs are folded as they are needed, so a page costs the same however long the session is. A long run is
kept at hand as far as it was folded, and takes only what is new the next time somebody looks.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import anyio.lowlevel
from msgspec import Struct

from holdfast.core.bookmark import WHOLE, Bookmark
from holdfast.core.entries import Entry
from holdfast.core.marker import Marker, damaged, marked, marker, unseen
from holdfast.core.transcript import Transcript, grow
from holdfast.engine.means import Means
from holdfast.errors import IllegalEvent, JournalDamaged, NotFound
from holdfast.ports import Member, SessionEntry

#: Runs that are asked for at once.
_STRIDE = 32

#: Events of a run that is kept at hand, at least, and of all of them together.
_LONG = 200
_MOST = 200_000

#: Events that are folded while others wait.
_AT_ONCE = 500

_EARLIER = re.compile(r"(\d{1,15})\.(\d{1,15})\.(\d{1,15})", re.ASCII)


class Page(Struct, frozen=True):
    """Part of a transcript, in order.

    `earlier` is where to go on for what came before, "" at the beginning. `bookmark` is where to follow
    on from what is told here.
    """

    entries: tuple[Entry, ...]
    earlier: str
    bookmark: Bookmark


class _Seen(Struct, frozen=True):
    """A run as far as it is to be seen: `seq` is where, or WHOLE."""

    member: Member
    entries: tuple[Entry, ...]
    seq: int


class Pages:
    """`workers` tells whether anyone lives who carries runs."""

    def __init__(self, means: Means, *, workers: Callable[[], bool]) -> None:
        self._means, self._store, self._workers = means, means.store, workers
        self._folded: OrderedDict[str, Transcript] = OrderedDict()

    async def page(self, entry: SessionEntry, *, earlier: str, limit: int) -> Page:
        """The end of the transcript, or what came before a page of it. Raises NotFound."""
        runs, least = entry.state.runs, entry.live
        cut: tuple[int, int] | None = None
        if earlier:
            runs, *cut_at = _read_earlier(earlier, runs)
            cut, least = (cut_at[0], cut_at[1]), 0
        seen: list[_Seen] = []
        told = 0
        while (told < limit or len(seen) < least) and len(seen) < runs:
            before = seen[-1].member.ordinal if seen else runs + 1
            members = await self._store.members(entry.session_id, before=before, limit=_STRIDE)
            if not members:
                break
            for member in members[: max(limit - told, least - len(seen))]:
                one = await self._see(member, entry)
                if cut and member.ordinal == runs:
                    one = _Seen(member, _before(one.entries, *cut), one.seq)
                seen.append(one)
                told += len(one.entries)
                if told >= limit and len(seen) >= least:
                    break
        seen.reverse()
        first = seen[0].member.ordinal if seen else runs + 1
        # One that is missing among them may still arrive.
        heard = {one.member.ordinal: one.seq for one in seen}
        seqs = tuple(heard.get(ordinal, 0) for ordinal in range(first, runs + 1))
        bookmark = Bookmark(entry.state.seq, first, seqs).shortened()
        return Page(*_last(seen, limit), bookmark)

    async def _see(self, member: Member, entry: SessionEntry) -> _Seen:
        """A run with its marker. One that cannot be seen yet, or any more, has nothing else."""
        now, workers = self._means.clock(), self._workers()
        try:
            told = await self._fold(member)
        except NotFound:
            hidden = unseen(entry.state.moved_at, workers=workers, now=now)
            return _Seen(member, _marked(member, (), hidden), 0)
        except (JournalDamaged, IllegalEvent):
            return _Seen(member, _marked(member, (), damaged(entry.state.moved_at)), WHOLE)
        leased = not member.ended and bool(await self._store.held([member.run_id]))
        mark = marker(told.state, leased=leased, workers=workers, now=now)
        seq = WHOLE if told.state.status.final else told.state.seq
        return _Seen(member, _marked(member, told.entries, mark), seq)

    async def _fold(self, member: Member) -> Transcript:
        told = self._folded.get(member.run_id, Transcript(member.run_id, member.ordinal))
        journal = await self._store.read(member.run_id, after=told.state.seq, deleted=True)
        for start in range(0, len(journal), _AT_ONCE):
            for recorded in journal[start : start + _AT_ONCE]:
                told = grow(told, recorded)
            if start:
                await anyio.lowlevel.checkpoint()
        if told.state.seq >= _LONG:
            self._keep(told)
        return told

    def _keep(self, told: Transcript) -> None:
        self._folded[told.run_id] = told
        self._folded.move_to_end(told.run_id)
        while sum(one.state.seq for one in self._folded.values()) > _MOST:
            self._folded.popitem(last=False)


def _marked(member: Member, entries: tuple[Entry, ...], mark: Marker | None) -> tuple[Entry, ...]:
    return marked(entries, mark, run_id=member.run_id, ordinal=member.ordinal)


def _read_earlier(token: str, runs: int) -> tuple[int, int, int]:
    """The run in which a page began, and the seq and the number there of its first entry."""
    found = _EARLIER.fullmatch(token)
    if found is None or not 0 < int(found[1]) <= runs:
        raise NotFound("page", token)
    return int(found[1]), int(found[2]), int(found[3])


def _places(entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Where each stands: its seq, and which of those with that seq it is. One that goes moves no other."""
    seq, number = 0, 0
    for entry in entries:
        seq, number = entry.seq, number + 1 if entry.seq == seq else 0
        yield seq, number


def _before(entries: tuple[Entry, ...], seq: int, number: int) -> tuple[Entry, ...]:
    places = _places(entries)
    return tuple(one for one, at in zip(entries, places, strict=True) if at < (seq, number))


def _last(seen: Sequence[_Seen], limit: int) -> tuple[tuple[Entry, ...], str]:
    """The last entries, and where to go on for what came before them."""
    every = [
        (one.member.ordinal, *at, entry)
        for one in seen
        for at, entry in zip(_places(one.entries), one.entries, strict=True)
    ]
    kept = every[-limit:]
    entries = tuple(entry for *_, entry in kept)
    first = seen[0].member.ordinal if seen else 1
    if first == 1 and len(kept) == len(every):
        return entries, ""
    ordinal, seq, number, _ = kept[0] if kept else (first, 0, 0, None)
    return entries, f"{ordinal}.{seq}.{number}"
