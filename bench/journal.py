"""What the SQLite store costs, as ratios taken in one run.

    python bench/journal.py [--only NAME ...] [--folder DIR] [--events N]

  alone       one writer: append to durable, against a bare loop of write and fdatasync
  crowd       256 writers at once, against a bare batched insert of the same rows
  followers   1,000 followers of one run: CPU per event delivered to one of them
  waiting     memory of a run that waits for a person
  start       opening a file with 10,000 runs and a million events

Exits 1 if a limit is passed. Numbers depend on the disk; the ratios depend on us.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import anyio

from holdfast.core.codec import encode
from holdfast.core.events import (
    Event,
    ModelCalled,
    ModelChoice,
    RunAccepted,
    RunCompleted,
    RunStarted,
    TextStreamed,
)
from holdfast.core.lease import Lease
from holdfast.core.messages import Text
from holdfast.stores.database import open_writer
from holdfast.stores.reading import link
from holdfast.stores.sqlite import SqliteStore, open_sqlite

INSERT = "insert into event (run, seq, at, body, long, sum) values (?, ?, ?, ?, ?, ?)"
ACCEPTED = RunAccepted(input=(Text("hi"),), models=(ModelChoice("model"),))
WORD = TextStreamed(turn=1, attempt=1, text="word ")

#: How often what depends on the disk is measured, beside what it is measured against.
ROUNDS = 3


async def running(store: SqliteStore, run_id: str) -> tuple[Lease, int]:
    """A run in the middle of a reply: its lease, and how far its journal has come."""
    await store.accept(run_id, ACCEPTED)
    (lease,) = await store.claim("worker", ttl=3600.0)
    started = RunStarted(worker="worker", epoch=lease.epoch)
    called = ModelCalled(turn=1, attempt=1, model="model")
    await store.append(lease, started, called, seen=1)
    return lease, 3


async def alone(folder: Path, events: int) -> tuple[str, float, float]:
    count = max(events // 50, 200)
    handle = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY, 0o600)
    body = bytes(4096)
    ours: list[float] = []
    bare: list[float] = []
    async with open_sqlite(folder / "alone.db") as store:
        lease, seen = await running(store, "run_1")
        for _ in range(count):
            began = perf_counter()
            os.write(handle, body)
            os.fdatasync(handle)
            bare.append(perf_counter() - began)
            began = perf_counter()
            await store.append(lease, WORD, seen=seen)
            ours.append(perf_counter() - began)
            seen += 1
    os.close(handle)
    p50, floor = statistics.median(ours), statistics.median(bare)
    print(f"  append p50 {p50 * 1e6:.0f} µs, bare write and fdatasync {floor * 1e6:.0f} µs")
    return "append p50 / bare fdatasync p50", p50 / floor, 2.0


async def crowd(folder: Path, events: int) -> tuple[str, float, float]:
    writers, each = 256, max(events // 256, 20)
    ours: list[float] = []
    bare: list[float] = []
    # By turns, so that both meet the same machine; whatever else it does only slows them down.
    for number in range(ROUNDS):
        ours.append(await _crowded(folder / f"crowd{number}.db", writers, each))
        bare.append(_bare_inserts(folder / f"bare{number}.db", writers, each))
    print(f"  {max(ours):,.0f} events/s, bare batched insert {max(bare):,.0f} rows/s")
    return "bare insert / our throughput, 256 writers", max(bare) / max(ours), 2.0


async def _crowded(path: Path, writers: int, each: int) -> float:
    async with open_sqlite(path) as store:
        leases = [await running(store, f"run_{number}") for number in range(writers)]

        async def write(lease: Lease, seen: int) -> None:
            for _ in range(each):
                await store.append(lease, WORD, seen=seen)
                seen += 1

        began = perf_counter()
        async with anyio.create_task_group() as tasks:
            for lease, seen in leases:
                tasks.start_soon(write, lease, seen)
        return writers * each / (perf_counter() - began)


def _bare_inserts(path: Path, writers: int, each: int) -> float:
    """The same rows, as many at a time as there are writers, on a bare connection."""
    connection = open_writer(path)
    body = encode(WORD)
    connection.execute("pragma foreign_keys = 0")
    began = perf_counter()
    chain = b""
    for seq in range(each):
        rows = []
        for run in range(writers):
            chain = link(chain, seq, 0.0, body)
            rows.append((run, seq, 0.0, body, None, chain))
        with connection:
            connection.executemany(INSERT, rows)
    took = perf_counter() - began
    connection.close()
    return writers * each / took


async def followers(folder: Path, events: int) -> tuple[str, float, float]:
    count, many = max(events // 100, 200), 1000
    delivered = 0

    async def follow(store: SqliteStore) -> None:
        nonlocal delivered
        async with aclosing(store.follow("run_1", after=3)) as journal:
            async for _ in journal:
                delivered += 1

    async with open_sqlite(folder / "followers.db") as store:
        lease, seen = await running(store, "run_1")
        async with anyio.create_task_group() as tasks:
            for _ in range(many):
                tasks.start_soon(follow, store)
            await anyio.sleep(1.0)
            began = process_time()
            for _ in range(count):
                await store.append(lease, WORD, seen=seen)
                seen += 1
            await store.append(lease, RunCompleted(), seen=seen)
        cost = (process_time() - began) / delivered * 1e6
    print(f"  {delivered:,} deliveries")
    return "µs of CPU per delivered event", cost, 10.0


async def waiting(folder: Path, events: int) -> tuple[str, float, float]:
    count = max(events // 50, 500)
    async with open_sqlite(folder / "waiting.db") as store:
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            lease, seen = await running(store, f"run_{number}")
            await store.release(lease, seen=seen, ready_in=None)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return "bytes of memory per waiting run", (after - before) / count, 5000.0


async def start(folder: Path, events: int) -> tuple[str, float, float]:
    runs, each = 10_000, 10 * events // 100_000 * 10
    path = folder / "start.db"
    _fill(path, runs, each)
    began = perf_counter()
    async with open_sqlite(path):
        took = perf_counter() - began
    print(f"  {runs:,} runs, {runs * each:,} events, {path.stat().st_size / 1e6:.0f} MB")
    return "seconds to open", took, 3.0


def _fill(path: Path, runs: int, each: int) -> None:
    connection = open_writer(path)
    first: list[Event] = [ACCEPTED]
    bodies = [encode(event) for event in [*first, *[WORD] * (each - 1)]]
    with connection:
        for key in range(1, runs + 1):
            place = "ended" if key % 10 else "resting"
            connection.execute(
                "insert into run (key, id, place, accepted_at) values (?, ?, ?, 0)",
                (key, f"run_{key}", place),
            )
            chain, rows = b"", []
            for seq, body in enumerate(bodies, 1):
                chain = link(chain, seq, 0.0, body)
                rows.append((key, seq, 0.0, body, None, chain))
            connection.executemany(INSERT, rows)
    connection.close()


SCENES: dict[str, Callable[[Path, int], Awaitable[tuple[str, float, float]]]] = {
    "alone": alone,
    "crowd": crowd,
    "followers": followers,
    "waiting": waiting,
    "start": start,
}


async def main(names: list[str], folder: Path, events: int) -> int:
    good = True
    for name in names:
        print(name)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            what, value, limit = await SCENES[name](Path(place), events)
        fine = value <= limit
        print(f"  {what}: {value:,.2f}, limit {limit:,.0f}{'' if fine else '  TOO MUCH'}")
        good = good and fine
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME")
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to measure")
    parser.add_argument("--events", type=int, default=100_000, metavar="N")
    given = parser.parse_args()
    scenes = partial(main, given.only, given.folder, given.events)
    # The loop that the server runs on.
    sys.exit(anyio.run(scenes, backend_options={"use_uvloop": True}))
