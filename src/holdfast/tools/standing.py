"""What a standing yes may cover: the words of one command that runs nothing but itself.

A yes to a shell, an interpreter, a wrapper or a build says nothing about the next use: what it runs
stands in a text, in the workspace, or with a host, and a model may have changed that since. Nobody
can list all that run others, so the few are listed that do not, with what they may be told. It is
the same in the jail, with the network and on the host: where nobody is asked, nobody needs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.tools import repository
from holdfast.tools.programs import GIT, PROGRAMS, Program, options, taken
from holdfast.tools.readonly import beneath
from holdfast.tools.shell import Script

#: They run nothing, whatever they are told.
_ALONE = frozenset(
    {"touch", "mkdir", "rmdir", "rm", "unlink", "shred", "truncate", "mv", "cp", "ln", "dd"}
    | {"chmod", "chown", "chgrp", "echo"}
)

_CLUSTER = (
    "-n=text -A -o=text -l=text --namespace=text --all-namespaces --output=text --selector=text"
    " --context=text --show-labels --sort-by=text --no-headers"
)
#: They run nothing if they are told no more than this.
_TOLD: Mapping[str, Program] = {
    **PROGRAMS,
    # Not -K, which reads more options; nothing that sends a file.
    "curl": Program(
        options(
            "-s -S -f -L -I -i -v -o=text -O -m=number --silent --show-error --fail --location"
            " --head --include --verbose --compressed --output=text --remote-name --max-time=number"
        )
    ),
    # Not --kubeconfig: that may name a program.
    **dict.fromkeys(("kubectl get", "kubectl describe", "kubectl top"), Program(options(_CLUSTER))),
    "kubectl logs": Program(
        options(
            "-n=text -c=text -l=text -f -p --namespace=text --container=text --selector=text"
            " --context=text --tail=number --since=text --previous --follow --all-containers"
        )
    ),
}
_DOCKER = frozenset(
    {"ps", "images", "logs", "inspect", "version", "info", "top", "port", "stats", "stop", "kill"}
    | {"rm", "rmi"}
)
_GITHUB = re.compile(
    r"(pr|issue|release|run|workflow) (list|view|status|create|comment|close|reopen|edit|diff|checks"
    r"|review|ready|merge|watch|rerun|cancel)"
)

#: What git may be told, where its repository names no program. Not --exec, --receive-pack and the
#: like; not `rebase --continue`, which goes on with a list that may hold commands.
_GIT: Mapping[str, Program] = {
    **GIT,
    "add": Program(options("-A -u -f -v -n --all --update --force")),
    "branch": Program(
        options("-a -r -v -vv -d -D -m -M -f --list --all --delete --force --move --show-current")
    ),
    "checkout": Program(options("-b -B -f -q -t --force --quiet --track --detach --orphan")),
    "cherry-pick": Program(options("-n -x --no-commit --no-edit --abort")),
    "clean": Program(options("-f -d -x -X -n -q --force --dry-run --quiet")),
    "commit": Program(
        options("-m=text -a -q -s --message=text --all --amend --no-edit --allow-empty --signoff")
    ),
    "fetch": Program(options("-p -t -q -v --prune --tags --depth=number --unshallow --dry-run")),
    "merge": Program(options("-m=text -q --no-ff --ff --ff-only --squash --abort --no-edit")),
    "mv": Program(options("-f -k -n -v")),
    "pull": Program(options("-p -q -v --prune --ff-only --rebase=joined --no-rebase --no-edit")),
    "push": Program(
        options(
            "-u -f -n -d -q -v --set-upstream --force --force-with-lease=joined --dry-run --delete"
            " --tags --follow-tags --all --prune --atomic --quiet --verbose"
        )
    ),
    "rebase": Program(options("-q --onto=text --abort --quit --autostash --no-autostash")),
    "reset": Program(options("-q --hard --soft --mixed --keep --quiet")),
    "restore": Program(options("-S -W -s=text --staged --worktree --source=text")),
    "revert": Program(options("-n --no-commit --no-edit --abort")),
    "rm": Program(options("-r -f -q -n --cached --force")),
    "stash": Program(options("-m=text -u -k -q --message=text --include-untracked --keep-index")),
    "switch": Program(options("-c -C -f -d -t --create --detach --discard-changes --track")),
    "tag": Program(options("-a -d -f -l -n -m=text --delete --list --message=text")),
}
#: These speak to another repository, which may be a folder with hooks of its own.
_AFAR = frozenset({"push", "fetch", "pull"})
#: What the shell that is started may look for beside the program itself.
_SHELLS = ("bash", "sh")
#: These look for more: a helper that knows a password, an editor, whatever interprets those.
_HELPED = frozenset({"git", "gh", "docker", "podman", "kubectl"})


def standing(script: Script, *, workspace: str, directory: str, path: str = "") -> tuple[str, ...]:
    """The words that a standing yes may cover, in this place and with this PATH; none if it may not."""
    if not script.plain or len(script.commands) != 1:
        return ()
    only = script.commands[0]
    words = tuple(word for word in only.words if word is not None)
    simple = len(words) == len(only.words) > 0 and not only.assignments and not only.redirections
    # Three dots are our sign for "and whatever follows".
    if not simple or words[-1] == "..." or not _alone(words, workspace, directory):
        return ()
    return () if _provided(words[0], path, workspace, directory) else words


def _alone(words: Sequence[str], workspace: str, directory: str) -> bool:
    """Whether it runs nothing else."""
    name, *rest = words
    if name in _ALONE:
        return True
    if name == "find":
        return not any(re.match(r"-(exec|ok)", word) for word in rest)
    if name in ("docker", "podman"):
        return rest[:1] != [] and rest[0] in _DOCKER
    if name == "gh":
        known = _GITHUB.fullmatch(" ".join(rest[:2])) is not None
        return known and repository.remotes(Path(directory), Path(workspace)) is not None
    if name == "git":
        return _git(rest, workspace, directory)
    for much in (2, 1):
        program = _TOLD.get(" ".join(words[:much]))
        if program and not isinstance(taken(name, program, words[much:]), str):
            return True
    return False


def _git(words: Sequence[str], workspace: str, directory: str) -> bool:
    """An option before the subcommand can name a program, and so can a repository."""
    program = _GIT.get(words[0]) if words else None
    told = taken(words[0], program, words[1:]) if program else ""
    if isinstance(told, str):
        return False
    remotes = repository.remotes(Path(directory), Path(workspace))
    if remotes is None:
        return False
    # Where it goes must be said: a branch may be set to go to a folder.
    to = told[1][0] if told[1] else ""
    return words[0] not in _AFAR or to in remotes or repository.is_far(to)


def _provided(name: str, path: str, workspace: str, directory: str) -> bool:
    """Whether the workspace has what it runs, on the PATH: a model may have written that."""
    looked_for = ("",) if name in _HELPED else (name, *_SHELLS)
    for entry in path.split(":") if path else ():
        place = os.path.join(directory, entry)  # noqa: PTH118 (text, as all here)
        if beneath(os.path.realpath(place), workspace) and any(
            os.path.lexists(os.path.join(place, each))  # noqa: PTH118
            for each in looked_for
        ):
            return True
    return False
