from typing import get_args

import pytest

from holdfast.cli.waiting import waiting
from holdfast.core.phase import Awaited, Phase


@pytest.mark.parametrize(
    ("phase", "line"),
    [
        (
            Phase("first_event", 100.0, "demo", 45.0, 2, 4, "fall back to other"),
            "waiting for the first word of demo · 7 of 45 s, then fall back to other · attempt 2 of 4",
        ),
        (
            Phase("tool", 100.0, "pay", 600.0, next="the model is told"),
            "pay is at work · 7 of 600 s, then the model is told",
        ),
        (Phase("worker", 100.0), "waiting for a worker · 7 s"),
        (
            Phase("stop", 100.0, next="cancelled"),
            "stopping; Ctrl-C again leaves at once · 7 s",
        ),
    ],
)
def test_it_says_what_for_how_long_until_when_and_what_then(phase, line):
    assert waiting(phase, now=107.4) == line


def test_a_clock_that_went_back_is_no_negative_wait():
    assert waiting(Phase("worker", 100.0), now=50.0) == "waiting for a worker · 0 s"


@pytest.mark.parametrize("awaited", get_args(Awaited))
def test_there_are_words_for_everything_a_run_can_wait_for(awaited):
    assert waiting(Phase(awaited, 0.0, "it"), now=1.0)
