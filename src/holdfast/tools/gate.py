"""Whether a shell command runs unasked, is put to a person, or is refused.

In a jail the jail is the boundary: what is not refused runs, and a person is asked only about what
a jail cannot undo. Without one nothing runs unasked but the short list of `readonly`.

A text that does not parse is put to a person where there is no jail. In a jail it runs, for the
shell will either reject it as we did, or do no more than the jail lets it; but it is cut into
words all the same, and what would be refused or asked about in another text is so in this one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.core.messages import Gate
from holdfast.tools.perils import TOO_MUCH, Scene, question, refusal
from holdfast.tools.readonly import Places, beneath, objection
from holdfast.tools.shell import Script, parse, roughly
from holdfast.tools.standing import standing
from holdfast.tools.wrappers import revealed

LONGEST = 64 * 1024
#: Simple commands in one text, before a person has a look.
MOST_COMMANDS = 200

_PICTURES = r"\u2600-\u27bf\u2b00-\u2bff\ufe0f\U0001f000-\U0001faff"
#: Characters that do something to a terminal or to the order of letters, or that nobody sees. The
#: one that makes one picture of two is left alone between pictures.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    r"\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    rf"|(?<![{_PICTURES}])\u200d|\u200d(?![{_PICTURES}])"
)

_GIT_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.pager", "cat"),
    ("core.sshCommand", "false"),
    ("core.untrackedCache", "false"),
    ("diff.autoRefreshIndex", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("gpg.program", "false"),
    ("log.showSignature", "false"),
    ("protocol.allow", "never"),
    ("safe.bareRepository", "explicit"),
)
#: All that a command may find in its environment when it runs unasked and without a jail. The
#: settings of git stand above those of any repository: a second lock, should the first fail.
SAFE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{i}": key for i, (key, _) in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{i}": value for i, (_, value) in enumerate(_GIT_SETTINGS)},
}


def safe_environment(workspace: Path) -> Mapping[str, str]:
    """The same for a workspace, as it is really called: git finds no repository above it."""
    return {**SAFE_ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(workspace.parent)}


class Ruling(Struct, frozen=True):
    """What became of a command at the gate.

    `reason` is for the person who is asked, or for the model that is refused. `words` is what a
    standing yes may cover, to the letter; there are none if no standing yes is possible.
    """

    gate: Gate
    reason: str = ""
    words: tuple[str, ...] = ()


def judge(
    command: str,
    *,
    jailed: bool,
    workspace: Path,
    directory: Path,
    ours: Sequence[Path] = (),
    pid: int = 0,
    path: str = "",
) -> Ruling:
    """Rule on a command that would run in `directory`, which is in the workspace.

    `ours` is what no command may touch, `pid` is our own process, and `path` the PATH that the
    command would have if a person agreed to it.
    """
    if why := _unreadable(command):
        return Ruling("refuse", why)
    root = os.path.realpath(workspace)
    place = root if directory == workspace else os.path.realpath(directory)
    kept = tuple(dict.fromkeys(text for path in ours for text in _spelled(path)))
    script = parse(command)
    commands = roughly(command) if script is None else script.commands
    found, all_of_it = revealed(commands or ())
    scene = Scene(root, (place,), kept, pid)
    if why := refusal(command, found, scene):
        return _ruling("refuse", why)
    if commands is None:
        return _ruling("ask", "is too much to look through")
    if not all_of_it:
        return _ruling("ask", "hides commands in commands, deeper than can be followed")
    if jailed:
        why = question(found, scene)
    elif len(found) > MOST_COMMANDS:
        why = f"is more than {MOST_COMMANDS} commands in one"
    elif scene.effort.spent:
        why = TOO_MUCH
    else:
        why = _unsafe(script, Places(root, (place,), kept))
    words = standing(script, workspace=root, directory=place, path=path) if script else ()
    return _ruling("ask", why, words) if why else Ruling("auto", words=words)


def _unsafe(script: Script | None, places: Places) -> str:
    if script is None:
        return "cannot be read with certainty: the shell's grammar does not fit it"
    if not script.commands:
        return "says nothing to run"
    if not beneath(places.directories[0], places.workspace):
        return "would run outside the workspace"
    if not script.plain:
        return f"cannot be read with certainty: there is {script.beyond[0]} in it"
    return objection(script, places)


def _unreadable(command: str) -> str:
    if len(command) > LONGEST or len(command.encode(errors="replace")) > LONGEST:
        return f"it is longer than {LONGEST // 1024} KiB; put it in a file"
    if found := _UNSEEN.search(command):
        return f"it holds a character that cannot be seen, U+{ord(found[0]):04X}; write it without"
    return ""


def _spelled(path: Path) -> tuple[str, str]:
    """As it was given and as it really is."""
    return os.path.normpath(path), os.path.realpath(path)


def _ruling(gate: Gate, why: str, words: tuple[str, ...] = ()) -> Ruling:
    return Ruling(gate, f"it {why}", words)
