"""A run whose reader leaves: it goes on, or is stopped a while later. On real sockets.

All of it happens at once, since each case takes seconds; then each is looked at by itself.
"""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import anyio
import pytest

from holdfast.calls.tasks import task_group
from holdfast.server.openai.streams import LINGER
from tests.server.conftest import HOST, PATIENCE, Server

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(90)]

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SESSION = {"X-Session-Id": "talk"}
#: A run that ends by itself when the others would have been stopped, and one that does not. Its word
#: ends in a blank, as any letter may be the first of a secret, and is held back then.
SHORT = json.dumps([["a ", {"wait": LINGER + 1.5}, "b"]])
LONG = json.dumps([["a ", {"wait": 600}, "b"]])


class Seen(NamedTuple):
    """A run after all that: `left` is when its last reader did."""

    status: str
    left: float
    journal: list


class Line:
    """A request on a socket of its own, answered or not."""

    def __init__(self, server):
        self._server = server

    async def ask(self, method, path, fields=None, headers=()):
        host, port = self._server.url.removeprefix("http://").split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(fields).encode() if fields else b""
        named = {
            "Host": f"{host}:{port}",
            "Content-Type": "application/json",
            "Content-Length": len(body),
            **self._server.headers,
            **dict(headers),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await self.writer.drain()

    async def hear(self, words):
        """Read until these have come."""
        with anyio.fail_after(PATIENCE):
            await self.reader.readuntil(words)

    async def leave(self):
        """Returns when that was: not later than anybody could notice."""
        left = time.time()  # noqa: TID251 (to be compared with what another process wrote)
        self.writer.close()
        await self.writer.wait_closed()
        return left


class Case(NamedTuple):
    """What is asked, and what is done once the first word has come; then whoever asked leaves."""

    fields: dict
    path: str = CHAT
    headers: dict = MappingProxyType({})
    meanwhile: str = ""
    script: str = LONG


CASES = {
    "a stream": Case({"stream": True}),
    "an answer": Case({}),
    "only its own side shut": Case({"stream": True}, meanwhile="shut"),
    "a session": Case({"stream": True}, headers=SESSION, script=SHORT),
    "a session, not streamed": Case({}, headers={"X-Session-Id": "other"}, script=SHORT),
    "stored": Case({"stream": True, "store": True}, script=SHORT),
    "background": Case({"stream": True, "background": True}, script=SHORT),
    "told to stop": Case({"stream": True, "store": True, "on_disconnect": "stop"}),
    "told to go on": Case({"stream": True, "on_disconnect": "continue"}, script=SHORT),
    "a response": Case({"stream": True}, RESPONSES, script=SHORT),
    "a response not stored": Case({"stream": True, "store": False}, RESPONSES),
    "another reader stays": Case({"stream": True}, meanwhile="stay", script=SHORT),
    "another reader looks in": Case({"stream": True}, meanwhile="look in"),
    "the same asked twice": Case(
        {"stream": True}, headers={"Idempotency-Key": "k"}, meanwhile="ask again", script=SHORT
    ),
}
STOPPED = [name for name, case in CASES.items() if case.script is LONG]
COMPLETED = [name for name in CASES if name not in STOPPED]


def body(name, case):
    said = {"input": case.script} if case.path == RESPONSES else {}
    messages = {} if said else {"messages": [{"role": "user", "content": case.script}]}
    return {**said, **messages, **case.fields, "metadata": {"case": name}}


async def find(server, name):
    """The run of this case, once it has said its first word."""
    with anyio.fail_after(PATIENCE):
        while True:
            page = (await server.get("/v1/runs?limit=100")).json["data"]
            for run in page:
                if run.get("metadata", {}).get("case") == name and run["seq"] > 3:
                    return run["run_id"]
            await anyio.sleep(0.05)


@asynccontextmanager
async def asked(server, case, path, fields=None):
    line = Line(server)
    await line.ask("POST" if fields else "GET", path, fields, case.headers)
    try:
        yield line
    finally:
        line.writer.close()


async def play(server, name, seen):
    case = CASES[name]
    async with asked(server, case, case.path, body(name, case)) as line:
        run_id = await find(server, name)
        events = f"/v1/runs/{run_id}/events"
        left = await play_on(server, case, line, events, body(name, case))
    with anyio.fail_after(PATIENCE + LINGER):
        while (status := await server.status(run_id, wait=10))["status"] == "running":
            pass
    journal = (await server.get(f"/v1/runs/{run_id}/journal")).json["data"]
    seen[name] = Seen(status["status"], left, journal)


async def play_on(server, case, line, events, fields):
    if not case.meanwhile:
        return await line.leave()
    if case.meanwhile == "shut":
        left = time.time()  # noqa: TID251 (as when they leave)
        line.writer.write_eof()
        return left
    if case.meanwhile == "look in":
        await line.leave()
        await anyio.sleep(0.5)
        async with asked(server, Case({}), events) as other:
            await other.hear(b"message.delta")
            return await other.leave()
    path = case.path if case.meanwhile == "ask again" else events
    async with asked(server, case, path, fields if path == case.path else None) as other:
        await other.hear(b"\n\n")
        await line.leave()
        await other.hear(b"stream closed")
        return await other.leave()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What became of each case."""
    server, seen = Server(tmp_path_factory.mktemp("leaving")), {}
    server.launch("[server]\ndrain = 0\n[models.demo]\nwire = 'demo'\n", command=HOST)

    async def play_all():
        await server.ready()
        async with server.calling(), task_group() as tasks:
            for name in CASES:
                tasks.start_soon(partial(play, server, name, seen))

    try:
        anyio.run(play_all)
        yield seen
    finally:
        server.kill()


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_that_is_for_its_readers_alone_is_stopped_when_they_have_left(seen, name):
    run = seen[name]
    assert run.status == "cancelled"
    (stop,) = [one for one in run.journal if one["event"]["type"] == "stop.requested"]
    assert stop["event"]["reason"] == "whoever asked for it has left"
    # How much later is for the machine to say.
    assert stop["at"] >= run.left + LINGER


@pytest.mark.parametrize("name", COMPLETED)
def test_a_run_that_is_for_more_than_its_readers_goes_on(seen, name):
    assert seen[name].status == "completed"
    assert "stop.requested" not in [one["event"]["type"] for one in seen[name].journal]


async def test_a_run_whose_readers_went_with_the_server_is_stopped_by_the_next(server):
    await server.start_host("[server]\ndrain = 0\n[models.demo]\nwire = 'demo'\n")
    longer = json.dumps([["a", {"wait": LINGER + 0.5}, "b"]])
    cases = {
        "alone": Case({"stream": True}),
        "come back to": Case({"stream": True}, script=longer),
        "in a session": Case({"stream": True}, headers=SESSION, script=longer),
    }
    lines, ids = [Line(server) for _ in cases], {}
    for line, (name, case) in zip(lines, cases.items(), strict=True):
        await line.ask("POST", CHAT, body(name, case), case.headers)
        ids[name] = await find(server, name)
    server.kill()
    for line in lines:
        await line.leave()
    await server.start_host("[models.demo]\nwire = 'demo'\n")
    async with server.follow(ids["come back to"]) as events:
        frames = await events.all()
    ended = {name: (await server.ended(id))["status"] for name, id in ids.items()}
    assert ended == {"alone": "cancelled", "come back to": "completed", "in a session": "completed"}
    assert frames[-1].event == "run.completed"
