import struct
from errno import ENOSYS, EPERM

import pytest

from holdfast.tools.seccomp import NEWEST, REFUSED, YIELDING, seccomp_filter

X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOWED, KILLED = 0x7FFF0000, 0x80000000
REFUSAL, ABSENCE = 0x00050000 | EPERM, 0x00050000 | ENOSYS

machines = pytest.mark.parametrize(("machine", "arch"), [("x86_64", X86), ("aarch64", ARM)])
CALLS = {
    "x86_64": {"clone": 56, "ioctl": 16, "socket": 41, "socketpair": 53, "read": 0},
    "aarch64": {"clone": 220, "ioctl": 29, "socket": 198, "socketpair": 199, "read": 63},
}
SETPRIORITY = {"x86_64": 141, "aarch64": 140}

#: By their numbers in the kernel's own tables, and where the mode is; then those that may make a file.
MODES = {
    "x86_64": {90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2},
    "aarch64": {52: 1, 53: 2, 452: 2, 33: 2},
}
OPENED = {"x86_64": {2: 1, 257: 2}, "aarch64": {56: 2}}

ALWAYS_REFUSED = """
    ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp io_uring_setup io_uring_enter
    io_uring_register bpf perf_event_open userfaultfd add_key request_key keyctl mount umount2
    pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr
    open_by_handle_at fanotify_init unshare setns kexec_load kexec_file_load init_module finit_module
    delete_module reboot swapon swapoff acct quotactl quotactl_fd syslog settimeofday clock_settime
    iopl ioperm vhangup
"""


def verdict(machine, number, *arguments, arch):
    """What the filter makes of a call, by doing what the kernel does with it."""
    rules = list(struct.iter_unpack("=HBBI", seccomp_filter(machine)))
    data = struct.pack("=IIQ6Q", number, arch, 0, *(*arguments, *(0,) * (6 - len(arguments))))
    at, value = 0, 0
    while True:
        code, yes, no, k = rules[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, k)
            case 0x54:
                value &= k
            case 0x15:
                at += yes if value == k else no
            case 0x35:
                at += yes if value >= k else no
            case 0x45:
                at += yes if value & k else no
            case 0x06:
                return k


@machines
def test_what_is_listed_is_refused(machine, arch):
    column = list(CALLS).index(machine)
    assert set(ALWAYS_REFUSED.split()) <= REFUSED.keys()
    for name, numbers in REFUSED.items():
        if numbers[column] is not None:
            assert verdict(machine, numbers[column], arch=arch) == REFUSAL, name


@machines
def test_an_ordinary_call_is_allowed(machine, arch):
    assert verdict(machine, CALLS[machine]["read"], arch=arch) == ALLOWED


@machines
def test_a_program_of_another_architecture_is_killed(machine, arch):
    assert verdict(machine, 3, arch=I386) == KILLED
    assert verdict(machine, 0x40000000 | 3, arch=arch) == KILLED


@machines
def test_a_call_that_was_not_judged_is_not_there(machine, arch):
    assert verdict(machine, NEWEST + 1, arch=arch) == ABSENCE
    assert verdict(machine, NEWEST, arch=arch) == ALLOWED
    assert verdict(machine, 435, arch=arch) == ABSENCE, "clone3"
    assert verdict(machine, 437, arch=arch) == ABSENCE, "openat2"


@machines
def test_a_clone_may_make_processes_and_threads_and_no_namespaces(machine, arch):
    clone = CALLS[machine]["clone"]
    assert verdict(machine, clone, 17, arch=arch) == ALLOWED
    assert verdict(machine, clone, 0x3D0F00, arch=arch) == ALLOWED
    for flag in (0x20000, *(1 << bit for bit in range(25, 31))):
        assert verdict(machine, clone, flag | 17, arch=arch) == REFUSAL, hex(flag)
        assert verdict(machine, clone, 1 << 40 | flag, arch=arch) == REFUSAL


@machines
def test_the_first_process_is_not_made_to_yield_and_others_may_be(machine, arch):
    column = list(CALLS).index(machine)
    assert len(YIELDING) == 4
    for name, numbers in YIELDING.items():
        assert verdict(machine, numbers[column], 1, arch=arch) == REFUSAL, name
        assert verdict(machine, numbers[column], 7 << 32 | 1, arch=arch) == REFUSAL, name
        for other in (0, 2, 4711):
            assert verdict(machine, numbers[column], other, arch=arch) == ALLOWED, name


@machines
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o755, ALLOWED),
        (0o1777, ALLOWED),
        (0o100644, ALLOWED),
        (0o4755, REFUSAL),
        (0o2755, REFUSAL),
        (1 << 32 | 0o104755, REFUSAL),
    ],
)
def test_no_file_is_given_the_rights_of_its_owner_or_group(machine, arch, mode, expected):
    create, temporary = 0o101, 0o20200001
    for number, at in MODES[machine].items():
        given = (*(0,) * at, mode)
        assert verdict(machine, number, *given, arch=arch) == expected, number
    for number, at in OPENED[machine].items():
        before = (0,) * at
        for flags in (create, temporary):
            assert verdict(machine, number, *before, flags, mode, arch=arch) == expected, number
        assert verdict(machine, number, *before, 1, mode, arch=arch) == ALLOWED, number


@machines
def test_of_priorities_only_those_of_single_others_are_set(machine, arch):
    setpriority, process = SETPRIORITY[machine], 0
    assert verdict(machine, setpriority, process, 0, 19, arch=arch) == ALLOWED
    assert verdict(machine, setpriority, process, 2, 19, arch=arch) == ALLOWED
    assert verdict(machine, setpriority, process, 1, 19, arch=arch) == REFUSAL
    for many in (1, 2):
        assert verdict(machine, setpriority, many, 0, 19, arch=arch) == REFUSAL


@machines
def test_nothing_can_be_typed_into_a_terminal(machine, arch):
    ioctl = CALLS[machine]["ioctl"]
    assert verdict(machine, ioctl, 0, 0x5412, arch=arch) == REFUSAL
    assert verdict(machine, ioctl, 0, 0x541C, arch=arch) == REFUSAL
    assert verdict(machine, ioctl, 0, 1 << 32 | 0x5412, arch=arch) == REFUSAL
    assert verdict(machine, ioctl, 0, 0x5401, arch=arch) == ALLOWED


@machines
@pytest.mark.parametrize(
    ("family", "protocol", "expected"),
    [
        (2, 0, ALLOWED),
        (10, 0, ALLOWED),
        (16, 0, ALLOWED),
        (16, 9, REFUSAL),
        (1, 0, REFUSAL),
        (17, 0, REFUSAL),
        (38, 0, REFUSAL),
        (40, 0, REFUSAL),
    ],
    ids=["inet", "inet6", "route", "audit", "unix", "packet", "alg", "vsock"],
)
def test_only_sockets_of_the_internet_are_made(machine, arch, family, protocol, expected):
    number = CALLS[machine]["socket"]
    assert verdict(machine, number, family, 1, protocol, arch=arch) == expected


@machines
def test_a_pair_is_allowed_if_it_cannot_be_turned_to_another_address(machine, arch):
    pair = CALLS[machine]["socketpair"]
    close_on_exec = 0o2000000
    assert verdict(machine, pair, 1, 1 | close_on_exec, arch=arch) == ALLOWED
    assert verdict(machine, pair, 1, 5, arch=arch) == ALLOWED
    assert verdict(machine, pair, 1, 2, arch=arch) == REFUSAL
    assert verdict(machine, pair, 1, 3, arch=arch) == REFUSAL
    assert verdict(machine, pair, 30, 1, arch=arch) == REFUSAL


def test_an_unknown_machine_has_no_filter():
    assert seccomp_filter("riscv64") is None
