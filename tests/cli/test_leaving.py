import signal

import pytest

from holdfast.cli.leaving import leaving


@pytest.mark.parametrize(
    ("number", "ending", "code"),
    [
        (signal.SIGINT, KeyboardInterrupt, ()),
        (signal.SIGTERM, SystemExit, (143,)),
        (signal.SIGHUP, SystemExit, (129,)),
    ],
)
def test_a_signal_ends_what_is_under_way(number, ending, code):
    # Whoever runs the tests may have had it ignored, as nohup does.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(ending) as left, leaving():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)
    assert left.value.args == code


def test_afterwards_signals_do_what_they_did_before():
    before = signal.getsignal(signal.SIGTERM)
    with leaving():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_was_ignored_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with leaving():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
