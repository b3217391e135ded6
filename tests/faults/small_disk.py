"""A store on a disk that is really full, in a process of its own.

    python -m tests.faults.small_disk mount /some/folder

mounts a disk of a few megabytes there, which nobody else sees and which is gone with this
process. With `limit`, or where nothing may be mounted, no file may grow past a limit
instead. Writes which of them it was.
"""

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import anyio

from holdfast.core.events import RunCompleted
from holdfast.errors import StoreFull
from holdfast.stores.archive import open_archive
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import STARTED, said
from tests.faults.diary import Diary, read_all

MEGABYTE = 1024 * 1024
NEW_MOUNTS, NEW_USER, PRIVATE = 0x00020000, 0x10000000, 0x00044000


class SmallDisk:
    """A disk of three megabytes, one of which lies in the way."""

    name = "mount"

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEW_MOUNTS) and libc.unshare(NEW_USER | NEW_MOUNTS):
            raise OSError(ctypes.get_errno(), "no mounts of our own")
        for source, target, kind, flags, options in (
            (None, b"/", None, PRIVATE, None),
            (b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=3m"),
        ):
            if libc.mount(source, target, kind, flags, options):
                raise OSError(ctypes.get_errno(), "nothing can be mounted")
        self._ballast = folder / "ballast"
        self._ballast.write_bytes(bytes(MEGABYTE))

    def make_room(self):
        self._ballast.unlink()

    def fill(self):
        """To the last byte."""
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))


class SmallFiles:
    """No file may be larger than a megabyte and a half."""

    name = "limit"

    def __init__(self, folder):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MEGABYTE // 2, hard))

    def make_room(self):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


async def story(path, disk):
    async with open_sqlite(path) as store:
        diary = Diary(store)
        for run_id in ("run_1", "run_2"):
            await diary.accept(run_id)
        leases = await diary.claim()
        await diary.append(leases["run_1"], STARTED)
        await write_until_it_is_full(diary, leases["run_2"])
        assert await read_all(store, diary) == diary.bodies
        assert not await fits(diary.accept("run_3"))
        if disk.name == "mount":
            # From what was set aside for it.
            await diary.append(leases["run_1"], RunCompleted())
        disk.make_room()
        with anyio.fail_after(5):
            while not await fits(diary.accept("run_3")):
                await anyio.sleep(0.1)
        await diary.append(leases["run_2"], said("and on"))
        assert store.broken is None
    async with open_sqlite(path) as store:
        assert await read_all(store, diary) == diary.bodies
    if disk.name == "mount":
        await story_of_not_a_byte(path, disk, diary)


async def story_of_not_a_byte(path, disk, diary):
    """What is stored can be read, and nobody is let in to write."""
    path.with_name("journal.db.reserve").unlink()
    disk.fill()
    for _ in range(2):
        with open_archive(path) as archive:
            for run_id, bodies in diary.bodies.items():
                assert [row.body for row in archive.rows(run_id)] == bodies
        assert not await fits(open_and_close(path))
    disk.make_room()
    async with open_sqlite(path) as store:
        assert await read_all(store, diary) == diary.bodies


async def open_and_close(path):
    async with open_sqlite(path):
        pass


async def write_until_it_is_full(diary, lease):
    for _ in range(1000):
        if not await fits(diary.append(lease, said("word " * 4000))):
            return
    raise AssertionError("it was never full")


async def fits(write):
    try:
        await write
    except StoreFull:
        return False
    return True


def main():
    kind, folder = sys.argv[1], Path(sys.argv[2])
    try:
        disk = (SmallDisk if kind == "mount" else SmallFiles)(folder)
    except OSError:
        disk = SmallFiles(folder)
    anyio.run(story, folder / "journal.db", disk)
    sys.stdout.write(disk.name)


if __name__ == "__main__":
    main()
