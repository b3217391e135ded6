"""Who is at the other end of a connection, if that is elsewhere, and how many they have in all.

Whoever comes from this machine, or through a proxy that all come through, is nobody in particular:
others would be shut out with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from holdfast.config.addresses import is_loopback

#: Connections that one address may have at once: far more than a household follows runs with.
MOST = 256

#: Where somebody is, as the socket tells: the host, and the port.
Client = Sequence[Any] | None


def stranger(client: Client, *, proxied: bool) -> str:
    """The address of one who is elsewhere, and "" for anybody else."""
    if proxied or not client:
        return ""
    return "" if is_loopback(client[0]) else str(client[0])


class Callers:
    """`known` tells whom to count as one, and to whom nothing is counted. One may have `most`
    connections, and all together `in_all`."""

    def __init__(
        self, known: Callable[[Client], str], *, most: int = MOST, in_all: float = inf
    ) -> None:
        self._known, self._most, self._in_all = known, most, in_all
        self._lines: Counter[str] = Counter()
        self._count = 0

    def come(self, client: Client) -> str:
        """One more. Says why not, if that is one too many; it counts all the same until it goes."""
        address = self._known(client)
        self._count += 1
        if address:
            self._lines[address] += 1
        if self._lines.get(address, 0) > self._most:
            return "this address has as many connections as it may have"
        if self._count > self._in_all:
            return "the server has as many connections as it may have"
        return ""

    def go(self, client: Client) -> None:
        self._count -= 1
        address = self._known(client)
        if self._lines.get(address, 0) <= 1:
            self._lines.pop(address, None)
        else:
            self._lines[address] -= 1
