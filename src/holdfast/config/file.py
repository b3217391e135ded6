"""The configuration file: which one counts, and what stands in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.config.tables import Setting, chosen, visible
from holdfast.errors import ConfigError

#: Read from where the command is started, if it is there.
USUAL = "holdfast.toml"

_PLACE = re.compile(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$")


class File(NamedTuple):
    """`name` is what its writer calls it."""

    name: str
    path: Path | None
    values: Mapping[str, object]

    @property
    def setting(self) -> Setting:
        return Setting(f"{self.name}: ", self.values)


#: Nothing is set in it.
NO_FILE = File("the defaults", None, {})


def find_file(config: str | None, environ: Mapping[str, str], cwd: Path) -> File:
    """The file that is named, else the usual one, else none. Raises ConfigError."""
    named = chosen(Setting("--config", config), "HOLDFAST_CONFIG", environ, Setting(USUAL, None))
    if named.value is None:
        try:
            return _parse(USUAL, cwd / USUAL, (cwd / USUAL).read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return NO_FILE
        except OSError as error:
            raise named.refuse(f"cannot be read: {error.strerror}") from error
    text = named.text()
    if not text.strip() or "\0" in text:
        raise named.wrong("the path of a file")
    try:
        path = cwd / Path(text).expanduser()
        return _parse(visible(text), path, path.read_bytes())
    except FileNotFoundError as error:
        raise named.refuse(f"is {visible(text)}, which is not there; it must be a file") from error
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise named.refuse(f"is {visible(text)}, which cannot be read: {why}") from error


def _parse(name: str, path: Path, data: bytes) -> File:
    # Most commands never meet a file.
    import tomllib

    try:
        # Some editors begin a file with a mark that says it is UTF-8.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}, line {line}: this is not text in UTF-8") from error
    try:
        return File(name, path, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_where(name, str(error), text)) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or lists within lists without end.
        raise ConfigError(f"{name} holds something too large to be a setting") from error


def _where(name: str, message: str, text: str) -> str:
    place = _PLACE.search(message)
    line = place[1] if place and place[1] else str(text.count("\n") + 1)
    what = _PLACE.sub("", message)
    return f"{name}, line {line}: {visible(what[:1].lower() + what[1:])}"
