"""The models of the file, one table each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from holdfast.config.addresses import base_url, is_loopback_url
from holdfast.config.settings import ModelSettings
from holdfast.config.tables import Setting, Table, looks_like_a_key, shown, spelled
from holdfast.core.watchdog import Patience
from holdfast.models.catalog import WIRES, Price, is_silent_reasoner, price_of, window_of

#: Sets how long to wait for the first event on the Responses wire.
TTFB = "HERMES_CODEX_TTFB_TIMEOUT_SECONDS"

_KEYS = (
    "wire model base_url api_key_env fallback stream window price headers concurrency"
    " patience retry options"
)
_SILENT = 600.0
_LOCAL = 900.0

#: Where a wire leads if nobody says otherwise, and where its key is found then.
_HOMES = {
    "openai-chat": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openai-responses": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "demo": ("", ""),
}

_NAME = re.compile(r"[\w.:/@+-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key"})

#: Headers that say who asks and how, which everybody may know. Any other may hold a key.
_PUBLIC_HEADERS = frozenset(
    ("accept", "accept-language", "user-agent", "content-type", "origin", "referer", "http-referer")
) | frozenset(
    ("x-title", "anthropic-version", "anthropic-beta", "openai-beta", "openai-organization")
)

_NAME_A_VARIABLE = "put it in a variable of the environment and name that in api_key_env"


class Limits(NamedTuple):
    """`grows` are those of `patience` that were left as they are by default."""

    patience: Patience
    grows: tuple[str, ...]


def read_models(table: Table, environ: Mapping[str, str]) -> Mapping[str, ModelSettings]:
    """By name, in the order of the file; none if it has none. Raises ConfigError."""
    ttfb = first_event(environ)
    written = dict(table.named("models"))
    models = {
        name: _model(name, setting, written, environ, ttfb) for name, setting in written.items()
    }
    return MappingProxyType(models)


def default_model(table: Table, models: Mapping[str, ModelSettings]) -> str:
    """The one that is named, else main, else the first. Raises ConfigError."""
    usual = "main" if "main" in models else next(iter(models))
    setting = table.get("default_model", usual)
    name = setting.text("the name of a model")
    if name not in models:
        raise setting.refuse(f"is {shown(name)}, and no model has that name; {_there_is(models)}")
    return name


def first_event(environ: Mapping[str, str]) -> float | None:
    """How long the environment would have us wait on the Responses wire. Raises ConfigError."""
    text = environ.get(TTFB)
    return Setting(TTFB, spelled(text)).seconds() if text else None


def limits(
    table: Table | None, *, wire: str, model: str, url: str, ttfb: float | None = None
) -> Limits:
    """What is set counts as it is. Only a default knows what kind of model it is for."""
    usual = {"connect": 30.0, "first": 45.0, "between": 120.0, "whole": 1800.0}
    if is_silent_reasoner(model):
        usual["first"] = usual["between"] = _SILENT
    if is_loopback_url(url):
        usual["first"] = _LOCAL
    fixed = {
        name: table.get(name, 0).seconds()
        for name in usual
        if table is not None and table.has(name)
    }
    if wire == "openai-responses" and ttfb is not None:
        fixed["first"] = ttfb
    grows = tuple(name for name in ("first", "between", "whole") if name not in fixed)
    return Limits(Patience(**(usual | fixed)), grows)


def key_in(variable: str, environ: Mapping[str, str]) -> str:
    """The key that a variable holds, "" if there is none. Raises ConfigError."""
    return checked_key(environ.get(variable, "").strip(), Setting(variable, ""))


def checked_key(key: str, setting: Setting) -> str:
    """Raises ConfigError, which does not repeat it."""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise setting.refuse("holds blanks or signs that cannot be part of a key")
    return key


def _model(
    name: str,
    setting: Setting,
    names: Collection[str],
    environ: Mapping[str, str],
    ttfb: float | None,
) -> ModelSettings:
    if not _NAME.fullmatch(name):
        raise setting.refuse(
            "has a name that cannot be used; use letters, digits and . : / @ + - _"
        )
    table = Table(setting, _KEYS, instead_of_a_key=_NAME_A_VARIABLE)
    wire = table.need("wire", f"one of {', '.join(WIRES)}").one_of(*WIRES)
    home, home_key = _HOMES[wire]
    url = base_url(table.get("base_url", home)) if wire != "demo" or table.has("base_url") else ""
    model = _model_id(table, wire)
    variable, key = _key(table, home_key if url == home else "", environ)
    fallback = _fallback(table, name, names)
    retry = table.table("retry", "attempts total hedge hedge_to")
    written = table.table("patience", "connect first between whole")
    patience, grows = limits(written, wire=wire, model=model, url=url, ttfb=ttfb)
    return ModelSettings(
        name=name,
        wire=wire,
        model=model,
        base_url=url,
        key=key,
        key_env=variable,
        fallback=fallback,
        stream=table.get("stream", True).flag(),
        window=table.get("window", window_of(model)).count(),
        price=_price(table, model),
        headers=_headers(table),
        concurrency=table.get("concurrency", 1).count(least=1) if table.has("concurrency") else 0,
        patience=patience,
        grows=grows,
        attempts=retry.get("attempts", 4).count(least=1),
        total=retry.get("total", 600).number("a number of seconds, 0 for no limit"),
        hedge=_hedge(retry.get("hedge", "off")),
        hedge_to=_hedge_to(retry.get("hedge_to", "same"), fallback),
        options=_options(table.get("options", {})),
    )


def _model_id(table: Table, wire: str) -> str:
    must = "the endpoint's own name for the model, as in gpt-5.5"
    if wire == "demo" and not table.has("model"):
        return "demo"
    return table.need("model", must).word(must)


def _key(table: Table, usual: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable and what it holds. A model that names none, at an address of its own, has none."""
    setting = table.get("api_key_env", usual)
    if not table.has("api_key_env") and not usual:
        return "", ""
    variable = setting.value
    if (
        not isinstance(variable, str)
        or not _VARIABLE.fullmatch(variable)
        or looks_like_a_key(variable)
    ):
        # Not shown: it may well be the key.
        raise setting.refuse(
            "is not the name of a variable; a key never stands in the file: " + _NAME_A_VARIABLE
        )
    key = key_in(variable, environ)
    if not key:
        how = "names" if table.has("api_key_env") else "is left out, which means"
        raise setting.refuse(f"{how} {variable}, and that is not set in the environment")
    return variable, key


def _fallback(table: Table, name: str, names: Collection[str]) -> tuple[str, ...]:
    setting = table.get("fallback", [])
    fallback = setting.words("names of models")
    for place, other in enumerate(fallback):
        if other == name:
            raise setting.refuse(f"names {shown(other)}, which is the model itself")
        if other not in names:
            raise setting.refuse(
                f"names {shown(other)}, and no model has that name; {_there_is(names)}"
            )
        if other in fallback[:place]:
            raise setting.refuse(f"names {shown(other)} twice")
    return fallback


def _price(table: Table, model: str) -> Price | None:
    if not table.has("price"):
        return price_of(model)
    must = "a price for a million tokens"
    price = table.table("price", "input output cached written")
    fresh = price.need("input", must).number(must)
    return Price(
        input=fresh,
        output=price.need("output", must).number(must),
        cached=price.get("cached", fresh).number(must),
        written=price.get("written", fresh).number(must) if price.has("written") else None,
    )


def private_headers(model: ModelSettings) -> Iterator[str]:
    """Values of headers that may be keys by another name, with and without the scheme before them."""
    for name, value in model.headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            yield value
            if value.count(" ") == 1:
                yield value.partition(" ")[2]


def _headers(table: Table) -> Mapping[str, str]:
    headers = {}
    for name, setting in table.named("headers"):
        if not _HEADER.fullmatch(name):
            raise setting.refuse("has a name that no header can have")
        if name.lower() in _KEY_HEADERS:
            raise setting.refuse(f"is set; a key never stands in the file: {_NAME_A_VARIABLE}")
        # Not shown: it may well be a key by another name.
        value = setting.value
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
            raise setting.refuse("has a value that no header can have; it must be a text in ASCII")
        headers[name] = value.strip()
    return MappingProxyType(headers)


def _hedge(setting: Setting) -> float:
    if setting.value == "off":
        return 0.0
    must = '"off" or a number of seconds above 0'
    seconds = setting.number(must)
    if not seconds:
        raise setting.wrong(must)
    return seconds


def _hedge_to(setting: Setting, fallback: Sequence[str]) -> str:
    """The model to hedge with, "" for the same once more."""
    if setting.one_of("same", "fallback") == "same":
        return ""
    if not fallback:
        raise setting.refuse("is fallback, and the model has none")
    return fallback[0]


def _options(setting: Setting) -> Mapping[str, object]:
    options = setting.json()
    if not isinstance(options, dict):
        raise setting.wrong("a table")
    return MappingProxyType(options)


def _there_is(names: Collection[str]) -> str:
    return f"there is {', '.join(sorted(names))}"
