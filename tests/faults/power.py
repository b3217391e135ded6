"""What may be on a disk after the power failed, made from a log of what was done to it.

A write that was not synced may be there, may not be there, or may be there in part, whatever
came after it; a file may not be in its folder yet, or still be in it. What was synced is there.
"""

import shutil
from dataclasses import dataclass, field
from random import Random

import apsw

from holdfast.errors import StoreError
from holdfast.stores.database import open_writer
from tests.faults.lives import check_chain, rows_of

#: Bytes that a disk writes at once, or not at all.
SECTOR = 512

#: How much of what was not synced is there.
FATES = (
    "all lost",
    "all kept",
    "only the last",
    "the last torn",
    "some, one way",
    "some, another way",
    "some, a third way",
    "the log lost",
    "the database lost",
)


@dataclass
class File:
    """Its bytes as of the last sync, and what was done to it since."""

    synced: bytearray = field(default_factory=bytearray)
    since: list = field(default_factory=list)

    def sync(self):
        self.synced = self.after(self.since)
        self.since = []

    def after(self, operations, torn=None):
        data = bytearray(self.synced)
        for one in operations:
            apply(one, data)
        if torn:
            apply(torn, data, most=SECTOR)
        return data

    def survive(self, fate, random):
        """The bytes that are there afterwards."""
        match fate:
            case "all lost":
                return self.synced
            case "only the last":
                return self.after(self.since[-1:])
            case "the last torn" if self.since:
                return self.after(self.since[:-1], torn=self.since[-1])
            case _ if fate.startswith("some"):
                return self.after(one for one in self.since if random.random() < 0.5)
        return self.after(self.since)


class Powered:
    """A disk with a folder of files; give it one operation after the other."""

    def __init__(self):
        #: Which file goes by which name: as is seen, and as is certain.
        self.names, self.certain = {}, {}

    def do(self, operation):
        match operation.kind:
            case "found":
                file = File(synced=bytearray(operation.data))
                self.names[operation.file] = self.certain[operation.file] = file
            case "create":
                self.names[operation.file] = File()
            case "delete":
                del self.names[operation.file]
            case "sync" if operation.file:
                self.names[operation.file].sync()
            case "sync":
                self.certain = dict(self.names)
            case "write" | "truncate":
                self.names[operation.file].since.append(operation)

    def survivors(self, fate, *, seed):
        """What is in the folder afterwards, by name."""
        random = Random(f"{seed} {fate}")
        names = self.names
        if fate == "all lost" or (fate.startswith("some") and random.random() < 0.5):
            names = self.certain
        return {
            name: bytes(file.survive(fate_of(name, fate), random)) for name, file in names.items()
        }


def fate_of(name, fate):
    if fate == "the log lost":
        return "all lost" if name.endswith("-wal") else "all kept"
    if fate == "the database lost":
        return "all lost" if name.endswith(".db") else "all kept"
    return fate


def apply(operation, data, *, most=None):
    """Do it to these bytes, or only the first of it."""
    if operation.kind == "truncate":
        resize(data, operation.offset)
        return
    written = operation.data[:most]
    end = operation.offset + len(written)
    if len(data) < end:
        resize(data, end)
    data[operation.offset : end] = written


def resize(data, size):
    del data[size:]
    data.extend(bytes(size - len(data)))


def states(log, *, every=1):
    """Every moment at which the power may fail, or every so many, and all that may be there then.

    Yields how far each run was acknowledged by that moment, the fate, and the files. A mark
    in the log is a run and a seq.
    """
    disk, acknowledged = Powered(), {}
    for number, operation in enumerate(log):
        if operation.kind == "mark":
            run_id, seq = operation.mark
            acknowledged[run_id] = max(seq, acknowledged.get(run_id, 0))
            continue
        disk.do(operation)
        if number % every:
            continue
        for fate in FATES:
            yield acknowledged, fate, disk.survivors(fate, seed=number)


# --- afterwards --------------------------------------------------------------------------


class Aftermath:
    """Puts files on a disk, opens what is there, and reads it. The same files are read once."""

    def __init__(self, folder):
        self._folder, self._read = folder, {}

    def __call__(self, files):
        key = frozenset(files.items())
        if key not in self._read:
            self._read[key] = self._look(files)
        return self._read[key]

    @property
    def distinct(self):
        return len(self._read)

    def _look(self, files):
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        for name, data in files.items():
            (self._folder / name).write_bytes(data)
        try:
            return journals(self._folder / "journal.db")
        except (apsw.Error, StoreError, AssertionError) as error:
            return error


def journals(path):
    """The bodies of each run, once everything that can be checked has been."""
    connection = open_writer(path)
    try:
        assert connection.pragma("integrity_check") == "ok", "the database is not whole"
        rows = list(rows_of(connection))
    finally:
        connection.close()
    check_chain(rows)
    found = {}
    for id, _, _, body, _ in rows:
        found.setdefault(id, []).append(body)
    return found
