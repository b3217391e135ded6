"""From settings to tools: what an agent can use here, and how that is contained."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio

from holdfast.config import Settings
from holdfast.core.messages import ToolSpec
from holdfast.errors import ConfigError
from holdfast.ports import Tool
from holdfast.tools.briefing import briefing

if TYPE_CHECKING:
    from holdfast.tools.jail import Jail
    from holdfast.tools.selftest import Probe

_SWITCHED_OFF = "the terminal is switched off"

#: What the model is told where commands are not contained.
_NO_JAIL = (
    "There is no jail here: a person is asked about each command that does more than read a little."
)


class Toolbox:
    """The built-in tools, made for one workspace.

    `jail` is what contains commands; where there is none, `why` says why not.
    """

    def __init__(
        self, settings: Settings, tools: Callable[[Toolbox], Sequence[Tool]], jail: Jail | str
    ) -> None:
        self._settings = settings
        self.jail = None if isinstance(jail, str) else jail
        self.why = jail if isinstance(jail, str) else ""
        self._probes: Sequence[Probe] | None = None
        self._one = anyio.Lock()
        self.tools = tools(self)

    async def test(self) -> str:
        """Have the jail prove itself, once. Returns why it is not to be used, "" if it is."""
        if self.jail is None:
            return self.why if self._settings.tools.terminal else ""
        from holdfast.tools.selftest import self_test

        async with self._one:
            # One that failed may have been disturbed, and can prove itself later.
            if self._probes is None or not all(probe.ok for probe in self._probes):
                self._probes = await self_test(self.jail)
        failed = [f"{probe.name}: {probe.detail}" for probe in self._probes if not probe.ok]
        return "the jail did not pass its own test: " + "; ".join(failed) if failed else ""

    def report(self) -> dict[str, Any]:
        """How commands are contained, for whoever asks how this server is."""
        if self.jail is None:
            return {"status": "none", "detail": self.why}
        detail = self.jail.profile(network=False)
        if self._probes is None:
            return {"status": "testing", "detail": detail}
        return {
            "status": "ok" if all(probe.ok for probe in self._probes) else "failed",
            "detail": detail,
            "probes": {
                probe.name: "ok" if probe.ok else probe.detail or "failed" for probe in self._probes
            },
        }

    def brief(self, tools: Sequence[ToolSpec], approval: Literal["ask", "deny"]) -> str:
        """What a model is told before anything else."""
        contained = f"Commands run in a {self.jail.profile(network=False)}." if self.jail else ""
        return briefing(
            workspace=str(self._settings.workspace),
            tools=tools,
            jail=contained or _NO_JAIL,
            approval=approval,
            platform=f"{platform.system()} {platform.machine()}",
            instructions=self._settings.agent.instructions,
        )


async def open_toolbox(
    settings: Settings, *, blob: Callable[[str], Awaitable[bytes]], extra: Sequence[Tool] = ()
) -> Toolbox:
    """The tools that the settings allow, and `extra` ones before them.

    Raises ConfigError if a jail is demanded that cannot be had.
    """

    def make(box: Toolbox) -> Sequence[Tool]:
        return allowed((*extra, *_built_in(settings, box, blob)), settings.agent.tools)

    jail = await jail_for(settings) if settings.tools.terminal else _SWITCHED_OFF
    if isinstance(jail, str) and settings.tools.terminal and settings.tools.jail == "bwrap":
        raise ConfigError(f"tools.jail is bwrap, but there can be no jail: {jail}")
    return Toolbox(settings, make, jail)


def allowed(tools: Sequence[Tool], patterns: Sequence[str]) -> tuple[Tool, ...]:
    """Those whose name is among the patterns."""
    return tuple(
        tool for tool in tools if any(fnmatchcase(tool.spec.name, each) for each in patterns)
    )


async def jail_for(settings: Settings) -> Jail | str:
    """The jail as it is configured, or why there is none."""
    if settings.tools.jail == "off":
        return "tools.jail is off"
    from holdfast.tools.jail import open_jail
    from holdfast.tools.limits import Limits

    return await open_jail(
        settings.workspace,
        hidden=_hidden(settings),
        kept=_kept(settings),
        visible=settings.tools.visible,
        limits=Limits(memory=settings.tools.memory * 2**20, processes=settings.tools.processes),
    )


def _hidden(settings: Settings) -> tuple[Path, ...]:
    """What no tool may even see: what is on record, and our keys."""
    key = settings.server.tls_key
    kept = dict.fromkeys((settings.data, settings.journal.parent))
    return tuple(kept) if key is None else (*kept, key)


def _kept(settings: Settings) -> tuple[Path, ...]:
    """What tools may read and never write: it says what they may do."""
    return () if settings.file is None else (settings.file,)


def _built_in(
    settings: Settings, box: Toolbox, blob: Callable[[str], Awaitable[bytes]]
) -> Sequence[Tool]:
    from holdfast.tools.beneath import Workspace
    from holdfast.tools.files import EditFile, ReadFile, WriteFile
    from holdfast.tools.output import read_output
    from holdfast.tools.search import SearchFiles
    from holdfast.tools.terminal import Terminal
    from holdfast.tools.todo import todo

    hidden, kept = _hidden(settings), _kept(settings)
    files = Workspace(settings.workspace, hidden, kept=kept)
    terminal = Terminal(
        settings.workspace,
        jail=box.jail,
        why=box.why,
        environment=settings.tools.environment,
        path=settings.tools.path,
        ours=hidden,
        kept=kept,
        approval="yolo" if settings.tools.approval == "yolo" else "ask",
        tested=box.test,
    )
    return (
        *((terminal,) if settings.tools.terminal else ()),
        ReadFile(files),
        WriteFile(files),
        EditFile(files),
        SearchFiles(files),
        todo,
        read_output(blob),
    )
