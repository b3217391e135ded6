"""Secrets taken out of what leaves the machine, so that what is left is still a journal.

Only text is masked: the names of fields, and the words by which events and messages are told
apart, stay. What was streamed in pieces is looked at as a whole, since a secret may have come in
several of them.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, get_args

from holdfast.core.events import Choice, Outcome
from holdfast.core.messages import Gate
from holdfast.core.secrets import spellings

MASK = "[masked]"

#: Values that say what something is. None of them is a secret, whatever a variable may hold.
_OURS = frozenset(
    (
        *get_args(Outcome),
        *get_args(Choice),
        *get_args(Gate),
        *("drained", "rescued", "tripped", "model", "tool", "place", "stop", "length", "refusal"),
        *("context", "budget", "rescues", "text", "image", "user", "assistant"),
    )
)

#: What is streamed, and the fields that say which stream a piece is of.
_STREAMS: Mapping[str, tuple[str, ...]] = {
    "model.text": ("turn", "attempt"),
    "model.reasoning": ("turn", "attempt"),
    "tool.progress": ("call_id",),
}


class Mask:
    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: a spelling may hold another.
        found = {spelling for secret in secrets for spelling in spellings(secret)}
        ordered = sorted(found, key=lambda spelling: (-len(spelling), spelling))
        raw = (spelling.encode(errors="surrogateescape") for spelling in ordered)
        self._text = re.compile("|".join(map(re.escape, ordered)))
        self._bytes = re.compile(b"|".join(map(re.escape, raw)))

    def blobs(
        self, blobs: Mapping[str, bytes], histories: Sequence[str]
    ) -> tuple[dict[str, bytes], dict[str, tuple[str, int]]]:
        """The blobs, masked. One that was has another name then, and size: the second is both, by
        the name it had. `histories` are conversations, which may refer to other blobs, and each to
        those before it.
        """
        masked: dict[str, bytes] = {}
        renamed: dict[str, tuple[str, int]] = {}
        last = {name: place for place, name in enumerate(histories)}
        for name in sorted(blobs, key=lambda name: (last.get(name, -1), name)):
            body = blobs[name]
            if name in last:
                body = self.body(body, json.loads(body), renamed)
            else:
                body = self._bytes.sub(MASK.encode(), body)
            if body == blobs[name]:
                masked[name] = body
            else:
                renamed[name] = sha256(body).hexdigest(), len(body)
                masked[renamed[name][0]] = body
        return masked, renamed

    def bodies(
        self, bodies: Sequence[bytes], renamed: Mapping[str, tuple[str, int]]
    ) -> list[bytes]:
        """The bodies of a run's events, masked. Raises ValueError or RecursionError."""
        values = [json.loads(body) for body in bodies]
        for pieces in _streams(values):
            texts = self._pieces([piece["text"] for piece in pieces])
            for piece, text in zip(pieces, texts, strict=True):
                piece["text"] = text
        return [self.body(body, value, renamed) for body, value in zip(bodies, values, strict=True)]

    def body(self, body: bytes, value: Any, renamed: Mapping[str, tuple[str, int]]) -> bytes:
        """The bytes as they are if there is nothing to hide in this, their value."""
        tag = value.get("type") if isinstance(value, dict) else None
        value = self._walk(value, renamed)
        if tag is not None:
            value["type"] = tag
        if value == json.loads(body):
            return body
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def _walk(self, value: Any, renamed: Mapping[str, tuple[str, int]]) -> Any:
        match value:
            case str():
                return value if value in _OURS else self._text.sub(MASK, value)
            case {"sha256": str(name), "size": _} if name in renamed:
                new, size = renamed[name]
                return {**value, "sha256": new, "size": size}
            case dict():
                return {key: self._walk(part, renamed) for key, part in value.items()}
            case list():
                return [self._walk(part, renamed) for part in value]
            case _:
                return value

    def _pieces(self, pieces: Sequence[str]) -> list[str]:
        """Masked where a secret begins, and without what is left of it in the pieces behind."""
        whole = "".join(pieces)
        spans = deque(found.span() for found in self._text.finditer(whole))
        masked = []
        start = 0
        for piece in pieces:
            end, at, kept = start + len(piece), start, []
            while spans and spans[0][0] < end:
                left, right = spans[0]
                kept.append(whole[at:left] + MASK if left >= start else "")
                at = min(right, end)
                if right > end:
                    break
                spans.popleft()
            masked.append("".join(kept) + whole[at:end])
            start = end
        return masked


def _streams(values: Iterable[Any]) -> Iterator[Sequence[dict[str, Any]]]:
    """The pieces of each stream, in order."""
    streams: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for value in values:
        match value:
            case {"type": str(kind), "text": str()} if kind in _STREAMS:
                which = (kind, *(str(value.get(field)) for field in _STREAMS[kind]))
                streams.setdefault(which, []).append(value)
    yield from streams.values()
