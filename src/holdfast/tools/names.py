"""Names of files: what can be one, which a person is asked about, and which a pattern means.

Somebody is asked about what programs obey, and about what looks like a secret. The lists are a net,
not a wall: they are about names, and any name can be chosen. The wall is that nothing outside the
workspace is touched.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from holdfast.errors import ToolError
from holdfast.tools.text import shown

#: Bytes of a path, and of one name in it.
MOST_PATH, MOST_NAME = 4096, 255

#: Obeyed as soon as they are there, by programs that look all the time.
AT_ONCE = (".vscode", ".envrc")

#: Obeyed when somebody starts a program: a shell, git, an editor, an agent, ourselves.
LATER = (
    "holdfast.toml",
    ".holdfast",
    ".mcp.json",
    ".claude",
    ".gitconfig",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".inputrc",
    ".vimrc",
    ".exrc",
)

#: Asked about when they are written as a file, and left to commands: they belong to the project,
#: and a branch could not be checked out if they were read-only. They take effect after something
#: that is asked about, as a push, or through settings of git, which are protected, or their programs
#: ask first.
OF_THE_PROJECT = (
    ".gitmodules",
    ".github/workflows",
    ".github/actions",
    ".gitlab-ci.yml",
    ".circleci",
    ".husky",
    ".pre-commit-config.yaml",
    ".idea",
    ".devcontainer",
    ".mise.toml",
    ".config/fish",
)

#: Written by a model, these make somebody else's program do something later.
PROTECTED = (".git", ".holdfast*", *AT_ONCE, *LATER, *OF_THE_PROJECT)
#: Read by a model, these would be sent to whoever runs it.
SECRET = (
    ".env",
    ".env.*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    ".git-credentials",
    ".docker/config.json",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "credentials.y*ml",
    "credentials.ini",
    "credentials.csv",
    "credentials.xml",
    "credentials.txt",
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
)
#: Made to be shown, by custom.
_EXAMPLES = (".example", ".sample", ".template", ".dist", ".pub")


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Finds a name on a path, or several in a row, that are those of a pattern."""
    each = (re.escape(pattern).replace(r"\*", "[^/]*") for pattern in patterns)
    return re.compile(f"/(?:{'|'.join(each)})/")


_IS_PROTECTED, _IS_SECRET = _any_of(PROTECTED), _any_of(SECRET)
_IS_OBEYED = _any_of((".git", ".holdfast*", *AT_ONCE, *LATER))


def check_path(path: str) -> None:
    """Raise ToolError for what no file can be called, or means something else to whoever wrote it."""
    if not path:
        raise ToolError('the path is empty; the workspace itself is "."')
    if "\0" in path:
        raise ToolError("the path has a NUL character in it, which no path has")
    if path.startswith("~"):
        raise ToolError(
            f"{shown(path[:80])}: ~ has no meaning here; paths are relative to the workspace, and a"
            " name that does begin so is written ./~"
        )
    # No character is less than a byte, and a path that long takes long to encode.
    if len(path) > MOST_PATH or len(data := os.fsencode(path)) > MOST_PATH:
        raise ToolError(f"the path is too long: at most {MOST_PATH:,} bytes")
    if max(map(len, data.split(b"/"))) > MOST_NAME:
        raise ToolError(f"a name in the path is too long: at most {MOST_NAME} bytes")


def is_obeyed(path: str) -> bool:
    """Whether programs obey it as soon as somebody starts one here, without a further question."""
    return bool(_IS_OBEYED.search(f"/{fold(path)}/"))


def why_reading_asks(path: str) -> str:
    """Why a person is asked before this is read, "" if nobody need be."""
    return "its name is one that secrets have" if is_secret(path) else ""


def why_writing_asks(path: str, obeyed: Callable[[str], bool] = is_obeyed) -> str:
    """Why a person is asked before this is written, "" if nobody need be.

    What is `obeyed` in a workspace may be more than a name tells.
    """
    if _IS_PROTECTED.search(f"/{fold(path)}/") or obeyed(path):
        return "programs obey what such a file says"
    return why_reading_asks(path)


def is_secret(path: str) -> bool:
    plain = fold(path)
    return bool(_IS_SECRET.search(f"/{plain}/")) and not plain.endswith(_EXAMPLES)


def fold(name: str) -> str:
    """The same for all spellings that some file system takes for one name."""
    if name.isascii():
        return name.lower()
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(one for one in plain if unicodedata.category(one) != "Cf")


def matches_glob(path: str, pattern: str) -> bool:
    """Whether a path is one that a pattern means: `*.py` in any folder, `src/**/*.py` beneath one.

    No pattern makes this slow: one pass over the names, each compared without going back.
    """
    names = path.split("/")
    wanted = pattern.removeprefix("./").split("/")
    if len(wanted) == 1:
        return fnmatchcase(names[-1], wanted[0])
    states = _past_any({0}, wanted)
    for name in names:
        states = _past_any(
            {
                at + (wanted[at] != "**")
                for at in states
                if at < len(wanted) and (wanted[at] == "**" or fnmatchcase(name, wanted[at]))
            },
            wanted,
        )
    return len(wanted) in states


def _past_any(states: set[int], wanted: list[str]) -> set[int]:
    """These places in a pattern, and those after a `**` that stands for no folder at all."""
    for at, one in enumerate(wanted):
        if one == "**" and at in states:
            states.add(at + 1)
    return states
