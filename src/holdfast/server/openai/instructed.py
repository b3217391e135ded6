"""Instructions among what was said. Unlike those of one request, they hold for all that follows.

A model is told them with the others, before anything else; so they are kept beside the conversation,
with each run all that hold for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.events import RunAccepted
from holdfast.ports import Store
from holdfast.server.content import Instruction, short
from holdfast.server.openai.request import read_echo
from holdfast.server.requests import LONGEST_INSTRUCTIONS

#: Runs that are looked at together.
_PAGE = 20


def together(
    earlier: Iterable[Instruction], new: tuple[Instruction, ...]
) -> tuple[Instruction, ...]:
    """What holds from now on. What is said again counts as said now: some say all of it each time.

    Raises Problem if it is too much.
    """
    all_of_it = (*(one for one in earlier if one not in new), *new)
    short("".join(one.text for one in all_of_it), "input", LONGEST_INSTRUCTIONS)
    return all_of_it


async def in_session(store: Store, session_id: str) -> tuple[Instruction, ...]:
    """What holds in a session: the last of its runs that says so says all of it."""
    # Nearly always that is the very last.
    before, limit = "", 1
    while entries := await store.list(session=session_id, before=before, limit=limit):
        for entry in entries:
            accepted = entry.first.event
            if isinstance(accepted, RunAccepted):
                known = read_echo(accepted).instructed
                if known is not None:
                    return known
        before, limit = entries[-1].run_id, _PAGE
    return ()
