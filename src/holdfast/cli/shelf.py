"""The data directory, as commands see it that read and do not own: its journals, and its owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config import read_data, read_journal, read_key
from holdfast.config.addresses import same_place
from holdfast.core.events import RunAccepted
from holdfast.errors import NotFound
from holdfast.stores.archive import Archive, open_archive
from holdfast.stores.archive_sessions import ArchivedSessions
from holdfast.stores.owner import Owner, owner

if TYPE_CHECKING:
    from holdfast.cli.far import Far

#: Characters of an id that tell it from the others, as a rule.
_SHORT = 12


@dataclass(frozen=True)
class Shelf:
    """`path` is the file of the runs, which may be elsewhere."""

    folder: Path
    path: Path
    archive: Archive

    @property
    def sessions(self) -> ArchivedSessions:
        return ArchivedSessions(self.archive)

    @property
    def owner(self) -> Owner | None:
        return owner(self.folder)


@contextmanager
def open_shelf(data: str | None) -> Iterator[Shelf]:
    """Raises ConfigError or StoreError. A directory that is not there holds no runs."""
    folder = read_data(data=data)
    path = journal_of(folder)
    with open_archive(path) as archive:
        yield Shelf(folder, path, archive)


def journal_of(folder: Path) -> Path:
    """The file that holds the runs: the one its owner has, or else the one that is set."""
    found = owner(folder)
    return Path(found.journal) if found and found.journal else read_journal(folder)


def server_of(folder: Path, url: str | None) -> Far | None:
    """The server to talk to: the one that is named, or the one that owns the directory, or none."""
    if url is not None:
        return _named(url, folder)
    found = owner(folder)
    if found is None or not found.address:
        return None
    from holdfast.cli.far import Far

    return Far(found.address, read_key(folder), pin=found.pin)


def live_runs(folder: Path, session_id: str) -> list[str]:
    """Runs of the session that have not ended, the first first."""
    with open_shelf(str(folder)) as shelf:
        try:
            members = shelf.sessions.members(session_id)
        except NotFound:
            return []
        return [member.run_id for member in members if not member.ended]


def runs_ahead(folder: Path, run_id: str) -> list[str]:
    """Runs that have to end before this one can go on, the first first."""
    with open_shelf(str(folder)) as shelf:
        first = shelf.archive.entry(run_id).first.event
    session_id = first.session_id if isinstance(first, RunAccepted) else ""
    live = live_runs(folder, session_id) if session_id else []
    return live[: live.index(run_id)] if run_id in live else []


def server_at(url: str, data: str | None) -> Far:
    """The server that is named."""
    return _named(url, read_data(data=data))


def _named(url: str, folder: Path) -> Far:
    """With the key that is set. The one in the directory is for its owner: an address is easily
    mistyped, or somebody else's idea."""
    from holdfast.cli.far import Far

    found = owner(folder)
    owns = found is not None and same_place(url, found.address)
    return Far(url, read_key(folder if owns else None))


def short(run_id: str) -> str:
    """An id as people type it."""
    return run_id[:_SHORT]
