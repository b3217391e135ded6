"""Every snippet in the documentation runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.config import read_settings

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if path.exists())

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<words>[^\n]*)\n(?P<body>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


class Snippet(NamedTuple):
    page: str
    line: int
    language: str
    words: str
    body: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def snippets(page, text):
    """The fenced blocks of a page, without the indent of a list they may stand in."""
    for found in FENCE.finditer(text):
        indent = found["indent"]
        body = re.sub(rf"^{indent}", "", found["body"], flags=re.MULTILINE)
        line = text.count("\n", 0, found.start()) + 2
        yield Snippet(page, line, found["language"], found["words"].strip(), body)


def commands(snippet):
    """What a reader would type: lines after `$ `, or all lines of a sh block."""
    lines = snippet.body.replace("\\\n", " ").splitlines()
    if snippet.language == "console":
        return [line[2:].strip() for line in lines if line.startswith("$ ")]
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


SNIPPETS = [
    snippet
    for page in PAGES
    for snippet in snippets(str(page.relative_to(ROOT)), page.read_text())
    # ```python no-run: for the few that need a key or never end.
    if "no-run" not in snippet.words
]
PYTHON = [snippet for snippet in SNIPPETS if snippet.language == "python"]
SETTINGS = [snippet for snippet in SNIPPETS if snippet.language == "toml"]
COMMANDS = [
    pytest.param(command, id=f"{snippet}: {command}")
    for snippet in SNIPPETS
    if snippet.language in ("console", "sh", "bash")
    for command in commands(snippet)
]


@pytest.mark.parametrize("snippet", PYTHON, ids=str)
def test_a_python_snippet_runs(snippet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Blank lines in front, so that a traceback names the line of the page.
    code = compile("\n" * (snippet.line - 1) + snippet.body, str(ROOT / snippet.page), "exec")
    exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize("snippet", SETTINGS, ids=str)
def test_a_file_of_settings_is_accepted(snippet, tmp_path):
    file = tmp_path / "holdfast.toml"
    file.write_text(snippet.body)
    environ = {"HOME": str(tmp_path), "OPENAI_API_KEY": "sk-for-this-page"}
    assert read_settings(config=str(file), environ=environ).models


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(command, tmp_path):
    words = shlex.split(command, comments=True)
    if words[0] == "make":
        assert set(targets(words)) <= make_targets(), f"{command}: there is no such target"
    elif words[0] == "holdfast":
        done = run_holdfast(words[1:], tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    else:
        pytest.skip("not one of our commands")


def targets(words):
    return [word for word in words[1:] if "=" not in word and not word.startswith("-")]


def make_targets():
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def run_holdfast(words, folder):
    """The command as installed beside this Python, in an empty folder, with no settings."""
    settings = {"HOME": str(folder), "PATH": os.defpath, "HOLDFAST_DATA": str(folder / "data")}
    # What the command runs is counted, and it does not ask a model that this machine happens to have.
    given = ("COVERAGE_", "HOLDFAST_CONFIG")
    measured = {key: value for key, value in os.environ.items() if key.startswith(given)}  # noqa: TID251 (see above)
    return subprocess.run(
        [Path(sys.executable).with_name("holdfast"), *words],
        cwd=folder,
        env=settings | measured,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


PAGE = """
A list may hold a snippet:

1. First

   ```python
   import anyio
   print(anyio.run(anyio.sleep, 0))
   ```

```console
$ make test ARGS="-k stop"
3 passed
$ holdfast run \\
    "hello"
```

```python no-run
serve_for_ever()
```

```sh
# a comment
make check
```
"""


def test_snippets_are_found_with_their_place():
    first, second, third, fourth = snippets("page.md", PAGE)
    assert str(first) == "page.md:7"
    assert first.body == "import anyio\nprint(anyio.run(anyio.sleep, 0))\n"
    assert [shlex.split(command) for command in commands(second)] == [
        ["make", "test", "ARGS=-k stop"],
        ["holdfast", "run", "hello"],
    ]
    assert third.words == "no-run"
    assert commands(fourth) == ["make check"]


def test_targets_of_a_make_command_are_told_from_its_settings():
    assert targets(["make", "-s", "test", "ARGS=-k stop"]) == ["test"]
    assert {"help", "run", "test", "check", "fix", "soak", "lock", "clean"} <= make_targets()
