"""A process that only reads, beside an owner that is paused, killed and started again.

What it shows never gets less; what it says of what is missing comes and goes by itself; and nothing
is changed by looking.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import apsw
import pytest

from holdfast.cli.conversation import look as seen_in
from holdfast.cli.far import Far
from holdfast.cli.shelf import open_shelf
from holdfast.core.entries import Mark, Reply

pytestmark = pytest.mark.real_time

HOLDFAST = (sys.executable, "-m", "holdfast")
KEY = "hf_a_key_for_these_tests_0123456789"
CONFIG = """
[models.demo]
wire = "demo"
options = { pace = 0.02 }
[tools]
terminal = false
"""
PATIENCE = 20.0


@contextmanager
def owner(folder):
    """`holdfast serve`. Yields its process, and what talks to it."""
    (folder / "holdfast.toml").write_text(CONFIG)
    process = subprocess.Popen(
        [*HOLDFAST, "serve", "--port", "0", "--data", str(folder / "data")],
        cwd=folder,
        stdout=subprocess.PIPE,
        env=environment(folder),
    )
    try:
        line = process.stdout.readline().decode()
        assert line.startswith("holdfast is listening on "), line
        yield process, Far(line.split()[-1], KEY)
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


def environment(folder):
    given = {**os.environ, "HOLDFAST_API_KEY": KEY}  # noqa: TID251 (to add to it)
    return given | {"HOLDFAST_CONFIG": str(folder / "holdfast.toml")}


def look(folder):
    """What is shown of the session: its words, its marker if any, and its status."""
    with open_shelf(str(folder / "data")) as shelf:
        return told(seen_in(shelf, "ses_1", limit=1000, now=time.time()))  # noqa: TID251 (it is now)


def told(talk):
    words = "".join(entry.text for entry in talk.entries if isinstance(entry, Reply))
    marks = [entry.meaning for entry in talk.entries if isinstance(entry, Mark)]
    return words, (marks or [""])[0], talk.row.status


def shown(folder):
    """The same as a command shows it."""
    done = subprocess.run(
        [*HOLDFAST, "show", "ses_1", "--data", str(folder / "data")],
        env=environment(folder),
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    return done.stdout.decode()


def until(folder, wanted):
    """Look until that is so. Returns what is shown then."""
    deadline = time.monotonic() + PATIENCE
    while not wanted(seen := look(folder)):
        assert time.monotonic() < deadline, seen
    return seen


def sum_of(folder):
    """Of all rows there are."""
    connection = apsw.Connection(str(folder / "data/journal.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        hashed = hashlib.sha256()
        tables = connection.execute(
            "select name from sqlite_schema where type = 'table'"
        ).fetchall()
        for (table,) in sorted(tables):
            for row in connection.execute(f"select * from {table} order by 1, 2"):
                hashed.update(repr(row).encode())
        return hashed.hexdigest()
    finally:
        connection.close()


def test_beside_an_owner_that_hangs_dies_and_comes_back_nothing_gets_less(tmp_path):
    with owner(tmp_path) as (process, there):
        there.submit("what now?", model="", approval="deny", session="ses_1")
        live, mark, status = until(tmp_path, lambda seen: "You said" in seen[0])
        assert (mark, status) == ("", "running")
        process.send_signal(signal.SIGSTOP)
        # A process is stopped a moment after it was told to.
        until(tmp_path, lambda seen: seen[1])
        before = sum_of(tmp_path)
        paused, mark, status = look(tmp_path)
        assert (mark, status) == ("still_arriving", "interrupted")
        assert paused.startswith(live)
        assert "more of it may still arrive" in shown(tmp_path)
        assert sum_of(tmp_path) == before
        process.send_signal(signal.SIGCONT)
        healed, mark, _ = until(tmp_path, lambda seen: not seen[1])
        assert healed.startswith(paused)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        before = sum_of(tmp_path)
        killed, mark, status = look(tmp_path)
        assert (mark, status) == ("still_arriving", "interrupted")
        assert killed.startswith(healed)
        assert sum_of(tmp_path) == before
    with owner(tmp_path):
        # It is taken up at once. A reply that nobody heard to its end is said again.
        done, mark, status = until(tmp_path, lambda seen: seen[2] == "idle")
        assert mark == ""
        assert done.startswith(killed)
    before = sum_of(tmp_path)
    assert look(tmp_path) == (done, "", "idle")
    assert sum_of(tmp_path) == before
