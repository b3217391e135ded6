"""What a transcript is made of, as values that any reader can be sent.

Each kind of entry is told by its `kind`. An entry keeps its id and its place for good; all else in
it may change while its run goes on.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.events import Choice, Outcome
from holdfast.core.messages import BlobRef, Part


class _Entry(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, gc=False):
    """`ordinal` is the run's place in its session; `seq` and `at` are those of the first event."""

    id: str
    run_id: str
    ordinal: int
    seq: int
    at: float


class Said(_Entry, frozen=True, tag="user"):
    """What a person said. Pictures stand in it by reference.

    `queued`: the run has not begun yet. `steered`: it was added to the run later; `unheard`: after
    a stop, so that no model is shown it.
    """

    parts: tuple[Part, ...]
    queued: bool = False
    steered: bool = False
    unheard: bool = False


class Reply(_Entry, frozen=True, tag="assistant"):
    """What a model said. `partial`: no whole reply has come, be it that more will or not.

    `reasoning` is for display alone.
    """

    turn: int
    text: str = ""
    reasoning: str = ""
    partial: bool = False
    stop: Literal["stop", "length", "refusal"] = "stop"
    model: str = ""


class Card(_Entry, frozen=True, tag="tool"):
    """A tool call that the reply of this `turn` asked for. Its id is ours, and all it goes by.

    `result` is what the model was told; when that was shortened, `blob` holds the whole.
    """

    turn: int
    name: str
    arguments: str
    state: Literal["pending", "asking", "running", "done"]
    result: str = ""
    outcome: Outcome | None = None
    error: bool = False
    seconds: float = 0.0
    blob: BlobRef | None = None
    rule: str = ""


class Question(_Entry, frozen=True, tag="approval"):
    """What a person was asked about a call, and what came of it."""

    call_id: str
    tool: str
    state: Literal["pending", "answered", "expired", "withdrawn"]
    subject: str = ""
    reason: str = ""
    doubt: str = ""
    expires_at: float = 0.0
    choice: Choice | None = None
    by: str = ""


What: TypeAlias = Literal[
    "stopping", "stopped", "failed", "incomplete", "lost", "tripped", "waiting"
]


class Notice(_Entry, frozen=True, tag="notice"):
    """What happened to the run itself, in words that claim no more than is on record."""

    what: What
    words: str
    code: str = ""


Meaning: TypeAlias = Literal[
    "resuming", "still_arriving", "recovered", "nothing_came", "some_may_be_lost"
]
Cause: TypeAlias = Literal["restart", "lost_worker", "unknown"]


class Mark(_Entry, frozen=True, tag="marker"):
    """What a reader should know about the end of what is above: see `core.marker`."""

    meaning: Meaning
    cause: Cause
    words: str
    attempts: int = 0


Entry: TypeAlias = Said | Reply | Card | Question | Notice | Mark
