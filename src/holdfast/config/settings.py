"""Settings as values: frozen, checked, with every default in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Never

from holdfast.config.places import JOURNAL
from holdfast.core.usage import Budget
from holdfast.core.watchdog import Patience
from holdfast.models.catalog import Price


def nothing() -> Mapping[str, Never]:
    return MappingProxyType({})


@dataclass(frozen=True)
class ModelSettings:
    """One model as configured.

    `model` is the endpoint's own name for it; "" means to ask the endpoint for the first one it
    has. `grows` names the limits of `patience` that nobody set, which a long prompt may stretch.
    0 means: no limit of `concurrency` or `total`, an unknown `window`, no `hedge`.
    `hedge_to` is the model to hedge with, "" for the same once more.
    """

    name: str
    wire: str
    model: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    key_env: str = ""
    fallback: tuple[str, ...] = ()
    stream: bool = True
    window: int = 0
    price: Price | None = None
    # They may hold what is nobody else's business.
    headers: Mapping[str, str] = field(default_factory=nothing, repr=False)
    concurrency: int = 0
    patience: Patience = field(default_factory=Patience)
    grows: tuple[str, ...] = ("first", "between", "whole")
    attempts: int = 4
    total: float = 600.0
    hedge: float = 0.0
    hedge_to: str = ""
    options: Mapping[str, object] = field(default_factory=nothing)


DEMO = ModelSettings(name="demo", wire="demo", model="demo", price=Price(0.0, 0.0, 0.0))


@dataclass(frozen=True)
class AgentSettings:
    """`instructions` is the system prompt; `tools` are names or patterns."""

    instructions: str = ""
    max_turns: int = 90
    tools: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class ServerSettings:
    """`store` is the file that holds every run, and `key` the key; None and "" where they are to be
    found in the data directory."""

    host: str = "127.0.0.1"
    port: int = 8642
    store: Path | None = None
    key: str = field(default="", repr=False)
    auth: str = "token"
    hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    behind_proxy: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    body_limit: int = 10_000_000
    drain: float = 30.0
    stop_ended: int = 404


@dataclass(frozen=True)
class ToolSettings:
    """`approval_timeout` of 0 waits for ever.

    A command is given `environment` and little else, finds programs on `path`, and sees of the home
    directory only what is `visible`. `memory` is in megabytes for each of its processes.
    """

    terminal: bool = True
    jail: str = "auto"
    approval: str = "ask"
    approval_timeout: float = 86_400.0
    # It may hold what is nobody else's business.
    environment: Mapping[str, str] = field(default_factory=nothing, repr=False)
    path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    visible: tuple[Path, ...] = ()
    memory: int = 4096
    processes: int = 512


@dataclass(frozen=True)
class RetentionSettings:
    """How many days a run is kept after its end, 0 until it is deleted; and how many days a session that
    was `deleted` can be restored, and what is left of a run that was is kept, 0 for ever.
    """

    days: float = 0.0
    deleted: float = 7.0


@dataclass(frozen=True)
class McpSettings:
    """A server of tools: a command to start, or an address."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True)
class Settings:
    """`data` is the directory that holds all there is to keep."""

    data: Path
    workspace: Path = Path()
    default_model: str = DEMO.name
    models: Mapping[str, ModelSettings] = field(
        default_factory=lambda: MappingProxyType({DEMO.name: DEMO})
    )
    agent: AgentSettings = AgentSettings()
    budget: Budget = field(default_factory=Budget)
    server: ServerSettings = ServerSettings()
    tools: ToolSettings = field(default_factory=ToolSettings)
    retention: RetentionSettings = RetentionSettings()
    mcp: Mapping[str, McpSettings] = field(default_factory=nothing)
    max_concurrent_runs: int = 1000
    max_queued_runs: int = 10_000
    file: Path | None = None

    @property
    def journal(self) -> Path:
        """The file that holds every run."""
        return self.server.store or self.data / JOURNAL
