import io
import logging
import sys

import pytest

from holdfast.cli.readable import Readable, log_to
from holdfast.logs import Structured


def spelled(message, *args, exc_info=None):
    record = logging.LogRecord("holdfast.x", 30, "", 0, message, args, exc_info)
    return Readable().format(record)


def test_a_line_says_when_how_grave_who_and_what():
    assert spelled("run %s waits", "run_1").endswith(" WARNING holdfast.x run run_1 waits")


def test_what_is_logged_is_shown_and_not_obeyed():
    """A model may have had a hand in it."""
    line = spelled("it said \x1b[2J%s", "\n2026-11-16 ERROR all is lost")
    assert line.endswith("it said \\x1b[2J 2026-11-16 ERROR all is lost")
    assert "\n" not in line


def test_a_traceback_follows_on_lines_of_its_own():
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        said = spelled("stumbled", exc_info=sys.exc_info())
    head, first, *_, last = said.splitlines()
    assert head.endswith("stumbled") and first.startswith("Traceback")
    assert last == "ValueError: \\x1b[2J"


@pytest.mark.parametrize(("for_people", "kind"), [(True, Readable), (False, Structured)])
def test_all_that_is_logged_goes_there(monkeypatch, for_people, kind):
    out, root = io.StringIO(), logging.getLogger()
    level = root.level
    # As a process finds it that has just begun.
    monkeypatch.setattr(root, "handlers", [])
    try:
        log_to(out, for_people=for_people)
        (handler,) = root.handlers
        logging.getLogger("anywhere").warning("here")
        logging.getLogger("anywhere").info("not here")
    finally:
        root.setLevel(level)
    assert type(handler.formatter) is kind
    assert out.getvalue().count("\n") == 1 and "here" in out.getvalue()
