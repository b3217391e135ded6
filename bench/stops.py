"""How long a stop takes: from asking for it to the end of the run's event stream.

    python bench/stops.py [--times N] [--only PHASE ...]

  speaking    the model is in the middle of a long reply
  late        as `speaking`, after a thousand words that came one by one
  silent      the model was asked and says nothing
  tool        a tool is at work
  asking      a person is asked whether a tool may run
  waiting     the model refused, and it is waited before it is asked again
  queued      no worker has taken the run up yet
  crowd       as `speaking`, beside fifty others that speak

The server is a process of its own, and so is the model as far as it knows: both speak HTTP. Beside
each, for comparison, a request that does nothing (GET /health). Exits 1 if the 95th percentile of
a phase is above 20 ms, or if a call to the model is still open at the end. Tells how much of the
machine others had meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import aiohttp
import anyio

from holdfast.config import read_settings
from holdfast.core.messages import ToolSpec
from holdfast.host import serve
from holdfast.ports import Review, ToolUse
from holdfast.testing.connection import Received
from holdfast.testing.endpoint import Answer, Endpoint, Step, open_endpoint
from holdfast.testing.scripted import Call, Silence

sharing = import_module("machine")

LIMIT = 0.020
CROWD = 50
PHASES = ("speaking", "late", "silent", "tool", "asking", "waiting", "queued", "crowd")

#: What the stream says once a run is where it is to be stopped.
REACHED = {
    "speaking": b"message.delta",
    "late": b"last ",
    "silent": b"first_event",
    "tool": b"tool.started",
    "asking": b"approval.request",
    "waiting": b'"failure"',
    "queued": b"run.queued",
    "crowd": b"message.delta",
}

CONFIG = """
max_concurrent_runs = {most}
[models.main]
wire = "openai-chat"
model = "m"
base_url = "{url}"
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


def be_the_server(data: Path, config: Path) -> None:
    settings = read_settings(data=str(data), config=str(config), port="0")
    tools = [Sleep("sleep", ask=False), Sleep("ask", ask=True)]
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
        case "silent":
            return [Silence(600)]
        case "tool":
            return [Call("sleep", "{}")]
        case "asking":
            return [Call("ask", "{}")]
        case "waiting":
            return [Answer(503, headers={"Retry-After": "60"})]
    return _slowly()


def _slowly() -> Sequence[Step]:
    return ["word ", Silence(0.02)] * 3000


# --- measuring ------------------------------------------------------------------------------------


class Client:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

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
            began = perf_counter()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.stop, run_id)
                heard += await events.content.read()
                taken = perf_counter() - began
        assert b"run.cancelled" in heard and heard.endswith(b": stream closed\n\n")
        return taken

    async def nothing(self) -> float:
        began = perf_counter()
        async with self._http.get("/health") as response:
            await response.read()
        return perf_counter() - began


@asynccontextmanager
async def serving(folder: Path, url: str, most: int) -> AsyncIterator[Client]:
    config = folder / "holdfast.toml"
    config.write_text(CONFIG.format(url=url, most=most))
    command = [sys.executable, __file__, "--serve", str(folder / "data"), str(config)]
    async with await anyio.open_process(command, stderr=sys.stderr) as server:
        assert server.stdout is not None
        where = (await server.stdout.receive()).decode().strip()
        key = (folder / "data" / "api_key").read_text().strip()
        async with aiohttp.ClientSession(
            where,
            headers={"Authorization": f"Bearer {key}"},
            connector=aiohttp.TCPConnector(limit=0),
        ) as http:
            async with http.get("/v1/runs") as response:
                await response.read()  # what is loaded only now is loaded
            yield Client(http)
        server.terminate()


async def measure(phase: str, times: int, endpoint: Endpoint) -> tuple[list[float], list[float]]:
    """How long each stop took, and how long each request that does nothing."""
    taken, nothing = [], []
    with TemporaryDirectory() as folder:
        most = 1 if phase == "queued" else 1000
        async with serving(Path(folder), endpoint.url, most) as client:
            beside = {"queued": 1, "crowd": CROWD}.get(phase, 0)
            others = [await client.start("speaking") for _ in range(beside)]
            await anyio.sleep(0.5)
            for _ in range(times):
                nothing.append(await client.nothing())
                taken.append(await client.stopped(phase))
            for run_id in others:
                await client.stop(run_id)
            with anyio.fail_after(5):
                while endpoint.open:  # noqa: ASYNC110 (it has no event for it)
                    await anyio.sleep(0.01)
    return taken, nothing


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


async def main(phases: Sequence[str], times: int) -> int:
    good, machine = True, sharing.Machine()
    async with open_endpoint(script) as endpoint:
        for phase in phases:
            taken, nothing = await measure(phase, times, endpoint)
            slow = percentile(taken, 0.95)
            print(
                f"{phase:10} p50 {percentile(taken, 0.5) * 1000:6.1f} ms"
                f"   p95 {slow * 1000:6.1f} ms   (a request alone"
                f" {percentile(nothing, 0.5) * 1000:.1f} ms){'' if slow <= LIMIT else '  TOO MUCH'}"
            )
            good = good and slow <= LIMIT
    print(machine.told())
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        be_the_server(*map(Path, sys.argv[2:4]))
        os._exit(0)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=40, metavar="N")
    parser.add_argument("--only", nargs="+", choices=PHASES, default=PHASES, metavar="PHASE")
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.only, given.times))
