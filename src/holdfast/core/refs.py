"""Which blobs a journal refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.core.codec import decode_history, link_before
from holdfast.core.events import (
    Event,
    InputAdded,
    InputEdited,
    RunAccepted,
    ToolFinished,
    Unknown,
)
from holdfast.core.messages import BlobRef, Image, Part, pictures


def refs(event: Event | Unknown) -> Iterator[BlobRef]:
    """The blobs that an event refers to."""
    match event:
        case RunAccepted(input=parts, history=history):
            yield from history
            yield from _pictures(parts)
        case InputAdded(parts=parts) | InputEdited(parts=parts):
            yield from _pictures(parts)
        case ToolFinished(blob=BlobRef() as ref):
            yield ref


def needs(history: bytes) -> Iterator[str]:
    """The blobs that one which is a conversation, or part of one, refers to. Raises StoreError."""
    if before := link_before(history):
        yield before
    for ref in pictures(decode_history((history,))):
        yield ref.sha256


def histories(event: Event | Unknown, here: Mapping[str, bytes]) -> Sequence[Sequence[str]]:
    """The blobs of each conversation that came with the run, as far as they are here, the oldest
    first. Raises StoreError.
    """
    chains = []
    for head in event.history if isinstance(event, RunAccepted) else ():
        names, name = [], head.sha256
        while name in here:
            names.append(name)
            name = link_before(here[name])
        chains.append(names[::-1])
    return chains


def all_refs(event: Event | Unknown, here: Mapping[str, bytes]) -> Iterator[str]:
    """Their names, with those in the conversation that came with the run, if that is here."""
    for ref in refs(event):
        yield ref.sha256
    for names in histories(event, here):
        for name in names:
            yield from needs(here[name])


def _pictures(parts: tuple[Part, ...]) -> Iterator[BlobRef]:
    for part in parts:
        if isinstance(part, Image) and part.blob:
            yield part.blob
