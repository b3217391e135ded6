import pytest

from holdfast.core.codec import recall, record
from holdfast.core.events import (
    ApprovalExpired,
    InputAdded,
    InputEdited,
    ModelHeard,
    ModelRetracted,
    ReasoningStreamed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunWaiting,
    StopRequested,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)
from holdfast.core.lifecycle import Status
from holdfast.core.messages import AssistantMessage, Text, ToolCall, ToolMessage, UserMessage
from holdfast.core.retry import Failure
from holdfast.core.run import Grant, RunState, effect, fold, replay
from holdfast.core.usage import Usage
from holdfast.errors import IllegalEvent
from tests.core.stories import (
    LOOK,
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
    journal,
    lost,
    replied,
    rescued,
    said,
    started,
    state,
)

STOP = StopRequested(by="ada", reason="enough")


def steer(id="m1"):
    return InputAdded(parts=(Text("wait"),), message_id=id)


def test_an_event_out_of_place_is_refused_by_its_name():
    with pytest.raises(IllegalEvent, match="RunStarted cannot happen to a run that is new"):
        state(started())
    with pytest.raises(IllegalEvent, match="RunStarted cannot happen to a run that is completed"):
        state(accepted(), started(), RunCompleted(), started())


# --- a plain run


def test_a_run_is_queued_until_a_worker_takes_it():
    assert state(accepted()).status is Status.QUEUED
    running = state(accepted(), started(epoch=3, worker="bob"))
    assert (running.status, running.worker, running.epoch) == (Status.RUNNING, "bob", 3)


def test_what_was_accepted_opens_the_conversation():
    before = state(accepted(input=(Text("hi"),), message_id="m0"))
    assert before.conversation == (UserMessage(parts=(Text("hi"),), id="m0"),)


def test_a_reply_joins_the_conversation_and_is_the_output():
    after = state(accepted(), started(), called(), said("Hel"), said("lo"), replied(text="Hello"))
    assert after.output == "Hello"
    assert after.conversation[-1] == AssistantMessage(text="Hello")
    assert (after.replies, after.attempt) == (1, None)


def test_a_run_without_a_reply_has_no_output():
    assert state(accepted()).output == ""


@pytest.mark.parametrize(
    ("final", "status"),
    [
        (RunCompleted(), Status.COMPLETED),
        (RunFailed(code="model", message="no"), Status.FAILED),
    ],
)
def test_a_run_ends_as_it_is_said_to(final, status):
    after = state(accepted(), started(), final)
    assert (after.status, after.ended) == (status, final)


def test_usage_and_seconds_add_up_over_the_run():
    after = state(
        *(accepted(), started(), called(), failed(seconds=1.0), called(attempt=2)),
        *(replied(call(), attempt=2, usage=Usage(input=3), seconds=2.0), begun()),
        *(done(seconds=4.0), called(turn=2), replied(turn=2, usage=Usage(output=5), seconds=8.0)),
    )
    assert after.usage == Usage(input=3, output=5)
    assert after.seconds == 15.0


def test_a_state_knows_when_and_where_it_stands():
    after = state(accepted(), started())
    assert (after.seq, after.at) == (2, 2.0)


# --- one attempt at a reply


def test_what_an_attempt_streamed_is_kept_apart_from_what_it_thought():
    thought = ReasoningStreamed(turn=1, attempt=1, text="hm")
    attempt = state(accepted(), started(), called(), thought, said("Hel"), said("lo")).attempt
    assert "".join(attempt.text) == "Hello"
    assert "".join(attempt.reasoning) == "hm"
    assert attempt.shown


@pytest.mark.parametrize(
    "event",
    [
        ModelHeard(turn=1, attempt=1),
        said("a"),
        ReasoningStreamed(turn=1, attempt=1, text="hm"),
    ],
)
def test_the_first_sign_of_an_attempt_is_noted_with_its_time(event):
    attempt = state(accepted(), started(), called(), event).attempt
    assert (attempt.at, attempt.heard, attempt.heard_at) == (3.0, True, 4.0)


def test_an_acknowledgement_shows_nothing():
    attempt = state(accepted(), started(), called(), ModelHeard(turn=1, attempt=1)).attempt
    assert not attempt.shown


def test_a_failed_attempt_leaves_its_words_standing_until_they_are_retracted():
    retracted = ModelRetracted(turn=1, attempt=1, after=3)
    before = state(accepted(), started(), called(), said("Hel"), failed())
    assert before.attempt.shown
    assert not before.attempt.open
    assert not go_on(before, retracted).attempt.shown


def test_a_failure_remembers_what_is_needed_to_decide_on_the_next_attempt():
    event = failed("overloaded", status=529, retry_after=3.0, waited=2.0, message="busy")
    after = state(accepted(), started(), called(), said("a"), event)
    expected = Failure("main", "overloaded", "busy", 529, 3.0, waited=2.0, spoke=True, at=5.0)
    assert after.failures == (expected,)


def test_a_reply_forgets_the_failures_before_it():
    after = state(accepted(), started(), called(), failed(), called(attempt=2), replied(attempt=2))
    assert after.failures == ()


def test_an_attempt_is_not_called_over_words_that_still_stand():
    shown = state(accepted(), started(), called(), said("Hel"), failed())
    with pytest.raises(IllegalEvent, match="over words that still stand"):
        go_on(shown, called(attempt=2))


def test_the_model_is_not_called_over_open_calls():
    with pytest.raises(IllegalEvent, match="open calls"):
        state(*asking(call()), called(turn=2))


@pytest.mark.parametrize(("turn", "attempt"), [(1, 2), (2, 1), (1, 0), (0, 1)])
def test_attempts_are_counted_without_gaps(turn, attempt):
    with pytest.raises(IllegalEvent, match="is not the next one"):
        state(accepted(), started(), called(turn, attempt))


def test_an_attempt_number_is_never_used_twice():
    with pytest.raises(IllegalEvent, match="is not the next one"):
        state(accepted(), started(), called(), *lost(2), called())


@pytest.mark.parametrize("event", [said("a", attempt=2), said("a", turn=2), replied(attempt=2)])
def test_words_of_another_attempt_than_the_latest_are_a_bug(event):
    with pytest.raises(IllegalEvent, match="which is not under way"):
        state(accepted(), started(), called(), event)


def test_words_without_a_call_are_a_bug():
    with pytest.raises(IllegalEvent, match="TextStreamed speaks of attempt 1 at turn 1"):
        state(accepted(), started(), said("a"))


# --- tools


def test_a_call_is_open_until_it_has_a_result():
    asked_for = state(*asking(call()))
    assert [tool.call.id for tool in asked_for.open_tools] == ["c1"]
    assert go_on(asked_for, begun(), done()).open_tools == ()


def test_results_are_told_in_the_order_of_the_calls():
    after = state(
        *(*asking(call("c1", "look"), call("c2", "look")), begun("c1"), begun("c2")),
        *(done("c2", output="two"), done("c1", "error", output="one"), called(turn=2)),
    )
    assert after.conversation[-2:] == (
        ToolMessage(call_id="c1", tool="look", output="one", ok=False),
        ToolMessage(call_id="c2", tool="look", output="two", ok=True),
    )
    assert after.tools == ()


def test_a_call_runs_as_long_as_the_worker_that_started_it_holds_the_run():
    here = state(*asking(call()), begun())
    assert here.running(here.tools[0])
    assert not here.in_doubt(here.tools[0])
    gone = go_on(here, *lost(2))
    assert gone.in_doubt(gone.tools[0])
    assert not gone.running(gone.tools[0])


def test_a_call_that_was_not_started_or_is_done_is_neither_running_nor_in_doubt():
    for now in (state(*asking(call())), state(*asking(call()), begun(), done())):
        assert not now.running(now.tools[0])
        assert not now.in_doubt(now.tools[0])


def test_progress_of_a_tool_changes_nothing_but_the_place():
    before = state(*asking(call()), begun())
    after = go_on(before, ToolProgressed(call_id="c1", text="half way"))
    assert after.tools == before.tools
    assert after.seq == before.seq + 1


@pytest.mark.parametrize("event", [begun("c9"), done("c9"), asked("c9")])
def test_an_event_about_a_call_nobody_made_is_a_bug(event):
    with pytest.raises(IllegalEvent, match="no tool call c9 is under way"):
        state(*asking(call()), event)


def test_an_unknown_outcome_leaves_a_doubt_about_the_same_effect():
    after = state(*asking(call()), begun(), *lost(2), done(outcome="unknown"))
    assert after.doubts == {effect(call("c2", arguments='{"sum":1.0}')): "c1"}


def test_a_start_recorded_after_a_stop_is_no_start():
    after = state(*asking(call()), STOP, begun())
    assert after.tools[0].starts == 0


def test_a_start_recorded_after_a_stop_leaves_an_earlier_one_in_doubt():
    after = state(*asking(call(tool="put")), begun(), *lost(2), STOP, begun())
    assert (after.tools[0].starts, after.tools[0].epoch) == (1, 1)


def test_a_tool_is_found_by_its_name():
    assert state(accepted()).spec("look") == LOOK
    assert state(accepted()).spec("fly") is None
    assert RunState().spec("look") is None


# --- rescues


@pytest.mark.parametrize(("why", "count"), [("drained", 0), ("rescued", 1), ("tripped", 1)])
def test_a_worker_that_was_lost_counts_and_one_that_let_go_does_not(why, count):
    after = state(accepted(), started(), rescued(why))
    assert (after.status, after.worker, after.rescues) == (Status.QUEUED, "", count)


def test_a_whole_reply_or_a_tool_that_ran_ends_the_count():
    assert state(accepted(), started(), *lost(2), called(), replied()).rescues == 0
    assert state(*asking(call()), *lost(2), begun(), done()).rescues == 0


def test_a_tool_that_did_not_run_does_not_end_the_count():
    assert state(*asking(call()), begun(), *lost(2), done(outcome="unknown")).rescues == 1


# --- approvals


def test_a_run_waits_while_an_approval_is_pending():
    waiting = state(*asking(call()), asked())
    assert waiting.status is Status.WAITING
    assert go_on(waiting, answer()).status is Status.RUNNING


def test_a_queued_run_waits_too_while_an_approval_is_pending():
    assert state(*asking(call()), asked(), rescued()).status is Status.WAITING


def test_a_run_waits_until_the_last_of_several_approvals_is_answered():
    both = state(*asking(call("c1"), call("c2")), asked("c1", "a1"), asked("c2", "a2"))
    one = go_on(both, answer(approval="a2"))
    assert one.status is Status.WAITING
    assert [p.request.approval_id for p in one.pending] == ["a1"]
    assert [tool.answer for tool in go_on(one, answer("deny", "a1")).tools] == ["deny", "once"]


def test_a_late_answer_changes_nothing():
    settled = state(*asking(call()), asked(), answer("deny"))
    late = go_on(settled, answer("always"))
    assert late.tools == settled.tools
    assert late.grants == ()


def test_an_answer_before_the_question_changes_nothing():
    early = state(*asking(call()), answer(), asked())
    assert early.status is Status.WAITING
    assert early.tools[0].answer is None


def test_an_answer_to_something_else_changes_nothing():
    assert state(*asking(call()), asked(), answer(approval="a9")).status is Status.WAITING


def test_an_answer_after_an_expiry_changes_nothing():
    after = state(*asking(call()), asked(), ApprovalExpired(approval_id="a1"), answer())
    assert (after.tools[0].expired, after.tools[0].answer) == (True, None)


def test_an_expiry_after_an_answer_changes_nothing():
    after = state(*asking(call()), asked(), answer(), ApprovalExpired(approval_id="a1"))
    assert (after.tools[0].expired, after.tools[0].answer) == (False, "once")


def test_an_answer_after_a_stop_changes_nothing():
    after = state(*asking(call()), asked(), STOP, answer())
    assert after.tools[0].answer is None
    assert after.status is Status.STOPPING


def test_a_stop_withdraws_every_question():
    assert state(*asking(call()), asked(), STOP).pending == ()


def test_a_question_put_after_a_stop_is_not_pending():
    after = state(*asking(call()), STOP, asked())
    assert after.pending == ()


def test_what_each_approval_came_to_can_be_told_to_whoever_is_late():
    calls = [call(f"c{n}") for n in range(1, 5)]
    after = state(
        *(*asking(*calls), *(asked(f"c{n}", f"a{n}") for n in range(1, 5))),
        *(answer("once", "a1", by="ada"), answer("deny", "a2")),
        *(ApprovalExpired(approval_id="a3"), STOP),
    )
    assert after.settled == {
        "a1": "was answered once by ada",
        "a2": "was answered deny",
        "a3": "has expired",
        "a4": "was withdrawn by a stop",
    }


def test_a_call_with_a_result_needs_no_answer_any_more():
    assert state(*asking(call()), asked(), done(outcome="refused")).pending == ()


@pytest.mark.parametrize("choice", ["session", "always"])
def test_a_standing_yes_is_remembered_with_its_reach(choice):
    after = state(*asking(call(key="pay bob")), asked(), answer(choice))
    assert after.grants == (Grant("pay", "pay bob", choice),)
    assert after.tools[0].answer == choice


def test_a_yes_for_once_leaves_no_rule():
    assert state(*asking(call(key="pay bob")), asked(), answer("once")).grants == ()


# --- wishes


def test_a_stop_stands_however_often_it_is_repeated():
    after = state(accepted(), STOP, StopRequested(by="bob"))
    assert (after.status, after.stop, after.stopped_at) == (Status.STOPPING, STOP, 2.0)
    assert after.stopping


def test_a_stopped_run_ends_cancelled():
    assert state(accepted(), STOP, RunCancelled()).status is Status.CANCELLED


@pytest.mark.parametrize("final", [RunCompleted(), RunFailed(code="model", message="no")])
def test_a_stopped_run_cannot_end_otherwise(final):
    with pytest.raises(IllegalEvent, match="cannot happen to a run that is stopping"):
        state(accepted(), started(), STOP, final)


def test_a_message_waits_for_the_next_call_and_is_in_its_conversation():
    waiting = state(accepted(), started(), called(), steer(), replied())
    assert waiting.inputs == (UserMessage(parts=(Text("wait"),), id="m1"),)
    called_again = go_on(waiting, called(turn=2))
    assert called_again.conversation[-1] == waiting.inputs[0]
    assert called_again.inputs == ()


def test_a_run_does_not_complete_over_a_message_or_an_open_call():
    for before in (state(accepted(), started(), steer()), state(*asking(call()))):
        with pytest.raises(IllegalEvent, match="a run cannot complete"):
            go_on(before, RunCompleted())


def test_a_message_after_a_stop_is_not_taken():
    assert state(accepted(), STOP, steer()).inputs == ()


def test_an_intent_to_call_after_a_stop_is_known_to_be_late():
    assert state(accepted(), started(), STOP, called()).attempt.late
    assert not state(accepted(), started(), called(), STOP).attempt.late


@pytest.mark.parametrize("wish", [STOP, steer(), answer()])
def test_a_wish_is_taken_before_any_worker_has_the_run(wish):
    assert state(accepted(), wish).status.live


# --- what a run lacks


def test_what_a_run_lacks_is_remembered_until_it_goes_on():
    lack = RunWaiting(what="model", name="main")
    waiting = state(accepted(), started(), lack, steer())
    assert (waiting.waiting, waiting.waiting_at) == (lack, 3.0)
    assert go_on(waiting, called()).waiting is None


def test_a_tool_that_starts_is_lacking_no_more():
    lack = RunWaiting(what="tool", name="pay")
    assert state(*asking(call()), lack, begun()).waiting is None


# --- a newer version


def test_an_event_of_an_unknown_tag_changes_nothing_but_the_place():
    before = state(accepted(), started())
    after = fold(before, recall(3, 3.0, b'{"type":"run.forked"}'))
    assert (after.seq, after.unknown) == (3, "run.forked")
    assert (after.status, after.tools, after.messages) == (
        before.status,
        before.tools,
        before.messages,
    )


def test_the_first_unknown_tag_is_the_one_that_is_named():
    after = fold(state(accepted()), recall(2, 2.0, b'{"type":"run.forked"}'))
    assert fold(after, recall(3, 3.0, b'{"type":"run.joined"}')).unknown == "run.forked"


# --- folding


def test_replaying_is_folding_one_by_one():
    story = journal(*asking(call()), asked(), answer(), begun(), done())
    now = RunState()
    for recorded in story:
        now = fold(now, recorded)
    assert replay(story) == now


def test_folding_leaves_the_earlier_state_as_it_was():
    before = state(*asking(call()), asked())
    kept = (before.status, before.tools, before.pending, dict(before.settled))
    go_on(before, answer(), begun(), done())
    assert (before.status, before.tools, before.pending, before.settled) == kept


def test_a_long_reply_stays_in_a_few_pieces():
    now = state(accepted(), started(), called())
    for _ in range(3000):
        now = go_on(now, said("word "))
    assert "".join(now.attempt.text) == "word " * 3000
    assert len(now.attempt.text) <= 16


def test_a_long_conversation_stays_in_a_few_pieces():
    now = state(accepted(), started())
    for turn in range(1, 500):
        now = go_on(now, called(turn), replied(turn=turn), steer(f"m{turn}"))
    assert len(now.conversation) == 998
    assert len(now.messages) <= 12


def test_any_effect_is_its_tool_and_its_arguments():
    assert effect(call(tool="pay", arguments='{ "b":1, "a":2 }')) == 'pay {"a":2,"b":1}'
    assert effect(call(tool="pay")) != effect(call(tool="put"))


def test_a_run_can_be_queued_and_started_any_number_of_times():
    after = state(accepted(), rescued("drained"), rescued("drained"), *lost(2), *lost(3))
    assert (after.status, after.epoch) == (Status.RUNNING, 3)


def test_what_follows_from_an_event_of_a_newer_version_is_shown_and_changes_nothing():
    """A newer version may have made a tool call that we know nothing of."""
    journal = [
        record(1, 1.0, accepted()),
        record(2, 2.0, started()),
        recall(3, 3.0, b'{"type":"model.danced"}'),
        record(4, 4.0, ToolFinished(call_id="of the dance", outcome="ok")),
    ]
    shown = replay(journal)
    assert (shown.seq, shown.at, shown.unknown) == (4, 4.0, "model.danced")
    with pytest.raises(IllegalEvent):
        replay([*journal[:2], record(3, 4.0, journal[3].event)])


def test_a_call_has_one_result():
    pay, result = ToolCall(id="call_1", tool="pay"), ToolFinished(call_id="call_1", outcome="ok")
    begin = ToolStarted(call_id="call_1")
    over = state(accepted(), started(), called(), replied(pay), begin, result)
    for late in (result, begin):
        with pytest.raises(IllegalEvent):
            go_on(over, late)


@pytest.mark.parametrize("over", [(failed(),), lost(2)])
def test_an_attempt_that_is_over_says_nothing_more(over):
    silent = state(accepted(), started(), called(), *over)
    for late in (said("a"), ModelHeard(turn=1, attempt=1), replied()):
        with pytest.raises(IllegalEvent):
            go_on(silent, late)


# --- before it begins


def edited(text="rather this"):
    return InputEdited(parts=(Text(text),), by="ada")


def test_what_is_asked_may_be_edited_until_the_run_begins():
    after = state(accepted(), edited(), edited("or this"))
    assert after.accepted.input == (Text("or this"),)
    assert [message.parts for message in after.conversation] == [(Text("or this"),)]


def test_an_edit_after_the_beginning_or_a_stop_changes_nothing():
    before = state(accepted(), started())
    assert state(accepted(), started(), edited()).conversation == before.conversation
    stopped = state(accepted(), StopRequested(removed=True), edited())
    assert stopped.conversation == before.conversation


def test_a_message_that_comes_twice_under_one_id_is_taken_once():
    twice = state(accepted(), started(), steer("m2"), steer("m2"), steer("m3"))
    assert [message.id for message in twice.inputs] == ["m2", "m3"]
    told = state(accepted(), started(), steer("m2"), called(), replied(), steer("m2"))
    assert told.inputs == ()
    unnamed = state(accepted(), started(), steer(""), steer(""))
    assert len(unnamed.inputs) == 2
