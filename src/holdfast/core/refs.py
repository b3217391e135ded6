"""Which blobs a journal refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.codec import decode_messages
from holdfast.core.events import (
    Event,
    InputAdded,
    InputEdited,
    RunAccepted,
    ToolFinished,
    Unknown,
)
from holdfast.core.messages import BlobRef, Image, Part, UserMessage


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


def refs_in(history: bytes) -> Iterator[BlobRef]:
    """The blobs that a conversation refers to which came with a run. Raises StoreError."""
    for message in decode_messages(history):
        if isinstance(message, UserMessage):
            yield from _pictures(message.parts)


def all_refs(event: Event | Unknown, here: Mapping[str, bytes]) -> Iterator[str]:
    """Their names, with those in the conversation that came with the run, if that is here."""
    for ref in refs(event):
        yield ref.sha256
    for ref in event.history if isinstance(event, RunAccepted) else ():
        if ref.sha256 in here:
            yield from (found.sha256 for found in refs_in(here[ref.sha256]))


def _pictures(parts: tuple[Part, ...]) -> Iterator[BlobRef]:
    for part in parts:
        if isinstance(part, Image) and part.blob:
            yield part.blob
