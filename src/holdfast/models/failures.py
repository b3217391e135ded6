"""What an endpoint's own words for a failure mean to us. Pure.

An error may come as an HTTP status with a body or as an event in the middle of a stream; either
way it becomes one ModelError, whose reason and status settle what is done about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec
from msgspec import Struct

from holdfast.errors import BadReply, ModelError, ModelRefused, ModelUnavailable

#: Characters of an endpoint's explanation that are passed on. Far more than anyone is shown: what
#: is cut before secrets are masked may end in a piece of one.
MOST_WORDS = 64 * 1024

#: What endpoints call an error in the middle of a stream, and the status it would have had.
_STATUS = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "unsupported_image_media_type": 400,
    "empty_image_file": 400,
    "failed_to_download_image": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "billing_not_active": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_reached": 429,
    "too_many_requests": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "vector_store_timeout": 504,
    "service_unavailable": 503,
    "overloaded_error": 529,
    "overloaded": 529,
    "server_overloaded": 529,
}

#: How the rest begins of what they call an error in what was asked.
_ASKED_WRONG = ("invalid_", "image_")

#: How endpoints say that nothing is left to pay with, though the status is that of a rush.
_SPENT = frozenset({"insufficient_quota", "billing_not_active"})

#: How endpoints say that a conversation is longer than the model can take.
_OVERFLOW = re.compile(
    r"context[_ ]length[_ ]exceeded|maximum context length|context window|prompt is too long"
    r"|input is too long|exceeds the (model's )?(maximum )?context|too many (input )?tokens"
    r"|reduce the length of the (messages|prompt|input)|input length .{0,200} exceed"
    r"|exceed_context_size|maximum number of tokens",
    re.IGNORECASE,
)


class _Error(Struct):
    message: object = ""
    type: object = ""
    code: object = ""


class _Body(Struct):
    error: _Error | str | None = None
    message: object = ""
    detail: object = ""


_bodies = msgspec.json.Decoder(_Body)


def from_answer(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> ModelError:
    """An answer that is no reply. `headers` by their names in small letters, `now` in wall time."""
    after = retry_after(headers.get("retry-after", ""), now=now)
    kind, words = _explanation(body)
    if not 400 <= status < 600:
        return BadReply(f"the endpoint answered {status}, which is no reply", status=status)
    if kind in _SPENT:
        # The same endpoint will say the same until somebody has paid; another may well answer.
        return ModelRefused(f"the endpoint answered {status}: {words or kind}", status=402)
    return _failure(status, kind, words, after)


def from_event(kind: str, words: str) -> ModelError:
    """An error that came inside a stream; `kind` is the endpoint's own word for it."""
    unknown = 400 if kind.startswith(_ASKED_WRONG) else 500
    return _failure(_STATUS.get(kind, unknown), kind, words[:MOST_WORDS], None)


def retry_after(value: str, *, now: float) -> float | None:
    """Seconds, from a header that holds seconds or a date. None if it is neither."""
    value = value.strip()
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max((date - datetime.fromtimestamp(now, UTC)).total_seconds(), 0.0)


def _failure(status: int, kind: str, words: str, after: float | None) -> ModelError:
    said = f"the endpoint answered {status}" + (f": {words}" if words else "")
    if status in (400, 413, 422) and _OVERFLOW.search(f"{kind} {words}"):
        return ModelRefused(
            f"the conversation is longer than the model can take ({words or kind})",
            reason="context_overflow",
            status=status,
        )
    if status == 429 or status >= 500:
        return ModelUnavailable(said, reason="overloaded", status=status, retry_after=after)
    return ModelRefused(said, status=status, retry_after=after)


def _explanation(body: bytes) -> tuple[str, str]:
    """The endpoint's word for it, and its sentence, whatever shape they come in."""
    try:
        found = _bodies.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A page made for people says nothing a person could use here.
        words = "" if body.lstrip()[:1] == b"<" else body.decode("utf-8", "replace")
        return "", _short(words)
    if isinstance(found.error, _Error):
        kind = found.error.code if isinstance(found.error.code, str) else ""
        kind = kind or (found.error.type if isinstance(found.error.type, str) else "")
        return kind, _short(found.error.message)
    return "", _short(found.error or found.message or found.detail)


def _short(words: object) -> str:
    if not isinstance(words, str):
        return ""
    words = " ".join(words.split())
    return words[:MOST_WORDS]
