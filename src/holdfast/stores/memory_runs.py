"""Runs in memory, as their store has them, and the requests that led to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from holdfast.core.events import FINAL, Recorded
from holdfast.errors import AlreadyAccepted, KeyReused
from holdfast.ports import Once

#: Seconds for which a key stands for the request it came with.
KEPT = 24 * 3600.0


@dataclass
class Run:
    log: list[Recorded]
    session: str = ""
    epoch: int = 0
    holder: str = ""
    until: float = 0.0
    news: anyio.Event = field(default_factory=anyio.Event)
    #: It waits for its turn in its session.
    behind: bool = False
    #: Nobody can make sense of it.
    aside: bool = False
    #: It is to end.
    stopping: bool = False
    deleted_at: float | None = None

    @property
    def ended(self) -> bool:
        return isinstance(self.log[-1].event, FINAL)


@dataclass(frozen=True)
class Ready:
    at: float
    timed: bool


class Requests:
    """Those that are to be taken in once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._led_to: dict[tuple[str, str], tuple[str, str, float]] = {}

    def earlier(self, once: Once) -> str | None:
        """The run that this request led to. Raises KeyReused if it was another request."""
        found = self._led_to.get((once.principal, once.key))
        if found is None or found[2] < self._now() - KEPT:
            return None
        if found[0] != once.fingerprint:
            raise KeyReused(once.key)
        return found[1]

    def refuse_known(self, once: Once | None) -> None:
        """Raises AlreadyAccepted or KeyReused."""
        if once and not once.latest and (earlier := self.earlier(once)):
            raise AlreadyAccepted(earlier)

    def remember(self, once: Once | None, run_id: str) -> None:
        if once:
            self._led_to[once.principal, once.key] = (once.fingerprint, run_id, self._now())
