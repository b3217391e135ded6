"""How much of a measurement the machine spent on somebody else.

On a machine that is shared with others, what is measured while they work is theirs as much as ours:
a command that waits for the kernel takes three times as long when a fifth of the time is taken away.
"""

from __future__ import annotations

from pathlib import Path

_STAT = Path("/proc/stat")
#: Past these many percent a number says little about what was measured.
QUIET = 2.0


def _times() -> tuple[int, int]:
    """What was taken away from this machine since it started, and all of its time."""
    fields = [int(field) for field in _STAT.read_text().partition("\n")[0].split()[1:9]]
    return fields[7], sum(fields)


class Machine:
    """From when it is made."""

    def __init__(self) -> None:
        self._before = _times() if _STAT.exists() else (0, 0)

    def taken(self) -> float:
        """Percent of its time that others had. 0 where nobody tells."""
        if not _STAT.exists():
            return 0.0
        stolen, whole = (now - then for now, then in zip(_times(), self._before, strict=True))
        return 100.0 * stolen / whole if whole else 0.0

    def told(self) -> str:
        taken = self.taken()
        loud = "" if taken <= QUIET else ", so the numbers are theirs as well: measure again"
        return f"others took {taken:.1f} % of the machine meanwhile{loud}"
