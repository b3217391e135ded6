"""What supervised model calls cost, as ratios to the official SDKs taken in one run.

    python bench/model_calls.py [--only NAME ...]

  chat, responses, anthropic   20 slow streams at once: CPU per event, against the SDK
  imports                      importing all that a call needs, against importing the SDKs
  crowd                        1,000 streams of 50 events/s in one process, none falling behind
  memory                       memory of an open stream that is silent

Exits 1 if a limit is passed. The endpoint is a process of its own (fast_endpoint.py), and so is
everything that is measured. The ratios are taken on the event loop that Python comes with.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import fmean, median, quantiles
from time import monotonic, process_time
from typing import Any, NamedTuple, TypeAlias, TypeVar

import anyio

#: It stands beside this file, where only a running script finds it.
counting = import_module("fast_endpoint")
TICK: float = counting.TICK

STREAMS, EVENTS = 20, 200
CROWD, CROWD_EVENTS = 1000, 500

#: How often each is measured, in turn with the other: a busy machine only slows them down.
ROUNDS = 3
IMPORTS = 5

#: Seconds in which all of a crowd are connected, before the first of them is told anything.
LEAD = 5.0

QUESTION = "Count, please."

T = TypeVar("T")

#: Asks a model by its name, and is told each piece of text as it comes.
Ask: TypeAlias = Callable[[str, Callable[[str], None]], Coroutine[Any, Any, None]]


class Found(NamedTuple):
    """`limit` is None where nothing has been promised."""

    what: str
    value: float
    limit: float | None


# --- who asks ------------------------------------------------------------------------------


@asynccontextmanager
async def ours(wire: str, port: int) -> AsyncIterator[Ask]:
    from holdfast.calls.line import Line, attempt
    from holdfast.core.messages import Chunk, Request, Said, Text, UserMessage
    from holdfast.core.watchdog import Patience
    from holdfast.models.http import open_transport
    from holdfast.models.remote import open_remote

    request = Request("model", "", (UserMessage((Text(QUESTION),)),))
    async with open_transport() as transport:

        async def ask(model: str, hear: Callable[[str], None]) -> None:
            async def take(chunk: Chunk) -> None:
                if isinstance(chunk, Said):
                    hear(chunk.text)

            url = f"http://127.0.0.1:{port}/v1"
            remote = open_remote(wire, transport, base_url=url, model=model, key="none")
            await attempt(Line(remote, wire=wire), request, Patience(), take)

        yield ask


@asynccontextmanager
async def the_sdk(wire: str, port: int) -> AsyncIterator[Ask]:
    url = f"http://127.0.0.1:{port}"
    client: Any
    if wire == "anthropic":
        client = import_module("anthropic").AsyncAnthropic(base_url=url, api_key="none")
    else:
        client = import_module("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    calls = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _messages}
    async with client:
        yield partial(calls[wire], client)


async def _chat(client: Any, model: str, hear: Callable[[str], None]) -> None:
    said = [{"role": "user", "content": QUESTION}]
    usage = {"include_usage": True}
    events = await client.chat.completions.create(
        model=model, messages=said, stream=True, stream_options=usage
    )
    async for event in events:
        if event.choices and event.choices[0].delta.content:
            hear(event.choices[0].delta.content)


async def _responses(client: Any, model: str, hear: Callable[[str], None]) -> None:
    async for event in await client.responses.create(model=model, input=QUESTION, stream=True):
        if event.type == "response.output_text.delta":
            hear(event.delta)


async def _messages(client: Any, model: str, hear: Callable[[str], None]) -> None:
    said = [{"role": "user", "content": QUESTION}]
    events = await client.messages.create(model=model, messages=said, max_tokens=8192, stream=True)
    async for event in events:
        if event.type == "content_block_delta":
            hear(event.delta.text)


Asker: TypeAlias = Callable[[str, int], AbstractAsyncContextManager[Ask]]


# --- 20 slow streams -----------------------------------------------------------------------


def against_the_sdk(wire: str, limit: float, port: int) -> Sequence[Found]:
    askers: dict[str, Asker] = {"ours": ours, "the SDK": the_sdk}
    taken: dict[str, list[float]] = {name: [] for name in askers}
    for _ in range(ROUNDS):
        for name, asker in askers.items():
            taken[name].append(alone(slow_streams, asker, wire, port))
    least = {name: min(values) * 1e6 for name, values in taken.items()}
    for name, values in taken.items():
        rounds = ", ".join(f"{value * 1e6:.0f}" for value in values)
        print(f"  {name}: {least[name]:.0f} µs of CPU per event ({rounds})")
    return [Found("CPU per event, ours / the SDK", least["ours"] / least["the SDK"], limit)]


def slow_streams(asker: Asker, wire: str, port: int) -> float:
    """Seconds of CPU per event, all that this process does counted."""

    async def main() -> float:
        async with asker(wire, port) as ask:
            await listen(ask, 1, f"n={EVENTS // 10}")
            began = process_time()
            texts = await listen(ask, STREAMS, f"n={EVENTS}")
            took = process_time() - began
        if texts != [counting.words(EVENTS)] * STREAMS:
            raise SystemExit("not all that was said was heard")
        return took / (STREAMS * EVENTS)

    return anyio.run(main)


async def listen(ask: Ask, streams: int, model: str) -> list[str]:
    """So many calls at once, and what was heard in each."""
    heard: list[list[str]] = [[] for _ in range(streams)]
    async with anyio.create_task_group() as tasks:
        for pieces in heard:
            tasks.start_soon(ask, model, pieces.append)
    return ["".join(pieces) for pieces in heard]


# --- imports -------------------------------------------------------------------------------

OURS = (
    "holdfast.models.remote",
    "holdfast.models.openai_chat",
    "holdfast.models.openai_responses",
    "holdfast.models.anthropic",
    "holdfast.calls.line",
    "holdfast.calls.alone",
)
SDKS = ("openai", "anthropic")

_IMPORT = """
from time import perf_counter, process_time
wall, cpu = perf_counter(), process_time()
import {names}
print(perf_counter() - wall, process_time() - cpu)
"""


def imports(_port: int) -> Sequence[Found]:
    packages = {"ours": OURS, "the SDKs": SDKS}
    for modules in packages.values():
        importing(modules)  # files are read and compiled once
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in packages}
    for _ in range(IMPORTS):
        for name, modules in packages.items():
            taken[name].append(importing(modules))
    cpu: dict[str, float] = {}
    for name, values in taken.items():
        wall, cpu[name] = (median(column) for column in zip(*values, strict=True))
        print(f"  {name}: {wall * 1000:.0f} ms, {cpu[name] * 1000:.0f} ms of CPU")
    return [Found("CPU to import, ours / the SDKs", cpu["ours"] / cpu["the SDKs"], 1 / 2)]


def importing(modules: Sequence[str]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU, in a fresh interpreter."""
    script = _IMPORT.format(names=", ".join(modules))
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    wall, cpu = map(float, printed.stdout.split())
    return wall, cpu


# --- a crowd -------------------------------------------------------------------------------


class Kept(NamedTuple):
    """How well a crowd was kept up with, in seconds."""

    lags: array[float]
    took: float
    cpu: float
    queued: float

    @property
    def cuts(self) -> list[float]:
        return quantiles(self.lags, n=100)

    @property
    def growth(self) -> float:
        """How many seconds later a second makes them: from the second quarter to the last."""
        quarter = len(self.lags) // 4
        early, late = self.lags[quarter : 2 * quarter], self.lags[3 * quarter :]
        return (fmean(late) - fmean(early)) / (self.took / 2)


def crowd(port: int) -> Sequence[Found]:
    ideal = CROWD_EVENTS * TICK
    kept = min((alone(keep_up, port) for _ in range(ROUNDS)), key=lambda kept: kept.cuts[98])
    cuts = kept.cuts
    print(f"  on {'uvloop' if _has('uvloop') else 'asyncio (uvloop is not installed)'}")
    print(f"  {len(kept.lags):,} events in {kept.took:.2f} s, {ideal:.2f} s would be ideal")
    print(f"  lag p50 {cuts[49] * 1000:.0f} ms, max {max(kept.lags) * 1000:.0f} ms")
    per_event = kept.cpu / len(kept.lags) * 1e6
    print(f"  {kept.cpu / kept.took:.0%} of a core, {per_event:.0f} µs of CPU per event")
    print(f"  waited {kept.queued:.2f} s for a core that others had")
    return [
        Found("lag p99 in ms", cuts[98] * 1000, None),
        # Whoever falls behind is later and later; whoever keeps up is as late as before.
        Found("ms that the lag grows by in a second", kept.growth * 1000, 10.0),
        Found("time taken / ideal", kept.took / ideal, 1.1),
    ]


def keep_up(port: int) -> Kept:
    async def main() -> Kept:
        first = counting.tick(monotonic() + LEAD)
        lags: array[float] = array("d")

        def hear(text: str) -> None:
            # What came at once is told at once.
            lags.extend(monotonic() - (first + int(one)) * TICK for one in text.split())

        model = f"n={CROWD_EVENTS} first={first}"
        cpu = queued = 0.0
        async with ours("openai-chat", port) as ask, anyio.create_task_group() as tasks:
            for _ in range(CROWD):
                tasks.start_soon(ask, model, hear)
            await anyio.sleep(first * TICK - monotonic())
            cpu, queued = process_time(), in_queue()
        took = monotonic() - first * TICK
        if len(lags) != CROWD * CROWD_EVENTS:
            raise SystemExit("not all that was said was heard")
        return Kept(lags, took, process_time() - cpu, in_queue() - queued)

    return anyio.run(main, backend_options={"use_uvloop": _has("uvloop")})


def in_queue() -> float:
    """Seconds that we could have run and did not, where Linux tells."""
    told = Path("/proc/self/schedstat")
    return int(told.read_text().split()[1]) / 1e9 if told.exists() else 0.0


# --- memory --------------------------------------------------------------------------------


def memory(port: int) -> Sequence[Found]:
    return [
        Found("kB of Python's memory per stream", alone(held, port, traced) / 1e3, None),
        Found("kB of the process's memory per stream", alone(held, port, resident) / 1e3, None),
    ]


def held(port: int, measure: Callable[[], float]) -> float:
    """Bytes more per stream that is open and silent."""

    async def main() -> float:
        opened, all_open = 0, anyio.Event()

        def hear(_text: str) -> None:
            nonlocal opened
            opened += 1
            if opened == CROWD:
                all_open.set()

        async with ours("openai-chat", port) as ask:
            await listen(ask, 10, "n=2")
            gc.collect()
            before = measure()
            async with anyio.create_task_group() as tasks:
                for _ in range(CROWD):
                    tasks.start_soon(ask, "n=2 every=1000000", hear)
                await all_open.wait()
                gc.collect()
                after = measure()
                tasks.cancel_scope.cancel()
        return (after - before) / CROWD

    return anyio.run(main)


def traced() -> float:
    tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


def resident() -> float:
    """The most there ever was, which is what there is for as long as it only grows."""
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- all of it -----------------------------------------------------------------------------


def alone(work: Callable[..., T], *given: Any) -> T:
    """What comes of it in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *given).result()


def _has(module: str) -> bool:
    return find_spec(module) is not None


@contextmanager
def endpoint() -> Iterator[int]:
    """The port of one that lasts as long as we do."""
    script = Path(__file__).with_name("fast_endpoint.py")
    command = [sys.executable, str(script)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


SCENES: dict[str, Callable[[int], Sequence[Found]]] = {
    "chat": partial(against_the_sdk, "openai-chat", 1 / 5),
    "responses": partial(against_the_sdk, "openai-responses", 1 / 5),
    "anthropic": partial(against_the_sdk, "anthropic", 1 / 3),
    "imports": imports,
    "crowd": crowd,
    "memory": memory,
}
NEED_SDKS = {"chat", "responses", "anthropic", "imports"}


def main(names: Sequence[str]) -> int:
    if not all(map(_has, SDKS)):
        left_out = [name for name in names if name in NEED_SDKS]
        names = [name for name in names if name not in NEED_SDKS]
        if left_out:
            print(f"pip install {' '.join(SDKS)} is needed for: {', '.join(left_out)}")
    good = True
    with endpoint() as port:
        for name in names:
            print(name)
            for what, value, limit in SCENES[name](port):
                fine = limit is None or value <= limit
                bound = "" if limit is None else f", limit {limit:,.2f}"
                print(f"  {what}: {value:,.2f}{bound}{'' if fine else '  TOO MUCH'}")
                good = good and fine
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME")
    sys.exit(main(parser.parse_args().only))
