from math import inf

import pytest

from holdfast.core.watchdog import Patience, Watchdog
from holdfast.errors import ModelError, StreamStalled

PATIENCE = Patience(first=45.0, between=120.0, whole=1800.0)


def dog(now=100.0, **limits):
    return Watchdog(
        Patience(**{"first": 45.0, "between": 120.0, "whole": 1800.0, **limits}), now=now
    )


def test_the_first_event_is_waited_for_from_the_start_of_the_call():
    assert dog(now=100.0).deadline == 145.0


def test_each_event_moves_the_deadline():
    watch = dog()
    watch.hear(now=110.0)
    assert watch.deadline == 230.0
    watch.hear(now=200.0)
    assert watch.deadline == 320.0


def test_the_whole_call_counts_from_its_start_whatever_is_heard():
    watch = dog()
    for now in range(100, 1900, 50):
        watch.hear(now=float(now))
    assert watch.deadline == 1900.0


def test_an_acknowledgement_ends_the_wait_for_the_first_event():
    watch = dog()
    watch.acknowledge(now=110.0)
    assert not watch.first
    assert watch.deadline == 230.0


def test_an_acknowledgement_counts_once():
    watch = dog()
    watch.acknowledge(now=110.0)
    watch.acknowledge(now=200.0)
    assert watch.deadline == 230.0


def test_an_acknowledgement_after_an_event_is_no_progress():
    watch = dog()
    watch.hear(now=110.0)
    watch.acknowledge(now=200.0)
    assert watch.deadline == 230.0


@pytest.mark.parametrize(
    ("limits", "heard", "deadline"),
    [
        ({"first": 0.0}, False, 1900.0),
        ({"between": 0.0}, True, 1900.0),
        ({"whole": 0.0, "first": 5000.0}, False, 5100.0),
        ({"whole": 0.0, "between": 5000.0}, True, 5110.0),
        ({"whole": 0.0, "first": 0.0}, False, inf),
        ({"whole": 0.0, "between": 0.0}, True, inf),
    ],
)
def test_zero_switches_a_limit_off(limits, heard, deadline):
    watch = dog(**limits)
    if heard:
        watch.hear(now=110.0)
    assert watch.deadline == deadline


def test_our_own_slowness_moves_the_limit_on_silence():
    watch = dog()
    watch.excuse(7.0)
    assert watch.deadline == 152.0
    assert watch.quiet(now=152.0) == 45.0


def test_our_own_slowness_moves_the_limit_on_the_whole_call():
    watch = dog(first=0.0)
    watch.excuse(7.0)
    assert watch.deadline == 1907.0


def test_silence_is_counted_from_the_last_event():
    watch = dog()
    assert watch.quiet(now=130.0) == 30.0
    watch.hear(now=130.0)
    assert watch.quiet(now=131.5) == 1.5


def test_a_call_without_a_first_event_ends_with_the_word_ttfb():
    error = dog().stalled(now=145.0)
    assert error.reason == "ttfb_kill"
    assert "TTFB" in str(error)
    assert "for 45 s" in str(error)


def test_a_call_that_fell_silent_ends_idle():
    watch = dog()
    watch.hear(now=110.0)
    error = watch.stalled(now=230.0)
    assert error.reason == "idle_kill"
    assert "no further event from the model for 120 s" in str(error)
    assert "TTFB" not in str(error)


@pytest.mark.parametrize("heard", [False, True])
def test_a_call_that_took_too_long_in_all_ends_stale(heard):
    watch = dog(whole=30.0)
    if heard:
        watch.hear(now=129.0)
    error = watch.stalled(now=130.0)
    assert error.reason == "stale_kill"
    assert "not finished after 30 s" in str(error)


def test_a_stall_is_a_model_error_and_a_timeout():
    error = dog().stalled(now=145.0)
    assert isinstance(error, StreamStalled)
    assert isinstance(error, ModelError)
    assert isinstance(error, TimeoutError)


def test_a_wire_may_have_its_own_word_for_a_silent_start():
    codex = Watchdog(PATIENCE, now=0.0, wire="openai-responses")
    assert codex.stalled(now=45.0).reason == "codex_ttfb_kill"
    codex.hear(now=45.0)
    assert codex.stalled(now=165.0).reason == "idle_kill"


def test_a_reply_that_comes_in_one_piece_is_limited_by_the_whole_alone():
    watch = dog(now=100.0)
    watch.expect_one_piece()
    assert watch.deadline == 1900.0


@pytest.mark.parametrize(
    ("tokens", "times"), [(0, 1), (50_000, 1), (50_001, 2), (100_000, 2), (100_001, 3)]
)
def test_a_limit_that_nobody_set_grows_with_what_there_is_to_read(tokens, times):
    grown = PATIENCE.grown(("first", "whole"), characters=4 * tokens)
    assert (grown.first, grown.between, grown.whole) == (45.0 * times, 120.0, 1800.0 * times)


def test_a_limit_that_somebody_set_does_not():
    assert PATIENCE.grown((), characters=10**9) == PATIENCE
