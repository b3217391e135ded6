"""From settings to tools: what an agent can use here, and how that is contained."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
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
            return "" if self.why == _SWITCHED_OFF else self.why
        from holdfast.tools.selftest import self_test

        async with self._one:
            if self._probes is None:
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

    jail = await _open_jail(settings) if settings.tools.terminal else _SWITCHED_OFF
    return Toolbox(settings, make, jail)


def allowed(tools: Sequence[Tool], patterns: Sequence[str]) -> tuple[Tool, ...]:
    """Those whose name is among the patterns."""
    return tuple(
        tool for tool in tools if any(fnmatchcase(tool.spec.name, each) for each in patterns)
    )


async def _open_jail(settings: Settings) -> Jail | str:
    wanted = settings.tools.jail
    if wanted == "off":
        return "tools.jail is off"
    from holdfast.tools.jail import Limits, open_jail

    jail = await open_jail(
        settings.workspace,
        hidden=_ours(settings),
        visible=settings.tools.visible,
        limits=Limits(memory=settings.tools.memory * 2**20, processes=settings.tools.processes),
    )
    if isinstance(jail, str) and wanted == "bwrap":
        raise ConfigError(f"tools.jail is bwrap, but there can be no jail: {jail}")
    return jail


def _ours(settings: Settings) -> tuple[Any, ...]:
    """What no tool may touch: what we know, and what we do."""
    ours = (settings.data, settings.file, settings.server.tls_key)
    return tuple(path for path in ours if path is not None)


def _built_in(
    settings: Settings, box: Toolbox, blob: Callable[[str], Awaitable[bytes]]
) -> Sequence[Tool]:
    from holdfast.tools.beneath import Workspace
    from holdfast.tools.files import EditFile, ReadFile, WriteFile
    from holdfast.tools.output import read_output
    from holdfast.tools.search import SearchFiles
    from holdfast.tools.terminal import Terminal
    from holdfast.tools.todo import todo

    files = Workspace(settings.workspace, _ours(settings))
    terminal = Terminal(
        settings.workspace,
        jail=box.jail,
        why=box.why,
        environment=settings.tools.environment,
        path=settings.tools.path,
        ours=_ours(settings),
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
