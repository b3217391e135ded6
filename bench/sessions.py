"""What long conversations and many of them cost, on a server process that is asked over HTTP.

    python bench/sessions.py [--times N] [--only NAME ...] [--turns N]

  open     the end of a session of 10, 1,000 and 5,000 turns, and the pages before it
  tools    the same for a session of one run in which a model used 5,000 tools
  list     sessions, where there are 10,000 of them
  next     from the end of a run to the start of the one that waited for it, in this process

What is measured was written through the store, not by a model. Exits 1 if a limit is passed: a
session of 10,000 messages opens at its end within 100 ms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp
import anyio
from msgspec.structs import replace

from holdfast.app import open_app
from holdfast.config.places import JOURNAL
from holdfast.core.events import (
    Event,
    ModelCalled,
    ModelChoice,
    ModelReplied,
    RunAccepted,
    RunCompleted,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import Text, ToolCall
from holdfast.stores.owner import prepare
from holdfast.stores.sqlite import SqliteStore, open_sqlite
from holdfast.testing.scripted import ScriptedModel

#: Milliseconds.
LIMIT = 100.0

#: Entries in a page, and pages that are read back.
PAGE, BACK = 50, 10

SESSIONS = 10_000
QUEUED = 50

#: What a model says, of a length that people read.
REPLY = "It is so, and here is why. " * 15

ACCEPTED = RunAccepted(input=(Text("What is it, and why?"),), models=(ModelChoice("demo"),))

CONFIG = """
[models.demo]
wire = "demo"
[tools]
terminal = false
"""


@dataclass
class Report:
    """Prints each number as it comes, and remembers whether one was too much."""

    good: bool = True
    medians: dict[str, float] = field(default_factory=dict)

    def tell(self, name: str, seconds: Sequence[float], *, limit: float | None = None) -> None:
        value = self.medians[name] = median(seconds) * 1000
        over = limit is not None and value > limit
        self.good = self.good and not over
        worst = max(seconds) * 1000
        print(f"  {name:44} {value:8.1f} ms   at most {worst:8.1f} ms{'  TOO MUCH' * over}")


# --- writing what is to be read -------------------------------------------------------------


async def write_run(store: SqliteStore, session_id: str, number: int, *events: Event) -> None:
    """A run that has ended, in this session. Nobody else claims meanwhile."""
    run_id = f"run_{session_id}_{number}"
    asked = replace(ACCEPTED, session_id=session_id, message_id=f"msg_{session_id}_{number}")
    await store.accept(run_id, asked)
    lease = await store.seize(run_id, "bench", ttl=3600.0)
    assert lease is not None
    started = RunStarted(worker="bench", epoch=lease.epoch)
    await store.append(lease, started, *events, RunCompleted(), seen=1)


async def write_session(store: SqliteStore, session_id: str, turns: int) -> None:
    called = ModelCalled(turn=1, attempt=1, model="demo")
    replied = ModelReplied(turn=1, attempt=1, text=REPLY)
    for number in range(turns):
        await write_run(store, session_id, number, called, replied)


def tool_turns(turns: int) -> list[Event]:
    events: list[Event] = []
    for turn in range(1, turns + 1):
        call = ToolCall(id=f"call_{turn}", tool="look", arguments='{"path": "a"}')
        events += [
            ModelCalled(turn=turn, attempt=1, model="demo"),
            ModelReplied(turn=turn, attempt=1, text="I look.", calls=(call,)),
            ToolStarted(call_id=call.id),
            ToolFinished(call_id=call.id, outcome="ok", output="a file", seconds=0.1),
        ]
    last = ModelCalled(turn=turns + 1, attempt=1, model="demo")
    return [*events, last, ModelReplied(turn=turns + 1, attempt=1, text=REPLY)]


# --- asking ---------------------------------------------------------------------------------


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A server of its own on what was written there."""
    config = folder / "holdfast.toml"
    config.write_text(CONFIG)
    data = folder / "data"
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0"]
    command += ["--data", str(data), "--config", str(config)]
    async with await anyio.open_process(command, stderr=sys.stderr) as server:
        assert server.stdout is not None
        said = ""
        while "\n" not in said:
            said += (await server.stdout.receive()).decode()
        key = (data / "api_key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(said.split()[-1], headers=headers) as http:
            yield http
        server.terminate()


@asynccontextmanager
async def writing(folder: Path) -> AsyncIterator[SqliteStore]:
    prepare(folder / "data")
    async with open_sqlite(folder / "data" / JOURNAL) as store:
        yield store


async def ask(http: aiohttp.ClientSession, path: str) -> tuple[dict[str, Any], float]:
    """What is said, and how long that took."""
    began = perf_counter()
    async with http.get(path) as answer:
        assert answer.status == 200, await answer.text()
        body: dict[str, Any] = await answer.json()
    return body, perf_counter() - began


async def open_and_go_back(
    http: aiohttp.ClientSession, session_id: str, times: int, report: Report, name: str
) -> None:
    path = f"/v1/sessions/{session_id}/messages?limit={PAGE}"
    # Whoever comes first after a start pays for what is loaded then.
    _, first = await ask(http, path)
    report.tell(f"{name}: the first time", [first])
    opened = [await ask(http, path) for _ in range(times)]
    report.tell(f"{name}: its end", [seconds for _, seconds in opened], limit=LIMIT)
    earlier, back = opened[-1][0]["earlier"], list[float]()
    while earlier and len(back) < BACK:
        page, seconds = await ask(http, f"{path}&before={earlier}")
        earlier = page["earlier"]
        back.append(seconds)
    if back:
        report.tell(f"{name}: a page back", back, limit=LIMIT)


# --- what is measured -----------------------------------------------------------------------


async def measure_open(folder: Path, times: int, turns: int, report: Report) -> None:
    lengths = (10, max(turns // 5, 10), turns)
    async with writing(folder) as store:
        for length in lengths:
            await write_session(store, f"ses_{length}", length)
    async with serving(folder) as http:
        for length in lengths:
            await open_and_go_back(http, f"ses_{length}", times, report, f"{length:,} turns")
    ends = [report.medians[f"{length:,} turns: its end"] for length in lengths]
    # The shortest is less than a page.
    print(
        f"  the longest: {ends[-1] / ends[0]:.2f} × the shortest, {ends[-1] / ends[1]:.2f} × the other"
    )


async def measure_tools(folder: Path, times: int, turns: int, report: Report) -> None:
    async with writing(folder) as store:
        await write_run(store, "ses_tools", 1, *tool_turns(turns))
    async with serving(folder) as http:
        name = f"one run of {turns:,} tools"
        await open_and_go_back(http, "ses_tools", times, report, name)


async def measure_list(folder: Path, times: int, _turns: int, report: Report) -> None:
    async with writing(folder) as store:
        limiter = anyio.Semaphore(100)

        async def write(number: int) -> None:
            async with limiter:
                await write_session(store, f"ses_{number}", 1)

        async with anyio.create_task_group() as tasks:
            for number in range(SESSIONS):
                tasks.start_soon(write, number)
    async with serving(folder) as http:
        path = f"/v1/sessions?limit={PAGE}"
        await ask(http, path)
        taken = [await ask(http, path) for _ in range(times)]
        report.tell(f"{SESSIONS:,} sessions: the first page", [s for _, s in taken], limit=LIMIT)
        back, after = list[float](), taken[-1][0]["next"]
        for _ in range(BACK):
            page, seconds = await ask(http, f"{path}&after={after}")
            after = page["next"]
            back.append(seconds)
        report.tell(f"{SESSIONS:,} sessions: a page further", back, limit=LIMIT)
        found = [(await ask(http, f"{path}&q=why"))[1] for _ in range(times)]
        report.tell(f"{SESSIONS:,} sessions: by words", found, limit=LIMIT)


async def measure_next(folder: Path, _times: int, _turns: int, report: Report) -> None:
    model = ScriptedModel(*[["well."]] * QUEUED)
    async with open_app(data=folder / "data", models={"demo": model}) as app:
        asked = replace(app.prepare("and?"), session_id="ses_1")
        sent = [await app.sessions.send(asked) for _ in range(QUEUED)]
        journals = [[r async for r in app.runs.follow(one.run_id)] for one in sent]
    ends = [journal[-1].at for journal in journals]
    begins = [next(r.at for r in j if isinstance(r.event, RunStarted)) for j in journals]
    calls = [next(r.at for r in j if isinstance(r.event, ModelCalled)) for j in journals]
    gaps = [begin - end for end, begin in zip(ends, begins[1:], strict=False)]
    report.tell("from an end to the next start", gaps, limit=LIMIT)
    gaps = [call - end for end, call in zip(ends, calls[1:], strict=False)]
    report.tell("from an end to the next call of the model", gaps, limit=LIMIT)


MEASURES: dict[str, Callable[[Path, int, int, Report], Coroutine[Any, Any, None]]] = {
    "open": measure_open,
    "tools": measure_tools,
    "list": measure_list,
    "next": measure_next,
}


async def main(names: Sequence[str], times: int, turns: int) -> int:
    report = Report()
    for name in names:
        print(name)
        with TemporaryDirectory() as folder:
            await MEASURES[name](Path(folder), times, turns, report)
    return 0 if report.good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often each is asked (20)")
    parser.add_argument("--turns", type=int, default=5000, help="turns of the longest (5000)")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.only, given.times, given.turns))
