import pytest

from holdfast.core.approval import Ask
from holdfast.core.codec import recall
from holdfast.core.events import (
    ApprovalExpired,
    InputAdded,
    ModelRetracted,
    Receipt,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunWaiting,
    StopRequested,
)
from holdfast.core.messages import Text, ToolSpec
from holdfast.core.plan import (
    LOOK_AGAIN,
    AskPerson,
    CallModel,
    Pause,
    Record,
    Rest,
    RunTools,
    Timer,
    ending,
    following,
    may_start,
    plan,
)
from holdfast.core.retry import GiveUp, Wait
from holdfast.core.run import Grant, RunState, fold
from holdfast.core.usage import Budget, Usage
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
    rules,
    said,
    started,
    state,
)

STOP = StopRequested(by="ada")
STEER = InputAdded(parts=(Text("wait"),))
COPY = ToolSpec(name="copy", repeatable=True, parallel=True)


def next_step(*events, epoch=1, **brings):
    return plan(state(*events), rules(epoch, **brings))


def outcomes(step):
    """What each call is said to have come to."""
    assert isinstance(step, Record)
    return {event.call_id: event.outcome for event in step.events if hasattr(event, "outcome")}


# --- the ordinary way


def test_a_run_that_was_taken_calls_the_model():
    assert next_step(accepted(), started()) == CallModel(turn=1, attempt=1, model="main")


def test_a_reply_without_calls_completes_the_run():
    assert next_step(accepted(), started(), called(), replied()) == Record((RunCompleted(),))


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_a_reply_that_is_not_all_the_model_had_to_say_is_marked(stop):
    step = next_step(accepted(), started(), called(), replied(stop=stop))
    assert step == Record((RunCompleted(incomplete=stop),))


def test_results_go_back_to_the_model():
    step = next_step(*asking(call()), begun(), done())
    assert step == CallModel(turn=2, attempt=1, model="main")


def test_a_message_that_came_during_the_last_reply_gets_a_turn_of_its_own():
    step = next_step(accepted(), started(), called(), STEER, replied())
    assert step == CallModel(turn=2, attempt=1, model="main")


def test_there_is_nothing_to_do_for_a_run_that_is_not_there_or_has_ended():
    assert plan(RunState(), rules()) == Rest()
    assert next_step(accepted(), started(), RunCompleted()) == Rest()
    assert next_step(accepted(), STOP, RunCancelled()) == Rest()


@pytest.mark.parametrize("stop", [(), (STOP,)])
def test_a_run_with_an_event_of_a_newer_version_is_left_to_a_newer_version(stop):
    now = fold(state(accepted(), started()), recall(3, 3.0, b'{"type":"run.forked"}'))
    assert plan(go_on(now, *stop), rules()) == Rest(again=LOOK_AGAIN)


# --- taking over


def test_a_worker_says_so_when_it_takes_a_run():
    assert next_step(accepted(), epoch=4).events == (started(epoch=4),)
    assert next_step(accepted(), started(), called(), rescued(), epoch=2).events == (started(2),)


def test_a_worker_that_takes_a_run_knows_when_it_is_to_call_the_model_at_once():
    call = CallModel(turn=1, attempt=1, model="main")
    assert next_step(accepted(), epoch=4).then == call
    assert next_step(accepted(), started(), called(), failed(), rescued(), epoch=2).then is None


@pytest.mark.parametrize(
    ("reply", "since"),
    [
        (replied(), ()),
        (replied(stop="length"), ()),
        (replied(call()), ()),
        (replied(), (STEER,)),
        (replied(), (STOP,)),
    ],
)
def test_how_a_run_ends_with_a_reply_is_what_is_planned_after_it(reply, since):
    before = state(accepted(), started(), called(), *since)
    step = plan(go_on(before, reply), rules(1))
    ends = isinstance(step, Record) and isinstance(step.events[0], RunCompleted)
    assert ending(before, reply) == (step.events[0] if ends else None)


def test_a_run_that_holds_something_newer_is_not_ended_with_its_reply():
    before = state(accepted(), started(), called())
    newer = fold(before, recall(before.seq + 1, 5.0, b'{"type":"run.dreamt"}'))
    assert ending(newer, replied()) is None


def test_a_run_that_would_only_wait_on_is_not_taken_over():
    waiting = state(*asking(call(gate="ask")), asked(expires=9.0))
    expiry = Timer(5.0, 9.0, Record((ApprovalExpired(approval_id="a1"),)))
    assert plan(waiting, rules(epoch=2)) == Rest(expiry)


def test_a_run_that_was_answered_is_taken_over():
    answered = state(*asking(call(gate="ask")), asked(), answer())
    assert plan(answered, rules(epoch=2)) == Record((started(2),))


def test_a_run_that_lacks_what_it_lacked_before_is_not_taken_over():
    lack = RunWaiting(what="model", name="main")
    step = next_step(accepted(), started(), lack, epoch=2, models={"backup"})
    assert step == Rest(again=LOOK_AGAIN)


def test_a_back_off_is_sat_out_by_whoever_takes_over():
    step = next_step(accepted(), started(), called(), failed(), rescued(), epoch=2)
    assert step == Record((started(2),))


def test_a_stopped_run_is_ended_without_being_taken_over():
    assert next_step(accepted(), STOP, epoch=7) == Record((RunCancelled(),))


def test_a_run_that_lost_five_workers_in_a_row_goes_on():
    five = [event for epoch in range(2, 7) for event in lost(epoch)]
    assert isinstance(next_step(accepted(), started(), *five, epoch=6), CallModel)


def test_a_run_that_lost_six_workers_in_a_row_fails_and_cuts_off_what_was_open():
    six = [event for epoch in range(2, 8) for event in lost(epoch)]
    step = next_step(*asking(call("c1"), call("c2")), begun("c1"), *six, epoch=7)
    assert outcomes(step) == {"c1": "unknown", "c2": "not_started"}
    assert step.events[-1].code == "rescues"
    assert "lost or set aside 6 times in a row" in step.events[-1].message


def test_a_model_call_that_lost_six_workers_is_closed_and_its_words_stand():
    six = [event for epoch in range(2, 8) for event in lost(epoch)]
    step = next_step(accepted(), started(), called(), said("Hel"), *six, epoch=7)
    assert [type(event).__name__ for event in step.events] == ["ModelFailed", "RunFailed"]


# --- attempts


def test_a_failed_attempt_is_tried_again_after_a_while():
    step = next_step(accepted(), started(), called(), failed())
    assert step == Pause(Timer(4.0, 1.0, CallModel(turn=1, attempt=2, model="main")))


def test_a_stalled_attempt_is_tried_again_at_once():
    step = next_step(accepted(), started(), called(), failed("ttfb_kill"))
    assert step == CallModel(turn=1, attempt=2, model="main")


def test_a_run_of_many_waits_its_own_share():
    step = next_step(accepted(), started(), called(), failed(), spread=0.0)
    assert step.timer.seconds == 0.5


def test_the_fallback_takes_over_the_turn():
    step = next_step(accepted(), started(), called(), failed("refused", status=401))
    assert step == CallModel(turn=1, attempt=2, model="backup")


def test_a_run_fails_when_no_model_is_left():
    refused = failed("refused", status=400, message="bad request")
    step = next_step(accepted(), started(), called(), refused)
    assert step == Record((RunFailed(code="model", message="bad request"),))


def test_the_run_s_own_rules_of_retry_are_used():
    one = accepted("main", attempts=1, retry_total=0.0)
    assert isinstance(following(state(one, started(), called(), failed())), GiveUp)
    many = accepted("main", attempts=2, retry_total=0.0)
    assert following(state(many, started(), called(), failed(waited=1e6))) == Wait(1.0, "main")


def test_an_attempt_cut_by_a_crash_is_no_failure_and_gets_a_new_number():
    step = next_step(accepted(attempts=1), started(), called(), *lost(2), epoch=2)
    assert step == CallModel(turn=1, attempt=2, model="main")


@pytest.mark.parametrize("end", [(failed(),), (failed("ttfb_kill"),), lost(2)])
def test_words_of_an_abandoned_attempt_are_retracted_before_the_next_one(end):
    before = (accepted(), started(), called(), said("Hel"), *end)
    retracted = ModelRetracted(turn=1, attempt=1, after=3)
    epoch = state(*before).epoch
    assert next_step(*before, epoch=epoch) == Record((retracted,))
    assert not isinstance(next_step(*before, retracted, epoch=epoch), Record)


def test_words_are_not_retracted_when_the_run_gives_up():
    refused = failed("refused", status=400, message="no")
    step = next_step(accepted(), started(), called(), said("Hel"), refused)
    assert step == Record((RunFailed(code="model", message="no"),))


def test_words_are_not_retracted_when_the_run_is_stopped():
    step = next_step(accepted(), started(), called(), said("Hel"), failed(), STOP)
    assert step == Record((RunCancelled(),))


def test_words_are_not_retracted_while_the_next_model_is_missing():
    before = (accepted(), started(), called(), said("Hel"), failed("refused", status=401))
    lack = RunWaiting(what="model", name="backup")
    assert next_step(*before, models={"main"}) == Record((lack,))


def test_a_missing_model_is_waited_for_and_named_once():
    lack = RunWaiting(what="model", name="main")
    assert next_step(accepted(), started(), models=()) == Record((lack,))
    assert next_step(accepted(), started(), lack, models=()) == Rest(again=LOOK_AGAIN)
    assert isinstance(next_step(accepted(), started(), lack), CallModel)


# --- the budget


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(turns=1), "1 turns"),
        (Budget(seconds=3.0), "3 s of work"),
        (Budget(tokens=5), "5 of its 5 tokens"),
        (Budget(money=0.5), "0.5 in money"),
    ],
)
def test_a_run_that_used_its_budget_fails_and_says_which(budget, words):
    first = replied(call(), usage=Usage(input=2, output=3, cost=0.5), seconds=2.0)
    before = (accepted(budget=budget), started(), called(), first, begun(), done(seconds=1.0))
    step = next_step(*before)
    assert step.events[0].code == "budget"
    assert words in step.events[0].message


def test_a_run_that_used_its_last_turn_for_its_answer_completes():
    step = next_step(accepted(budget=Budget(turns=1)), started(), called(), replied())
    assert step == Record((RunCompleted(),))


# --- tools


def test_a_call_is_started():
    assert next_step(*asking(call())) == RunTools((call(),))


def test_calls_that_only_run_alone_are_started_in_order():
    one, two = call("c1"), call("c2")
    assert next_step(*asking(one, two)) == RunTools((one,))
    assert next_step(*asking(one, two), begun("c1")) == Pause()
    assert next_step(*asking(one, two), begun("c1"), done("c1")) == RunTools((two,))


def test_parallel_calls_are_started_side_by_side_up_to_the_next_exclusive_one():
    looks = [call(f"c{n}", "look") for n in (1, 2)]
    pay, last = call("c3"), call("c4", "look")
    before = asking(*looks, pay, last)
    assert next_step(*before) == RunTools(tuple(looks))
    assert next_step(*before, begun("c1"), begun("c2"), done("c1")) == Pause()
    both = (begun("c1"), begun("c2"), done("c2"), done("c1"))
    assert next_step(*before, *both) == RunTools((pay,))
    assert next_step(*before, *both, begun("c3"), done("c3")) == RunTools((last,))


def test_a_call_that_waits_for_a_yes_does_not_hold_up_its_parallel_neighbours():
    waits, other = call("c1", "look", gate="ask"), call("c2", "look")
    assert next_step(*asking(waits, other), asked("c1")) == RunTools((other,))
    assert next_step(*asking(waits, other), asked("c1"), begun("c2")) == Pause()


def test_an_exclusive_call_that_waits_for_a_yes_holds_up_what_comes_after():
    waits, other = call("c1", gate="ask"), call("c2", "look")
    assert next_step(*asking(waits, other), asked("c1")) == Rest()


def test_a_tool_that_is_running_is_waited_for():
    assert next_step(*asking(call()), begun()) == Pause()


def test_a_missing_tool_is_waited_for_and_named_once():
    lack = RunWaiting(what="tool", name="pay")
    assert next_step(*asking(call()), tools=()) == Record((lack,))
    assert next_step(*asking(call()), lack, tools=()) == Rest(again=LOOK_AGAIN)
    assert next_step(*asking(call()), lack) == RunTools((call(),))


@pytest.mark.parametrize("tool", ["fly", "pay"])
def test_a_call_nobody_can_make_sense_of_is_told_to_the_model_and_nothing_runs(tool):
    step = next_step(*asking(call(tool=tool, gate="ask", problem="there is no such thing")))
    assert step == Record((done(outcome="error", output="there is no such thing"),))


def test_calls_that_will_not_run_are_told_before_anything_else_is_done():
    bad, good = call("c2", problem="no"), call("c1")
    assert outcomes(next_step(*asking(good, bad))) == {"c2": "error"}


# --- calls in doubt


def test_a_call_that_a_crash_cut_off_is_not_started_again():
    step = next_step(*asking(call()), begun(), *lost(2), epoch=2)
    assert outcomes(step) == {"c1": "unknown"}
    assert "whether it took effect is unknown" in step.events[0].output


def test_a_call_that_is_safe_to_repeat_is_repeated_a_bounded_number_of_times():
    put = call(tool="put")
    once = (*asking(put), begun(), *lost(2))
    assert next_step(*once, epoch=2) == RunTools((put,))
    twice = (*once, begun(), *lost(3))
    assert next_step(*twice, epoch=3) == RunTools((put,))
    thrice = (*twice, begun(), *lost(4))
    assert outcomes(next_step(*thrice, epoch=4)) == {"c1": "unknown"}


def test_a_call_that_was_never_started_is_started_after_a_crash():
    assert next_step(*asking(call()), *lost(2), epoch=2) == RunTools((call(),))


def test_a_finished_call_is_not_started_again_after_a_crash():
    step = next_step(*asking(call()), begun(), done(), *lost(2), epoch=2)
    assert isinstance(step, CallModel)


#: Two calls with one effect, both cut off; how the first one ended will never be known.
TWINS = (
    *asking(call("c1", "copy"), call("c2", "copy"), tools=(COPY,)),
    *(begun("c1"), *lost(2), begun("c1"), *lost(3), begun("c1"), begun("c2"), *lost(4)),
    done("c1", "unknown"),
)


def test_a_repeat_that_may_double_an_effect_is_put_to_a_person():
    step = next_step(*TWINS, epoch=4, tools={"copy"})
    assert [(asked_about.id, ask.doubt) for asked_about, ask in step.asks] == [("c2", "c1")]


@pytest.mark.parametrize("no", [answer("deny"), ApprovalExpired(approval_id="a1")])
def test_a_repeat_that_is_not_allowed_ends_unknown_and_does_not_wait_for_ever(no):
    step = next_step(*TWINS, asked("c2"), no, epoch=4, tools={"copy"})
    assert outcomes(step) == {"c2": "unknown"}


def test_a_repeat_that_nobody_can_be_asked_about_ends_unknown():
    put = call(tool="put", gate="ask", key="k")
    before = (*asking(put, approval="deny"), begun(), *lost(2))
    standing = (Grant("put", "k", "always"),)
    assert next_step(*before, epoch=2, grants=standing) == RunTools((put,))
    assert outcomes(next_step(*before, epoch=2)) == {"c1": "unknown"}


# --- approvals


def test_calls_with_nothing_to_wait_for_are_put_to_a_person_at_once():
    one, two = call("c1", "look", gate="ask", reason="it costs"), call("c2", gate="ask")
    step = next_step(*asking(one, two))
    assert step == AskPerson(((one, Ask("it costs")), (two, Ask(""))))


@pytest.mark.parametrize("gate", ["auto", "ask"])
def test_nobody_is_asked_about_a_call_before_what_writes_ahead_of_it_has_ended(gate):
    """What the person looks at must be what will be there when the call runs."""
    writes, waits = call("c1", gate=gate), call("c2", gate="ask")
    before = asking(writes, waits)
    if gate == "ask":
        assert next_step(*before) == AskPerson(((writes, Ask("")),))
        before = (*before, asked())
        assert next_step(*before) == Rest()
        before = (*before, answer())
    assert next_step(*before) == RunTools((writes,))
    assert next_step(*before, begun()) == Pause()
    assert next_step(*before, begun(), done()) == AskPerson(((waits, Ask("")),))


def test_a_tool_nobody_knows_is_taken_to_write_what_a_person_would_look_at():
    unknown, waits = call("c1", "gone"), call("c2", gate="ask")
    lack = RunWaiting(what="tool", name="gone")
    assert next_step(*asking(unknown, waits)) == Record((lack,))


def test_what_only_reads_runs_while_a_person_is_asked_about_what_comes_after_it():
    reads, waits = call("c1", "look"), call("c2", gate="ask")
    assert next_step(*asking(reads, waits)) == AskPerson(((waits, Ask("")),))
    assert next_step(*asking(reads, waits), asked("c2")) == RunTools((reads,))


def test_calls_that_may_run_side_by_side_are_asked_about_together():
    one, two, alone = (call("c1", "copy", gate="ask"), call("c2", "copy", gate="ask"), call("c3"))
    last = call("c4", "copy", gate="ask")
    step = next_step(*asking(one, two, alone, last, tools=(COPY,)), tools={"copy"})
    assert step == AskPerson(((one, Ask("")), (two, Ask(""))))


def test_a_tool_that_is_missing_is_not_waited_for_before_its_turn():
    writes, waits = call("c1"), call("c2", "put", gate="ask")
    assert next_step(*asking(writes, waits), begun(), tools={"pay"}) == Pause()


def test_a_run_that_waits_for_a_person_rests_until_the_first_approval_runs_out():
    one, two = call("c1", gate="ask"), call("c2", gate="ask")
    before = (*asking(one, two), asked("c1", "a1", expires=100.0), asked("c2", "a2", expires=9.0))
    assert next_step(*before) == Rest(Timer(6.0, 9.0, Record((ApprovalExpired(approval_id="a2"),))))


def test_an_approval_without_a_limit_waits_for_ever():
    assert next_step(*asking(call(gate="ask")), asked()) == Rest()


def test_an_approval_may_run_out_while_another_call_runs():
    waits, other = call("c1", "look", gate="ask"), call("c2", "look")
    step = next_step(*asking(waits, other), asked("c1", expires=9.0), begun("c2"))
    assert step == Pause(Timer(5.0, 9.0, Record((ApprovalExpired(approval_id="a1"),))))


def test_a_yes_starts_the_call():
    pay = call(gate="ask")
    assert next_step(*asking(pay), asked(), answer()) == RunTools((pay,))


@pytest.mark.parametrize(
    ("no", "outcome"),
    [(answer("deny"), "denied"), (ApprovalExpired(approval_id="a1"), "expired")],
)
def test_a_no_or_silence_is_told_to_the_model(no, outcome):
    step = next_step(*asking(call(gate="ask")), asked(), no)
    assert outcomes(step) == {"c1": outcome}
    assert step.events[0].output


def test_what_policy_refuses_is_told_to_the_model():
    assert outcomes(next_step(*asking(call(gate="refuse", reason="never")))) == {"c1": "refused"}
    assert outcomes(next_step(*asking(call(gate="ask"), approval="deny"))) == {"c1": "refused"}


def test_a_standing_yes_of_the_workspace_starts_the_call():
    pay = call(gate="ask", key="k")
    standing = (Grant("pay", "k", "always"),)
    assert next_step(*asking(pay), grants=standing) == RunTools((pay,))


# --- the last look


def test_a_call_may_start_once_its_start_is_on_record():
    assert may_start(state(*asking(call()), begun()), "c1", rules())


@pytest.mark.parametrize("late", [(STOP, begun()), (begun(), STOP)])
def test_a_call_may_not_start_once_a_stop_is_on_record(late):
    assert not may_start(state(*asking(call()), *late), "c1", rules())


def test_a_call_may_not_start_without_its_start_on_record():
    assert not may_start(state(*asking(call())), "c1", rules())


def test_a_call_may_not_start_for_a_worker_that_is_gone():
    assert not may_start(state(*asking(call()), begun(), *lost(2)), "c1", rules(2))


def test_a_call_may_not_start_without_its_yes():
    assert not may_start(state(*asking(call(gate="ask")), begun()), "c1", rules())


# --- the end of a stopped run


def test_a_stop_ends_what_is_open_and_hands_out_a_receipt():
    step = next_step(*asking(call("c1"), call("c2")), begun("c1"), STOP)
    assert outcomes(step) == {"c1": "cancelled", "c2": "not_started"}
    assert step.events[-1] == RunCancelled(receipt=Receipt(tool_calls=("c1",)))


def test_a_stop_of_a_model_call_says_that_it_may_be_billed():
    step = next_step(accepted(), started(), called(), said("Hel"), STOP)
    assert step.events[0].reason == "interrupt_abort"
    assert step.events[0].message == "cut off when the run ended"
    assert step.events[-1] == RunCancelled(receipt=Receipt(model_calls=1, may_bill=True))


def test_a_model_call_recorded_after_a_stop_was_not_made():
    step = next_step(accepted(), started(), STOP, called())
    assert step.events[0].message == "not made, a stop came first"
    assert step.events[-1] == RunCancelled()


def test_a_tool_start_recorded_after_a_stop_was_not_made():
    step = next_step(*asking(call()), STOP, begun())
    assert outcomes(step) == {"c1": "not_started"}
    assert step.events[-1] == RunCancelled()


def test_a_repeat_recorded_after_a_stop_leaves_the_first_start_in_doubt():
    step = next_step(*asking(call(tool="put")), begun(), *lost(2), STOP, begun(), epoch=2)
    assert outcomes(step) == {"c1": "unknown"}
    assert step.events[-1].receipt.tool_calls == ("c1",)


def test_a_tool_of_a_lost_worker_ends_unknown_when_the_run_is_stopped():
    step = next_step(*asking(call()), begun(), rescued(), STOP, epoch=2)
    assert outcomes(step) == {"c1": "unknown"}


def test_a_finished_call_is_not_on_the_receipt():
    assert next_step(*asking(call()), begun(), done(), STOP) == Record((RunCancelled(),))


def test_a_failed_attempt_is_not_on_the_receipt():
    assert next_step(accepted(), started(), called(), failed(), STOP) == Record((RunCancelled(),))


def test_a_stop_withdraws_a_pending_approval_and_its_call_was_not_started():
    step = next_step(*asking(call(gate="ask")), asked(), STOP, answer())
    assert outcomes(step) == {"c1": "not_started"}
    assert step.events[-1] == RunCancelled()
