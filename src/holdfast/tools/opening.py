"""Opening a path from a folder down without following a single link, or saying why not."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.errors import ToolError
from holdfast.tools.text import shown

#: Opens these names from the folder down, following no link. Raises OSError.
Opener = Callable[[int, Sequence[str], int], int]

#: How a folder on the way is opened.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: What comes of a link: ENOTDIR if a folder was wanted, EMLINK on some BSDs.
LINK_MET = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)

_OPENAT2 = 437
_BENEATH, _NO_LINKS, _NO_MAGIC = 0x08, 0x04, 0x02
_TRIES = 40
_LIBC = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_at_once(
    folder: int, parts: Sequence[str], flags: int, *, kernel: Callable[..., int] = _LIBC.syscall
) -> int:
    """By one call of the kernel. Raises OSError with ENOSYS where there is none."""
    if sys.platform != "linux":  # pragma: no cover (macOS)
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    path = os.fsencode("/".join(parts) or ".")
    how = _How(flags | os.O_NOFOLLOW, 0, _BENEATH | _NO_LINKS | _NO_MAGIC)
    code = errno.EAGAIN
    for _ in range(_TRIES):
        fd = kernel(_OPENAT2, folder, path, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        # EAGAIN: something on the way was moved meanwhile.
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code))


def open_by_steps(folder: int, parts: Sequence[str], flags: int) -> int:
    """Name by name, each in the folder that was opened before it."""
    fd = os.open(".", FOLDER, dir_fd=folder)
    if not parts:
        return fd
    try:
        for name in parts[:-1]:
            inner = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        return os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=fd)
    finally:
        os.close(fd)


def open_beneath(
    folder: int, parts: Sequence[str], flags: int, *, at_once: Opener = open_at_once
) -> int:
    """At once, or by steps where the kernel cannot or a filter of system calls forbids it."""
    try:
        return at_once(folder, parts, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return open_by_steps(folder, parts, flags)


_TROUBLE = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a name on the way is that of a file, not of a folder",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "the system does not permit it",
    errno.EROFS: "it is on a read-only file system",
    errno.ENOSPC: "the disk is full; what was there before is still there",
    errno.EDQUOT: "the disk quota is used up; what was there before is still there",
    errno.EFBIG: "the file would be larger than is allowed; what was there before is still there",
    errno.ENAMETOOLONG: "the path is too long for this file system",
    errno.ELOOP: "somebody keeps changing a link on the way",
    errno.ENXIO: "it is a socket or a device, and only files and folders are opened",
}


@contextmanager
def told(path: str) -> Iterator[None]:
    """Say what went wrong with this path in words for a model."""
    try:
        yield
    except OSError as error:
        why = _TROUBLE.get(error.errno or 0) or error.strerror or str(error)
        raise ToolError(f"{shown(path)}: {why}") from error
