"""Many runs on a server that is killed, deserted and stared at."""

import json
import random
from contextlib import ExitStack
from time import monotonic

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.testing.endpoint import Raw, open_endpoint
from holdfast.testing.scripted import Silence
from tests.faults.serving import (
    Careful,
    model_at,
    open_sockets,
    resident,
    serving,
    staring,
)

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]

SEED = 9

#: Readers that take nothing. Each may cost 1 MB.
STARING = 20


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
        readers = [Careful(server, run_id) for run_id in runs]
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


async def test_readers_that_come_and_go_miss_nothing_and_leave_nothing_behind(tmp_path):
    words = [f"w{number} " for number in range(300)]
    script = [step for word in words for step in (word, Silence(0.01))]
    chance = random.Random(SEED)
    async with (
        open_endpoint(script) as endpoint,
        serving(tmp_path, model_at(endpoint)) as server,
    ):
        run_id = await server.run()
        steady, restless = Careful(server, run_id), [Careful(server, run_id) for _ in range(40)]
        # What the first reader of all takes, and nobody gives back, is not counted.
        await hang_up_after(0.1, steady)
        sockets, memory = open_sockets(server.process.pid), resident(server.process.pid)
        async with task_group() as tasks:
            tasks.start_soon(steady.read_to_the_end)
            for reader in restless:
                moments = [chance.uniform(0, 0.6) for _ in range(5)]
                tasks.start_soon(hang_up_now_and_then, moments, reader)
                await anyio.sleep(chance.uniform(0, 0.02))
        assert steady.cuts == 0 and steady.text == "".join(words)
        for reader in restless:
            assert (reader.ids, reader.text) == (steady.ids, steady.text)
        # Those that read to the end have kept their connections for another question.
        await server.http.close()
        with anyio.fail_after(10):
            while open_sockets(server.process.pid) > sockets:
                await anyio.sleep(0.02)
        assert resident(server.process.pid) - memory < 20e6
        assert server.log == ""


async def hang_up_now_and_then(moments, reader):
    for seconds in moments:
        await hang_up_after(seconds, reader)
    await reader.read_to_the_end()


async def hang_up_after(seconds, reader):
    with anyio.move_on_after(seconds):
        await reader.read()


async def test_whoever_asks_and_does_not_read_costs_little_and_slows_nobody(tmp_path):
    words = [f"{number:_>9} " for number in range(20_000)]
    script = [Raw(chat_chunk(word)) for word in words]
    async with open_endpoint(script) as endpoint, serving(tmp_path, model_at(endpoint)) as server:
        alone = await timed(server, await server.run())
        before = resident(server.process.pid)
        run_id = await server.run()
        with ExitStack() as crowd:
            for _ in range(STARING):
                crowd.enter_context(staring(server, run_id))
            beside = await timed(server, run_id)
            assert resident(server.process.pid) - before < 20e6
        assert beside < 2 * alone + 1
        # What they did not take can still be had.
        reader = Careful(server, run_id)
        await reader.read_to_the_end()
        assert reader.text == "".join(words)
        assert server.log == ""


def chat_chunk(text):
    """These words as a model sends them, made beforehand."""
    delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return f"data: {json.dumps(delta)}\n\n".encode()


async def timed(server, run_id):
    began = monotonic()
    reader = Careful(server, run_id)
    await reader.read_to_the_end()
    assert reader.cuts == 0 and reader.end["event"] == "run.completed"
    return monotonic() - began


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
