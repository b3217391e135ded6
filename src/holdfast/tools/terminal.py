"""Commands: what is run, where, how far it reaches, and who is asked before.

A command runs in the jail unless it asks for more, and more is for a person to give. Each starts
afresh, with an environment of our making: nothing of the server's own gets in, keys least of all.
What runs unasked and without a jail gets the environment under which it was judged harmless; what a
person agreed to gets one in which it can do its work.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from shutil import which
from typing import Annotated, Any, Literal

import anyio
import msgspec
from msgspec import Meta, Struct

from holdfast.core.messages import Gate, ToolSpec
from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.tools.arguments import read_arguments, schema
from holdfast.tools.jail import Jail, jail_environment
from holdfast.tools.process import MARKER, Finished, run_process

#: Where commands are found when nobody says where.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Characters of output that are kept of one command. A model is shown fewer. They lie in memory until
#: the command ends, and are masked and written in one go, for which everybody waits.
MOST_OUTPUT = 16 * 1024 * 1024

#: Reviewed calls whose rulings are remembered.
_MOST_RULED = 8

_WANTS = {
    "jail": "",
    "network": "it wants the network",
    "host": "it wants to run outside of the jail, as you",
}

_ABOUT = (
    "Runs a command with bash and returns what it wrote and its exit code. Each command starts"
    " afresh: a changed directory or variable does not last, nothing can be typed into it, and what it"
    " leaves running in the background is ended with it. {reach}"
)
_JAILED = (
    "It runs in a jail that can write to the workspace and reaches no network. Only if it fails for"
    ' want of that, ask for more by `access`: a person then decides. "network" is the jail with'
    ' a network, "host" is no jail at all. In the jail git cannot change its settings or hooks, nor'
    ' `git init` the workspace itself: that takes "host". There are no Unix sockets in it.'
)
_FREE = "There is no jail here, so a person is asked about whatever does more than look."


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(min_length=1, max_length=65536, description="for bash -c")]
    timeout: Annotated[int, Meta(ge=1, le=3600, description="seconds until it is ended")] = 180
    workdir: Annotated[str, Meta(description="a directory, relative to the workspace")] = "."
    access: Annotated[
        Literal["jail", "network", "host"], Meta(description="how far the command may reach")
    ] = "jail"


class Terminal:
    """Runs commands in a workspace. Without a `jail`, for the reason `why`, it runs them as they are.

    `ours` are paths that no command may touch, and `kept` are some that the jail holds read-only, so
    that only a command outside of it must not. `environment` is given to every command. `tested`
    says why the jail is not to be relied on, or ""; it is asked before the first command in it.
    With "yolo" nobody is asked about what stays in the jail.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        jail: Jail | None,
        why: str = "",
        environment: Mapping[str, str] = {},
        ours: Sequence[Path] = (),
        kept: Sequence[Path] = (),
        approval: Literal["ask", "yolo"] = "ask",
        tested: Callable[[], Awaitable[str]] | None = None,
        path: str = SYSTEM_PATH,
        home: str = "",
    ) -> None:
        self.workspace = str(workspace)
        self.spec = ToolSpec(
            name="terminal",
            description=_ABOUT.format(reach=_JAILED if jail else _FREE),
            schema=schema(Arguments),
            network=True,
            # Longer than any command may take: what ends one here can show what it said.
            timeout=3700.0,
            output=30_000,
        )
        self._jail, self._why, self._approval, self._tested = jail, why, approval, tested
        self._ours, self._kept = tuple(ours), tuple(kept)
        #: Starting a process stops the event loop for a moment; many at once would for long.
        self._door = anyio.Lock()
        #: The rulings of calls that were reviewed and have not been run yet.
        self._ruled: dict[tuple[str, Path], Gate] = {}
        self._inside = jail_environment(path, extra=environment)
        self._outside = {
            "PATH": path,
            "HOME": home or _home(os.getuid()),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **environment,
        }

    def review(self, arguments: str) -> Review:
        given = read_arguments(self.spec.name, Arguments, arguments)
        directory = self._directory(given.workdir)
        review = self._review(given, directory)
        self._ruled.pop((arguments, directory), None)
        self._ruled[arguments, directory] = review.gate
        if len(self._ruled) > _MOST_RULED:
            del self._ruled[next(iter(self._ruled))]
        return review

    async def contents(self, arguments: str) -> str:
        """The files that the command names, and sums of what is in them; and what git would obey,
        where no jail holds it."""
        given = read_arguments(self.spec.name, Arguments, arguments)
        directory = self._directory(given.workdir)
        from holdfast.tools.beneath import Workspace
        from holdfast.tools.named import contents, gits, names, obeyed

        files = Workspace(Path(self.workspace), self._ours)
        place = str(directory.relative_to(files.root))
        paths = names(given.command, place)
        places = () if self._jail_for(given) else gits(given.command, place)

        def look() -> str:
            return "\n".join(filter(None, (contents(files, paths), obeyed(files, places))))

        return await files.reading_aside(look, tool=self.spec.name, left=_unheard)

    async def run(self, use: ToolUse) -> str:
        given = read_arguments(self.spec.name, Arguments, use.arguments)
        directory = self._directory(given.workdir)
        gate = self._ruling(use.arguments, given, directory)
        if gate == "refuse":
            raise ToolError("not run: this command is refused")
        heard = _Heard(use.progress)
        jail = self._jail_for(given)
        if jail:
            await self._test()
        began = anyio.current_time()
        with anyio.move_on_after(given.timeout):
            run = _bare if jail is None else partial(jail.run, network=given.access == "network")
            finished = await run(
                given.command,
                cwd=directory,
                env=self._environment(given, gate),
                hear=heard.hear,
                most=MOST_OUTPUT,
                ended=use.ended,
                marker=use.effect_id,
                door=self._door,
            )
            return _told(finished, anyio.current_time() - began)
        raise ToolError(
            f"[ended after {given.timeout} s, its limit; it may have had effects]",
            output=heard.words(),
        )

    def _ruling(self, arguments: str, given: Arguments, directory: Path) -> Gate:
        """As it was at the last review, which was right before this: to judge takes a while."""
        before = self._ruled.pop((arguments, directory), None)
        if before is not None and (self._jail_for(given) or before != "auto"):
            return before
        # What is held by nothing but the ruling is judged by how things are now.
        now = self._review(given, directory).gate
        if before == "auto" and now == "ask":
            raise ToolError("not run: it would not be what was looked at before; ask for it again")
        return now

    def _directory(self, workdir: str) -> Path:
        """Where it stands once every link is followed, so that no link leads out."""
        workspace = Path(self.workspace)
        try:
            root, directory = workspace.resolve(), (workspace / workdir).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"there is no directory {workdir!r} in the workspace") from error
        if not directory.is_relative_to(root):
            raise ToolError(f"{workdir!r} leads out of the workspace")
        if not directory.is_dir():
            raise ToolError(f"{workdir!r} is not a directory")
        return directory

    def _review(self, given: Arguments, directory: Path) -> Review:
        jail = self._jail_for(given)
        # Loaded when there is something to judge: a server is ready the sooner.
        from holdfast.tools.gate import judge

        ruling = judge(
            given.command,
            jailed=jail is not None,
            workspace=Path(self.workspace).resolve(),
            directory=directory,
            ours=self._ours if jail else (*self._ours, *self._kept),
            pid=os.getpid(),
            path=self._outside["PATH"],
        )
        gate = self._gate(ruling.gate, given)
        reasons = (*(self._wants(given) if gate == "ask" else ()), ruling.reason)
        return Review(
            gate=gate,
            reason="; ".join(filter(None, reasons)),
            subject=given.command,
            key=self._key(given, directory, ruling.words),
            binding=self._binding(given, directory, gate),
        )

    def _key(self, given: Arguments, directory: Path, words: Sequence[str]) -> str:
        if not words:
            return ""
        # Without a jail everything reaches as far as it would on the host.
        reach = given.access if self._jail else "host"
        # The same words mean other files in another directory.
        place = str(directory.relative_to(Path(self.workspace).resolve()))
        if place == ".":
            return f"{reach} {_json(words)}"
        # A name that is no text cannot be in a key that people read.
        return f"{reach} in {_json(place)} {_json(words)}" if place.isprintable() else ""

    def _jail_for(self, given: Arguments) -> Jail | None:
        return None if given.access == "host" else self._jail

    def _gate(self, gate: Gate, given: Arguments) -> Gate:
        if gate == "refuse":
            return gate
        if given.access != "jail":
            return "ask"
        return "auto" if self._jail and self._approval == "yolo" else gate

    def _wants(self, given: Arguments) -> Sequence[str]:
        missing = "" if self._jail else f"there is no jail: {self._why or 'none was given'}"
        return _WANTS[given.access], missing

    def _environment(self, given: Arguments, gate: Gate) -> Mapping[str, str]:
        if self._jail_for(given):
            return self._inside
        from holdfast.tools.gate import safe_environment

        return safe_environment(Path(self.workspace).resolve()) if gate == "auto" else self._outside

    def _binding(self, given: Arguments, directory: Path, gate: Gate) -> str:
        jail = self._jail_for(given)
        profile = (
            jail.profile(network=given.access == "network")
            if jail
            else "no jail: runs as you, with the network"
        )
        names = {*self._environment(given, gate), *(() if jail else (MARKER,))}
        return (
            "run by: bash -c\n"
            f"directory: {directory}\n"
            f"environment: {' '.join(sorted(names))}\n"
            f"profile: {profile}\n"
            f"timeout: {given.timeout} s"
        )

    async def _test(self) -> None:
        if self._tested is None:
            return
        if failed := await self._tested():
            raise ToolError(f"not run: {failed}")
        self._tested = None


async def _bare(command: str, **rest: Any) -> Finished:
    # The system's own: the way to programs that a command gets may lead through the workspace.
    shell = which("bash", path=SYSTEM_PATH) or "/bin/bash"
    return await run_process([shell, "-c", command], **rest)


def _unheard(words: str, going: Callable[[], bool] | None = None) -> None:
    """Before a call has started it is on no receipt."""


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class _Heard:
    """What a command says, handed on as it comes, and kept for when its time is up."""

    def __init__(self, progress: Callable[[str], Awaitable[None]]) -> None:
        self._progress = progress
        self._kept, self._left = BytesIO(), MOST_OUTPUT

    async def hear(self, words: str) -> None:
        self._kept.write(words.encode())
        self._left -= len(words)
        await self._progress(words)

    def words(self) -> str:
        said = self._kept.getvalue().decode().removesuffix("\n") or "(no output)"
        return f"{said}\n" if self._left > 0 else f"{said}\n[what came after that was not kept]\n"


def _told(finished: Finished, seconds: float) -> str:
    lines = [finished.output.removesuffix("\n") or "(no output)"]
    if finished.cut:
        lines.append(f"[{finished.cut} more characters were not kept]")
    return "\n".join([*lines, f"[exit code {finished.code}, {seconds:.1f} s]"])


def _home(user: int) -> str:
    """By the list of users, not by a variable: who starts a server may have left that as it was."""
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return "/"
