import pytest

from holdfast.core.codec import recall
from holdfast.core.events import InputAdded, ModelHeard, RunCompleted, RunWaiting, StopRequested
from holdfast.core.messages import Text
from holdfast.core.phase import Phase, phase
from holdfast.core.run import RunState, fold
from holdfast.core.watchdog import Patience
from tests.core.stories import (
    accepted,
    answer,
    asked,
    asking,
    begun,
    call,
    called,
    done,
    failed,
    go_on,
    lost,
    replied,
    rescued,
    said,
    started,
    state,
)

STEER = InputAdded(parts=(Text("wait"),))
HEARD = ModelHeard(turn=1, attempt=1)


def waits_for(*events):
    return phase(state(*events))


def test_a_run_that_is_not_there_or_has_ended_waits_for_nothing():
    assert phase(RunState()) is None
    assert waits_for(accepted(), started(), RunCompleted()) is None


def test_a_queued_run_waits_for_a_worker():
    assert waits_for(accepted()) == Phase("worker", 1.0)
    assert waits_for(accepted(), started(), called(), rescued()) == Phase("worker", 4.0)


def test_between_two_steps_a_run_waits_for_its_worker():
    assert waits_for(accepted(), started()) == Phase("worker", 2.0)


def test_a_run_that_was_answered_waits_for_a_worker_from_then_on():
    assert waits_for(*asking(call()), asked(), answer()) == Phase("worker", 6.0)


def test_a_stopped_run_waits_for_its_end_since_the_stop():
    stopped = state(accepted(), started(), StopRequested())
    assert phase(stopped) == Phase("stop", 3.0, next="cancelled")
    assert phase(go_on(stopped, StopRequested(), STEER)).since == 3.0


def test_a_run_of_a_newer_version_waits_for_one():
    now = fold(state(accepted()), recall(2, 2.0, b'{"type":"run.forked"}'))
    assert phase(now) == Phase("newer_version", 1.0, "run.forked")


# --- a person


def test_a_pending_approval_is_what_a_run_waits_for_first():
    before = asking(call("c1", "look"), call("c2", "look"))
    waiting = waits_for(*before, asked(expires=60.0), begun("c2"))
    assert waiting == Phase("approval", 5.0, "pay", 60.0, next="the call is refused")


def test_an_approval_without_a_limit_has_no_next():
    assert waits_for(*asking(call()), asked()) == Phase("approval", 5.0, "pay")


# --- what is missing


@pytest.mark.parametrize("what", ["model", "tool"])
def test_a_run_that_lacks_something_names_it_since_it_was_missed(what):
    lacking = state(accepted(), started(), RunWaiting(what=what, name="x"))
    assert phase(lacking) == Phase(f"missing_{what}", 3.0, "x")
    assert phase(go_on(lacking, STEER)).since == 3.0


def test_a_run_whose_turn_has_not_come_says_so():
    assert waits_for(accepted(), started(), RunWaiting(what="place", name="main")) == Phase(
        "place", 3.0, "main"
    )


# --- the model


def test_a_call_waits_for_its_first_event():
    assert waits_for(accepted(), started(), called()) == Phase(
        "first_event", 3.0, "main", 45.0, attempt=1, attempts=4, next="try again"
    )


@pytest.mark.parametrize("sign", [HEARD, said("a")])
def test_a_call_that_was_heard_of_waits_for_the_next_event(sign):
    assert waits_for(accepted(), started(), called(), sign) == Phase(
        "next_event", 4.0, "main", 120.0, attempt=1, attempts=4, next="try again"
    )


@pytest.mark.parametrize(
    ("patience", "first", "further"),
    [
        (Patience(first=0.0, whole=1800.0), 1800.0, 120.0),
        (Patience(between=0.0, whole=1800.0), 45.0, 1799.0),
        (Patience(whole=30.0), 30.0, 29.0),
        (Patience(first=0.0, between=0.0, whole=0.0), 0.0, 0.0),
        (Patience(whole=1.0), 1.0, 0.0),
    ],
)
def test_the_limit_is_when_the_call_will_be_hung_up_on(patience, first, further):
    waiting = state(accepted(), started(), called(patience=patience))
    assert phase(waiting).limit == first
    assert phase(go_on(waiting, HEARD)).limit == further


def test_a_reply_that_comes_in_one_piece_has_only_the_limit_of_the_whole():
    one_piece = ModelHeard(turn=1, attempt=1, unstreamed=True)
    waiting = phase(state(accepted(), started(), called(), one_piece))
    assert (waiting.waiting_for, waiting.since, waiting.limit) == ("first_event", 3.0, 1800.0)


def test_an_attempt_is_counted_for_its_model():
    second = waits_for(accepted(), started(), called(), failed(), called(attempt=2))
    assert (second.attempt, second.attempts) == (2, 4)
    moved = (failed("refused", status=401), called(attempt=2, model="backup"))
    fallback = waits_for(accepted(), started(), called(), *moved)
    assert (fallback.name, fallback.attempt) == ("backup", 1)


def test_a_call_that_was_held_back_is_no_attempt():
    held_back = (accepted(), started(), called(), failed("breaker_open"))
    waiting = waits_for(*held_back)
    assert (waiting.waiting_for, waiting.attempt, waiting.attempts) == ("retry", 1, 4)
    assert waits_for(*held_back, called(attempt=2)).attempt == 1


def test_the_last_attempt_says_what_comes_after_it():
    two = (accepted(attempts=1), started(), called())
    assert waits_for(*two).next == "fall back to backup"
    moved = (failed(), called(attempt=2, model="backup"))
    assert waits_for(*two, *moved).next == "give up"


def test_a_call_of_a_lost_worker_waits_for_nobody_s_event():
    assert waits_for(accepted(), started(), called(), *lost(2)) == Phase("worker", 5.0)


# --- between attempts


def test_a_back_off_is_waited_out_since_the_failure():
    assert waits_for(accepted(), started(), called(), failed()) == Phase(
        "retry", 4.0, "main", 1.0, attempt=2, attempts=4, next="try again"
    )


def test_a_retry_without_a_wait_has_no_limit():
    assert waits_for(accepted(), started(), called(), failed("ttfb_kill")) == Phase(
        "retry", 4.0, "main", attempt=2, attempts=4, next="try again"
    )


def test_a_fallback_is_named():
    refused = failed("refused", status=401)
    assert waits_for(accepted(), started(), called(), refused) == Phase(
        "retry", 4.0, "backup", attempt=1, attempts=4, next="fall back to backup"
    )


def test_a_run_that_will_give_up_waits_for_its_worker_to_say_so():
    refused = failed("refused", status=400)
    assert waits_for(accepted(), started(), called(), refused) == Phase("worker", 4.0)


# --- tools


def test_a_running_tool_is_waited_for_until_its_limit():
    before = asking(call("c1"), call("c2", "look"))
    waiting = waits_for(*before, begun("c2"))
    assert waiting == Phase("tool", 5.0, "look", 600.0, next="the model is told")


def test_a_tool_nobody_knows_has_no_limit():
    assert waits_for(*asking(call(tool="fly")), begun()).limit == 0.0


def test_when_all_tools_are_done_a_run_waits_for_its_worker():
    assert waits_for(*asking(call()), begun(), done()) == Phase("worker", 6.0)


def test_a_tool_of_a_lost_worker_is_not_waited_for():
    assert waits_for(*asking(call()), begun(), *lost(2)) == Phase("worker", 7.0)


@pytest.mark.parametrize(
    "story",
    [
        (accepted(),),
        (accepted(), started()),
        (accepted(), started(), called()),
        (accepted(), started(), called(), HEARD),
        (accepted(), started(), called(), said("a"), failed()),
        (accepted(), started(), called(), replied()),
        asking(call()),
        (*asking(call()), asked()),
        (*asking(call()), begun()),
        (*asking(call()), begun(), *lost(2)),
        (accepted(), StopRequested()),
        (accepted(), started(), RunWaiting(what="tool", name="x")),
    ],
)
def test_every_live_state_says_what_it_waits_for(story):
    assert waits_for(*story) is not None
