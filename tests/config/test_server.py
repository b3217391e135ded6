from pathlib import Path

import pytest

from holdfast.config.server import read_server
from holdfast.config.settings import ServerSettings
from holdfast.config.tables import Setting, Table
from holdfast.errors import ConfigError

PORT = "a whole number from 0 to 65535"
STORE = "sqlite: and the path of a file"
HOST = "the name or number of a host, as in 127.0.0.1"


def server(table=None, environ=None, base=Path(), **flags):
    values = {"server": table} if table is not None else {}
    file = Table(Setting("holdfast.toml: ", values), "server")
    return read_server(file, environ or {}, base=base, **flags)


def refusal(*args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        server(*args, **kwargs)
    return str(caught.value)


def test_without_anything_set_there_are_defaults():
    assert server() == server({}) == ServerSettings()


def test_a_server_is_what_its_table_says(tmp_path):
    (tmp_path / "cert").touch()
    (tmp_path / "key").touch()
    table = {
        "host": "[::1]",
        "port": 0,
        "store": "sqlite:runs.db",
        "auth": "token",
        "hosts": ["example.org", "runs.example.org:8443", "[::7]", "[::7]:1"],
        "cors_origins": ["https://example.org/"],
        "behind_proxy": True,
        "tls_cert": "cert",
        "tls_key": "key",
        "body_limit": 1,
        "drain": 0,
        "stop_ended": 200,
    }
    assert server(table, base=tmp_path) == ServerSettings(
        host="::1",
        port=0,
        store=tmp_path / "runs.db",
        auth="token",
        hosts=("example.org", "runs.example.org:8443", "::7", "[::7]:1"),
        cors_origins=("https://example.org",),
        behind_proxy=True,
        tls_cert=tmp_path / "cert",
        tls_key=tmp_path / "key",
        body_limit=1,
        drain=0,
        stop_ended=200,
    )


def test_a_flag_counts_before_the_environment_and_that_before_the_file(tmp_path):
    table = {"host": "a", "port": 1, "store": "sqlite:a"}
    environ = {
        "HOLDFAST_HOST": "b",
        "HOLDFAST_PORT": "2",
        "HOLDFAST_STORE": "sqlite:b",
        "HOLDFAST_API_KEY": "k",
    }
    places = {"base": tmp_path / "file", "cwd": tmp_path / "here"}
    found = server(table, environ, host="c", port=3, store="sqlite:c", **places)
    assert (found.host, found.port, found.store) == ("c", 3, tmp_path / "here" / "c")
    found = server(table, environ, **places)
    assert (found.host, found.port, found.store) == ("b", 2, tmp_path / "here" / "b")
    assert found.key == "k"
    found = server(table, dict.fromkeys(environ, ""), **places)
    assert (found.host, found.port, found.key) == ("a", 1, "")
    assert found.store == tmp_path / "file" / "a"
    assert server(table, port="0").port == 0


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"HOLDFAST_PORT": "http"}, f'HOLDFAST_PORT is "http"; it must be {PORT}'),
        ({"HOLDFAST_PORT": "65536"}, f"HOLDFAST_PORT is 65536; it must be {PORT}"),
        ({"HOLDFAST_PORT": "-1"}, f'HOLDFAST_PORT is "-1"; it must be {PORT}'),
        ({"HOLDFAST_PORT": "80.5"}, f"HOLDFAST_PORT is 80.5; it must be {PORT}"),
        ({"HOLDFAST_HOST": "http://h"}, f'HOLDFAST_HOST is "http://h"; it must be {HOST}'),
        ({"HOLDFAST_HOST": " "}, f'HOLDFAST_HOST is " "; it must be {HOST}'),
        ({"HOLDFAST_STORE": "mysql://ada:hunter2@h"}, f'HOLDFAST_STORE is "mysql:…"; it must be {STORE}'),
        ({"HOLDFAST_STORE": "runs.db"}, f'HOLDFAST_STORE is "runs.db"; it must be {STORE}'),
        ({"HOLDFAST_STORE": "sqlite:/"}, "HOLDFAST_STORE is sqlite:/, which is a directory; it must be a file"),
        ({"HOLDFAST_STORE": "sqlite:a\nb"}, f'HOLDFAST_STORE is "sqlite:…"; it must be {STORE}'),
        ({"HOLDFAST_STORE": "postgresql://ada:hunter2@h/db"}, f"HOLDFAST_STORE names a PostgreSQL server, which is not supported yet; use {STORE}"),
        ({"HOLDFAST_STORE": "sqlite:"}, f'HOLDFAST_STORE is "sqlite:…"; it must be {STORE}'),
        ({"HOLDFAST_API_KEY": "hunter2 hunter2"}, "HOLDFAST_API_KEY holds blanks or signs that cannot be part of a key"),
    ],
)  # fmt: skip
def test_a_bad_variable_is_refused_by_name(environ, said):
    assert refusal(environ=environ) == said


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (5, " is 5; it must be a table"),
        ({"host": 5}, f".host is 5; it must be {HOST}"),
        ({"port": "8642"}, f'.port is "8642"; it must be {PORT}'),
        ({"port": 70000}, f".port is 70000; it must be {PORT}"),
        ({"port": True}, f".port is true; it must be {PORT}"),
        ({"store": 5}, f".store is 5; it must be {STORE}"),
        ({"auth": "basic"}, '.auth is "basic"; it must be one of token, none'),
        ({"auth": "none", "host": "0.0.0.0"}, '.auth is "none", which is for loopback only, and holdfast.toml: server.host is "0.0.0.0"'),
        ({"auth": "none", "behind_proxy": True}, '.auth is "none", which is for loopback only, and holdfast.toml: server.behind_proxy is true'),
        ({"auth": "none", "hosts": ["[::1]", "runs.example.org:8443"]}, '.auth is "none", which is for loopback only, and holdfast.toml: server.hosts[2] is "runs.example.org:8443"'),
        ({"auth": "none", "hosts": ["host.docker.internal"]}, '.auth is "none", which is for loopback only, and holdfast.toml: server.hosts[1] is "host.docker.internal"'),
        ({"hosts": "h"}, '.hosts is "h"; it must be a list of names of hosts'),
        ({"hosts": ["h", "a/b"]}, f'.hosts[2] is "a/b"; it must be {HOST}'),
        ({"hosts": ["h:0"]}, '.hosts[1] is "h:0"; it must be the name of a host, and a port from 1 to 65535 if it has one'),
        ({"cors_origins": ["*"]}, '.cors_origins[1] is "*"; it must be an address with a host that begins with http:// or https://'),
        ({"behind_proxy": "yes"}, '.behind_proxy is "yes"; it must be true or false'),
        ({"tls_cert": "c"}, ".tls_cert is set without tls_key; the two go together"),
        ({"tls_key": "k"}, ".tls_key is set without tls_cert; the two go together"),
        ({"tls_key": "/no/k", "tls_cert": "/no/c"}, ".tls_cert is /no/c, which is not there; it must be a file"),
        ({"body_limit": 0}, ".body_limit is 0; it must be a whole number, 1 or more"),
        ({"drain": -1}, ".drain is -1; it must be a number of seconds, 0 or more"),
        ({"stop_ended": 204}, ".stop_ended is 204; it must be one of 404, 200"),
        ({"api_key": "hunter2"}, ".api_key is set; a key never stands in the file: set HOLDFAST_API_KEY instead"),
        ({"cors_origin": []}, ".cors_origin is not a setting; did you mean cors_origins?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_server_is_said_in_a_sentence(table, said):
    assert refusal(table) == f"holdfast.toml: server{said}"


def test_no_key_is_needed_on_loopback_alone_whoever_names_the_host():
    assert server({"auth": "none"}).auth == "none"
    here = ["localhost", "runs.localhost:8443", "::1", "[::1]:8443", "127.0.0.1:1"]
    assert server({"auth": "none", "behind_proxy": False, "hosts": here}).auth == "none"
    assert refusal({"auth": "none"}, {"HOLDFAST_HOST": "::"}) == (
        'holdfast.toml: server.auth is "none", which is for loopback only,'
        ' and HOLDFAST_HOST is "::"'
    )
