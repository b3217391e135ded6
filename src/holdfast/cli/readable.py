"""Where a server's log goes, and its lines for people: on a terminal, and harmless there."""

from __future__ import annotations

import logging
from typing import TextIO

from holdfast.cli.visible import one_line, visible
from holdfast.logs import Structured


class Readable(logging.Formatter):
    """When, how grave, who and what, on one line; then the traceback, if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name there
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_to(file: TextIO, *, for_people: bool) -> None:
    """Have all that is logged in this process written there, for people or for programs."""
    handler = logging.StreamHandler(file)
    handler.setFormatter(Readable() if for_people else Structured())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
