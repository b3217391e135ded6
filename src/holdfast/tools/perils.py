"""What no command may do, jailed or not, and what a person is asked about even in a jail.

These rules look for intent, also behind the usual wrappers, and a command can be written so that
they miss it. They spare people from accidents. What holds against malice is the jail, and where
there is none, the short list of what may run unasked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from posixpath import basename, join, normpath

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.tools import names
from holdfast.tools.counting import Effort, everything, files, wanted
from holdfast.tools.programs import git_words, shown
from holdfast.tools.shell import Command, without_documents

#: Deleting more files than this at once is put to a person.
MANY = 20
_MOST_PLACES = 8

_SYSTEM = frozenset(
    {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt"}
    | {"/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/var", "/Users"}
    | {"/System", "/Library", "/Applications", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin"}
    | {"/usr/share", "/var/lib", "/var/log"}
)
_HOMES = re.compile(r"/(?:home|Users)/[^/]+")
_HOME = re.compile(r"(?:~[\w-]*|\$HOME)(?=/|$)")
_HERE = re.compile(r"(?:\$PWD|\$\(pwd\)|`pwd`)(?=/|$)")
#: All that is in a directory, also what is hidden.
_ALL = re.compile(r"(?:^|(?<=/))(?:\*+|\.\*|\.\[.*|\.\?\?*\*|\{.*\})$")
_UNKNOWN = re.compile(r"[$`*?\[{]")
_DEVICE = re.compile(
    r"/dev/(?:[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|disk/|mapper/|dm-\d|md\d|loop\d|k?mem$|port$).*"
    r"|/proc/(?:sysrq-trigger|k?mem|\d+/mem)"
)
_BOMB = re.compile(
    r"(?<![\w:.])([\w:.]{1,30})\s{0,9}(?:\(\s{0,9}\)\s{0,9})?\{[^}]{0,200}?\1\s{0,9}\|\s{0,9}\1\s{0,9}&"
)
#: They are short, and looking for one is slow.
_LONGEST_BOMB = 8192
_ITSELF = "the workspace itself"
_ENDS = frozenset({"shutdown", "reboot", "halt", "poweroff", "kexec"})
TOO_MUCH = "names more files than can be looked at"
_FORMATS = frozenset({"mke2fs", "mkswap", "wipefs", "blkdiscard"})


class Scene(Struct, frozen=True):
    """Where a command would run, what is ours there, and how closely it can still be looked at."""

    workspace: str
    directories: tuple[str, ...]
    ours: tuple[str, ...] = ()
    pid: int = 0
    effort: Effort = field(default_factory=Effort)


# --- refused ---------------------------------------------------------------------------


def refusal(text: str, commands: Sequence[Command], scene: Scene) -> str:
    """Why this must not run at all, in words that follow "it"; "" if it may."""
    for path in scene.ours:
        if path in text and re.search(rf"{re.escape(path)}(?![\w.-])", text):
            return f"touches what keeps this safe ({path})"
    if "|" in text and "&" in text and _BOMB.search(without_documents(text), 0, _LONGEST_BOMB):
        return "starts itself again and again until nothing else can run"
    if scene.ours and (touched := _touched(commands, scene)):
        return f"touches what keeps this safe ({touched})"
    for command in commands:
        if why := _refusal(command, scene):
            return why
        scene = _moved(command, scene)
    return ""


def _moved(command: Command, scene: Scene) -> Scene:
    """After a `cd` the script is in one place or the other; both count."""
    if (
        command.seen[:1] != ("cd",)
        or len(command.seen) != 2
        or len(scene.directories) >= _MOST_PLACES
    ):
        return scene
    new = (normpath(join(each, command.seen[1])) for each in scene.directories)
    directories = tuple(dict.fromkeys((*scene.directories, *new)))
    return replace(scene, directories=directories)


def _refusal(command: Command, scene: Scene) -> str:
    for redirection in command.redirections:
        if ">" in redirection.operator and _is_device(redirection.seen):
            return f"writes to a device ({redirection.seen})"
    if not command.seen:
        return ""
    name = basename(command.seen[0])
    if name in _FORMATS or name.startswith("mkfs"):
        return f"makes a new file system where there was another ({name})"
    if name in _ENDS:
        return f"stops the machine ({name})"
    rule = _REFUSED.get(name)
    return rule(command.seen, scene) if rule else ""


def _touched(commands: Sequence[Command], scene: Scene) -> str:
    """The first word that is ours, from any place where the script may be."""
    words: dict[str, None] = {}
    for command in commands:
        words.update(dict.fromkeys(command.seen))
        words.update((each.seen, None) for each in command.redirections)
        scene = _moved(command, scene)
    for word in words:
        if _ours(word, scene) or scene.effort.spent:
            return "" if scene.effort.spent else word
    return ""


def _ours(word: str, scene: Scene) -> bool:
    path = word.rpartition("=")[2]
    if not path or path.startswith("-") or len(path) > 4096:
        return False
    if home := _HOME.match(path):
        rest = path[home.end() :].strip("/")
        return any(_ends_in(our, rest) for our in scene.ours if rest)
    # Each part of a path is looked up.
    if not scene.effort.look(len(scene.directories) * (4 if "/" in path else 1)):
        return False
    for directory in scene.directories:
        whole = join(directory, path)
        if _within(normpath(whole), scene.ours):
            return True
        # One name in a real directory leads elsewhere only if it is a link, and that is seen sooner.
        linked = "/" in path or os.path.islink(whole)  # noqa: PTH114
        if linked and _within(os.path.realpath(whole), scene.ours):
            return True
    return False


def _ends_in(our: str, rest: str) -> bool:
    """Whether `rest` in some home directory could be ours, or beneath it."""
    parts, wanted = our.split("/"), normpath(rest).split("/")
    return any(
        wanted[: len(parts) - at] == parts[at:]
        for at in range(max(1, len(parts) - len(wanted)), len(parts))
    )


def _within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)


def _is_device(word: str) -> bool:
    return ("/dev" in word or "/proc" in word) and bool(_DEVICE.fullmatch(normpath(word)))


def _lost(word: str, scene: Scene) -> str:
    """What would be lost with this path: something that nobody can want to lose, or ""."""
    path = _ALL.sub("", word)
    every = path != word
    if home := _HOME.match(path):
        return "a home directory" if normpath(f"/{path[home.end() :]}") in ("/", "//") else ""
    path = _HERE.sub(".", path)
    if _UNKNOWN.search(path) or not scene.effort.look(len(scene.directories)):
        return ""
    for directory in scene.directories:
        whole = "/" + normpath(join(directory, path)).lstrip("/")
        if whole in _SYSTEM or _HOMES.fullmatch(whole):
            return whole
        if whole == scene.workspace and not every:
            return _ITSELF
        if whole != scene.workspace and _within(scene.workspace, (whole,)):
            return "the workspace and more"
        if any(_within(our, (whole,)) for our in scene.ours):
            return "what keeps this safe"
    return ""


def _operands(seen: Sequence[str]) -> list[str]:
    return [word for word in seen[1:] if not word.startswith("-")]


def _flagged(seen: Sequence[str], letters: str, *long: str) -> bool:
    """Whether one of the options is there, alone or among others behind one dash."""
    return any(
        word in long or (word[1:2] != "-" and set(word[1:]) & set(letters))
        for word in seen[1:]
        if word.startswith("-")
    )


def _wipes(seen: Sequence[str], scene: Scene, spared: str = "") -> str:
    if "--no-preserve-root" in seen:
        return "deletes the root directory (--no-preserve-root)"
    for word in _operands(seen):
        if _is_device(word):
            return f"destroys a device ({word})"
        if (lost := _lost(word, scene)) and lost != spared:
            return f"destroys {lost} ({word})"
    return ""


def _locks_all(seen: Sequence[str], scene: Scene) -> str:
    """Who may do what is lost without a way back, except in the workspace, which is there for it."""
    return _wipes(seen, scene, _ITSELF) if _flagged(seen, "R", "--recursive") else ""


def _finds(seen: Sequence[str], scene: Scene) -> str:
    if not _deletes_found(seen):
        return ""
    narrow = r"-(i?name|i?path|i?regex|newer\w*|[amc](time|min)|size|user|group|empty|perm|inum)"
    if any(word[:1] == "-" and re.fullmatch(narrow, word) for word in seen):
        return ""
    starts = list(seen[1 : _first_option(seen)]) or ["."]
    return next((f"destroys {lost} ({w})" for w in starts if (lost := _lost(w, scene))), "")


def _deletes_found(seen: Sequence[str]) -> bool:
    after = (basename(b) for a, b in pairwise(seen) if a.startswith("-exec"))
    return "-delete" in seen or any(name in ("rm", "shred", "unlink") for name in after)


def _first_option(seen: Sequence[str]) -> int:
    marks = (i for i, word in enumerate(seen) if i and word.startswith(("-", "(", "!")))
    return next(marks, len(seen))


def _writes(seen: Sequence[str], _: Scene) -> str:
    for word in seen[1:]:
        if _is_device(word.removeprefix("of=")):
            return f"writes to a device ({word})" if not word.startswith("if=") else ""
    return ""


def _moves(seen: Sequence[str], scene: Scene) -> str:
    sources = _operands(seen)[:-1]
    lost = ((word, _lost(word, scene)) for word in sources)
    return next((f"moves {what} away ({w})" for w, what in lost if what), "") or _writes(
        seen, scene
    )


def _inits(seen: Sequence[str], _: Scene) -> str:
    return f"stops the machine ({' '.join(seen[:2])})" if seen[1:2] in (("0",), ("6",)) else ""


def _systemctl(seen: Sequence[str], _: Scene) -> str:
    ends = _ENDS | {"rescue", "emergency", "suspend", "hibernate", "soft-reboot"}
    return next((f"stops the machine (systemctl {w})" for w in seen[1:] if w in ends), "")


def _kills(seen: Sequence[str], scene: Scene) -> str:
    if seen[0].endswith("kill") and not seen[0].endswith("pkill") and "-l" in seen:
        return ""
    mine = {str(scene.pid), f"-{scene.pid}"} if scene.pid else set()
    for place, word in enumerate(seen[1:]):
        if word in mine or word.strip('"') == "$PPID" or "holdfast" in word.lower():
            return f"ends the process that runs it ({word})"
        # The first -1 is a signal, one that comes later is everybody.
        if word == "-1" and place and basename(seen[0]) == "kill":
            return "ends every process there is (-1)"
    return ""


_REFUSED: Mapping[str, Callable[[Sequence[str], Scene], str]] = {
    **dict.fromkeys(("rm", "shred", "unlink", "rmdir", "srm"), _wipes),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _locks_all),
    **dict.fromkeys(("dd", "tee", "cp", "install", "truncate", "ln"), _writes),
    **dict.fromkeys(("init", "telinit"), _inits),
    **dict.fromkeys(("kill", "pkill", "killall", "skill"), _kills),
    "find": _finds,
    "mv": _moves,
    "systemctl": _systemctl,
}


# --- asked about -----------------------------------------------------------------------


def question(commands: Sequence[Command], scene: Scene) -> str:
    """Why a person is asked even where a jail holds it, in words that follow "it"; or ""."""
    for command in commands:
        rule = _ASKED.get(basename(command.seen[0])) if command.seen else None
        if rule and (why := rule(command, scene)):
            return why
        if secret := _secret(command, scene.effort):
            return f"reads what looks like a secret ({secret})"
        scene = _moved(command, scene)
    return TOO_MUCH if scene.effort.spent else ""


def _secret(command: Command, effort: Effort) -> str:
    """The first word that names a secret which this would show, or copy to another name."""
    inputs = [each.seen for each in command.redirections if each.operator == "<"]
    named = dict.fromkeys((*inputs, *shown(command.seen)))
    if not effort.look(len(named)):
        return ""
    return next((word for word in named if names.is_secret(word.replace(":", "/"))), "")


def _outside(command: Command, _: Scene) -> str:
    if command.seen[1:] in (("--version",), ("--help",)):
        return ""
    return f"reaches beyond the jail ({basename(command.seen[0])})"


def _rsync(command: Command, scene: Scene) -> str:
    if any(word.startswith("--del") for word in command.seen):
        return "deletes what the other side does not have (rsync --delete)"
    far = any(re.match(r"[\w.@-]*:|rsync://", word) for word in _operands(command.seen))
    return _outside(command, scene) if far else ""


def _rm(command: Command, scene: Scene) -> str:
    if not _flagged(command.seen, "rR", "--recursive"):
        return ""
    return _counted(command, _operands(command.seen), scene)


def _deletes(command: Command, scene: Scene) -> str:
    return _counted(command, _operands(command.seen), scene)


def _find(command: Command, scene: Scene) -> str:
    if not _deletes_found(command.seen):
        return ""
    starts = command.seen[1 : _first_option(command.seen)] or ["."]
    return _counted(command, starts, scene, wanted(command))


def _counted(
    command: Command,
    named: Sequence[str],
    scene: Scene,
    wants: Callable[[str], bool] = everything,
) -> str:
    """Many files are many whether they are named one by one or with the folder they are in."""
    literal = set(command.words)
    unsure = [word for word in named if word not in literal]
    if unsure or not named:
        what = " ".join(unsure[:_MOST_PLACES]) or command.seen[0]
        return f"deletes what cannot be counted before ({what})"
    scene.effort.operands -= len(named)
    if scene.effort.operands < 0:
        return f"deletes more than can be counted before ({command.seen[0]})"
    for directory in scene.directories:
        left = MANY
        for word in named:
            path = normpath(join(directory, word))
            if _within(path, (scene.workspace,)):
                left -= files(path, basename(word.rstrip("/")), left, scene.effort, wants)
            if left < 0:
                return f"deletes more than {MANY} files ({word})"
    return ""


_WHOLE_TREE = frozenset({".", "./", ":/", "*", ":", ":/*"})


def _git(command: Command, _: Scene) -> str:
    """What leaves this machine, or cannot be brought back.

    An amended commit can: the old one stays in the reflog. Rebasing could be undone in the same
    way, but it is long, and goes wrong in the middle.
    """
    words = git_words(command.seen)
    sends = words[:1] in (("push",), ("send-pack",))
    does = "sends work elsewhere" if sends else "rewrites history or loses work"
    return (
        f"{does} (git {' '.join(words[:3])})"
        if sends or (_loses(words) and not _keeps(words))
        else ""
    )


def _keeps(words: Sequence[str]) -> bool:
    """What goes back to how it was before, or touches no file."""
    if words[0] == "restore":
        return _flagged(words, "S", "--staged") and not _flagged(words, "W", "--worktree")
    return tuple(words) in (("rebase", "--abort"), ("rebase", "--quit"))


def _loses(words: Sequence[str]) -> bool:
    match words:
        case ["rebase" | "filter-branch" | "filter-repo" | "replace" | "prune", *_]:
            return True
        case ["reset" | "update-ref", *rest]:
            return "--hard" in rest or "-d" in rest
        case ["clean", *_]:
            return _flagged(words, "f", "--force")
        case ["checkout" | "switch" | "restore", *rest]:
            forced = _flagged(words, "f", "--force", "--discard-changes")
            return forced or any(word in _WHOLE_TREE for word in rest)
        case ["branch", *_]:
            return _flagged(words, "D")
        case ["tag", *_]:
            return _flagged(words, "d", "--delete")
        case ["stash", "drop" | "clear", *_] | ["reflog", "expire" | "delete", *_]:
            return True
        case ["gc", *rest]:
            return any(word.startswith("--prune") for word in rest)
        case ["worktree", "remove", *rest]:
            return _flagged(["", *rest], "f", "--force")
    return False


_ASKED: Mapping[str, Callable[[Command, Scene], str]] = {
    **dict.fromkeys(("sudo", "doas", "su", "pkexec", "runuser"), _outside),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "helm"), _outside),
    **dict.fromkeys(("ssh", "scp", "sftp"), _outside),
    **dict.fromkeys(("shred", "truncate", "srm"), _deletes),
    "find": _find,
    "git": _git,
    "rm": _rm,
    "rsync": _rsync,
}
