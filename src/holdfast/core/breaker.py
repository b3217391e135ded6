"""When an endpoint has failed so often that it is left alone for a while.

It is told the time and never asks for it. After so many failures in a row nobody calls; after
a rest one call may try, and what becomes of it decides for everyone.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

#: Failures in a row that open it, and seconds nobody calls then.
FAILURES = 5
REST = 30.0

#: Seconds until somebody asks again, while another's call is the one that tries.
SOON = 5.0


class Pass(Struct, frozen=True, eq=False):
    """Leave to call once `wait` is over, which is now if it is 0. Whoever calls says how it ended."""

    wait: float = 0.0


class Breaker:
    def __init__(self) -> None:
        self.failures = 0
        self._until = -inf
        self._trial: Pass | None = None

    @property
    def open(self) -> bool:
        return self.failures >= FAILURES

    def admit(self, *, now: float) -> Pass:
        if not self.open:
            return Pass()
        if now < self._until:
            return Pass(self._until - now)
        if self._trial:
            return Pass(SOON)
        self._trial = Pass()
        return self._trial

    def hear(self, call: Pass) -> None:
        """It is speaking. If it was the one to try, everyone may call, until one more failure."""
        if call is self._trial:
            self._trial, self.failures = None, FAILURES - 1

    def succeed(self) -> None:
        self.failures, self._trial = 0, None

    def fail(self, call: Pass, *, now: float) -> None:
        self.failures += 1
        if call is self._trial or self.failures == FAILURES:
            self._until = now + REST
        self.leave(call)

    def leave(self, call: Pass) -> None:
        """The call ended in a way that says nothing about the endpoint."""
        if call is self._trial:
            self._trial = None
