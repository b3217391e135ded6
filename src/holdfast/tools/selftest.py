"""Whether the jail holds: attempts to get out of it, made for real.

Nothing is needed in the jail but a shell. What only the outside can tell, such as whether a file
has appeared there, is looked at outside.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ToolError
from holdfast.tools.jail import Jail, jail_environment

#: More processes than this are not needed for the attempts, and soon tried.
_FEW = 24
_PATIENCE = 5.0
_PROBE = ".holdfast-probe"
_PLACES = ("/", "/etc", "/usr", "/var")
#: The shell itself adds these to what it is given.
_SHELL_NAMES = {"PWD", "SHLVL", "_", "OLDPWD"}

#: From any folder to the root above it.
_UP = "/.." * 64

#: Each line says a name and whether the jail held. `$socket`, `$port` and the like are put before.
_ATTEMPTS = r"""
leads_out() {
    for link in /proc/[0-9]*/fd/* /proc/[0-9]*/cwd /proc/[0-9]*/root; do
        [ -e "$link$up$socket" ] && return
    done
    return 1
}
held() { if eval "$2" 2>/dev/null; then echo "held $1"; else echo "broke $1"; fi; }
for place in / /etc /usr /var "$parent"; do : > "$place/.holdfast-probe"; done 2>/dev/null
held workspace ': > .holdfast-probe && rm .holdfast-probe'
held interfaces '! grep -qv -e "|" -e "^ *lo:" /proc/net/dev'
held loopback '! (: < "/dev/tcp/127.0.0.1/$port")'
held processes '(set -- /proc/[0-9]*; [ $# -le 8 ])'
held kernel '[ ! -w /proc/sys/kernel/core_pattern ] && [ ! -w /proc/sys/kernel/hostname ]'
held namespaces '! unshare --user true && ! unshare --mount true'
held descriptors '! leads_out'
chmod u+r /dev/null /proc/self/fd/0 2>/dev/null
held names '! { mkdir -p .vscode && : > .vscode/.holdfast-probe; }'
held socket '[ ! -e "$socket" ]'
held rights ': > .holdfast-probe && ! chmod u+s .holdfast-probe'
rm -f .holdfast-probe
held filter 'grep -q "^Seccomp:.*2" /proc/self/status'
tr '\0' '\n' < "/proc/$$/environ" | while IFS== read -r name value; do echo "variable $name"; done
for name in $(compgen -e 2>/dev/null); do echo "variable $name"; done
"""


class Probe(Struct, frozen=True):
    """One attempt, whether the jail held, and what was seen."""

    name: str
    ok: bool
    detail: str


async def self_test(jail: Jail) -> Sequence[Probe]:
    """Try to get out, in two commands. An attempt that could not be made is not one that failed."""
    env = jail_environment("/usr/bin:/bin:/usr/sbin:/sbin", extra={})
    device = _changed_last()
    with _bait() as (listener, unix):
        here = {"port": str(listener.getsockname()[1]), "socket": unix, "up": _UP}
        said = await _said(jail, _script(jail, here), env)
        reached = _was_reached(listener)
    lines = [line.split(" ", 1) for line in said.splitlines() if " " in line]
    marks = {name: verdict == "held" for verdict, name in lines if verdict in ("held", "broke")}
    names = {name for verdict, name in lines if verdict == "variable"}
    return [
        *_seen(marks),
        _probe("no write outside", not _written(jail), "no file has appeared outside"),
        _probe("host's devices unchanged", device == _changed_last(), f"{os.devnull} is as it was"),
        _probe(
            "host's loopback out of reach",
            marks.get("loopback", False) and not reached,
            "a listener here got no connection",
        ),
        _probe(
            "no environment of ours",
            bool(names) and names <= {*env, *_SHELL_NAMES},
            f"it has {', '.join(sorted(names)) or 'not been seen'}",
        ),
        *(
            _probe(f"{path.name} {how}", marks.get(f"{how}-{number}", False), str(path))
            for how, number, path, _ in _paths(jail)
        ),
        await _limit(jail, env),
    ]


def _seen(marks: Mapping[str, bool]) -> Iterator[Probe]:
    for mark, name, detail in (
        ("workspace", "workspace writable", "a file was written and removed"),
        ("interfaces", "no network", "there is no interface but lo"),
        ("processes", "no processes of the host", "/proc shows those of the jail"),
        ("kernel", "no settings of the kernel", "/proc/sys cannot be written"),
        ("namespaces", "no new namespaces", "unshare is refused or not there"),
        ("descriptors", "no way out in /proc", "no open file or folder of a process leads out"),
        ("names", "protected names", ".vscode cannot be written"),
        ("socket", "no sockets of services", "a socket in a folder for temporary files is hidden"),
        ("rights", "no program with our rights", "no file can be given its owner's rights"),
        ("filter", "system calls filtered", "a filter is in force"),
    ):
        yield _probe(name, marks.get(mark, False), detail)


def _probe(name: str, ok: bool, detail: str) -> Probe:
    return Probe(name, ok, detail if ok else f"not so: {detail}")


def _script(jail: Jail, here: Mapping[str, str]) -> str:
    values = {**here, "parent": str(jail.workspace.parent)}
    lines = [f"{name}={quote(value)}" for name, value in values.items()]
    lines.append(_ATTEMPTS)
    for how, number, _, attempt in _paths(jail):
        lines.append(f"held {how}-{number} {quote(attempt)}")
    return "\n".join(lines)


def _paths(jail: Jail) -> Iterator[tuple[str, int, Path, str]]:
    """What is to be hidden or kept, and an attempt that has to succeed if it is."""
    for number, path in enumerate(jail.hidden):
        # Neither as a file nor as a folder with something in it.
        attempt = f"! cat {quote(str(path))} && ! ls -A {quote(str(path))}/ | grep -q ."
        yield "hidden", number, path, attempt
    for number, path in enumerate(jail.kept):
        # Opened to have something added, which is nothing.
        yield "kept", number, path, f"! (: >> {quote(str(path))})"


async def _said(jail: Jail, script: str, env: Mapping[str, str]) -> str:
    """What the attempts said; nothing, if they could not be made."""
    with suppress(ToolError, TimeoutError):
        with anyio.fail_after(_PATIENCE):
            done = await jail.run(
                script,
                cwd=jail.workspace,
                env=env,
                hear=_nobody,
                most=100_000,
                ended=_nothing,
            )
        return done.output
    return ""


async def _nobody(words: str) -> None:
    """It is read when it is whole."""


def _nothing(sentence: str) -> None:
    """An attempt that was cut short need not be accounted for."""


async def _limit(jail: Jail, env: Mapping[str, str]) -> Probe:
    """Start more processes than are allowed, in a jail that allows few.

    Where they cannot be counted a jail still holds what it is to hold, so that is no failure.
    """
    name = "number of processes limited"
    if not jail.counts_processes:
        return Probe(name, ok=True, detail="not limited on this system")
    small = replace(jail, limits=replace(jail.limits, processes=_FEW))
    script = f"for i in $(seq {2 * _FEW}); do sleep 5 & done; echo none was refused"
    said: list[str] = []
    with anyio.move_on_after(_PATIENCE) as enough, suppress(ToolError):

        async def hear(words: str) -> None:
            said.append(words)
            # A shell that cannot start a process says so, and may then try for a long time.
            enough.cancel()
            await anyio.lowlevel.checkpoint()

        await small.run(script, cwd=jail.workspace, env=env, hear=hear, most=1000, ended=_nothing)
    refused = "fork" in "".join(said).lower()
    return _probe(name, refused, f"{jail.limits.processes}, and a smaller limit was seen to hold")


@contextmanager
def _bait() -> Iterator[tuple[socket.socket, str]]:
    """Two listeners that nobody in a jail can reach: on loopback, and by a path."""
    with (
        TemporaryDirectory(prefix="holdfast-") as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        listener.setblocking(False)
        path = str(Path(folder, "docker.sock"))
        unix.bind(path)
        yield listener, path


def _changed_last() -> int:
    return os.stat(os.devnull).st_ctime_ns  # noqa: PTH116


def _was_reached(listener: socket.socket) -> bool:
    with suppress(BlockingIOError):
        listener.accept()[0].close()
        return True
    return False


def _written(jail: Jail) -> bool:
    """Whether a file has appeared outside; it is removed again."""
    found = False
    for place in (*_PLACES, jail.workspace.parent):
        with suppress(OSError):
            os.unlink(Path(place, _PROBE))  # noqa: PTH108 (what is not there is the rule)
            found = True
    return found
