"""Addresses in the net, as far as they can be judged without going there."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from holdfast.config.tables import Setting

_HTTP = "an address with a host that begins with http:// or https://"
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
    url = setting.word(_HTTP)
    # Looked for first, so that no sentence repeats a password.
    if "@" in url:
        raise setting.refuse("has an @ in it; an address must not hold a name or a password")
    if "?" in url or "#" in url:
        raise setting.refuse("has a ? or # in it; it must end with the path")
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise setting.wrong(_HTTP)
    return url.rstrip("/")


def origin(setting: Setting) -> str:
    """Scheme, host and port, as a browser names where a page is from."""
    url = web_address(setting)
    if urlsplit(url).path:
        raise setting.wrong("an origin, as in https://example.org, without a path")
    return url


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


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        # Asked for its complaint: a port is only looked at when it is asked for.
        _ = parts.port
    except ValueError:
        return None
    return None if any(sign in url for sign in ' \\"<>') else parts
