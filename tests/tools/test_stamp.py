import os
import socket
import stat
from pathlib import Path

import pytest

from holdfast.tools.stamp import Stamp, dress, harmless, kind_of, look, same_as, settle


def test_a_stamp_tells_one_state_of_a_file_from_another(tmp_path):
    file = tmp_path / "file"
    file.write_text("a")
    before = Stamp.of(file.stat())
    assert Stamp.of(file.stat()) == before
    file.write_text("ab")
    assert Stamp.of(file.stat()) != before
    assert (before.inode, before.device) == (file.stat().st_ino, file.stat().st_dev)


def test_a_name_is_looked_at_and_no_link_followed(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert look(folder, "none") is None
        assert stat.S_ISLNK(look(folder, "link").st_mode)
        settle(folder)
    finally:
        os.close(folder)


def test_a_file_is_known_by_whatever_name(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text("")
    os.link(tmp_path / "one", tmp_path / "other")
    ours = [tmp_path / "none", tmp_path / "one"]
    assert same_as((tmp_path / "other").stat(), ours)
    assert not same_as((tmp_path / "two").stat(), ours)


def test_harmless_is_what_is_ours_and_open_to_all(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o644)
    assert harmless((tmp_path / "file").stat())
    (tmp_path / "file").chmod(0o640)
    assert not harmless((tmp_path / "file").stat())


def test_what_is_neither_file_nor_folder_has_a_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert kind_of((tmp_path / "pipe").stat().st_mode) == "a pipe"
    assert kind_of(Path(os.devnull).stat().st_mode) == "a device"
    assert kind_of(stat.S_IFBLK) == "a device"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert kind_of(os.fstat(ours.fileno()).st_mode) == "a socket"
    assert kind_of(0) == "something else"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o4755])
def test_a_new_file_gets_the_permissions_of_the_old_and_no_special_ones(tmp_path, mode):
    (tmp_path / "old").write_text("")
    (tmp_path / "old").chmod(mode)
    with (tmp_path / "new").open("w") as new:
        dress(new.fileno(), None)
        dress(new.fileno(), (tmp_path / "old").stat())
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode & 0o777
