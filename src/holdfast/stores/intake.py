"""Journals that come from elsewhere, as rows: inside the transaction of whoever takes them in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import apsw

from holdfast.core.codec import Link, read_link
from holdfast.core.events import Recorded
from holdfast.core.luggage import Carried
from holdfast.core.refs import histories
from holdfast.core.run import replay
from holdfast.core.session import Noted, replay_session
from holdfast.errors import Conflict
from holdfast.stores.batch import LONG_BODY
from holdfast.stores.keeping import keep
from holdfast.stores.reading import link
from holdfast.stores.sessions import insert_session


def take_session(
    db: apsw.Connection, session_id: str, notes: Sequence[Noted], runs: Sequence[Carried]
) -> None:
    """Raises Conflict, and has written nothing then."""
    if db.execute("select 1 from session where id = ?", (session_id,)).get:
        raise Conflict(f"session {session_id} already exists")
    for run in runs:
        refuse_known(db, run.run_id)
    insert_session(db, session_id, replay_session(notes), list(_chained(notes)))
    for ordinal, run in enumerate(runs, 1):
        insert_run(db, run, place="ended", session=session_id, ordinal=ordinal)


def refuse_known(db: apsw.Connection, run_id: str) -> None:
    if db.execute("select 1 from run where id = ?", (run_id,)).get:
        raise Conflict(f"run {run_id} is here already")


def insert_run(
    db: apsw.Connection, run: Carried, *, place: str, session: str, ordinal: int = 0
) -> None:
    at, epoch = run.journal[0].at, replay(run.journal).epoch
    db.execute(
        "insert into run (id, place, epoch, accepted_at, ready_at, ready_in, session, ordinal)"
        " values (?, ?, ?, ?, ?, 0, ?, ?)",
        (run.run_id, place, epoch, at, at, session, ordinal),
    )
    key = db.last_insert_rowid()
    keep(db, key, run.blobs, _histories(run))
    for seq, moment, body, chain in _chained(run.journal):
        long = sha256(body).hexdigest() if len(body) > LONG_BODY else None
        if long:
            keep(db, key, {long: body})
        db.execute(
            "insert into event (run, seq, at, body, long, sum) values (?, ?, ?, ?, ?, ?)",
            (key, seq, moment, None if long else body, long, chain),
        )


def _chained(journal: Iterable[Recorded | Noted]) -> Iterator[tuple[Any, ...]]:
    """With sums made anew, so that they hold for masked bodies too."""
    chain = b""
    for one in journal:
        chain = link(chain, one.seq, one.at, one.body)
        yield one.seq, one.at, one.body, chain


def _histories(run: Carried) -> Iterator[Sequence[Link]]:
    """None of a conversation in one piece, as they all were once: that is a blob like others."""
    for names in histories(run.journal[0].event, run.blobs):
        links = [read_link(run.blobs[name]) for name in names]
        yield [link for link in links if link]
