"""Whatever happens to a run, it comes to an end and keeps its promises on the way."""

from collections import Counter
from collections.abc import Callable
from functools import cache, reduce
from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given, settings

from holdfast.core.codec import recall
from holdfast.core.events import (
    FINAL,
    WISHES,
    ApprovalAnswered,
    ApprovalExpired,
    ApprovalRequested,
    InputAdded,
    ModelCalled,
    ModelReplied,
    ModelRetracted,
    RunCancelled,
    RunFailed,
    RunQueued,
    RunStarted,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from holdfast.core.messages import AssistantMessage, ToolMessage
from holdfast.core.phase import phase
from holdfast.core.run import RunState, effect, fold, replay
from holdfast.testing.strategies import TOO_LONG, TOOLS, Life, live, lives

SPECS = {spec.name: spec for spec in TOOLS}
REPEATS = 3

PROMISES: list[Callable[[Life], None]] = []


def all_of(journal, *kinds):
    return [
        (recorded.seq, recorded.event) for recorded in journal if isinstance(recorded.event, kinds)
    ]


def answers(journal, before):
    """The answers that counted: approval id to choice, the first after its question."""
    pending, given_ = set(), {}
    for recorded in journal[: before - 1]:
        match recorded.event:
            case ApprovalRequested(approval_id=id):
                pending.add(id)
            case ApprovalExpired(approval_id=id):
                pending.discard(id)
            case StopRequested():
                pending.clear()
            case ApprovalAnswered(approval_id=id, choice=choice) if id in pending:
                pending.discard(id)
                given_[id] = choice
    return given_


def said_yes(journal, call, before):
    """A person was asked about this very call before it started, and said yes."""
    counted = answers(journal, before)
    ids = [e.approval_id for _, e in all_of(journal, ApprovalRequested) if e.call_id == call.id]
    return any(counted.get(id, "deny") != "deny" for id in ids)


def covered(life, call, before):
    """A yes that reaches as far as this call stood before it started."""
    calls = {c.id: c for _, e in all_of(life.journal, ModelReplied) for c in e.calls}
    asked = {e.approval_id: calls[e.call_id] for _, e in all_of(life.journal, ApprovalRequested)}
    counted = answers(life.journal, before)
    granted = {
        (asked[id].tool, asked[id].key) for id, c in counted.items() if c in ("session", "always")
    }
    granted |= {(grant.tool, grant.key) for grant in life.standing}
    return bool(call.key) and (call.tool, call.key) in granted


@cache
def many():
    return [live(Random(seed).randrange) for seed in range(500)]


def in_any_life(promise):
    """Hold the promise against the same many lives each time.

    `test_no_life_breaks_a_promise` looks for others, and makes one that breaks a promise small.
    """
    PROMISES.append(promise)

    def test():
        for life in many():
            promise(life)

    return test


@in_any_life
def test_a_run_comes_to_an_end_and_to_one_only(life):
    ends = all_of(life.journal, *FINAL)
    assert len(ends) == 1
    assert ends[0][0] == len(life.journal)
    assert len(life.journal) < TOO_LONG


@in_any_life
def test_a_tool_call_starts_at_most_once_unless_it_is_safe_to_repeat(life):
    for id, times in Counter(call.id for _, call in life.effects).items():
        tool = next(call.tool for _, call in life.effects if call.id == id)
        assert times <= (REPEATS if SPECS[tool].repeatable else 1)


@in_any_life
def test_a_tool_call_starts_only_once_in_the_hands_of_one_worker(life):
    epoch, starts = 0, set()
    for recorded in life.journal:
        match recorded.event:
            case RunStarted(epoch=epoch):
                pass
            case ToolStarted(call_id=id):
                assert (epoch, id) not in starts
                starts.add((epoch, id))


@in_any_life
def test_a_tool_call_that_runs_alone_runs_alone(life):
    calls = {c.id: c for _, e in all_of(life.journal, ModelReplied) for c in e.calls}
    began, running = {seq for seq, _ in life.effects}, set()
    for recorded in life.journal:
        match recorded.event:
            case ToolStarted(call_id=id) if recorded.seq in began:
                running.add(id)
                assert len(running) == 1 or all(SPECS[calls[r].tool].parallel for r in running)
            case ToolFinished(call_id=id):
                running.discard(id)
            case RunQueued():
                running.clear()


@in_any_life
def test_nobody_is_asked_where_nobody_can_be(life):
    if life.journal[0].event.approval == "deny":
        assert not all_of(life.journal, ApprovalRequested)


@in_any_life
def test_words_are_retracted_only_for_another_attempt(life):
    after = [
        r.event for r in life.journal if not isinstance(r.event, (*WISHES, RunQueued, RunStarted))
    ]
    for event, following in pairwise(after):
        if isinstance(event, ModelRetracted):
            cut = isinstance(following, RunFailed | RunCancelled | RunWaiting)
            assert cut or isinstance(following, ModelCalled)


@in_any_life
def test_nothing_runs_unasked_that_needs_a_yes(life):
    for seq, call in life.effects:
        yes = said_yes(life.journal, call, seq) or covered(life, call, seq)
        assert call.gate == "auto" or (call.gate == "ask" and yes)
        assert not call.problem


@in_any_life
def test_nothing_that_may_repeat_an_effect_runs_without_a_yes_of_its_own(life):
    calls = {c.id: c for _, e in all_of(life.journal, ModelReplied) for c in e.calls}
    unknown = [(s, e) for s, e in all_of(life.journal, ToolFinished) if e.outcome == "unknown"]
    for seq, call in life.effects:
        doubtful = any(s < seq and effect(calls[e.call_id]) == effect(call) for s, e in unknown)
        if doubtful and SPECS[call.tool].writes:
            assert said_yes(life.journal, call, seq)


@in_any_life
def test_nothing_starts_after_a_stop_on_record(life):
    stops = [seq for seq, _ in all_of(life.journal, StopRequested)]
    began = [seq for seq, _ in (*life.effects, *life.calls)]
    assert not stops or all(seq < stops[0] for seq in began)


@in_any_life
def test_a_stopped_run_ends_cancelled_and_no_other_does(life):
    stopped = bool(all_of(life.journal, StopRequested))
    assert isinstance(life.journal[-1].event, RunCancelled) == stopped


@in_any_life
def test_a_receipt_names_only_calls_that_were_started_and_none_that_was_cut_is_left_out(life):
    if isinstance(end := life.journal[-1].event, RunCancelled):
        told = {e.call_id: e.outcome for _, e in all_of(life.journal, ToolFinished)}
        started = {event.call_id for _, event in all_of(life.journal, ToolStarted)}
        assert set(end.receipt.tool_calls) <= started
        assert {id for id, how in told.items() if how == "cancelled"} <= {*end.receipt.tool_calls}


@in_any_life
def test_no_call_is_said_to_have_run_that_did_not(life):
    effects = {call.id for _, call in life.effects}
    problems = {c.id for _, e in all_of(life.journal, ModelReplied) for c in e.calls if c.problem}
    for _, event in all_of(life.journal, ToolFinished):
        if event.outcome in ("ok", "error", "timeout"):
            assert event.call_id in effects | problems


@in_any_life
def test_no_effect_is_reported_as_never_started(life):
    told = {event.call_id: event.outcome for _, event in all_of(life.journal, ToolFinished)}
    for _, call in life.effects:
        assert told[call.id] not in ("not_started", "denied", "expired", "refused")


@in_any_life
def test_a_message_that_was_taken_reaches_the_model_unless_the_run_is_cut_short(life):
    if isinstance(life.journal[-1].event, RunCancelled | RunFailed):
        return
    for seq, event in all_of(life.journal, InputAdded):
        later = [talk for called, talk in life.calls if called > seq]
        assert any(event.message_id in {getattr(m, "id", "") for m in talk} for talk in later)


@in_any_life
def test_the_model_is_told_what_came_of_every_call_before_it_is_called_again(life):
    for _, talk in life.calls:
        asked = [call.id for m in talk if isinstance(m, AssistantMessage) for call in m.calls]
        told = [m.call_id for m in talk if isinstance(m, ToolMessage)]
        assert told == asked


@in_any_life
def test_a_viewer_who_forgets_what_is_retracted_has_exactly_the_reply(life):
    shown = []
    for recorded in life.journal:
        match recorded.event:
            case TextStreamed(text=text):
                shown.append((recorded.seq, text))
            case ModelRetracted(after=after):
                shown = [(seq, text) for seq, text in shown if seq <= after]
            case ModelReplied(text=text):
                assert "".join(word for _, word in shown) == text
                shown = []


@in_any_life
def test_a_run_is_given_up_after_six_lost_workers_in_a_row_and_not_before(life):
    in_a_row = 0
    for recorded in life.journal:
        match recorded.event:
            case RunQueued(why=why):
                in_a_row += why != "drained"
            case ModelReplied() | ToolFinished(outcome="ok" | "error" | "timeout"):
                in_a_row = 0
            case ModelCalled() | ToolStarted():
                assert in_a_row <= 5
            case RunFailed(code="rescues"):
                assert in_a_row > 5


@in_any_life
def test_every_prefix_replays_and_says_what_it_waits_for(life):
    state = RunState()
    for recorded in life.journal:
        state = fold(state, recall(recorded.seq, recorded.at, recorded.body))
        assert state.seq == recorded.seq
        assert (phase(state) is None) == state.status.final


@in_any_life
def test_a_state_and_the_rest_of_the_journal_make_the_same_end(life):
    stored = [recall(r.seq, r.at, r.body) for r in life.journal]
    cut = len(stored) // 2
    assert reduce(fold, stored[cut:], replay(life.journal[:cut])) == replay(stored)


@in_any_life
def test_a_state_is_never_changed_by_what_comes_after(life):
    states = list(accumulate(life.journal, fold, initial=RunState()))
    seldom = range(0, len(states), 7)
    assert [states[n] for n in seldom] == [replay(life.journal[:n]) for n in seldom]


# Making a failing life small may take a while, and is worth it.
@pytest.mark.timeout(300)
@settings(max_examples=80)
@given(lives())
def test_no_life_breaks_a_promise(life):
    for promise in PROMISES:
        promise(life)


@pytest.mark.soak
def test_a_hundred_thousand_lives_keep_every_promise():
    for seed in range(100_000):
        test_no_life_breaks_a_promise.hypothesis.inner_test(live(Random(seed).randrange))
