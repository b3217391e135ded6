"""What a page of another origin may send, and what it is let see, once its origin is listed."""

from __future__ import annotations

from typing import TypeAlias

Header: TypeAlias = tuple[bytes, bytes]

#: What OpenAI's own client says of itself.
_STAINLESS = (
    b"arch async helper-method lang os package-version retry-count runtime runtime-version timeout"
)
_TAKEN = b", ".join(
    (
        b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
        b"X-Hermes-Session-Id, X-Hermes-Session-Key, X-Session-Id",
        b"X-OpenWebUI-Chat-Id, X-OpenWebUI-Message-Id",
        b"OpenAI-Organization, OpenAI-Project",
        *(b"X-Stainless-" + word for word in _STAINLESS.split()),
    )
)
PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE, OPTIONS"),
    (b"access-control-allow-headers", _TAKEN),
    (b"access-control-max-age", b"600"),
)
#: What a client goes by. OpenAI's own begins a failed run anew unless it sees X-Should-Retry.
_SEEN = b", ".join(
    (
        b"X-Run-Id, X-Holdfast-Ignored, Idempotency-Replayed, Retry-After, X-Should-Retry",
        b"X-Hermes-Session-Id, X-Hermes-Session-Key",
        b"X-Hermes-Completed, X-Hermes-Partial, X-Hermes-Error",
    )
)
SHARED: tuple[Header, ...] = (
    (b"access-control-expose-headers", _SEEN),
    (b"vary", b"Origin"),
)
