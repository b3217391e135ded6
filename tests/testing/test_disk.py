import errno
import signal
import subprocess
import sys
from math import inf

import apsw
import pytest

from holdfast.testing.disk import Disk, Operation

WRITTEN = """
import apsw, sys
from holdfast.testing.disk import Disk
disk = Disk()
connection = apsw.Connection(sys.argv[1], vfs=disk.name)
connection.pragma("journal_mode", "wal")
connection.execute("create table word (word)")
disk.break_at(int(sys.argv[2]), sys.argv[3], on={sys.argv[4]})
connection.execute("insert into word values (zeroblob(2000))")
"""


@pytest.fixture
def disk():
    with Disk() as disk:
        yield disk


@pytest.fixture
def database(disk, tmp_path):
    """A table of words on that disk, with a log of its own."""
    connection = apsw.Connection(str(tmp_path / "words.db"), vfs=disk.name)
    connection.pragma("journal_mode", "wal")
    connection.execute("create table word (word)")
    yield connection
    disk.mend()
    connection.close()


def write(database, word="hi"):
    database.execute("insert into word values (?)", (word,))


def test_all_that_is_asked_of_it_is_counted(disk, database):
    before = disk.counts.copy()
    write(database)
    assert disk.counts - before == {"write": 2, "sync": 1}
    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert disk.counts["truncate"] and not disk.broke


def test_a_second_connection_reads_beside_it_without_knowing_of_it(disk, database, tmp_path):
    reader = apsw.Connection(str(tmp_path / "words.db"), flags=apsw.SQLITE_OPEN_READONLY)
    for count in (1, 2):
        write(database)
        assert reader.execute("select count(*) from word").get == count
    reader.close()


def test_what_was_done_is_remembered_in_order_with_what_was_said_between(disk, database):
    disk.log.clear()
    disk.mark("before")
    write(database)
    disk.mark(("after", 1))
    kinds = [(one.kind, one.file, one.mark) for one in disk.log]
    log = "words.db-wal"
    assert kinds == [
        ("mark", "", "before"),
        ("write", log, None),
        ("write", log, None),
        ("sync", log, None),
        ("mark", "", ("after", 1)),
    ]
    assert disk.log[2].offset == disk.log[1].offset + len(disk.log[1].data)


def test_a_new_file_is_in_its_folder_once_a_log_is_synced_and_a_deleted_one_is_not(
    disk, database, tmp_path
):
    database.close()
    folder = [(one.kind, one.file) for one in disk.log if one.kind in ("create", "delete")]
    assert folder == [
        ("create", "words.db"),
        ("create", "words.db-journal"),
        ("delete", "words.db-journal"),
        ("create", "words.db-wal"),
        ("delete", "words.db-wal"),
    ]
    first = disk.log.index(Operation("sync", "words.db-wal"))
    assert disk.log[first + 1] == Operation("sync")


def test_what_was_in_a_file_before_anyone_looked_is_found(tmp_path):
    path = tmp_path / "old.db"
    apsw.Connection(str(path)).execute("create table word (word)").connection.close()
    with Disk() as disk:
        connection = apsw.Connection(str(path), vfs=disk.name)
        connection.pragma("user_version")
        connection.close()
        again = apsw.Connection(str(path), vfs=disk.name)
        again.pragma("user_version")
        again.close()
        assert disk.log == [Operation("found", "old.db", data=path.read_bytes())]


def test_a_rollback_journal_is_deleted_for_good(disk, tmp_path):
    connection = apsw.Connection(str(tmp_path / "words.db"), vfs=disk.name)
    connection.pragma("synchronous", "extra")
    connection.execute("create table word (word)")
    connection.close()
    deleted = disk.log.index(Operation("delete", "words.db-journal"))
    assert disk.log[deleted + 1] == Operation("sync")


def test_a_write_and_a_sync_fail_at_the_number_they_are_told(disk, database):
    disk.break_at(2, "eio", on={"write"})
    with pytest.raises(apsw.IOError) as failed:
        write(database)
    assert failed.value.extendedresult == apsw.SQLITE_IOERR_WRITE
    assert database.system_errno == errno.EIO
    disk.break_at(1, "eio", on={"sync"})
    with pytest.raises(apsw.IOError) as failed:
        write(database)
    assert failed.value.extendedresult == apsw.SQLITE_IOERR_FSYNC
    write(database)
    assert disk.broke == 2
    assert database.execute("select count(*) from word").get == 1


def test_truncating_and_deleting_fail_too(disk, database, tmp_path):
    write(database)
    disk.break_for_good("eio", on={"truncate"})
    with pytest.raises(apsw.IOError, match="truncate"):
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    other = apsw.Connection(str(tmp_path / "other.db"), vfs=disk.name)
    disk.break_for_good("eio", on={"delete"})
    with pytest.raises(apsw.IOError, match="delete"):
        other.execute("create table word (word)")
    other.close()


def test_a_full_disk_takes_half_a_write_and_has_room_again_when_it_is_mended(disk, database):
    disk.log.clear()
    disk.break_at(2, "full", times=inf)
    for _ in range(3):
        with pytest.raises(apsw.FullError):
            write(database, "x" * 100)
    assert len(disk.log[1].data) == 2048
    assert disk.broke == 3
    disk.mend()
    write(database)
    assert database.execute("select count(*) from word").get == 1


def test_a_sync_may_find_the_disk_full(disk, database):
    disk.break_at(1, "full", on={"sync"})
    with pytest.raises(apsw.IOError) as failed:
        write(database)
    assert failed.value.extendedresult == apsw.SQLITE_IOERR_FSYNC
    assert database.system_errno == errno.ENOSPC


def test_a_slow_disk_takes_its_time_for_each_sync(disk, database):
    naps = []
    disk.sleep = naps.append
    disk.slow(0.2)
    write(database)
    disk.mend()
    write(database)
    assert naps == [0.2]


@pytest.mark.parametrize(
    ("number", "how", "kind", "size"),
    [
        (1, "kill", "write", 0),
        (2, "kill", "write", 24),
        (2, "tear", "write", 24 + 2048),
        (1, "kill", "sync", 24 + 4096),
        (1, "tear", "sync", 24 + 4096),
    ],
)
def test_a_process_is_gone_at_the_number_it_is_told(tmp_path, number, how, kind, size):
    arguments = [str(tmp_path / "words.db"), str(number), how, kind]
    done = subprocess.run([sys.executable, "-c", WRITTEN, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    log = (tmp_path / "words.db-wal").read_bytes()
    # The header, and two pages for the table.
    assert len(log) == 32 + 2 * (24 + 4096) + size
