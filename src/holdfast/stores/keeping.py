"""Blobs in the file: kept once, for whoever uses them, and gone when nobody does.

A run uses what its events name. A conversation that came with a run is a chain of links, a message
each: the run uses the last one, and each the one before it. So a conversation that comes again,
longer by a message, costs that message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import apsw

from holdfast.core.codec import Link, link_before
from holdfast.errors import NotFound, StoreError
from holdfast.stores.packing import press, unpress

#: Blobs, and links, that are looked at in one go to see whether they are still used.
COLLECTED = 1000

_UNUSED_BLOB = (
    "select 1 from blob where sha256 = ?1"
    " and not exists (select 1 from blob_use where blob_use.sha256 = ?1)"
    " and not exists (select 1 from link_blob where link_blob.sha256 = ?1)"
    " and not exists (select 1 from event where event.long = ?1)"
)

_UNUSED_LINK = (
    "select key, before from link where sha256 = ?1"
    " and not exists (select 1 from link_use where link_use.link = link.key)"
    " and not exists (select 1 from link as next where next.before = link.key)"
)

_FORGET_BASE = (
    "delete from base where key = ?1 and not exists (select 1 from event where event.base = ?1)"
)

#: One that is nowhere is not kept for anybody; whoever looks for it will say so.
_SHOW = "insert or ignore into link_blob select ?, sha256 from blob where sha256 = ?"

#: From the last to the first, in one statement: as of one moment.
_CHAIN = (
    "with recursive chain (place, link) as (select 0, key from link where sha256 = ?"
    " union all select place + 1, before from chain join link on key = link"
    " where before is not null)"
    " select body, pressed from chain join link on key = link order by place"
)


def keep(
    db: apsw.Connection,
    run: int,
    blobs: Mapping[str, bytes],
    chains: Iterable[Sequence[Link]] = (),
) -> None:
    """The run uses these blobs, and these conversations, the oldest message of each first.

    The pictures in a message may be among the blobs; then the run need not use them itself.
    """
    held: set[str] = set()
    for links in filter(None, chains):
        head = _keep_chain(db, links, blobs)
        db.execute("insert or ignore into link_use values (?, ?)", (run, head))
        held.update(name for link in links for name in (link.name, *link.pictures))
    for name, body in blobs.items():
        if name not in held:
            _put(db, name, body)
            db.execute("insert or ignore into blob_use values (?, ?)", (name, run))


def _keep_chain(
    db: apsw.Connection, links: Sequence[Link], blobs: Mapping[str, bytes]
) -> int | None:
    """Returns the key of the last one."""
    key: int | None = None
    new: list[Link] = []
    for link in reversed(links):
        key = db.execute("select key from link where sha256 = ?", (link.name,)).get
        if key is not None:
            break  # and so is all that it needs
        new.append(link)
    for link in reversed(new):
        db.execute(
            "insert into link (sha256, body, pressed, before) values (?, ?, ?, ?)",
            (link.name, *press(link.body), key),
        )
        key = db.last_insert_rowid()
        for name in link.pictures:
            if name in blobs:
                _put(db, name, blobs[name])
            db.execute(_SHOW, (key, name))
    return key


def look_up(db: apsw.Connection, name: str) -> bytes:
    """Raises NotFound, or StoreError if it is not what was written."""
    found = db.execute("select body, pressed from blob where sha256 = ?", (name,)).get
    if found is None:
        raise NotFound("blob", name)
    return _checked(name, *found)


def look_up_chain(db: apsw.Connection, name: str) -> Sequence[bytes]:
    """What leads up to this link, the oldest first. Raises as `look_up` does.

    A conversation was one blob once, and is a chain of that one then.
    """
    bodies: list[bytes] = []
    for stored, pressed in db.execute(_CHAIN, (name,)).fetchall():
        bodies.append(_checked(name, stored, pressed))
        name = link_before(bodies[-1])
    if name:
        bodies.append(look_up(db, name))
    bodies.reverse()
    return bodies


def _checked(name: str, stored: object, pressed: object) -> bytes:
    body = unpress(stored, pressed)
    if not isinstance(body, bytes) or sha256(body).hexdigest() != name:
        raise StoreError(f"blob {name} is not what was written")
    return body


def collect(db: apsw.Connection, start: str) -> None:
    """Remove what nobody uses. Looks at some of it, from this name on and then from the first.

    Names are hashes: whoever begins somewhere else each time has soon looked at all of them.
    """
    for name in _names(db, "link", start):
        _forget_chain(db, name)
    for name in _names(db, "blob", start):
        if db.execute(_UNUSED_BLOB, (name,)).get:
            db.execute("delete from blob where sha256 = ?", (name,))
    db.execute("delete from base where not exists (select 1 from event where base = base.key)")


def purge_runs(db: apsw.Connection, *, before: float, limit: int = 20) -> Sequence[str]:
    """Remove runs that were deleted before that time, have ended, and are in no session."""
    rows: list[Any] = db.execute(
        "select key, cast(id as blob) from run"
        " where deleted_at < ? and session = '' and place = 'ended' limit ?",
        (before, limit),
    ).fetchall()
    for key, _ in rows:
        remove_run(db, key)
    return [name_of(raw) for _, raw in rows]


def name_of(raw: bytes) -> str:
    """Something may go or be packed though its name is no text any more."""
    return raw.decode(errors="replace")


def remove_run(db: apsw.Connection, run: int) -> None:
    """All of it, and with it what nobody else uses."""
    blobs = [name for (name,) in db.execute("select sha256 from blob_use where run = ?", (run,))]
    heads: list[Any] = db.execute(
        "select link.sha256 from link_use join link on key = link where run = ?", (run,)
    ).fetchall()
    db.execute("delete from blob_use where run = ?", (run,))
    db.execute("delete from link_use where run = ?", (run,))
    bases: list[Any] = db.execute(
        "select distinct base from event where run = ? and base is not null", (run,)
    ).fetchall()
    db.execute("delete from event where run = ?", (run,))
    db.execute("delete from run where key = ?", (run,))
    for base in bases:
        db.execute(_FORGET_BASE, base)
    for (head,) in heads:
        blobs += _forget_chain(db, head)
    for name in blobs:
        if db.execute(_UNUSED_BLOB, (name,)).get:
            db.execute("delete from blob where sha256 = ?", (name,))


def _names(db: apsw.Connection, table: str, start: str) -> Sequence[str]:
    # Of our own words; what was asked for is bound.
    order = f"select sha256 from {table} where sha256 {{}} ? order by sha256 limit ?"  # noqa: S608
    found: list[Any] = [
        db.execute(order.format(side), (start, COLLECTED)).fetchall() for side in (">=", "<")
    ]
    return [name for names in found for (name,) in names][:COLLECTED]


def _forget_chain(db: apsw.Connection, name: str) -> list[str]:
    """And what only this one needed. Returns the pictures that went with it."""
    pictures: list[str] = []
    while found := db.execute(_UNUSED_LINK, (name,)).get:
        key, before = found
        shown: list[Any] = db.execute(
            "select sha256 from link_blob where link = ?", (key,)
        ).fetchall()
        pictures += [one for (one,) in shown]
        db.execute("delete from link_blob where link = ?", (key,))
        db.execute("delete from link where key = ?", (key,))
        name = db.execute("select sha256 from link where key = ?", (before,)).get
    return pictures


def _put(db: apsw.Connection, name: str, body: bytes) -> None:
    if db.execute("select 1 from blob where sha256 = ?", (name,)).get is None:
        db.execute(
            "insert into blob (sha256, body, pressed) values (?, ?, ?)", (name, *press(body))
        )
