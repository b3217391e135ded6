"""Puts the events of runs that have ended into few rows, a step at a time.

Nothing is ever told differently for it: what is read is what was written, byte for byte, and what
does not match its sum before it is packed is left as it is, to be found. The first event stands
alone, since lists show it, and the last one stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import apsw
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.codec import decode, encode
from holdfast.core.events import RunAccepted
from holdfast.errors import JournalDamaged
from holdfast.stores.keeping import name_of
from holdfast.stores.packing import pack, press, unpack
from holdfast.stores.reading import Stored, stored

#: Events of one step at most, and bytes of their bodies after which it takes no more.
STEP = 2048
STEP_BYTES = 256 * 1024

#: Bytes that zlib can look back, and of the least that is worth standing somewhere else.
_WINDOW = 32 * 1024
_WORTH = 512

_UNPACKED = "select key, cast(id as blob) from run where place = 'ended' and packed = 0 order by key limit 1"

#: The first event that can be packed, and the last one of the run, which is not.
_SPAN = (
    "select (select seq from event where run = ?1 and packed = 0 and long is null order by seq limit 1),"
    " (select max(seq) from event where run = ?1)"
)

_INSERT = "insert into event (run, seq, at, body, sum, packed, base) values (?, ?, ?, ?, ?, ?, ?)"

_PACKED, _LEFT = 1, 2


class _Pack(Struct, frozen=True, gc=False):
    """Some events in a row, and the body that is to hold them."""

    first: int
    last: Stored
    body: bytes
    base: bytes


class Step(Struct, frozen=True, gc=False):
    """What is to be replaced by what. `then` says what is known of the run after that, if anything."""

    run: int
    packs: Sequence[_Pack] = ()
    then: int = 0


class Packer:
    """For the thread that writes: it alone may replace rows."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._db = connection

    def next(self) -> Step | None:
        """The next step, or None if there is nothing to pack. Changes nothing."""
        found: tuple[int, bytes] | None = self._db.execute(_UNPACKED).get
        if found is None:
            return None
        key, run_id = found[0], name_of(found[1])
        first, last = self._db.execute(_SPAN, (key,)).get
        if first is None or first == last:
            return Step(key, then=_PACKED)
        try:
            events = stored(self._db, run_id, key, after=first - 1, limit=STEP)
            taken = [*_some(one for one in events if one.seq < last)]
            packs = [_packed(group) for group in _groups(taken)]
        except (JournalDamaged, TypeError, ValueError):
            # What stands there may have become anything.
            return Step(key, then=_LEFT)
        return Step(key, packs, _PACKED if taken[-1].seq == last - 1 else 0)

    def take(self, step: Step) -> None:
        """Do it, inside a transaction."""
        for one in step.packs:
            last, count = one.last, one.last.seq - one.first + 1
            self._db.execute(
                "delete from event where run = ? and seq between ? and ?",
                (step.run, one.first, last.seq),
            )
            base = self._base(one.base) if one.base else None
            row = (step.run, last.seq, last.at, one.body, last.sum, count, base)
            self._db.execute(_INSERT, row)
        if step.then:
            self._db.execute("update run set packed = ? where key = ?", (step.then, step.run))

    def _base(self, body: bytes) -> int:
        name = sha256(body).hexdigest()
        key: int | None = self._db.execute("select key from base where sha256 = ?", (name,)).get
        if key is not None:
            return key
        insert = "insert into base (sha256, body, pressed) values (?, ?, ?)"
        self._db.execute(insert, (name, *press(body)))
        return self._db.last_insert_rowid()


def _some(events: Iterable[Stored]) -> Iterator[Stored]:
    """As many as fit into a step. Raises ValueError at one that is not what was written."""
    size = 0
    for one in events:
        if not one.sound:
            raise ValueError("it is damaged")
        yield one
        size += len(one.body)
        if size >= STEP_BYTES:
            return


def _groups(events: Iterable[Stored]) -> Iterator[Sequence[Stored]]:
    """Neighbours to be packed together: the first alone, and none whose body stands elsewhere."""
    group: list[Stored] = []
    for one in events:
        if one.long is None:
            group.append(one)
        if group and (one.long or one.seq == 1):
            yield group
            group = []
    if group:
        yield group


def _packed(group: Sequence[Stored]) -> _Pack:
    """Raises ValueError if what was packed would not be the same again."""
    first, events = group[0], [(one.at, one.body) for one in group]
    base = _shared(first.body) if first.seq == 1 else b""
    body = pack(events, base)
    if unpack(body, len(events), base) != events:
        raise ValueError("it does not come back as it was")
    return _Pack(first.seq, group[-1], body, base)


def _shared(body: bytes) -> bytes:
    """What other runs begin with as well: how they are carried, not what was asked.

    Runs share it only if it is the same to the byte, so nothing of one stays behind in another.
    """
    event = decode(body)
    if not isinstance(event, RunAccepted):
        return b""
    bare = replace(
        event,
        input=(),
        message_id="",
        session_id="",
        parent=None,
        history=(),
        metadata={},
        asked={},
    )
    shared = encode(bare)[-_WINDOW:]
    return shared if len(shared) >= _WORTH else b""
