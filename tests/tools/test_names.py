import time

import pytest

from holdfast.errors import ToolError
from holdfast.tools.names import (
    AT_ONCE,
    LATER,
    PROTECTED,
    SECRET,
    check_path,
    fold,
    is_obeyed,
    is_secret,
    matches_glob,
    why_reading_asks,
    why_writing_asks,
)


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/hooks/pre-commit",
        ".git/config",
        "vendor/lib/.git/config",
        ".GIT/Config",
        ".g\u200cit/config",
        "\uff0egit/config",
        ".envrc",
        "deep/.envrc",
        ".vscode/tasks.json",
        "holdfast.toml",
        ".holdfast/rules",
        ".bashrc",
        ".github/workflows/ci.yml",
        "a/.github/workflows/ci.yml",
    ],
)
def test_a_person_is_asked_before_what_programs_obey_is_written(path):
    assert why_writing_asks(path) == "programs obey what such a file says"
    assert not why_reading_asks(path)


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "app/.env.production", ".ENV", "tls/server.pem", "id_rsa", "id_rsa.old"),
        *(
            ".netrc",
            ".ssh/known_hosts",
            ".aws/config",
            "credentials",
            "credentials.json",
            "home/.kube/config",
        ),
    ],
)
def test_a_person_is_asked_before_what_looks_like_a_secret_is_read_or_written(path):
    assert is_secret(path)
    assert why_reading_asks(path) == why_writing_asks(path) != ""


@pytest.mark.parametrize(
    "path",
    [
        *("src/main.py", ".gitignore", "github/workflows/x", ".github/ISSUE.md", "environment.py"),
        *(".env.example", "id_rsa.pub", "credentials.py", "keys.py", "my.git/x", "a.git", "."),
    ],
)
def test_nobody_is_asked_about_ordinary_files(path):
    assert not why_writing_asks(path)


OBEYED_LATER = """
    holdfast.toml .holdfast .mcp.json .claude .gitconfig .bashrc .bash_profile .bash_login .bash_logout
    .profile .zshrc .zshenv .zprofile .zlogin .inputrc .vimrc .exrc
"""


def test_what_programs_obey_is_on_the_lists():
    """The jail, which keeps such names from coming into being, goes by the same ones."""
    assert set(OBEYED_LATER.split()) <= set(LATER) and {".vscode", ".envrc"} <= set(AT_ONCE)
    for name in (*OBEYED_LATER.split(), ".vscode", ".envrc", ".git", ".holdfast-x"):
        assert is_obeyed(f"a/{name.upper()}/b"), name
    assert not is_obeyed(".github/workflows/ci.yml") and not is_obeyed(".gitignore")


def test_each_name_on_the_lists_is_found_by_itself():
    for name in PROTECTED:
        assert why_writing_asks(name.replace("*", "x")), name
    for name in SECRET:
        assert why_reading_asks(name.replace("*", "x")), name


def test_a_path_that_can_be_none_is_refused():
    for path in (".", "a/b", "./~", "ü" * 127, "a/" * 2047):
        check_path(path)
    for path in ("", "a\0", "~", "~/a", "ü" * 128, "a/" * 2049):
        with pytest.raises(ToolError):
            check_path(path)


def test_spellings_of_one_name_are_the_same():
    assert fold("Ä/ﬁle") == fold("A\u0308/FILE") == "ä/file"


@pytest.mark.parametrize(
    ("path", "pattern", "matches"),
    [
        ("a.py", "*.py", True),
        ("deep/down/a.py", "*.py", True),
        ("a.pyc", "*.py", False),
        ("src/a.py", "src/*.py", True),
        ("src/a.py", "./src/*.py", True),
        ("src/b/a.py", "src/*.py", False),
        ("src/b/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("src/b/c/a.py", "**/c/*.py", True),
        ("a.py", "**/*.py", True),
        ("src/a.py", "src/**", True),
        ("other/a.py", "src/**", False),
        ("a.py", "a.py/b", False),
        ("a/b", "a", False),
        ("A.py", "a.py", False),
    ],
)
def test_a_pattern_means_these_paths(path, pattern, matches):
    assert matches_glob(path, pattern) is matches


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("a" * 255, "*a" * 100 + "b"),
        ("/".join("a" * 500), "**/a/" * 30 + "b"),
        ("/".join(["a" * 250] * 8), "**/*a*a*a*a*a*a/" * 20 + "b"),
    ],
)
def test_no_pattern_takes_long(path, pattern):
    began = time.perf_counter()
    assert not matches_glob(path, pattern)
    assert time.perf_counter() - began < 8
