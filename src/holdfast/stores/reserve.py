"""Space set aside for the day the disk is full.

While it lies there nobody needs it. When the disk is full it is given up, and what is already
under way can still be brought to its end on record. Once it can be set aside again, the disk
has room again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Bytes. Enough for the results and ends of some thousand runs.
SIZE = 1024 * 1024


class Reserve:
    def __init__(self, path: Path, *, size: int = SIZE) -> None:
        self._path, self._size = path, size

    def set_aside(self) -> bool:
        """Take the space. False if there is not that much."""
        try:
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            return False
        try:
            there = os.fstat(handle)
            if there.st_size == self._size and there.st_blocks * 512 >= self._size:
                return True
            # Written, not just promised: a sparse file takes no space.
            taken = os.pwrite(handle, bytes(self._size), 0)
            os.fsync(handle)
        except OSError:
            taken = 0
        finally:
            os.close(handle)
        if taken < self._size:
            self.give_up()
        return taken == self._size

    def give_up(self) -> None:
        # What cannot be given up stays; whoever needs the space is told that there is none.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
