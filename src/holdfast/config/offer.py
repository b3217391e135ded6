"""The model to use when no file names one: whatever this machine has a key for, or runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from holdfast.config.models import first_event, key_in, limits
from holdfast.config.settings import DEMO, ModelSettings
from holdfast.models.catalog import price_of, window_of

#: Whether something listens at this host and port.
Probe: TypeAlias = Callable[[str, int], bool]

_OLLAMA = ("127.0.0.1", 11434)
_PROBE_SECONDS = 0.2


class _Service(NamedTuple):
    key_env: str
    wire: str
    base_url: str
    model: str


#: The first whose key is set.
_SERVICES = (
    _Service("OPENAI_API_KEY", "openai-responses", "https://api.openai.com/v1", "gpt-5.5"),
    _Service("ANTHROPIC_API_KEY", "anthropic", "https://api.anthropic.com/v1", "claude-sonnet-5-5"),
    _Service("OPENROUTER_API_KEY", "openai-chat", "https://openrouter.ai/api/v1", "openai/gpt-5.5"),
)


def offered(environ: Mapping[str, str], probe: Probe) -> ModelSettings:
    """Raises ConfigError for a key that cannot be one."""
    ttfb = first_event(environ)
    for service in _SERVICES:
        if key := key_in(service.key_env, environ):
            return _settings(service, key, ttfb)
    if probe(*_OLLAMA):
        host, port = _OLLAMA
        # Which models it has is for whoever calls it to ask.
        return _settings(_Service("", "openai-chat", f"http://{host}:{port}/v1", ""), "", ttfb)
    return DEMO


def is_listening(host: str, port: int) -> bool:
    # Seldom needed, and not quick to load.
    import socket

    try:
        with socket.create_connection((host, port), timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False


def _settings(service: _Service, key: str, ttfb: float | None) -> ModelSettings:
    patience, grows = limits(
        None, wire=service.wire, model=service.model, url=service.base_url, ttfb=ttfb
    )
    return ModelSettings(
        name="main",
        wire=service.wire,
        model=service.model,
        base_url=service.base_url,
        key=key,
        key_env=service.key_env,
        window=window_of(service.model),
        price=price_of(service.model),
        patience=patience,
        grows=grows,
    )
