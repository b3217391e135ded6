"""What every store, model and tool must do, as tests to inherit.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()

The memory store passes them and so does every other, so a test that runs on the one says
something about the rest. They take as little real time as they can, on any event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from hashlib import sha256

import anyio
import anyio.lowlevel
import pytest

from holdfast.core.codec import encode
from holdfast.core.events import (
    InputAdded,
    ModelCalled,
    ModelChoice,
    Recorded,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    RunStarted,
    StopRequested,
    TextStreamed,
)
from holdfast.core.lease import Lease
from holdfast.core.messages import Done, Request, Text, UserMessage
from holdfast.errors import (
    Conflict,
    InvalidRequest,
    LeaseLost,
    ModelError,
    NotFound,
    RunFinished,
    StoreUnavailable,
    ToolError,
    WishPending,
)
from holdfast.ports import Model, Store, Tool

ACCEPTED = RunAccepted(input=(Text("hi"),), models=(ModelChoice("model"),))
STARTED = RunStarted(worker="a", epoch=1)
CALLED = ModelCalled(turn=1, attempt=1, model="model")

#: Seconds. Long enough to do something in, short enough to wait for.
TTL = 0.4


def said(text: str) -> TextStreamed:
    return TextStreamed(turn=1, attempt=1, text=text)


async def held(store: Store, run_id: str = "run_1", *, ttl: float = 60.0) -> Lease:
    """A run that was accepted and claimed."""
    await store.accept(run_id, ACCEPTED)
    (lease,) = await store.claim("a", ttl=ttl)
    assert lease.run_id == run_id
    return lease


class StoreContract:
    """The promises of `ports.Store`. Give it a fixture `store`, empty each time."""

    # --- the journal

    async def test_what_is_accepted_can_be_read(self, store: Store) -> None:
        first = await store.accept("run_1", ACCEPTED)
        assert (first.seq, first.event) == (1, ACCEPTED)
        assert list(await store.read("run_1")) == [first]

    async def test_a_run_is_accepted_once(self, store: Store) -> None:
        await store.accept("run_1", ACCEPTED)
        with pytest.raises(Conflict):
            await store.accept("run_1", ACCEPTED)
        assert len(await store.read("run_1")) == 1

    async def test_a_run_that_never_was_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.read("run_0")
        with pytest.raises(NotFound):
            await store.wish("run_0", StopRequested())
        with pytest.raises(NotFound):
            await store.append(Lease("run_0", "a", 1), STARTED, seen=0)
        with pytest.raises(NotFound):
            async with aclosing(store.follow("run_0")) as events:
                await anext(events)

    async def test_events_stand_in_order_without_gaps(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, seen=1)
        news = await store.append(lease, said("a"), said("b"), seen=3)
        assert [recorded.seq for recorded in news] == [4, 5]
        assert [recorded.seq for recorded in await store.read("run_1")] == [1, 2, 3, 4, 5]
        assert [recorded.seq for recorded in await store.read("run_1", after=3)] == [4, 5]
        assert [recorded.seq for recorded in await store.read("run_1", after=2, most=1)] == [3]
        assert list(await store.read("run_1", after=99)) == []

    async def test_bytes_are_kept_as_they_were_written(self, store: Store) -> None:
        lease = await held(store)
        odd = said("\u2028\u2029\u0085\x00\x1f\U0001f600\\\"'")
        (recorded,) = await store.append(lease, odd, seen=1)
        (read,) = await store.read("run_1", after=1)
        assert read.body == recorded.body == encode(odd)
        assert read.event == odd

    async def test_a_batch_is_written_whole_or_not_at_all(self, store: Store) -> None:
        lease = await held(store)
        with pytest.raises(InvalidRequest):
            await store.append(lease, said("fine"), said("\ud83d"), seen=1)
        assert len(await store.read("run_1")) == 1

    async def test_a_writer_is_told_what_slipped_in(self, store: Store) -> None:
        lease = await held(store)
        await store.wish("run_1", StopRequested(by="ada"))
        news = await store.append(lease, STARTED, seen=1)
        assert [type(recorded.event) for recorded in news] == [StopRequested, RunStarted]

    async def test_whoever_wishes_is_told_what_came_before(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, seen=1)
        news = await store.wish("run_1", StopRequested(), seen=1)
        assert [type(recorded.event) for recorded in news] == [RunStarted, StopRequested]

    async def test_twenty_writers_at_once_lose_nothing_and_leave_no_gap(self, store: Store) -> None:
        await store.accept("run_1", ACCEPTED)

        async def wish(number: int) -> None:
            for _ in range(5):
                await store.wish("run_1", InputAdded(parts=(Text(str(number)),)))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(wish, number)
        journal = await store.read("run_1")
        assert [recorded.seq for recorded in journal] == list(range(1, 102))
        texts = [r.event.parts[0] for r in journal if isinstance(r.event, InputAdded)]
        assert sorted(text.text for text in texts if isinstance(text, Text)) == sorted(
            str(number) for number in range(20) for _ in range(5)
        )

    async def test_reading_changes_nothing(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, CALLED, seen=1)
        before = [recorded.body for recorded in await store.read("run_1")]
        for after in (0, 1, 99):
            await store.read("run_1", after=after)
            with anyio.move_on_after(0.01):
                async with aclosing(store.follow("run_1", after=after)) as events:
                    async for _ in events:
                        pass
        await store.next_ready()
        await store.orphans()
        assert [recorded.body for recorded in await store.read("run_1")] == before
        assert len(await store.append(lease, said("a"), seen=3)) == 1

    # --- the end

    async def test_the_end_is_the_end(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, RunCompleted(), seen=1)
        with pytest.raises(RunFinished):
            await store.append(lease, CALLED, seen=3)
        with pytest.raises(RunFinished):
            await store.wish("run_1", StopRequested())
        assert (await store.seize("run_1", "b", ttl=TTL), *await store.held(["run_1"])) == (None,)
        assert len(await store.read("run_1")) == 3

    async def test_a_final_event_waits_for_a_wish_to_be_seen(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, seen=1)
        await store.wish("run_1", StopRequested())
        with pytest.raises(WishPending):
            await store.append(lease, RunCompleted(), seen=2)
        assert len(await store.read("run_1")) == 3
        await store.append(lease, RunCancelled(), seen=3)
        assert len(await store.read("run_1")) == 4

    async def test_only_a_final_event_waits(self, store: Store) -> None:
        lease = await held(store)
        await store.wish("run_1", StopRequested())
        assert len(await store.append(lease, STARTED, CALLED, seen=1)) == 3

    # --- leases

    async def test_a_run_is_claimed_by_one_worker(self, store: Store) -> None:
        await store.accept("run_1", ACCEPTED)
        granted: list[Lease] = []

        async def claim(worker: str) -> None:
            granted.extend(await store.claim(worker, ttl=60.0))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(claim, f"worker_{number}")
        assert len(granted) == 1

    async def test_the_longest_ready_are_claimed_first_and_no_more_than_asked_for(
        self, store: Store
    ) -> None:
        for number in range(5):
            await store.accept(f"run_{number}", ACCEPTED)
        first = await store.claim("a", ttl=60.0, limit=3)
        rest = await store.claim("a", ttl=60.0, limit=10)
        assert [lease.run_id for lease in (*first, *rest)] == [f"run_{n}" for n in range(5)]

    async def test_a_late_writer_is_fenced_off(self, store: Store) -> None:
        old = await held(store, ttl=TTL)
        await anyio.sleep(TTL * 1.5)
        new = await store.seize("run_1", "b", ttl=60.0)
        assert new is not None and new.epoch > old.epoch
        with pytest.raises(LeaseLost):
            await store.append(old, STARTED, seen=1)
        await store.release(old, seen=1, ready_in=0.0)
        assert await store.claim("c", ttl=60.0) == []
        assert len(await store.append(new, STARTED, seen=1)) == 1

    async def test_whoever_let_go_writes_no_more(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=None)
        with pytest.raises(LeaseLost):
            await store.append(lease, STARTED, seen=1)

    async def test_a_held_run_cannot_be_seized(self, store: Store) -> None:
        await held(store)
        assert await store.seize("run_1", "b", ttl=60.0) is None

    async def test_an_expired_lease_makes_an_orphan_a_renewed_one_not(self, store: Store) -> None:
        one = await held(store, "run_1", ttl=TTL)
        two = await held(store, "run_2", ttl=TTL)
        assert await store.renew([two], ttl=60.0) == {"run_2": 1}
        await anyio.sleep(TTL * 1.5)
        assert list(await store.orphans()) == ["run_1"]
        assert await store.claim("b", ttl=60.0) == []
        assert await store.seize("run_1", "b", ttl=60.0) is not None
        assert await store.renew([one, two], ttl=60.0) == {"run_2": 1}

    async def test_an_ended_run_is_no_orphan(self, store: Store) -> None:
        lease = await held(store, ttl=TTL)
        await store.append(lease, STARTED, RunCompleted(), seen=1)
        await anyio.sleep(TTL * 1.5)
        assert list(await store.orphans()) == []

    async def test_renewing_tells_how_far_the_journal_has_come(self, store: Store) -> None:
        lease = await held(store)
        await store.wish("run_1", StopRequested())
        assert await store.renew([lease], ttl=60.0) == {"run_1": 2}

    async def test_a_resting_run_is_ready_when_a_wish_arrives(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=None)
        assert await store.claim("b", ttl=60.0) == []
        assert await store.next_ready() is None
        await store.wish("run_1", StopRequested())
        (again,) = await store.claim("b", ttl=60.0)
        assert again.epoch > lease.epoch and not again.due

    async def test_a_resting_run_is_ready_when_its_time_has_come(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=TTL, timed=True)
        assert await store.claim("b", ttl=60.0) == []
        left = await store.next_ready()
        assert left is not None and 0 < left <= TTL
        await anyio.sleep(TTL * 1.5)
        (again,) = await store.claim("b", ttl=60.0)
        assert again.due

    async def test_a_run_that_rests_for_no_special_time_is_never_due(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=TTL)
        await anyio.sleep(TTL * 1.5)
        (again,) = await store.claim("b", ttl=60.0)
        assert not again.due

    async def test_a_run_that_is_seized_before_its_time_is_not_due(self, store: Store) -> None:
        lease = await held(store)
        await store.release(lease, seen=1, ready_in=60.0, timed=True)
        again = await store.seize("run_1", "b", ttl=60.0)
        assert again is not None and not again.due

    async def test_nobody_falls_asleep_over_a_wish(self, store: Store) -> None:
        lease = await held(store)
        await store.wish("run_1", StopRequested())
        for ready_in in (None, 60.0):
            with pytest.raises(WishPending):
                await store.release(lease, seen=1, ready_in=ready_in)
        await store.append(lease, STARTED, seen=2)
        await store.release(lease, seen=1, ready_in=0.0)
        assert len(await store.claim("b", ttl=60.0)) == 1

    async def test_an_ended_run_is_held_by_nobody_and_never_ready(self, store: Store) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, RunCompleted(), seen=1)
        assert await store.renew([lease], ttl=60.0) == {}
        await store.release(lease, seen=3, ready_in=0.0)
        assert await store.claim("b", ttl=60.0) == []

    # --- following

    async def test_a_follower_gets_all_that_was_and_all_that_comes(self, store: Store) -> None:
        lease = await held(store)
        followed: list[list[Recorded]] = [[], [], []]

        async def follow(number: int, after: int) -> None:
            async with aclosing(store.follow("run_1", after=after)) as events:
                followed[number] = [recorded async for recorded in events]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, 0, 0)
            tasks.start_soon(follow, 1, 0)
            tasks.start_soon(follow, 2, 3)
            await store.append(lease, STARTED, CALLED, seen=1)
            for text in "abc":
                await anyio.sleep(0.01)
                await store.append(lease, said(text), seen=3)
            await store.append(lease, RunCompleted(), seen=6)
        journal = list(await store.read("run_1"))
        assert followed == [journal, journal, journal[3:]]

    async def test_a_follower_of_an_ended_run_gets_the_rest_and_is_let_go(
        self, store: Store
    ) -> None:
        lease = await held(store)
        await store.append(lease, STARTED, RunCompleted(), seen=1)
        for after, rest in ((1, [2, 3]), (3, [])):
            async with aclosing(store.follow("run_1", after=after)) as events:
                assert [recorded.seq async for recorded in events] == rest

    async def test_nothing_is_shown_before_it_is_on_record(self, store: Store) -> None:
        lease = await held(store)

        async def follow() -> None:
            async with aclosing(store.follow("run_1")) as events:
                async for recorded in events:
                    assert recorded in await store.read("run_1")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await store.append(lease, STARTED, CALLED, seen=1)
            await store.append(lease, RunCompleted(), seen=3)

    async def test_changes_hint_at_wishes_and_at_runs_that_are_ready(self, store: Store) -> None:
        heard: list[str] = []

        async def listen() -> None:
            async with aclosing(store.changes()) as changes:
                async for run_id in changes:
                    heard.append(run_id)  # noqa: PERF401 - it never ends

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await anyio.sleep(0.05)
            await held(store)
            await store.wish("run_1", StopRequested())
            with anyio.fail_after(5):
                while "run_1" not in heard:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    # --- blobs

    async def test_a_blob_is_there_when_the_event_that_refers_to_it_is(self, store: Store) -> None:
        body = b"x" * 10_000_000
        name = sha256(body).hexdigest()
        with pytest.raises(NotFound):
            await store.blob(name)
        lease = await held(store)
        await store.append(lease, STARTED, seen=1, blobs={name: body})
        assert await store.blob(name) == body

    async def test_a_refused_event_leaves_no_blob_behind(self, store: Store) -> None:
        lease = await held(store)
        await store.wish("run_1", StopRequested())
        with pytest.raises(WishPending):
            await store.append(lease, RunCompleted(), seen=1, blobs={"ab": b"c"})
        with pytest.raises(NotFound):
            await store.blob("ab")

    async def test_a_run_is_accepted_with_its_blobs(self, store: Store) -> None:
        name = sha256(b"c").hexdigest()
        await store.accept("run_1", ACCEPTED, blobs={name: b"c"})
        assert await store.blob(name) == b"c"


class LossContract:
    """What is promised when a store is lost in use. Give it fixtures `store` and `lose`."""

    async def test_whoever_waits_is_told_that_no_more_will_come(
        self, store: Store, lose: Callable[[], Awaitable[None]]
    ) -> None:
        async def wait(news: AsyncGenerator[object, None]) -> None:
            with pytest.raises(StoreUnavailable):
                _ = [one async for one in news]

        await store.accept("run_1", ACCEPTED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, store.follow("run_1"))
            tasks.start_soon(wait, store.changes())
            await anyio.sleep(0.05)
            await lose()


class ModelContract:
    """The promises of `ports.Model`. Give it a fixture `model` that can answer "hi"."""

    request_ = Request("model", "", (UserMessage(parts=(Text("hi"),)),))

    async def test_a_reply_ends_with_one_end_marker(self, model: Model) -> None:
        async with aclosing(model.stream(self.request_)) as chunks:
            ends = [isinstance(chunk, Done) async for chunk in chunks]
        assert ends[-1] and ends.count(True) == 1

    async def test_a_caller_may_hang_up_at_any_point(self, model: Model) -> None:
        for wanted in range(3):
            async with aclosing(model.stream(self.request_)) as chunks:
                for _ in range(wanted):
                    await anext(chunks, None)

    async def test_being_cancelled_is_no_error_of_the_model(self, model: Model) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                async with aclosing(model.stream(self.request_)) as chunks:
                    async for _ in chunks:
                        await anyio.lowlevel.checkpoint()
            except ModelError as error:
                pytest.fail(f"a cancel was taken for {error!r}")
        assert scope.cancelled_caught


class ToolContract:
    """The promises of `ports.Tool`. Give it a fixture `tool`."""

    def test_a_tool_says_what_it_is(self, tool: Tool) -> None:
        assert tool.spec.name and tool.spec.description
        assert tool.spec.name.replace("_", "a").isalnum()
        assert tool.spec.timeout > 0

    def test_arguments_that_are_none_are_refused_in_words(self, tool: Tool) -> None:
        with pytest.raises(ToolError) as refusal:
            tool.review('{"no such argument": 1}')
        assert str(refusal.value)
