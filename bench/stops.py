"""How long a stop takes: from asking for it to the end of the run's event stream.

    python bench/stops.py [--times N] [--only PHASE ...] [--rest SECONDS] [--data FOLDER]

  speaking    the model is in the middle of a long reply
  late        as `speaking`, after a thousand words that came one by one
  silent      the model was asked and says nothing
  rested      as `silent`, after 15 s in which nothing happened
  tool        a tool is at work
  command     a command runs in the jail; as root or where there is bubblewrap
  asking      a person is asked whether a tool may run
  waiting     the model refused, and it is waited before it is asked again
  queued      no worker has taken the run up yet
  crowd       as `speaking`, beside fifty others that speak

The server is a process of its own, the model another; both speak HTTP. Before each stop, after the same
rest, the floor for comparison: a process of a few lines is woken, has the same disk keep 4 KB, twice, as
a stop does, and answers. Exits 1 if the 95th percentile of a phase is above 20 ms, or if a call to the
model is still open at the end. Tells how much of the machine others had meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import aiohttp
import anyio
import anyio.abc
from anyio import to_thread

from holdfast.config import read_settings
from holdfast.core.messages import ToolSpec
from holdfast.host import serve
from holdfast.ports import Review, ToolUse
from holdfast.testing.connection import Received
from holdfast.testing.endpoint import Answer, Step, open_endpoint
from holdfast.testing.scripted import Call, Silence

sharing = import_module("machine")

LIMIT = 0.020
CROWD = 50
PAGE = 4096
PHASES = (
    "speaking",
    "late",
    "silent",
    "rested",
    "tool",
    "command",
    "asking",
    "waiting",
    "queued",
    "crowd",
)

#: What the stream says once a run is where it is to be stopped.
REACHED = {
    "speaking": b"message.delta",
    "late": b"last ",
    "silent": b"first_event",
    "rested": b"first_event",
    "tool": b"tool.started",
    "command": b"tool.started",
    "asking": b"approval.request",
    "waiting": b'"failure"',
    "queued": b"run.queued",
    "crowd": b"message.delta",
}

CONFIG = """
workspace = "{workspace}"
max_concurrent_runs = {most}
[models.main]
wire = "openai-chat"
model = "m"
base_url = "{url}"
[tools]
approval = "{approval}"
"""


# --- the server, in a process of its own ---------------------------------------------------------


class Sleep:
    """A tool that takes its time, and may have to be allowed first."""

    def __init__(self, name: str, *, ask: bool) -> None:
        self.spec = ToolSpec(name=name, description="Sleeps.", writes=ask, timeout=600.0)
        self._ask = ask

    def review(self, arguments: str) -> Review:
        return Review(gate="ask" if self._ask else "auto", reason="it sleeps", subject=arguments)

    async def run(self, use: ToolUse) -> str:
        await anyio.sleep(600)
        return use.arguments


def be_the_server(data: str, config: str, phase: str) -> None:
    settings = read_settings(data=data, config=config, port="0")
    # A command is for the built-in tools.
    tools = [Sleep("sleep", ask=False), Sleep("ask", ask=True)] if phase != "command" else None
    anyio.run(
        partial(serve, settings, partial(print, flush=True), tools=tools),
        backend_options={"use_uvloop": True},
    )


# --- the model ------------------------------------------------------------------------------------


def script(request: Received) -> Sequence[Step]:
    """As the prompt says."""
    phase = request.body["messages"][-1]["content"]
    match phase if isinstance(phase, str) else phase[0]["text"]:
        case "late":
            said: Sequence[Step] = ["word ", Silence(0.002)] * 1000
            return [*said, "last ", *_slowly()]
        case "silent" | "rested":
            return [Silence(600)]
        case "command":
            return [Call("terminal", '{"command": "sleep 30"}')]
        case "tool":
            return [Call("sleep", "{}")]
        case "asking":
            return [Call("ask", "{}")]
        case "waiting":
            return [Answer(503, headers={"Retry-After": "60"})]
    return _slowly()


def _slowly() -> Sequence[Step]:
    return ["word ", Silence(0.02)] * 3000


async def be_the_model() -> None:
    """Tells its address, and then, for each line it hears, how many calls are open."""
    async with open_endpoint(script) as endpoint:
        print(endpoint.url, flush=True)
        while await to_thread.run_sync(sys.stdin.readline):
            print(endpoint.open, flush=True)


class Model:
    def __init__(self, process: anyio.abc.Process, url: str) -> None:
        self._process, self.url = process, url

    async def open(self) -> int:
        """How many calls to it are."""
        return int(await heard_from(self._process, b"\n"))


@asynccontextmanager
async def modelling() -> AsyncIterator[Model]:
    async with beside_us("--model") as process:
        yield Model(process, await heard_from(process))


@asynccontextmanager
async def beside_us(*arguments: str) -> AsyncIterator[anyio.abc.Process]:
    """Part of this, in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    async with await anyio.open_process(command, stderr=sys.stderr) as process:
        try:
            yield process
        finally:
            process.terminate()


async def heard_from(process: anyio.abc.Process, asked: bytes = b"") -> str:
    assert process.stdin is not None and process.stdout is not None
    if asked:
        await process.stdin.send(asked)
    heard = b""
    while not heard.endswith(b"\n"):
        # A line may come in two pieces.
        heard += await process.stdout.receive()
    return heard.decode().strip()


# --- measuring ------------------------------------------------------------------------------------


class Client:
    def __init__(self, http: aiohttp.ClientSession, rest: float) -> None:
        self._http, self._rest = http, rest

    async def start(self, phase: str) -> str:
        async with self._http.post("/v1/runs", json={"input": phase}) as response:
            return str((await response.json())["run_id"])

    async def stop(self, run_id: str) -> None:
        async with self._http.post(f"/v1/runs/{run_id}/stop") as response:
            assert response.status == 200, await response.text()

    async def stopped(self, phase: str) -> float:
        """Seconds from asking to the end of the stream."""
        run_id = await self.start(phase)
        async with self._http.get(f"/v1/runs/{run_id}/events") as events:
            heard = b""
            while REACHED[phase] not in heard:
                heard += await events.content.readany()
            await anyio.sleep(self._rest)
            began = perf_counter()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.stop, run_id)
                heard += await events.content.read()
                taken = perf_counter() - began
        assert b"run.cancelled" in heard and heard.endswith(b": stream closed\n\n")
        return taken


class Floor:
    """The least that a stop can take: a process is woken, the disk keeps two things, and it answers."""

    def __init__(self, process: anyio.abc.Process, rest: float) -> None:
        self._process, self._rest = process, rest

    async def asked(self) -> float:
        await anyio.sleep(self._rest)
        began = perf_counter()
        await heard_from(self._process, b"\n")
        return perf_counter() - began


def be_the_floor(file: str) -> None:
    with FileIO(file, "w") as page:
        for _ in sys.stdin:
            for _ in range(2):
                page.write(os.urandom(PAGE))
                os.fdatasync(page.fileno())
            print(flush=True)


@asynccontextmanager
async def on_the_floor(folder: Path, rest: float) -> AsyncIterator[Floor]:
    async with beside_us("--floor", str(folder / "page")) as process:
        yield Floor(process, rest)


@asynccontextmanager
async def serving(folder: Path, url: str, phase: str, rest: float) -> AsyncIterator[Client]:
    config, workspace = folder / "holdfast.toml", folder / "workspace"
    workspace.mkdir()
    config.write_text(
        CONFIG.format(
            url=url,
            workspace=workspace,
            most=1 if phase == "queued" else 1000,
            approval="yolo" if phase == "command" else "ask",
        )
    )
    async with beside_us("--serve", str(folder / "data"), str(config), phase) as server:
        where = await heard_from(server)
        key = (folder / "data" / "api_key").read_text().strip()
        async with aiohttp.ClientSession(
            where,
            headers={"Authorization": f"Bearer {key}"},
            connector=aiohttp.TCPConnector(limit=0),
        ) as http:
            async with http.get("/v1/runs") as response:
                await response.read()  # what is loaded only now is loaded
            yield Client(http, rest)


class Taken(NamedTuple):
    """In seconds."""

    stops: list[float]
    floor: list[float]


async def measure(phase: str, times: int, model: Model, rest: float, data: Path | None) -> Taken:
    taken = Taken([], [])
    with TemporaryDirectory(dir=data) as name:
        folder = Path(name)
        async with (
            on_the_floor(folder, rest) as floor,
            serving(folder, model.url, phase, rest) as client,
        ):
            beside = {"queued": 1, "crowd": CROWD}.get(phase, 0)
            others = [await client.start("speaking") for _ in range(beside)]
            await anyio.sleep(0.5)
            for _ in range(times):
                taken.floor.append(await floor.asked())
                taken.stops.append(await client.stopped(phase))
            for run_id in others:
                await client.stop(run_id)
            with anyio.fail_after(5):
                while await model.open():  # noqa: ASYNC110 (it has no event for it)
                    await anyio.sleep(0.01)
    return taken


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def told(phase: str, taken: Taken) -> str:
    def row(values: Sequence[float]) -> str:
        ms = (percentile(values, part) * 1000 for part in (0.5, 0.95, 1.0))
        late = sum(one > LIMIT for one in values)
        return "p50{:6.1f}  p95{:6.1f}  max{:6.1f} ms".format(*ms) + f"  {late:2} late"

    much = "" if percentile(taken.stops, 0.95) <= LIMIT else "  TOO MUCH"
    return f"{phase:9}{row(taken.stops)}   floor {row(taken.floor)}{much}"


async def main(phases: Sequence[str], times: int, rest: float, data: Path | None) -> int:
    good, machine = True, sharing.Machine()
    async with modelling() as model:
        for phase in phases:
            pause = rest if phase == "rested" else 0.0
            taken = await measure(phase, times, model, pause, data)
            print(told(phase, taken), flush=True)
            good = good and percentile(taken.stops, 0.95) <= LIMIT
    print(machine.told())
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        be_the_server(*sys.argv[2:5])
        os._exit(0)
    if sys.argv[1:2] == ["--model"]:
        anyio.run(be_the_model)
        sys.exit()
    if sys.argv[1:2] == ["--floor"]:
        be_the_floor(sys.argv[2])
        sys.exit()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=40, metavar="N")
    parser.add_argument("--only", nargs="+", choices=PHASES, default=PHASES, metavar="PHASE")
    parser.add_argument("--rest", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where to keep the data")
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.only, given.times, given.rest, given.data))
