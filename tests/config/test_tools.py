from pathlib import Path

import pytest

from holdfast.config import ToolSettings
from holdfast.config.tables import Setting, Table
from holdfast.config.tools import read_tools
from holdfast.errors import ConfigError


def read(environ=None, **values):
    table = Table(Setting("holdfast.toml: ", {"tools": values}), "tools")
    return read_tools(table, environ or {}, base=Path("/here"))


def test_what_nobody_sets_is_as_it_is_by_default():
    found = read()
    usual = ToolSettings(path=found.path)
    assert found == usual
    assert "/usr/bin" in found.path.split(":")


def test_a_command_gets_the_variables_that_are_named_and_there():
    environ = {"CARGO_HOME": "/cargo", "SECRET": "x", "PATH": "/opt/bin"}
    found = read(environ, env=["CARGO_HOME", "MISSING"])
    assert dict(found.environment) == {"CARGO_HOME": "/cargo"}
    assert found.path == "/opt/bin"
    assert "/cargo" not in repr(found)


def test_what_is_to_be_seen_of_the_home_directory_is_seen_from_the_file():
    home = Path.home()
    assert read(visible=["tools", "~/.cargo"]).visible == (Path("/here/tools"), home / ".cargo")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"memory": 1}, "tools.memory is 1; it must be a whole number of megabytes, 64 or more"),
        ({"processes": 0}, "tools.processes is 0; it must be a whole number, 16 or more"),
        ({"env": "HOME"}, 'tools.env is "HOME"; it must be a list of names of variables'),
        ({"env": ["A=B"]}, "tools.env has 'A=B' in it; it must be a list of names of variables"),
        ({"visible": [""]}, 'visible[1] is ""; it must be the path of something to see'),
        ({"jails": "off"}, "tools.jails is not a setting; did you mean jail?"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(values, sentence):
    with pytest.raises(ConfigError) as refused:
        read(**values)
    assert sentence in str(refused.value)


def test_a_command_commits_as_whoever_the_settings_of_git_say(tmp_path):
    (tmp_path / ".gitconfig").write_text(
        '[core]\n\tname = no\n[user]\n\tname = "Ada L" # me\n  email=ada@example.org\n[alias]\n\tname = x\n'
    )
    found = read({"HOME": str(tmp_path), "GIT_AUTHOR_NAME": "Bob"}, env=["GIT_AUTHOR_NAME"])
    assert dict(found.environment) == {
        "GIT_AUTHOR_NAME": "Bob",
        "GIT_COMMITTER_NAME": "Ada L",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }


def test_without_settings_of_git_nobody_is_assumed(tmp_path):
    assert dict(read({"HOME": str(tmp_path)}).environment) == {}
