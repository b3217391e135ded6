import socket

import pytest

from holdfast.config.models import TTFB
from holdfast.config.offer import is_listening, offered
from holdfast.config.settings import DEMO
from holdfast.core.watchdog import Patience
from holdfast.errors import ConfigError
from holdfast.models.catalog import Price


def nobody(host, port):
    return False


def not_asked(host, port):
    pytest.fail("there was no need to ask")


KEYS = {
    "OPENROUTER_API_KEY": "key-router",
    "ANTHROPIC_API_KEY": "key-anthropic",
    "OPENAI_API_KEY": "key-openai",
}


def test_the_first_key_that_is_set_decides():
    environ = dict(KEYS)
    found = offered(environ, not_asked)
    assert (found.wire, found.model) == ("openai-responses", "gpt-5.5")
    assert (found.base_url, found.key) == ("https://api.openai.com/v1", "key-openai")
    assert (found.price, found.window) == (Price(5.0, 30.0, 0.5), 1_050_000)
    del environ["OPENAI_API_KEY"]
    found = offered(environ, not_asked)
    assert (found.wire, found.model) == ("anthropic", "claude-sonnet-5-5")
    assert (found.base_url, found.key) == ("https://api.anthropic.com/v1", "key-anthropic")
    environ["ANTHROPIC_API_KEY"] = ""
    found = offered(environ, not_asked)
    assert (found.wire, found.model) == ("openai-chat", "openai/gpt-5.5")
    assert (found.base_url, found.key) == ("https://openrouter.ai/api/v1", "key-router")
    assert (found.name, found.key_env) == ("main", "OPENROUTER_API_KEY")


def test_without_a_key_there_is_whatever_runs_here():
    asked = []

    def somebody(host, port):
        asked.append((host, port))
        return True

    found = offered({"OPENAI_API_KEY": " "}, somebody)
    assert asked == [("127.0.0.1", 11434)]
    assert (found.name, found.wire, found.model) == ("main", "openai-chat", "")
    assert (found.base_url, found.key, found.key_env) == ("http://127.0.0.1:11434/v1", "", "")
    assert found.patience == Patience(connect=30, first=900, between=120, whole=1800)


def test_without_anything_there_is_the_demo():
    assert offered({}, nobody) == DEMO


def test_a_limit_of_the_environment_counts_here_too():
    found = offered(KEYS | {TTFB: "7"}, not_asked)
    assert (found.patience.first, found.grows) == (7, ("between", "whole"))


def test_a_key_that_cannot_be_one_is_refused_unseen():
    with pytest.raises(ConfigError, match=r"^OPENAI_API_KEY holds blanks or signs that cannot"):
        offered({"OPENAI_API_KEY": "two words"}, nobody)


def test_listening_is_told_from_silence():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_listening("127.0.0.1", port)
    assert not is_listening("127.0.0.1", port)
