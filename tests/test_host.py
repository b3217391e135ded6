"""A whole server and its end: what is under way, what comes, and what is found by the next one."""

import json
import logging
import signal
from contextlib import closing
from time import monotonic

import aiohttp
import anyio
import pytest

from holdfast import host
from holdfast.calls.tasks import task_group
from holdfast.core.secrets import Secrets
from holdfast.core.session import SessionCreated, SessionDeleted
from holdfast.engine.means import Means
from holdfast.errors import StoreUnavailable
from holdfast.stores.database import open_reader
from holdfast.stores.memory import MemoryStore
from holdfast.testing.endpoint import open_endpoint
from holdfast.testing.scripted import Call, Silence
from holdfast.testing.virtual_time import VirtualTimeLoop
from tests.faults.serving import CUT, asked, model_at, serving, staring

pytestmark = pytest.mark.real_time

#: Without a jail it is asked about each command that changes something.
FREE = 'jail = "off"'


def command(words):
    return Call("terminal", json.dumps({"command": words}))


#: What a model does that is asked this.
DOES = {
    "quick": ["quick ", Silence(0.7), "and done"],
    "ask me": [command("echo yes >> asked")],
    "use it": [command("echo yes >> used; sleep 600")],
}


async def follow_to_the_cut(server, run_id, heard):
    """Every frame, and that the stream broke off instead of ending."""
    async with server.follow(run_id) as events:
        with pytest.raises(aiohttp.ClientPayloadError):
            async for frame in events:
                heard.append(frame)
    assert events.comments == []


def names(frames):
    return [frame.event for frame in frames]


async def knock_until_gone(server, answers):
    """Ask for one run more, again and again, until there is nobody to ask."""
    while True:
        try:
            answers.append(await server.post("/v1/runs", {"input": "one more"}))
        except CUT:
            return
        await anyio.sleep(0.02)


def check_refusals(answers):
    assert len(answers) >= 2
    for answer in answers:
        assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
        assert int(answer.headers["Retry-After"]) >= 1


async def allow(server, run_id):
    """Say yes to what a run asks, once it does."""
    await server.reached(run_id, "waiting_for_approval")
    assert (await server.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})).status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_told_to_end_lets_runs_finish_and_leaves_the_rest_to_the_next(
    tmp_path, number
):
    silent = True

    def script(request):
        for words, says in DOES.items():
            if words in asked(request):
                return says
        return ["half ", Silence()] if silent else ["whole"]

    async with (
        open_endpoint(script) as endpoint,
        serving(tmp_path, model_at(endpoint, server="drain = 1.5", tools=FREE)) as server,
    ):
        *slow, asks, uses = open_runs = [
            await server.run(words) for words in ["slow"] * 18 + ["ask me", "use it"]
        ]
        await allow(server, uses)
        quick = await server.run("quick")
        heard, refused = {run_id: [] for run_id in open_runs}, []
        async with task_group() as tasks:
            for run_id in open_runs:
                tasks.start_soon(follow_to_the_cut, server, run_id, heard[run_id])
            async with server.follow(quick) as events:
                await events.until("message.delta")
                while not (
                    all(names(heard[run_id])[-1:] == ["message.delta"] for run_id in slow)
                    and names(heard[asks])[-1:] == ["approval.request"]
                    and (tmp_path / "used").exists()
                ):
                    await anyio.sleep(0.01)
                began = monotonic()
                server.process.send_signal(number)
                await events.until("server.draining")
                tasks.start_soon(knock_until_gone, server, refused)
                health = await server.get("/health/detailed")
                assert (await events.all())[-1].event == "run.completed"
                assert events.comments == [b": stream closed"]
        assert await server.gone() == 0
        assert 1.4 < monotonic() - began < 15
        check_refusals(refused)
        assert health.json["gateway_state"] == "draining"
        for run_id, frames in heard.items():
            assert "server.draining" in names(frames)
            # What waits for somebody goes on waiting.
            assert run_id == asks or frames[-1].event == "run.queued"
        assert names(heard[asks])[-2:] == ["approval.request", "server.draining"]
        assert [line for line in server.log.splitlines() if "jail is off" not in line] == []
        # All that is on record stands in one file, whole.
        assert not (server.data / "journal.db-wal").exists()
        # The next one goes on with them.
        silent = False
        await server.start(model_at(endpoint, tools=FREE))
        await allow(server, asks)
        ends = [await server.ended(run_id) for run_id in (*open_runs, quick)]
        assert [end["status"] for end in ends] == ["completed"] * 21
        assert [end["output"] for end in ends] == ["whole"] * 20 + ["quick and done"]
        assert (await server.status(open_runs[0]))["run_id"] == open_runs[0]
        # Nothing was done twice, though one was cut off in the middle of it.
        assert [(tmp_path / name).read_text() for name in ("asked", "used")] == ["yes\n"] * 2
        assert len((await server.get("/v1/runs?limit=100")).json["data"]) == 21


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_who_tells_a_server_twice_does_not_wait(tmp_path, number):
    async with (
        open_endpoint(["half ", Silence()]) as endpoint,
        serving(tmp_path, model_at(endpoint, server="drain = 30")) as server,
    ):
        run_id = await server.run()
        async with server.follow(run_id) as events:
            await events.until("message.delta")
            server.process.send_signal(number)
            await events.until("server.draining")
            began = monotonic()
            server.process.send_signal(number)
            # Some take a connection that is merely closed for the end of what was sent.
            with pytest.raises(aiohttp.ClientPayloadError, match="ConnectionResetError"):
                await events.all()
        assert await server.gone() == 128 + number
        assert monotonic() - began < 15
        assert server.log == ""


async def test_neither_a_stalled_reader_nor_a_long_wait_keeps_a_server_from_its_end(tmp_path):
    async with (
        open_endpoint([*["word " * 1000] * 200, Silence()]) as endpoint,
        serving(tmp_path, model_at(endpoint, server="drain = 0.2")) as server,
    ):
        run_id = await server.run()
        waits = []

        async def wait():
            waits.append(await server.status(run_id, wait=60))

        with staring(server, run_id):
            async with task_group() as tasks:
                tasks.start_soon(wait)
                async with server.follow(run_id) as events:
                    heard = 0
                    async for frame in events:
                        heard += len(frame.data.get("delta", ""))
                        if heard == 5000 * 200:
                            break
                began = monotonic()
                assert await server.stop() == 0
                assert monotonic() - began < 15
        # Whoever waited is told how things stand.
        assert [told["status"] for told in waits] == ["queued"]
        assert server.log == ""


async def test_a_server_without_anything_to_do_ends_at_once(tmp_path):
    async with serving(tmp_path, '[models.demo]\nwire = "demo"\n') as server:
        assert (await server.get("/health", bare=True)).status == 200
        began = monotonic()
        assert await server.stop() == 0
        assert monotonic() - began < 15
        assert server.log == ""


def test_what_is_logged_while_a_server_lives_holds_no_secret(caplog):
    log = logging.getLogger("holdfast.anywhere")
    with host._masked_logs(Secrets(["sk-canary-12345"])):
        log.warning("who is %s?", "sk-canary-12345")
    log.warning("nobody looks at sk-canary-12345 any more")
    (masked, later) = caplog.messages
    assert masked == "who is [secret]?" and "sk-canary" in later


# --- what was deleted


async def deleted_names(server):
    return [
        one["session_id"] for one in (await server.get("/v1/sessions?deleted=true")).json["data"]
    ]


async def test_a_session_that_was_deleted_long_ago_is_gone_after_a_start(tmp_path):
    demo = '[models.demo]\nwire = "demo"\n'
    async with serving(tmp_path, f"{demo}[retention]\ndeleted = 0\n") as server:
        run_id = await server.run("hi", session_id="old")
        await server.post("/v1/sessions", {"session_id": "kept"})
        gone = await server.ask("DELETE", "/v1/sessions/old")
        assert "purged_at" not in gone.json
        await until(server, "select 1 from run where place = 'ended'")
        server.kill()
        # All of a millisecond.
        await server.start(f"{demo}[retention]\ndeleted = 0.00000001\n")
        with anyio.fail_after(20):
            while await deleted_names(server):
                await anyio.sleep(0.01)
        assert (await server.get("/v1/sessions/kept")).status == 200
        # Its runs are gone with it, and its name is free.
        assert (await server.get(f"/v1/runs/{run_id}")).status == 404
        assert (await server.post("/v1/sessions", {"session_id": "old"})).status == 201
        assert server.log == ""


async def until(server, query):
    with closing(open_reader(server.data / "journal.db")) as db, anyio.fail_after(20):
        while not db.execute(query).get:
            await anyio.sleep(0.01)


async def test_a_response_that_was_deleted_long_ago_is_gone_from_the_file_after_a_start(tmp_path):
    demo = '[models.demo]\nwire = "demo"\n'
    async with serving(tmp_path, f"{demo}[retention]\ndeleted = 0\n") as server:
        asked = {"input": "hi", "background": True}
        gone, kept = [
            f"/v1/responses/{(await server.post('/v1/responses', asked)).json['id']}"
            for _ in range(2)
        ]
        assert (await server.ask("DELETE", gone)).status == 200
        await until(server, "select 1 from run where deleted_at and place = 'ended'")
        server.kill()
        await server.start(f"{demo}[retention]\ndeleted = 0.00000001\n")

        await until(server, "select count(*) = 1 from run")
        assert (await server.get(gone)).status == 404
        assert (await server.get(kept)).status == 200
        assert server.log == ""


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualTimeLoop})])
async def test_what_is_deleted_is_looked_for_every_hour_and_trouble_with_it_ends_nothing(
    anyio_backend, caplog
):
    asked = []

    class Store:
        async def purge(self, *, before):
            asked.append((anyio.current_time(), before))
            if len(asked) == 2:
                raise StoreUnavailable("away")
            return ["s"] if len(asked) == 3 else []

    means = Means(store=Store(), models={}, tools={}, clock=anyio.current_time)
    with anyio.move_on_after(2.5 * host.PURGE):
        await host._purge(means, 0.5)
    assert asked == [
        (at, at - 0.5 * host.DAY) for at in (0, host.PURGE, 2 * host.PURGE, 2 * host.PURGE)
    ]
    assert "could not be removed: away" in caplog.text
    await host._purge(means, 0.0)
    assert len(asked) == 4


async def test_what_was_allowed_in_a_session_is_forgotten_before_it_is_purged():
    forgotten = []

    class Book:
        async def forget(self, session_id):
            forgotten.append((session_id, len(await store.sessions(deleted=True))))

    now = [0.0]
    store = MemoryStore(now=lambda: now[0])
    means = Means(store=store, models={}, rulebook=Book(), clock=lambda: now[0])
    for name in ("old", "new", "kept"):
        await store.note(name, SessionCreated())
    await store.note("old", SessionDeleted())
    now[0] = 2 * host.DAY
    await store.note("new", SessionDeleted())
    with anyio.move_on_after(0.05):
        await host._purge(means, 1.0)
    assert forgotten == [("old", 2)]
    assert [entry.session_id for entry in await store.sessions(deleted=True)] == ["new"]
