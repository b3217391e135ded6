"""What a load costs one version of the server, as a ratio to what it costs another.

    python bench/versions.py HOLDFAST HOLDFAST ... [--runs N] [--words N] [--rounds N]

Each HOLDFAST is a command, as of two environments with a version each. All servers live at once and are
loaded in turn, so that a machine whose speed wanders slows all of them alike; each load is
compared with that of the first in the same round. The model is a process of its own
(fast_endpoint.py). Linux only: what a server has used is read from /proc.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from shutil import which
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

asking = import_module("openai")

#: Seconds between two loads, less than a server waits before it tidies up.
PAUSE = 0.25


class Version(NamedTuple):
    command: str
    server: Any
    pid: int


class Taken(NamedTuple):
    """Seconds of one load: until the last run was told to its end, and of the server's CPU."""

    wall: float
    cpu: float


def used(pid: int) -> float:
    """Seconds of CPU so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(version: Version, runs: int) -> Taken:
    began, before = time.perf_counter(), used(version.pid)
    async with anyio.create_task_group() as tasks:
        for _ in range(runs):
            tasks.start_soon(asking.runs, version.server)
    return Taken(time.perf_counter() - began, used(version.pid) - before)


async def measure(versions: Sequence[Version], runs: int, rounds: int) -> list[list[Taken]]:
    taken: list[list[Taken]] = [[] for _ in versions]
    for version in versions:
        await load(version, 20)  # what is needed is loaded, and connections are open
    for number in range(rounds):
        for place in range(len(versions)):
            turn = (place + number) % len(versions)
            taken[turn].append(await load(versions[turn], runs))
            await anyio.sleep(PAUSE)
    return taken


def report(versions: Sequence[Version], taken: list[list[Taken]]) -> None:
    for version, loads in zip(versions, taken, strict=True):
        print(version.command)
        for what in Taken._fields:
            mine = [getattr(one, what) for one in loads]
            first = [getattr(one, what) for one in taken[0]]
            ratio = median(a / b for a, b in zip(mine, first, strict=True))
            print(f"  {what:4} {median(mine):6.3f} s, {ratio:.3f} of the first")


@asynccontextmanager
async def serving(command: str, config: Path, folder: Path) -> AsyncIterator[Version]:
    words = [command, "serve", "--port", "0", "--data", str(folder), "--config", str(config)]
    async with await anyio.open_process(words, stderr=None) as process:
        try:
            said = await asking.first_line(process)
            key = (folder / "api_key").read_text().strip()
            port = int(said.rpartition(":")[2])
            yield Version(command, asking.Server(port, key), process.pid)
        finally:
            process.terminate()


async def compare(commands: Sequence[str], runs: int, words: int, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        port = await stack.enter_async_context(asking.counting_at())
        config = folder / "holdfast.toml"
        config.write_text(asking.CONFIG.format(port=port, pieces=words))
        versions = [
            await stack.enter_async_context(serving(command, config, folder / str(number)))
            for number, command in enumerate(commands)
        ]
        report(versions, await measure(versions, runs, rounds))


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("command", nargs="+", help="how each version of holdfast is started")
    parser.add_argument("--runs", type=int, default=300, help="runs at once (300)")
    parser.add_argument("--words", type=int, default=5, help="words of each reply (5)")
    parser.add_argument("--rounds", type=int, default=20, help="loads of each (20)")
    given = parser.parse_args()
    if min(given.runs, given.words, given.rounds) < 1:
        parser.error("there must be at least one run, word and round")
    for command in given.command:
        if which(command) is None:
            parser.error(f"there is no command {command}")
    anyio.run(compare, given.command, given.runs, given.words, given.rounds)


if __name__ == "__main__":
    main()
