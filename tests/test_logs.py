import io
import logging

import pytest

from holdfast.core.secrets import Secrets
from holdfast.logs import Masking

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
