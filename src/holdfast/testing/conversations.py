"""What every store promises about sessions: their journals, whose turn it is, their order.

To be inherited, as a continuation of `contracts.StoreContract`, for the same fixture `store`; `wait`
lets wall time pass for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio
import pytest
from msgspec.structs import replace

from holdfast.core.codec import link_messages, note, record
from holdfast.core.events import (
    InputAdded,
    InputEdited,
    RunCancelled,
    RunCompleted,
    StopRequested,
)
from holdfast.core.luggage import Carried
from holdfast.core.messages import BlobRef, Text, UserMessage
from holdfast.core.session import (
    Noted,
    RunAdded,
    SessionArchived,
    SessionCreated,
    SessionDeleted,
    SessionEvent,
    SessionPinned,
    SessionRenamed,
    SessionRestored,
    replay_session,
)
from holdfast.errors import (
    AlreadyAccepted,
    Conflict,
    IllegalEvent,
    KeyReused,
    NotFound,
    RunStopping,
    SessionBusy,
    SessionGone,
)
from holdfast.ports import Census, Member, Once, Store
from holdfast.testing.contracts import ACCEPTED, TTL

#: Of a run that was asked to stop before it began.
ENDED = (record(2, 7.0, StopRequested()), record(3, 8.0, RunCancelled()))

ASKED = replace(ACCEPTED, session_id="ses_1", input=(Text("what likes shade?"),))


async def until(true: Callable[[], bool]) -> None:
    """Wait for what happens elsewhere; how long that takes is not what a contract is about."""
    with anyio.fail_after(10):
        while not true():
            await anyio.sleep(0.01)


async def begin(store: Store, *run_ids: str, session: str = "ses_1") -> None:
    for run_id in run_ids:
        await store.accept(run_id, replace(ASKED, session_id=session))


#: What was said before a session that comes from elsewhere.
(BLUE,) = link_messages((UserMessage(parts=(Text("blue"),)),))


async def claimed(store: Store) -> list[str]:
    """Those that are ready, which are held from now on."""
    return [lease.run_id for lease in await store.claim("a", ttl=60.0, limit=10)]


async def end(store: Store, *, ttl: float = 60.0) -> str:
    """Claim one run, and end it."""
    (lease,) = await store.claim("a", ttl=ttl)
    await store.append(lease, RunCompleted(), seen=len(await store.read(lease.run_id)))
    return lease.run_id


def elsewhere() -> tuple[list[Noted], list[Carried]]:
    """A session of two runs, as it comes from another store."""
    head = BlobRef(sha256=BLUE.name, size=len(BLUE.body))
    asked = replace(ASKED, session_id="ses_9", history=(head,))
    runs = [
        Carried("run_a", [record(1, 5.0, asked), *ENDED], {BLUE.name: BLUE.body}),
        Carried("run_b", [record(1, 6.0, replace(asked, history=())), *ENDED]),
    ]
    events: list[SessionEvent] = [
        SessionCreated(title="Blue"),
        *(RunAdded(run_id=run.run_id, ordinal=at) for at, run in enumerate(runs, 1)),
    ]
    return [note(seq, 4.0 + seq, event) for seq, event in enumerate(events, 1)], runs


async def ids(store: Store, **wanted: object) -> list[str]:
    entries = await store.sessions(**wanted)  # type: ignore[arg-type]
    return [entry.session_id for entry in entries]


class ConversationContract:
    # --- the journal of a session

    async def test_a_run_and_its_place_in_its_session_are_one_step(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        created, first, second = await store.notes("ses_1")
        assert isinstance(created.event, SessionCreated)
        assert first.event == RunAdded(run_id="run_1", ordinal=1, words="what likes shade?")
        assert second.event == RunAdded(run_id="run_2", ordinal=2)
        assert [noted.seq for noted in (created, first, second)] == [1, 2, 3]
        assert list(await store.notes("ses_1", after=2)) == [second]

    async def test_a_run_that_is_refused_is_in_no_session(self, store: Store) -> None:
        once = Once("ada", "key", "abc")
        await store.accept("run_1", ASKED, once=once)
        with pytest.raises(AlreadyAccepted):
            await store.accept("run_2", ASKED, once=once)
        with pytest.raises(Conflict):
            await store.accept("run_1", ASKED)
        assert len(await store.notes("ses_1")) == 2

    async def test_a_session_may_begin_without_a_run(self, store: Store) -> None:
        (noted,) = await store.note("ses_1", SessionCreated(title="Garden"))
        assert list(await store.notes("ses_1")) == [noted]
        entry = await store.session("ses_1")
        assert (entry.state.name, entry.run, entry.live) == ("Garden", None, 0)
        assert list(await store.members("ses_1")) == []
        with pytest.raises(Conflict):
            await store.note("ses_1", SessionCreated())

    async def test_what_is_made_of_a_session_is_on_record(self, store: Store) -> None:
        await begin(store, "run_1")
        await store.note("ses_1", SessionRenamed(title="Shade"), SessionPinned(pinned=True))
        entry = await store.session("ses_1")
        assert entry.state == replay_session(await store.notes("ses_1"))
        assert (entry.state.name, entry.state.pinned, entry.state.seq) == ("Shade", True, 4)

    async def test_what_cannot_happen_to_a_session_is_not_written(self, store: Store) -> None:
        await begin(store, "run_1")
        with pytest.raises(IllegalEvent):
            await store.note("ses_1", SessionRenamed(title="x"), SessionRestored())
        assert len(await store.notes("ses_1")) == 2

    async def test_a_session_that_never_was_is_not_found(self, store: Store) -> None:
        for asked in (
            store.notes("ses_0"),
            store.session("ses_0"),
            store.members("ses_0"),
            store.note("ses_0", SessionRenamed(title="x")),
        ):
            with pytest.raises(NotFound):
                await asked
        with pytest.raises(NotFound):
            async with aclosing(store.stirs("ses_0")) as stirs:
                await anext(stirs)

    # --- whose turn it is

    async def test_one_run_of_a_session_is_ready_at_a_time(self, store: Store) -> None:
        await begin(store, "run_1", "run_2", "run_3")
        await begin(store, "run_4", session="ses_2")
        assert await store.queue() == ["run_1", "run_4"]
        assert await store.census() == Census(queued=4, running=0)
        assert await claimed(store) == ["run_1", "run_4"]
        assert await claimed(store) == []
        assert await store.census() == Census(queued=2, running=2, held=2)

    async def test_the_next_is_ready_when_the_one_before_it_ends(self, store: Store) -> None:
        await begin(store, "run_1", "run_2", "run_3")
        assert [await end(store) for _ in range(3)] == ["run_1", "run_2", "run_3"]
        assert (await store.session("ses_1")).live == 0

    async def test_whoever_waits_for_work_hears_of_the_next(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        async with aclosing(store.changes()) as changes, anyio.create_task_group() as tasks:
            heard: list[str] = []

            async def listen() -> None:
                async for run_id in changes:
                    heard.append(run_id)
                    if run_id == "run_2":
                        return

            tasks.start_soon(listen)
            await anyio.sleep(0.01)
            await end(store)
        assert "run_2" in heard

    async def test_a_wish_does_not_let_a_run_go_before_its_turn(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        await store.wish("run_2", InputEdited(parts=(Text("or rather"),)))
        assert await store.queue() == ["run_1"]

    async def test_a_run_that_is_stopped_need_not_wait_to_end(self, store: Store) -> None:
        await begin(store, "run_1", "run_2", "run_3")
        await store.wish("run_2", StopRequested(removed=True))
        assert await store.queue() == ["run_1", "run_2"]
        lease = await store.seize("run_2", "door", ttl=60.0)
        assert lease is not None
        await store.append(lease, RunCancelled(), seen=2)
        assert await store.queue() == ["run_1"]
        assert await end(store) == "run_1"
        assert await store.queue() == ["run_3"]

    async def test_who_wants_to_be_alone_is_refused_while_a_run_lives(self, store: Store) -> None:
        await begin(store, "run_1")
        with pytest.raises(SessionBusy) as busy:
            await store.accept("run_2", ASKED, alone=True)
        assert busy.value.run_id == "run_1"
        await end(store)
        await store.accept("run_2", ASKED, alone=True)

    async def test_who_interrupts_has_the_one_before_stopped_in_the_same_step(
        self, store: Store
    ) -> None:
        await begin(store, "run_1", "run_2")
        await store.accept("run_3", ASKED, stop=StopRequested(by="ada"))
        stopped = (await store.read("run_1"))[-1].event
        assert stopped == StopRequested(by="ada")
        assert len(await store.read("run_2")) == 1
        await store.accept("run_4", replace(ASKED, session_id="ses_2"), stop=StopRequested())

    async def test_a_run_nobody_can_make_sense_of_holds_nobody_up(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        (lease,) = await store.claim("a", ttl=60.0)
        await store.release(lease, seen=2**62, ready_in=600.0, aside=True)
        # Nor is it the one that is told of.
        for entry in (await store.session("ses_1"), *await store.sessions()):
            assert entry.run and (entry.run.run_id, entry.live, entry.busy) == ("run_2", 2, True)
        assert await end(store) == "run_2"
        assert not (await store.session("ses_1")).busy

    async def test_it_is_known_what_is_in_living_hands(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        await store.claim("a", ttl=TTL)
        assert await store.held(["run_1", "run_2", "run_0"]) == {"run_1"}
        await anyio.sleep(TTL * 1.5)
        assert await store.held(["run_1"]) == frozenset()

    async def test_a_message_after_a_stop_is_not_taken(self, store: Store) -> None:
        await begin(store, "run_1")
        await store.wish("run_1", StopRequested())
        for seen in (0, 1):
            with pytest.raises(RunStopping):
                await store.wish("run_1", InputAdded(parts=(Text("and?"),)), seen=seen)
        assert len(await store.read("run_1")) == 2

    async def test_a_message_is_taken_once(self, store: Store) -> None:
        await begin(store, "run_1")
        once, said = Once("ada", "key", "abc"), InputAdded(parts=(Text("and?"),))
        await store.wish("run_1", said, once=once)
        with pytest.raises(AlreadyAccepted) as again:
            await store.wish("run_1", said, once=once)
        assert again.value.run_id == "run_1"
        with pytest.raises(KeyReused):
            await store.accept("run_2", ASKED, once=Once("ada", "key", "other"))
        assert len(await store.read("run_1")) == 2

    # --- finding

    async def test_sessions_are_listed_by_when_something_was_last_said(
        self, store: Store, wait: Callable[[float], None]
    ) -> None:
        for number in (1, 2, 3):
            await begin(store, f"run_{number}", session=f"ses_{number}")
            wait(1.0)
        await begin(store, "run_4")
        wait(1.0)
        assert await ids(store) == ["ses_1", "ses_3", "ses_2"]
        await store.note("ses_3", SessionRenamed(title="GREENS Über"))
        assert await ids(store) == ["ses_1", "ses_3", "ses_2"]
        await store.note("ses_2", SessionPinned(pinned=True))
        assert await ids(store) == ["ses_2", "ses_1", "ses_3"]
        pinned, first = (await store.sessions())[:2]
        assert await ids(store, before=pinned.place) == ["ses_1", "ses_3"]
        assert await ids(store, before=first.place, limit=1) == ["ses_3"]
        # Whoever goes on after a session that has moved meanwhile misses nobody.
        await store.note("ses_2", SessionPinned(pinned=False))
        assert await ids(store, before=pinned.place) == ["ses_1", "ses_3", "ses_2"]
        assert await ids(store, text="gREENs über") == ["ses_3"]
        assert await ids(store, text="100%") == []

    async def test_what_is_archived_or_deleted_is_listed_apart(self, store: Store) -> None:
        for number in (1, 2, 3):
            await store.note(f"ses_{number}", SessionCreated())
        await store.note("ses_1", SessionArchived(archived=True))
        await store.note("ses_2", SessionDeleted())
        assert await ids(store) == ["ses_3"]
        assert await ids(store, archived=True) == ["ses_1"]
        assert await ids(store, archived=None) == ["ses_3", "ses_1"]
        assert await ids(store, archived=None, deleted=True) == ["ses_2"]

    async def test_an_entry_tells_of_the_run_under_way_or_else_the_last(self, store: Store) -> None:
        await begin(store, "run_1", "run_2")
        entry = await store.session("ses_1")
        assert entry.run and (entry.run.run_id, entry.live) == ("run_1", 2)
        assert entry == (await store.sessions())[0]
        for _ in range(2):
            await end(store)
        entry = await store.session("ses_1")
        assert entry.run and (entry.run.run_id, entry.live) == ("run_2", 0)
        assert isinstance(entry.run.last.event, RunCompleted)

    async def test_its_runs_can_be_had_from_the_end(self, store: Store) -> None:
        await begin(store, "run_1", "run_2", "run_3", "run_4")
        await end(store)
        newest = await store.members("ses_1", limit=2)
        assert [(m.ordinal, m.run_id, m.ended) for m in newest] == [
            (4, "run_4", False),
            (3, "run_3", False),
        ]
        rest = await store.members("ses_1", before=3)
        assert [(m.ordinal, m.ended) for m in rest] == [(2, False), (1, True)]
        assert list(await store.members("ses_1", before=1)) == []

    # --- going

    async def test_a_deleted_session_takes_nothing_until_it_is_restored(self, store: Store) -> None:
        await begin(store, "run_1")
        await store.note("ses_1", SessionDeleted(by="ada"))
        with pytest.raises(SessionGone):
            await store.accept("run_2", ASKED)
        with pytest.raises(SessionGone):
            await store.note("ses_1", SessionRenamed(title="x"))
        assert (await store.session("ses_1")).state.deleted_at is not None
        stopped = (await store.read("run_1", deleted=True))[-1].event
        assert isinstance(stopped, StopRequested) and stopped.by == "ada"
        await store.note("ses_1", SessionRestored(by="ada"))
        await store.accept("run_2", ASKED)

    async def test_what_was_deleted_is_purged_in_time_with_its_runs(
        self, store: Store, wait: Callable[[float], None]
    ) -> None:
        once = Once("ada", "key", "abc")
        await store.accept("run_1", ASKED, once=once)
        await begin(store, "run_2", session="ses_2")
        await end(store)
        for session in ("ses_1", "ses_2"):
            await store.note(session, SessionDeleted())
        deleted = (await store.session("ses_2")).state.deleted_at or 0.0
        wait(10.0)
        assert await store.purge(before=deleted) == []
        # A run of the other lives still.
        assert await store.purge(before=deleted + 5.0) == ["ses_1"]
        for asked in (store.notes("ses_1"), store.read("run_1")):
            with pytest.raises(NotFound):
                await asked
        assert await store.accepted(once) == "run_1"
        assert len(await store.read("run_2", deleted=True)) == 2

    # --- hearing of it

    async def test_whoever_follows_a_session_hears_of_all_that_is_written(
        self, store: Store
    ) -> None:
        await begin(store, "run_1")
        stirs = 0

        async def follow() -> None:
            nonlocal stirs
            async with aclosing(store.stirs("ses_1")) as news:
                async for _ in news:
                    stirs += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            heard = 0
            for step in (
                lambda: store.note("ses_1", SessionRenamed(title="x")),
                lambda: store.wish("run_1", InputEdited(parts=(Text("x"),))),
                lambda: begin(store, "run_2"),
            ):
                await until(lambda: stirs > heard)  # noqa: B023 - it is waited for in this turn
                heard = stirs
                await step()
            await until(lambda: stirs > heard)
            tasks.cancel_scope.cancel()

    async def test_whoever_lists_sessions_hears_which_changed(self, store: Store) -> None:
        async with aclosing(store.session_changes()) as changes:
            async with anyio.create_task_group() as tasks:
                heard: list[str] = []

                async def listen() -> None:
                    heard.append(await anext(changes))

                tasks.start_soon(listen)
                await anyio.sleep(0.01)
                await begin(store, "run_1", session="ses_7")
            assert heard == ["ses_7"]

    # --- from elsewhere

    async def test_a_session_is_taken_in_with_its_runs(self, store: Store) -> None:
        notes, runs = elsewhere()
        await store.take_in("ses_9", notes, runs)
        assert list(await store.notes("ses_9")) == list(notes)
        assert [list(await store.read(run.run_id)) for run in runs] == [
            list(run.journal) for run in runs
        ]
        assert list(await store.members("ses_9")) == [
            Member(2, "run_b", True),
            Member(1, "run_a", True),
        ]
        entry = await store.session("ses_9")
        assert (entry.state, entry.live) == (replay_session(notes), 0)
        assert list(await store.chain(BLUE.name)) == [BLUE.body]
        assert await ids(store) == ["ses_9"]

    async def test_what_was_taken_in_is_nobodys_to_carry_and_can_be_gone_on_with(
        self, store: Store
    ) -> None:
        await store.take_in("ses_9", *elsewhere())
        assert await claimed(store) == []
        assert await store.census() == Census(0, 0)
        await begin(store, "run_c", session="ses_9")
        assert [member.run_id for member in await store.members("ses_9", limit=1)] == ["run_c"]
        assert await claimed(store) == ["run_c"]

    async def test_of_a_session_that_is_there_in_part_nothing_is_taken_in(
        self, store: Store
    ) -> None:
        notes, runs = elsewhere()
        await begin(store, "run_b")
        with pytest.raises(Conflict):
            await store.take_in("ses_1", notes, runs)
        with pytest.raises(Conflict):
            await store.take_in("ses_9", notes, runs)
        for missing in (store.session("ses_9"), store.read("run_a")):
            with pytest.raises(NotFound):
                await missing

    async def test_that_a_session_was_taken_in_is_announced(self, store: Store) -> None:
        heard: list[str] = []
        async with (
            aclosing(store.session_changes()) as changes,
            anyio.create_task_group() as tasks,
        ):

            async def listen() -> None:
                heard.append(await anext(changes))

            tasks.start_soon(listen)
            await anyio.sleep(0.01)
            await store.take_in("ses_9", *elsewhere())
        assert heard == ["ses_9"]
