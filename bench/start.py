#!/usr/bin/env python
"""How long holdfast takes to start, as what it adds to an empty Python.

Each command is run several times, in turn with the others, so that a busy machine slows all of them
alike; the medians are compared. Exits with 1 if a limit is passed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

#: Milliseconds more than an empty Python, or None where nothing has been promised.
LIMITS: dict[str, float | None] = {
    "import holdfast": 60.0,
    "holdfast --help": 200.0,
    "holdfast run, to its first event": None,
}

_HOLDFAST = (sys.executable, "-m", "holdfast")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="runs of each command (15)")
    times = parser.parse_args().times
    if times < 1:
        parser.error("--times must be at least 1")
    with TemporaryDirectory() as data:
        taken = measure(times, data)
    return report(taken)


def measure(times: int, data: str) -> dict[str, float]:
    """The median of each, in milliseconds. What is run is kept in the directory `data`."""
    commands: dict[str, Callable[[], float]] = {
        "python -c pass": lambda: whole(sys.executable, "-c", "pass"),
        "import holdfast": lambda: whole(sys.executable, "-c", "import holdfast"),
        "holdfast --help": lambda: whole(*_HOLDFAST, "--help"),
        "holdfast run, to its first event": lambda: first_line(
            *_HOLDFAST, "run", "hello", "--json", "--pace", "0", "--data", data
        ),
    }
    for command in commands.values():
        command()  # files are read and compiled once
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(times):
        for name, command in commands.items():
            taken[name].append(command())
    return {name: median(values) * 1000 for name, values in taken.items()}


def report(taken: dict[str, float]) -> int:
    """Print the table. Returns the code to exit with."""
    empty = taken["python -c pass"]
    print(f"an empty Python takes {empty:.0f} ms; more than that take:\n")
    slow = []
    for name, limit in LIMITS.items():
        more = taken[name] - empty
        bound = f"limit {limit:.0f} ms" if limit else ""
        print(f"  {name:34} {more:6.0f} ms  {bound}".rstrip())
        if limit and more > limit:
            slow.append(
                f"{name} takes {more:.0f} ms more than an empty Python; {limit:.0f} allowed"
            )
    for sentence in slow:
        print(f"\ntoo slow: {sentence}", file=sys.stderr)
    return 1 if slow else 0


def whole(*command: str) -> float:
    """Seconds until it has exited."""
    began = perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    return perf_counter() - began


def first_line(*command: str) -> float:
    """Seconds until it has written a line."""
    began = perf_counter()
    with _started(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = perf_counter() - began
        process.stdout.read()
    if not line or process.returncode:
        raise SystemExit(f"{' '.join(command)} exited with {process.returncode}")
    return taken


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
