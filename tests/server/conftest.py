"""A server as its users have it: a process of its own that is asked over HTTP."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import anyio
import pytest

from holdfast.app import open_app
from holdfast.config import Settings
from holdfast.errors import HoldfastError
from holdfast.server.about import About
from holdfast.server.asgi import make_routes
from holdfast.server.lane import Lane
from holdfast.server.metrics import Metrics
from holdfast.server.problems import Problem, problem
from holdfast.server.service import Service

HOST = (sys.executable, str(Path(__file__).with_name("host_script.py")))
SERVE = (sys.executable, "-m", "holdfast", "serve")
READY = "holdfast is listening on "
DEMO = '[models.demo]\nwire = "demo"\n'

#: Seconds. Enough on a machine that is busy with other tests.
PATIENCE = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Frame(NamedTuple):
    """`id` is None for a frame that has none. It is a number on the stream of a run alone."""

    id: int | str | None
    data: dict[str, Any]

    @property
    def event(self):
        return self.data["event"]


def read_frame(block):
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
    assert fields.keys() <= {b"id", b"data"}, block
    id = fields[b"id"].decode() if b"id" in fields else None
    return Frame(int(id) if id and id.isdecimal() else id, json.loads(fields[b"data"]))


class Events:
    """The frames of one stream, to be read once. What is not a frame is in `comments`."""

    def __init__(self, response):
        self.response = response
        self.comments = []
        self._heard = b""

    async def __aiter__(self):
        async for piece in self.response.content.iter_any():
            self._heard += piece
            *blocks, self._heard = self._heard.split(b"\n\n")
            for block in blocks:
                if frame := self._read(block):
                    yield frame

    async def all(self):
        return [frame async for frame in self]

    async def until(self, event, times=1):
        """All frames up to the one of that name, which may have to come several times."""
        frames = []
        async for frame in self:
            frames.append(frame)
            times -= frame.event == event
            if not times:
                return frames
        raise AssertionError(f"the stream ended without {event}: {frames}")

    def _read(self, block):
        if block.startswith(b":"):
            self.comments.append(block)
            return None
        return read_frame(block)


class Server:
    """`holdfast serve` on a folder of its own. Started again, it has the same data and port."""

    def __init__(self, folder: Path):
        self.data = folder / "data"
        self.http = None
        self.url = ""
        self.process = None
        self._folder, self._port, self._key = folder, 0, ""
        self._out = self._err = folder / "none"

    # --- its life

    async def start(self, config_text=DEMO, *, args=(), env=None, command=SERVE):
        """Returns when it says that it is ready."""
        self.launch(config_text, args=args, env=env, command=command)
        await self.ready()

    async def start_host(self, config_text=DEMO):
        """As `start`, with the model and the tools of `host_script`."""
        await self.start(config_text, command=HOST)
        # The first who asks for a route waits until all are loaded, and what is scripted does not.
        await self.get("/v1/capabilities")

    async def ready(self):
        with anyio.fail_after(PATIENCE):
            while READY not in self._out.read_text():
                assert self.process.poll() is None, self.log
                await anyio.sleep(0.01)
        self.url = self._out.read_text().split(READY)[1].split("\n")[0]
        self._port = int(self.url.rpartition(":")[2])

    def launch(self, config_text=DEMO, *, args=(), env=None, command=SERVE):
        """Without waiting for anything."""
        assert self.process is None
        self._key = (env or {}).get("HOLDFAST_API_KEY", "")
        config = self._folder / "holdfast.toml"
        # Who runs no commands need not have a jail made ready for them.
        calm = "" if "[tools]" in config_text else "\n[tools]\nterminal = false\n"
        config.write_text(config_text + calm)
        self._out, self._err = self._folder / "out", self._folder / "err"
        words = [*command, "--port", str(self._port), "--data", self.data, "--config", config]
        with self._out.open("w") as out, self._err.open("a") as err:
            self.process = subprocess.Popen(
                [*words, *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(env or {})},  # noqa: TID251 (to be handed on)
            )

    async def stop(self):
        """Ask it to leave, and return its exit code once it has."""
        self.process.terminate()
        return await self.gone()

    async def gone(self):
        with anyio.fail_after(PATIENCE):
            while self.process.poll() is None:
                await anyio.sleep(0.01)
        code, self.process = self.process.returncode, None
        return code

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def log(self):
        """What it wrote to stderr, in all its lives."""
        return self._err.read_text()

    # --- asking it

    @property
    def key(self):
        return self._key or (self.data / "api_key").read_text().strip()

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.key}"}

    async def ask(self, method, path, *, headers=None, bare=False, **options):
        """With the key, unless `bare`. The options are those of aiohttp."""
        headers = {**({} if bare else self.headers), **(headers or {})}
        async with self.http.request(
            method, self.url + path, headers=headers, **options
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path, **options):
        return await self.ask("GET", path, **options)

    async def post(self, path, json=None, **options):
        if json is not None:
            options["json"] = json
        return await self.ask("POST", path, **options)

    @asynccontextmanager
    async def follow(
        self, run_id="", *, session_id="", after=None, last_event_id=None
    ) -> AsyncIterator[Events]:
        """`after` goes into the address, `last_event_id` into the header."""
        headers = dict(self.headers)
        if last_event_id is not None:
            headers["Last-Event-ID"] = str(last_event_id)
        query = "" if after is None else f"?after={after}"
        where = f"sessions/{session_id}" if session_id else f"runs/{run_id}"
        path = f"{self.url}/v1/{where}/events{query}"
        async with self.http.get(path, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Events(response)

    async def frames(self, run_id, **cursor):
        """All there are, to the end of the run."""
        async with self.follow(run_id, **cursor) as events:
            return await events.all()

    # --- what tests want of it

    async def run(self, text="hello", **fields):
        """The id of a run that was started. A script, see `host_script`, is given as a list."""
        text = text if isinstance(text, str) else json.dumps(text)
        answer = await self.post("/v1/runs", {"input": text, **fields})
        assert answer.status == 202, answer.text
        return answer.json["run_id"]

    async def status(self, run_id, *, wait=0):
        answer = await self.get(f"/v1/runs/{run_id}" + (f"?wait={wait}" if wait else ""))
        assert answer.status == 200, answer.text
        return answer.json

    async def ended(self, run_id):
        """Its status once it has ended."""
        status = await self.status(run_id, wait=PATIENCE)
        assert status["status"] in {"completed", "failed", "cancelled"}, status
        return status

    async def reached(self, run_id, *names):
        """Its status once it is one of these."""
        with anyio.fail_after(PATIENCE):
            while (status := await self.status(run_id))["status"] not in names:
                await anyio.sleep(0.01)
        return status

    @asynccontextmanager
    async def calling(self):
        """Open to be asked, for as long as this lasts."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self.http:
            yield self


@pytest.fixture
async def server(tmp_path):
    """Not started yet. Whatever becomes of it, it is gone at the end of the test."""
    server = Server(tmp_path)
    try:
        async with server.calling():
            yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def host_process(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("host"))
    server.launch("[server]\ndrain = 0\n" + DEMO, command=HOST)
    yield server
    server.process.terminate()
    try:
        server.process.wait(PATIENCE)
    finally:
        server.kill()


@pytest.fixture
async def host(host_process):
    """A server on `host_script`, which the tests of a module share: it is not to be ended."""
    await host_process.ready()
    async with host_process.calling() as server:
        yield server


def on_endpoint(url, *, wire="openai-chat", more=""):
    """A configuration whose only model is there. `more` goes into its table, or follows it."""
    return f'[models.main]\nwire = "{wire}"\nmodel = "m"\nbase_url = "{url}"\n{more}'


@pytest.fixture
def config():
    return on_endpoint


# --- without a process


class Present:
    """A caller who stays."""

    def hang_up(self):
        pass

    def when_gone(self, leave):
        pass


class Inside:
    """The routes as they are called, without a socket, and of the guard only that what they raise is
    answered. A model and tools of one's own."""

    def __init__(self, app, settings, metrics):
        self.app, self.settings = app, settings
        self.service = Service(app.runs, app.means, settings, sessions=app.sessions)
        self.about = About(self.service, settings, app.means, "1.2.3", metrics)
        routes = make_routes(self.service, self.about)
        self.asgi = Lane(self.service, self.about, routes)

    async def ask(
        self, method, path, body=b"", headers=(), patience=float("inf"), caller=None, welcome=None
    ):
        """The answer, or what there is of it after so many seconds."""
        sent = []
        path, _, query = path.partition("?")
        # A mapping, or pairs of which two may have one name.
        named = list(headers.items() if isinstance(headers, dict) else headers)
        if "content-type" not in dict(named):
            named.append(("content-type", "application/json"))
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in named],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "state": {"principal": "ada", "caller": caller or Present()},
        }
        if welcome:
            scope["state"]["welcome"] = welcome
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            return await anyio.sleep_forever()

        async def send(message):
            sent.append(message)

        try:
            with anyio.move_on_after(patience):
                await self.asgi(scope, receive, send)
        except (Problem, HoldfastError) as error:
            if sent:
                raise
            refusal = problem(error).without(self.service.secrets)
            told = {name.lower(): value for name, value in refusal.headers.items()}
            return Answer(refusal.status, told, refusal.body)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        said = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], found, said)

    async def get(self, path, **options):
        return await self.ask("GET", path, **options)

    async def post(self, path, fields=None, **options):
        body = b"" if fields is None else json.dumps(fields).encode()
        return await self.ask("POST", path, body=body, **options)

    async def patch(self, path, fields, **options):
        return await self.ask("PATCH", path, body=json.dumps(fields).encode(), **options)

    async def delete(self, path, **options):
        return await self.ask("DELETE", path, **options)

    async def frames(self, path, **options):
        """Those of a stream, until it ends or nothing more is awaited: their ids, and their data."""
        answer = await self.get(path, **options)
        assert answer.status == 200, answer.text
        return [read_frame(block) for block in answer.body.split(b"\n\n") if block[:1] not in b":"]

    async def run(self, text="hello", **fields):
        return (await self.post("/v1/runs", {"input": text, **fields})).json["run_id"]


@pytest.fixture
def inside(tmp_path):
    """To open an Inside: `async with inside(model, *tools, **settings) as served`."""

    @asynccontextmanager
    async def open_inside(model, *tools, **more):
        settings = Settings(tmp_path, **more)
        models = {settings.default_model: model} if model else {}
        metrics = Metrics()
        async with open_app(models=models, tools=tools, wrap=metrics.wrap) as app:
            yield Inside(app, settings, metrics)

    return open_inside
