"""When an endpoint has failed so often that it is left alone for a while.

It is told the time and never asks for it. After so many failures in a row nobody calls; after
a rest one call may try, and what becomes of it decides for everyone.
"""

from __future__ import annotations

from math import inf

#: Failures in a row that open it, and seconds nobody calls then.
FAILURES = 5
REST = 30.0

#: Seconds until somebody asks again, while another's call is the one that tries.
SOON = 5.0


class Breaker:
    def __init__(self) -> None:
        self.failures = 0
        self._until = -inf
        self._trying = False

    @property
    def open(self) -> bool:
        return self.failures >= FAILURES

    def admit(self, *, now: float) -> float:
        """Seconds to wait before calling, 0 to call now. Whoever calls says how it ended."""
        if not self.open:
            return 0.0
        if now < self._until:
            return self._until - now
        if self._trying:
            return SOON
        self._trying = True
        return 0.0

    def succeed(self) -> None:
        self.failures, self._trying = 0, False

    def fail(self, *, now: float) -> None:
        self.failures += 1
        if self._trying or self.failures == FAILURES:
            self._until = now + REST
        self._trying = False

    def leave(self) -> None:
        """The call ended in a way that says nothing about the endpoint."""
        self._trying = False
