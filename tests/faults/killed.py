"""A process whose children are killed, to be run as `python killed.py SEED KILLS`.

It loads everything once and forks for each life of a run, so that a life costs little. A child
carries the run on one data directory and says on a pipe what it received; it is killed at a random
moment, several times, and then left to finish. After each death the journal must hold all that
was received, and no effect may have happened twice. Prints how the
runs ended.
"""

import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import anyio

import holdfast.stores.owner
import holdfast.stores.sqlite  # noqa: F401 (loaded once, for all)
from holdfast.app import open_app
from holdfast.config.places import JOURNAL
from holdfast.core.events import ApprovalRequested, ToolStarted
from holdfast.core.run import replay
from holdfast.errors import Conflict
from holdfast.ports import Review
from holdfast.stores.archive import open_archive
from holdfast.testing.scripted import Call, ScriptedModel, ScriptedTool, Silence, Think

RUN = "run_killed"

#: Seconds after its birth, or after it has opened the store, at which a child is killed, at most.
LONGEST = 0.06

#: Deaths of one run. More in a row, without progress, and it would be given up.
DEATHS = 4

#: Seconds for a run to end that is not disturbed.
PATIENCE = 20

TURNS = (
    [Think("Well. "), "Let ", Silence(0.002), "me ", Silence(0.002), Call("pay", '{"n":1}')],
    ["Then ", Silence(0.002), "this: ", Call("wire", '{"n":2}')],
    ["And ", Silence(0.002), Call("pay", '{"n":3}'), Call("look", '{"n":4}')],
    ["All ", Silence(0.002), "done."],
)


def main(seed, kills, kind=None):
    kind = kind or Run
    chance, ends, deaths, seen = random.Random(seed), Counter(), 0, Counter()
    while deaths < kills:
        with tempfile.TemporaryDirectory() as place:
            run = kind(Path(place))
            for _ in range(min(DEATHS, kills - deaths)):
                run.live(until=chance.uniform(0, run.longest), opened=chance.random() < 0.8)
                run.check()
                deaths += 1
            run.live()
            ends[run.check()] += 1
            seen += run.seen
    json.dump({"ends": ends, "deaths": deaths, **seen}, sys.stdout)


class Run:
    """One run, through all its lives. `heard` is what any follower was ever told.

    `seen` counts what must happen now and then, or the test shows nothing.
    """

    longest = LONGEST

    def __init__(self, place):
        self.place = place
        self.heard = {}
        self.seen = Counter()

    def live(self, *, until=None, opened=False):
        """Have a child carry the run, and kill it after `until` seconds, or wait for its end.

        Most of the time those count from when it has opened the store, however long that takes.
        """
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.close(ours)
            be_born(self.carry, theirs)
        os.close(theirs)
        if opened:
            select.select([ours], [], [], PATIENCE)
        said = listen(ours, until or PATIENCE)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        said += listen(ours, PATIENCE)
        os.close(ours)
        cut_off = until is not None and os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert status == 0 or cut_off, f"the child did not end well: {status}, {said}"
        # The last line may be cut off.
        for line in said.split(b"\n")[:-1]:
            seq, digest = line.split()
            if seq == b"0":
                continue
            assert self.heard.setdefault(int(seq), digest) == digest, f"{seq} was heard twice"

    async def carry(self, pipe):
        await carry(self.place, pipe)

    def check(self):
        """All that was heard is on record, and nothing was done twice. Returns the status."""
        with open_archive(self.place / "data" / JOURNAL) as archive:
            if not archive.count():
                assert not self.heard
                return "nothing"
            archive.verify(RUN)
            archive.verify_file()
            journal = list(archive.events(RUN))
        kept = {recorded.seq: digest(recorded) for recorded in journal}
        lost = {seq: seen for seq, seen in self.heard.items() if kept.get(seq) != seen}
        assert not lost, f"heard and not on record: {lost}"
        self.check_effects(journal)
        state = replay(journal)
        self.seen["in_mid_run"] += state.status.live
        return state.status.value

    def check_effects(self, journal):
        effects = self.place / "effects"
        done = effects.read_text().splitlines() if effects.exists() else []
        assert len(done) == len(set(done)), f"done twice: {done}"
        started = {r.event.call_id for r in journal if isinstance(r.event, ToolStarted)}
        ids = [line.split()[0] for line in done]
        assert set(ids) <= started, f"done and not on record: {ids}"
        deeds = [line.split(" ", 1)[1] for line in done]
        assert len(deeds) == len(set(deeds)), f"the same deed twice: {deeds}"


def be_born(carry, pipe):
    """In the child: live, and never return to what the parent was doing."""
    try:
        anyio.run(carry, pipe)
        os._exit(0)
    except BaseException:  # noqa: BLE001 (told, and the end)
        traceback.print_exc()
        os._exit(1)


async def carry(place, pipe):
    """What a child does: take the run up where it is, answer what it asks, and tell what it hears."""

    async def act(use):
        # Written and synced, as a payment would be.
        effect = os.open(place / "effects", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(effect, f"{use.effect_id} {use.arguments}\n".encode())
        os.fsync(effect)
        os.close(effect)
        await anyio.sleep(0.001)
        return "done"

    tools = (
        ScriptedTool("pay", work=act),
        ScriptedTool("wire", work=act, review=Review(gate="ask")),
        ScriptedTool("look", work=act),
    )
    models = {"script": ScriptedModel.by_turn(*TURNS)}
    await follow(place, pipe, models, tools, answer)


async def follow(place, pipe, models, tools, answer):
    """Carry the run, and tell on the pipe what a follower hears."""
    async with open_app(data=place / "data", models=models, tools=tools) as app:
        os.write(pipe, b"0 open\n")
        try:
            await app.runs.accept(app.prepare("go"), run_id=RUN)
        except Conflict:
            pass  # an earlier life has seen to that
        async for recorded in app.runs.follow(RUN):
            os.write(pipe, b"%d %b\n" % (recorded.seq, digest(recorded)))
            if isinstance(recorded.event, ApprovalRequested):
                await answer(app, recorded.event)


async def answer(app, asked, choice="once"):
    approval_id = asked.approval_id
    try:
        await app.runs.answer(RUN, choice, approval_id=approval_id)
    except Conflict:
        return  # answered in an earlier life
    state = await app.runs.state(RUN)
    assert approval_id in state.settled, "answered, and not on record"


def digest(recorded):
    return blake2b(recorded.body, digest_size=8).hexdigest().encode()


def listen(pipe, seconds):
    """What is said within this time, or until there is nobody left to say anything."""
    said, deadline = b"", time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([pipe], [], [], left)
        if not ready or not (piece := os.read(pipe, 65536)):
            break
        said += piece
    return said


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
