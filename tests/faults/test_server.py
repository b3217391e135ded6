"""Many runs on a server that is killed, deserted and stared at."""

import json
from contextlib import ExitStack
from functools import partial
from time import time  # noqa: TID251 - what is told is told by it

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.server.streams import LOOK, STALLED
from holdfast.testing.endpoint import Raw, open_endpoint
from holdfast.testing.scripted import Silence
from tests.faults.serving import (
    Careful,
    asked,
    is_cut,
    model_at,
    open_sockets,
    resident,
    serving,
    staring,
    threads,
)

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]

#: Threads that a server may have begun meanwhile: it has a few for files.
THREADS = 4

#: Half of what a reply may hold. Told in deltas, as a reply and as the output it makes 22 MB.
LONG = [f"{number:_>4999} " for number in range(1500)]

#: Readers that take nothing. Each may cost 1 MB.
STARING = 40

#: Bytes that a server takes for a reply of this length, more or less from one to the next.
A_REPLY = 25e6


async def test_no_reader_of_fifty_runs_loses_a_word_or_gets_one_twice_when_the_server_is_killed(
    tmp_path,
):
    words = [f"w{number} " for number in range(30)]
    kills = [0]

    def script(request):
        # Nobody can be done before the server has been killed twice.
        half = words[:15]
        return words if kills[0] == 2 else [*half, Silence(600)]

    async with (
        open_endpoint(script) as endpoint,
        serving(tmp_path, model_at(endpoint)) as server,
    ):
        runs = [await server.run(f"run {number}") for number in range(50)]
        readers = [Careful(server, run_id, keep=True) for run_id in runs]
        async with task_group() as tasks:
            for reader in readers:
                tasks.start_soon(reader.read_to_the_end)
            for kill in (1, 2):
                await endpoint.received(kill * 50 - 1)
                while not all("w" in reader.text for reader in readers):
                    await anyio.sleep(0.01)
                kills[0] = kill
                server.kill()
                seen = {reader.run_id: tuple(reader.ids) for reader in readers}
                await server.start(model_at(endpoint))
        assert sum(reader.cuts for reader in readers) >= 50
        for reader in readers:
            assert reader.end["event"] == "run.completed", reader.end
            assert reader.text == reader.end["output"] == "".join(words)
            # In order, none twice, and nothing that was seen before the crash is gone.
            assert reader.ids == sorted(set(reader.ids))
            lines = (await server.get(f"/v1/runs/{reader.run_id}/journal")).json["data"]
            assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
            assert {*seen[reader.run_id], *reader.ids} <= {line["seq"] for line in lines}
            assert (await server.status(reader.run_id))["output"] == "".join(words)
            await check_that_nothing_was_lost(server, reader)


async def check_that_nothing_was_lost(server, reader):
    """Whatever is told to who comes at the end was told to this reader, in the same words."""
    fresh = Careful(server, reader.run_id, keep=True)
    await fresh.read()
    names = {frame["event"] for frame in fresh.told.values()}
    assert names >= {"run.queued", "run.started", "run.phase", "message.completed"}
    assert {id: reader.told.get(id) for id in fresh.told} == fresh.told
    # Beyond that it heard only what was taken back.
    more = [frame for id, frame in reader.told.items() if id not in fresh.told]
    back = {attempt(frame) for frame in more if frame["event"] == "message.retracted"}
    assert len(back) == 2 and {attempt(frame) for frame in more} == back


def attempt(frame):
    return frame["turn"], frame["attempt"]


@pytest.mark.parametrize(
    ("clients", "cycles", "words"),
    [
        (40, 5, 300),
        pytest.param(200, 50, 6000, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
async def test_readers_whose_lines_break_miss_nothing_and_leave_nothing_behind(
    tmp_path, clients, cycles, words
):
    words = [f"w{number} " for number in range(words)]
    script = [step for word in words for step in (word, Silence(0.01))]
    async with (
        open_endpoint(script) as endpoint,
        serving(tmp_path, model_at(endpoint)) as server,
    ):
        run_id = await server.run()
        steady = Careful(server, run_id)
        restless = [Careful(server, run_id) for _ in range(clients)]
        # What the first reader of all takes, and nobody gives back, is not counted.
        await steady.read(most=3)
        pid = server.process.pid
        sockets, memory, workers = open_sockets(pid), resident(pid), threads(pid)
        async with task_group() as tasks:
            tasks.start_soon(steady.read_to_the_end)
            for reader in restless:
                tasks.start_soon(break_off, reader, cycles)
        assert steady.cuts == 0 and steady.text == "".join(words)
        for reader in restless:
            assert (reader.ids, reader.text) == (steady.ids, steady.text)
        # Those that read to the end have kept their connections for another question.
        numbers = (await server.get("/metrics")).text
        assert "holdfast_subscribers 0.0" in numbers
        await server.http.close()
        # Only what hangs takes so long. How soon they are gone is measured by bench/readers.py.
        with anyio.fail_after(5):
            while open_sockets(pid) > sockets or threads(pid) > workers + THREADS:
                await anyio.sleep(0.02)
        assert resident(pid) - memory < 20e6 + 100e3 * clients
        assert server.log == ""


async def break_off(reader, cycles):
    """After three frames, again and again; then stay."""
    for _ in range(cycles):
        await reader.read(most=3)
    await reader.read_to_the_end()


async def test_whoever_asks_and_does_not_read_costs_little_and_holds_nobody_up(tmp_path):
    # Short enough for all that leads up to the reply to be in somebody's buffer: they stall in that.
    words = LONG[:600]
    script = [Raw(chat_chunk(word)) for word in words]
    async with open_endpoint(script) as endpoint, serving(tmp_path, model_at(endpoint)) as server:
        await read_whole(server, await server.run())
        before = resident(server.process.pid)
        run_id = await server.run()
        with ExitStack() as crowd:
            for _ in range(STARING):
                crowd.enter_context(staring(server, run_id))
            # All of it has come before any of them is given up.
            with anyio.fail_after(STALLED - 5):
                await read_whole(server, run_id)
            await down_to(before + STARING * 1e6 + A_REPLY, server.process.pid)
        # What they did not take can still be had.
        assert await read_whole(server, run_id) == "".join(words)
        assert server.log == ""


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_whoever_stalls_while_200_mb_pass_is_left_and_comes_back_without_a_gap(tmp_path):
    # So much that it ends up in no buffer of the system.
    words = LONG * 2
    flood = [Raw(chat_chunk(word)) for word in words]
    trickle = [step for number in range(2000) for step in (f"w{number} ", Silence(0.02))]

    def script(request):
        return trickle if "trickle" in asked(request) else flood

    async with open_endpoint(script) as endpoint, serving(tmp_path, model_at(endpoint)) as server:
        stalled, delays, patience = [], [], []
        await read_whole(server, await server.run())
        before = resident(server.process.pid)
        async with task_group() as tasks:
            tasks.start_soon(delayed, server, await server.run("trickle"), delays)
            for _ in range(5):
                reader = Careful(server, await server.run())
                stalled.append(reader)
                stalls = partial(stall, patience=patience)
                tasks.start_soon(partial(reader.read_to_the_end, most=100, then=stalls))
                await server.ended(reader.run_id)
            # What they take no more waits in no queue of theirs.
            await down_to(before + len(stalled) * 1e6 + 2 * A_REPLY, server.process.pid)
        assert sorted(delays)[len(delays) * 99 // 100] < 0.25
        # What was on its way when they stopped may have been sent a moment before.
        assert len(patience) == len(stalled) and min(patience) > STALLED - LOOK
        for reader in stalled:
            assert reader.cuts >= 1 and reader.text == "".join(words)
            assert reader.ids == sorted(set(reader.ids))
        assert server.log == ""


async def down_to(most, pid):
    """Wait until that process takes no more memory, which it may for as long as it has much to do.
    Those who stall are still there then."""
    with anyio.fail_after(STALLED / 3):
        while resident(pid) > most:
            await anyio.sleep(0.1)


async def stall(response, *, patience):
    """Take nothing until the server has left, and note how long it waited. Returns that more is
    read. That it is late shows only if it never leaves: it may have much to do."""
    began = anyio.current_time()
    with anyio.fail_after(3 * STALLED):
        while not is_cut(response):
            await anyio.sleep(0.1)
    patience.append(anyio.current_time() - began)
    return False


async def delayed(server, run_id, delays):
    """Follow a run, and see how long each word takes to come here."""
    async with server.follow(run_id) as events:
        async for frame in events:
            if frame.event == "message.delta":
                delays.append(time() - frame.data["timestamp"])


def chat_chunk(text):
    """These words as a model sends them, made beforehand."""
    delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return f"data: {json.dumps(delta)}\n\n".encode()


async def read_whole(server, run_id):
    reader = Careful(server, run_id)
    await reader.read_to_the_end()
    assert reader.cuts == 0 and reader.end["event"] == "run.completed", reader.end
    return reader.text


async def test_a_stop_reaches_the_models_at_once_and_is_kept_by_a_server_that_is_killed(tmp_path):
    def script(request):
        return ["half "] + ["more ", Silence(0.05)] * 1000

    async with open_endpoint(script) as endpoint, serving(tmp_path, model_at(endpoint)) as server:
        runs = [await server.run() for _ in range(10)]
        for run_id in runs:
            await server.reached(run_id, "running")
        await endpoint.received(9)
        began = anyio.current_time()
        for run_id in runs[1:]:
            answer = await server.post(f"/v1/runs/{run_id}/stop")
            assert (answer.status, answer.json["status"]) == (200, "stopping")
        while endpoint.open > 1:
            await anyio.sleep(0.01)
        assert anyio.current_time() - began < 5
        # The last is on record when it is answered, and that is all it takes.
        assert (await server.post(f"/v1/runs/{runs[0]}/stop")).status == 200
        server.kill()
        asked = len(endpoint.requests)
        await server.start(model_at(endpoint))
        for run_id in runs:
            assert (await server.ended(run_id))["status"] == "cancelled"
            names = [frame.event for frame in await server.frames(run_id)]
            assert names.count("run.cancelled") == 1 and names[-1] == "run.cancelled"
        assert len(endpoint.requests) == asked
