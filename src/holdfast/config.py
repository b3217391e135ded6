"""Settings: one frozen object, read once. The only reader of the environment.

A flag counts before the environment, and the environment before the default. What cannot be
used is refused in a sentence that names the setting.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError

#: A variable with one of these in its name holds something that is nobody else's business,
#: unless its value is too short to be worth hiding.
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST_SECRET = 8


@dataclass(frozen=True)
class Settings:
    """`data` is the directory that holds all there is to keep."""

    data: Path


def read_settings(
    *,
    data: str | None = None,
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
) -> Settings:
    """What is set by flag, else by the environment, else by default. Raises ConfigError."""
    if data is not None:
        return Settings(_folder("--data", data))
    if set_there := environ.get("HOLDFAST_DATA"):
        return Settings(_folder("HOLDFAST_DATA", set_there))
    return Settings(_default_data(environ, platform))


def secrets(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Values that are not to leave this machine, the longest first."""
    found = {
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST_SECRET and any(word in name.upper() for word in _SECRET_NAMES)
    }
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _folder(setting: str, value: str) -> Path:
    if not value.strip() or "\0" in value:
        raise ConfigError(f"{setting} is {value!r}; it must be the path of a directory")
    try:
        folder = Path(value).expanduser().absolute()
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{setting} is {value}, which is a file; it must be a directory")
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{setting} is {value}, which cannot be used: {error}") from error
    return folder


def _default_data(environ: Mapping[str, str], platform: str) -> Path:
    # A relative one is to be ignored, says who invented it.
    shared = environ.get("XDG_DATA_HOME", "")
    if platform != "darwin" and shared.startswith("/"):
        return _folder("XDG_DATA_HOME", f"{shared}/holdfast")
    home = environ.get("HOME") or "~"
    place = "Library/Application Support" if platform == "darwin" else ".local/share"
    try:
        return Path(home).expanduser().absolute() / place / "holdfast"
    except RuntimeError as error:
        raise ConfigError(
            "HOME is not set, so there is no telling where to keep things; set HOLDFAST_DATA"
        ) from error
