"""Answers to clients that leave, and from servers that leave. `test_leaving` has the sockets."""

import json
from functools import partial

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.errors import StoreFull, StoreUnavailable
from holdfast.server.frames import BREAK
from holdfast.server.openai.rejoin import RETRIES
from holdfast.server.openai.streams import LINGER, ChatStream, see_off_the_deserted
from holdfast.server.openai.taking import take_chat
from holdfast.server.streams import LOOK, STALLED, look_after
from holdfast.testing.scripted import CutOff, ScriptedModel, Silence
from tests.server.openai.sse import DONE, comments, events
from tests.server.openai.test_chat_routes import CHAT, asking, runs, words
from tests.server.openai.test_response_routes import RESPONSES, respond
from tests.server.test_streams import Reader, nothing


class Leaver:
    """A caller who may leave."""

    def __init__(self):
        self._leave = lambda: None

    def when_gone(self, leave):
        self._leave = leave

    def leave(self):
        self._leave()

    def hang_up(self):
        self.leave()


async def status(served):
    (run,) = await runs(served)
    return run["status"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_whose_reader_left_is_stopped_to_the_second(inside, stream):
    async with inside(ScriptedModel(["a", Silence()])) as served, task_group() as tasks:
        caller = Leaver()
        ask = lambda: served.post(CHAT, asking(stream=stream), caller=caller)  # noqa: E731
        tasks.start_soon(ask)
        await anyio.sleep(1)
        caller.leave()
        await anyio.sleep(LINGER - 0.1)
        assert await status(served) == "running"
        await anyio.sleep(0.2)
        assert await status(served) == "cancelled"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_whose_reader_may_read_no_more_is_stopped_as_if_they_had_left(inside, stream):
    async with inside(ScriptedModel(["a", Silence()])) as served, task_group() as tasks:
        caller, keys, fields = Leaver(), ["phone"], asking(stream=stream)
        ask = partial(served.post, CHAT, fields, caller=caller, welcome=lambda: keys[0])
        tasks.start_soon(look_after, served.service)
        tasks.start_soon(ask)
        await anyio.sleep(1)
        keys[0] = None
        await anyio.sleep(LINGER)
        assert await status(served) == "running"
        await anyio.sleep(LOOK + 0.2)
        assert await status(served) == "cancelled"
        tasks.cancel_scope.cancel()


async def test_a_run_that_is_for_more_than_its_readers_goes_on_for_as_long_as_it_takes(inside):
    async with inside(ScriptedModel(["a", Silence(60), "b"])) as served:
        async with task_group() as tasks:
            caller = Leaver()
            ask = lambda: served.post(CHAT, asking(stream=True, store=True), caller=caller)  # noqa: E731
            tasks.start_soon(ask)
            await anyio.sleep(1)
            caller.leave()
            await anyio.sleep(10 * LINGER)
            assert await status(served) == "running"
            await anyio.sleep(20)
        assert await status(served) == "completed"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_goes_on_while_another_waits_for_its_answer(inside, stream):
    async with inside(ScriptedModel(["a", Silence(4 * LINGER), "b"])) as served:
        caller, named, answers = Leaver(), {"Idempotency-Key": "k"}, []

        async def ask(**options):
            answers.append(await served.post(CHAT, asking(stream=stream), headers=named, **options))

        async with task_group() as tasks:
            tasks.start_soon(partial(ask, caller=caller))
            await anyio.sleep(1)
            tasks.start_soon(ask)
            await anyio.sleep(1)
            caller.leave()
        assert await status(served) == "completed"
        assert answers[-1].status == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_that_ended_meanwhile_is_left_as_it_is(inside, stream):
    async with inside(ScriptedModel(["a", Silence(3), "b"])) as served:
        async with task_group() as tasks:
            caller = Leaver()
            ask = lambda: served.post(CHAT, asking(stream=stream), caller=caller)  # noqa: E731
            tasks.start_soon(ask)
            await anyio.sleep(1)
            caller.leave()
        assert await status(served) == "completed"


async def test_that_the_server_leaves_is_no_reason_to_stop_a_run(inside):
    async with inside(ScriptedModel(["a", Silence()])) as served:
        async with task_group() as tasks:
            caller = Leaver()
            ask = lambda: served.post(CHAT, asking(stream=True), caller=caller)  # noqa: E731
            tasks.start_soon(ask)
            await anyio.sleep(1)
            caller.leave()
            await anyio.sleep(1)
            served.service.draining.set()
        assert await status(served) == "running"


# --- readers that are slow, and models that begin again


async def read(served, reader, fields, headers=()):
    """A chat as this reader has it; the run's id."""
    taken = await take_chat(
        served.service,
        json.dumps(fields).encode(),
        principal="ada",
        key=None,
        headers=dict(headers),
        caller=reader,
    )
    stream = ChatStream(served.service, taken.run_id, taken=taken)
    scope = {"type": "http", "state": {"caller": reader, "principal": "ada"}}
    await stream(scope, nothing, reader.send)
    return taken.run_id


@pytest.mark.parametrize(
    ("headers", "ends"), [({}, "cancelled"), ({"X-Session-Id": "s"}, "completed")]
)
async def test_a_chat_reader_that_stalls_is_left_and_the_run_ends_as_if_it_had(
    inside, headers, ends
):
    words = ["word ", Silence(1)] * 100
    async with inside(ScriptedModel(words)) as served, task_group() as tasks:
        tasks.start_soon(look_after, served.service)
        stalled = Reader(takes=3)
        run_id = await read(served, stalled, asking(stream=True), headers)
        assert not stalled.ended and b"[DONE]" not in stalled.heard
        assert 0 <= stalled.hung_up - (stalled.stuck + STALLED) <= LOOK
        # Nothing was made ready for it but the one piece that it did not take.
        assert len(stalled.pieces) == 3
        # The model went on at its own pace meanwhile.
        journal = (await served.get(f"/v1/runs/{run_id}/journal")).json["data"]
        assert [one["event"]["type"] for one in journal].count("model.text") >= STALLED
        await anyio.sleep(100)
        assert await stands(served, run_id) == ends
        tasks.cancel_scope.cancel()


async def test_a_chat_reader_sees_a_break_where_the_model_began_again_and_later_ones_do_not(inside):
    calls = [["Hel", Silence(1), CutOff()], ["Hello!"]]
    async with inside(ScriptedModel(*calls)) as served:
        asked, named = asking(stream=True), {"Idempotency-Key": "k"}
        live = await served.post(CHAT, asked, headers=named)
        assert words(live) == f"Hel{BREAK}Hello!"
        finish = [c["finish_reason"] for e in events(live.body)[:-1] for c in e.data["choices"]]
        assert finish[-1] == "stop" and set(finish[:-1]) == {None}
        assert events(live.body)[-1].data == DONE
        again = await served.post(CHAT, asked, headers=named)
        assert words(again) == "Hello!"
        assert len(await runs(served)) == 1


# --- after a server that was ended


async def begin(served, **fields):
    """Ask for a chat as somebody who vanishes with their server, which sees nobody off."""
    before = {one["run_id"] for one in await runs(served)}
    await served.post(CHAT, asking(stream=True, **fields), patience=1)
    (id,) = {one["run_id"] for one in await runs(served)} - before
    return id


async def stands(served, id):
    return (await served.get(f"/v1/runs/{id}")).json["status"]


async def test_a_run_whose_readers_went_with_their_server_is_stopped_unless_they_come_back(inside):
    async with inside(ScriptedModel(*[["a", Silence()]] * 3)) as served, task_group() as tasks:
        alone, kept = await begin(served), await begin(served, background=True)
        read = await begin(served)
        tasks.start_soon(see_off_the_deserted, served.service)
        await anyio.sleep(LINGER - 0.1)
        follow = lambda: served.get(f"/v1/runs/{read}/events", patience=9)  # noqa: E731
        tasks.start_soon(follow)
        assert await stands(served, alone) == "running"
        await anyio.sleep(0.2)
        assert await stands(served, alone) == "cancelled"
        await anyio.sleep(9 + LINGER - 0.4)
        assert await stands(served, read) == "running"
        await anyio.sleep(0.4)
        assert await stands(served, read) == "cancelled"
        assert await stands(served, kept) == "running"
        journal = (await served.get(f"/v1/runs/{alone}/journal")).json["data"]
        (stop,) = [one["event"] for one in journal if one["event"]["type"] == "stop.requested"]
        assert (stop["by"], stop["reason"]) == ("ada", "whoever asked for it has left")


async def test_all_that_were_deserted_are_seen_off_however_many(inside):
    async with inside(ScriptedModel(*[["a", Silence()]] * 5)) as served:
        ids = [await begin(served) for _ in range(5)]
        await see_off_the_deserted(served.service, page=2)
        await anyio.sleep(1)
        assert {await stands(served, id) for id in ids} == {"cancelled"}


class Broken:
    """A store and a door of which nothing can be had."""

    async def list(self, **_):
        raise StoreUnavailable("closed")

    async def stop(self, run_id, **_):
        raise StoreFull("no space")


@pytest.mark.parametrize("part", ["store", "runs"])
async def test_a_store_that_fails_then_is_no_reason_to_end_the_server(inside, part, caplog):
    async with inside(ScriptedModel(["a", Silence()])) as served:
        id = await begin(served)
        whole = getattr(served.service, part)
        setattr(served.service, part, Broken())
        await see_off_the_deserted(served.service)
        setattr(served.service, part, whole)
        assert await stands(served, id) == "running"
        assert "nobody reads" in caplog.text


@pytest.mark.parametrize(
    ("key", "again"), [({}, "false"), ({"Idempotency-Key": "k"}, None), ({RETRIES: "0"}, None)]
)
async def test_who_waits_for_the_whole_answer_is_told_when_the_server_leaves(inside, key, again):
    async with inside(ScriptedModel(["a", Silence()])) as served:
        answers = []

        async def ask():
            answers.append(await served.post(CHAT, asking(), headers=key))

        async with task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(1)
            served.service.draining.set()
            served.service.left.set()
        (answer,), (run,) = answers, await runs(served)
        assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
        assert (answer.headers["x-run-id"], run["status"]) == (run["run_id"], "running")
        assert answer.headers.get("x-should-retry") == again


async def test_who_follows_is_told_beside_the_events_that_the_server_is_about_to_leave(inside):
    async with inside(ScriptedModel(["a"])) as served:
        id = (await respond(served))["id"]
        served.service.draining.set()
        followed = await served.get(f"{RESPONSES}/{id}?stream=true")
        assert any(one.startswith(": server.draining") for one in comments(followed.body))
