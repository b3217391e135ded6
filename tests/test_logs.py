import io
import json
import logging
from datetime import datetime

import pytest

from holdfast.core.secrets import Secrets
from holdfast.logs import Masking, Structured

KEY = "sk-canary-0123456789"


@pytest.fixture
def logged():
    """A logger below ours, and what a handler of ours makes of its lines."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(Masking(Secrets([KEY])))
    ours = logging.getLogger("holdfast")
    ours.addHandler(handler)
    yield logging.getLogger("holdfast.test"), out
    ours.removeHandler(handler)


def test_a_secret_in_a_message_or_in_what_goes_into_it_is_masked(logged):
    log, out = logged
    log.warning("the key %s of %s", KEY, {"key": KEY})
    assert out.getvalue() == "the key [secret] of {'key': '[secret]'}\n"


def test_a_secret_in_a_traceback_is_masked(logged):
    log, out = logged
    try:
        raise ValueError(KEY)
    except ValueError:
        log.exception("run %s stumbled", "run_1", stack_info=True)
    said = out.getvalue()
    assert KEY not in said
    assert "run run_1 stumbled" in said and "ValueError: [secret]" in said and "Stack" in said


def test_a_traceback_that_another_handler_has_spelled_out_is_masked():
    record = logging.LogRecord("holdfast", 30, "", 0, "x", (), None)
    record.exc_text = KEY
    assert Masking(Secrets([KEY])).filter(record)
    assert record.exc_text == "[secret]"


def test_a_line_without_a_secret_is_as_it_was(logged):
    log, out = logged
    log.warning("%d runs, 100%% of them", 3)
    assert out.getvalue() == "3 runs, 100% of them\n"


def test_a_line_that_cannot_be_spelled_out_harms_nobody(logged):
    log, out = logged
    log.warning("%d runs", KEY)
    assert out.getvalue() == "a line that cannot be spelled out: TypeError\n"


@pytest.fixture
def told():
    """A logger, and a look at what a program would read: an object for each line."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(Structured())
    log = logging.getLogger("holdfast.told")
    log.addHandler(handler)
    yield log, lambda: [json.loads(line) for line in out.getvalue().splitlines()], handler
    log.removeHandler(handler)


def test_a_line_is_an_object_with_its_fields(told):
    log, lines, _ = told
    log.warning("run %s\nwaits", "run_1", extra={"run_id": "run_1", "left": 3, "full": True})
    (line,) = lines()
    assert list(line) == ["time", "level", "logger", "message", "run_id", "left", "full"]
    assert datetime.fromisoformat(line.pop("time")).utcoffset().total_seconds() == 0
    assert line == {
        "level": "warning",
        "logger": "holdfast.told",
        "message": "run run_1\nwaits",
        "run_id": "run_1",
        "left": 3,
        "full": True,
    }


def test_a_field_does_not_pass_for_one_of_ours(told):
    log, lines, _ = told
    log.warning("true", extra={"level": "false", "time": 0})
    (line,) = lines()
    assert (line["level"], line["message"]) == ("warning", "true")
    assert datetime.fromisoformat(line["time"]).year > 2000


def test_what_others_log_for_their_own_displays_is_left_out(told):
    log, lines, _ = told
    log.warning("plain", extra={"color_message": "\x1b[31mplain", "taskName": "Task-1"})
    assert set(lines()[0]) == {"time", "level", "logger", "message"}


class Unspeakable:
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.5, 0.5),
        (None, None),
        (float("inf"), "inf"),
        (["a"], "['a']"),
        ("lone \ud800", "lone \ud800"),
        (Unspeakable(), "a line that cannot be spelled out: ValueError"),
    ],
)
def test_a_field_may_hold_anything(told, value, said):
    log, lines, _ = told
    log.warning("odd", extra={"field": value})
    assert lines()[0]["field"] == said


def test_a_traceback_is_a_field_and_stays_on_its_line(told):
    log, lines, handler = told
    for masked in (False, True):
        if masked:
            handler.addFilter(Masking(Secrets([KEY])))
        try:
            raise ValueError(KEY)
        except ValueError:
            log.exception("stumbled", stack_info=True)
    bare, masked = (line["traceback"] for line in lines())
    assert bare.startswith("Traceback") and f"ValueError: {KEY}\nStack" in bare
    assert "ValueError: [secret]\nStack" in masked


def test_a_secret_in_a_field_is_masked(told):
    log, lines, handler = told
    handler.addFilter(Masking(Secrets([KEY])))
    log.warning("who?", extra={"key": KEY, "keys": [KEY], "count": 2})
    (line,) = lines()
    assert (line["key"], line["keys"], line["count"]) == ("[secret]", "['[secret]']", 2)
