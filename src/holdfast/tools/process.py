"""One subprocess: what it says as it says it, and nothing left of it when it is over.

It is started in the thread of the event loop, because a jail dies with the thread that started it,
and by `subprocess` rather than by the loop: under uvloop that takes half as long.
"""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from io import BytesIO
from math import inf
from pathlib import Path

import anyio
from msgspec import Struct

from holdfast.calls.tasks import task_group
from holdfast.errors import ToolError

#: The variable by which a process that left its group is still known as ours.
MARKER = "HOLDFAST_CALL"

#: Seconds between two questions to `watch`.
WATCH_EVERY = 0.2

#: Seconds for the last words of a process that has ended, if somebody else holds its pipe open.
LAST_WORDS = 0.2

#: Seconds in which what was killed has to be gone.
DYING = 1.0

#: No pipe holds more than this: past it somebody is speaking who should be dead.
_MOST_LAST_WORDS = 1024 * 1024
_PIECE = 64 * 1024
_POLL = 0.005
_PROC = Path("/proc")


class Finished(Struct, frozen=True):
    """How a process ended, and what it said.

    `code` is 128 + n if signal n ended it. `output` is what it wrote to stdout and stderr, in the
    order in which it came; `cut` counts the characters past the limit, which are not kept.
    """

    code: int
    output: str
    cut: int = 0


def _content() -> None:
    """Nothing to object to."""


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    hear: Callable[[str], Awaitable[None]],
    most: int,
    ended: Callable[[str], None],
    marker: str = "",
    watch: Callable[[], str | None] = _content,
    started: Callable[[int], Awaitable[None]] | None = None,
    whole: bool = False,
    door: anyio.Lock | None = None,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Finished:
    """Run it to its end. Whatever ends the wait ends the process and all that it started.

    `hear` is told what it says; while it takes its time, the process waits. `watch` is asked every
    now and then, and a sentence from it ends the process. `started` is told the pid before
    anything else happens. `whole` says that all it starts dies with it, as in a jail; otherwise
    those who left its group are looked for by `marker`. `ended` is told what had to be ended
    before its time. Raises ToolError if it cannot be started, or `watch` objects.

    Starting takes milliseconds of the event loop. Those who share a `door` start one after the
    other, and everybody else has a turn in between. `within` is around the start alone.
    """
    marker = "" if whole else marker
    env = {**env, MARKER: marker} if marker else env
    async with AsyncExitStack() as stack:
        async with nullcontext() if door is None else door:
            with within():
                process, output = _start(argv, cwd, env, stdin, pass_fds)
            family = _Family(process, marker, whole=whole)
            listening = _Listening(output, hear, most)
            stack.callback(os.close, output)
            stack.push_async_callback(_clear, process, family, ended)
            if started is not None:
                await started(process.pid)
        await _carry(process, family, listening, watch)
    return Finished(_code(process.returncode), listening.words, listening.cut)


async def _clear(
    process: subprocess.Popen[bytes], family: _Family, ended: Callable[[str], None]
) -> None:
    if process.returncode is None:
        with anyio.CancelScope(shield=True):
            for sentence in await family.end():
                ended(sentence)


def _start(
    argv: Sequence[str],
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: int,
    pass_fds: Sequence[int],
) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the end of the pipe at which it is heard."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    try:
        process = subprocess.Popen(  # noqa: S603 (what may be run has been decided before)
            argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=theirs,
            stderr=theirs,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        # A NUL among the words is a ValueError, and so is a character that has no bytes.
        os.close(ours)
        raise ToolError(f"{argv[0]} could not be started: {error}") from error
    finally:
        os.close(theirs)
    return process, ours


async def _carry(
    process: subprocess.Popen[bytes],
    family: _Family,
    listening: _Listening,
    watch: Callable[[], str | None],
) -> None:
    async with task_group() as tasks:
        tasks.start_soon(listening.to_the_end)
        tasks.start_soon(_object, watch)
        await _death(process.pid)
        process.wait()
        # Before its last words: whoever it left behind may hold the pipe open.
        left = family.sweep()
        listening.soon_over()
        await listening.over.wait()
        tasks.cancel_scope.cancel()
    if left:
        await listening.take(f"\n[ended with the command that left it: {', '.join(left)}]\n")


async def _object(watch: Callable[[], str | None]) -> None:
    while True:
        await anyio.sleep(WATCH_EVERY)
        if why := watch():
            raise ToolError(why)


async def _death(pid: int) -> None:
    """Wait until it has ended; it can still be waited for then."""
    if not hasattr(os, "pidfd_open"):  # pragma: no cover (macOS)
        while not _has_ended(pid):  # noqa: ASYNC110 (there is no event for it)
            await anyio.sleep(_POLL)
        return
    descriptor = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def _end_of(pid: int) -> None:
    """Like `_death`, of one that somebody else may have waited for."""
    if hasattr(os, "pidfd_open"):
        with suppress(ProcessLookupError):
            await _death(pid)
    while _alive(pid):  # noqa: ASYNC110 (where there is no event for it)
        await anyio.sleep(_POLL)


async def nobody_left(first: int, space: int) -> bool:
    """Whether all in a jail are dead but, it may be, its first process, which is about to end.

    The others die by its end, and until then it may have to yield to them for long: they can ask
    the kernel for that. So they are killed here, and waited for. `space` is their namespace, by
    which the first is known: another process may have its number by now.
    """
    with anyio.move_on_after(DYING, shield=True):
        # Whoever is without parents is a child of the first.
        while _lives_in(first, space) and (children := _children(first)) != [] and _alive(first):
            for child in children or ():
                _kill(child)
            with anyio.move_on_after(_POLL), suppress(ProcessLookupError):
                await _death(first)
        return True
    return False


def _has_ended(pid: int) -> bool:  # pragma: no cover (macOS)
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


class _Listening:
    """What a process says: heard piece by piece, kept up to a limit."""

    def __init__(self, pipe: int, hear: Callable[[str], Awaitable[None]], most: int) -> None:
        self._pipe, self._hear, self._left = pipe, hear, most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # As bytes: what comes in many small pieces would take up many times its length.
        self._kept = BytesIO()
        self._until, self._bytes_left = inf, inf
        self._wait = anyio.CancelScope()
        self.cut = 0
        self.over = anyio.Event()

    @property
    def words(self) -> str:
        return self._kept.getvalue().decode()

    async def to_the_end(self) -> None:
        while piece := await self._piece():
            self._bytes_left -= len(piece)
            await self.take(self._decoder.decode(piece))
        await self.take(self._decoder.decode(b"", final=True))
        self.over.set()

    def soon_over(self) -> None:
        """The process has ended. Hearing out what is in the pipe takes as long as it takes."""
        self._until = self._wait.deadline = anyio.current_time() + LAST_WORDS
        self._bytes_left = _MOST_LAST_WORDS

    async def take(self, words: str) -> None:
        kept = words[: self._left]
        self._left -= len(kept)
        self.cut += len(words) - len(kept)
        if kept:
            self._kept.write(kept.encode())
            await self._hear(kept)

    async def _piece(self) -> bytes:
        while self._bytes_left > 0:
            with anyio.CancelScope(deadline=self._until) as self._wait:
                await anyio.wait_readable(self._pipe)
            with suppress(BlockingIOError):
                return os.read(self._pipe, _PIECE)
            if self._wait.cancelled_caught:
                break
        return b""


class _Family:
    """A process and all that it started, as far as it can be found."""

    def __init__(self, process: subprocess.Popen[bytes], marker: str, *, whole: bool) -> None:
        self._process, self._whole = process, whole
        self._mark = f"{MARKER}={marker}".encode() if marker else b""

    async def end(self) -> list[str]:
        """Kill it all, wait for its death, and say in a sentence each what was ended and how."""
        pid = self._process.pid
        named = _named(pid)
        # Stopped first, so that it cannot start another while it is asked whom it has started.
        self._signal_group(signal.SIGSTOP)
        others = (_children(pid) or []) if self._whole else list(_group(pid))
        for other in others:
            _kill(other)
        self._signal_group(signal.SIGKILL)
        strays = self._kill_strays()
        with anyio.move_on_after(DYING) as dying:
            await _death(pid)
            self._process.wait()
            for other in (*others, *strays):
                await _end_of(other)
            # Somebody may have left the group just before it was killed.
            strays |= self._kill_strays()
        how = "killed, and not gone within a second" if dying.cancelled_caught else "killed"
        if self._whole:
            return [f"{named} and all it started: {how}"]
        return [
            f"{named} and its group: {how}",
            *(f"{stray}, which left its group: killed" for stray in strays.values()),
        ]

    def sweep(self) -> list[str]:
        """End what a process that has ended left in the background, and name it."""
        if self._whole:
            return []
        group = list(map(_named, _group(self._process.pid)))
        self._signal_group(signal.SIGKILL)
        return [*group, *self._kill_strays().values()]

    def _signal_group(self, which: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, which)

    def _kill_strays(self) -> dict[int, str]:
        """Those who left the group but still carry the mark. Again, until no new one shows up."""
        killed: dict[int, str] = {}
        while new := [pid for pid in _marked(self._mark, self._process.pid) if pid not in killed]:
            for pid in new:
                killed[pid] = _named(pid)
                _kill(pid)
        return killed


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


# --- what /proc tells; on a system without it, nothing -------------------------------------------


def _pids() -> Iterator[int]:
    with suppress(FileNotFoundError):
        for name in os.listdir(_PROC):  # noqa: PTH208 (a Path would be made for each)
            if name.isdigit():
                yield int(name)


def _marked(mark: bytes, group: int) -> Iterator[int]:
    """Processes that carry the mark and live outside the group."""
    if not mark:
        return
    for pid in _pids():
        with suppress(OSError):
            found = mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if found and os.getpgid(pid) != group and _alive(pid):
                yield pid


def _group(group: int) -> Iterator[int]:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left, as nearly always, and going through all processes is slow
    for pid in _pids():
        with suppress(OSError):
            if os.getpgid(pid) == group and _alive(pid):
                yield pid


def _children(pid: int) -> list[int] | None:
    """None if that is not told: it may be dead, and not every kernel tells."""
    with suppress(OSError):
        # A blank follows each, so what has none could be a part of one.
        whole = _read(f"{pid}/task/{pid}/children").rpartition(b" ")[0]
        return [int(one) for one in whole.split()]
    return None


def _lives_in(pid: int, space: int) -> bool:
    try:
        return (_PROC / f"{pid}/ns/pid").stat().st_ino == space
    except PermissionError:
        return True  # whoever it is, we may not know
    except OSError:
        return False


def _alive(pid: int) -> bool:
    """Whether it still runs. One that has ended and was not waited for does not."""
    with suppress(OSError):
        return _read(f"{pid}/stat").rpartition(b")")[2].split()[0] not in b"ZX"
    return False


def _read(file: str) -> bytes:
    """By plain calls, since every command waits for it; no file that is read so is longer."""
    opened = os.open(_PROC / file, os.O_RDONLY)
    try:
        return os.read(opened, _PIECE)
    finally:
        os.close(opened)


def _named(pid: int) -> str:
    with suppress(OSError):
        return f"process {pid} ({(_PROC / f'{pid}/comm').read_text().strip()})"
    return f"process {pid}"
