"""What every store promises about taking runs in: once, in a queue, in a list. To be inherited.

A continuation of `contracts.StoreContract`, for the same fixture `store`; `wait` lets wall time
pass for it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core.codec import Link, link_messages
from holdfast.core.events import RunCancelled, RunCompleted, StopRequested
from holdfast.core.messages import Text, UserMessage
from holdfast.errors import AlreadyAccepted, Conflict, KeyReused, NotFound
from holdfast.ports import Census, Once, Store
from holdfast.testing.contracts import ACCEPTED, TTL, held

ONCE = Once("ada", "key-1", "abc")


def conversation(length: int) -> tuple[Link, ...]:
    """The first so many messages of one that goes on and on."""
    return link_messages(UserMessage(parts=(Text(f"{n}: " + "word " * n),)) for n in range(length))


class IntakeContract:
    async def test_a_conversation_comes_with_a_run_and_goes_on_with_the_next(
        self, store: Store
    ) -> None:
        long = conversation(9)
        for run_id, links in (("run_1", long[:7]), ("run_2", long), ("run_3", long[:2])):
            await store.accept(run_id, ACCEPTED, history=links)
        for link in (long[1], long[6], long[8]):
            bodies = [one.body for one in long[: long.index(link) + 1]]
            assert list(await store.chain(link.name)) == bodies

    async def test_a_conversation_that_was_one_blob_is_a_chain_of_one(self, store: Store) -> None:
        body = msgspec.json.encode((UserMessage(parts=(Text("hi"),)),))
        name = sha256(body).hexdigest()
        await store.accept("run_1", ACCEPTED, blobs={name: body})
        assert list(await store.chain(name)) == [body]

    async def test_a_run_that_is_refused_leaves_no_conversation_behind(self, store: Store) -> None:
        (link,) = conversation(1)
        await store.accept("run_1", ACCEPTED)
        with pytest.raises(Conflict):
            await store.accept("run_1", ACCEPTED, history=(link,))
        with pytest.raises(NotFound):
            await store.chain(link.name)

    async def test_a_request_is_taken_in_once(self, store: Store) -> None:
        await store.accept("run_1", ACCEPTED, once=ONCE)
        with pytest.raises(AlreadyAccepted) as again:
            await store.accept("run_2", ACCEPTED, once=ONCE)
        assert again.value.run_id == await store.accepted(ONCE) == "run_1"
        with pytest.raises(NotFound):
            await store.read("run_2")

    async def test_one_of_many_at_once_is_taken_in(self, store: Store) -> None:
        refused = []

        async def take(number: int) -> None:
            try:
                await store.accept(f"run_{number}", ACCEPTED, once=ONCE)
            except AlreadyAccepted as error:
                refused.append(error.run_id)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(take, number)
        assert refused == [await store.accepted(ONCE)] * 19

    async def test_another_request_under_the_same_key_is_refused(self, store: Store) -> None:
        await store.accept("run_1", ACCEPTED, once=ONCE)
        other = replace(ONCE, fingerprint="xyz")
        with pytest.raises(KeyReused):
            await store.accept("run_2", ACCEPTED, once=other)
        with pytest.raises(KeyReused):
            await store.accepted(other)

    async def test_a_key_is_its_owners_alone(self, store: Store) -> None:
        await store.accept("run_1", ACCEPTED, once=ONCE)
        bob = replace(ONCE, principal="bob", fingerprint="xyz")
        assert await store.accepted(bob) is None
        await store.accept("run_2", ACCEPTED, once=bob)

    async def test_a_key_is_forgotten_after_a_day_and_not_before(
        self, store: Store, wait: Callable[[float], None]
    ) -> None:
        await store.accept("run_1", ACCEPTED, once=ONCE)
        wait(24 * 3600 - 1)
        assert await store.accepted(ONCE) == "run_1"
        wait(2)
        assert await store.accepted(ONCE) is None
        await store.accept("run_2", ACCEPTED, once=replace(ONCE, fingerprint="xyz"))

    async def test_where_the_latest_counts_a_request_is_taken_in_again_and_leads_to_that(
        self, store: Store, wait: Callable[[float], None]
    ) -> None:
        latest = replace(ONCE, latest=True)
        for run_id in ("run_1", "run_2"):
            await store.accept(run_id, ACCEPTED, once=latest)
            assert await store.accepted(latest) == run_id
        # One that is refused changes nothing.
        with pytest.raises(Conflict):
            await store.accept("run_1", ACCEPTED, once=latest)
        assert await store.accepted(latest) == "run_2"
        wait(24 * 3600 + 1)
        assert await store.accepted(latest) is None

    async def test_runs_are_listed_the_newest_first_and_page_by_page(self, store: Store) -> None:
        for number in range(5):
            await store.accept(f"run_{number}", ACCEPTED)
        first = await store.list(limit=2)
        assert [entry.run_id for entry in first] == ["run_4", "run_3"]
        rest = await store.list(before="run_3", limit=10)
        assert [entry.run_id for entry in rest] == ["run_2", "run_1", "run_0"]
        assert await store.list(before="run_0") == []
        with pytest.raises(NotFound):
            await store.list(before="run_9")

    async def test_a_list_may_be_of_a_session_or_of_what_lives(self, store: Store) -> None:
        lease = await held(store, "run_2")
        await store.append(lease, RunCancelled(), seen=1)
        await store.accept("run_1", replace(ACCEPTED, session_id="s"))
        await store.accept("run_3", ACCEPTED)

        async def ids(**filters: object) -> list[str]:
            return [entry.run_id for entry in await store.list(**filters)]  # type: ignore[arg-type]

        assert await ids(session="s") == ["run_1"]
        assert await ids(session="t") == []
        assert await ids(live=True) == ["run_3", "run_1"]
        assert await ids(live=False) == ["run_2"]

    async def test_an_entry_has_the_beginning_and_the_last_of_a_run(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, RunCompleted(), seen=1)
        (entry,) = await store.list()
        journal = await store.read("run_1")
        assert (entry.first, entry.last) == (journal[0], journal[-1])

    async def test_the_queue_is_in_the_order_in_which_it_is_served(self, store: Store) -> None:
        for number in range(3):
            await store.accept(f"run_{number}", ACCEPTED)
            await anyio.sleep(0.01)
        assert await store.queue() == ["run_0", "run_1", "run_2"]
        (lease,) = await store.claim("a", ttl=60.0)
        assert (lease.run_id, await store.queue()) == ("run_0", ["run_1", "run_2"])
        await store.release(lease, seen=1, ready_in=3600.0)
        assert await store.queue() == ["run_1", "run_2"]

    async def test_a_census_counts_every_run_that_lives_once(self, store: Store) -> None:
        assert await store.census() == Census(queued=0, running=0)
        for number in range(4):
            await store.accept(f"run_{number}", ACCEPTED)
        assert await store.census() == Census(queued=4, running=0)
        one, two, three = await store.claim("a", ttl=60.0, limit=3)
        assert await store.census() == Census(queued=1, running=3, held=3)
        await store.append(one, RunCompleted(), seen=1)
        assert await store.census() == Census(queued=1, running=2, held=2)
        await store.release(one, seen=2, ready_in=0.0)
        await store.release(two, seen=1, ready_in=None)
        await store.release(three, seen=1, ready_in=0.0)
        assert await store.census() == Census(queued=2, running=1)

    async def test_a_run_that_is_to_be_stopped_counts_as_that_wherever_it_is(
        self, store: Store
    ) -> None:
        for number in range(4):
            await store.accept(f"run_{number}", ACCEPTED)
        one, two = await store.claim("a", ttl=60.0, limit=2)
        await store.release(two, seen=1, ready_in=None)
        assert await store.census() == Census(queued=2, running=2, held=1)
        for number in range(3):
            for _ in range(2):
                await store.wish(f"run_{number}", StopRequested())
        assert await store.census() == Census(queued=1, running=3, stopping=3)
        await store.append(one, RunCancelled(), seen=3)
        assert await store.census() == Census(queued=1, running=2, stopping=2)

    async def test_a_stop_that_stands_is_not_written_again_and_who_asks_is_heard(
        self, store: Store
    ) -> None:
        lease = await held(store)
        await store.wish("run_1", StopRequested(reason="first"))
        await store.release(lease, seen=2, ready_in=3600.0)
        assert await store.queue() == []
        past = await store.wish("run_1", StopRequested(reason="second"), seen=1)
        assert [one.event for one in past] == [StopRequested(reason="first")]
        assert await store.queue() == ["run_1"]
        assert len(await store.read("run_1")) == 2
        with pytest.raises(NotFound):
            await store.wish("run_none", StopRequested())

    async def test_a_run_whose_time_has_come_counts_as_queued(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=TTL)
        assert await store.census() == Census(queued=0, running=1)
        await anyio.sleep(TTL * 1.5)
        assert await store.census() == Census(queued=1, running=0)
