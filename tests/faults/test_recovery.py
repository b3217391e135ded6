"""What goes wrong where a journal is lines in a file and a transcript has several truths, each here
with one truth: rows in a database, and folds.
"""

import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

import anyio
import apsw
import pytest
from msgspec.structs import replace

from holdfast.core.bookmark import Bookmark
from holdfast.core.entries import Card, Reply, Said
from holdfast.core.events import (
    ModelReplied,
    RunCompleted,
    RunStarted,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import Text, ToolCall, ToolSpec, plain
from holdfast.core.transcript import transcribe
from holdfast.engine.means import Means
from holdfast.engine.runs import Runs
from holdfast.engine.sessions import Sessions
from holdfast.stores.database import open_reader
from holdfast.stores.reading import entries_of, read
from holdfast.stores.sessions import members_of, read_notes, session_entries
from holdfast.stores.sqlite import open_sqlite
from holdfast.testing.contracts import ACCEPTED, CALLED, STARTED, said

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
ODD = "a\u2028b\u2029c\u0085d\x0be\U0001f33f é"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


def sessions_on(store):
    means = Means(store=store, models={})
    return Sessions(means, Runs(means), workers=lambda: False)


async def turn(store, number, *texts, text="what likes shade?", end=True):
    """A run of the session that says these texts."""
    run_id = f"run_{number}"
    asked = replace(ACCEPTED, session_id="ses_1", input=(Text(text),))
    await store.accept(run_id, asked)
    (lease,) = await store.claim("a", ttl=600.0)
    started = RunStarted(worker="a", epoch=lease.epoch)
    await store.append(lease, started, CALLED, seen=1)
    for one in texts:
        await store.append(lease, said(one), seen=2**62)
    if end:
        seen = len(await store.read(run_id))
        replied = ModelReplied(turn=1, attempt=1, text="".join(texts))
        await store.append(lease, replied, RunCompleted(), seen=seen)
    return run_id


def spoken(entries):
    return [
        plain(one.parts) if isinstance(one, Said) else one.text
        for one in entries
        if isinstance(one, Said | Reply)
    ]


# --- the journal


async def test_separators_that_end_a_line_elsewhere_are_text_like_any_other(path):
    async with open_sqlite(path) as store:
        await turn(store, 1, ODD, ODD, text=ODD)
    async with open_sqlite(path) as store:
        page = await sessions_on(store).page("ses_1")
        assert spoken(page.entries) == [ODD, ODD + ODD]


def test_a_log_torn_inside_a_character_loses_that_commit_and_nothing_before_it(tmp_path):
    """At every place where the last commit can be torn, what was there before is whole."""
    source = tmp_path / "source"
    script = dedent("""
        import asyncio, os, sys
        from pathlib import Path
        from holdfast.stores.sqlite import open_sqlite
        from tests.faults.test_recovery import turn
        async def main():
            async with open_sqlite(Path(sys.argv[1]) / "journal.db") as store:
                await turn(store, 1, "grün ", "wächst ", end=False)
                print(os.path.getsize(sys.argv[1] + "/journal.db-wal"), flush=True)
                os._exit(0)
        asyncio.run(main())
    """)
    source.mkdir()
    subprocess.run(
        [sys.executable, "-c", script, str(source)], check=True, cwd=ROOT, capture_output=True
    )
    log = (source / "journal.db-wal").read_bytes()
    base = (source / "journal.db").read_bytes()
    lengths = []
    for torn in range(len(log), max(len(log) - 3 * 4120, 0), -517):
        copy = tmp_path / f"torn{torn}"
        copy.mkdir()
        (copy / "journal.db").write_bytes(base)
        (copy / "journal.db-wal").write_bytes(log[:torn])
        lengths.append(_events(copy / "journal.db"))
    assert lengths[0] == 5
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] >= 1


def _events(path):
    async def count():
        async with open_sqlite(path) as store:
            journal = await store.read("run_1")
            # The next append is not glued to what was torn.
            lease = await store.seize("run_1", "c", ttl=60.0)
            await store.append(lease, RunStarted(worker="c", epoch=lease.epoch), seen=len(journal))
            again = await store.read("run_1")
            assert [one.seq for one in again] == list(range(1, len(journal) + 2))
            return len(journal)

    return anyio.run(count)


async def test_writers_that_race_leave_no_inversion_and_no_gap(path):
    async with open_sqlite(path) as store:
        await store.accept("run_1", replace(ACCEPTED, session_id="ses_1"))
        (lease,) = await store.claim("a", ttl=600.0)
        await store.append(lease, STARTED, CALLED, seen=1)

        async def write(name):
            for number in range(100):
                await store.append(lease, said(f"{name}{number} "), seen=2**62)

        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(write, name)
        journal = await store.read("run_1")
        assert [one.seq for one in journal] == list(range(1, 404))
        for name in "abcd":
            mine = [one.event.text for one in journal[3:] if one.event.text.startswith(name)]
            assert mine == [f"{name}{number} " for number in range(100)]


async def test_a_long_old_run_does_not_keep_a_new_one_from_being_resumed(path):
    async with open_sqlite(path) as store:
        await store.accept("run_1", replace(ACCEPTED, session_id="ses_1"))
        (lease,) = await store.claim("a", ttl=600.0)
        await store.append(lease, STARTED, CALLED, seen=1)
        await store.append(lease, *(said("x" * 100) for _ in range(5000)), seen=3)
        replied = ModelReplied(turn=1, attempt=1, text="x" * 500_000)
        await store.append(lease, replied, RunCompleted(), seen=5003)
        await turn(store, 2, "short")
        sessions = sessions_on(store)
        heard = []
        async for one in sessions.follow("ses_1", after=Bookmark(3, 2, (2,))):
            heard.append((one.ordinal, one.recorded.seq))
            if isinstance(one.event, RunCompleted):
                break
        assert heard == [(2, 3), (2, 4), (2, 5), (2, 6)]


async def test_looking_at_one_run_reads_the_rows_of_no_other(path):
    async with open_sqlite(path) as store:
        for number in range(1, 6):
            await turn(store, number, "x")
    db = open_reader(path)
    asked = []
    db.set_exec_trace(lambda _, query, bindings: asked.append((query, bindings)) or True)
    read(db, 3, after=0)
    read_notes(db, "ses_1", after=2)
    members_of(db, "ses_1", before=4, limit=2)
    session_entries(db, archived=None, deleted=False, text="", before=None, limit=20)
    entries_of(db, session="ses_1", live=None, before="", limit=20)
    db.set_exec_trace(None)
    plans = [
        row[3] for query, given in asked for row in db.execute(f"explain query plan {query}", given)
    ]
    db.close()
    assert not [plan for plan in plans if "TEMP B-TREE" in plan]
    assert not [plan for plan in plans if plan.startswith("SCAN") and "USING INDEX" not in plan]


# --- what people were shown


async def test_two_equal_turns_are_two_turns(path):
    """A repeat of a short prompt with the same short answer is not taken for the one before it."""
    async with open_sqlite(path) as store:
        for number in (1, 2):
            await turn(store, number, "yes", text="again?")
        page = await sessions_on(store).page("ses_1")
        assert spoken(page.entries) == ["again?", "yes", "again?", "yes"]


async def test_an_unanswered_prompt_is_not_taken_for_its_repeat(path):
    async with open_sqlite(path) as store:
        first = await turn(store, 1, text="again?", end=False)
        await store.accept("run_2", replace(ACCEPTED, session_id="ses_1", input=(Text("again?"),)))
        entries = (await sessions_on(store).page("ses_1")).entries
        assert spoken(entries) == ["again?", "again?"]
        assert [one.run_id for one in entries if isinstance(one, Said)] == [first, "run_2"]


async def test_a_completed_run_that_nobody_saw_is_there_in_full(path):
    async with open_sqlite(path) as store:
        await turn(store, 1, "all ", "of it")
    async with open_sqlite(path) as store:
        entries = (await sessions_on(store).page("ses_1")).entries
        assert spoken(entries) == ["what likes shade?", "all of it"]
        assert not entries[-1].partial


async def test_of_two_tools_of_one_name_the_error_is_on_the_right_card(path):
    look = ToolSpec("look", parallel=True)
    calls = tuple(ToolCall(id=f"call_{n}", tool="look", arguments="{}") for n in (1, 2))
    async with open_sqlite(path) as store:
        await store.accept("run_1", replace(ACCEPTED, session_id="ses_1", tools=(look,)))
        (lease,) = await store.claim("a", ttl=600.0)
        await store.append(lease, STARTED, CALLED, seen=1)
        await store.append(
            lease,
            ModelReplied(turn=1, attempt=1, calls=calls),
            *(ToolStarted(call_id=call.id) for call in calls),
            ToolFinished(call_id="call_1", outcome="error", output="no such file"),
            ToolFinished(call_id="call_2", outcome="ok", output="fern"),
            seen=3,
        )
        entries = transcribe("run_1", 1, await store.read("run_1"))
        cards = {one.id: (one.error, one.result) for one in entries if isinstance(one, Card)}
        assert cards == {"call_1": (True, "no such file"), "call_2": (False, "fern")}


async def test_a_reader_in_another_thread_of_the_same_file_sees_whole_commits(path):
    """Beside a writer that never rests, a reader sees a beginning of the journal, never a hole."""
    lengths, over = [], threading.Event()

    def look():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(5000)
        while not over.is_set():
            rows = [seq for (seq,) in connection.execute("select seq from event order by seq")]
            assert rows == list(range(1, len(rows) + 1))
            lengths.append(len(rows))
        connection.close()

    async with open_sqlite(path) as store:
        await store.accept("run_1", replace(ACCEPTED, session_id="ses_1"))
        (lease,) = await store.claim("a", ttl=600.0)
        await store.append(lease, STARTED, CALLED, seen=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, look)
            for number in range(200):
                await store.append(lease, TextStreamed(turn=1, attempt=1, text=str(number)), seen=9)
            over.set()
    assert lengths == sorted(lengths)
