"""Who keeps coming with wrong keys from elsewhere is not listened to for a while.

Nobody finds a key of ours by trying; this is for logs and for keys that people chose. Whoever comes from this machine,
or through a proxy that all come through, is not meant, for others would be shut out with them.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

#: So many wrong keys within so many seconds.
MOST = 10
WITHIN = 60.0

#: Addresses that are remembered. With more of them there is no telling who it is.
REMEMBERED = 10_000


class Backoff:
    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        #: When the first of them came, and how many did.
        self._failed: dict[str, tuple[float, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._failed)

    def wait(self, address: str) -> float:
        """Seconds for which nobody at this address is listened to; 0 as a rule."""
        if address not in self._failed:
            return 0.0
        since, count = self._failed[address]
        left = since + WITHIN - self._now()
        if left <= 0:
            del self._failed[address]
        return left if left > 0 and count >= MOST else 0.0

    def note(self, address: str) -> None:
        """A wrong key came from there."""
        since, count = self._failed.pop(address, (self._now(), 0))
        if len(self._failed) >= REMEMBERED:
            del self._failed[next(iter(self._failed))]
        self._failed[address] = since, count + 1
