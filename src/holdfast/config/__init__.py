"""Settings: one frozen object, read once. The only reader of the environment.

A flag counts before the environment, the environment before the file, and the file before the
default. What cannot be used is refused in a sentence that names the setting as it was written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from holdfast.config.addresses import web_address
from holdfast.config.file import NO_FILE, File, find_file
from holdfast.config.models import (
    checked_key,
    default_model,
    key_in,
    private_headers,
    read_models,
)
from holdfast.config.offer import Probe, is_listening, offered
from holdfast.config.places import JOURNAL, default_data, folder, workspace
from holdfast.config.server import read_server, read_store
from holdfast.config.settings import (
    AgentSettings,
    McpSettings,
    ModelSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    ToolSettings,
)
from holdfast.config.tables import Setting, Table, chosen
from holdfast.config.tools import read_tools
from holdfast.core.usage import Budget
from holdfast.errors import ConfigError

__all__ = [
    "AgentSettings",
    "McpSettings",
    "ModelSettings",
    "RetentionSettings",
    "ServerSettings",
    "Settings",
    "ToolSettings",
    "read_data",
    "read_journal",
    "read_key",
    "read_settings",
    "secrets",
]

#: A variable with one of these in its name holds something that is nobody else's business,
#: unless its value is too short to be worth hiding.
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST_SECRET = 8

_KEYS = (
    "data workspace default_model max_concurrent_runs max_queued_runs server agent models tools"
    " budget retention mcp"
)
_NO_LIMIT = "a whole number, 0 for no limit"


def read_settings(
    *,
    data: str | None = None,
    config: str | None = None,
    host: str | None = None,
    port: str | int | None = None,
    store: str | None = None,
    environ: Mapping[str, str] = os.environ,  # noqa: TID251 (the one reader of the environment)
    platform: str = sys.platform,
    cwd: Path = Path(),
    probe: Probe = is_listening,
) -> Settings:
    """What is set by flag, environment and file, else by default. Raises ConfigError."""
    file = find_file(config, environ, cwd)
    base = file.path.parent if file.path else cwd
    table = Table(file.setting, _KEYS)
    models = read_models(table, environ)
    if not models:
        offer = offered(environ, probe)
        models = MappingProxyType({offer.name: offer})
    agent = _agent(table)
    settings = Settings(
        data=_data(data, file, environ, platform, cwd),
        workspace=workspace(table.get("workspace", "."), base),
        default_model=default_model(table, models),
        models=models,
        agent=agent,
        budget=_budget(table, agent),
        server=read_server(table, environ, base=base, cwd=cwd, host=host, port=port, store=store),
        tools=read_tools(table, environ, base=base),
        retention=_retention(table),
        mcp=_mcp(table),
        max_concurrent_runs=table.get("max_concurrent_runs", 1000).count(least=1),
        max_queued_runs=table.get("max_queued_runs", 10_000).count(),
        file=file.path,
    )
    kept = settings.journal.parent
    if settings.server.store and settings.workspace.is_relative_to(kept):
        # Where the store is no tool may look.
        raise ConfigError(
            f"the store is kept in {kept}, which holds the workspace, too; give it a directory of its"
            " own"
        )
    return settings


def read_data(
    *,
    data: str | None = None,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,  # noqa: TID251 (the one reader of the environment)
    platform: str = sys.platform,
    cwd: Path = Path(),
) -> Path:
    """The data directory, for whoever needs nothing else: no other setting can be in the way."""
    if data is not None or environ.get("HOLDFAST_DATA"):
        return _data(data, NO_FILE, environ, platform, cwd)
    return _data(None, find_file(config, environ, cwd), environ, platform, cwd)


def read_journal(
    data: Path,
    *,
    environ: Mapping[str, str] = os.environ,  # noqa: TID251 (the one reader of the environment)
    cwd: Path = Path(),
) -> Path:
    """The file that holds the runs of a data directory, for whoever needs no other setting."""
    if environ.get("HOLDFAST_STORE"):
        return read_store(Setting("", ""), environ, base=cwd, cwd=cwd) or data / JOURNAL
    file = find_file(None, environ, cwd)
    server = file.values.get("server")
    named = server.get("store", "") if isinstance(server, dict) else ""
    base = file.path.parent if file.path else cwd
    setting = Setting(f"{file.name}: server.store", named)
    return read_store(setting, environ, base=base, cwd=cwd) or data / JOURNAL


def read_key(
    folder: Path | None,
    environ: Mapping[str, str] = os.environ,  # noqa: TID251 (the one reader of the environment)
) -> str:
    """The key of the server of this data directory, as its own commands show it; without a directory,
    the one that is set for any other server. "" if there is none. Raises ConfigError for what can be
    none, and never repeats it."""
    key = key_in("HOLDFAST_API_KEY", environ)
    if key or folder is None:
        return key
    try:
        kept = (folder / "api_key").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
    return checked_key(kept.strip(), Setting(f"the key file {folder / 'api_key'}", ""))


def secrets(
    environ: Mapping[str, str] = os.environ,  # noqa: TID251 (the one reader of the environment)
    settings: Settings | None = None,
) -> tuple[str, ...]:
    """Values that are not to leave this machine, the longest first."""
    found = {
        value
        for name, value in environ.items()
        if any(word in name.upper() for word in _SECRET_NAMES)
    }
    if settings:
        found |= {settings.server.key, *(model.key for model in settings.models.values())}
        found |= {value for model in settings.models.values() for value in private_headers(model)}
    worth_it = (value for value in found if len(value) >= _SHORTEST_SECRET)
    return tuple(sorted(worth_it, key=lambda value: (-len(value), value)))


def _data(
    flag: str | None, file: File, environ: Mapping[str, str], platform: str, cwd: Path
) -> Path:
    written = Setting(f"{file.name}: data", file.values.get("data"))
    setting = chosen(Setting("--data", flag), "HOLDFAST_DATA", environ, written)
    if setting.value is None:
        return default_data(environ, platform)
    return folder(setting, file.path.parent if setting is written and file.path else cwd)


def _agent(table: Table) -> AgentSettings:
    agent = table.table("agent", "instructions max_turns tools")
    return AgentSettings(
        instructions=agent.get("instructions", "").text(),
        max_turns=agent.get("max_turns", 90).count(must=_NO_LIMIT),
        tools=agent.get("tools", ["*"]).words("names of tools"),
    )


def _budget(table: Table, agent: AgentSettings) -> Budget:
    budget = table.table("budget", "turns seconds tokens money")
    return Budget(
        turns=budget.get("turns", agent.max_turns).count(must=_NO_LIMIT),
        seconds=budget.get("seconds", 0).number("a number of seconds, 0 for no limit"),
        tokens=budget.get("tokens", 0).count(must=_NO_LIMIT),
        money=budget.get("money", 0).number("a number, 0 for no limit"),
    )


def _retention(table: Table) -> RetentionSettings:
    retention, usual = table.table("retention", "days deleted"), RetentionSettings()
    days = "a number of days, 0 to keep runs until they are deleted"
    deleted = "a number of days, 0 to keep what was deleted for ever"
    return RetentionSettings(
        days=retention.get("days", usual.days).number(days),
        deleted=retention.get("deleted", usual.deleted).number(deleted),
    )


def _mcp(table: Table) -> Mapping[str, McpSettings]:
    return MappingProxyType(
        {name: _mcp_server(name, setting) for name, setting in table.named("mcp")}
    )


def _mcp_server(name: str, setting: Setting) -> McpSettings:
    table = Table(setting, "command url")
    if table.has("command") == table.has("url"):
        raise setting.refuse("must have either a command or a url")
    if table.has("url"):
        return McpSettings(name, url=web_address(table.get("url", "")))
    command = table.get("command", [])
    must = "words, the first of which is a program"
    words = command.words(must)
    if not words:
        raise command.wrong(f"a list of {must}")
    return McpSettings(name, command=words)
