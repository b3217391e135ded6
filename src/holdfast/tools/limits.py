"""How much of the machine one command may use."""

from __future__ import annotations

import platform
import resource

from msgspec import Struct

_MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True):
    """What one command may use. Memory is counted for each process, as data it may write: some
    programs reserve far more address space than they ever use. A mapping that is made to be shared
    between processes is not counted. `scratch` is the size of each folder in memory."""

    processes: int = 512
    memory: int = 4096 * _MEBIBYTE
    cpu: int = 3600
    file_size: int = 10240 * _MEBIBYTE
    open_files: int = 4096
    scratch: int = 512 * _MEBIBYTE

    def bind(self, pid: int) -> None:
        """Set what the process, and whoever it starts, may use at most."""
        for what, most in (
            (resource.RLIMIT_DATA, self.memory),
            (resource.RLIMIT_CPU, self.cpu),
            (resource.RLIMIT_FSIZE, self.file_size),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_CORE, 0),
        ):
            least = _at_most(most, resource.prlimit(pid, what)[1])
            resource.prlimit(pid, what, (least, least))

    @property
    def processes_of_ours(self) -> int:
        """How many processes we can allow, who may have fewer ourselves."""
        return _at_most(self.processes, resource.getrlimit(resource.RLIMIT_NPROC)[1])


def counts_by_namespace() -> bool:
    """Before Linux 5.14 all processes of the user were counted, wherever they run."""
    major, minor = platform.release().split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 14)


def _at_most(limit: int, given: int) -> int:
    return limit if given == resource.RLIM_INFINITY else min(limit, given)
