"""Who is at the other end of a connection, if that is elsewhere, and how many connections they have.

Whoever comes from this machine, or through a proxy that all come through, is nobody in particular:
others would be shut out with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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
    """`known` tells whom to count as one, and to whom nothing is counted."""

    def __init__(self, known: Callable[[Client], str], *, most: int = MOST) -> None:
        self._known, self._most = known, most
        self._lines: Counter[str] = Counter()

    def come(self, client: Client) -> bool:
        """One more. False if that is one too many; it counts all the same until it goes."""
        address = self._known(client)
        if address:
            self._lines[address] += 1
        return self._lines.get(address, 0) <= self._most

    def go(self, client: Client) -> None:
        address = self._known(client)
        if self._lines.get(address, 0) <= 1:
            self._lines.pop(address, None)
        else:
            self._lines[address] -= 1
