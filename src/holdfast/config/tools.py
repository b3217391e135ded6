"""What tools may do: the terminal, its jail, what it sees of this machine, and who is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from holdfast.config.places import path
from holdfast.config.settings import ToolSettings
from holdfast.config.tables import Setting, Table

#: The section of git's settings that says who somebody is, and the two lines of it that matter.
_USER = re.compile(r"^\[user\][^\n]*\n((?:(?!\[)[^\n]*\n?)*)", re.MULTILINE)
_KEY = re.compile(r"^[ \t]*(name|email)[ \t]*=[ \t]*([^#;\n]*[^#;\s])", re.MULTILINE)

_KEYS = "terminal jail approval approval_timeout env visible memory processes"


def read_tools(file: Table, environ: Mapping[str, str], *, base: Path) -> ToolSettings:
    """Raises ConfigError."""
    tools, usual = file.table("tools", _KEYS), ToolSettings()
    return ToolSettings(
        terminal=tools.get("terminal", usual.terminal).flag(),
        jail=tools.get("jail", usual.jail).one_of("auto", "bwrap", "off"),
        approval=tools.get("approval", usual.approval).one_of("ask", "deny", "yolo"),
        approval_timeout=tools.get("approval_timeout", usual.approval_timeout).number(
            "a number of seconds, 0 to wait for ever"
        ),
        environment=_environment(tools.get("env", []), environ),
        path=environ.get("PATH") or usual.path,
        visible=tuple(
            path(each, base, "the path of something to see")
            for each in tools.get("visible", []).each("paths")
        ),
        memory=tools.get("memory", usual.memory).count(
            least=64, must="a whole number of megabytes, 64 or more"
        ),
        processes=tools.get("processes", usual.processes).count(least=16),
    )


def _environment(names: Setting, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that a command is given besides the usual few, as they are now.

    Whose commits are made is among them: git's own settings are in a home that is not seen.
    """
    wanted = names.words("names of variables")
    for name in wanted:
        if "=" in name:
            raise names.refuse(f"has {name!r} in it; it must be a list of names of variables")
    given = {name: environ[name] for name in wanted if name in environ}
    return MappingProxyType({**_author(environ), **given})


def _author(environ: Mapping[str, str]) -> dict[str, str]:
    """Name and address from the settings of git, as far as they are plain to see."""
    home = environ.get("HOME", "")
    try:
        text = (Path(home) / ".gitconfig").read_text(errors="replace") if home else ""
    except OSError:
        return {}
    user = "".join(_USER.findall(text))
    return {
        f"GIT_{role}_{key.upper()}": value.strip('"')
        for key, value in _KEY.findall(user)
        for role in ("AUTHOR", "COMMITTER")
    }
