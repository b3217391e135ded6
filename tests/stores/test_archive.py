import resource
import stat
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from subprocess import run

import anyio
import apsw
import msgspec
import pytest
from msgspec.structs import replace

from holdfast.app import open_app
from holdfast.core.codec import encode, link_messages
from holdfast.core.events import RunAccepted, RunCompleted, RunQueued
from holdfast.core.messages import BlobRef, Image, Text, UserMessage
from holdfast.core.session import SessionDeleted, SessionRestored
from holdfast.errors import (
    FileDamaged,
    InvalidRequest,
    JournalDamaged,
    NotFound,
    SchemaTooNew,
    StoreError,
)
from holdfast.stores.archive import open_archive
from holdfast.stores.database import APPLICATION, open_writer, scripts
from holdfast.stores.reading import link
from holdfast.stores.sqlite import open_sqlite
from holdfast.stores.transfer import export
from holdfast.testing.contracts import ACCEPTED, STARTED
from holdfast.testing.scripted import ScriptedModel

ENDED, LIVE = "run_aa11", "run_aa22"

pytestmark = pytest.mark.real_time

#: So that what may not be read cannot be, whoever runs the tests.
WITHOUT_POWERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.fixture
def archive(journals):
    with open_archive(journals) as archive:
        yield archive


# --- runs and events


def test_runs_are_listed_the_newest_first_by_their_two_ends(archive):
    live, ended = map(archive.entry, archive.newest())
    assert (live.id, live.ended, ended.id, ended.ended) == (LIVE, False, ENDED, True)
    assert (type(live.first.event), type(live.last.event)) == (RunAccepted, RunQueued)
    assert ended.last.event == RunCompleted()
    assert archive.newest(limit=1) == [LIVE]
    assert archive.entry(ENDED) == ended
    assert (archive.count(), archive.unfinished(), archive.ids()) == (2, [LIVE], [ENDED, LIVE])


def test_events_are_read_from_anywhere(archive):
    events = list(archive.events(ENDED))
    assert [recorded.seq for recorded in events] == list(range(1, len(events) + 1))
    assert list(archive.events(ENDED, after=3)) == events[3:]
    assert len(events[0].body) > 70_000
    with pytest.raises(NotFound, match="there is no run run_zz"):
        next(archive.events("run_zz"))


def test_blobs_are_those_that_events_refer_to(archive):
    assert sorted(len(body) for _, body in archive.blobs(ENDED)) == [83, 100_000]
    assert list(archive.blobs(LIVE)) == []


@pytest.mark.parametrize("word", [ENDED, "aa11", "run_aa1", "aa1"])
def test_a_run_is_found_by_the_beginning_of_its_id(archive, word):
    assert archive.find(word) == ENDED


def test_an_id_that_could_be_two_is_asked_for_again(archive):
    with pytest.raises(InvalidRequest, match="2 runs begin with aa: run_aa22, run_aa11; type more"):
        archive.find("aa")


@pytest.mark.parametrize("word", ["", "run_", "zz", "a_11", "aa%"])
def test_what_is_no_beginning_is_not_found(archive, word):
    with pytest.raises(NotFound):
        archive.find(word)


async def test_a_whole_id_is_found_though_another_begins_with_it(tmp_path):
    async with open_app(data=tmp_path, work=False) as app:
        for run_id in ("run_1", "run_12", "odd"):
            await app.runs.accept(app.prepare("hi"), run_id=run_id)
    with open_archive(tmp_path / "journal.db") as archive:
        assert [archive.find(word) for word in ("1", "run_1", "odd")] == ["run_1", "run_1", "odd"]


async def test_what_is_committed_is_seen_beside_a_live_owner(tmp_path):
    async with open_app(data=tmp_path, work=False) as app:
        with open_archive(tmp_path / "journal.db") as archive:
            assert archive.count() == 0
            run_id = await app.runs.accept(app.prepare("hi"))
            assert archive.ids() == [run_id]
            await app.runs.stop(run_id)
            assert archive.entry(run_id).ended


async def test_a_run_that_goes_on_meanwhile_is_no_damage(tmp_path):
    models = {"demo": ScriptedModel(*[["a ", "b ", "c"]] * 30)}
    async with open_app(data=tmp_path, models=models) as app:
        with open_archive(tmp_path / "journal.db") as archive:
            for _ in range(30):
                run_id = await app.runs.accept(app.prepare("hi"))
                async for recorded in app.runs.follow(run_id):
                    assert archive.verify(run_id) >= recorded.seq


# --- a file that is not all there


def test_where_there_is_no_file_there_are_no_runs(tmp_path):
    with open_archive(tmp_path / "journal.db") as archive:
        assert (archive.count(), archive.newest(), archive.ids()) == (0, [], [])
        with pytest.raises(NotFound):
            archive.find("run_1")
        archive.verify_file()
    assert list(tmp_path.iterdir()) == []


def test_a_file_whose_maker_died_over_it_holds_no_runs(tmp_path):
    path = tmp_path / "journal.db"
    path.touch()
    with open_archive(path) as archive:
        assert archive.count() == 0


def test_a_file_on_its_way_to_a_log_of_its_own_holds_no_runs(tmp_path):
    """As left by a process that was killed while the file was being made."""
    maker = apsw.Connection(str(tmp_path / "making.db"))
    maker.execute("pragma cache_size = 1; create table t (x); begin immediate")
    maker.executemany("insert into t values (?)", [("x" * 500,)] * 500)
    for name in ("making.db", "making.db-journal"):
        half = (tmp_path / name).read_bytes()
        (tmp_path / name.replace("making", "journal")).write_bytes(half)
    maker.close()
    with open_archive(tmp_path / "journal.db") as archive:
        assert archive.count() == 0


def test_a_file_of_a_newer_version_is_left_alone(journals, spoil):
    spoil("pragma user_version = 99")
    with pytest.raises(SchemaTooNew, match="its schema is 99"), open_archive(journals):
        pass


def test_what_is_no_database_is_a_sentence(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"not a database" * 500)
    told = pytest.raises(StoreError, match=r"journal.db cannot be read: ")
    with told, open_archive(tmp_path / "journal.db"):
        pass


def test_a_file_that_breaks_while_it_is_read_is_a_sentence(journals, spoil):
    told = pytest.raises(StoreError, match="cannot be read: no such table")
    with told, open_archive(journals) as archive:
        spoil("drop table blob_use")
        list(archive.blobs(ENDED))


# --- damage


def test_what_is_as_it_was_written_is_counted(archive):
    assert archive.verify(ENDED) == len(list(archive.events(ENDED)))
    assert archive.verify(LIVE) == len(list(archive.events(LIVE)))
    archive.verify_file()


RUN = "(select key from run where id = 'run_aa11')"


@pytest.mark.parametrize(
    ("statement", "seq", "what"),
    [
        (f"update event set body = cast(body || ' ' as blob) where seq = 3 and run = {RUN}", 3, "checksum"),
        (f"update event set body = 'text' where seq = 3 and run = {RUN}", 3, "its body is gone"),
        (f"update event set at = at + 1e-3 where seq = 4 and run = {RUN}", 4, "checksum"),
        (f"update event set sum = x'00' where seq = 5 and run = {RUN}", 5, "checksum"),
        (f"delete from event where seq = 2 and run = {RUN}", 2, "it is missing"),
        (f"delete from event where seq = 1 and run = {RUN}", 1, "it is missing"),
        (f"delete from event where run = {RUN}", 1, "it is missing"),
        (f"delete from event where seq = 12 and run = {RUN}", 12, "it is missing"),
        ("delete from blob where sha256 in (select long from event)", 1, "its body is gone"),
        ("update blob set body = cast(body || ' ' as blob) where sha256 in (select long from event)", 1, "its body is not"),
        ("update blob set body = x'00' where sha256 not in (select long from event where long is not null)", 12, "blob"),
        ("update run set place = 'ready' where id = 'run_aa11'", 12, "it is an end"),
        ("update run set place = 'hemd' where id = 'run_aa11'", 12, "where the run was left"),
        (f"update event set at = x'00' where seq = 3 and run = {RUN}", 3, "its time is gone"),
        (f"update event set body = null where seq = 3 and run = {RUN}", 3, "its body is gone"),
        (f"update event set sum = 'text' where seq = 3 and run = {RUN}", 3, "checksum"),
        ("delete from blob_use", 12, "blob .* is gone, or nobody keeps it"),
        ("delete from blob where sha256 not in (select long from event where long is not null)", 12, "blob .* is gone"),
    ],
)  # fmt: skip
def test_the_first_damage_is_named(journals, spoil, statement, seq, what):
    spoil(statement)
    with open_archive(journals) as archive, pytest.raises(JournalDamaged, match=what) as found:
        archive.verify(ENDED)
    assert (found.value.run_id, found.value.seq) == (ENDED, seq)


def test_events_that_are_swapped_are_found(journals, spoil):
    spoil(f"update event set seq = 100 where seq = 3 and run = {RUN}")
    spoil(f"update event set seq = 3 where seq = 4 and run = {RUN}")
    spoil(f"update event set seq = 4 where seq = 100 and run = {RUN}")
    with open_archive(journals) as archive, pytest.raises(JournalDamaged, match="damaged at 3"):
        archive.verify(ENDED)


def test_a_body_that_is_gone_stops_whoever_reads_it(journals, spoil):
    spoil("delete from blob where sha256 in (select long from event)")
    with open_archive(journals) as archive, pytest.raises(JournalDamaged, match="at 1: its body"):
        list(archive.events(ENDED))


def test_a_run_without_events_cannot_be_listed(journals, spoil):
    spoil(f"delete from event where run = {RUN}")
    with open_archive(journals) as archive, pytest.raises(JournalDamaged, match="damaged at 1"):
        list(map(archive.entry, archive.newest()))


def test_a_page_that_is_spoilt_is_found_where_it_is_read(journals):
    size = journals.stat().st_size
    for page in range(2, size // 4096):
        body = bytearray(journals.read_bytes())
        body[page * 4096 : page * 4096 + 4096] = b"\xff" * 4096
        spoilt = journals.with_name("spoilt.db")
        spoilt.write_bytes(body)
        with pytest.raises(StoreError), open_archive(spoilt) as archive:
            for run_id in (ENDED, LIVE):
                archive.verify(run_id)
            archive.verify_file()


@pytest.mark.parametrize(
    "change", ["at = x'00'", "body = null, long = null", "body = x'00'", "seq = 99"]
)
@pytest.mark.parametrize("seq", [1, 3, 12])
def test_whatever_stands_there_is_damage_and_no_surprise(journals, spoil, change, seq):
    spoil(f"update event set {change} where seq = {seq} and run = {RUN}")
    with open_archive(journals) as archive:
        for look in (archive.verify, lambda run_id: list(archive.events(run_id))):
            with pytest.raises(JournalDamaged):
                look(ENDED)
        archive.find("aa1")
        if seq != 3:
            with suppress(JournalDamaged):
                archive.entry(ENDED)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (
            "delete from run where id = 'run_aa11'",
            "a row of (event|blob_use|link_use) has lost its run",
        ),
        ("delete from blob", "a row of (event|blob_use) has lost its blob"),
        ("update run set id = x'ff' where id = 'run_aa11'", "the id of a run is no text"),
        (
            "update run set id = cast(x'72f3' as text) where id = 'run_aa11'",
            "the id of a run is no text",
        ),
    ],
)
def test_damage_that_belongs_to_no_run_is_the_file_s(journals, spoil, statement, what):
    spoil(statement)
    with open_archive(journals) as archive, pytest.raises(FileDamaged, match=what):
        archive.ids()
        archive.verify_file()


def test_a_place_that_is_no_text_any_more_is_the_run_s_damage(journals, spoil):
    spoil("update run set place = cast(x'f3' as text) where id = 'run_aa11'")
    with open_archive(journals) as archive:
        with pytest.raises(JournalDamaged, match="it cannot be read"):
            archive.verify(ENDED)
        for other in archive.ids():
            assert other == ENDED or archive.verify(other)


def test_a_run_whose_id_is_no_text_any_more_hides_no_other(journals, spoil):
    with open_archive(journals) as archive:
        (*others, _) = archive.ids()
    spoil("update run set id = cast(x'72f3' as text) where key = (select max(key) from run)")
    with open_archive(journals) as archive:
        assert archive.ids() == archive.newest()[::-1] == others


def test_a_name_that_is_no_text_any_more_is_damage_to_whoever_meets_it(journals, spoil):
    spoil("update or ignore blob_use set sha256 = cast(x'f3' as text)")
    with pytest.raises(FileDamaged, match="is damaged"), open_archive(journals) as archive:
        for run_id in archive.ids():
            dict(archive.blobs(run_id))


def test_an_index_that_lacks_a_row_is_damage(journals):
    """As a write to one page leaves it that never reached the disk."""
    db = apsw.Connection(str(journals))
    sql = db.execute("select sql from sqlite_schema where name = 'live_run'").get
    db.execute("drop index live_run")
    db.execute("create index live_run on run (key) where place = 'none such'")
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    db.execute("pragma writable_schema=1")
    db.execute("update sqlite_schema set sql = ? where name = 'live_run'", (sql,))
    db.close()
    with open_archive(journals) as archive, pytest.raises(FileDamaged, match="live_run"):
        archive.verify_file()


def test_a_header_that_lost_its_version_is_damage(journals, spoil):
    spoil("pragma user_version = 0")
    with pytest.raises(FileDamaged, match="which version wrote it"), open_archive(journals):
        pass


@pytest.mark.parametrize("left", ["journal.db.reserve", "journal.db-wal"])
def test_a_journal_that_is_gone_is_damage(tmp_path, left):
    (tmp_path / left).write_bytes(b"x")
    told = pytest.raises(FileDamaged, match=rf"journal.db is gone, and {left} beside it is left")
    with told, open_archive(tmp_path / "journal.db"):
        pass


def test_a_page_of_another_kind_is_damage(journals):
    body = bytearray(journals.read_bytes())
    body[100:4096] = b"\xff" * 3996
    journals.write_bytes(body)
    with pytest.raises(FileDamaged, match="cannot be read"), open_archive(journals) as archive:
        archive.ids()


# --- what cannot be read


def test_a_name_that_is_no_text_is_a_sentence(archive, tmp_path):
    with pytest.raises(NotFound):
        archive.find("\udcff")
    told = pytest.raises(StoreError, match="cannot be read: its name is not UTF-8")
    with told, open_archive(tmp_path / "\udcff" / "journal.db"):
        pass


def test_a_name_that_cannot_be_is_a_sentence(tmp_path):
    told = pytest.raises(StoreError, match="cannot be read: File name too long")
    with told, open_archive(tmp_path / ("x" * 300) / "journal.db"):
        pass


def test_a_journal_that_may_not_be_read_is_not_called_missing(journals):
    code = """
import sys
from pathlib import Path
from holdfast.stores.archive import open_archive
try:
    with open_archive(Path(sys.argv[1])):
        pass
except Exception as error:
    print(type(error).__name__, error)
"""
    command = [*WITHOUT_POWERS, sys.executable, "-c", code, journals]
    for closed in (journals, journals.parent):
        closed.chmod(0)
        said = run(command, capture_output=True, text=True, check=True).stdout
        closed.chmod(0o700)
        assert said == f"StoreError {journals} cannot be read: Permission denied\n"


# --- a copy


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "owner", "copy.db"])
def test_no_copy_is_written_where_the_journal_is(archive, journals, name):
    before = (journals.stat().st_ino, journals.read_bytes())
    for target in (journals.parent / name, journals.parent / ".." / "data" / name):
        with pytest.raises(InvalidRequest, match=rf"{name} is in the data directory; write"):
            archive.back_up(target, force=True)
    assert (journals.stat().st_ino, journals.read_bytes()) == before


def test_a_copy_needs_a_name(archive, tmp_path):
    for target in (Path("/"), tmp_path / "\udcff" / "copy.db"):
        with pytest.raises(InvalidRequest, match="is no name that a copy can have"):
            archive.back_up(target, force=True)


@pytest.mark.parametrize("name", ["x" * 255, "\udcff"])
def test_a_copy_may_have_any_name_that_a_file_can_have(archive, tmp_path, name):
    archive.back_up(tmp_path / name)
    assert (tmp_path / name).stat().st_size


def test_a_copy_below_a_file_is_a_sentence(archive, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        archive.back_up(tmp_path / "file" / "copy.db")


async def test_a_backup_is_made_while_runs_go_on_and_can_be_put_in_place(tmp_path):
    copy = tmp_path / "restored" / "journal.db"
    copy.parent.mkdir(mode=0o700)
    async with open_app(data=tmp_path / "data", work=False) as app:
        run_id = await app.runs.accept(app.prepare("hi", approval="deny"))
        with open_archive(tmp_path / "data" / "journal.db") as archive:
            archive.back_up(copy)
        await app.runs.accept(app.prepare("later"))
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert list(copy.parent.iterdir()) == [copy]
    with open_archive(copy) as archive:
        assert archive.ids() == [run_id]
        assert archive.verify(run_id) == 1
    async with open_app(data=copy.parent, models={"demo": ScriptedModel(["Hi"])}) as app:
        [_ async for _ in app.runs.follow(run_id)]
        assert (await app.runs.state(run_id)).status.final


def test_a_backup_replaces_nothing_unless_told_to(archive, tmp_path):
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(InvalidRequest, match=r"copy.db is there already; --force replaces it"):
        archive.back_up(target)
    assert target.read_text() == "precious"
    archive.back_up(target, force=True)
    with open_archive(target) as copy:
        assert copy.count() == 2


def test_a_backup_that_cannot_be_written_leaves_nothing(archive, tmp_path):
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        archive.back_up(tmp_path / "nowhere" / "copy.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        archive.back_up(tmp_path / "folder", force=True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_backup_that_does_not_fit_leaves_nothing(archive, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(StoreError, match=r"copy.db cannot be written: "):
            archive.back_up(tmp_path / "copy.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_there_is_nothing_to_back_up_before_there_is_a_file(tmp_path):
    told = pytest.raises(StoreError, match="there is no journal to back up yet")
    with open_archive(tmp_path / "journal.db") as archive, told:
        archive.back_up(tmp_path / "copy.db")


# --- conversations that came with a run


@pytest.fixture
def talked(tmp_path):
    """A run with a conversation of three messages, and a picture in the first."""
    picture = b"a picture"
    shown = Image(blob=BlobRef(sha256(picture).hexdigest(), len(picture)))
    said = [UserMessage(parts=(shown,)), *(UserMessage(parts=(Text(w),)) for w in ("a", "b"))]
    links = link_messages(said)
    head = BlobRef(links[-1].name, len(links[-1].body))
    path = tmp_path / "talked" / "journal.db"

    async def talk():
        async with open_sqlite(path) as store:
            first = replace(ACCEPTED, history=(head,))
            await store.accept("run_1", first, blobs={shown.blob.sha256: picture}, history=links)

    anyio.run(talk)
    return path


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("update link set body = x'00' where key = 1", "is not what it was"),
        ("update link set body = 'text' where key = 2", "is gone"),
        ("update link set before = null where key = 2", "is gone, or nobody keeps it"),
        ("update link set before = null where key = 3", "is gone, or nobody keeps it"),
        ("delete from link where key = 3", "is gone, or nobody keeps it"),
        ("delete from link where key = 1", "is gone, or nobody keeps it"),
        ("delete from link_use", "is gone, or nobody keeps it"),
        ("delete from link_blob", "is gone, or nobody keeps it"),
        ("delete from blob", "is gone"),
    ],
)
def test_damage_to_a_conversation_is_found(talked, statement, what):
    with open_archive(talked) as archive:
        assert archive.verify("run_1") == 1
        assert len(list(archive.blobs("run_1"))) == 4
    connection = apsw.Connection(str(talked))
    connection.execute(statement)
    connection.close()
    with open_archive(talked) as archive, pytest.raises(JournalDamaged, match=f"blob .* {what}"):
        archive.verify("run_1")


def test_a_file_that_nobody_has_written_to_since_is_read_as_it_lies(tmp_path):
    path = tmp_path / "journal.db"
    db = apsw.Connection(str(path))
    for script in scripts()[:3]:
        db.execute(script)
    db.pragma("user_version", 3)
    db.pragma("application_id", APPLICATION)
    db.execute("insert into run (id, place, accepted_at) values ('run_1', 'ready', 1.0)")
    whole = msgspec.json.encode((UserMessage(parts=(Text("hi"),)),))
    name = sha256(whole).hexdigest()
    body = encode(replace(ACCEPTED, history=(BlobRef(name, len(whole)),)))
    db.execute("insert into blob values (?, ?)", (name, whole))
    db.execute("insert into blob_use values (?, 1)", (name,))
    insert = "insert into event values (1, ?, 1.0, ?, null, ?)"
    sum = link(b"", 1, 1.0, body)
    db.execute(insert, (1, body, sum))
    db.execute(insert, (2, encode(STARTED), link(sum, 2, 1.0, encode(STARTED))))
    db.close()
    with open_archive(path) as archive:
        assert archive.verify("run_1") == archive.length("run_1") == 2
        assert [one.event for one in archive.events("run_1", after=1)] == [STARTED]
        assert archive.entry("run_1").last.event == STARTED
        assert list(archive.blobs("run_1")) == [(name, whole)]
        lines = list(export(archive, "run_1"))
    open_writer(path).close()
    with open_archive(path) as archive:
        assert list(export(archive, "run_1")) == lines


def test_a_run_that_was_deleted_is_found_by_nobody_and_verified_all_the_same(journals, spoil):
    spoil("update run set deleted_at = 1.0 where id = ?", LIVE)
    with open_archive(journals) as archive:
        assert (archive.count(), archive.newest(), archive.unfinished()) == (1, [ENDED], [])
        assert (archive.ids(), archive.ids(deleted=True)) == ([ENDED], [ENDED, LIVE])
        assert archive.find("aa") == ENDED
        for word in (LIVE, "aa22", "aa2"):
            with pytest.raises(NotFound):
                archive.find(word)
        # What is told of its session is read by its id.
        assert archive.verify(LIVE) == len(list(archive.events(LIVE)))


async def test_nor_is_one_whose_session_was_deleted(tmp_path):
    path = tmp_path / "journal.db"
    async with open_sqlite(path) as store:
        await store.accept("run_aa", ACCEPTED)
        await store.accept("run_bb", replace(ACCEPTED, session_id="ses_1"))
        await store.note("ses_1", SessionDeleted())
    with open_archive(path) as archive:
        assert archive.count() == 1
        assert archive.newest() == archive.unfinished() == archive.ids() == ["run_aa"]
        assert archive.ids(deleted=True) == ["run_aa", "run_bb"]
        with pytest.raises(NotFound):
            archive.find("bb")
        assert archive.verify("run_bb") == 2
    async with open_sqlite(path) as store:
        await store.note("ses_1", SessionRestored())
    with open_archive(path) as archive:
        assert (archive.count(), archive.find("bb")) == (2, "run_bb")


def test_in_a_file_of_a_version_that_deleted_nothing_all_is_found(tmp_path):
    path = tmp_path / "journal.db"
    db = apsw.Connection(str(path))
    for script in scripts()[:4]:
        db.execute(script)
    db.pragma("user_version", 4)
    db.pragma("application_id", APPLICATION)
    db.execute("insert into run (id, place, accepted_at) values ('run_1', 'ready', 1.0)")
    db.close()
    for _ in range(2):
        with open_archive(path) as archive:
            assert (archive.count(), archive.newest(), archive.find("1")) == (1, ["run_1"], "run_1")
            assert archive.unfinished() == archive.ids() == ["run_1"]
        open_writer(path).close()
