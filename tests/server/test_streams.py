"""A run's events to one reader: all of them, in order, and never more of the server than that."""

import json
import re
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.config import Settings
from holdfast.errors import StoreUnavailable
from holdfast.server.service import Service
from holdfast.server.streams import ALIVE, LOOK, PIECE, STALLED, RunStream, look_after
from holdfast.testing.faults import FaultyStore
from holdfast.testing.scripted import ScriptedModel, Silence
from holdfast.testing.stage import Stage, stage

CLOSED = b": stream closed\n\n"
KEEPALIVE = b": keepalive\n\n"


class Reader:
    """Somebody at the other end, as a server of HTTP shows them. `takes` is how many pieces they
    take before they stop reading; `until` is when they go on, if they do."""

    def __init__(self, *, takes=10**9, until=float("inf")):
        self.pieces, self.times = [], []
        self.headers, self.ended, self.hung_up, self.stuck = {}, False, None, None
        self._takes, self._until = takes, until
        self._gone, self._leave = anyio.Event(), None

    def when_gone(self, leave):
        self._leave = leave

    async def send(self, message):
        assert not self.ended and self.hung_up is None, message
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            self.headers = dict(message["headers"])
            return
        if len(self.pieces) >= self._takes:
            self.stuck = anyio.current_time()
            with anyio.move_on_after(self._until - anyio.current_time()):
                await self._gone.wait()
                return
        self.pieces.append(message["body"])
        self.times.append(anyio.current_time())
        self.ended = not message["more_body"]

    def leave(self):
        self._gone.set()
        self._leave()

    def hang_up(self):
        self.hung_up = anyio.current_time()
        self.leave()

    @property
    def heard(self):
        return b"".join(self.pieces)

    @property
    def ids(self):
        return [int(number) for number in re.findall(rb"^id: (\d+)$", self.heard, re.MULTILINE)]

    @property
    def names(self):
        data = re.findall(rb"^data: (.*)$", self.heard, re.MULTILINE)
        return [json.loads(each)["event"] for each in data]


@asynccontextmanager
async def following(*script, folder=Path("nowhere")):
    """A run of this one reply, and how to have it read. What is long is put in the folder."""
    async with stage(ScriptedModel(script)) as play:
        service = Service(play.runs, play.means, Settings(data=folder))
        run_id = await play.start()

        async def read(reader, after=0, **state):
            await read_to(reader, RunStream(service, run_id, after=after), **state)
            return reader

        async with task_group() as tasks:
            tasks.start_soon(look_after, service)
            yield Followed(play, service, run_id, read)
            tasks.cancel_scope.cancel()


async def nothing():
    raise AssertionError("nothing is asked of who has asked all there is")


async def read_to(reader, stream, **state):
    await stream({"type": "http", "state": {"caller": reader, **state}}, nothing, reader.send)


class Followed(NamedTuple):
    play: Stage
    service: Service
    run_id: str
    read: Callable[..., Awaitable[Reader]]

    async def places(self):
        """The seq of every event on record that a reader is told of."""
        return (await self.read(Reader())).ids


async def test_a_reader_gets_what_was_and_what_comes_and_sees_the_end():
    async with following("one ", Silence(5), "two ", Silence(5), "three") as run:
        await anyio.sleep(7)
        reader = await run.read(Reader())
        events = await run.play.journal(run.run_id)
        assert reader.headers[b"content-type"].startswith(b"text/event-stream")
        assert reader.headers[b"cache-control"] == b"no-cache"
        assert len(reader.pieces) > 3 and reader.times[0] == 7 and reader.times[-1] == 10
        assert reader.heard.count(b"message.delta") == 3
        assert reader.ids == sorted(set(reader.ids)) and reader.ids[-1] == len(events)
        assert reader.ended and reader.pieces[-1].endswith(CLOSED)


async def test_a_reader_goes_on_after_the_place_it_has_seen():
    async with following("one ", Silence(5), "two") as run:
        await anyio.sleep(1)
        whole, later = Reader(), Reader()
        async with task_group() as tasks:
            tasks.start_soon(run.read, whole)
            tasks.start_soon(run.read, later, 3)
        assert [number for number in whole.ids if number > 3] == later.ids
        assert whole.heard.endswith(later.heard)


async def test_who_has_seen_the_end_is_told_that_there_is_no_more():
    async with following("one") as run:
        last = (await run.places())[-1]
        reader = await run.read(Reader(), last)
        assert (reader.pieces, reader.ended) == ([CLOSED], True)


@pytest.mark.parametrize("beyond", [1, 1000])
async def test_who_claims_to_have_seen_what_has_not_been_is_told_all(beyond):
    async with following("one ", Silence(5), "two") as run:
        await anyio.sleep(1)
        early = await run.read(Reader(), len(await run.play.journal(run.run_id)) + beyond)
        places = await run.places()
        late = await run.read(Reader(), places[-1] + beyond)
        assert early.ids == late.ids == places and early.ended and late.ended


async def test_a_sign_of_life_comes_whenever_it_was_quiet_for_a_while():
    async with following(
        "one ", Silence(3 * ALIVE + 1), "two ", Silence(ALIVE - 1), "three"
    ) as run:
        reader = await run.read(Reader())
        signs = [
            at for at, piece in zip(reader.times, reader.pieces, strict=True) if piece == KEEPALIVE
        ]
        assert signs == pytest.approx([ALIVE, 2 * ALIVE, 3 * ALIVE], abs=3 * LOOK)


async def test_a_reader_that_stalls_is_left_without_an_end_and_slows_nobody():
    script = ["word ", Silence(1)] * 100
    async with following(*script) as run:
        stalled, others = Reader(takes=3), [Reader() for _ in range(3)]
        async with task_group() as tasks:
            for reader in (stalled, *others):
                tasks.start_soon(run.read, reader)
        assert not stalled.ended and CLOSED not in stalled.heard
        assert 0 <= stalled.hung_up - (stalled.stuck + STALLED) <= LOOK
        places = await run.places()
        for reader in others:
            assert reader.ids == places and reader.ended
            assert reader.times[-1] == pytest.approx(100, abs=0.1)
        # What it missed is there when it comes back.
        again = await run.read(Reader(), stalled.ids[-1])
        assert stalled.ids + again.ids == places


async def test_a_reader_that_stalls_before_the_last_word_is_left_as_well():
    async with following("one") as run:
        await run.play.ended(run.run_id)
        began = anyio.current_time()
        reader = await run.read(Reader(takes=0))
        assert not reader.ended and 0 <= reader.hung_up - (began + STALLED) <= LOOK
        assert CLOSED not in reader.heard


async def test_a_reader_whose_key_opens_no_more_is_left_without_an_end():
    async with following("half ", Silence()) as run, task_group() as tasks:
        keys, revoked, other = ["phone"], Reader(), Reader()
        tasks.start_soon(partial(run.read, revoked, welcome=lambda: keys[0]))
        tasks.start_soon(partial(run.read, other, welcome=lambda: "local"))
        await anyio.sleep(2 * LOOK)
        assert revoked.hung_up is None
        keys[0], at = None, anyio.current_time()
        await anyio.sleep(2 * LOOK)
        assert revoked.hung_up <= at + LOOK and not revoked.ended
        assert other.hung_up is None
        other.leave()


async def test_a_reader_that_goes_on_in_time_misses_nothing_and_hears_nothing_after_the_end():
    async with following("one ", Silence(1), "two ", Silence(1), "three") as run:
        slow = await run.read(Reader(takes=4, until=STALLED - 5))
        assert slow.hung_up is None and slow.ended
        assert slow.ids == await run.places()


async def test_no_sign_of_life_comes_after_the_last_word_however_long_that_took():
    async with following("one") as run:
        await run.play.ended(run.run_id)
        reader = await run.read(Reader(takes=0, until=ALIVE + 5))
        assert reader.ended and len(reader.pieces) == 1 and KEEPALIVE not in reader.heard


async def test_no_more_than_a_piece_is_on_its_way_to_a_reader_however_long_the_run():
    words = 4000
    async with following(*["word "] * words) as run:
        await run.play.ended(run.run_id)
        reader = await run.read(Reader())
        assert reader.ids == await run.places()
        assert max(map(len, reader.pieces)) < 2 * PIECE


@pytest.mark.parametrize("room", [True, False])
async def test_a_frame_of_any_length_goes_out_in_pieces(tmp_path, room):
    words = "word " * 100_000
    async with following(words, folder=tmp_path if room else Path("nowhere")) as run:
        await run.play.ended(run.run_id)
        reader = await run.read(Reader())
        assert reader.ids == await run.places() and reader.ended
        assert max(map(len, reader.pieces)) == PIECE and len(reader.pieces) > 15
        data = re.findall(rb"^data: (.*)$", reader.heard, re.MULTILINE)
        assert json.loads(data[-1])["output"] == words
        assert not [*tmp_path.iterdir()]


async def test_a_long_frame_that_nobody_takes_is_in_a_file_and_not_in_memory(tmp_path):
    async with following("word " * 1_000_000, folder=tmp_path) as run, task_group() as tasks:
        before_the_reply = (await run.places())[-3]
        tracemalloc.start()
        try:
            for _ in range(3):
                tasks.start_soon(run.read, Reader(takes=2), before_the_reply)
            await anyio.sleep(STALLED / 2)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # What they are told has fifteen million letters.
        assert held < 1e6


async def test_a_reader_that_leaves_leaves_nothing_behind():
    async with following("one ", Silence(100), "two") as run:
        reader = Reader()
        async with task_group() as tasks:
            tasks.start_soon(run.read, reader)
            await anyio.sleep(3)
            reader.leave()
        assert anyio.current_time() == 3
        assert not reader.ended and reader.hung_up is None


async def test_a_reader_that_leaves_while_it_stalls_leaves_nothing_behind():
    async with following(*["word ", Silence(1)] * 9) as run:
        reader = Reader(takes=2)
        async with task_group() as tasks:
            tasks.start_soon(run.read, reader)
            await anyio.sleep(5)
            reader.leave()
        assert anyio.current_time() == 5 and reader.hung_up is None


async def test_a_reader_is_told_that_the_server_goes_and_is_left_without_an_end():
    async with following("one ", Silence(5), "two ", Silence(100)) as run:
        reader = Reader()
        async with task_group() as tasks:
            tasks.start_soon(run.read, reader)
            await anyio.sleep(2)
            run.service.draining.set()
            await anyio.sleep(10)
            run.service.left.set()
        assert reader.names[-2:] == ["server.draining", "message.delta"]
        assert (reader.hung_up, reader.ended) == (12, False)
        assert b"id" not in reader.pieces[reader.names.index("server.draining")].split(b"data")[0]


async def test_a_reader_of_a_run_that_is_deleted_is_left_without_an_end():
    async with following("one ", Silence(60), "two") as run, task_group() as tasks:
        reader = Reader()
        tasks.start_soon(run.read, reader)
        await anyio.sleep(1)
        await run.play.runs.delete(run.run_id)
        await anyio.sleep(1)
        assert b"one " in reader.heard and b"two" not in reader.heard
        assert reader.hung_up and not reader.ended and CLOSED not in reader.heard


async def test_a_reader_is_left_without_an_end_when_nothing_more_can_be_read():
    async with stage(ScriptedModel(["half ", Silence(5), "more"])) as play:
        broken = FaultyStore(play.means.store)
        service = Service(play.runs, replace(play.means, store=broken), Settings(Path("nowhere")))
        stream, reader = RunStream(service, await play.start(), after=0), Reader()
        async with task_group() as tasks:
            with pytest.raises(StoreUnavailable):
                tasks.start_soon(break_down, broken)
                await read_to(reader, stream)
        assert "message.delta" in reader.names
        assert reader.hung_up is not None and not reader.ended
        assert not service.readers


async def break_down(store):
    await anyio.sleep(1)
    store.down = True


async def test_a_run_that_ends_while_the_server_drains_ends_its_stream_properly():
    async with following("one ", Silence(5), "two") as run:
        reader = Reader()
        async with task_group() as tasks:
            tasks.start_soon(run.read, reader)
            run.service.draining.set()
        assert "server.draining" in reader.names and reader.names[-1] == "run.completed"
        assert reader.ended and reader.hung_up is None


async def test_signs_of_life_come_while_the_server_drains_and_who_stalls_is_left():
    async with following("one ", Silence(5 * ALIVE), "two") as run:
        reader, stalled = Reader(), Reader(takes=0)
        async with task_group() as tasks:
            tasks.start_soon(run.read, reader)
            tasks.start_soon(run.read, stalled)
            await anyio.sleep(1)
            run.service.draining.set()
            await anyio.sleep(3 * ALIVE + 2 * LOOK)
            assert reader.heard.count(KEEPALIVE) == 3 and reader.heard.count(b"draining") == 1
            assert stalled.hung_up and not reader.hung_up
            run.service.left.set()
        assert reader.hung_up and not reader.ended


async def test_whoever_comes_while_the_server_drains_is_told_at_once():
    async with following("one ", Silence(50)) as run:
        await anyio.sleep(1)
        run.service.draining.set()
        run.service.left.set()
        reader = await run.read(Reader())
        assert "server.draining" in reader.names and not reader.ended
        assert reader.hung_up == 1


async def test_many_readers_hear_the_same():
    async with following(*["word ", Silence(1)] * 20) as run:
        readers = [Reader() for _ in range(200)]
        async with task_group() as tasks:
            for number, reader in enumerate(readers):
                tasks.start_soon(run.read, reader)
                await anyio.sleep(number % 7 / 50)
        places = await run.places()
        assert all(reader.ids == places and reader.ended for reader in readers)


async def test_a_reader_of_words_that_were_taken_back_before_it_came_never_sees_them():
    async with stage(ScriptedModel(["wrong ", Silence(500)], ["right"])) as play:
        service = Service(play.runs, play.means, Settings(data=Path("nowhere")))
        run_id = await play.start()
        assert (await play.ended(run_id)).output == "right"
        reader = Reader()
        await read_to(reader, RunStream(service, run_id, after=0))
        assert b"wrong" not in reader.heard and b"right" in reader.heard
        assert reader.ended
