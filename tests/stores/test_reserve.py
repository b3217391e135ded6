import os
import resource
import signal

from holdfast.stores.reserve import Reserve


def test_space_is_set_aside_and_given_up(tmp_path):
    reserve = Reserve(tmp_path / "reserve", size=100_000)
    assert reserve.set_aside()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 100_000
    reserve.give_up()
    reserve.give_up()
    assert not (tmp_path / "reserve").exists()


def test_space_that_is_set_aside_already_is_left_alone(tmp_path):
    path = tmp_path / "reserve"
    assert Reserve(path, size=100_000).set_aside()
    os.utime(path, (1, 1))
    assert Reserve(path, size=100_000).set_aside()
    assert path.stat().st_mtime == 1
    # One that merely says it is that large, and one that is not.
    for size in (100_000, 99_999):
        path.write_bytes(b"")
        os.truncate(path, size)
        assert Reserve(path, size=100_000).set_aside()
        assert path.stat().st_blocks * 512 >= path.stat().st_size == 100_000


def test_space_that_cannot_be_given_up_stays(tmp_path):
    (tmp_path / "reserve").mkdir()
    Reserve(tmp_path / "reserve").give_up()
    assert (tmp_path / "reserve").is_dir()


def test_it_says_when_there_is_not_that_much_and_leaves_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    reserve = Reserve(tmp_path / "reserve", size=100_000)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        assert not reserve.set_aside()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert not (tmp_path / "reserve").exists()


def test_a_folder_that_is_not_there_has_no_space(tmp_path):
    assert not Reserve(tmp_path / "nowhere" / "reserve").set_aside()
