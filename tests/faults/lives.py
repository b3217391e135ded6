"""Lives of one run, each in a process of its own that a broken disk may end at any operation.

    python -m tests.faults.lives kill 1 4 /some/folder

lets the disk kill the first life at its 1st operation, then another one at its 5th, its 9th and
so on, until one lives to the end. Each is followed by a second life on a whole disk, which
finishes the run and looks at what is there. This process has no threads and only forks.
"""

import gc
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import aclosing
from hashlib import sha256
from itertools import count
from pathlib import Path

import anyio
import apsw

from holdfast.core.events import ApprovalRequested, ModelChoice, Recorded, RunAccepted
from holdfast.core.lifecycle import Status
from holdfast.core.messages import Text
from holdfast.core.run import replay
from holdfast.errors import Conflict
from holdfast.ports import Review
from holdfast.stores.reading import has_packs, link, stored
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.disk import KINDS, Disk
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool
from holdfast.testing.simulation import Story, check
from holdfast.testing.stage import stage

TURNS = (
    ["Looking. ", Call("note", '{"n":1}'), Call("note", '{"n":2}')],
    ["Now I pay.", Call("pay", '{"euro":5}')],
    ["All", " done."],
)


class Life:
    """Whoever lives it tells what they hear as soon as they hear it."""

    def __init__(self, folder, tell=lambda _: None):
        self.journal, self.effects = folder / "journal.db", folder / "effects"
        self._tell = tell

    async def live(self, vfs=None):
        """To the end of the run. Begins it if there is none."""
        pay = ScriptedTool("pay", work=self._work, review=Review(gate="ask", key="pay"))
        note = ScriptedTool("note", work=self._work)
        model = ScriptedModel.by_turn(*TURNS)
        async with (
            open_sqlite(self.journal, vfs=vfs) as store,
            stage(model, pay, note, store=store) as play,
        ):
            await self._accept(play)
            async with aclosing(play.runs.follow("run_1")) as events:
                async for recorded in events:
                    self._tell(recorded)
                    await self._answer(play, recorded)

    async def _accept(self, play):
        tools = tuple(tool.spec for tool in play.means.tools.values())
        models = (ModelChoice("model"),)
        first = RunAccepted(input=(Text("pay the bill"),), models=models, tools=tools)
        try:
            await play.runs.accept(first, run_id="run_1")
        except Conflict:
            pass  # as it was left by the life before

    async def _answer(self, play, recorded):
        if isinstance(recorded.event, ApprovalRequested):
            try:
                await play.runs.answer("run_1", "once", approval_id=recorded.event.approval_id)
            except Conflict:
                pass  # in the life before

    async def _work(self, use):
        """An effect that can be counted afterwards, whatever becomes of this process."""
        handle = os.open(self.effects, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(handle, f"{use.effect_id}\n".encode())
        os.fsync(handle)
        os.close(handle)
        return "ok"


# --- what is there afterwards ------------------------------------------------------------


def check_aftermath(folder, received):
    """Finish the run on a whole disk, and hold it against what was heard of it before."""
    journal = []
    life = Life(folder, journal.append)
    check_file(life.journal)
    anyio.run(life.live)
    check_file(life.journal)
    found = [receipt(recorded) for recorded in journal]
    assert found[: len(received)] == received, "something that was shown is not on record"
    effects = Counter(life.effects.read_text().split() if life.effects.exists() else ())
    assert set(effects.values()) <= {1}, f"done twice: {effects}"
    check(journal, Story(seen=journal), effects)
    assert replay(journal).status is Status.COMPLETED


def check_file(path):
    """The database is whole, and each row is the one that was written after the one before."""
    if not path.exists():
        return
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    if connection.execute("select count(*) from sqlite_schema where name = 'event'").get:
        check_chain(rows_of(connection))
    connection.close()


def rows_of(connection):
    """Every event: its run, its place and time, its body and its sum."""
    packs = has_packs(connection)
    for key, run_id in connection.execute("select key, id from run order by id").fetchall():
        for one in stored(connection, run_id, key, packs=packs):
            yield run_id, one.seq, one.at, one.body, one.sum


def check_chain(rows):
    last, seq, chain = None, 0, b""
    for run, number, at, body, sum in rows:
        if run != last:
            last, seq, chain = run, 0, b""
        assert number == seq + 1, f"run {run} has no event {seq + 1}"
        seq, chain = number, link(chain, number, at, body)
        assert chain == sum, f"event {number} of run {run} is not what was written"


def receipt(recorded: Recorded):
    return f"{recorded.seq} {sha256(recorded.body).hexdigest()}"


# --- processes ---------------------------------------------------------------------------


def in_child(work):
    """Have a fork do this, with a function that tells us lines. Returns its end and the lines."""
    hear, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(hear)
        code = 1
        try:
            work(lambda line: os.write(tell, f"{line}\n".encode()))
            code = 0
        except BaseException:  # noqa: BLE001 - told to whoever forked
            os.write(tell, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(tell)
    with os.fdopen(hear) as pipe:
        told = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told


def lived_through(folder, how, number):
    """One life that ends at this operation, and one after it. True if it did not end there."""

    def first(tell):
        disk = Disk()
        disk.break_at(number, how, on=KINDS if how == "kill" else {"write"})
        life = Life(folder, lambda recorded: tell(receipt(recorded)))
        anyio.run(life.live, disk.name)

    end, told = in_child(first)
    if end not in (0, -signal.SIGKILL):
        raise AssertionError(f"the first life ended by itself, with {end}:\n{told}")
    # A line that was cut off was not heard.
    received = told.splitlines() if told.endswith("\n") else told.splitlines()[:-1]
    wrong, why = in_child(lambda _: check_aftermath(folder, received))
    if wrong:
        raise AssertionError(f"after {len(received)} events were heard:\n{why}")
    return end == 0


def warm_up(folder):
    """Load here what every life would load for itself, and be rid of all threads again."""
    folder.mkdir()
    check_aftermath(folder, [])
    while threading.active_count() > 1:
        time.sleep(0.001)  # noqa: TID251 - no loop runs here
    gc.freeze()


def main():
    how, first, step, folder = sys.argv[1:]
    warm_up(Path(folder) / "warm")
    for number in count(int(first), int(step)):
        place = Path(folder) / f"{how}-{number}"
        place.mkdir()
        try:
            unharmed = lived_through(place, how, number)
        except AssertionError as error:
            error.add_note(f"the disk was to {how} at operation {number}")
            raise
        shutil.rmtree(place)
        if unharmed:
            break
    sys.stdout.write(f'{{"last": {number}}}')


if __name__ == "__main__":
    main()
