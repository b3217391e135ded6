"""A few runs written straight into a store, and a diary of what the store acknowledged."""

from collections.abc import Sequence
from contextlib import aclosing
from hashlib import sha256
from random import Random

from holdfast.calls.tasks import task_group
from holdfast.core.events import InputAdded, RunCompleted, StopRequested
from holdfast.core.messages import Text
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED, said


async def at_once(call):
    return await call()


class Diary:
    """`attempt` makes each call, and may make it again. `kept` is what was acknowledged, by run."""

    def __init__(self, store, *, attempt=at_once, mark=lambda _: None):
        self.store, self._attempt, self._mark = store, attempt, mark
        self.kept = {}

    async def accept(self, run_id):
        self._keep(run_id, [await self._attempt(lambda: self.store.accept(run_id, ACCEPTED))])

    async def append(self, lease, *events, blobs={}):  # noqa: B006 (never changed)
        seen = len(self.kept[lease.run_id])
        news = await self._attempt(
            lambda: self.store.append(lease, *events, seen=seen, blobs=blobs)
        )
        self._keep(lease.run_id, news)

    async def wish(self, run_id, wish):
        seen = len(self.kept[run_id])
        self._keep(run_id, await self._attempt(lambda: self.store.wish(run_id, wish, seen=seen)))

    async def claim(self):
        """Every run that is ready, by its id."""
        leases = await self._attempt(lambda: self.store.claim("a", ttl=60.0, limit=10))
        return {lease.run_id: lease for lease in leases}

    async def follow(self, run_id):
        """Somebody hears of everything, too, and may hear of it first."""
        async with aclosing(self.store.follow(run_id)) as events:
            async for recorded in events:
                self._mark((run_id, recorded.seq))

    def _keep(self, run_id, news: Sequence):
        self.kept.setdefault(run_id, []).extend(news)
        for recorded in news:
            self._mark((run_id, recorded.seq))

    @property
    def bodies(self):
        return {id: [recorded.body for recorded in kept] for id, kept in self.kept.items()}


async def keep_a_diary(diary, name="run"):
    """Three runs: one is written to its end, one is stopped, one goes on. Some 30 events."""
    one, two, three = (f"{name}_{number}" for number in (1, 2, 3))
    for run_id in (one, two, three):
        await diary.accept(run_id)
    leases = await diary.claim()
    async with task_group() as tasks:
        tasks.start_soon(diary.follow, one)
        tasks.start_soon(diary.follow, two)
        for run_id in (one, two, three):
            await diary.append(leases[run_id], STARTED, CALLED)
        picture = bytes(range(256)) * 20
        blobs = {sha256(picture).hexdigest(): picture}
        await diary.append(leases[one], said("Here is a picture."), blobs=blobs)
        for number in range(5):
            await diary.append(leases[one], said(f"one, {number} "))
            await diary.append(leases[three], said(f"three, {number} " * 50))
        await diary.wish(two, InputAdded(parts=(Text("and this"),)))
        await diary.append(leases[two], said(Random(1).randbytes(37_500).hex()))
        await diary.wish(two, StopRequested())
        await diary.append(leases[two], RunCompleted())
        await diary.append(leases[one], said("Done."), RunCompleted())


async def read_all(store, diary):
    """What the store has of each run in the diary."""
    return {
        run_id: [recorded.body for recorded in await store.read(run_id)] for run_id in diary.kept
    }
