"""What a run adds to one command: journal, review, the two replies around it.

    python bench/terminal.py [--times N] [--folder DIR]

A run in which a model asks for `terminal` with `true` and then says a word, from accepting it to
the end of its journal, with the store that the server has; against the same command in the same
jail and nothing else. Both in turns, so that both meet the same machine. The model takes no time.

Exits 1 if the medians are more than 15 ms apart.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio

from holdfast import App, open_app
from holdfast.core.events import RunCompleted, ToolFinished
from holdfast.testing.scripted import Call, ScriptedModel
from holdfast.tools.jail import Jail, jail_environment, open_jail
from holdfast.tools.terminal import SYSTEM_PATH, Terminal

sharing = import_module("machine")

LIMIT = 0.015
WARM_UP = 5


async def bare(jail: Jail) -> float:
    """Seconds for the command alone."""

    async def hear(words: str) -> None:
        raise AssertionError(words)

    began = perf_counter()
    finished = await jail.run(
        "true",
        cwd=jail.workspace,
        env=jail_environment(SYSTEM_PATH, extra={}),
        hear=hear,
        most=1024,
        ended=print,
        marker="",
    )
    assert finished.code == 0, finished
    return perf_counter() - began


async def through(app: App) -> float:
    """Seconds for a run that does nothing else."""
    began = perf_counter()
    run_id = await app.runs.accept(app.prepare("go"))
    async with aclosing(app.runs.follow(run_id)) as events:
        journal = [recorded.event async for recorded in events]
    taken = perf_counter() - began
    assert isinstance(journal[-1], RunCompleted), journal[-1]
    assert [one.output[:24] for one in journal if isinstance(one, ToolFinished)] == [
        "(no output)\n[exit code 0"
    ]
    return taken


async def main(times: int, folder: str | None) -> int:
    with TemporaryDirectory(dir=folder) as place:
        workspace = anyio.Path(place, "workspace")
        await workspace.mkdir()
        jail = await open_jail(Path(workspace))
        if isinstance(jail, str):
            print(jail)
            return 1
        model = ScriptedModel.by_turn([Call("terminal", '{"command":"true"}')], ["done"])
        async with open_app(
            data=Path(place, "data"),
            models={"scripted": model},
            tools=[Terminal(Path(workspace), jail=jail)],
        ) as app:
            machine = sharing.Machine()
            pairs = [(await bare(jail), await through(app)) for _ in range(times + WARM_UP)]
    alone, run = (median(taken) for taken in zip(*pairs[WARM_UP:], strict=True))
    added = run - alone
    print(
        f"a command alone {alone * 1000:.1f} ms   in a run {run * 1000:.1f} ms"
        f"   added {added * 1000:.1f} ms{'' if added <= LIMIT else '  TOO MUCH'}"
    )
    print(machine.told())
    return 0 if added <= LIMIT else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=40, metavar="N")
    parser.add_argument("--folder", metavar="DIR", help="where to keep the journal meanwhile")
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.times, given.folder, backend_options={"use_uvloop": True}))
