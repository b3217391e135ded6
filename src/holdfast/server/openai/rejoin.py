"""A request that a client sends again by itself leads to the run that it began before.

OpenAI's clients do so when they lost the line, and name no key then; they count how often. Whoever sends
the same request on purpose begins another run. Each answer is for one who asked: who comes back is led
to a run whose answer was told to nobody, and only in a session, where to say something twice would be
wrong, to one that somebody seems to be told about: a line can be lost without our noticing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

import anyio

from holdfast.core.events import FINAL, Recorded, StopRequested
from holdfast.errors import JournalDamaged, NotFound
from holdfast.ports import Once
from holdfast.server.openai.request import OpenAIRequest
from holdfast.server.service import Service
from holdfast.server.unheard import COME_BACK

#: The header in which a client says how often it has sent this request before.
RETRIES = "X-Stainless-Retry-Count"

_AGAIN = re.compile(r"0*[1-9][0-9]{0,8}", re.ASCII)


def sent_again(headers: Mapping[str, str]) -> bool:
    return bool(_AGAIN.fullmatch(headers.get(RETRIES, "")))


def latest(body: bytes, *, principal: str, of: str) -> Once:
    """A request without a key, by all that makes it what it is. It comes again to the byte."""
    said = sha256(of.encode() + b"\0" + body).hexdigest()
    return Once(principal, f"again {said}", said, latest=True)


def rejoins(journal: Sequence[Recorded], asked: OpenAIRequest, *, left: bool) -> bool:
    """Whether who asks this again is to be led to this run. `left`: its answer was told to nobody."""
    events = [recorded.event for recorded in journal]
    if not events:
        return False
    if not asked.goes_on and any(isinstance(event, StopRequested) for event in events):
        return False  # it was for its readers alone, and they came back too late
    return left or (bool(asked.run.session_id) and not isinstance(events[-1], FINAL))


def cut_off(journal: Sequence[Recorded], *, began: float, now: float) -> bool:
    """Whether who asked for it was told nothing, as the server before the one that began then is gone.

    What had ended by then may have been told; what ended long ago is waited for by nobody.
    """
    if not journal or journal[0].at >= began:
        return False
    last = journal[-1]
    return not isinstance(last.event, FINAL) or last.at >= max(began, now - COME_BACK)


async def rejoin(
    service: Service, once: Once, asked: OpenAIRequest, before: Sequence[anyio.Event]
) -> str | None:
    """The run to which a request leads that was sent again, if to none of its own.

    `before` are the ends of the same request being taken in.
    """
    for over in before:
        await over.wait()
    while run_id := service.unheard.claim(once):
        if rejoins(await _journal(service, run_id), asked, left=True):
            return run_id
    run_id = await service.store.accepted(once)
    if run_id is None:
        return None
    journal = await _journal(service, run_id)
    left = cut_off(journal, began=service.began, now=service.clock())
    left = left and run_id not in service.unheard.inherited
    if not rejoins(journal, asked, left=left):
        return None
    if left:
        service.unheard.inherited.add(run_id)
    return run_id


async def _journal(service: Service, run_id: str) -> Sequence[Recorded]:
    """Nothing if there is no such run any more, or nobody can make sense of it."""
    # Whoever looks in keeps it from being stopped meanwhile, and for a while.
    with service.attendance.reading(run_id):
        try:
            return await service.journal(run_id)
        except (NotFound, JournalDamaged):
            return ()
