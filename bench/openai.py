"""What a chat stream costs over a stream of /v1/runs, on a server process that is asked over HTTP.

    python bench/openai.py [--times N] [--streams N]

  latency   from when a piece is due at the endpoint to when a lone reader has it, both ways
  many      so many streams of 100 pieces at 20 ms at once, both ways, against the ideal

The endpoint (fast_endpoint.py) and the server are processes of their own. Exits 1 if a limit is
passed: a chat stream is at most 1 ms later, and many take at most twice the ideal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter
from typing import NamedTuple, TypeAlias

import anyio

#: Milliseconds that a chat stream may be later, and times the ideal that many may take.
LATER, LONGER = 1.0, 2.0

PIECES, TICK = 100, 0.02
IDEAL = (PIECES - 1) * TICK

CONFIG = """
max_queued_runs = 2000
[models.main]
wire = "openai-chat"
model = "n={pieces}"
base_url = "http://127.0.0.1:{port}/v1"
[tools]
terminal = false
"""


Heard: TypeAlias = list[tuple[float, bytes]]


class Server(NamedTuple):
    port: int
    key: str


class Told(NamedTuple):
    """What came over one stream: its pieces, and when each came."""

    text: str
    times: list[float]


# --- asking ---------------------------------------------------------------------------------


async def ask(
    server: Server, method: str, path: str, fields: object = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps(fields).encode() if fields else b""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        f"Authorization: Bearer {server.key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    status = await reader.readline()
    assert status.split()[1] in (b"200", b"202"), status
    return reader, writer


async def read(reader: asyncio.StreamReader) -> Heard:
    """All that comes until the line is closed, and when. It is taken apart later, when nobody waits."""
    heard: Heard = []
    while data := await reader.read(65536):
        heard.append((monotonic(), data))
    return heard


def take_apart(heard: Heard) -> Told:
    """The pieces of text, whichever way they were told."""
    text, times, rest = [], [], b""
    for at, data in heard:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                found = json.loads(line[6:])
                delta = found.get("event") == "message.delta" and found["delta"]
                if piece := delta or _content(found):
                    text.append(piece)
                    times.append(at)
    return Told("".join(text), times)


def _content(chunk: dict[str, list[dict[str, dict[str, str]]]]) -> str:
    return "".join(one["delta"].get("content", "") for one in chunk.get("choices", ()))


async def chat(server: Server) -> Heard:
    messages = [{"role": "user", "content": "count"}]
    fields = {"model": "main", "messages": messages, "stream": True}
    reader, writer = await ask(server, "POST", "/v1/chat/completions", fields)
    try:
        return await read(reader)
    finally:
        writer.close()


async def runs(server: Server) -> Heard:
    reader, writer = await ask(server, "POST", "/v1/runs", {"input": "count"})
    answer = await reader.read()
    writer.close()
    run_id = json.loads(answer.partition(b"\r\n\r\n")[2])["run_id"]
    reader, writer = await ask(server, "GET", f"/v1/runs/{run_id}/events")
    try:
        return await read(reader)
    finally:
        writer.close()


Way: TypeAlias = Callable[[Server], Coroutine[None, None, Heard]]

WAYS: dict[str, Way] = {"runs": runs, "chat": chat}


# --- what is measured -----------------------------------------------------------------------


async def measure_latency(server: Server, times: int) -> bool:
    """Each way in turn, so that a busy machine slows both alike."""
    lags: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(times):
        for name, way in WAYS.items():
            told = take_apart(await way(server))
            # A piece is due when a tick begins; far less than one later it is here.
            lags[name] += [at % TICK * 1000 for at in told.times]
    for name, found in lags.items():
        ninety = sorted(found)[len(found) * 9 // 10]
        print(f"  {name:6} median {median(found):6.2f} ms   90 % within {ninety:6.2f} ms")
    later = median(lags["chat"]) - median(lags["runs"])
    print(f"  chat is {later:+.2f} ms later (limit {LATER} ms){'  TOO MUCH' * (later > LATER)}")
    return later <= LATER


async def hear(way: Way, server: Server, heard: list[Heard]) -> None:
    heard.append(await way(server))


async def measure_many(server: Server, count: int) -> bool:
    expected, good = "".join(f"{n} " for n in range(PIECES)), True
    for name, way in WAYS.items():
        heard: list[Heard] = []
        began = perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(hear, way, server, heard)
        took = (perf_counter() - began) / IDEAL
        wrong = sum(1 for one in heard if take_apart(one).text != expected)
        over = name == "chat" and (took > LONGER or wrong > 0)
        good = good and not over
        print(
            f"  {count} {name:6} {took:5.2f} × the ideal, {wrong} texts not exact{'  TOO MUCH' * over}"
        )
    return good


# --- putting it together --------------------------------------------------------------------


@asynccontextmanager
async def counting_at() -> AsyncIterator[int]:
    """The port of a model that counts."""
    script = Path(__file__).with_name("fast_endpoint.py")
    async with await anyio.open_process([sys.executable, str(script)]) as endpoint:
        yield int(await first_line(endpoint))
        endpoint.terminate()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    async with counting_at() as port:
        config = folder / "holdfast.toml"
        config.write_text(CONFIG.format(port=port, pieces=PIECES))
        command = [sys.executable, "-m", "holdfast", "serve", "--port", "0"]
        command += ["--data", str(folder / "data"), "--config", str(config)]
        async with await anyio.open_process(command, stderr=sys.stderr) as server:
            said = await first_line(server)
            key = (folder / "data" / "api_key").read_text().strip()
            yield Server(int(said.rpartition(":")[2]), key)
            server.terminate()


async def first_line(process: anyio.abc.Process) -> str:
    assert process.stdout is not None
    said = ""
    while "\n" not in said:
        said += (await process.stdout.receive()).decode()
    return said.strip()


async def main(times: int, streams: int) -> int:
    with TemporaryDirectory() as folder:
        async with serving(Path(folder)) as server:
            await chat(server)
            print("latency")
            good: Sequence[bool] = [await measure_latency(server, times)]
            print("many")
            good = [*good, await measure_many(server, streams)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="streams for the latency (10)")
    parser.add_argument("--streams", type=int, default=500, help="streams at once (500)")
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.times, given.streams))
