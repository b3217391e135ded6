"""What readers cost others who take nothing of what they asked for, or who come and go.

    python bench/readers.py [--reply KB] [--staring N] [--restless N] [--cycles N]

  staring    runs with a reply of so many KB, one after the other until 225 MB were told of them, each
             of them to so many who take nothing. Meanwhile somebody else follows a run that says a word each 20 ms: how late
             the words are, first without those who stare, then with them; and what memory they take
  restless   so many follow a run, break off after three frames and come back, so many times. How
             late the words are for somebody who stays; and how long it takes after the last has
             left until the server has no more sockets than before, and few more threads

The server, the model that says words and the one that floods are a process each. Exits 1 if a limit
is passed. Tells how much of the machine others had meanwhile.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import aiohttp
import anyio
import anyio.abc
import anyio.to_thread

from holdfast.testing.endpoint import Raw, open_endpoint

sharing = import_module("machine")

#: Milliseconds that one word of a hundred may be late beside who stares; bytes that somebody who stares may cost; seconds
#: until nothing is left of those who came and went.
LATE, COST, LEFT = 50.0, 2**20, 2.0

TICK = 0.02
#: KB of all replies, and of a piece of one. A run tells them as words, as a reply and as its output.
ALL, PIECE = 75_000, 5
#: Threads that a server may have begun meanwhile: it has a few for files.
THREADS = 4

CONFIG = """
[models.words]
wire = "openai-chat"
model = "n={words}"
base_url = "http://127.0.0.1:{port}/v1"
[models.flood]
wire = "openai-chat"
model = "flood"
base_url = "{flood}"
[tools]
terminal = false
"""

_RESET = struct.pack("ii", 1, 0)
_RUNNING = re.compile(r'^holdfast_runs\{status="running"\} (\S+)', re.MULTILINE)


# --- the models, each in a process of its own -------------------------------------------------


async def be_the_flood(reply: int) -> None:
    chunks = [_chunk(f"{number:_>4999} ") for number in range(reply // PIECE)]
    async with open_endpoint([Raw(chunk) for chunk in chunks]) as endpoint:
        print(endpoint.url, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)


def _chunk(text: str) -> bytes:
    delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return f"data: {json.dumps(delta)}\n\n".encode()


# --- the server -------------------------------------------------------------------------------


class Server:
    """One that runs, and who asks it."""

    def __init__(self, process: anyio.abc.Process, url: str, key: str) -> None:
        self.url, self._key, self._proc = url, key, Path(f"/proc/{process.pid}")
        self.port = int(url.rpartition(":")[2])

    @asynccontextmanager
    async def words(self, http: aiohttp.ClientSession) -> AsyncIterator[tuple[str, Steady]]:
        """A run that says them, and somebody who has begun to read it."""
        run_id, steady = await self.start(http, "words"), Steady()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(steady.read, http, run_id)
            await steady.begun.wait()
            yield run_id, steady
            assert not steady.ended, "the words were over first"
            async with http.post(f"/v1/runs/{run_id}/stop") as response:
                await response.read()

    async def start(self, http: aiohttp.ClientSession, model: str) -> str:
        async with http.post("/v1/runs", json={"input": "go", "model": model}) as response:
            return str((await response.json())["run_id"])

    def line(self, run_id: str, after: bytes = b"") -> bytes:
        """What somebody says who wants its events."""
        head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        seen = b"Last-Event-ID: " + after + b"\r\n" if after else b""
        return head.encode() + seen + f"Authorization: Bearer {self._key}\r\n\r\n".encode()

    def memory(self) -> int:
        return int((self._proc / "statm").read_text().split()[1]) * 4096

    def holds(self) -> tuple[int, int]:
        """Sockets and threads."""
        sockets = sum(_target(link).startswith("socket:") for link in (self._proc / "fd").iterdir())
        return sockets, len(list((self._proc / "task").iterdir()))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed while we were looking


async def first_line(process: anyio.abc.Process) -> str:
    assert process.stdout is not None
    said = ""
    while "\n" not in said:
        said += (await process.stdout.receive()).decode()
    return said.strip()


@asynccontextmanager
async def beside(*command: str) -> AsyncIterator[tuple[anyio.abc.Process, str]]:
    """A process, and the first line it says."""
    async with await anyio.open_process([sys.executable, *command], stderr=sys.stderr) as process:
        yield process, await first_line(process)
        process.terminate()


@asynccontextmanager
async def serving(words: int, reply: int) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    counter = str(Path(__file__).with_name("fast_endpoint.py"))
    with TemporaryDirectory() as name:
        config, data = Path(name) / "holdfast.toml", Path(name) / "data"
        flooding = beside(__file__, "--flood", str(reply))
        async with beside(counter) as (_, port), flooding as (_, flood):
            config.write_text(CONFIG.format(words=words, port=port, flood=flood))
            command = ["-m", "holdfast", "serve", "--port", "0"]
            command += ["--data", str(data), "--config", str(config)]
            async with beside(*command) as (process, said):
                key = (data / "api_key").read_text().strip()
                server = Server(process, said.rpartition(" ")[2], key)
                headers = {"Authorization": f"Bearer {key}"}
                async with aiohttp.ClientSession(server.url, headers=headers) as http:
                    async with http.get("/v1/runs") as response:
                        await response.read()  # what is loaded only now is loaded
                    yield server, http


# --- readers ----------------------------------------------------------------------------------


class Steady:
    """Somebody who reads, and notes when each word comes."""

    def __init__(self) -> None:
        self._came: list[float] = []
        self.begun, self.ended = anyio.Event(), False

    async def read(self, http: aiohttp.ClientSession, run_id: str) -> None:
        async with http.get(f"/v1/runs/{run_id}/events") as response:
            async for line in response.content:
                if b'"message.delta"' in line:
                    words = json.loads(line[6:])["delta"].split()
                    self._came += [perf_counter()] * len(words)
                    self.begun.set()
        self.ended = True

    def late(self, since: float, until: float) -> list[float]:
        """Milliseconds that each word of this time was later than the promptest of all."""
        due = min(at - number * TICK for number, at in enumerate(self._came))
        lags = ((at - number * TICK - due) * 1000 for number, at in enumerate(self._came))
        return [lag for lag, at in zip(lags, self._came, strict=True) if since <= at <= until]


@contextmanager
def staring(server: Server, run_id: str) -> Iterator[None]:
    """Somebody who asks for a run's events, and takes none of them."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", server.port))
        line.sendall(server.line(run_id))
        yield


async def break_off(server: Server, run_id: str, cycles: int) -> None:
    """After three frames, again and again, without a word."""
    after = b""
    for _ in range(cycles):
        line = await anyio.connect_tcp("127.0.0.1", server.port)
        raw = line.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610 (there is no database here)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        async with line:
            await line.send(server.line(run_id, after))
            heard = b""
            while heard.count(b"\nid: ") < 3 and b": stream closed" not in heard:
                heard += await line.receive()
        ids = [one[4:] for one in heard[: heard.rfind(b"\n\n")].split(b"\n") if one[:4] == b"id: "]
        after = ids[2] if len(ids) > 2 else after


# --- measuring --------------------------------------------------------------------------------


class Stared(NamedTuple):
    late: list[float]
    #: The most that the server took, less what it took before.
    memory: int


async def stare(server: Server, http: aiohttp.ClientSession, floods: int, crowd: int) -> Stared:
    before, peak = server.memory(), 0
    async with server.words(http) as (_, steady):
        began = perf_counter()
        with ExitStack() as lines:
            for _ in range(floods):
                run_id = await server.start(http, "flood")
                for _ in range(crowd):
                    lines.enter_context(staring(server, run_id))
                while not await _ended(http):
                    await anyio.sleep(0.02)
                    peak = max(peak, server.memory())
            over = perf_counter()
    return Stared(steady.late(began, over), peak - before)


async def _ended(http: aiohttp.ClientSession) -> bool:
    """All but the one that says words."""
    async with http.get("/metrics") as response:
        running = _RUNNING.search(await response.text())
    return running is not None and float(running[1]) <= 1


async def storm(
    server: Server, http: aiohttp.ClientSession, crowd: int, cycles: int
) -> tuple[list[float], float]:
    """How late words were, and seconds until nothing was left."""
    async with server.words(http) as (run_id, steady):
        sockets, threads = server.holds()
        began = perf_counter()
        async with anyio.create_task_group() as coming:
            for _ in range(crowd):
                coming.start_soon(break_off, server, run_id, cycles)
        over = perf_counter()
        while (held := server.holds())[0] > sockets or held[1] > threads + THREADS:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        left = perf_counter() - over
    return steady.late(began, over), left


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def told(late: Sequence[float], *, most: float = inf) -> tuple[str, bool]:
    middle, high = percentile(late, 0.5), percentile(late, 0.99)
    words = f"words late by p50{middle:6.1f}  p99{high:6.1f}  max{max(late):6.1f} ms ({len(late)})"
    return words + "  TOO MUCH" * (high > most), high <= most


async def main(reply: int, crowd: int, restless: int, cycles: int) -> int:
    machine, floods = sharing.Machine(), ALL // reply
    async with serving(10_000, reply) as (server, http):
        await stare(server, http, floods, 0)  # what is taken once and kept is taken
        alone = await stare(server, http, floods, 0)
        print(
            f"a flood             {told(alone.late)[0]}   {alone.memory / 1e6:.1f} MB", flush=True
        )
        beside = await stare(server, http, floods, crowd)
        words, prompt = told(beside.late, most=LATE)
        each = max(beside.memory - alone.memory, 0) / (crowd * floods)
        cheap = each <= COST
        print(
            f"… and {crowd * floods:4} who stare  {words}   {beside.memory / 1e6:.1f} MB,"
            f" {each / 1e3:.0f} KB each{'' if cheap else '  TOO MUCH'}",
            flush=True,
        )
        late, left = await storm(server, http, restless, cycles)
        gone = left <= LEFT
        print(
            f"{restless * cycles} who break off  {told(late)[0]}   nothing left after {left:.2f} s"
            f"{'' if gone else '  TOO MUCH'}"
        )
        good = prompt and cheap and gone
    print(machine.told())
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--flood"]:
        anyio.run(be_the_flood, int(sys.argv[2]))
        sys.exit()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reply", type=int, default=500, metavar="KB", help="of each run (500)")
    parser.add_argument("--staring", type=int, default=1, metavar="N", help="for each run (1)")
    parser.add_argument("--restless", type=int, default=200, metavar="N")
    parser.add_argument("--cycles", type=int, default=50, metavar="N")
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.reply, given.staring, given.restless, given.cycles))
