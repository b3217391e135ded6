"""The commands that may run unasked where no jail holds them: a short list of readers.

A script passes if each of its commands is on the list, says nothing that is not literal, and reads
within the workspace, links followed and secrets left alone. Whoever runs it then must give it an
environment in which the same names mean the same programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.tools import names, repository
from holdfast.tools.programs import GIT, PROGRAMS, Program, taken
from holdfast.tools.shell import Command, Script

#: Reading through trees looks for secrets first; if there is more in them a person is asked.
MOST_ENTRIES = 10_000
#: Paths that are followed, from each place where the script may be.
MOST_PATHS = 500
#: Directories that a script may be in, one more with each `cd`.
_MOST_PLACES = 8

#: All the names in one pattern, for a tree may hold thousands of files.
_SECRET = re.compile(
    "(?:^|[/:)])(?:"
    + "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in names.SECRET)
    + ")(?=[/:]|$)"
)

#: What is in each of the names, whatever else is.
_HINTS = tuple({max(name.split("*"), key=len) for name in names.SECRET})

_LINES = re.compile(r"(\d+|\$)(,(\d+|\$))?p(;(\d+|\$)(,(\d+|\$))?p)*")
_FORMAT = re.compile(r"(?:[^%\\]|%%|\\[nt]|%[-0]?\d*(?:\.\d+)?[sdiuxX])*")
_QUIET_REDIRECTION = re.compile(r"(?:2>&1|1>&2|>&2|(?:[12]?>|&>)[ \t]*/dev/null)")


class Found(Struct):
    """What one judgement has found so far, so that nothing is looked at twice, and what it may still
    look at: everybody else waits meanwhile."""

    paths: int = MOST_PATHS
    entries: int = MOST_ENTRIES
    clean: set[str] = field(default_factory=set)
    repositories: dict[str, Path | str] = field(default_factory=dict)
    #: What speaks against showing files of a repository.
    tracked: dict[Path, str] = field(default_factory=dict)


class Places(Struct, frozen=True):
    """Where a script may be while it runs, within which bounds, and what it must keep off."""

    workspace: str
    directories: tuple[str, ...]
    ours: tuple[str, ...] = ()
    found: Found = field(default_factory=Found)


def objection(script: Script, places: Places) -> str:
    """Why the script may not run unasked, in words that follow "it"; "" if it may."""
    for command in script.commands:
        if command.words[:1] == ("cd",):
            moved = _moved(command, places)
            if isinstance(moved, str):
                return moved
            places = moved
        elif why := _objection(command, places):
            return why
    return ""


def is_secret(path: str) -> bool:
    """Also where it stands behind a revision, as in `HEAD:.env`, or behind git's `:(top)`."""
    plain = names.fold(path)
    return bool(_SECRET.search(plain)) and names.is_secret(re.sub("[:)]", "/", plain))


def _objection(command: Command, places: Places) -> str:
    if command.assignments:
        return f"sets a variable ({command.assignments[0]})"
    for redirection in command.redirections:
        if _QUIET_REDIRECTION.fullmatch(redirection.text):
            continue
        if redirection.operator != "<" or redirection.target is None:
            writes = ">" in redirection.operator
            return (
                f"{'writes to a file' if writes else 'reads from elsewhere'} ({redirection.text})"
            )
        if why := _path(redirection.target, places):
            return why
    if not command.words:
        return ""
    words = [word for word in command.words if word is not None]
    if len(words) < len(command.words):
        doubtful = command.seen[command.words.index(None)]
        return f"cannot be read with certainty: {doubtful}"
    name, *arguments = words
    if judge := _BY_HAND.get(name):
        return judge(arguments, places)
    program = PROGRAMS.get(name)
    if program is None:
        return f"runs {name}, which is not on the list of programs that only read"
    return _told(name, program, arguments, places)


# --- options and operands --------------------------------------------------------------


def _told(name: str, program: Program, arguments: Sequence[str], places: Places) -> str:
    """Why a program may not be told this."""
    told = taken(name, program, arguments)
    if isinstance(told, str):
        return told
    given, operands = told
    if len(operands) > program.most or (operands and not program.operands):
        return f"gives {name} more operands than it needs to read"
    if program.operands == "text":
        return ""
    patterned = program.operands == "pattern" and not given & {"-e", "--files"}
    paths = operands[1:] if patterned else operands
    deep = program.deep == "*" or not given.isdisjoint(program.deep.split())
    if deep and not paths:
        paths = ["."]
    for path in paths:
        if why := _path(path, places):
            return why
    return _deep(paths, places) if deep else ""


# --- paths -----------------------------------------------------------------------------


def _path(path: str, places: Places) -> str:
    """Why a path may not be read, wherever the script may be by then.

    That goes for `-` as well: some take it for their input, and others for a file of that name.
    """
    if is_secret(path):
        return f"reads {path}, which looks like a secret"
    places.found.paths -= len(places.directories)
    if places.found.paths < 0:
        return "names more files than can be looked at"
    for directory in places.directories:
        real = os.path.realpath(os.path.join(directory, path))  # noqa: PTH118 (pure text, and quick)
        lexical = os.path.normpath(os.path.join(directory, path))  # noqa: PTH118
        if not beneath(lexical, places.workspace) or not beneath(real, places.workspace):
            return f"reads {path}, which is outside the workspace"
        if is_secret(os.path.relpath(real, places.workspace)):
            return f"reads {path}, which leads to something that looks like a secret"
    return ""


def beneath(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _moved(command: Command, places: Places) -> Places | str:
    """The places after a `cd`. It may fail, so the old ones still count."""
    match command:
        case Command(words=("cd", str(target)), assignments=(), redirections=()) if target:
            pass
        case _:
            return "changes the directory in a way that is not one plain cd to a directory"
    if target.startswith("-"):
        return f"changes the directory to {target}"
    if why := _path(target, places):
        return why
    new = [os.path.normpath(os.path.join(d, target)) for d in places.directories]  # noqa: PTH118
    # The shell remembers the way it came and programs do not: `..` behind a link would differ.
    if any(os.path.realpath(each) != each for each in new):
        return f"changes the directory to {target}, which leads through a link"
    directories = tuple(dict.fromkeys((*places.directories, *new)))
    if len(directories) > _MOST_PLACES:
        return "changes the directory too often to follow"
    return replace(places, directories=directories)


def _deep(paths: Sequence[str], places: Places) -> str:
    """Why all that is beneath these may not be read, also what is hidden: a file in the tree can tell
    `rg` to look there."""
    for directory in places.directories:
        for path in paths:
            # A link that is named is followed.
            top = os.path.realpath(os.path.join(directory, path))  # noqa: PTH118
            if any(beneath(each, top) for each in places.ours):
                return f"reads all of {path}, and files of ours are there"
            if top in places.found.clean:
                continue
            if secret := _secret_beneath(top, places):
                if places.found.entries < 0:
                    return f"reads all of {path}, and that is too much to look through for secrets"
                within = os.path.relpath(secret, directory)
                return f"would also read {within}, which looks like a secret"
            places.found.clean.add(top)
    return ""


def _secret_beneath(top: str, places: Places) -> str:
    """The first secret in a tree, or where there was too much to look at."""
    found = places.found
    ahead = [top]
    while ahead:
        folder = ahead.pop()
        # Some names are a secret's in one folder only.
        inside = "" if folder == places.workspace else f"{os.path.basename(folder)}/"  # noqa: PTH119
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                found.entries -= 1
                if found.entries < 0:
                    return entry.path
                if is_secret(inside + entry.name):
                    return entry.path
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
    return ""


# --- programs with manners of their own ------------------------------------------------


def _sed(arguments: Sequence[str], places: Places) -> str:
    match arguments:
        case ["-n", script, *paths] if _LINES.fullmatch(script):
            for path in paths:
                if path.startswith("-"):
                    return f"uses {path}, and sed is trusted with lines and files alone"
                if why := _path(path, places):
                    return why
            return ""
    return "uses sed for more than printing lines by their numbers (sed -n '1,20p')"


_TESTS_WITH_VALUE = re.compile(
    r"-(i?name|i?path|wholename|type|(max|min)depth|size|[amc](time|min)|i?regex|regextype|perm"
    r"|user|group|links|printf)"
)
_TESTS = re.compile(
    r"-(print0?|prune|not|a|and|o|or|true|false|empty|readable|writable|executable|depth|mount"
    r"|xdev|ls|quit)|[!()]"
)
#: Fewer than so many, and permissions; anything else that begins like an option is not a value.
_LESS = re.compile(r"-\d+[a-zA-Z]?|[^-].*", re.DOTALL)


def _find(arguments: Sequence[str], places: Places) -> str:
    rest = iter(arguments)
    expression = False
    for word in rest:
        if _TESTS_WITH_VALUE.fullmatch(word):
            if not _LESS.fullmatch(next(rest, "")):
                return f"gives find no clear value for {word}"
            expression = True
        elif _TESTS.fullmatch(word):
            expression = True
        elif expression or word.startswith(("-", ",")):
            return f"uses {word}, which is not on the list of what find may do unasked"
        elif why := _path(word, places):
            return why
    return ""


def _diff(arguments: Sequence[str], places: Places) -> str:
    program = PROGRAMS["diff"]
    if why := _told("diff", program, arguments, places):
        return why
    told = taken("diff", program, arguments)
    assert not isinstance(told, str)
    for directory in places.directories:
        for path in told[1]:
            # Two directories are compared file by file, links and secrets and all.
            if Path(directory, path).is_dir():
                return f"compares directories ({path})"
    return ""


def _test(arguments: Sequence[str], places: Places) -> str:
    match [word for word in arguments if word != "!"]:
        case [("-e" | "-f" | "-d" | "-s" | "-r" | "-w" | "-x" | "-L" | "-h"), path]:
            return _path(path, places)
        case [("-z" | "-n"), _] | [_, ("=" | "!="), _]:
            return ""
    return "tests something that is not on the list"


def _echo(_arguments: Sequence[str], _places: Places) -> str:
    return ""


def _printf(arguments: Sequence[str], _: Places) -> str:
    # %n and -v would set a variable, and the name of a variable may hold a command.
    if arguments and not arguments[0].startswith("-") and _FORMAT.fullmatch(arguments[0]):
        return ""
    return "uses printf with a format that is not on the list"


def _date(arguments: Sequence[str], _: Places) -> str:
    told = taken("date", PROGRAMS["date"], arguments)
    if isinstance(told, str):
        return told
    return "" if all(each.startswith("+") for each in told[1]) else "may set the clock"


def _within(places: Places, root: Path, directory: str) -> Places:
    return Places(str(root), (directory,), found=places.found)


_WITHOUT_CONTENT = frozenset(
    {"--stat", "--shortstat", "--numstat", "--summary", "--name-only", "--name-status", "--quiet"}
)
#: Also what can be asked as often as it takes to guess.
_WITH_CONTENT = frozenset(
    {"-p", "--patch", "-U", "--unified", "--word-diff", "--check", "-S", "-G"}
)


def _git(arguments: Sequence[str], places: Places) -> str:
    words = arguments[1:] if arguments[:1] == ["--no-pager"] else arguments
    subcommand, *rest = words or [""]
    program = GIT.get(subcommand)
    if program is None:
        return f"uses git {subcommand}".rstrip() + ", which is not on the list of what only reads"
    # A format that checks a signature runs a program for it.
    if any("%G" in word for word in rest):
        return "asks git to check a signature"
    for directory in places.directories:
        known = places.found.repositories
        if directory not in known:
            known[directory] = repository.clean(Path(directory), Path(places.workspace))
        found = known[directory]
        if isinstance(found, str):
            return f"runs git, and {found}"
        # Two files of which one is outside the repository are compared like any others.
        if why := _told(f"git {subcommand}", program, rest, _within(places, found, directory)):
            return why
        if _shows(subcommand, program, rest) and (why := _tracked(found, places.found)):
            return why
    return ""


def _shows(subcommand: str, program: Program, rest: Sequence[str]) -> bool:
    """Whether contents of files are shown. `show` does if it is given nothing but a file's hash."""
    told = taken(subcommand, program, rest)
    assert not isinstance(told, str)
    if subcommand == "diff":
        return bool(told[0] & _WITH_CONTENT) or not told[0] & _WITHOUT_CONTENT
    return subcommand == "show" or (subcommand == "log" and bool(told[0] & _WITH_CONTENT))


def _tracked(root: Path, found: Found) -> str:
    """Why contents of the files that are tracked now may not be shown. History may have held more."""
    if root not in found.tracked:
        found.tracked[root] = _judged(repository.tracked(root), found)
    return found.tracked[root]


def _judged(tracked: Sequence[str] | None, found: Found) -> str:
    all_of_it = "\n".join(tracked or ()).lower()
    # There may be thousands of names, and to look at one by itself takes long.
    hints = [hint for hint in _HINTS if hint in all_of_it]
    doubtful: Sequence[str] = ()
    if tracked and (hints or not all_of_it.isascii()):
        doubtful = [n for n in tracked if not n.isascii() or any(h in n.lower() for h in hints)]
    found.entries -= len(doubtful)
    if tracked is None or found.entries < 0:
        return (
            "shows files of a repository that may hold secrets, for it is too much to look through"
        )
    secret = next(filter(is_secret, doubtful), "")
    return f"may show {secret}, which looks like a secret" if secret else ""


_BY_HAND: Mapping[str, Callable[[Sequence[str], Places], str]] = {
    "date": _date,
    "diff": _diff,
    "echo": _echo,
    "find": _find,
    "git": _git,
    "printf": _printf,
    "sed": _sed,
    "test": _test,
}
