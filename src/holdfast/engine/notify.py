"""Passing on that something was recorded elsewhere.

The store hints at changes; a run that is live here is told to look, and a run that is
not may be there to claim. Hints may be missed: whoever renews and polls finds out a
little later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing

import anyio

from holdfast.engine.supervisor import Supervisor
from holdfast.errors import StoreError
from holdfast.ports import Store

#: Seconds before a broken line of hints is taken up again.
AGAIN = 1.0

_log = logging.getLogger(__name__)


async def pass_on(store: Store, supervisor: Supervisor, claim: Callable[[], None]) -> None:
    """Listen for hints for ever; call `claim` when a run may have become ready."""
    while True:
        try:
            async with aclosing(store.changes()) as changes:
                async for run_id in changes:
                    if run_id in supervisor.live:
                        supervisor.tell(run_id)
                    else:
                        claim()
        except StoreError as error:
            _log.warning("not hearing of changes: %s", error)
        await anyio.sleep(AGAIN)
