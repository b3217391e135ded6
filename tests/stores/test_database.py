import resource
import shutil
import signal
import stat
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from holdfast.errors import FileDamaged, SchemaTooNew, StoreError, StoreFull
from holdfast.stores.database import (
    APPLICATION,
    WRITER,
    file_system,
    grant,
    make_folder,
    migrate,
    open_reader,
    open_writer,
    refuse_network,
    scripts,
)
from holdfast.testing.disk import Disk

#: The version after this one.
NEXT = len(scripts()) + 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "journal.db"


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_a_new_file_is_its_owner_s_alone(path):
    open_writer(path).close()
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)


def test_the_log_s_files_are_their_owner_s_alone_too(path):
    writer = open_writer(path)
    writer.execute("insert into blob (sha256, body) values ('a', x'00')")
    assert mode(f"{path}-wal") == 0o600
    writer.close()


def test_a_commit_is_synced_and_nothing_is_copied_behind_our_back(path):
    writer = open_writer(path)
    got = {name: writer.pragma(name) for name in WRITER}
    assert got["journal_mode"] == "wal"
    assert got["synchronous"] == 2
    assert got["wal_autocheckpoint"] == 0
    writer.close()


def test_a_setting_that_is_not_granted_is_an_error(path):
    writer = open_writer(path)
    with pytest.raises(StoreError, match="cell_size_check is 1 there, not 7"):
        grant(writer, {"cell_size_check": 7}, path)
    writer.close()


def test_a_reader_reads_beside_the_writer_and_cannot_write(path):
    writer = open_writer(path)
    writer.execute("insert into blob (sha256, body) values ('a', x'00')")
    reader = open_reader(path)
    assert reader.execute("select count(*) from blob").get == 1
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("delete from blob")
    reader.close()
    writer.close()


def test_a_reader_reads_when_nobody_writes(path):
    open_writer(path).close()
    reader = open_reader(path)
    assert reader.execute("select count(*) from run").get == 0
    reader.close()


def test_there_is_nothing_to_read_where_there_is_no_file(path):
    with pytest.raises(StoreError, match="there is no journal at"):
        open_reader(path)


def test_a_file_that_is_no_database_is_left_as_it_is(path):
    path.parent.mkdir()
    path.write_bytes(b"my dear diary, " * 100)
    with pytest.raises(StoreError, match="is no database"):
        open_writer(path)
    assert path.read_bytes().startswith(b"my dear diary")


def test_a_database_of_something_else_is_left_as_it_is(path):
    path.parent.mkdir()
    other = apsw.Connection(str(path))
    other.execute("create table recipe (name)")
    other.close()
    with pytest.raises(StoreError, match="of something else"):
        open_writer(path)


def test_a_file_of_a_newer_version_is_refused_in_words(path):
    writer = open_writer(path)
    writer.pragma("user_version", 99)
    writer.close()
    with pytest.raises(SchemaTooNew, match="newer version of holdfast"):
        open_writer(path)


def test_opening_again_changes_nothing(path):
    writer = open_writer(path)
    writer.execute("insert into blob (sha256, body) values ('a', x'00')")
    writer.close()
    again = open_writer(path)
    assert again.pragma("application_id") == APPLICATION
    assert again.execute("select count(*) from blob").get == 1
    again.close()
    assert not list(path.parent.glob("*.before-*"))


def test_an_older_file_is_copied_and_brought_up_to_date(path):
    writer = open_writer(path)
    writer.execute("insert into blob (sha256, body) values ('a', x'00')")
    migrate(writer, path, [*scripts(), "create table more (name text);"])
    assert writer.pragma("user_version") == NEXT
    writer.execute("insert into more values ('b')")
    writer.close()
    before = path.with_name(f"journal.db.before-{NEXT}")
    copy = apsw.Connection(str(before))
    assert copy.pragma("user_version") == NEXT - 1
    assert copy.execute("select count(*) from blob").get == 1
    copy.close()
    assert mode(before) == 0o600


def test_a_file_of_the_first_version_is_brought_up_to_date_with_its_runs(path):
    path.parent.mkdir()
    old = apsw.Connection(str(path))
    old.execute(scripts()[0])
    old.pragma("application_id", APPLICATION)
    old.pragma("user_version", 1)
    old.execute("insert into run (id, place, accepted_at) values ('run_1', 'ended', 1.0)")
    old.close()
    writer = open_writer(path)
    assert writer.execute("select id, session from run").get == ("run_1", "")
    assert writer.pragma("user_version") == NEXT - 1
    writer.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(path):
    writer = open_writer(path)
    with pytest.raises(apsw.SQLError):
        migrate(writer, path, [*scripts(), "create table more (name); this is not sql;"])
    assert writer.pragma("user_version") == NEXT - 1
    assert writer.execute("select count(*) from sqlite_schema where name = 'more'").get == 0
    writer.close()


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:25 / /srv rw - nfs4 server:/srv rw
31 30 8:2 / /srv/ada/disk rw - xfs /dev/sdb rw
32 22 0:30 / /mnt/remote rw - fuse.sshfs bob@far: rw
"""


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("/var/lib/holdfast/journal.db", "ext4"),
        ("/srv/ada/journal.db", "nfs4"),
        ("/srv/ada/disk/journal.db", "xfs"),
        ("/srvx/journal.db", "ext4"),
        ("/mnt/remote/journal.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_the_innermost_mount_s(where, kind):
    assert file_system(Path(where), MOUNTS) == kind


def test_a_network_file_system_is_refused_and_a_disk_is_not():
    refuse_network(Path("/srv/ada/disk/journal.db"), MOUNTS)
    with pytest.raises(StoreError, match="is on nfs4, a network file system"):
        refuse_network(Path("/srv/ada/journal.db"), MOUNTS)


def test_a_disk_without_space_is_named_as_that_and_what_is_stored_can_be_read(path):
    open_writer(path).close()
    with Disk() as disk:
        disk.break_for_good("full", on={"write"})
        with pytest.raises(StoreFull, match=r"no space left .*new\.db; what is stored"):
            open_writer(path.with_name("new.db"), vfs=disk.name)
    reader = open_reader(path)
    assert reader.execute("select count(*) from run").get == 0
    reader.close()


@contextmanager
def not_a_byte_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def test_without_a_byte_left_what_is_stored_is_read_as_it_lies(path):
    open_writer(path).close()
    with not_a_byte_left():
        reader = open_reader(path)
        assert reader.execute("select count(*) from run").get == 0
        with pytest.raises(apsw.ReadOnlyError):
            reader.execute("delete from blob")
        reader.close()


def test_a_log_that_there_is_no_space_to_read_is_not_passed_over(path):
    writer = open_writer(path)
    writer.execute("insert into blob (sha256, body) values ('a', x'00')")
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{path}.copy{end}")
    writer.close()
    with not_a_byte_left(), pytest.raises(apsw.IOError):
        open_reader(path.with_name("journal.db.copy"))


def test_a_network_file_system_is_seen_through_a_link(tmp_path):
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "near").symlink_to(far)
    mounts = f"1 1 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {far} rw - nfs4 host:/ rw\n"
    with pytest.raises(StoreError, match="nfs4"):
        refuse_network(tmp_path / "near" / "journal.db", mounts)


def test_a_mount_with_a_blank_in_its_name_is_seen(tmp_path):
    far = str(tmp_path / "far away").replace(" ", "\\040")
    mounts = f"1 1 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {far} rw - nfs4 host:/ rw\n"
    with pytest.raises(StoreError, match="nfs4"):
        refuse_network(tmp_path / "far away" / "journal.db", mounts)


def test_folders_that_are_made_are_for_their_owner_alone(tmp_path):
    folder = tmp_path / "a" / "b" / "c"
    make_folder(folder)
    assert [mode(one) for one in (folder, folder.parent, tmp_path / "a")] == [0o700] * 3
    make_folder(folder)


@pytest.mark.parametrize("left", ["journal.db-wal", "journal.db.reserve"])
def test_nobody_begins_anew_over_what_is_left_of_a_journal(path, left):
    path.parent.mkdir()
    path.with_name(left).write_bytes(b"x")
    with pytest.raises(FileDamaged, match=f"journal.db is gone, and {left} beside it is left"):
        open_writer(path)
    assert not path.exists()
