from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.retry import (
    BREAKER_OPEN,
    BROKEN,
    CUT_SHORT,
    OVERFLOW,
    REASONS,
    STALLED,
    UNREADABLE,
    Attempt,
    Failure,
    GiveUp,
    RetryRules,
    Wait,
    back_off,
    lost,
    next_attempt,
)

ONE = RetryRules(models=("main",))
TWO = RetryRules(models=("main", "backup"))


def failure(reason="reset", model="main", **fields):
    return Failure(model=model, reason=reason, **fields)


def times(count, reason="reset", model="main", **fields):
    return [failure(reason, model, **fields)] * count


# --- what is worth repeating, and where


@pytest.mark.parametrize("reason", sorted(STALLED | BROKEN))
def test_a_stall_or_a_broken_line_is_tried_again_and_then_elsewhere(reason):
    assert failure(reason).worth_repeating
    assert failure(reason).worth_moving


@pytest.mark.parametrize("reason", sorted(UNREADABLE))
def test_a_reply_nobody_can_read_is_not_tried_again_but_elsewhere(reason):
    assert not failure(reason).worth_repeating
    assert failure(reason).worth_moving


@pytest.mark.parametrize("reason", ["interrupt_abort", "a reason of a newer version"])
def test_what_we_did_ourselves_or_do_not_know_is_not_tried_again(reason):
    assert not failure(reason).worth_repeating
    assert not failure(reason).worth_moving


def test_every_reason_is_in_one_of_the_classes():
    others = {"refused", "interrupt_abort", BREAKER_OPEN, CUT_SHORT, OVERFLOW}
    assert STALLED | BROKEN | UNREADABLE | others == REASONS
    assert len(REASONS) == len(STALLED) + len(BROKEN) + len(UNREADABLE) + len(others)


def test_an_endpoint_that_is_left_alone_is_passed_by_where_there_is_another():
    alone = failure(BREAKER_OPEN, retry_after=30.0)
    assert next_attempt([alone], TWO) == Attempt("backup")


def test_an_endpoint_that_is_left_alone_is_waited_for_where_there_is_none():
    alone = failure(BREAKER_OPEN, retry_after=30.0)
    assert next_attempt([alone], ONE) == Wait(30.0, "main")
    tried = failure(BREAKER_OPEN, "backup", retry_after=12.0)
    assert next_attempt([alone, tried], TWO) == Wait(12.0, "backup")


def test_waiting_for_an_endpoint_uses_up_no_attempt_but_time():
    waits = times(10, BREAKER_OPEN, retry_after=30.0)
    assert next_attempt([*waits, *times(3)], ONE).model == "main"
    assert isinstance(next_attempt([*waits, *times(4)], ONE), GiveUp)
    assert isinstance(next_attempt(times(21, BREAKER_OPEN, retry_after=30.0), ONE), GiveUp)


def test_an_endpoint_is_not_waited_for_without_end():
    for_ever = RetryRules(models=("main",), total=0.0)
    assert isinstance(next_attempt(times(20, BREAKER_OPEN), for_ever), Wait)
    assert isinstance(next_attempt(times(21, BREAKER_OPEN), for_ever), GiveUp)


def test_a_reply_cut_inside_a_call_is_tried_once_more_at_once():
    assert next_attempt([failure(CUT_SHORT)], TWO) == Attempt("main")
    assert isinstance(next_attempt(times(2, CUT_SHORT), TWO), GiveUp)
    assert isinstance(
        next_attempt([failure(CUT_SHORT), *times(1), failure(CUT_SHORT)], TWO), GiveUp
    )


def test_a_conversation_that_is_too_long_is_too_long_everywhere():
    assert next_attempt([failure(OVERFLOW, message="long")], TWO) == GiveUp("long")


@pytest.mark.parametrize("status", [408, 409, 425, 429])
def test_a_refusal_that_may_pass_is_tried_again_and_then_elsewhere(status):
    assert failure("refused", status=status).worth_repeating
    assert failure("refused", status=status).worth_moving


@pytest.mark.parametrize("status", [401, 402, 403, 404, 451])
def test_a_refusal_of_this_endpoint_goes_straight_to_the_fallback(status):
    refused = failure("refused", status=status)
    assert next_attempt([refused], TWO) == Attempt("backup")
    assert not refused.worth_repeating


@pytest.mark.parametrize("status", [400, 413, 422, None])
def test_a_refusal_of_what_we_asked_goes_nowhere(status):
    refused = failure("refused", status=status, message="no")
    assert next_attempt([refused], TWO) == GiveUp("no")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_an_overloaded_endpoint_is_tried_again_whatever_its_status(status):
    assert next_attempt([failure("overloaded", status=status)], TWO) == Wait(1.0, "main")


# --- the order of attempts


def test_the_first_attempt_goes_to_the_first_choice():
    assert next_attempt([], TWO) == Attempt("main")


def test_a_model_gets_its_attempts_then_the_next_one_gets_its_own():
    assert isinstance(next_attempt(times(3), TWO), Wait)
    assert next_attempt(times(4), TWO) == Attempt("backup")
    history = times(4) + times(4, model="backup")
    assert next_attempt(history[:-1], TWO).model == "backup"
    assert isinstance(next_attempt(history, TWO), GiveUp)


def test_a_model_that_is_not_in_the_rules_has_no_fallback():
    assert isinstance(next_attempt(times(4, model="gone"), TWO), GiveUp)


def test_a_model_named_twice_gets_no_second_turn():
    circle = RetryRules(models=("main", "backup", "main"), attempts=1)
    history = [failure("too_large"), failure("too_large", "backup")]
    assert isinstance(next_attempt(history, circle), GiveUp)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.data())
def test_any_series_of_failures_comes_to_an_end(models, data):
    rules, history = RetryRules(models=tuple(models), attempts=2, total=0.0), []
    reasons = st.sampled_from(sorted(REASONS))
    while not isinstance(step := next_attempt(history, rules), GiveUp):
        history.append(failure(data.draw(reasons), step.model))
        called = [one for one in history if one.reason not in (BREAKER_OPEN, CUT_SHORT)]
        assert len(called) <= 2 * len(models)
        assert len(history) <= 2 * len(models) + 23


# --- how long to wait


def test_the_first_retry_after_a_stall_is_made_at_once():
    assert next_attempt([failure("ttfb_kill", waited=45.0)], ONE) == Attempt("main")


def test_a_second_stall_is_waited_out():
    assert next_attempt(times(2, "ttfb_kill"), ONE) == Wait(2.0, "main")


def test_waits_double_up_to_a_minute():
    waits = [back_off(times(tries), spread=1.0) for tries in range(1, 10)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_thousands_of_attempts_still_have_a_wait():
    assert back_off(times(5000), spread=1.0) == 60.0


@given(st.floats(0, 1), st.integers(1, 9))
def test_a_crowd_is_spread_over_half_the_wait(spread, tries):
    longest = back_off(times(tries), spread=1.0)
    assert longest / 2 <= back_off(times(tries), spread=spread) <= longest


def test_the_endpoint_s_own_wish_is_waited_for_up_to_a_minute():
    assert next_attempt([failure("overloaded", retry_after=7.0)], ONE) == Wait(7.0, "main")
    assert next_attempt([failure("overloaded", retry_after=60.0)], ONE) == Wait(60.0, "main")


def test_a_wish_shorter_than_our_own_wait_changes_nothing():
    assert next_attempt([failure("overloaded", retry_after=0.1)], ONE) == Wait(1.0, "main")


@pytest.mark.parametrize("seconds", [60.1, 3600.0, inf])
def test_an_endpoint_that_wants_longer_than_a_minute_is_left_for_the_fallback(seconds):
    limited = failure("refused", status=429, retry_after=seconds, message="quota")
    assert next_attempt([limited], TWO) == Attempt("backup")
    assert next_attempt([limited], ONE) == GiveUp("quota")


# --- how much time a turn may lose


def test_silence_and_waits_between_attempts_count_as_lost():
    history = [failure(waited=10.0), failure(waited=20.0), failure(waited=30.0)]
    assert lost(history, spread=1.0) == 10.0 + 1.0 + 20.0 + 2.0 + 30.0


def test_moving_to_another_model_costs_no_wait():
    assert lost([failure(waited=10.0), failure(model="backup", waited=5.0)], spread=1.0) == 15.0


def test_time_is_counted_since_something_was_last_heard():
    history = [failure(waited=500.0), failure(waited=20.0, spoke=True), failure(waited=3.0)]
    assert lost(history, spread=1.0) == 20.0 + 2.0 + 3.0


def test_a_turn_that_lost_its_time_is_given_up():
    step = next_attempt(times(2, "ttfb_kill", waited=300.0, message="silence"), ONE)
    assert isinstance(step, GiveUp)
    assert "time for stalls and waiting is used up" in step.why
    assert "silence" in step.why


def test_a_turn_that_lost_its_time_does_not_go_to_the_fallback_either():
    step = next_attempt([failure("ttfb_kill", waited=601.0)], TWO)
    assert isinstance(step, GiveUp)
    assert "used up" in step.why


def test_too_little_time_for_a_wait_is_enough_for_the_fallback():
    limited = failure("overloaded", waited=599.0, retry_after=30.0)
    assert next_attempt([limited], TWO) == Attempt("backup")


def test_no_total_is_no_limit():
    for_ever = RetryRules(models=("main",), total=0.0)
    assert next_attempt([failure("ttfb_kill", waited=1e6)], for_ever) == Attempt("main")


# --- the last words


def test_giving_up_on_the_first_attempt_says_why_and_no_more():
    assert next_attempt([failure("bad_reply", message="gibberish")], ONE) == GiveUp("gibberish")


def test_giving_up_after_several_attempts_says_how_many():
    step = next_attempt(times(4, message="reset by peer"), ONE)
    assert step == GiveUp("gave up after 4 attempts; the last: reset by peer")


def test_without_a_message_the_reason_has_to_do():
    assert next_attempt([failure("bad_reply")], ONE) == GiveUp("bad_reply")


def test_a_refusal_is_not_blamed_on_the_clock():
    refused = failure("refused", status=400, waited=700.0, message="bad request")
    assert next_attempt([refused], TWO) == GiveUp("bad request")
