"""The names that this server goes by, against pages that reach it under one of their own.

What counts is the name: a page can have any name of its maker's lead here, and not one of ours. Through which
port it came is told as well, and has to be right where it is known.
"""

from __future__ import annotations

import re

from holdfast.config.settings import ServerSettings
from holdfast.server.problems import Problem, malformed

_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
#: Where to listen, and nobody's name.
_ANY = ("0.0.0.0", "::")  # noqa: S104 (nothing is bound here)
_AUTHORITY = re.compile(rb"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


class Names:
    """`port` is where this server listens. A proxy in front of it may listen at any other."""

    def __init__(self, settings: ServerSettings, port: int) -> None:
        ours = (*settings.hosts, settings.host)
        named = [_spelled(name) for name in ours if name not in _ANY]
        alone = frozenset(name for name in named if not _has_port(name))
        ported = frozenset(
            b"%b:%d" % (name, port) for name in alone.union(map(_spelled, _LOOPBACK))
        )
        self._known = alone.union(named, map(_spelled, _LOOPBACK), ported)
        self._at_any_port = alone if settings.behind_proxy else frozenset()

    def check(self, host: bytes) -> None:
        """Raises Problem unless it is one of ours."""
        if host in self._known:
            return
        said = _AUTHORITY.fullmatch(host)
        if said is None:
            words = "the request must say in one Host header whom it is for"
            raise malformed(words, code="invalid_host")
        if said[1] in self._at_any_port:
            return
        words = "this server does not go by that name; if it should, add it to [server] hosts"
        raise Problem(421, words, code="wrong_host")


def _spelled(name: str) -> bytes:
    """As it stands in the header: an address of many colons is in brackets."""
    return (f"[{name}]" if name.count(":") > 1 and name[0] != "[" else name).lower().encode()


def _has_port(name: bytes) -> bool:
    return name.rpartition(b":")[2].isdigit() and not name.endswith(b"]")
