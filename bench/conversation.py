"""What a long conversation takes up on disk, and how long a turn of it takes.

    python bench/conversation.py [--turns 1000] [--size 4096] [--piece 4] [--pause 0] [--folder DIR]

  session     the client names the session and sends what is new
  resent      the client sends the whole conversation with each turn

The server is a process of its own, and so is the model as far as it knows: both speak HTTP. Answers
are sentences of Python's own manual in any order, streamed in pieces of a few characters, `--pause`
milliseconds apart. When the last turn is over the server is left alone until nothing is left to be
packed, and stopped. Exits 1 if all that is in the data directory then is more than three times the
text of both sides.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import aiohttp
import anyio
import apsw

from holdfast.config import read_settings
from holdfast.host import serve
from holdfast.testing.connection import Received
from holdfast.testing.endpoint import Step, open_endpoint
from holdfast.testing.scripted import Silence

LIMIT = 3.0
WAYS = ("session", "resent")

#: Seconds after which it is no longer waited for everything to be packed.
PATIENCE = 120.0

#: Turns around one, of which the middle is told.
AROUND = 5

CONFIG = """
[models.main]
wire = "openai-chat"
model = "m"
base_url = "{url}"
"""


@dataclass
class Told:
    """What came of one way to talk. `text` is the bytes that both sides said."""

    text: int
    alone: int
    empty: int
    stored: int
    before: int
    packing: float
    seconds: list[float]

    @property
    def ratio(self) -> float:
        return self.stored / self.text

    @property
    def added(self) -> float:
        return (self.stored - self.empty) / self.text

    def at(self, turn: int) -> float:
        """Seconds of a turn about here."""
        return median(self.seconds[max(turn - AROUND, 0) : turn + AROUND])


# --- who talks ------------------------------------------------------------------------------------


def prose(chance: random.Random, size: int) -> str:
    """Sentences, about as many characters as that."""
    sentences = [
        one.strip() for text in topics.values() for one in " ".join(text.split()).split(". ")
    ]
    said = ""
    while len(said) < size:
        said += chance.choice(sentences) + ". "
    return said[:size]


class Speaker:
    """The model: says something else each time."""

    def __init__(self, size: int, piece: int, pause: float) -> None:
        self._chance, self._size, self._piece, self._pause = random.Random(1), size, piece, pause
        self.said: list[str] = []

    def __call__(self, _request: Received) -> Sequence[Step]:
        text = prose(self._chance, self._size)
        self.said.append(text)
        ends = [*range(0, len(text), self._piece), len(text)]
        pieces: list[Step] = [text[start:end] for start, end in pairwise(ends)]
        if not self._pause:
            return pieces
        return [step for piece in pieces for step in (piece, Silence(self._pause))]


async def turn(http: aiohttp.ClientSession, asked: dict[str, object]) -> None:
    async with http.post("/v1/runs", json=asked) as response:
        assert response.status == 202, await response.text()
        run_id = (await response.json())["run_id"]
    async with http.get(f"/v1/runs/{run_id}/events") as events:
        heard = await events.content.read()
    assert b"run.completed" in heard, heard[-500:]


# --- the server -----------------------------------------------------------------------------------


def be_the_server(data: Path, config: Path) -> None:
    settings = read_settings(data=str(data), config=str(config), port="0")
    show = partial(print, flush=True)
    anyio.run(partial(serve, settings, show), backend_options={"use_uvloop": True})


@asynccontextmanager
async def serving(folder: Path, url: str) -> AsyncIterator[aiohttp.ClientSession]:
    config = folder / "holdfast.toml"
    config.write_text(CONFIG.format(url=url))
    command = [sys.executable, __file__, "--serve", str(folder / "data"), str(config)]
    async with await anyio.open_process(command, stderr=sys.stderr) as server:
        assert server.stdout is not None
        where = (await server.stdout.receive()).decode().strip()
        key = (folder / "data" / "api_key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(where, headers=headers) as http:
            yield http
        server.terminate()
        await server.wait()


def size(data: Path) -> int:
    return sum(file.stat().st_size for file in data.rglob("*") if file.is_file())


async def packed(data: Path) -> float:
    """Wait until nothing is left to be packed. Returns the seconds that took."""
    began = perf_counter()
    flags = apsw.SQLITE_OPEN_READONLY
    with closing(apsw.Connection(str(data / "journal.db"), flags=flags)) as journal:
        query = "select count(*) from run where packed = 0"
        left = 1
        while left and perf_counter() - began < PATIENCE:
            await anyio.sleep(0.1)  # another process has no event for it
            left = journal.execute(query).get
    assert not left, f"{left} runs were not packed"
    return perf_counter() - began


# --- measuring ------------------------------------------------------------------------------------


async def talk(folder: Path, way: str, turns: int, speaker: Speaker) -> Told:
    chance, seconds = random.Random(2), list[float]()
    history: list[dict[str, str]] = []
    async with open_endpoint(speaker) as endpoint, serving(folder, endpoint.url) as http:
        empty = size(folder / "data")
        for _ in range(turns):
            asked: dict[str, object] = {"input": prose(chance, 80), "session_id": "long"}
            if way == "resent":
                asked["conversation_history"] = history
            began = perf_counter()
            await turn(http, asked)
            seconds.append(perf_counter() - began)
            endpoint.requests.clear()
            history += [
                {"role": "user", "content": str(asked["input"])},
                {"role": "assistant", "content": speaker.said[-1]},
            ]
        before = size(folder / "data")
        packing = await packed(folder / "data")
    texts = [message["content"].encode() for message in history]
    return Told(
        text=sum(map(len, texts)),
        alone=sum(len(zlib.compress(text)) for text in texts),
        empty=empty,
        stored=size(folder / "data"),
        before=before,
        packing=packing,
        seconds=seconds,
    )


def report(way: str, turns: int, told: Told) -> None:
    print(way)
    print(f"  text {told.text / 1e6:.2f} MB; zlib alone makes {told.alone / told.text:.2f} of it")
    print(f"  stored {told.stored / 1e6:.2f} MB, {told.ratio:.2f} times the text, limit {LIMIT:g}")
    print(
        f"  of that {told.empty / 1e6:.2f} MB before the first turn, and {told.added:.2f} times since"
    )
    print(f"  packed {told.packing:.1f} s after the last turn; {told.before / 1e6:.2f} MB before")
    for number in (10, turns):
        print(f"  turn {number}: {told.at(number) * 1000:.0f} ms")


async def main(turns: int, size: int, piece: int, pause: float, folder: Path | None) -> int:
    good = True
    for way in WAYS:
        with TemporaryDirectory(dir=folder) as place:
            told = await talk(Path(place), way, turns, Speaker(size, piece, pause))
        report(way, turns, told)
        good = good and told.ratio <= LIMIT
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        be_the_server(*map(Path, sys.argv[2:4]))
        os._exit(0)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=1000, metavar="N")
    parser.add_argument("--size", type=int, default=4096, help="characters of an answer")
    parser.add_argument("--piece", type=int, default=4, help="characters that come at a time")
    parser.add_argument("--pause", type=float, default=0.0, help="milliseconds between pieces")
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to measure")
    given = parser.parse_args()
    measured = partial(main, given.turns, given.size, given.piece, given.pause / 1000, given.folder)
    sys.exit(anyio.run(measured))
