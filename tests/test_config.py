from pathlib import Path

import pytest

from holdfast.config import Settings, read_settings, secrets
from holdfast.errors import ConfigError


def data(flag=None, platform="linux", **environ):
    return str(read_settings(data=flag, environ=environ, platform=platform).data)


def test_a_flag_counts_before_the_environment_and_that_before_the_default(tmp_path):
    assert data("/flag", HOLDFAST_DATA="/env", HOME="/h/ada") == "/flag"
    assert data(HOLDFAST_DATA="/env", XDG_DATA_HOME="/xdg", HOME="/h/ada") == "/env"
    assert data(XDG_DATA_HOME="/xdg", HOME="/h/ada") == "/xdg/holdfast"
    assert data(HOME="/h/ada") == "/h/ada/.local/share/holdfast"


def test_on_a_mac_the_data_is_where_a_mac_keeps_it():
    place = "/U/ada/Library/Application Support/holdfast"
    assert data(platform="darwin", HOME="/U/ada", XDG_DATA_HOME="/xdg") == place


def test_what_is_set_to_nothing_is_not_set():
    assert data(HOLDFAST_DATA="", XDG_DATA_HOME="", HOME="/h") == "/h/.local/share/holdfast"
    assert data(XDG_DATA_HOME="relative", HOME="/h") == "/h/.local/share/holdfast"


def test_a_path_may_be_relative_or_begin_at_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/h/ada")
    assert data("here") == str(tmp_path / "here")
    assert data(HOLDFAST_DATA="~/runs") == "/h/ada/runs"


@pytest.mark.parametrize("value", ["", "  ", "a\0b"])
def test_a_flag_without_a_path_is_refused_by_name(value):
    with pytest.raises(ConfigError, match=r"^--data is .*; it must be the path of a directory$"):
        data(value)


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"^HOLDFAST_DATA is .*/file, which is a file; it must be"
    ):
        data(HOLDFAST_DATA=str(tmp_path / "file"))


def test_a_path_that_cannot_be_looked_at_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^--data is .*, which cannot be used: .*too long"):
        data("/" + "x" * 5000)
    with pytest.raises(ConfigError, match=r"^--data is ~nobody_at_all/x, which cannot be used"):
        data("~nobody_at_all/x")


def test_without_a_home_the_setting_to_make_is_named(monkeypatch):
    def homeless(path):
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(ConfigError, match=r"HOME is not set.*; set HOLDFAST_DATA$"):
        data()


def test_settings_do_not_change():
    with pytest.raises(AttributeError):
        Settings(Path("/x")).data = Path("/y")


def test_secrets_are_known_by_the_names_of_their_variables():
    environ = {
        "OPENAI_API_KEY": "sk-12345678",
        "github_token": "ghp-0123456789",
        "DB_PASSWORD": "12345678",
        "A_SECRET": "1234567",
        "HOME": "/h/ada/and/so/on",
    }
    assert secrets(environ) == ("ghp-0123456789", "sk-12345678", "12345678")
