#!/usr/bin/env python
"""How long the gate takes to judge a shell command.

Each command is judged many times in a small workspace with a repository in it, and texts that were
made to be slow a few times. Exits with 1 if the median over all commands passes its limit, or the
slowest text, at its best, passes the other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

from holdfast.tools.gate import LONGEST, Ruling, judge

#: Microseconds for the median judgement.
LIMIT = 200.0
#: Milliseconds for the slowest text there is: everybody else waits meanwhile.
WORST_LIMIT = 50.0

COMMANDS = (
    "ls -la",
    "cat README.md",
    "grep -rn 'def main' src",
    "find . -name '*.py' -type f",
    "git status --short",
    "git log --oneline -5",
    "sed -n '1,20p' README.md | head -3 && echo done",
    "sort README.md | uniq -c | sort -rn | head 2>/dev/null",
    "cd src && cat a.py",
    "pytest -q -x tests",
    "npm run build -- --watch=false",
    "python3 -c 'print(1 + 1)'",
    "git commit -m 'mend the parser'",
    "rm -rf build",
    'for f in src/*.py; do wc -l "$f"; done',
    "sudo bash -c 'rm -rf /'",
)

_NUMBERS = " ".join(map(str, range(11_000)))
HOSTILE = (
    *((piece * LONGEST)[:LONGEST] for piece in ("(", '"', "'a'", "a;", "a|", "a ", "\\", "eval ")),
    *(
        (piece * LONGEST)[:LONGEST]
        for piece in ("<<E\n", "<<'E'\nE\n", "$IFS", ":(){", "rm -r src;")
    ),
    *("a|" * 700, "${a" * 600, "a=(" * 180, "<<E\n" * 33 + "x" * 30_000, "a " * 3900),
    *("rm -rf " + "src " * 10_000, "find " + "src " * 1000 + "-name x -delete"),
    *(f"cd a;cd b;cd c;cd d;rm {_NUMBERS}", f"cd a;cd b;cd c;cd d;rm -r {_NUMBERS}"),
    *("cat README.md;" * 190, "git log;" * 190, "grep -r x .;" * 190),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=500, help="judgements of each command (500)")
    times = parser.parse_args().times
    if times < 2:
        parser.error("--times must be at least 2")
    with TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace")
        furnish(workspace)
        everything = [
            taken
            for jailed in (False, True)
            for command in COMMANDS
            for taken in measured(command, times, workspace, jailed=jailed)
        ]
        worst = max(slowest(text, workspace, jailed=j) for j in (False, True) for text in HOSTILE)
    middle = median(everything)
    print(f"\nmedian of all: {middle:.0f} µs, limit {LIMIT:.0f} µs")
    print(f"slowest text: {worst:.0f} ms, limit {WORST_LIMIT:.0f} ms")
    return 1 if middle > LIMIT or worst > WORST_LIMIT else 0


def slowest(text: str, workspace: Path, *, jailed: bool) -> float:
    """Milliseconds to judge it: the best of five, for machines have other things to do."""
    taken: list[float] = []
    for _ in range(5):
        began = perf_counter()
        judge(text, jailed=jailed, workspace=workspace, directory=workspace, pid=1)
        taken.append((perf_counter() - began) * 1e3)
    return min(taken)


def furnish(workspace: Path) -> None:
    (workspace / "src").mkdir(parents=True)
    (workspace / "build").mkdir()
    (workspace / "README.md").write_text("to be\nor not\n")
    (workspace / "src/a.py").write_text("def main(): ...\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)  # noqa: S607


def measured(command: str, times: int, workspace: Path, *, jailed: bool) -> list[float]:
    """Microseconds of each judgement; prints a line about them."""
    ours = [workspace.parent / "ours"]
    taken: list[float] = []
    ruling = Ruling("ask")
    for _ in range(times + 1):
        began = perf_counter()
        ruling = judge(
            command, jailed=jailed, workspace=workspace, directory=workspace, ours=ours, pid=1
        )
        taken.append((perf_counter() - began) * 1e6)
    del taken[0]  # it loads the grammar
    where = "jailed" if jailed else "free"
    tail = quantiles(taken, n=100)[98]
    print(f"{where:6}  {ruling.gate:6}  {median(taken):6.0f} µs  p99 {tail:6.0f} µs  {command}")
    return taken


if __name__ == "__main__":
    sys.exit(main())
