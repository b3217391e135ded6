"""How the server is reached, by whom, and where it keeps things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.config.addresses import is_loopback, origin
from holdfast.config.models import key_in
from holdfast.config.places import existing_file, path
from holdfast.config.settings import ServerSettings
from holdfast.config.tables import Setting, Table, chosen, shown, spelled, visible

_KEYS = (
    "host port store auth hosts cors_origins behind_proxy tls_cert tls_key body_limit drain"
    " stop_ended"
)
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.%]+\]?")
_WITH_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORT = "a whole number from 0 to 65535"


def read_server(
    file: Table,
    environ: Mapping[str, str],
    *,
    base: Path,
    host: str | None = None,
    port: str | int | None = None,
    store: str | None = None,
    cwd: Path = Path(),
) -> ServerSettings:
    """`base` is where relative paths of the file begin, `cwd` where others do. Raises ConfigError."""
    table = file.table("server", _KEYS, instead_of_a_key="set HOLDFAST_API_KEY instead")
    here = ServerSettings()
    wanted = chosen(Setting("--host", host), "HOLDFAST_HOST", environ, table.get("host", here.host))
    cert, key = _tls(table, base)
    return ServerSettings(
        host=_host(wanted),
        port=_port(table, environ, port, here.port),
        store=read_store(table.get("store", ""), environ, flag=store, base=base, cwd=cwd),
        key=key_in("HOLDFAST_API_KEY", environ),
        auth=_auth(table, wanted),
        hosts=_hosts(table.get("hosts", [])),
        cors_origins=_origins(table.get("cors_origins", [])),
        behind_proxy=table.get("behind_proxy", here.behind_proxy).flag(),
        tls_cert=cert,
        tls_key=key,
        body_limit=table.get("body_limit", here.body_limit).count(least=1),
        drain=table.get("drain", here.drain).number("a number of seconds, 0 or more"),
        stop_ended=table.get("stop_ended", here.stop_ended).one_of(404, 200),
    )


def _host(setting: Setting) -> str:
    must = "the name or number of a host, as in 127.0.0.1"
    host = setting.word(must)
    if not _HOST.fullmatch(host):
        raise setting.wrong(must)
    return host.strip("[]")


def _port(table: Table, environ: Mapping[str, str], flag: str | int | None, usual: int) -> int:
    setting = chosen(Setting("--port", flag), "HOLDFAST_PORT", environ, Setting("", None))
    if setting.value is None:
        return table.get("port", usual).count(most=65535, must=_PORT)
    return Setting(setting.name, spelled(str(setting.value))).count(most=65535, must=_PORT)


def read_store(
    file: Setting, environ: Mapping[str, str], *, flag: str | None = None, base: Path, cwd: Path
) -> Path | None:
    """The file that holds every run, if it is not the usual one. Raises ConfigError."""
    setting = chosen(Setting("--store", flag), "HOLDFAST_STORE", environ, file)
    must = "sqlite: and the path of a file"
    store = setting.text(must)
    if not store:
        return None
    if store.startswith(("postgresql:", "postgres:")):
        raise setting.refuse(f"names a PostgreSQL server, which is not supported yet; use {must}")
    name = store.removeprefix("sqlite:")
    if name == store or not name.strip() or not name.isprintable():
        # The rest may hold a password.
        scheme = _SCHEME.match(store)
        raise Setting(setting.name, f"{scheme[0]}…" if scheme else store).wrong(must)
    found = path(Setting(setting.name, name), base if setting is file else cwd, must)
    if found.is_dir():
        raise setting.refuse(f"is {visible(store)}, which is a directory; it must be a file")
    return found


def _auth(table: Table, host: Setting) -> str:
    setting = table.get("auth", "token")
    auth = setting.one_of("token", "none")
    if auth == "none" and (opening := next(_openings(table, host), None)):
        raise setting.refuse(
            f'is "none", which is for loopback only, and {opening.name} is {shown(opening.value)}'
        )
    return auth


def _openings(table: Table, host: Setting) -> Iterator[Setting]:
    """Settings by which others than this machine come in."""
    for name in (host, *table.get("hosts", []).each("names of hosts")):
        said = _WITH_PORT.fullmatch(str(name.value))
        if not is_loopback(said[0].rpartition(":")[0] if said else str(name.value)):
            yield name
    # All that comes through it comes from this machine, whoever sent it.
    if (proxy := table.get("behind_proxy", False)).flag():
        yield proxy


def _hosts(setting: Setting) -> tuple[str, ...]:
    return tuple(_known_as(each) for each in setting.each("names of hosts"))


def _known_as(setting: Setting) -> str:
    """A name, or a name and the port by which others reach it."""
    said = _WITH_PORT.fullmatch(str(setting.value))
    if said is None:
        return _host(setting)
    if not 0 < int(said[1]) <= 65535:
        raise setting.wrong("the name of a host, and a port from 1 to 65535 if it has one")
    return said[0]


def _origins(setting: Setting) -> tuple[str, ...]:
    return tuple(origin(each) for each in setting.each("origins"))


def _tls(table: Table, base: Path) -> tuple[Path | None, Path | None]:
    if table.has("tls_cert") != table.has("tls_key"):
        have, lack = ("tls_cert", "tls_key") if table.has("tls_cert") else ("tls_key", "tls_cert")
        raise table.get(have, "").refuse(f"is set without {lack}; the two go together")
    if not table.has("tls_cert"):
        return None, None
    return existing_file(table.get("tls_cert", ""), base), existing_file(
        table.get("tls_key", ""), base
    )
