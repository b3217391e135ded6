"""Log lines for programs to read, and log lines without secrets.

    _log.warning("run %s waits for space", run_id, extra={"run_id": run_id})

    handler.setFormatter(Structured())
    handler.addFilter(Masking(secrets))

A message says all there is to say to people; what programs look for is a field of its own. On a
handler, since the filter of a logger is not asked about the lines of those below it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite

from holdfast.core.secrets import Secrets

_AS_USUAL = logging.Formatter()

#: What every record has, and what others put there for displays of their own.
_NO_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {
    "asctime",
    "color_message",
    "message",
    "taskName",
}


class Structured(logging.Formatter):
    """One object of JSON a line: when, how grave, what, and each field that was given."""

    def format(self, record: logging.LogRecord) -> str:
        ours: dict[str, object] = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if traceback := _traceback(record):
            ours["traceback"] = traceback
        given = {name: _plain(value) for name, value in _fields(record).items()}
        # In our order, and nobody's field passes for one of ours.
        return json.dumps(ours | given | ours)


class Masking(logging.Filter):
    """Lets every line pass, spelled out and masked, with its fields and its traceback."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        mask = self._secrets.mask
        record.msg, record.args = mask(_message(record)), ()
        if record.exc_info:
            record.exc_text = record.exc_text or _AS_USUAL.formatException(record.exc_info)
            # So that nobody spells it out again.
            record.exc_info = None
        if record.exc_text:
            record.exc_text = mask(record.exc_text)
        if record.stack_info:
            record.stack_info = mask(record.stack_info)
        for name, value in _fields(record).items():
            plain = _plain(value)
            setattr(record, name, mask(plain) if isinstance(plain, str) else plain)
        return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What whoever logged it gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _NO_FIELDS}


def _plain(value: object) -> str | float | None:
    """A number or a truth value as it is; anything else in words, which can be masked."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    return _spelled(lambda: str(value))


def _message(record: logging.LogRecord) -> str:
    return _spelled(record.getMessage)


def _spelled(words: Callable[[], str]) -> str:
    try:
        return words()
    except Exception as error:  # noqa: BLE001 - foreign code, down to what it logs
        return f"a line that cannot be spelled out: {type(error).__name__}"


def _traceback(record: logging.LogRecord) -> str:
    told = record.exc_text or ""
    if record.exc_info and not told:
        told = _AS_USUAL.formatException(record.exc_info)
    return "\n".join(part for part in (told, record.stack_info) if part)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
