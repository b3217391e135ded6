"""Addresses in the net, as far as they can be judged without going there."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from holdfast.config.tables import Setting

_HTTP = "an address with a host that begins with http:// or https://"
_PORTS = {"http": 80, "https": 443}
_ADDED = ("/chat/completions", "/responses", "/messages")


def base_url(setting: Setting) -> str:
    """Everything before what a wire adds to it. Raises ConfigError."""
    url = web_address(setting)
    for path in _ADDED:
        if url.endswith(path):
            raise setting.refuse(f"ends in {path}; leave that off, it is added to each call")
    return url


def web_address(setting: Setting) -> str:
    """Without a slash at its end. What comes back holds no name, password or question."""
    url = setting.text(_HTTP)
    # Looked for first, so that no sentence repeats a password.
    if "@" in url:
        raise setting.refuse("has an @ in it; an address must not hold a name or a password")
    if "?" in url or "#" in url:
        raise setting.refuse("has a ? or # in it; it must end with the path")
    setting.word(_HTTP)
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise setting.wrong(_HTTP)
    return url.rstrip("/")


def origin(setting: Setting) -> str:
    """Scheme, host and port, as a browser names where a page is from: it leaves out the usual port."""
    parts = urlsplit(web_address(setting))
    if parts.path:
        raise setting.wrong("an origin, as in https://example.org, without a path")
    host = parts.hostname or ""
    named = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}"
    return named if parts.port in (None, _PORTS[parts.scheme]) else f"{named}:{parts.port}"


def same_place(one: str, other: str) -> bool:
    """Whether both addresses lead to the same port of the same host, in the same way. A host that is
    spelled otherwise is another: nobody knows where it leads without going there."""
    place = _place(one)
    return place is not None and place == _place(other)


def is_loopback_url(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can mean it."""
    host = host.strip("[]").lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _place(url: str) -> tuple[str, str, int] | None:
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        return None
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    return parts.scheme, parts.hostname, port


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        # Asked for its complaint: a port is only looked at when it is asked for.
        _ = parts.port
    except ValueError:
        return None
    return None if any(sign in url for sign in ' \\"<>') else parts
