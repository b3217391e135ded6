import json

import pytest

from holdfast.app import open_app
from holdfast.errors import Conflict, JournalDamaged, StoreError
from holdfast.stores.archive import open_archive
from holdfast.stores.transfer import export, parcels, take_in

ENDED, LIVE = "run_aa11", "run_aa22"

pytestmark = pytest.mark.real_time


@pytest.fixture
def lines(journals):
    with open_archive(journals) as archive:
        return [line for run_id in archive.ids() for line in export(archive, run_id)]


@pytest.fixture
def elsewhere(tmp_path):
    return tmp_path / "elsewhere" / "journal.db"


def rows(path, run_id):
    with open_archive(path) as archive:
        archive.verify(run_id)
        return list(archive.rows(run_id)), list(archive.blobs(run_id))


def changed(lines, number, **fields):
    """These lines with one of them altered."""
    line = json.dumps(json.loads(lines[number]) | fields).encode()
    return [*lines[:number], line, *lines[number + 1 :]]


def test_a_header_then_blobs_then_events_as_they_are_stored(journals, lines):
    stored, blobs = rows(journals, ENDED)
    header, events = json.loads(lines[0]), lines[3 : 3 + len(stored)]
    assert header == {
        "holdfast_journal": 1,
        "run": ENDED,
        "events": len(stored),
        "blobs": 2,
        "masked": [],
        "masked_blobs": [],
    }
    assert [json.loads(line)["blob"] for line in lines[1:3]] == [name for name, _ in blobs]
    for row, line in zip(stored, events, strict=True):
        told = json.loads(line)
        assert (told["seq"], told["at"], told["sum"]) == (row.seq, row.at, row.sum.hex())
        assert b'"body":' + row.body in line


def test_what_is_taken_in_is_what_was_exported(journals, lines, elsewhere):
    for parcel in parcels(lines):
        take_in(elsewhere, parcel)
    for run_id in (ENDED, LIVE):
        assert rows(elsewhere, run_id) == rows(journals, run_id)
    with open_archive(elsewhere) as archive:
        assert archive.unfinished() == [LIVE]


async def test_a_run_that_had_not_ended_goes_on_where_it_is_taken(lines, elsewhere):
    for parcel in parcels(lines):
        take_in(elsewhere, parcel)
    async with open_app(data=elsewhere.parent, work=False) as app:
        state = await app.runs.state(LIVE)
        await app.runs.stop(LIVE)
        after = await app.runs.state(LIVE)
        assert state.status.live and after.status.final
        lease = await app.means.store.seize(LIVE, "w", ttl=10)
    assert lease is None
    assert state.epoch == 1


def test_a_run_that_is_there_already_is_refused(journals, lines):
    first, _ = parcels(lines)
    with pytest.raises(Conflict, match="run run_aa11 is here already"):
        take_in(journals, first)


def test_secrets_are_masked_and_the_header_says_where(journals, elsewhere):
    secrets = ("a story", "blue blue", 'say "no"')
    with open_archive(journals) as archive:
        masked = [list(export(archive, id, secrets=secrets)) for id in archive.ids()]
    header, live = json.loads(masked[0][0]), json.loads(masked[1][0])
    assert len(header["masked_blobs"]) == 1
    assert live["masked"] == [1]
    everything = b"".join(masked[0] + masked[1])
    assert b"a story" not in everything and b"blue blue" not in everything
    for parcel in parcels([line for run in masked for line in run]):
        take_in(elsewhere, parcel)
    with open_archive(elsewhere) as archive:
        archive.verify(LIVE)
        (first, *_) = archive.events(LIVE)
        assert first.event.input[0].text == "[masked]"
        # What a masked blob held is gone.
        assert len(list(archive.blobs(ENDED))) == 1


async def test_a_secret_is_found_however_it_is_spelled(tmp_path):
    secret = 'back\\slash and "quotes" and ü'
    async with open_app(data=tmp_path, work=False) as app:
        await app.runs.accept(app.prepare(secret), run_id="run_1")
        await app.runs.accept(app.prepare(json.dumps(secret, ensure_ascii=False)), run_id="run_2")
    with open_archive(tmp_path / "journal.db") as archive:
        for run_id in archive.ids():
            lines = b"".join(export(archive, run_id, secrets=[secret])).decode()
            assert "[masked]" in lines
            assert "quotes" not in lines


@pytest.mark.parametrize(
    ("number", "fields", "what"),
    [
        (5, {"seq": 7}, "damaged at 3: it is missing"),
        (5, {"at": 1.5}, "damaged at 3: it does not match its checksum"),
        (5, {"sum": "00"}, "damaged at 3: it does not match its checksum"),
        (5, {"sum": "no"}, "damaged at 3: it does not match its checksum"),
        (5, {"body": {"type": "run.completed"}}, "damaged at 3: it does not match its checksum"),
        (1, {"data": "AAAA"}, "damaged at 1: blob .* is not what it was"),
    ],
)
def test_what_is_not_what_was_exported_is_refused(lines, elsewhere, number, fields, what):
    with pytest.raises(JournalDamaged, match=what):
        take_in(elsewhere, next(parcels(changed(lines, number, **fields))))
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    ("number", "body", "what"),
    [
        (5, {"typ": "model.text"}, "damaged at 3: a stored event cannot be read"),
        (3, {"type": "run.completed"}, "damaged at 1: a run begins by being accepted"),
        (5, {"type": "run.completed"}, "damaged at 12: "),
    ],
)
def test_a_mask_excuses_no_nonsense(lines, elsewhere, number, body, what):
    masked = changed(changed(lines, 0, masked=[1, 3]), number, body=body)
    with pytest.raises(JournalDamaged, match=what):
        take_in(elsewhere, next(parcels(masked)))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda lines: [b"nonsense"], "line 1 is not a line of an exported journal"),
        (lambda lines: lines[:6], "the lines end in the middle of run run_aa11"),
        (lambda lines: lines[:1] + lines[2:], "line 3 is not a line of an exported journal"),
        (lambda lines: changed(lines, 0, holdfast_journal=2), "line 1 was written by a newer"),
        (lambda lines: [b"\xff"], "line 1 is not a line"),
    ],
)
def test_lines_that_are_no_journal_are_refused(lines, spoil, sentence):
    with pytest.raises(StoreError, match=sentence):
        list(parcels(spoil(lines)))


def test_a_file_that_cannot_be_written_is_a_sentence(lines, journals, spoil):
    spoil("drop table blob_use")
    spoil("update run set id = id || '0'")
    with pytest.raises(StoreError, match="cannot be written"):
        take_in(journals, next(parcels(lines)))
    with open_archive(journals) as archive:
        assert ENDED not in archive.ids()
