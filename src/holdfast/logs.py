"""Log lines without secrets.

    handler.addFilter(Masking(secrets))

On a handler, since the filter of a logger is not asked about the lines of those below it.
"""

from __future__ import annotations

import logging

from holdfast.core.secrets import Secrets

_AS_USUAL = logging.Formatter()


class Masking(logging.Filter):
    """Lets every line pass, spelled out and masked, and the traceback with it."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._secrets.mask(_message(record)), ()
        if record.exc_info:
            record.exc_text = record.exc_text or _AS_USUAL.formatException(record.exc_info)
            # So that nobody spells it out again.
            record.exc_info = None
        if record.exc_text:
            record.exc_text = self._secrets.mask(record.exc_text)
        if record.stack_info:
            record.stack_info = self._secrets.mask(record.stack_info)
        return True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - foreign code, down to what it logs
        return f"a line that cannot be spelled out: {type(error).__name__}"
