from pydoc_data.topics import topics
from random import Random

import pytest

from holdfast.core.codec import link_messages
from holdfast.core.events import (
    InputAdded,
    ModelChoice,
    ModelReplied,
    RunAccepted,
    RunCompleted,
    RunStarted,
    TextStreamed,
)
from holdfast.core.messages import AssistantMessage, Text, UserMessage
from holdfast.errors import JournalDamaged
from holdfast.stores.archive import open_archive
from holdfast.stores.batch import pack_events
from holdfast.stores.database import open_reader, open_writer
from holdfast.stores.ledger import LONG_BODY, Ledger
from holdfast.stores.packer import STEP, STEP_BYTES, Packer
from holdfast.stores.reading import find, link, read
from holdfast.stores.transfer import export, open_intake, parcels
from holdfast.testing.contracts import CALLED

BRIEF = "Be brief, and say what you do. " * 50


class Tick:
    """A wall clock that moves each time it is looked at."""

    def __init__(self):
        self.now = 1e9

    def __call__(self):
        self.now += 0.017
        return self.now


class File:
    """A journal file with whatever runs a test wants in it."""

    def __init__(self, folder):
        self.path = folder / "journal.db"
        self.db = open_writer(self.path)
        self.ledger = Ledger(self.db, now=Tick(), clock=Tick())
        self.packer = Packer(self.db)

    def run(self, run_id, *events, instructions=BRIEF, history=(), end=True, **fields):
        accepted = RunAccepted(
            input=(Text(run_id),), models=(ModelChoice("m"),), instructions=instructions, **fields
        )
        self.ledger.accept(run_id, pack_events([accepted], {}, history))
        lease = self.ledger.seize(run_id, "w", ttl=1e9)
        said = [RunStarted(worker="w", epoch=1), *events, *([RunCompleted()] if end else [])]
        for seen, event in enumerate(said, 1):
            self.ledger.append(lease, pack_events([event]), seen)
        self.db.execute("begin")
        self.ledger.flush()
        self.db.execute("commit")
        self.ledger.begin()

    def pack(self):
        """All of it. Returns how many steps that took."""
        steps = 0
        while step := self.packer.next():
            with self.db:
                self.packer.take(step)
            steps += 1
        return steps

    def read(self, run_id, **page):
        return read(self.db, find(self.db, run_id)[0], **{"after": 0, **page})

    def one(self, query):
        return self.db.execute(query).get


@pytest.fixture
def file(tmp_path):
    file = File(tmp_path)
    yield file
    file.db.close()


def reply(pieces=40, text="some words "):
    said = [TextStreamed(turn=1, attempt=1, text=f"{text}{n}") for n in range(pieces)]
    return [CALLED, *said, ModelReplied(turn=1, attempt=1, text="".join(one.text for one in said))]


def long(letter="x"):
    return InputAdded(parts=(Text(letter * (LONG_BODY + 1)),))


def test_a_packed_run_is_read_as_it_was_written(file):
    file.run("run_1", *reply())
    before = file.read("run_1")
    rows = file.db.execute("select seq, at, body, sum from event order by seq").fetchall()
    file.pack()
    assert file.one("select count(*) from event") == 3
    assert file.read("run_1") == before
    with open_archive(file.path) as archive:
        assert [(one.seq, one.at, one.body, one.sum) for one in archive.rows("run_1")] == rows
        assert list(archive.events("run_1")) == list(before)
        assert archive.verify("run_1") == archive.length("run_1") == len(before)
        entry = archive.entry("run_1")
        archive.verify_file()
    assert (entry.first, entry.last) == (before[0], before[-1])


def test_a_page_is_the_same_packed_or_not(file):
    file.run("run_1", *reply(), long(), *reply(3))
    pages = [(after, limit) for after in (*range(60), 99) for limit in (-1, 0, 1, 2, 30)]
    before = [file.read("run_1", after=after, limit=limit) for after, limit in pages]
    file.pack()
    assert [file.read("run_1", after=after, limit=limit) for after, limit in pages] == before


def test_a_run_that_has_not_ended_is_not_packed(file):
    file.run("run_1", *reply(), end=False)
    assert file.pack() == 0
    assert file.one("select max(packed) from event") == 0


def test_a_run_whose_id_is_no_text_any_more_keeps_none_from_being_packed(file):
    for run_id in ("run_1", "run_2"):
        file.run(run_id, CALLED)
    file.db.execute("update run set id = cast(x'72f3' as text) where id = 'run_1'")
    assert file.pack() == 2


def test_a_body_that_stands_elsewhere_stays_there(file):
    file.run("run_1", long(), *reply(), long("y"), long("z"), *reply(3))
    before = file.read("run_1")
    file.pack()
    assert file.read("run_1") == before
    assert file.one("select count(*) from event where long is not null") == 3
    assert file.one("select count(*) from event where packed = 0") == 4
    with open_archive(file.path) as archive:
        assert archive.verify("run_1") == len(before)


def test_a_run_of_which_nothing_can_be_packed_is_done_with(file):
    file.run("run_1")
    file.db.execute("delete from event where seq < 3")
    assert file.pack() == 1 and file.packer.next() is None


def test_a_long_run_is_packed_in_steps(file):
    file.run("run_1", *reply(2 * STEP))
    before = file.read("run_1")
    step = file.packer.next()
    with file.db:
        file.packer.take(step)
    assert STEP < file.one("select count(*) from event") < len(before)
    assert file.read("run_1") == before
    assert file.pack() == 2
    assert file.read("run_1") == before


def test_large_events_make_a_step_of_few(file):
    file.run("run_1", *reply(12, "x" * (LONG_BODY - 200)))
    before = file.read("run_1")
    assert file.pack() >= 12 * LONG_BODY // STEP_BYTES
    assert file.read("run_1") == before


def test_what_runs_begin_with_alike_stands_once(file):
    for number in range(10):
        file.run(f"run_{number}", *reply(3))
    file.run("run_x", *reply(3), instructions="Be long. " * 200)
    file.run("run_y", *reply(3), instructions="short")
    file.pack()
    assert file.one("select count(*) from base") == 2
    assert file.one("select max(length(body)) from event where packed = 1 and base") < 200
    with open_archive(file.path) as archive:
        assert [archive.verify(run_id) for run_id in archive.ids()] == [8] * 12


def test_of_what_was_asked_nothing_stays_with_another_run(file):
    file.run("run_secret", *reply(3), metadata={"for": "run_secret"}, asked={"user": "run_secret"})
    file.run("run_other", *reply(3))
    file.pack()
    (shared,) = file.db.execute("select body from base").fetchall()
    assert b"run_secret" not in shared[0]
    for query in ("delete from event where run = 1", "delete from run where key = 1"):
        file.db.execute(query)
    file.ledger.collect("")
    assert file.one("select count(*) from base") == 1 and len(file.read("run_other")) == 8
    file.db.execute("delete from event")
    file.ledger.collect("")
    assert file.one("select count(*) from base") == 0


@pytest.mark.parametrize(
    "change",
    [
        "update event set body = cast(body || ' ' as blob) where seq = 9",
        "update event set at = at + 1 where seq = 9",
        "update event set at = 'noon' where seq = 9",
        "update event set body = null where seq = 9",
        "update event set sum = x'00' where seq = 9",
        "delete from event where seq = 9",
        "update event set seq = 'nine' where seq = 9",
    ],
)
def test_what_is_damaged_is_left_as_it_is_to_be_found(file, change):
    file.run("run_1", *reply())
    file.run("run_2", *reply())
    file.db.execute(f"{change} and run = 1")
    rows = file.db.execute("select * from event where run = 1").fetchall()
    file.pack()
    assert file.db.execute("select * from event where run = 1").fetchall() == rows
    assert file.db.execute("select packed from run order by key").fetchall() == [(2,), (1,)]
    with open_archive(file.path) as archive, pytest.raises(JournalDamaged, match="damaged at"):
        archive.verify("run_1")


MAIN = "run = 1 and packed > 1"


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        (f"update event set body = cast(substr(body, 1, 99) as blob) where {MAIN}", 2),
        (f"update event set body = x'00' where {MAIN}", 2),
        (f"update event set body = null where {MAIN}", 2),
        (f"update event set body = 'text' where {MAIN}", 2),
        (f"update event set sum = x'00' where {MAIN}", 2),
        (f"update event set sum = null where {MAIN}", 2),
        (f"update event set packed = packed - 1 where {MAIN}", 3),
        (f"update event set packed = 'many' where {MAIN}", None),
        (f"update event set packed = -5 where {MAIN}", None),
        (f"update event set packed = 0 where {MAIN}", 2),
        (f"update event set seq = 99 where {MAIN}", None),
        (f"delete from event where {MAIN}", 2),
        ("delete from event where packed = 1", None),
        ("update event set sum = x'00' where packed = 1", 1),
        ("update event set base = null", 1),
        ("update base set body = x'00'", 1),
        ("update base set pressed = 0", 1),
        ("delete from base", 1),
    ],
)
def test_damage_to_a_pack_is_found(file, change, seq):
    file.run("run_1", *reply())
    file.pack()
    file.db.execute("pragma foreign_keys = 0")
    file.db.execute(change.replace("sum = null", "sum = 'none'"))
    with open_archive(file.path) as archive:
        for look in (archive.verify, file.read):
            with pytest.raises(JournalDamaged) as found:
                look("run_1")
            assert seq is None or found.value.seq == seq


@pytest.mark.parametrize("spot", [0, 1, 2, 50, 200, -1])
def test_one_bit_that_flipped_in_a_pack_is_found(file, spot):
    file.run("run_1", *reply())
    file.pack()
    body = bytearray(file.one(f"select body from event where {MAIN}"))
    body[spot] ^= 0x10
    file.db.execute(f"update event set body = ? where {MAIN}", (bytes(body),))
    with pytest.raises(JournalDamaged, match="damaged at 2"):
        file.read("run_1")
    # What stands before it can be read, and so can the run in a list.
    with open_archive(file.path) as archive:
        assert archive.entry("run_1").last.event == RunCompleted()
        with pytest.raises(JournalDamaged, match="damaged at 2"):
            archive.verify("run_1")


def test_a_reader_sees_one_form_or_the_other_and_either_whole(file):
    file.run("run_1", *reply())
    before = file.read("run_1")
    reader, later = open_reader(file.path), open_reader(file.path)
    with reader:
        assert reader.execute("select count(*) from event").get == len(before)
        file.pack()
        assert read(reader, 1, after=0) == before
        assert reader.execute("select count(*) from event").get == len(before)
    for one in (reader, later):
        assert one.execute("select count(*) from event").get == 3
        assert read(one, 1, after=20) == before[20:]
        one.close()


def test_space_that_packing_frees_is_used_again(file):
    file.run("run_1", *reply(500))
    for number in range(2, 12):
        file.pack()
        file.run(f"run_{number}", *reply(500))
    file.pack()
    assert (
        file.db.pragma("page_count")
        < 3 * file.one("select sum(length(body)) from event") / 4096 + 60
    )


def test_a_packed_run_leaves_and_is_taken_in_elsewhere(file, tmp_path):
    file.run("run_1", long(), *reply())
    with open_archive(file.path) as archive:
        whole = list(export(archive, "run_1"))
    file.pack()
    with open_archive(file.path) as archive:
        assert list(export(archive, "run_1")) == whole
        masked = b"".join(export(archive, "run_1", secrets=["some words 7"]))
    assert b"[masked]" in masked and b"some words 7" not in masked
    (parcel,) = parcels(whole)
    elsewhere = tmp_path / "elsewhere" / "journal.db"
    with open_intake(elsewhere, now=lambda: 1.0) as intake:
        intake.take(parcel)
    with open_archive(elsewhere) as archive:
        assert list(export(archive, "run_1")) == whole


def test_a_copy_of_packed_runs_is_as_good_as_they_are(file, tmp_path):
    file.run("run_1", *reply())
    before = file.read("run_1")
    file.pack()
    with open_archive(file.path) as archive:
        (tmp_path / "copies").mkdir()
        archive.back_up(tmp_path / "copies" / "copy.db")
    with open_archive(tmp_path / "copies" / "copy.db") as archive:
        assert list(archive.events("run_1")) == list(before)
        assert archive.verify("run_1") == len(before)


def test_a_first_event_of_a_newer_version_is_packed_as_it_is(file):
    file.run("run_1", *reply(2))
    body = b'{"type":"run.accepted","input":5,"more":"' + b"x" * 600 + b'"}'
    file.db.execute("delete from event where seq > 1")
    file.db.execute("update event set body = ?", (body,))
    sum = link(b"", 1, file.one("select at from event"), body)
    file.db.execute("update event set sum = ?", (sum,))
    end = b'{"type":"run.completed"}'
    insert = "insert into event (run, seq, at, body, sum) values (1, 2, 1.0, ?, ?)"
    file.db.execute(insert, (end, link(sum, 2, 1.0, end)))
    file.pack()
    assert file.one("select count(*) from base") == 0
    assert [one.body for one in file.read("run_1")] == [body, end]


def prose(chance, size):
    """Sentences of Python's own manual, in any order."""
    whole = " ".join(" ".join(topics.values()).split())
    starts = [chance.randrange(len(whole) - 80) for _ in range(0, size, 80)]
    return "".join(whole[start : start + 80] for start in starts)[:size]


def test_a_conversation_takes_up_less_than_three_times_its_text(file):
    """Of answers of 4 KB in a thousand pieces each, and sent as a whole with every turn."""
    chance, text, history = Random(7), 0, []
    for turn in range(20):
        answer = prose(chance, 4000)
        pieces = [answer[start : start + 4] for start in range(0, 4000, 4)]
        said = [TextStreamed(turn=1, attempt=1, text=piece) for piece in pieces]
        whole = ModelReplied(turn=1, attempt=1, text=answer)
        file.run(f"run_{turn}", CALLED, *said, whole, history=link_messages(history))
        file.pack()
        history += [UserMessage(parts=(Text(f"go on {turn}"),)), AssistantMessage(text=answer)]
        text += len(answer)
    tables = "select count(*) from sqlite_schema where rootpage"
    used = file.db.pragma("page_count") - file.db.pragma("freelist_count") - file.one(tables)
    assert used * 4096 < 3 * text
