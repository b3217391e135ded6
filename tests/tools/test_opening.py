import ctypes
import errno
import os
from contextlib import closing
from functools import partial

import pytest

from holdfast.errors import ToolError
from holdfast.tools.opening import (
    FOLDER,
    LINK_MET,
    open_at_once,
    open_beneath,
    open_by_steps,
    told,
)

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Open:
    """A descriptor that is closed in the end."""

    def __init__(self, fd):
        self.fd = fd

    def close(self):
        os.close(self.fd)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder/link").symlink_to("file")
    with closing(Open(os.open(tmp_path, FOLDER))) as opened:
        yield opened.fd


ways = pytest.mark.parametrize("way", [open_at_once, open_by_steps, open_beneath])


@ways
def test_a_path_is_opened_from_the_folder_down(way, root):
    with closing(Open(way(root, ("folder", "file"), READ))) as opened:
        assert os.read(opened.fd, 100) == b"content"


@ways
def test_no_name_at_all_is_the_folder_itself(way, root):
    with closing(Open(way(root, (), FOLDER))) as opened:
        assert os.path.samestat(os.fstat(opened.fd), os.fstat(root))


@ways
@pytest.mark.parametrize("path", ["link/file", "folder/link", "link"])
@pytest.mark.parametrize("flags", [READ, FOLDER])
def test_no_link_is_followed(way, root, path, flags):
    with pytest.raises(OSError) as refusal:  # noqa: PT011 (its errno is looked at)
        way(root, path.split("/"), flags)
    assert refusal.value.errno in LINK_MET


@ways
def test_descriptors_are_not_handed_on_to_programs(way, root):
    with closing(Open(way(root, ("folder", "file"), READ))) as opened:
        assert not os.get_inheritable(opened.fd)


@ways
def test_what_is_not_there_is_said(way, root):
    with pytest.raises(FileNotFoundError):
        way(root, ("folder", "none"), READ)


def kernel_that_says(code):
    """A kernel whose only answer is this error."""

    def kernel(*arguments):
        kernel.calls += 1
        ctypes.set_errno(code)
        return -1

    kernel.calls = 0
    return kernel


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_where_the_kernel_cannot_open_at_once_it_is_done_by_steps(root, code):
    at_once = partial(open_at_once, kernel=kernel_that_says(code))
    opened = open_beneath(root, ("folder", "file"), READ, at_once=at_once)
    with closing(Open(opened)):
        assert os.read(opened, 100) == b"content"


def test_a_path_that_was_moved_meanwhile_is_tried_again_but_not_for_ever(root):
    kernel = kernel_that_says(errno.EAGAIN)
    with pytest.raises(BlockingIOError):
        open_at_once(root, ("folder",), FOLDER, kernel=kernel)
    assert 1 < kernel.calls < 1000


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), "a\\\\nb: there is no such file or folder"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_went_wrong_is_told_in_words(error, said):
    with pytest.raises(ToolError, match=f"{said}$") as refusal, told("a\nb"):
        raise error
    assert refusal.value.__cause__ is error
