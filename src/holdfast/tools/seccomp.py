"""Which calls to the kernel a jailed program may make, as a filter for seccomp.

The filter is put together by hand: libseccomp is a system library that no wheel brings along. All
is allowed but what is listed, since programs use nearly everything, and a jail without capabilities
already refuses most of what is dangerous. Listed is what has led out of jails before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from errno import ENOSYS, EPERM
from functools import cache

from msgspec import Struct

#: Numbers of refused calls, on x86_64 and on aarch64; None where there is no such call.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # reading or steering other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # wide doors into the kernel
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # another view of the file system, or a way around the one there is
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # other namespaces; clone is looked at below
    "unshare": (272, 97),
    "setns": (308, 268),
    # the machine itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
}

#: Numbers of calls that make a process, whose number is their first argument, yield to others.
YIELDING = {
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
}

#: Numbers of calls that give a file its mode, and the place of the mode among their arguments.
GIVING_A_MODE = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "creat": ((85, None), 1),
    "mknod": ((133, None), 1),
    "mknodat": ((259, 33), 2),
}
#: Numbers of calls that give one only where they make a file, which their flags say; and the place
#: of the flags. The mode comes after them, and is anything at all where no file is made.
OPENING = {"open": ((2, None), 1), "openat": ((257, 56), 2)}

#: The newest call that was judged. Newer ones are not there, as on an older kernel.
NEWEST = 469


class _Machine(Struct, frozen=True):
    """A kind of processor: its name for seccomp, and the calls whose arguments matter."""

    audit: int
    column: int
    clone: int
    ioctl: int
    setpriority: int
    socket: int
    socketpair: int


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 0, clone=56, ioctl=16, setpriority=141, socket=41, socketpair=53
    ),
    "aarch64": _Machine(
        0xC00000B7, 1, clone=220, ioctl=29, setpriority=140, socket=198, socketpair=199
    ),
}
_CLONE3, _OPENAT2 = 435, 437
_X32 = 0x40000000

_CLONE_NEW = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x20000
#: Whoever runs such a file outside has the rights of its owner or group, and those are ours.
_SET_ID = 0o6000
_CREATE = 0o100 | 0o20000000
#: They put characters into a terminal as if somebody had typed them.
_TYPING = (0x5412, 0x541C)
#: The first process of the jail, by whose end all others die; and what is one process, and no group.
_FIRST, _ONE_PROCESS = 1, 0
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5

# Where things stand in what the filter is given.
_NUMBER, _ARCHITECTURE = 0, 4

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000 | EPERM
_ABSENT = 0x00050000 | ENOSYS

_Line = tuple[int, int, int, int]


@cache
def seccomp_filter(machine: str) -> bytes | None:
    """The filter as bwrap takes it, or None for a machine whose numbers are not known here."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    return b"".join(struct.pack("=HBBI", *line) for line in _lines(known))


def _lines(machine: _Machine) -> Iterator[_Line]:
    # A program of another architecture calls by other numbers, so none of them may run.
    yield _load(_ARCHITECTURE)
    yield (_EQUAL, 1, 0, machine.audit)
    yield _end(_KILL)
    yield _load(_NUMBER)
    yield from _if(_AT_LEAST, _X32, _end(_KILL))
    yield from _if(_AT_LEAST, NEWEST + 1, _end(_ABSENT))
    # What they are told lies in memory, where a filter cannot look; without them programs use
    # clone and openat.
    yield from _if(_EQUAL, _CLONE3, _end(_ABSENT))
    yield from _if(_EQUAL, _OPENAT2, _end(_ABSENT))
    for numbers in REFUSED.values():
        number = numbers[machine.column]
        if number is not None:
            yield from _if(_EQUAL, number, _end(_REFUSE))
    yield from _if(
        _EQUAL,
        machine.clone,
        _argument(0),
        *_if(_ANY_OF, _CLONE_NEW, _end(_REFUSE)),
        _end(_ALLOW),
    )
    yield from _if(
        _EQUAL,
        machine.ioctl,
        _argument(1),
        *(line for request in _TYPING for line in _if(_EQUAL, request, _end(_REFUSE))),
        _end(_ALLOW),
    )
    yield from _about_the_first(machine)
    yield from _about_modes(machine)
    # No sockets of the host's services, whatever path they have; and of netlink only what
    # looking up an address needs.
    yield from _if(
        _EQUAL,
        machine.socket,
        _argument(0),
        *_if(_EQUAL, _INET, _end(_ALLOW)),
        *_if(_EQUAL, _INET6, _end(_ALLOW)),
        *_if(_EQUAL, _NETLINK, _argument(2), *_if(_EQUAL, 0, _end(_ALLOW))),
        _end(_REFUSE),
    )
    # Many programs talk to their own children by a pair. A pair of datagram sockets could be
    # turned to another address; the others cannot.
    yield from _if(
        _EQUAL,
        machine.socketpair,
        _argument(0),
        *_if(
            _EQUAL,
            _UNIX,
            _argument(1),
            (_AND, 0, 0, 0xF),
            *_if(_EQUAL, _STREAM, _end(_ALLOW)),
            *_if(_EQUAL, _SEQPACKET, _end(_ALLOW)),
        ),
        _end(_REFUSE),
    )
    yield _end(_ALLOW)


def _about_the_first(machine: _Machine) -> Iterator[_Line]:
    """Nobody makes it yield to all others: it would be slow to die, and they would outlive us."""
    unless_it = (*_if(_EQUAL, _FIRST, _end(_REFUSE)), _end(_ALLOW))
    for numbers in YIELDING.values():
        yield from _if(_EQUAL, numbers[machine.column], _argument(0), *unless_it)
    # It is of the user and, with the shell, of a group.
    one = _if(_EQUAL, _ONE_PROCESS, _argument(1), *unless_it)
    yield from _if(_EQUAL, machine.setpriority, _argument(0), *one, _end(_REFUSE))


def _about_modes(machine: _Machine) -> Iterator[_Line]:
    """No program is made that gives others our rights. A filter does not see whether the group's
    bit is for a folder, where it would do no harm; new folders inherit it all the same.
    """
    unless_set = (*_if(_ANY_OF, _SET_ID, _end(_REFUSE)), _end(_ALLOW))
    for numbers, mode in GIVING_A_MODE.values():
        number = numbers[machine.column]
        if number is not None:
            yield from _if(_EQUAL, number, _argument(mode), *unless_set)
    for numbers, flags in OPENING.values():
        number = numbers[machine.column]
        if number is not None:
            made = _if(_ANY_OF, _CREATE, _argument(flags + 1), *unless_set)
            yield from _if(_EQUAL, number, _argument(flags), *made, _end(_ALLOW))


def _load(offset: int) -> _Line:
    return (_LOAD, 0, 0, offset)


def _argument(index: int) -> _Line:
    """The lower half of it, which is all that the kernel looks at in these calls."""
    return _load(16 + 8 * index)


def _if(comparison: int, value: int, *then: _Line) -> Sequence[_Line]:
    return ((comparison, 0, len(then), value), *then)


def _end(verdict: int) -> _Line:
    return (_RETURN, 0, 0, verdict)
