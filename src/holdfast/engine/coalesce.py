"""Many small texts on their way to becoming few events.

What is said while a commit is in flight gathers here and goes into the next one, so an idle
system shows every piece at once and a busy one shares its commits. Only neighbours of one
kind are joined: order is never changed, but for what has to be held back a while because it may
be the beginning of a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast.core.events import Event
from holdfast.core.secrets import NO_SECRETS, Secrets

#: Makes the event that carries a text. Pieces with an equal maker are of one kind.
Maker: TypeAlias = Callable[[str], Event]

#: Characters in one event at most. More gather into several.
EVENT_LIMIT = 16 * 1024

#: Characters to gather before whoever speaks has to wait.
FULL = 256 * 1024


class Coalescer:
    def __init__(self, secrets: Secrets = NO_SECRETS) -> None:
        self._secrets, self._hides = secrets, bool(secrets)
        self._held: dict[Maker, str] = {}
        self._pieces: list[tuple[Maker, list[str]]] = []
        self._size = 0
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def full(self) -> bool:
        return self._size >= FULL

    def add(self, make: Maker, text: str) -> str:
        """Returns what will be shown: secrets are masked, and what may begin one comes later."""
        if self._hides:
            text, held = self._secrets.part(self._held.pop(make, "") + text)
            if held:
                self._held[make] = held
        self._split(make, text)
        return text

    def end(self, make: Maker, *, cut: bool = False) -> str:
        """No more of this kind will come: returns what is shown of what was held back.

        `cut`: more was to come.
        """
        rest = self._secrets.rest(self._held.pop(make, ""), cut=cut)
        self._split(make, rest)
        return rest

    def take(self) -> tuple[Event, ...]:
        """All that gathered, as events. They are the caller's now."""
        pieces, self._pieces, self._size, self._last = self._pieces, [], 0, 0
        return tuple(make("".join(texts)) for make, texts in pieces)

    def _split(self, make: Maker, text: str) -> None:
        for start in range(0, len(text), EVENT_LIMIT):
            self._add(make, text[start : start + EVENT_LIMIT])

    def _add(self, make: Maker, text: str) -> None:
        fits = self._last + len(text) <= EVENT_LIMIT
        if self._pieces and fits and self._pieces[-1][0] == make:
            self._pieces[-1][1].append(text)
            self._last += len(text)
        else:
            self._pieces.append((make, [text]))
            self._last = len(text)
        self._size += len(text)
