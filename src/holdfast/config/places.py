"""Directories and files: where things are kept, and where tools may work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.config.tables import Setting, visible
from holdfast.errors import ConfigError

#: The file that holds every run, in the data directory unless it is told otherwise.
JOURNAL = "journal.db"


def folder(setting: Setting, base: Path) -> Path:
    """An absolute path that is no file. Seen from `base` if it is relative. Raises ConfigError."""
    with _asking(setting):
        found = path(setting, base, "the path of a directory")
        if found.exists() and not found.is_dir():
            raise setting.refuse(f"is {_value(setting)}, which is a file; it must be a directory")
        return found


def workspace(setting: Setting, base: Path) -> Path:
    """A directory that is there, for nobody would make it, under the one name that is not a link's.

    Raises ConfigError.
    """
    found = folder(setting, base)
    if not found.exists():
        raise setting.refuse(f"is {_value(setting)}, which is not there; it must be a directory")
    with _asking(setting):
        return found.resolve()


def existing_file(setting: Setting, base: Path) -> Path:
    """Raises ConfigError."""
    with _asking(setting):
        found = path(setting, base, "the path of a file")
        if not found.is_file():
            raise setting.refuse(f"is {_value(setting)}, which is not there; it must be a file")
        return found


def default_data(environ: Mapping[str, str], platform: str) -> Path:
    # A relative one is to be ignored, says who invented it.
    shared = environ.get("XDG_DATA_HOME", "")
    if platform != "darwin" and shared.startswith("/"):
        return folder(Setting("XDG_DATA_HOME", f"{shared}/holdfast"), Path())
    home = environ.get("HOME") or "~"
    place = "Library/Application Support" if platform == "darwin" else ".local/share"
    try:
        return Path(home).expanduser().absolute() / place / "holdfast"
    except RuntimeError as error:
        raise ConfigError(
            "HOME is not set, so there is no telling where to keep things; set HOLDFAST_DATA"
        ) from error


def path(setting: Setting, base: Path, must: str) -> Path:
    """An absolute path, whatever is there. Seen from `base` if it is relative. Raises ConfigError."""
    text = setting.text(must)
    if not text.strip() or "\0" in text:
        raise setting.wrong(must)
    return (base / Path(text).expanduser()).absolute()


def _value(setting: Setting) -> str:
    return visible(str(setting.value))


@contextmanager
def _asking(setting: Setting) -> Iterator[None]:
    """The file system may answer that it does not care to be asked."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise setting.refuse(f"is {_value(setting)}, which cannot be used: {why}") from error
