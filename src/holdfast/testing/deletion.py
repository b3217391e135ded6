"""What every store promises about runs that are deleted. To be inherited.

A continuation of `contracts.StoreContract`, for the same fixture `store`; `wait` lets wall time
pass for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio
import pytest

from holdfast.core.events import (
    InputAdded,
    Recorded,
    RunCancelled,
    RunCompleted,
    StopRequested,
)
from holdfast.core.messages import Text
from holdfast.core.session import SessionDeleted, SessionRestored
from holdfast.errors import AlreadyAccepted, Conflict, NotFound, RunFinished, WishPending
from holdfast.ports import Census, Member, Once, Store
from holdfast.testing.contracts import ACCEPTED, STARTED, held
from holdfast.testing.conversations import ASKED, begin, claimed, end
from holdfast.testing.intake import conversation

#: More than any time that passes here.
LATER = 2.0**40


async def ended(store: Store, run_id: str = "run_1") -> None:
    """A run of no session, from its beginning to its end."""
    lease = await held(store, run_id)
    await store.append(lease, STARTED, RunCompleted(), seen=1)


async def followed(store: Store, run_id: str) -> list[Recorded]:
    async with aclosing(store.follow(run_id)) as events:
        return [recorded async for recorded in events]


class DeletionContract:
    # --- it is found no more

    async def test_a_run_that_was_deleted_is_found_by_nobody(self, store: Store) -> None:
        for run_id in ("run_1", "run_2", "run_3"):
            await ended(store, run_id)
        await store.delete("run_2", by="ada")
        for asked in (
            store.read("run_2"),
            store.read("run_2", after=99),
            followed(store, "run_2"),
            store.wish("run_2", StopRequested()),
            store.delete("run_2", by="bob"),
            store.delete("run_0"),
        ):
            with pytest.raises(NotFound):
                await asked
        for live in (None, False):
            assert [entry.run_id for entry in await store.list(live=live)] == ["run_3", "run_1"]
        # Whoever goes through a list need not lose their place in it.
        assert [entry.run_id for entry in await store.list(before="run_2")] == ["run_1"]

    async def test_its_id_is_not_given_to_another(self, store: Store) -> None:
        await ended(store)
        await store.delete("run_1")
        with pytest.raises(Conflict):
            await store.accept("run_1", ACCEPTED)

    async def test_what_it_was_is_there_for_whoever_has_to_know(self, store: Store) -> None:
        await ended(store)
        journal = list(await store.read("run_1"))
        await store.delete("run_1")
        assert list(await store.read("run_1", deleted=True)) == journal
        assert list(await store.read("run_1", after=2, deleted=True)) == journal[2:]
        with pytest.raises(NotFound):
            await store.read("run_0", deleted=True)

    async def test_a_request_that_led_to_it_is_not_taken_in_again(self, store: Store) -> None:
        once = Once("ada", "key", "abc")
        await store.accept("run_1", ACCEPTED, once=once)
        await store.delete("run_1")
        assert await store.accepted(once) == "run_1"
        with pytest.raises(AlreadyAccepted):
            await store.accept("run_2", ACCEPTED, once=once)

    # --- it had not ended

    async def test_one_under_way_is_asked_to_stop_and_its_worker_ends_it(
        self, store: Store
    ) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, seen=1)
        await store.delete("run_1", by="ada")
        with pytest.raises(NotFound):
            await store.wish("run_1", InputAdded(parts=(Text("by the way"),)))
        with pytest.raises(WishPending):
            await store.append(lease, RunCompleted(), seen=2)
        (stop,) = await store.read("run_1", after=2, deleted=True)
        assert isinstance(stop.event, StopRequested) and stop.event.by == "ada"
        await store.append(lease, RunCancelled(), seen=3)
        # Nothing that is written after it was deleted is for anybody.
        for after in (0, 2, 3, 4):
            with pytest.raises(NotFound):
                await store.read("run_1", after=after)
        assert isinstance((await store.read("run_1", deleted=True))[-1].event, RunCancelled)
        with pytest.raises(RunFinished):
            await store.append(lease, RunCancelled(), seen=4)
        assert list(await store.list()) == []

    async def test_one_that_nobody_has_is_ready_for_whoever_ends_it(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=None)
        await store.delete("run_1")
        assert list(await store.list(live=True)) == []
        assert await claimed(store) == ["run_1"]
        await store.accept("run_2", ACCEPTED)
        await store.delete("run_2")
        assert await store.seize("run_2", "door", ttl=60.0) is not None

    async def test_for_whoever_follows_it_that_is_the_end(self, store: Store) -> None:
        lease = await held(store)
        heard: list[int] = []
        began = anyio.Event()

        async def follow() -> None:
            async with aclosing(store.follow("run_1")) as events:
                async for recorded in events:
                    heard.append(recorded.seq)
                    began.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await began.wait()
            await store.delete("run_1")
        assert heard in ([1], [1, 2])
        await store.append(lease, STARTED, RunCancelled(), seen=2)

    # --- it is in a session

    async def test_what_was_said_in_a_session_stays_said_there(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        (lease,) = await store.claim("a", ttl=60.0)
        await store.delete("run_1")
        assert await claimed(store) == []
        await store.append(lease, STARTED, RunCancelled(), seen=2)
        assert await claimed(store) == ["run_2"]
        assert list(await store.members("ses_1")) == [
            Member(2, "run_2", ended=False),
            Member(1, "run_1", ended=True),
        ]
        assert [entry.run_id for entry in await store.list(session="ses_1")] == ["run_2"]
        assert await store.purge(before=LATER) == []
        assert len(await store.read("run_1", deleted=True)) == 4

    async def test_its_session_goes_on_and_goes_as_any_other(self, store: Store) -> None:
        await begin(store, "run_1")
        await store.delete("run_1")
        # One that was deleted and lives is still the one under way.
        await store.accept("run_2", ASKED, stop=StopRequested(by="bob"))
        await store.note("ses_1", SessionDeleted())
        for _ in range(2):
            (lease,) = await store.claim("a", ttl=60.0)
            seen = len(await store.read(lease.run_id, deleted=True))
            await store.append(lease, RunCancelled(), seen=seen)
        assert await store.purge(before=LATER) == ["ses_1"]
        with pytest.raises(NotFound):
            await store.read("run_1", deleted=True)

    async def test_one_that_waits_behind_another_is_counted_once(self, store: Store) -> None:
        await begin(store, "run_1", "run_2", "run_3")
        await store.delete("run_2")
        assert await store.census() == Census(queued=2, running=1, stopping=1)
        assert await claimed(store) == ["run_1", "run_2"]
        assert await store.census() == Census(queued=1, running=2, held=1, stopping=1)

    async def test_runs_of_a_session_that_was_deleted_are_not_listed(self, store: Store) -> None:
        await begin(store, "run_1")
        await store.accept("run_2", ACCEPTED)
        await store.note("ses_1", SessionDeleted())
        for live in (None, True):
            assert [entry.run_id for entry in await store.list(live=live)] == ["run_2"]
        assert list(await store.list(session="ses_1")) == []
        await store.note("ses_1", SessionRestored())
        assert [entry.run_id for entry in await store.list(session="ses_1")] == ["run_1"]

    async def test_runs_of_a_session_that_was_deleted_are_found_by_nobody(
        self, store: Store
    ) -> None:
        lease = await held(store, "run_3")
        await begin(store, "run_1", "run_2")
        await end(store)
        journal = list(await store.read("run_1"))
        await store.note("ses_1", SessionDeleted(by="ada"))
        for asked in (
            *(store.read(run_id, after=at) for run_id in ("run_1", "run_2") for at in (0, 1, 99)),
            *(followed(store, run_id) for run_id in ("run_1", "run_2")),
            store.wish("run_1", StopRequested()),
            store.delete("run_1"),
            store.delete("run_2"),
        ):
            with pytest.raises(NotFound):
                await asked
        assert list(await store.read("run_1", deleted=True)) == journal
        assert len(await store.read("run_2", deleted=True)) == 2
        # One of no session is none of it.
        await store.append(lease, STARTED, RunCompleted(), seen=1)
        assert len(await store.read("run_3")) == 3

    async def test_what_lives_in_a_session_that_was_deleted_comes_to_its_end_unseen(
        self, store: Store
    ) -> None:
        await begin(store, "run_1", "run_2")
        (lease,) = await store.claim("a", ttl=60.0)
        await store.append(lease, STARTED, seen=1)
        await store.note("ses_1", SessionDeleted())
        # Whoever sees to it that it ends may ask for that again.
        await store.wish("run_1", StopRequested())
        assert await store.renew([lease], ttl=60.0) == {"run_1": 3}
        await store.append(lease, RunCancelled(), seen=3)
        (other,) = await store.claim("a", ttl=60.0)
        await store.append(other, STARTED, RunCancelled(), seen=2)
        for run_id in ("run_1", "run_2"):
            for after in range(5):
                with pytest.raises(NotFound):
                    await store.read(run_id, after=after)
            journal = await store.read(run_id, deleted=True)
            assert len(journal) == 4 and isinstance(journal[-1].event, RunCancelled)
        assert await store.held(["run_1", "run_2"]) == frozenset()
        assert await store.purge(before=LATER) == ["ses_1"]

    async def test_with_its_session_a_run_comes_back(self, store: Store) -> None:
        await begin(store, "run_1", "run_2", "run_3")
        await end(store)
        await store.delete("run_3")
        (lease,) = await store.claim("a", ttl=60.0)
        await store.note("ses_1", SessionDeleted())
        await store.note("ses_1", SessionRestored())
        assert [len(await store.read(run_id)) for run_id in ("run_1", "run_2")] == [2, 2]
        await store.append(lease, STARTED, RunCancelled(), seen=2)
        assert [one.seq for one in await followed(store, "run_2")] == [1, 2, 3, 4]
        assert [one.seq for one in await store.read("run_2", after=2)] == [3, 4]
        # What was deleted by itself does not.
        with pytest.raises(NotFound):
            await store.read("run_3")

    async def test_for_whoever_follows_a_run_the_end_of_its_session_is_the_end(
        self, store: Store
    ) -> None:
        await begin(store, "run_1")
        heard: list[int] = []
        began = anyio.Event()

        async def follow() -> None:
            async with aclosing(store.follow("run_1")) as events:
                async for recorded in events:
                    heard.append(recorded.seq)
                    began.set()

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await began.wait()
                await store.note("ses_1", SessionDeleted())
        assert heard in ([1], [1, 2])

    # --- it goes

    async def test_in_time_it_goes_altogether_and_only_it(
        self, store: Store, wait: Callable[[float], None]
    ) -> None:
        long, once = conversation(3), Once("ada", "key", "abc")
        for run_id, links in (("run_1", long[:2]), ("run_2", long)):
            await store.accept(run_id, ACCEPTED, history=links, once=once)
            once = Once("ada", "another", "abc")
            (lease,) = await store.claim("a", ttl=60.0)
            await store.append(lease, STARTED, RunCompleted(), seen=1)
        lease = await held(store, "run_3")
        await store.delete("run_1")
        await store.delete("run_3")
        assert await store.purge(before=0.0) == []
        wait(10.0)
        await ended(store, "run_4")
        await store.delete("run_4")
        # The third has not ended, and the fourth was deleted just now.
        (gone,) = await store.purge(before=1005.0)
        assert gone == "run_1"
        with pytest.raises(NotFound):
            await store.read("run_1", deleted=True)
        assert await store.accepted(Once("ada", "key", "abc")) == "run_1"
        assert list(await store.chain(long[-1].name)) == [one.body for one in long]
        assert len(await store.read("run_2")) == 3
        await store.append(lease, STARTED, RunCancelled(), seen=2)
        assert sorted(await store.purge(before=LATER)) == ["run_3", "run_4"]
        assert [entry.run_id for entry in await store.list()] == ["run_2"]
        assert await store.purge(before=LATER) == []
