"""A session's events to one reader: all of them, once, wherever the reader comes back."""

import json
import re
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.config import Settings
from holdfast.core.codec import recall_note
from holdfast.core.session import SessionCreated, SessionPinned, SessionRenamed
from holdfast.errors import NotFound
from holdfast.ports import Review
from holdfast.server.conversations import Conversations
from holdfast.server.service import Service
from holdfast.server.session_stream import ListStream, SessionStream
from holdfast.server.streams import ALIVE, LOOK, RunStream, look_after
from holdfast.stores.memory import MemoryStore
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence, Think
from holdfast.testing.stage import stage
from tests.server.test_streams import CLOSED, KEEPALIVE, Reader, read_to

SESSION = "ses_1"
ASK = Review(gate="ask", reason="it spends money", subject="pay 1", key="pay")


class Listener(Reader):
    """With the frames as they came: an id or None, and what was told."""

    @property
    def frames(self):
        blocks = (block.split(b"\n") for block in self.heard.split(b"\n\n"))
        return [read(lines) for lines in blocks if lines[-1].startswith(b"data: ")]

    @property
    def ids(self):
        return [id for id, _ in self.frames if id]

    @property
    def events(self):
        return [told["event"] for _, told in self.frames]


def read(lines):
    id = lines[0].removeprefix(b"id: ").decode() if len(lines) == 2 else None
    return id, json.loads(lines[-1].removeprefix(b"data: "))


@asynccontextmanager
async def talking(*script, tools=()):
    model = script[0] if isinstance(script[0], ScriptedModel) else ScriptedModel(*script)
    async with stage(model, *tools) as play:
        settings = Settings(data=Path("nowhere"))
        service = Service(play.runs, play.means, settings, sessions=play.sessions)
        async with task_group() as tasks:
            tasks.start_soon(look_after, service)
            yield play, service
            tasks.cancel_scope.cancel()


async def listen(service, *cursors, seconds=float("inf")):
    """What is told until the stream ends, or for so many seconds."""
    reader = Listener()
    with anyio.move_on_after(seconds):
        await listen_to(reader, service, *cursors)
    return reader


async def listen_to(reader, service, *cursors):
    await read_to(reader, SessionStream(service, SESSION, *cursors))


def shown(frames):
    """What a reader shows who forgets what is taken back, and all else by what it happened to.

    What happened to a run that waits may be told before or after what happened to the one ahead.
    """
    words, others = {}, {}
    for id, told in frames:
        key = told.get("run_id"), told.get("turn"), told.get("attempt")
        if told["event"] == "message.delta":
            # What has no id is for simpler readers.
            if id:
                words.setdefault(key, []).append(told["delta"])
        elif told["event"] == "message.retracted":
            words.pop(key)
        else:
            others.setdefault("" if "session_id" in told else key[0], []).append(told)
    return {key: "".join(each) for key, each in words.items()}, others


async def test_all_that_was_and_all_that_comes_is_told_in_order():
    async with talking(["one"], [Silence(5), "two"]) as (play, service):
        first = await play.say("hi")
        await play.ended(first.run_id)
        second = await play.say("and?")
        reader = await listen(service, seconds=10)
        assert reader.headers[b"content-type"].startswith(b"text/event-stream")
        assert reader.events[:3] == ["session.created", "run.added", "run.queued"]
        assert reader.events.count("run.completed") == 2 and not reader.ended
        assert reader.events.index("run.completed") < reader.events.index("run.added", 3)
        about = [told.get("run_id") for _, told in reader.frames if told["event"] == "run.added"]
        assert about == [first.run_id, second.run_id]
        assert len(set(reader.ids)) == len(reader.ids)
        assert {told["session_id"] for _, told in reader.frames if "run_id" not in told} == {
            SESSION
        }


async def test_the_frames_of_a_run_are_those_of_the_run_itself():
    model = ScriptedModel([Think("hm"), Call("pay")], ["wrong", Silence(500)], ["paid"])
    async with talking(model, tools=(ScriptedTool(),)) as (play, service):
        run_id = (await play.say("hi")).run_id
        await play.ended(run_id)
        whole = await listen(service, seconds=1)
        own = Reader()
        await read_to(own, RunStream(service, run_id, after=0))
        frames = [
            told for _, told in whole.frames if told["event"][:7] not in ("session", "run.add")
        ]
        assert frames == [json.loads(one) for one in re.findall(rb"data: (.*)\n", own.heard)]
        assert b"wrong" not in whole.heard


async def test_whoever_comes_back_anywhere_misses_nothing_and_is_told_nothing_twice():
    """Words that are taken back included, for who has seen them and for who has not."""
    script = ScriptedModel(
        ["wr", "ong", Silence(500)],
        [Think("hm "), "right", Call("pay")],
        ["oh ", Silence(500)],
        ["paid"],
        ["second"],
    )
    async with talking(script, tools=(ScriptedTool(review=ASK),)) as (play, service):
        live = Listener()
        await play.sessions.create(SESSION, SessionCreated())
        async with task_group() as tasks:
            tasks.start_soon(listen_to, live, service)
            tasks.start_soon(script_of, play)
            await anyio.sleep(5000)
            tasks.cancel_scope.cancel()
        assert live.events.count("message.retracted") == 2
        assert live.events.count("run.completed") == 2 and "run.edited" in live.events
        whole = shown(live.frames)
        assert sorted(whole[0].values()) == ["paid", "right", "second"]
        for place, (id, _) in enumerate(live.frames):
            if id is None:
                continue
            rest = await listen(service, id, seconds=1)
            assert shown([*live.frames[: place + 1], *rest.frames]) == whole, id
            assert not set(rest.ids) & set(live.ids[: live.ids.index(id) + 1])
            # Nothing new has come, so where it went on makes no difference.
            again = await listen(service, "nonsense", id, seconds=1)
            assert again.frames == rest.frames
        assert shown((await listen(service, seconds=1)).frames)[0] == whole[0]


async def script_of(play):
    """A conversation with a stall, an approval, a message that waits and is edited, and a name."""
    first = (await play.say("hi")).run_id
    await anyio.sleep(1)
    second = (await play.say("and?", message_id="m2")).run_id
    await play.runs.edit(second, "and then?")
    await play.sessions.change(SESSION, SessionRenamed(title="T"))
    while not (await play.runs.state(first)).pending:
        await anyio.sleep(5)
    await play.runs.answer(first, "once")
    await play.ended(second)


@pytest.mark.parametrize("cursor", ["", "x", "5", "s1", "s99.1-5", "s1.9", "s2.1-0-0-0", "s1.1-w"])
async def test_a_cursor_that_means_nothing_here_means_the_beginning(cursor):
    async with talking(["one"]) as (play, service):
        await play.ended((await play.say("hi")).run_id)
        whole = await listen(service, seconds=1)
        assert (await listen(service, cursor, seconds=1)).frames == whole.frames


async def test_whoever_wants_only_what_comes_is_told_nothing_else():
    async with talking(["one ", Silence(5), "two"]) as (play, service):
        run_id = (await play.say("hi")).run_id
        await anyio.sleep(2)
        reader = await listen(service, None, "now", seconds=20)
        assert b"one " not in reader.heard.split(b"message.completed")[0]
        assert reader.events[0] == "message.delta" and reader.events[-1] == "run.completed"
        assert (await play.runs.state(run_id)).output == "one two"
        # The last frame that was read counts more than the address.
        assert (await listen(service, reader.ids[-1], "now", seconds=1)).frames == []
        late = await listen(service, reader.ids[0], "now", seconds=1)
        assert late.frames == reader.frames[1:]


async def test_a_session_that_is_deleted_ends_its_stream_and_one_that_is_restored_goes_on():
    async with talking(["one"], ["two"]) as (play, service):
        await play.ended((await play.say("hi")).run_id)
        reader = Listener()
        async with task_group() as tasks:
            tasks.start_soon(listen_to, reader, service)
            await anyio.sleep(1)
            await play.sessions.delete(SESSION)
        assert reader.events[-1] == "session.deleted"
        assert reader.ended and reader.heard.endswith(CLOSED)
        with pytest.raises(NotFound):
            await listen(service)
        await play.sessions.restore(SESSION)
        await play.ended((await play.say("again")).run_id)
        whole = await listen(service, seconds=1)
        assert not whole.ended and whole.events.count("run.completed") == 2
        assert "session.restored" in whole.events
        back = await listen(service, reader.ids[-1], seconds=1)
        assert [*reader.frames, *back.frames] == whole.frames


async def test_a_session_that_there_is_not_is_not_followed():
    async with talking(["one"]) as (_, service):
        with pytest.raises(NotFound):
            await listen(service)
        assert service.readers == set()


async def test_readers_are_kept_alive_warned_and_left_as_those_of_runs_are():
    async with talking(["one"]) as (play, service):
        await play.ended((await play.say("hi")).run_id)
        reader, lists = Listener(), Listener()
        async with task_group() as tasks:
            tasks.start_soon(listen_to, reader, service)
            tasks.start_soon(read_to, lists, ListStream(service, Conversations(service)))
            await anyio.sleep(2 * ALIVE + 3 * LOOK)
            service.draining.set()
            await anyio.sleep(1)
            service.left.set()
        for each in (reader, lists):
            assert each.heard.count(KEEPALIVE) == 2
            assert each.events[-1] == "server.draining" and each.hung_up and not each.ended
        assert reader.frames[-1][1]["session_id"] == SESSION


async def test_two_readers_hear_the_same_and_one_that_leaves_leaves_nothing_behind():
    async with talking([Silence(1), "one", Silence(3), "two"]) as (play, service):
        await play.say("hi")
        first, second, hasty = Listener(), Listener(), Listener()
        async with task_group() as tasks:
            for reader in (first, second, hasty):
                tasks.start_soon(listen_to, reader, service)
            await anyio.sleep(2)
            hasty.leave()
            await anyio.sleep(10)
            assert len(service.readers) == 2
            tasks.cancel_scope.cancel()
        assert first.frames == second.frames and first.events[-1] == "run.completed"
        assert hasty.frames == first.frames[: len(hasty.frames)]


# --- the list


async def test_whoever_follows_the_list_is_told_how_each_session_is_as_it_changes():
    async with talking(["one"], ["two"]) as (play, service):
        reader = Listener()
        async with task_group() as tasks:
            tasks.start_soon(read_to, reader, ListStream(service, Conversations(service)))
            await anyio.sleep(1)
            await play.ended((await play.say("hi")).run_id)
            await play.sessions.change(SESSION, SessionPinned(pinned=True))
            await anyio.sleep(1)
            await play.sessions.delete(SESSION)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert set(reader.events) == {"session.changed"} and reader.ids == []
        rows = [told["session"] for _, told in reader.frames]
        assert {row["session_id"] for row in rows} == {SESSION}
        assert rows[0]["status"] == "running"
        assert rows[-1]["pinned"] and rows[-1]["status"] == "idle" and "deleted_at" in rows[-1]


async def test_a_session_that_is_gone_when_it_is_looked_at_is_said_to_be():
    async with talking(["one"]) as (play, service):
        slow = reader = Listener(takes=0, until=10)
        async with task_group() as tasks:
            tasks.start_soon(read_to, slow, ListStream(service, Conversations(service)))
            await anyio.sleep(1)
            await play.ended((await play.say("hi")).run_id)
            await play.sessions.delete(SESSION)
            await play.means.store.purge(before=anyio.current_time() + 1)
            await anyio.sleep(10)
            tasks.cancel_scope.cancel()
        assert reader.events[-1] == "session.purged"
        assert reader.frames[-1][1]["session_id"] == SESSION


class Newer(MemoryStore):
    """A store in which a newer version has written what this one does not know."""

    async def notes(self, session_id, *, after=0):
        notes = await super().notes(session_id, after=after)
        return [newer(one) if isinstance(one.event, SessionPinned) else one for one in notes]


def newer(noted):
    return recall_note(noted.seq, noted.at, b'{"type":"session.painted","colour":"red"}')


async def test_what_a_newer_version_wrote_is_passed_over():
    async with stage(ScriptedModel(["one"]), store=Newer(now=anyio.current_time)) as play:
        service = Service(play.runs, play.means, Settings(data=Path("nowhere")))
        await play.sessions.create(SESSION, SessionCreated())
        await play.sessions.change(SESSION, SessionPinned(pinned=True), SessionRenamed(title="T"))
        reader = await listen(service, seconds=1)
        assert reader.events == ["session.created", "session.renamed"]
        assert reader.ids == ["s1.1", "s3.1"]
