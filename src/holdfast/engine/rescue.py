"""Finding runs whose worker vanished, and queueing them again.

A rescue is recorded, so that a run which takes its workers down with it is given up in the end.
Whoever rescues fences the old worker first: by then anything it still writes is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Container

from holdfast.engine.scribe import Scribe
from holdfast.errors import HoldfastError, LeaseLost, StoreFull, StoreUnavailable
from holdfast.ports import Store

#: Seconds before a run whose journal makes no sense is looked at again, whoever wishes what.
LEFT_ALONE = 600.0
UNSEEN = 2**62

_log = logging.getLogger(__name__)


async def rescue(
    store: Store,
    worker: str,
    *,
    ttl: float,
    live: Container[str] = (),
    only: Container[str] | None = None,
) -> list[str]:
    """Queue every orphan, or every one of `only`, again. Returns which; one that another rescuer
    has is left to it.

    Runs that are `live` here are no orphans, however late the worker is to renew them: after
    a pause of the whole process it may rescue before it renews.
    """
    rescued = []
    for run_id in await store.orphans():
        unwanted = run_id in live or (only is not None and run_id not in only)
        lease = None if unwanted else await store.seize(run_id, worker, ttl=ttl)
        if lease is None:
            continue
        try:
            scribe = await Scribe.open(store, lease)
            await scribe.give_back("rescued", worker=scribe.state.worker)
            await store.release(lease, seen=scribe.state.seq, ready_in=0.0)
        except LeaseLost:
            continue
        except (StoreFull, StoreUnavailable):
            raise
        except HoldfastError:
            # Its trouble is its own, and must not keep the others from being rescued.
            _log.exception(
                "run %s cannot be rescued; it is left alone for a while",
                run_id,
                extra={"run_id": run_id},
            )
            await store.release(lease, seen=UNSEEN, ready_in=LEFT_ALONE, aside=True)
            continue
        rescued.append(run_id)
    return rescued
