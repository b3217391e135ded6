"""How many files the server may have open. Each connection is one, a reader's as well as a model's."""

from __future__ import annotations

import resource
from contextlib import suppress

#: More than any server here needs, and few enough for a program that goes through all of them.
MOST = 65_536

#: For journals, pipes and whatever else is no connection.
RESERVED = 64


def allow_many() -> int:
    """Have as many as the system lets us, and say how many that is.

    Most systems let a program begin with 1,024, which five hundred runs would use up; how many it
    may take is another matter. Who has none left can take no connection, nor refuse one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return MOST if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError, ValueError):  # some systems have another limit, and name it nowhere
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft  # pragma: no cover (macOS)


def for_callers(files: int) -> int:
    """Connections that may be taken. As many are for the models that are called meanwhile."""
    return max((files - RESERVED) // 2, 1)
