"""A bookmark in a session: how much of its journal, and of each of its runs', has been heard.

Runs go one after another, so all of them before the `first` that is named have been heard whole. Each
can be written as a short text, which means something only here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import FINAL, Event, Recorded, Unknown
from holdfast.core.session import Noted, RunAdded, SessionEvent

_TEXT = re.compile(r"s(\d{1,15})\.(\d{1,15})((?:-(?:\d{1,15}|w))*)", re.ASCII)

#: In place of a seq: all of the run was heard, to its end.
WHOLE = -1


class Bookmark(Struct, frozen=True):
    """`session` is the seq that was heard last of the session, and `seqs` of its runs from `first` on."""

    session: int = 0
    first: int = 1
    seqs: tuple[int, ...] = ()

    def __str__(self) -> str:
        seqs = "".join("-w" if seq == WHOLE else f"-{seq}" for seq in self.seqs)
        return f"s{self.session}.{self.first}{seqs}"

    @property
    def runs(self) -> int:
        """How many runs were heard of."""
        return self.first - 1 + len(self.seqs)

    @property
    def open(self) -> Sequence[int]:
        """The ordinals of those of which more may come."""
        return [at for at, seq in enumerate(self.seqs, self.first) if seq != WHOLE]

    def seq(self, ordinal: int) -> int:
        """What was heard last of this run, which is open."""
        return self.seqs[ordinal - self.first]

    def noted(self, noted: Noted) -> Bookmark:
        """The bookmark after one more event of the session."""
        added = isinstance(noted.event, RunAdded)
        return replace(self, session=noted.seq, seqs=(*self.seqs, 0) if added else self.seqs)

    def heard(self, ordinal: int, recorded: Recorded) -> Bookmark:
        """The bookmark after one more event of a run."""
        at = ordinal - self.first
        seq = WHOLE if isinstance(recorded.event, FINAL) else recorded.seq
        return replace(self, seqs=(*self.seqs[:at], seq, *self.seqs[at + 1 :])).shortened()

    def shortened(self) -> Bookmark:
        """The same, without the whole runs it would begin with."""
        whole = next((at for at, seq in enumerate(self.seqs) if seq != WHOLE), len(self.seqs))
        return replace(self, first=self.first + whole, seqs=self.seqs[whole:]) if whole else self


class Heard(Struct, frozen=True):
    """Something that happened in a session, and the bookmark after it. Of a run, if it names one."""

    bookmark: Bookmark
    at: float
    event: Event | SessionEvent | Unknown
    run_id: str = ""
    ordinal: int = 0
    recorded: Recorded | None = None


def read_bookmark(text: str) -> Bookmark | None:
    """The bookmark that this text means; None if it means none."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    session, first, seqs = found.groups()
    given = (WHOLE if seq == "w" else int(seq) for seq in seqs.split("-")[1:])
    return Bookmark(int(session), max(int(first), 1), tuple(given)).shortened()
