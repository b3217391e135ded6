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
from holdfast.tools.programs import git_words
from holdfast.tools.readonly import Places, beneath, objection
from holdfast.tools.shell import Script, parse, roughly
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


#: A yes to one use says nothing about the next: these run what a text, a file or a host tells them.
_RUNNERS = re.compile(
    r"(?:ba|da|z|k|a|fi|c|tc)?sh|python[\d.]*|pypy\d?|perl[\d.]*|ruby[\d.]*|node(?:js)?|deno|bun|php"
    r"|lua(?:jit)?[\d.]*|tclsh|Rscript|julia|ghci?|java|g?awk|mawk|nawk|sed|ed|ex|vim?|nvim|emacs"
    r"|less|more|man|env|sudo|doas|su|pkexec|runuser|xargs|parallel|nice|ionice|nohup|timeout|time"
    r"|stdbuf|setsid|command|builtin|exec|eval|source|\.|trap|alias|unalias|export|declare|typeset"
    r"|enable|hash|bind|set|shopt|busybox|chroot|unshare|nsenter|watch|flock|strace|ltrace|gdb"
    r"|script|expect|screen|tmux|at|batch|crontab|systemd-run|docker|podman|nerdctl|kubectl|helm"
    r"|ssh|scp|sftp|rsync|curl|wget|nc|ncat|socat|make|gmake|cmake|ninja|just|task|rake|tox|nox"
    r"|npx|pnpx|bunx|uvx|pipx|cd|pushd|coproc|tar|zip|osascript|sqlite3|psql|mysql|kill|pkill|killall"
)
#: These run what a project says: its tests, its build, its settings, what it depends on.
_BUILDERS = re.compile(
    r"npm|pnpm|yarn|bun|pip[\d.]*|pytest|py\.test|coverage|mypy|pylint|pyright|sphinx-build|pre-commit"
    r"|uv|poetry|pipenv|hatch|pdm|conda|mamba|cargo|rustc|go|mvnd?|gradle|ant|sbt|lein|clj|dotnet"
    r"|msbuild|nuget|bundler?|gem|rails|rspec|composer|phpunit|artisan|mix|rebar3|stack|cabal|swift"
    r"|xcodebuild|pod|flutter|dart|bazel(?:isk)?|buck2?|pants|meson|scons|ctest|autoreconf|configure"
    r"|jest|vitest|mocha|karma|ava|eslint|prettier|stylelint|tsc|tsx|ts-node|webpack|vite|rollup"
    r"|esbuild|parcel|next|nuxt|ng|vue|svelte-kit|gulp|grunt|turbo|nx|lerna|cypress|playwright"
    r"|terraform|tofu|pulumi|ansible(?:-\w+)?|vagrant|packer|serverless|direnv|mise|asdf|nix(?:-\w+)?"
    r"|gcc|g\+\+|clang(?:\+\+)?|cc|c\+\+|ld"
)
_PACKAGERS = frozenset(
    {"npm", "pnpm", "yarn", "uv", "poetry", "pipenv", "hatch", "pdm", "cargo", "go"}
)
_RUNNING = frozenset({"run", "run-script", "exec", "dlx", "x", "start", "shell", "generate"})


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
) -> Ruling:
    """Rule on a command that would run in `directory`, which is in the workspace.

    `ours` is what no command may touch, and `pid` is our own process.
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
    words = standing(script, jailed=jailed) if script else ()
    return _ruling("ask", why, words) if why else Ruling("auto", words=words)


def standing(script: Script, *, jailed: bool) -> tuple[str, ...]:
    """The words that a standing yes may cover. None for what runs whatever it is given.

    Nor, without a jail, for what runs code of the workspace: who may write there unasked would
    decide what the yes was given to.
    """
    if not script.plain or len(script.commands) != 1:
        return ()
    only = script.commands[0]
    words = tuple(word for word in only.words if word is not None)
    simple = len(words) == len(only.words) > 0 and not only.assignments and not only.redirections
    # Three dots are our sign for "and whatever follows".
    if not simple or words[-1] == "..." or "/" in words[0] or _runs_others(words):
        return ()
    if not jailed and _BUILDERS.fullmatch(words[0]):
        return ()
    return words


def _runs_others(words: tuple[str, ...]) -> bool:
    name, *rest = words
    if name == "git":
        # An option before the subcommand can name a program.
        return not rest or git_words(words) != tuple(rest)
    if name == "find":
        return any(re.match(r"-(exec|ok)", word) for word in rest)
    if name in _PACKAGERS:
        return not rest or any(word in _RUNNING for word in rest)
    return _RUNNERS.fullmatch(name) is not None


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
