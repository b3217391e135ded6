from typing import get_args

import pytest

from holdfast.cli.summary import Summary, interrupted, summarise
from holdfast.core.events import RunAccepted
from holdfast.core.lifecycle import Status
from holdfast.core.phase import Awaited, Phase
from holdfast.core.state import RunState
from holdfast.stores.archive import open_archive
from holdfast.stores.owner import Owner

ADA = Owner(1, worker="ada")


@pytest.mark.parametrize(
    ("status", "worker", "owner", "so"),
    [
        (Status.RUNNING, "ada", ADA, False),
        (Status.RUNNING, "bob", ADA, True),
        (Status.RUNNING, "ada", None, True),
        (Status.QUEUED, "", ADA, False),
        (Status.QUEUED, "", None, True),
        (Status.STOPPING, "ada", None, True),
        (Status.WAITING, "bob", None, False),
        (Status.COMPLETED, "bob", None, False),
    ],
)
def test_a_run_is_interrupted_when_it_lives_and_nobody_carries_it(status, worker, owner, so):
    assert interrupted(RunState(status=status, worker=worker), owner) is so


def summary(status=Status.RUNNING, waits=None, *, interrupted=False):
    return Summary("run_1", 1.0, 2.0, 3, status, interrupted, waits, "hello")


@pytest.mark.parametrize("awaited", get_args(Awaited))
def test_whatever_is_waited_for_has_its_words(awaited):
    assert summary(waits=Phase(awaited, 0.0, "demo")).awaits


def test_where_it_stands_is_a_word():
    assert summary().stands == "running"
    assert summary(Status.WAITING).stands == "waiting"
    assert (summary(interrupted=True).stands, summary(interrupted=True).awaits) == (
        "interrupted",
        "holdfast resume",
    )
    assert summary(Status.COMPLETED).awaits == ""


def test_a_run_in_the_file_is_summed_up(keep, data):
    keep(prompt="what now?")
    keep("asking")
    with open_archive(data / "journal.db") as archive:
        asking, done = (summarise(archive, archive.entry(id), None) for id in archive.newest())
        first = archive.entry(done.run).first
    assert isinstance(first.event, RunAccepted)
    assert (done.input, done.status, done.accepted_at) == ("what now?", Status.COMPLETED, first.at)
    assert (asking.status, asking.waiting_for.name) == (Status.WAITING, "ask")
