"""Finding runs whose worker vanished, and queueing them again.

A rescue is recorded, so that a run which takes its workers down with it is given up in the end.
Whoever rescues fences the old worker first: by then anything it still writes is refused.
"""

from __future__ import annotations

from collections.abc import Container

from holdfast.engine.scribe import Scribe
from holdfast.errors import LeaseLost
from holdfast.ports import Store


async def rescue(store: Store, worker: str, *, ttl: float, live: Container[str] = ()) -> list[str]:
    """Queue every orphan again. Returns which; one that another rescuer has is left to it.

    Runs that are `live` here are no orphans, however late the worker is to renew them: after
    a pause of the whole process it may rescue before it renews.
    """
    rescued = []
    for run_id in await store.orphans():
        lease = None if run_id in live else await store.seize(run_id, worker, ttl=ttl)
        if lease is None:
            continue
        try:
            scribe = await Scribe.open(store, lease)
            await scribe.give_back("rescued", worker=scribe.state.worker)
            await store.release(lease, seen=scribe.state.seq, ready_in=0.0)
        except LeaseLost:
            continue
        rescued.append(run_id)
    return rescued
