"""One session as one document, to be carried elsewhere.

Its journal and its runs' journals, each body as it is stored, and the blobs they refer to. What
must not leave the machine is masked. Whoever takes a document in checks all of it first, for
anybody can write one: what cannot have happened is refused, and what has not ended is ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from math import isinf
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.core.arrival import LATEST, check_blobs, check_names, check_story, end, is_id
from holdfast.core.codec import recall, recall_note
from holdfast.core.entries import Entry
from holdfast.core.events import Recorded, RunAccepted
from holdfast.core.markdown import to_markdown
from holdfast.core.marker import marked, marker
from holdfast.core.mask import Mask
from holdfast.core.refs import histories
from holdfast.core.session import (
    Noted,
    RunAdded,
    SessionCreated,
    SessionState,
    fold_session,
    replay_session,
)
from holdfast.core.transcript import Transcript, grow
from holdfast.errors import IllegalEvent, InvalidRequest, JournalDamaged, StoreError

VERSION = 1

#: Bytes of a document. A larger one is not looked at.
LARGEST = 256 * 1024 * 1024

#: Characters of a session's id, and what a file system takes for more than a name.
_LONGEST_ID = 256
_NO_NAME = ("/", "\\", "..")

#: What an address of the server means beside the sessions.
TAKEN = "import"

#: Characters of what a session is called: every list shows it.
_LONGEST_NAME = 4096


class Carried(Struct, frozen=True):
    """A run on its way: its journal, and the blobs that refers to."""

    run_id: str
    journal: Sequence[Recorded]
    blobs: Mapping[str, bytes] = {}


class Luggage(Struct, frozen=True):
    """A session on its way. Its runs are in their order."""

    session_id: str
    notes: Sequence[Noted]
    runs: Sequence[Carried]


class _Line(Struct, frozen=True):
    seq: int
    at: float
    event: Raw


class _Run(Struct, frozen=True):
    run_id: str
    ordinal: int
    events: list[_Line]


class _Document(Struct, frozen=True):
    holdfast_session: int
    session_id: str
    title: str
    notes: list[_Line]
    runs: list[_Run]
    blobs: dict[str, bytes]


# --- out ------------------------------------------------------------------------------------


def pack(luggage: Luggage, *, secrets: Sequence[str] = ()) -> bytes:
    """The document. Raises JournalDamaged for what cannot be searched for secrets."""
    luggage = _without(luggage, secrets)
    return msgspec.json.encode(
        _Document(
            holdfast_session=VERSION,
            session_id=luggage.session_id,
            title=replay_session(luggage.notes).name,
            notes=_lines(luggage.notes),
            runs=[
                _Run(run.run_id, ordinal, _lines(run.journal))
                for ordinal, run in enumerate(luggage.runs, 1)
            ],
            blobs={name: body for run in luggage.runs for name, body in run.blobs.items()},
        )
    )


def write_page(
    luggage: Luggage,
    *,
    leased: Collection[str],
    workers: bool,
    now: float,
    secrets: Sequence[str] = (),
) -> str:
    """The same as a page of Markdown, for people. Raises as `pack`, and IllegalEvent."""
    # Before it is written: there a secret may be spelled in another way.
    luggage = _without(luggage, secrets)
    entries: list[Entry] = []
    for ordinal, run in enumerate(luggage.runs, 1):
        told = reduce(grow, run.journal, Transcript(run.run_id, ordinal))
        mark = marker(told.state, leased=run.run_id in leased, workers=workers, now=now)
        entries += marked(told.entries, mark, run_id=run.run_id, ordinal=ordinal)
    return to_markdown(replay_session(luggage.notes).name, entries)


def _without(luggage: Luggage, secrets: Sequence[str]) -> Luggage:
    if not secrets:
        return luggage
    try:
        return _masked(luggage, Mask(secrets))
    except (ValueError, RecursionError) as error:
        said = f"it cannot be searched for secrets: {error}"
        raise JournalDamaged(luggage.session_id, 1, said, kind="session") from error


def _lines(journal: Iterable[Recorded | Noted]) -> list[_Line]:
    return [_Line(one.seq, one.at, Raw(one.body)) for one in journal]


def _masked(luggage: Luggage, mask: Mask) -> Luggage:
    notes = mask.bodies([noted.body for noted in luggage.notes], {})
    return Luggage(
        luggage.session_id,
        [recall_note(n.seq, n.at, body) for n, body in zip(luggage.notes, notes, strict=True)],
        [_masked_run(run, mask) for run in luggage.runs],
    )


def _masked_run(run: Carried, mask: Mask) -> Carried:
    chains = histories(run.journal[0].event, run.blobs)
    blobs, renamed = mask.blobs(run.blobs, [name for names in chains for name in names])
    bodies = mask.bodies([one.body for one in run.journal], renamed)
    journal = [recall(r.seq, r.at, body) for r, body in zip(run.journal, bodies, strict=True)]
    return Carried(run.run_id, journal, blobs)


# --- in -------------------------------------------------------------------------------------


def unpack(body: bytes, *, at: float, new_id: Callable[[str], str] | None = None) -> Luggage:
    """What is in the document, fit to be taken in now. Raises InvalidRequest, which says why not.

    With `new_id` the session and its runs have other ids than they had. A run that had not ended has
    ended `at` this time: it is history here, and nobody carries it on.
    """
    try:
        luggage = _checked(_read(body))
        if new_id:
            luggage = _renamed(luggage, new_id)
        runs = [replace(run, journal=end(run.journal, at=at)) for run in luggage.runs]
    except JournalDamaged as error:
        raise InvalidRequest(str(error)) from error
    return replace(luggage, runs=runs)


def _read(body: bytes) -> _Document:
    if len(body) > LARGEST:
        raise InvalidRequest(f"it is larger than {LARGEST} bytes; no exported session is")
    try:
        document = msgspec.json.decode(body, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"this is no exported session: {error}") from error
    if document.holdfast_session > VERSION:
        raise InvalidRequest("this session was exported by a newer version of holdfast")
    return document


def _checked(document: _Document) -> Luggage:
    session_id = document.session_id
    if not is_session_id(session_id):
        raise InvalidRequest(f"{session_id[:_LONGEST_ID]!r} is no id of a session")
    notes = _check_notes(session_id, document.notes)
    _check_runs(session_id, notes, document.runs)
    check_names(session_id, document.blobs, kind="session")
    runs = [_check_run(session_id, run, document.blobs) for run in document.runs]
    needed = {name for run in runs for name in run.blobs}
    for name in sorted(document.blobs.keys() - needed):
        raise InvalidRequest(f"blob {name[:_LONGEST_ID]} is for nothing in this session")
    return Luggage(session_id, notes, runs)


def is_session_id(text: str) -> bool:
    """It may name a folder one day, so it cannot lead out of one."""
    fits = 1 <= len(text) <= _LONGEST_ID and text.isprintable() and text == text.strip()
    return fits and text != TAKEN and not any(part in text for part in _NO_NAME)


def _check_notes(session_id: str, lines: Sequence[_Line]) -> Sequence[Noted]:
    notes: list[Noted] = []
    state = SessionState()
    for expected, line in enumerate(lines, 1):
        _check_place(session_id, line, expected, "session")
        try:
            notes.append(recall_note(line.seq, line.at, _compact(line.event)))
            state = fold_session(state, notes[-1])
        except (StoreError, IllegalEvent) as error:
            raise JournalDamaged(session_id, line.seq, str(error), kind="session") from error
    if not notes or not isinstance(notes[0].event, SessionCreated):
        raise JournalDamaged(session_id, 1, "it is not how a session begins", kind="session")
    if state.deleted_at is not None:
        raise InvalidRequest(f"session {session_id} was deleted before it was exported")
    if len(state.name) > _LONGEST_NAME:
        raise InvalidRequest(f"the session's title is longer than {_LONGEST_NAME} characters")
    return notes


def _check_runs(session_id: str, notes: Sequence[Noted], runs: Sequence[_Run]) -> None:
    """The runs are those that the session's journal tells of, in that order, and each is one."""
    added = [one.event for one in notes if isinstance(one.event, RunAdded)]
    told, came = [(one.ordinal, one.run_id) for one in added], [(r.ordinal, r.run_id) for r in runs]
    if told != came:
        raise InvalidRequest(f"the runs are not those that session {session_id} tells of")
    if len({run.run_id for run in runs}) < len(runs):
        raise InvalidRequest(f"a run is twice in session {session_id}")


def _check_run(session_id: str, run: _Run, blobs: Mapping[str, bytes]) -> Carried:
    run_id = run.run_id
    if not is_id(run_id):
        raise InvalidRequest(f"{run_id[:_LONGEST_ID]!r} is no id of a run")
    journal: list[Recorded] = []
    for expected, line in enumerate(run.events, 1):
        _check_place(run_id, line, expected, "run")
        try:
            journal.append(recall(line.seq, line.at, _compact(line.event)))
        except StoreError as error:
            raise JournalDamaged(run_id, line.seq, str(error)) from error
    check_story(run_id, journal)
    first = journal[0].event
    if isinstance(first, RunAccepted) and first.session_id != session_id:
        raise JournalDamaged(run_id, 1, "it is of another session")
    needed = check_blobs(run_id, journal, blobs)
    return Carried(run_id, journal, {name: blobs[name] for name in sorted(needed)})


def _check_place(id: str, line: _Line, expected: int, kind: str) -> None:
    if line.seq != expected:
        raise JournalDamaged(id, expected, "it is missing", kind=kind)
    if not 0 <= line.at <= LATEST:
        raise JournalDamaged(id, expected, "its time is none that a clock shows", kind=kind)


def _compact(event: Raw) -> bytes:
    """On one line, as it left: somebody may have made the document fit to read.

    What could not be searched for secrets later, or written anew, is no event of ours.
    """
    body = msgspec.json.format(bytes(event), indent=-1)
    try:
        json.loads(body, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"this is no exported session: {error}") from error
    return body


def _finite(text: str) -> float:
    if isinf(number := float(text)):
        raise ValueError("a number in it is too large")
    return number


# --- under other names ------------------------------------------------------------------------


def _renamed(luggage: Luggage, new_id: Callable[[str], str]) -> Luggage:
    ids = {run.run_id: new_id("run") for run in luggage.runs}
    session_id = new_id("ses")
    return Luggage(
        session_id,
        [_rename_note(noted, ids) for noted in luggage.notes],
        [
            Carried(
                ids[run.run_id],
                [_rename(run.journal[0], session_id, ids), *run.journal[1:]],
                run.blobs,
            )
            for run in luggage.runs
        ],
    )


def _rename_note(noted: Noted, ids: Mapping[str, str]) -> Noted:
    if not isinstance(noted.event, RunAdded):
        return noted
    body = _with(noted.body, run_id=ids[noted.event.run_id])
    return recall_note(noted.seq, noted.at, body)


def _rename(first: Recorded, session_id: str, ids: Mapping[str, str]) -> Recorded:
    changes: dict[str, Any] = {"session_id": session_id}
    parent = getattr(first.event, "parent", None)
    if parent and parent.run_id in ids:
        changes["parent"] = {"run_id": ids[parent.run_id], "seq": parent.seq}
    return recall(first.seq, first.at, _with(first.body, **changes))


def _with(body: bytes, **changes: Any) -> bytes:
    """The same with other values, and with whatever a newer version has put beside them."""
    value = json.loads(body) | changes
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
