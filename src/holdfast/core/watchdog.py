"""When a quiet stream counts as dead.

The watchdog is told the time and never asks for it. It is told of three things:
an acknowledgement by the backend, which ends the wait for a first event once; a semantic
event (text, reasoning, a piece of a tool call), which is progress; and our own
slowness, which is nobody's silence. Bytes, headers, comments and pings are not events.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.usage import CHARACTERS_A_TOKEN
from holdfast.errors import StreamStalled

#: The close reason of a call that never began to answer, where a wire has its own.
SILENT_START = {"openai-responses": "codex_ttfb_kill"}


class Patience(Struct, frozen=True):
    """Limits in seconds; 0 switches one off. `first` and `whole` count from the start of the call."""

    connect: float = 30.0
    first: float = 45.0
    between: float = 120.0
    whole: float = 1800.0

    @property
    def unstreamed(self) -> Patience:
        """For a reply that comes in one piece, before which there is nothing to hear."""
        return replace(self, first=0.0, between=0.0)

    def grown(self, names: Collection[str], *, characters: int) -> Patience:
        """With these limits as long as so much to read deserves."""
        tokens = characters // CHARACTERS_A_TOKEN
        times = next((times for many, times in _GROWTH if tokens > many), 1.0)
        return replace(self, **{name: getattr(self, name) * times for name in names})


#: From how many tokens on a limit that nobody set is how many times as long.
_GROWTH = ((100_000, 3.0), (50_000, 2.0))


class Watchdog:
    """`wire` is what the call is made on; one of them has a word of its own for a silent start."""

    def __init__(self, patience: Patience, *, now: float, wire: str = "") -> None:
        self._patience, self._wire = patience, wire
        self._began = self._heard = now
        self.first = True

    @property
    def deadline(self) -> float:
        """When to hang up, unless something is heard before then."""
        return min(self._quiet_until, self._whole_until)

    def hear(self, *, now: float) -> None:
        """Something semantic came."""
        self._heard, self.first = now, False

    def acknowledge(self, *, now: float) -> None:
        """The backend answered without saying anything yet. Counts once."""
        if self.first:
            self.hear(now=now)

    def expect_one_piece(self) -> None:
        """There will be nothing to hear until the reply is there."""
        self._patience = self._patience.unstreamed

    def excuse(self, seconds: float) -> None:
        """We kept the other side waiting; none of it is their silence."""
        self._began += seconds
        self._heard += seconds

    def quiet(self, *, now: float) -> float:
        """How long nothing has been heard."""
        return now - self._heard

    def stalled(self, *, now: float) -> StreamStalled:
        """The error to raise once the deadline has passed."""
        if self._whole_until <= self._quiet_until:
            waited = now - self._began
            return StreamStalled(
                f"the call was not finished after {waited:g} s; hanging up", reason="stale_kill"
            )
        waited = self.quiet(now=now)
        if self.first:
            return StreamStalled(
                f"no first event from the model for {waited:g} s (TTFB limit"
                f" {self._patience.first:g} s); hanging up",
                reason=SILENT_START.get(self._wire, "ttfb_kill"),
            )
        return StreamStalled(
            f"no further event from the model for {waited:g} s; hanging up", reason="idle_kill"
        )

    @property
    def _quiet_until(self) -> float:
        limit = self._patience.first if self.first else self._patience.between
        return self._heard + limit if limit else inf

    @property
    def _whole_until(self) -> float:
        return self._began + self._patience.whole if self._patience.whole else inf
