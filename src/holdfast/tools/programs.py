"""The programs that only read, with all that they may be told.

An option that is not listed is not allowed, whether it is harmful or merely new. Long options must
be spelled out, for programs of GNU take the beginning of one for the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import basename

from msgspec import Struct

_NUMBER = re.compile(r"[+-]?\d+[bkKMG]?")


class Program(Struct, frozen=True):
    """What one program may be told.

    `options` maps each to what follows it: "number", "text", "joined" for a text that follows at
    once or not at all, "" for nothing.
    """

    options: Mapping[str, str]
    #: What its operands are: "paths", "pattern" (and then paths), "text" or "" for none.
    operands: str = "paths"
    most: int = 100
    #: `-20` for twenty lines.
    counts: bool = False
    #: Options with which it reads all that is beneath a directory.
    deep: str = ""


def taken(
    name: str, program: Program, arguments: Sequence[str]
) -> tuple[set[str], list[str]] | str:
    """The options that are given, and the operands; or why not."""
    given: set[str] = set()
    operands: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            operands.extend(rest)
        elif word == "-" or not word.startswith("-"):
            operands.append(word)
        elif program.counts and word[1:].isdecimal():
            continue
        else:
            whole = _long if word.startswith("--") else _short
            if not whole(program.options, word, rest, given):
                return f"uses {word}, which is not on the list of options of {name} that only read"
    return given, operands


def _long(options: Mapping[str, str], word: str, rest: Iterator[str], given: set[str]) -> bool:
    option, equals, value = word.partition("=")
    kind = options.get(option)
    if kind is None:
        return False
    given.add(option)
    if equals:
        return kind != "" and _fits(kind, value)
    return kind in ("", "joined") or _next(kind, rest)


def _short(options: Mapping[str, str], word: str, rest: Iterator[str], given: set[str]) -> bool:
    if options.get(word) == "":
        # Also one of several letters, as git has them.
        given.add(word)
        return True
    for place, letter in enumerate(word[1:], 2):
        kind = options.get(f"-{letter}")
        if kind is None:
            return False
        given.add(f"-{letter}")
        if kind:
            value = word[place:]
            return _fits(kind, value) if value else kind == "joined" or _next(kind, rest)
    return True


def _next(kind: str, rest: Iterator[str]) -> bool:
    """Whether the next word will do as a value. Text like an option may be taken for one."""
    value = next(rest, "-")
    return _fits(kind, value) and (kind == "number" or not value.startswith("-"))


def _fits(kind: str, value: str) -> bool:
    return kind != "number" or _NUMBER.fullmatch(value) is not None


# --- the list --------------------------------------------------------------------------


def options(listed: str) -> Mapping[str, str]:
    """From `-l -n=number --color=joined`. See Program."""
    return {option: kind for option, _, kind in (each.partition("=") for each in listed.split())}


PROGRAMS: Mapping[str, Program] = {
    "basename": Program(options("-a -z -s=text --multiple --suffix=text"), "text"),
    "cat": Program(
        options("-n -b -s -E -A -T -v -e -t -u --number --number-nonblank --squeeze-blank")
    ),
    "cut": Program(
        options(
            "-d=text -f=text -c=text -b=text -s -z --delimiter=text --fields=text"
            " --characters=text --bytes=text --complement --only-delimited --output-delimiter=text"
        )
    ),
    "date": Program(
        options("-u -I -R -d=text --utc --date=text --iso-8601=joined --rfc-3339=text"), "text"
    ),
    # Not -r, which follows links; not -l, which runs pr.
    "diff": Program(
        options(
            "-u -q -i -w -b -B -a -s -y -c -U=number -C=number -W=number --brief --unified=joined"
            " --color=joined --side-by-side --ignore-case --ignore-all-space --text"
        ),
        most=2,
    ),
    "dirname": Program(options("-z --zero"), "text"),
    "du": Program(
        options("-s -h -a -c -k -m -b -d=number --summarize --human-readable --max-depth=number")
    ),
    "false": Program({}, ""),
    # Not -R, which follows links; not -f, which reads patterns from anywhere.
    "grep": Program(
        options(
            "-i -v -n -c -l -L -o -w -x -E -F -G -P -q -s -h -H -r -a -I -b -z -e=text -m=number"
            " -A=number -B=number -C=number --include=text --exclude=text --exclude-dir=text"
            " --color=joined --ignore-case --line-number --count --only-matching --recursive"
            " --files-with-matches --invert-match --word-regexp --extended-regexp --fixed-strings"
            " --no-messages --max-count=number --context=number --after-context=number"
            " --before-context=number --with-filename --no-filename --quiet"
        ),
        "pattern",
        counts=True,
        deep="-r --recursive",
    ),
    "head": Program(
        options("-n=number -c=number -q -v -z --lines=number --bytes=number --quiet"), counts=True
    ),
    # Not -L and -H, which follow links.
    "ls": Program(
        options(
            "-a -A -l -h -1 -R -r -t -S -d -F -p -i -s -n -g -o -G -c -u -U -X -C -x -m -k -Q -N -q"
            " -b -B -v --all --almost-all --human-readable --recursive --reverse --directory"
            " --classify --color=joined --sort=text --time=text --group-directories-first --full-time"
            " --size --inode"
        )
    ),
    "nl": Program(options("-b=text -n=text -w=number -s=text -v=number -i=number")),
    "pwd": Program(options("-P -L"), ""),
    "realpath": Program(options("-e -m -s -q -z")),
    # Not --pre and --hostname-bin, which run programs; not -L.
    "rg": Program(
        options(
            "-i -n -c -l -o -w -x -F -v -s -S -q -H -N -U -e=text -m=number -A=number -B=number"
            " -C=number -g=text -t=text -T=text --files --ignore-case --line-number --count"
            " --files-with-matches --only-matching --word-regexp --fixed-strings --smart-case"
            " --no-heading --heading --column --max-count=number --context=number --json"
            " --color=text --type=text --sort=text --stats --multiline --no-config"
        ),
        "pattern",
        deep="*",
    ),
    # Not -o, -T, --compress-program and --files0-from; not -m, which goes through other files.
    "sort": Program(
        options(
            "-n -r -u -f -b -d -g -h -V -M -s -z -c -C -i -k=text -t=text --numeric-sort --reverse"
            " --unique --ignore-case --human-numeric-sort --version-sort --stable --key=text"
            " --field-separator=text --check"
        )
    ),
    "stat": Program(options("-c=text -t -f --format=text --printf=text --terse --file-system")),
    # Not -f, -F and --retry: it would not end.
    "tail": Program(
        options("-n=number -c=number -q -v -z --lines=number --bytes=number --quiet"), counts=True
    ),
    "tr": Program(
        options("-d -s -c -C -t --delete --squeeze-repeats --complement --truncate-set1"), "text"
    ),
    "true": Program({}, ""),
    "uname": Program(options("-a -s -r -m -n -v -o -p -i"), ""),
    # A second operand is where it writes.
    "uniq": Program(
        options(
            "-c -d -u -i -D -z -f=number -s=number -w=number --count --repeated --unique"
            " --ignore-case"
        ),
        most=1,
    ),
    "wc": Program(options("-l -w -c -m -L --lines --words --bytes --chars --max-line-length")),
}

_SHOWN = (
    " --stat --shortstat --numstat --summary --name-only --name-status --color=joined --no-color"
    " --word-diff=joined --no-ext-diff --no-textconv -w -b -U=number --unified=number -M -p --patch"
    " -S=text -G=text -i -z --minimal --patience --histogram --exit-code --quiet --no-renames"
)
_LOGGED = _SHOWN + (
    " --oneline --graph --all --decorate=joined --no-decorate --no-merges --merges --reverse"
    " --abbrev-commit --first-parent --follow --date=joined --format=joined --pretty=joined --grep=joined"
    " --author=joined --since=joined --until=joined --after=joined --before=joined -n=number"
    " --max-count=number --skip=number --no-patch -s --branches --tags"
)

#: What git may be asked, in a repository that is clean.
GIT: Mapping[str, Program] = {
    "blame": Program(
        options("-L=text -w -s -e -l -t -M -C --date=joined --porcelain --line-porcelain")
    ),
    # With a name it would make a branch.
    "branch": Program(
        options("-a -r -v -vv --list --all --remotes --verbose --show-current --no-color"), ""
    ),
    "diff": Program(options(_SHOWN + " --cached --staged --check --merge-base")),
    "log": Program(options(_LOGGED), counts=True),
    "ls-files": Program(
        options(
            "-c -d -m -o -i -s -t -u -z --cached --deleted --modified --others --stage --unmerged"
            " --exclude-standard --full-name"
        )
    ),
    "rev-parse": Program(
        options(
            "--show-toplevel --abbrev-ref --short=joined --verify -q --quiet --git-dir"
            " --is-inside-work-tree --show-prefix --show-cdup --symbolic-full-name"
        )
    ),
    "show": Program(options(_LOGGED)),
    "status": Program(
        options(
            "-s -b -u=joined -z --short --branch --porcelain=joined --long --show-stash --ignored=joined"
            " --untracked-files=joined --ahead-behind --no-ahead-behind --no-renames"
        )
    ),
}


# --- what programs do with files, as a guess -------------------------------------------

#: Programs that show what is in a file, or hand it on; then those that copy it to their last
#: operand, and those whose first is a pattern.
_READERS = frozenset(
    {"cat", "tac", "head", "tail", "less", "more", "bat", "nl", "od", "xxd", "hexdump", "strings"}
    | {"base32", "base64", "cut", "sort", "uniq", "paste", "column", "fold", "rev", "diff", "cmp"}
    | {"comm", "tar", "zip", "gzip", "source", "."}
)
_COPIERS = frozenset({"cp", "mv", "ln", "install", "rsync"})
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "sed", "awk", "gawk", "jq", "yq"})
_GIT_SHOWS = frozenset({"add", "archive", "blame", "cat-file", "diff", "log", "show"})
#: Options of git itself that take the next word.
_GIT_TAKES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})


def git_words(seen: Sequence[str]) -> Sequence[str]:
    """The subcommand of git and what follows it."""
    at = 1
    while at < len(seen) and seen[at].startswith("-"):
        at += 2 if seen[at] in _GIT_TAKES else 1
    return seen[at:]


def shown(seen: Sequence[str]) -> Sequence[str]:
    """The files whose contents a program would show, as far as its manners are known."""
    name = basename(seen[0]) if seen else ""
    if name == "git":
        words = git_words(seen)
        return words[1:] if words and words[0] in _GIT_SHOWS else ()
    operands = [word for word in seen[1:] if not word.startswith("-")]
    if name in _COPIERS:
        return operands[:-1]
    if name in _SEARCHERS:
        return operands[0 if "-e" in seen else 1 :]
    return operands if name in _READERS else ()
