#!/usr/bin/env python
"""How much longer a command takes in the jail: `bash -c true`, outside and inside, in turn.

    python bench/jail.py [--times N] [--folder FOLDER]

On the event loop of the standard library, and on the one the server uses. In between stands
bubblewrap with its namespaces, the system read-only, and nothing else of ours: what any such
jail costs on this machine. The workspace is made in FOLDER, since its disk matters: a stand-in for
each protected name is made and removed. Exits with 1 if ours adds more than 8 ms to the median, or
if there is no jail here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio

from holdfast.tools.jail import Jail, jail_environment, open_jail
from holdfast.tools.process import run_process

sharing = import_module("machine")

#: Milliseconds that the jail may add.
LIMIT = 8.0

ENVIRONMENT = jail_environment("/usr/bin:/bin", extra={})


async def bare(jail: Jail) -> None:
    await run_process(
        ["/bin/bash", "-c", "true"],
        cwd=jail.workspace,
        env=ENVIRONMENT,
        hear=nobody,
        most=0,
        ended=print,
    )


async def jailed(jail: Jail) -> None:
    done = await jail.run(
        "true", cwd=jail.workspace, env=ENVIRONMENT, hear=nobody, most=1000, ended=print
    )
    assert done.code == 0, done.output


async def plain(jail: Jail) -> None:
    """The least that can be called a jail."""
    least = "--unshare-all --die-with-parent --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp"
    done = await run_process(
        [str(jail.bwrap), *least.split(), "--", "/bin/bash", "-c", "true"],
        cwd="/",
        env=ENVIRONMENT,
        hear=nobody,
        most=1000,
        ended=print,
        whole=True,
    )
    assert done.code == 0, done.output


async def nobody(words: str) -> None:
    """There is nothing to hear."""


async def measure(times: int, folder: Path) -> Sequence[float] | str:
    """The medians in milliseconds: without a jail, with the least of one, and with ours."""
    jail = await open_jail(folder)
    if isinstance(jail, str):
        return jail
    taken: list[list[float]] = [[], [], []]
    for _ in range(times):
        for run, times_taken in zip((bare, plain, jailed), taken, strict=True):
            begun = perf_counter()
            await run(jail)
            times_taken.append((perf_counter() - begun) * 1000)
    return [median(each) for each in taken]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=200, metavar="N")
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    print("medians in ms                                 added by")
    print("loop        bare   bwrap alone    jail    bwrap    jail   the jail to bwrap")
    good, machine = True, sharing.Machine()
    for loop in ("asyncio", "uvloop"):
        with TemporaryDirectory(dir=given.folder) as folder:
            options = {"use_uvloop": loop == "uvloop"}
            taken = anyio.run(measure, given.times, Path(folder), backend_options=options)
        if isinstance(taken, str):
            print(taken)
            return 1
        outside, least, inside = taken
        added, by_bwrap = inside - outside, least - outside
        print(
            f"{loop:8}{outside:8.1f}{least:14.1f}{inside:8.1f}{by_bwrap:9.1f}{added:8.1f}"
            f"{added / by_bwrap:8.1f} × {'' if added <= LIMIT else 'TOO MUCH'}"
        )
        good = good and added <= LIMIT
    print(machine.told())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
