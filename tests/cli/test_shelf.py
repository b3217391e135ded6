from pathlib import Path

from holdfast.cli.shelf import journal_of, live_runs, open_shelf, runs_ahead, short
from holdfast.stores.owner import Owner, own


def test_a_flag_names_another_directory_than_the_environment(data, tmp_path):
    with open_shelf(None) as shelf:
        assert shelf.path == data / "journal.db"
    with open_shelf(str(tmp_path / "other")) as shelf:
        assert shelf.folder == tmp_path / "other"
        assert shelf.owner is None


async def test_its_owner_is_known(data):
    async with own(data, worker="w"):
        with open_shelf(None) as shelf:
            assert shelf.owner == Owner(shelf.owner.pid, "", "w")


async def test_the_file_is_the_one_that_the_owner_has_or_else_the_one_that_is_set(
    data, tmp_path, monkeypatch
):
    assert journal_of(data) == data / "journal.db"
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:/x/set.db")
    assert journal_of(data) == Path("/x/set.db")
    async with own(data, journal=tmp_path / "kept" / "owned.db"):
        assert journal_of(data) == tmp_path / "kept" / "owned.db"


def test_an_id_is_short_enough_to_type():
    assert short("run_0123456789abcdef") == "run_01234567"


def test_what_has_to_end_before_a_run_can_go_on(talk, keep, data):
    first = talk("cut off", more=["rain?", "snow?"])
    live = live_runs(data, "ses_aa1")
    assert (live[0], len(live)) == (first, 3)
    assert runs_ahead(data, live[0]) == []
    assert runs_ahead(data, live[2]) == live[:2]
    assert live_runs(data, "ses_0") == []
    assert runs_ahead(data, keep("cut off")) == []
