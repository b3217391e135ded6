"""Journals that arrive late: what is there is shown in its place, and what is missing is said to be.

In the words of those who lost a response: it is found on a later read, it stands above the marker,
its tool card is restored, whoever reads beside it does not wait, and giving up has its reasons.
"""

import dataclasses
from contextlib import asynccontextmanager
from hashlib import sha256

import anyio

from holdfast.core.bookmark import Bookmark
from holdfast.core.entries import Card, Mark, Reply, Said
from holdfast.core.events import RunCompleted, TextStreamed, ToolFinished
from holdfast.core.marker import ARRIVING
from holdfast.core.messages import plain
from holdfast.engine.sessions import Sessions
from holdfast.testing.late import LateStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

SCRIPT = (
    ["Checking first.", Call("look", '{"path":"a"}')],
    ["The first scan ", "is done."],
)


class Reader:
    """Somebody who looks at a session from afar, where everything arrives late."""

    def __init__(self, play, *, workers=False):
        self.late, self.alive = LateStore(play.means.store), workers
        self.now = anyio.current_time()
        means = dataclasses.replace(play.means, store=self.late, clock=lambda: self.now)
        self.sessions = Sessions(means, play.runs, workers=lambda: self.alive)

    async def look(self, **wanted):
        return (await self.sessions.page("ses_1", **wanted)).entries


@asynccontextmanager
async def answered(*scripts):
    """A session with one run that has ended, and who looks at it from afar."""
    model = ScriptedModel(*SCRIPT, *scripts)
    async with stage(model, ScriptedTool("look")) as play:
        sent = await play.say("check the garden")
        await play.ended(sent.run_id)
        yield play, Reader(play), sent.run_id


def words(entries):
    return [
        plain(one.parts) if isinstance(one, Said) else one.text
        for one in entries
        if isinstance(one, Said | Reply)
    ]


def marks(entries):
    return [one.meaning for one in entries if isinstance(one, Mark)]


async def seq_of(play, run_id, kind):
    journal = await play.means.store.read(run_id)
    return next(one.seq for one in journal if isinstance(one.event, kind))


WHOLE = ["check the garden", "Checking first.", "The first scan is done."]


async def test_what_could_not_be_seen_is_found_on_a_later_read():
    async with answered() as (_, reader, run_id):
        reader.late.hold(run_id, 0)
        assert marks(await reader.look()) == ["still_arriving"]
        assert words(await reader.look()) == []
        reader.late.show(run_id)
        entries = await reader.look()
        assert (words(entries), marks(entries)) == (WHOLE, [])


async def test_what_has_arrived_stands_above_the_marker_and_the_rest_takes_its_place():
    async with answered() as (play, reader, run_id):
        half = await seq_of(play, run_id, ToolFinished)
        reader.late.hold(run_id, half)
        entries = await reader.look()
        assert [type(one) for one in entries] == [Said, Reply, Card, Mark]
        assert entries[2].state == "done"
        reader.late.show(run_id)
        assert [type(one) for one in await reader.look()] == [Said, Reply, Card, Reply]


async def test_a_tool_card_is_restored_with_all_that_is_known_of_it():
    async with answered() as (play, reader, run_id):
        reader.late.hold(run_id, await seq_of(play, run_id, ToolFinished) - 1)
        (card,) = [one for one in await reader.look() if isinstance(one, Card)]
        assert (card.name, card.arguments, card.state) == ("look", '{"path":"a"}', "running")
        reader.late.show(run_id)
        (card,) = [one for one in await reader.look() if isinstance(one, Card)]
        assert (card.state, card.outcome, card.error) == ("done", "ok", False)


async def test_half_a_journal_with_another_turn_after_it_is_completed_in_its_place():
    """However many turns were added meanwhile, nothing is baked in and nothing comes twice."""
    async with answered(["Second."], ["Third."]) as (play, reader, run_id):
        half = await seq_of(play, run_id, TextStreamed)
        reader.late.hold(run_id, half)
        for text in ("and now?", "check the garden"):
            await play.ended((await play.say(text)).run_id)
        entries = await reader.look()
        later = ["and now?", "Second.", "check the garden", "Third."]
        assert words(entries) == [*WHOLE[:2], *later]
        assert [type(one) for one in entries][:3] == [Said, Reply, Mark]
        reader.late.show(run_id)
        entries = await reader.look()
        assert (words(entries), marks(entries)) == ([*WHOLE, *later], [])
        assert len({one.id for one in entries}) == len(entries)


async def test_a_run_that_is_hidden_among_others_keeps_its_place():
    async with answered(["Second."], ["Third."]) as (play, reader, _):
        hidden = await play.say("and now?")
        await play.ended(hidden.run_id)
        await play.ended((await play.say("and then?")).run_id)
        reader.late.hold(hidden.run_id, 0)
        assert marks(await reader.look()) == ["still_arriving"]
        assert words(await reader.look()) == [*WHOLE, "and then?", "Third."]
        page = await reader.sessions.page("ses_1", limit=3)
        assert [type(one) for one in page.entries] == [Mark, Said, Reply]
        reader.late.show(hidden.run_id)
        assert words(await reader.look()) == [*WHOLE, "and now?", "Second.", "and then?", "Third."]


async def test_a_session_journal_that_lags_shows_the_turns_that_have_arrived():
    async with answered(["Second."]) as (play, reader, _):
        await play.ended((await play.say("and now?")).run_id)
        reader.late.hold("ses_1", 2)
        assert words(await reader.look()) == WHOLE
        reader.late.show("ses_1")
        assert words(await reader.look()) == [*WHOLE, "and now?", "Second."]


async def test_looking_costs_no_attempt_and_changes_nothing():
    async with answered() as (play, reader, run_id):
        store = play.means.store

        async def written():
            journals = [await store.read(run_id), await store.notes("ses_1")]
            return sha256(b"".join(one.body for log in journals for one in log)).hexdigest()

        before = await written()
        reader.late.hold(run_id, 3)
        for _ in range(20):
            (mark,) = [one for one in await reader.look() if isinstance(one, Mark)]
            assert (mark.meaning, mark.attempts) == ("still_arriving", 0)
        assert await written() == before


async def test_those_who_look_at_the_same_time_all_see_the_same_and_nobody_waits():
    async with answered() as (_, reader, run_id):
        reader.late.hold(run_id, 5)
        seen = []

        async def look():
            seen.append(await reader.look())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(look)
        assert len(seen) == 20 and all(one == seen[0] for one in seen)


async def test_after_a_day_some_may_be_lost_and_what_comes_then_heals_it():
    async with answered() as (_, reader, run_id):
        for held in (0, 4):
            reader.late.hold(run_id, held)
            reader.now = anyio.current_time() + ARRIVING - 1
            assert marks(await reader.look()) == ["still_arriving"]
            reader.now = anyio.current_time() + ARRIVING + 1
            assert marks(await reader.look()) == ["some_may_be_lost"]
        reader.late.show(run_id)
        assert marks(await reader.look()) == []


async def test_where_a_worker_lives_the_run_is_resuming():
    async with answered() as (_, reader, run_id):
        reader.alive = True
        reader.late.hold(run_id, 4)
        assert marks(await reader.look()) == ["resuming"]


async def test_a_follower_gets_the_late_part_where_it_left_off():
    async with answered(["Second."]) as (play, reader, run_id):
        await play.ended((await play.say("and now?")).run_id)
        reader.late.hold(run_id, 4)
        heard = []

        async def follow():
            async for one in reader.sessions.follow("ses_1", after=Bookmark()):
                heard.append((one.ordinal, one.bookmark))
                if one.ordinal == 1 and isinstance(one.event, RunCompleted):
                    return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.sleep(5)
            assert [ordinal for ordinal, _ in heard].count(1) == 4
            reader.late.show(run_id)
        of_first = len(await play.means.store.read(run_id))
        assert [ordinal for ordinal, _ in heard].count(1) == of_first
        assert heard[-1][1] == Bookmark(3, 3, ())


async def test_what_ended_after_many_rescues_is_told_by_what_came():
    for script, meaning in (
        (["half", Silence(1e9)], "recovered"),
        ([Silence(1e9)], "nothing_came"),
    ):
        async with stage(ScriptedModel(*[script] * 9), ttl=1.0) as play:
            sent = await play.say("one")
            for _ in range(7):
                await anyio.sleep(0.5)
                state = await play.runs.state(sent.run_id)
                if state.status.final:
                    break
                # As if its worker had been gone for longer than its lease.
                play.means.store._runs[sent.run_id].until = 0.0
                play.means.store._runs[sent.run_id].epoch += 1
                await anyio.sleep(3)
            reader = Reader(play)
            (mark,) = [one for one in await reader.look() if isinstance(one, Mark)]
            assert mark.meaning == meaning
            assert mark.attempts > 5
