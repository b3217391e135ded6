"""Answers to clients that leave, and from servers that leave. `test_leaving` has the sockets."""

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.server.openai.rejoin import RETRIES
from holdfast.server.openai.streams import LINGER
from holdfast.testing.scripted import ScriptedModel, Silence
from tests.server.openai.sse import comments
from tests.server.openai.test_chat_routes import CHAT, asking, runs
from tests.server.openai.test_response_routes import RESPONSES, respond


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
