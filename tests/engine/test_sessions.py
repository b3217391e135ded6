from contextlib import aclosing
from hashlib import sha256

import anyio
import pytest
from msgspec.structs import replace

from holdfast.core.bookmark import Bookmark, read_bookmark
from holdfast.core.entries import Card, Mark, Notice, Reply, Said
from holdfast.core.events import (
    FINAL,
    ApprovalRequested,
    ModelChoice,
    RunAccepted,
    RunCancelled,
    RunCompleted,
    StopRequested,
    TextStreamed,
    ToolFinished,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import AssistantMessage, BlobRef, Image, Text, UserMessage, plain
from holdfast.core.run import replay
from holdfast.core.session import (
    RunAdded,
    SessionCreated,
    SessionDeleted,
    SessionPinned,
    SessionRenamed,
    SessionRestored,
)
from holdfast.engine.sessions import MOST_WAITING, Sessions
from holdfast.errors import (
    Conflict,
    JournalDamaged,
    ModelRefused,
    NotFound,
    RunBegun,
    RunStopping,
    SessionBusy,
    SessionGone,
)
from holdfast.ports import Review
from holdfast.stores.memory import MemoryStore
from holdfast.testing.contracts import ACCEPTED, STARTED
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence
from holdfast.testing.stage import stage

LONG = Silence(1000)
START = Bookmark()


def words(entries):
    """What people and models said, in order."""
    said = (Said, Reply)
    return [
        plain(one.parts) if isinstance(one, Said) else one.text
        for one in entries
        if isinstance(one, said)
    ]


async def shown(play, session="ses_1", **wanted):
    return (await play.sessions.page(session, **wanted)).entries


def heard_by(model, call=-1):
    """What the model was shown."""
    return [
        plain(message.parts) if hasattr(message, "parts") else getattr(message, "text", "")
        for message in model.requests[call].messages
    ]


async def dialogue(play, *texts):
    for text in texts:
        sent = await play.say(text)
        await play.ended(sent.run_id)


# --- continuing


async def test_a_session_goes_on_with_the_whole_conversation():
    model = ScriptedModel(["Hosta."], ["Ferns too."], ["Moss."])
    async with stage(model) as play:
        await dialogue(play, "what likes shade?", "and?", "and?")
        assert heard_by(model) == ["what likes shade?", "Hosta.", "and?", "Ferns too.", "and?"]
        assert words(await shown(play)) == [*heard_by(model), "Moss."]


async def test_a_given_history_is_all_that_its_run_is_shown():
    model = ScriptedModel(["one"], ["two"], ["three"])
    async with stage(model) as play:
        await dialogue(play, "first")
        run = RunAccepted(
            input=(Text("second"),), models=(ModelChoice("model"),), session_id="ses_1"
        )
        given = (UserMessage(parts=(Text("other"),)), AssistantMessage(text="yes"))
        sent = await play.sessions.send(run, history=given)
        await play.ended(sent.run_id)
        assert heard_by(model) == ["other", "yes", "second"]
        await dialogue(play, "third")
        assert heard_by(model) == ["first", "one", "second", "two", "third"]


async def test_what_is_said_meanwhile_waits_and_says_for_what():
    model = ScriptedModel(["a", Silence(10)], ["b"], ["c"])
    async with stage(model) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        second, third = await play.say("two"), await play.say("three")
        assert [first.how, second.how, third.how] == ["started", "queued", "queued"]
        waiting = await play.sessions.waiting("ses_1")
        assert [(one.run_id, one.behind) for one in waiting] == [
            (second.run_id, first.run_id),
            (third.run_id, first.run_id),
        ]
        assert model.calls == 1
        state = await play.ended(third.run_id)
        assert state.output == "c"
        assert heard_by(model) == ["one", "a", "two", "b", "three"]
        assert not await play.sessions.waiting("ses_1")


async def test_what_waits_can_be_edited_and_taken_back():
    model = ScriptedModel(["a", Silence(10)], ["b"])
    async with stage(model) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        second, third = await play.say("two"), await play.say("three", message_id="msg_3")
        found = await play.sessions.find_waiting("ses_1", "msg_3")
        assert found == third.run_id
        await play.runs.edit(third.run_id, "three, rather")
        await play.runs.remove(second.run_id)
        assert words(await shown(play)) == ["one", "a", "three, rather"]
        await play.ended(third.run_id)
        assert heard_by(model) == ["one", "a", "three, rather"]
        with pytest.raises(NotFound):
            await play.sessions.find_waiting("ses_1", "msg_9")
        with pytest.raises(RunBegun):
            await play.sessions.find_waiting("ses_1", third.run_id)


async def test_what_has_begun_can_no_longer_be_edited_or_taken_back():
    async with stage(ScriptedModel(["a", LONG])) as play:
        sent = await play.say("one")
        await play.until(sent.run_id, TextStreamed)
        with pytest.raises(RunBegun):
            await play.runs.edit(sent.run_id, "two")
        with pytest.raises(RunBegun):
            await play.runs.remove(sent.run_id)
        await play.runs.stop(sent.run_id)
        with pytest.raises(Conflict):
            await play.runs.edit(sent.run_id, "two")


async def test_who_steers_is_heard_by_the_run_under_way():
    model = ScriptedModel([Call("look"), Silence(1)], ["done"])
    async with stage(model, ScriptedTool("look")) as play:
        first = await play.say("one")
        await anyio.sleep(0.5)
        steered = await play.say("and this", busy="steer")
        assert (steered.how, steered.run_id) == ("steered", first.run_id)
        await play.ended(first.run_id)
        assert heard_by(model)[-1] == "and this"
        later = await play.say("too late", busy="steer")
        assert later.how == "started"


async def test_a_picture_that_steers_is_shown_to_the_model():
    model = ScriptedModel(["a", Silence(10), "b"], ["ok"])
    ref = BlobRef(sha256=sha256(b"picture").hexdigest(), size=7)
    said = (Text("look"), Image(media_type="image/png", blob=ref))
    async with stage(model) as play:
        first = await play.say("hi")
        await anyio.sleep(1)
        run = RunAccepted(input=said, models=(ModelChoice("model"),), session_id="ses_1")
        sent = await play.sessions.send(run, busy="steer", blobs={ref.sha256: b"picture"})
        assert sent.how == "steered"
        assert (await play.ended(first.run_id)).output == "ok"
    assert model.requests[-1].blobs == {ref.sha256: b"picture"}


async def test_a_message_that_steers_twice_under_one_id_is_heard_once():
    model = ScriptedModel(["a", Silence(10)], ["b"])
    async with stage(model) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        for _ in range(2):
            await play.say("and this", busy="steer", message_id="msg_2")
        await play.ended(first.run_id)
        assert heard_by(model) == ["one", "a", "and this"]
        assert words(await shown(play)) == ["one", "a", "and this", "b"]


async def test_who_interrupts_has_the_one_under_way_stopped_first():
    model = ScriptedModel(["a", LONG], ["b"])
    async with stage(model) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        second = await play.say("no, this", busy="interrupt")
        assert (await play.ended(first.run_id)).status is Status.CANCELLED
        assert (await play.ended(second.run_id)).output == "b"
        assert heard_by(model)[0] == "one" and heard_by(model)[-1] == "no, this"
        assert heard_by(model)[1].startswith("a")


async def test_who_wants_no_waiting_is_refused():
    async with stage(ScriptedModel(["a", LONG])) as play:
        first = await play.say("one")
        with pytest.raises(SessionBusy) as busy:
            await play.say("two", busy="reject")
        assert busy.value.run_id == first.run_id


@pytest.mark.parametrize("later", [(), ("one", "two")])
async def test_one_that_was_set_aside_keeps_nobody_out_who_wants_no_waiting(later):
    store = MemoryStore()
    await store.accept("aside", replace(ACCEPTED, session_id="ses_1"))
    (lease,) = await store.claim("a", ttl=60.0)
    await store.release(lease, seen=1, ready_in=600.0, aside=True)
    async with stage(ScriptedModel(*[["a"]] * 3), store=store) as play:
        await dialogue(play, *later)
        sent = await play.say("now", busy="reject")
        assert (await play.ended(sent.run_id)).output == "a"


async def test_only_so_many_wait_in_one_session():
    async with stage(ScriptedModel(["a", LONG])) as play:
        for number in range(MOST_WAITING + 1):
            await play.say(str(number))
        with pytest.raises(Conflict):
            await play.say("one too many")


async def test_a_message_does_not_wait_for_one_that_nobody_can_make_sense_of():
    model = ScriptedModel(["a", LONG], ["b"])
    async with stage(model, ttl=1.0) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        second = await play.say("two")
        # As after damage: what stands there cannot have happened.
        store = play.means.store
        store._runs[first.run_id].log.append(store._runs[first.run_id].log[0])
        play_on = await play.ended(second.run_id)
        assert play_on.output == "b"
        assert "can no longer be read" in heard_by(model)[0]


async def test_a_session_that_outgrows_the_model_says_so_and_stays_whole():
    full = ModelRefused("too long", reason="context_overflow", status=400)
    async with stage(ScriptedModel(["a"], [full], ["b"])) as play:
        await dialogue(play, "one")
        sent = await play.say("two")
        state = await play.ended(sent.run_id)
        assert state.ended.code == "context"
        assert "another session can be begun" in state.ended.message
        assert words(await shown(play)) == ["one", "a", "two"]
        await dialogue(play, "three")
        assert words(await shown(play))[-1] == "b"


async def test_a_rescue_does_not_move_a_session_in_the_list():
    async with stage(ScriptedModel(["a", LONG], ["b"], ["c"]), ttl=1.0) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        await anyio.sleep(5)
        await play.ended((await play.say("two", session="ses_2")).run_id)
        before = [one.session_id for one in await play.means.store.sessions()]
        # As if the worker had been gone for longer than its lease.
        lease = await play.means.store.seize(first.run_id, "other", ttl=0.0)
        assert lease is None
        play.means.store._runs[first.run_id].until = 0.0
        assert await play.means.store.seize(first.run_id, "other", ttl=0.5)
        assert (await play.ended(first.run_id)).output == "c"
        after = [one.session_id for one in await play.means.store.sessions()]
        assert before == after == ["ses_2", "ses_1"]


# --- what is made of it


async def test_a_session_is_created_named_and_put_away():
    async with stage(ScriptedModel()) as play:
        sessions = play.sessions
        id = await sessions.create("", SessionCreated(title="Garden"))
        assert id.startswith("ses_")
        await sessions.change(id, SessionRenamed(title="Shade"), SessionPinned(pinned=True))
        assert (await sessions.entry(id)).state.name == "Shade"
        with pytest.raises(Conflict):
            await sessions.create(id, SessionCreated())
        await sessions.delete(id, by="ada")
        for asked in (sessions.entry(id), sessions.page(id), sessions.delete(id)):
            with pytest.raises(NotFound):
                await asked
        with pytest.raises(SessionGone):
            await play.say("hi", session=id)
        await sessions.restore(id)
        assert (await sessions.entry(id)).state.name == "Shade"
        with pytest.raises(Conflict):
            await sessions.restore(id)


async def test_what_is_under_way_in_a_deleted_session_is_stopped():
    async with stage(ScriptedModel(["a", LONG], ["b"])) as play:
        first, second = await play.say("one"), await play.say("two")
        await play.until(first.run_id, TextStreamed)
        await play.sessions.delete("ses_1")
        for sent in (first, second):
            assert await ends_unseen(play, sent.run_id) is Status.CANCELLED


async def ends_unseen(play, run_id):
    """How it ended: it was deleted, and nobody follows it any more."""
    with anyio.fail_after(60):
        while not isinstance(
            (journal := await play.means.store.read(run_id, deleted=True))[-1].event, FINAL
        ):
            await anyio.sleep(0.1)
    return replay(journal).status


# --- at a glance


async def test_a_badge_says_how_a_session_is():
    ask = ScriptedTool("pay", review=Review(gate="ask", key="k"))
    scripts = (["a", Silence(5)], [Call("pay")], ["paid"], [ModelRefused("no")])
    async with stage(ScriptedModel(*scripts), ask) as play:

        async def badge():
            return await play.sessions.badge(await play.sessions.entry("ses_1"))

        await play.sessions.create("ses_1", SessionCreated())
        assert await badge() == "idle"
        sent = await play.say("one")
        await play.until(sent.run_id, TextStreamed)
        assert await badge() == "running"
        await play.ended(sent.run_id)
        sent = await play.say("two")
        await play.until(sent.run_id, ApprovalRequested)
        await anyio.sleep(1)
        assert await badge() == "waiting"
        await play.runs.answer(sent.run_id, "once")
        await play.ended(sent.run_id)
        assert await badge() == "idle"
        await play.ended((await play.say("three")).run_id)
        assert await badge() == "failed"


# --- paging


async def test_a_transcript_is_had_from_its_end_a_page_at_a_time():
    async with stage(ScriptedModel(*([str(n)] for n in range(40)))) as play:
        await dialogue(play, *(f"q{n}" for n in range(40)))
        page = await play.sessions.page("ses_1", limit=7)
        assert words(page.entries) == ["36", "q37", "37", "q38", "38", "q39", "39"]
        told = list(page.entries)
        while page.earlier:
            page = await play.sessions.page("ses_1", earlier=page.earlier, limit=7)
            told = [*page.entries, *told]
        assert words(told) == [text for n in range(40) for text in (f"q{n}", str(n))]
        assert len({entry.id for entry in told}) == len(told)
        whole = await play.sessions.page("ses_1", limit=1000)
        assert (whole.entries, whole.earlier) == (tuple(told), "")


@pytest.mark.parametrize("token", ["x", "0.0", "9.1", "1.x", "-1.0", "1"])
async def test_a_place_that_is_none_is_not_found(token):
    async with stage(ScriptedModel(["a"])) as play:
        await dialogue(play, "one")
        with pytest.raises(NotFound):
            await play.sessions.page("ses_1", earlier=token)


async def test_an_empty_session_has_an_empty_page():
    async with stage(ScriptedModel()) as play:
        await play.sessions.create("ses_1", SessionCreated())
        page = await play.sessions.page("ses_1")
        assert (page.entries, page.earlier, page.bookmark) == ((), "", Bookmark(1, 1, ()))


# --- following


async def follow(play, after=START, *, until):
    heard = []
    async for one in play.sessions.follow("ses_1", after=after):
        heard.append(one)
        if until(one):
            break
    return heard


def ends(number):
    """The end of the run of this ordinal."""
    finals = (RunCompleted, RunCancelled)
    return lambda one: one.ordinal == number and isinstance(one.event, finals)


async def test_a_session_is_followed_over_all_its_runs_from_any_place():
    async with stage(ScriptedModel(["a"], ["b", Silence(3)], ["c"])) as play:
        await dialogue(play, "one")
        for text in ("two", "three"):
            await play.say(text)
        whole = await follow(play, until=ends(3))
        seqs = {}
        for one in whole:
            key = one.ordinal
            expected = seqs.get(key, 0) + 1
            assert (one.recorded.seq if one.recorded else one.bookmark.session) == expected
            seqs[key] = expected
        for cut in range(len(whole)):
            place = read_bookmark(str(whole[cut].bookmark))
            rest = await follow(play, place, until=ends(3)) if cut < len(whole) - 1 else []
            expected = {(o.ordinal, o.recorded and o.recorded.seq, o.at) for o in whole[cut + 1 :]}
            assert {(o.ordinal, o.recorded and o.recorded.seq, o.at) for o in rest} == expected


async def test_following_goes_on_where_a_page_ends():
    async with stage(ScriptedModel(["a"], ["b", Silence(3), "c"], ["d"])) as play:
        await dialogue(play, "one")
        second = await play.say("two")
        await play.say("three")
        await play.until(second.run_id, TextStreamed)
        page = await play.sessions.page("ses_1", limit=2)
        rest = await follow(play, page.bookmark, until=ends(3))
        assert all(one.ordinal > 1 for one in rest)
        texts = [one.event.text for one in rest if isinstance(one.event, TextStreamed)]
        assert texts == ["c", "d"]
        assert rest[-1].bookmark == Bookmark(4, 4, ())


@pytest.mark.parametrize("text", ["s99.1", "s1.7-3-3", "s2.1", "s3.2-5"])
async def test_a_place_of_another_session_is_the_beginning(text):
    async with stage(ScriptedModel(["a"])) as play:
        await dialogue(play, "one")
        heard = await follow(play, read_bookmark(text), until=ends(1))
        assert isinstance(heard[0].event, SessionCreated)
        assert isinstance(heard[1].event, RunAdded)


async def test_following_ends_with_the_session():
    async with stage(ScriptedModel()) as play:
        await play.sessions.create("ses_1", SessionCreated())
        await play.sessions.delete("ses_1")
        heard = [one async for one in play.sessions.follow("ses_1", after=Bookmark())]
        assert isinstance(heard[-1].event, SessionDeleted)


# --- markers


async def test_a_run_without_a_worker_is_marked_below_what_came():
    async with stage(ScriptedModel(["half", LONG])) as play:
        sent = await play.say("one")
        await play.until(sent.run_id, TextStreamed)
        assert not [one for one in await shown(play) if isinstance(one, Mark)]
        play.worker.leave(drain=0.0)
        await anyio.sleep(1)
        lonely = Sessions(play.means, play.runs, workers=lambda: False)
        entries = (await lonely.page("ses_1")).entries
        assert words(entries) == ["one", "half"]
        assert isinstance(entries[-1], Mark) and entries[-1].meaning == "still_arriving"
        attended = Sessions(play.means, play.runs, workers=lambda: True)
        (mark,) = [one for one in (await attended.page("ses_1")).entries if isinstance(one, Mark)]
        assert mark.meaning == "resuming"


async def test_reading_changes_nothing():
    async with stage(ScriptedModel(["half", LONG], ["b"])) as play:
        sent = await play.say("one")
        await play.say("two")
        await play.until(sent.run_id, TextStreamed)
        store = play.means.store
        before = [*store._sessions["ses_1"].log], {id: [*r.log] for id, r in store._runs.items()}
        for _ in range(3):
            await play.sessions.page("ses_1")
            await play.sessions.waiting("ses_1")
            await play.sessions.entry("ses_1")
        after = [*store._sessions["ses_1"].log], {id: [*r.log] for id, r in store._runs.items()}
        assert before == after


async def test_tool_cards_and_stops_stand_in_their_place():
    model = ScriptedModel([Call("look")], ["a", LONG])
    async with stage(model, ScriptedTool("look")) as play:
        sent = await play.say("one")
        await play.until(sent.run_id, TextStreamed)
        await play.runs.stop(sent.run_id, by="ada")
        await play.ended(sent.run_id)
        kinds = [type(one) for one in await shown(play)]
        assert kinds == [Said, Card, Reply, Notice]
        with pytest.raises((RunStopping, Conflict)):
            await play.runs.add(sent.run_id, (Text("x"),))


async def test_deleting_stops_what_makes_no_sense_and_all_the_others():
    store = MemoryStore()
    await store.accept("odd", replace(ACCEPTED, session_id="ses_1"))
    (lease,) = await store.claim("a", ttl=60.0)
    lost = ToolFinished(call_id="none", outcome="ok", output="")
    await store.append(lease, replace(STARTED, epoch=lease.epoch), lost, seen=1)
    await store.release(lease, seen=3, ready_in=600.0, aside=True)
    async with stage(ScriptedModel(["a", LONG]), store=store) as play:
        sent = await play.say("hi")
        await anyio.sleep(1)
        await play.sessions.delete("ses_1")
        assert await ends_unseen(play, sent.run_id) is Status.CANCELLED
        assert isinstance((await store.read("odd", deleted=True))[-1].event, StopRequested)


async def test_deleting_stops_one_that_was_set_aside_long_ago():
    store = MemoryStore()
    await store.accept("aside", replace(ACCEPTED, session_id="ses_1"))
    (lease,) = await store.claim("a", ttl=60.0)
    await store.release(lease, seen=1, ready_in=600.0, aside=True)
    async with stage(ScriptedModel(*[["a"]] * 40), store=store) as play:
        await dialogue(play, *map(str, range(40)))
        await play.sessions.delete("ses_1")
        assert await ends_unseen(play, "aside") is Status.CANCELLED


async def test_who_follows_from_the_beginning_hears_what_came_after_a_restore():
    async with stage(ScriptedModel(["a"])) as play:
        await dialogue(play, "hi")
        await play.sessions.delete("ses_1")
        await play.sessions.restore("ses_1")
        async with aclosing(play.sessions.follow("ses_1", after=START)) as news:
            async for heard in news:
                if isinstance(heard.event, SessionRestored):
                    break
        assert heard.bookmark.session == 4


# --- a run that makes no sense


class Damaged(MemoryStore):
    """One of its runs cannot be read any more."""

    damaged = ""

    async def read(self, run_id, **how):
        if run_id == self.damaged:
            raise JournalDamaged(run_id, 1, "it is not what was written")
        return await super().read(run_id, **how)


async def test_what_waits_beside_a_damaged_run_can_be_seen_and_found():
    store = Damaged()
    async with stage(ScriptedModel(["a", LONG]), store=store) as play:
        first = await play.say("one")
        await play.until(first.run_id, TextStreamed)
        second, third = await play.say("two"), await play.say("three")
        store.damaged = second.run_id
        waiting = await play.sessions.waiting("ses_1")
        assert [one.run_id for one in waiting] == [third.run_id]
        assert await play.sessions.find_waiting("ses_1", third.run_id) == third.run_id


async def test_a_session_is_followed_past_a_damaged_run():
    store = Damaged()
    async with stage(ScriptedModel(["a"], ["b"]), store=store) as play:
        await dialogue(play, "one", "two")
        store.damaged = (await store.members("ses_1"))[-1].run_id
        heard = await follow(play, until=ends(2))
        assert {one.ordinal for one in heard} == {0, 2}


async def test_of_two_messages_under_one_id_the_one_that_waits_is_meant():
    async with stage(ScriptedModel(["a", LONG])) as play:
        first = await play.say("one", message_id="msg_1")
        await play.until(first.run_id, TextStreamed)
        second = await play.say("two", message_id="msg_1")
        assert await play.sessions.find_waiting("ses_1", "msg_1") == second.run_id


# --- runs that were deleted


async def test_a_run_that_was_deleted_stays_in_its_conversation():
    model = ScriptedModel(["Hosta."], ["Ferns too."])
    async with stage(model) as play:
        first = await play.say("what likes shade?")
        await play.ended(first.run_id)
        await play.runs.delete(first.run_id)
        await dialogue(play, "and?")
        assert heard_by(model) == ["what likes shade?", "Hosta.", "and?"]
        assert words(await shown(play)) == [*heard_by(model), "Ferns too."]
        heard = []
        async with aclosing(play.sessions.follow("ses_1", after=START)) as news:
            async for one in news:
                heard.append(one.run_id)
                if isinstance(one.event, RunCompleted) and one.ordinal == 2:
                    break
        assert first.run_id in heard


async def test_a_session_is_as_ever_while_a_run_of_it_that_was_deleted_comes_to_its_end():
    async def cling(use):
        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)
        return "late"

    model = ScriptedModel([Call("cling")], ["two"], ["three"])
    async with stage(model, ScriptedTool("cling", work=cling)) as play:
        first = await play.say("one")
        await anyio.sleep(1)
        second = await play.say("two")
        await play.runs.delete(first.run_id)
        entry = await play.sessions.entry("ses_1")
        assert (entry.live, await play.sessions.badge(entry)) == (2, "running")
        # It hears nothing more, so what is said to it waits.
        third = await play.say("three", busy="steer")
        assert third.how == "queued"
        await play.runs.delete(second.run_id)
        assert [one.run_id for one in await play.sessions.waiting("ses_1")] == [third.run_id]
        await play.sessions.delete("ses_1")
        await anyio.sleep(200)
        assert (await play.means.store.session("ses_1")).live == 0
