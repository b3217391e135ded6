"""What comes from elsewhere, checked before it is believed.

Anybody can write what is said to have been exported. What it says has happened is history, and
has to be one that could have happened; what it would have happen here is not obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

from holdfast.core.codec import record
from holdfast.core.events import (
    FINAL,
    Event,
    Receipt,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunStarted,
    StopRequested,
    ToolFinished,
)
from holdfast.core.refs import all_refs
from holdfast.core.run import fold, replay
from holdfast.core.state import RunState, ToolState
from holdfast.errors import IllegalEvent, JournalDamaged, StoreError

#: Seconds since 1970, up to the year 9999: what can be shown as a time.
LATEST = 253_402_300_799.0

#: Epochs count grants of one run. Beyond this, others would not read the same number.
HIGHEST_EPOCH = 2**53

#: Characters of an id, and what a file system takes for more than a name.
LONGEST_ID = 128
_NO_NAME = (" ", "/", "\\", "..")

#: Who closes what is taken in.
WORKER = "import"

_NOT_CARRIED = "it had not ended where it came from, and is not carried on here"


def is_id(text: str) -> bool:
    fits = 1 <= len(text) <= LONGEST_ID and text.isprintable()
    return fits and not any(part in text for part in _NO_NAME)


def check_story(run_id: str, recorded: Sequence[Recorded]) -> None:
    """Raises JournalDamaged unless this could be the journal of a run."""
    if not recorded or not isinstance(recorded[0].event, RunAccepted):
        raise JournalDamaged(run_id, 1, "a run begins by being accepted, and this one does not")
    if not recorded[0].event.models or not recorded[0].event.input:
        raise JournalDamaged(run_id, 1, "a run has something to do and a model to do it")
    for one in recorded:
        _check_place(run_id, one, last=one is recorded[-1])
    try:
        replay(recorded)
    except IllegalEvent as error:
        raise JournalDamaged(run_id, len(recorded), str(error)) from error


def _check_place(run_id: str, one: Recorded, *, last: bool) -> None:
    if not 0 <= one.at <= LATEST:
        raise JournalDamaged(run_id, one.seq, "its time is none that a clock shows")
    if isinstance(one.event, RunStarted) and not 0 < one.event.epoch < HIGHEST_EPOCH:
        raise JournalDamaged(run_id, one.seq, "its epoch is none that a worker has")
    if isinstance(one.event, FINAL) and not last:
        raise JournalDamaged(run_id, one.seq + 1, "it comes after the end of the run")


def check_blobs(
    run_id: str, recorded: Sequence[Recorded], here: Mapping[str, bytes]
) -> frozenset[str]:
    """The names of those that the run needs. Raises JournalDamaged if one of them is missing."""
    needed: set[str] = set()
    for one in recorded:
        try:
            needed.update(all_refs(one.event, here))
        except StoreError as error:
            raise JournalDamaged(run_id, one.seq, str(error)) from error
        for name in sorted(needed - here.keys()):
            raise JournalDamaged(run_id, one.seq, f"blob {name} did not come with it")
    return frozenset(needed)


def check_names(id: str, here: Mapping[str, bytes], *, kind: str = "run") -> None:
    """Raises JournalDamaged unless each is what its name says."""
    for name, data in here.items():
        if sha256(data).hexdigest() != name:
            raise JournalDamaged(id, 1, f"blob {name[:LONGEST_ID]} is not what it was", kind=kind)


def closed(tool: ToolState) -> ToolFinished:
    """What becomes of an open call: a model that is told so asks again, where it is reviewed."""
    if tool.starts:
        told = "the run was carried elsewhere meanwhile; it may have had effects, so find out first"
        return ToolFinished(call_id=tool.call.id, outcome="unknown", output=told)
    told = "the run was carried elsewhere before it began; ask again if it is still needed"
    return ToolFinished(call_id=tool.call.id, outcome="not_started", output=told)


def end(recorded: Sequence[Recorded], *, at: float) -> Sequence[Recorded]:
    """The same, and what ends it if it has not ended: it is a story that was told to us."""
    state = replay(recorded)
    return recorded if state.status.final else [*recorded, *placed(state, at, _ending(state))]


def _ending(state: RunState) -> Iterator[Event]:
    """As a worker would write it that takes the run over and is told to stop it."""
    yield StopRequested(by=WORKER, reason=_NOT_CARRIED)
    yield RunStarted(worker=WORKER, epoch=state.epoch + 1)
    for tool in state.open_tools:
        yield closed(tool)
    cut = bool(state.attempt and state.attempt.open)
    yield RunCancelled(receipt=Receipt(model_calls=int(cut), may_bill=cut))


def placed(state: RunState, at: float, events: Iterable[Event]) -> Iterator[Recorded]:
    """These events, each in its place after what has happened."""
    for event in events:
        one = record(state.seq + 1, at, event)
        state = fold(state, one)
        yield one
