"""Who may write a run, until when, and when a worker must assume it no longer may.

A lease is granted by the store and fenced by its epoch: a writer with an old epoch is
refused, whatever its clock says. The tenure is the worker's own, more cautious view.
It counts from before the request that renewed the lease, on the worker's monotonic
clock, so that it always ends before the store would give the run to another.
"""

from __future__ import annotations

from msgspec import Struct


class Lease(Struct, frozen=True):
    """`due`: granted because the time came for which the run had been put to rest."""

    run_id: str
    worker: str
    epoch: int
    due: bool = False


class Tenure(Struct, frozen=True):
    """How long a worker may go on, told when it last asked and was granted."""

    ttl: float
    asked: float

    @property
    def renew_at(self) -> float:
        return self.asked + self.ttl / 3

    @property
    def over_at(self) -> float:
        """From here on nothing new may be started: the store may have moved on."""
        return self.asked + self.ttl * 2 / 3


def remaining(since: float, length: float, *, now: float) -> float:
    """What is left of a wait that began at wall time `since`.

    Never less than nothing and never more than the whole: a clock that jumps can cut a
    wait short, and never draw it out.
    """
    return min(max(since + length - now, 0.0), length)
