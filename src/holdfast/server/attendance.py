"""Who reads which run, for those that are to end with their last reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

import anyio


@dataclass
class _Room:
    """`guards` wait for it to be empty. `stirred` is set when anybody comes or goes."""

    readers: int = 0
    guards: int = 0
    stirred: asyncio.Event = field(default_factory=asyncio.Event)

    def stir(self) -> None:
        self.stirred.set()
        self.stirred = asyncio.Event()


class Attendance:
    def __init__(self) -> None:
        self._rooms: dict[str, _Room] = {}

    @contextmanager
    def reading(self, run_id: str) -> Iterator[None]:
        """Somebody reads it for as long as this lasts."""
        room = self._rooms.setdefault(run_id, _Room())
        room.readers += 1
        room.stir()
        try:
            yield
        finally:
            room.readers -= 1
            room.stir()
            self._clear(run_id, room)

    async def deserted(self, run_id: str, seconds: float) -> None:
        """Return once nobody has read it for so long. Whoever looks in, however briefly, counts."""
        room = self._rooms.setdefault(run_id, _Room())
        room.guards += 1
        try:
            while await _stirs(room, within=inf if room.readers else seconds):
                pass
        finally:
            room.guards -= 1
            self._clear(run_id, room)

    def _clear(self, run_id: str, room: _Room) -> None:
        if not room.readers and not room.guards:
            del self._rooms[run_id]


async def _stirs(room: _Room, *, within: float) -> bool:
    stirred = room.stirred
    with anyio.move_on_after(within):
        await stirred.wait()
    # It may have been at the last moment.
    return stirred.is_set()
