from functools import reduce
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings

from holdfast.core.codec import recall
from holdfast.core.entries import Card, Notice, Question, Reply, Said
from holdfast.core.events import (
    ApprovalExpired,
    InputAdded,
    InputEdited,
    ModelRetracted,
    ReasoningStreamed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunWaiting,
    StopRequested,
    ToolStarted,
)
from holdfast.core.marker import marked, marker
from holdfast.core.messages import BlobRef, Image, Reasoning, Text
from holdfast.core.run import replay
from holdfast.core.transcript import Transcript, grow, taken_back, transcribe
from holdfast.testing.strategies import journals, prefixes
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
    journal,
    lost,
    replied,
    rescued,
    said,
    started,
)

PICTURE = Image(media_type="image/png", blob=BlobRef("ab", 2))


def entries(*events, run_id="run_1", ordinal=1):
    return transcribe(run_id, ordinal, journal(*events))


def only(kind, *events):
    (entry,) = [entry for entry in entries(*events) if isinstance(entry, kind)]
    return entry


def kinds(*events):
    return [type(entry) for entry in entries(*events)]


def steer(text="wait", **fields):
    return InputAdded(parts=(Text(text),), **fields)


def thought(text, turn=1, attempt=1):
    return ReasoningStreamed(turn=turn, attempt=attempt, text=text)


def retracted(turn=1, attempt=1, after=3):
    return ModelRetracted(turn=turn, attempt=attempt, after=after)


# --- what people say


def test_the_message_is_there_before_any_model_is_called():
    (first,) = entries(accepted(message_id="m_1", input=(Text("look"), PICTURE)))
    assert first == Said(
        id="m_1",
        run_id="run_1",
        ordinal=1,
        seq=1,
        at=1.0,
        parts=(Text("look"), PICTURE),
        queued=True,
    )


def test_a_message_without_an_id_gets_one_of_its_place():
    ids = [entry.id for entry in entries(accepted(), started(), steer())]
    assert ids == ["run_1.1", "run_1.3"]


def test_a_message_waits_until_its_run_has_begun():
    queued = [entry.queued for entry in entries(accepted(), steer())]
    assert queued == [True, True]
    assert not only(Said, accepted(), started()).queued
    assert not only(Said, accepted(), started(), rescued("drained")).queued
    assert not only(Said, accepted(), StopRequested()).queued


def test_a_message_to_a_live_run_stands_where_it_came():
    told = entries(accepted(), started(), called(), said("On it."), steer(message_id="m_2"))
    assert [entry.id for entry in told] == ["run_1.1", "run_1.t1", "m_2"]
    assert told[-1].steered and not told[-1].unheard


def test_a_message_that_came_after_a_stop_is_shown_and_said_to_be_unheard():
    assert entries(accepted(), started(), StopRequested(), steer())[-1].unheard


def test_a_message_that_was_sent_twice_under_one_id_is_one():
    live = (accepted(message_id="m_1"), started(), called(), steer(message_id="m_2"))
    again = (steer(message_id="m_2"), steer(message_id="m_1"))
    late = (steer(message_id="m_3"), steer(message_id="m_3"))
    assert [entry.id for entry in entries(*live, *again)] == ["m_1", "m_2"]
    told = entries(*live, StopRequested(), *again, *late)
    assert [(entry.id, entry.unheard) for entry in told if isinstance(entry, Said)] == [
        ("m_1", False),
        ("m_2", False),
        ("m_3", True),
    ]
    assert len(entries(*live, steer(), steer())) == 4
    ours = steer(message_id="run_1.t1")
    assert [entry.id for entry in entries(*live, ours, ours)] == ["m_1", "m_2", "run_1.5"]


@pytest.mark.parametrize("id", ["run_1.t1", "call_1", "run_1.7"])
def test_an_id_that_a_sender_chose_takes_no_other_entrys(id):
    told = entries(
        accepted(message_id="m_1"),
        started(),
        called(),
        replied(call("call_1")),
        steer(message_id=id),
        begun("call_1"),
        done("call_1"),
        called(2),
        replied(turn=2, text="Done."),
        RunCompleted(),
    )
    ids = [entry.id for entry in told]
    assert ids == ["m_1", "call_1", "run_1.5", "run_1.t2"]
    assert [entry.outcome for entry in told if isinstance(entry, Card)] == ["ok"]


def test_a_message_under_the_id_of_a_call_to_come_breaks_nothing():
    before = (accepted(), started(), called(), steer(message_id="c1"))
    told = entries(*before, replied(call("c1")), begun(), done("c1", "error"))
    assert [type(entry) for entry in told] == [Said, Said, Card]
    assert told[2].error


def test_an_edit_counts_until_the_run_has_begun():
    edit = InputEdited(parts=(Text("rather this"),))
    assert only(Said, accepted(message_id="m_1"), edit).parts == (Text("rather this"),)
    assert only(Said, accepted(message_id="m_1"), edit).id == "m_1"
    assert only(Said, accepted(), started(), edit).parts == (Text("hi"),)
    assert entries(accepted(), steer(), edit)[1].parts == (Text("wait"),)


@pytest.mark.parametrize(
    "later", [(), (RunCancelled(),), (started(),), (started(), called()), (steer(),)]
)
def test_a_message_that_was_taken_back_leaves_nothing(later):
    events = (accepted(), StopRequested(removed=True), *later)
    assert entries(*events) == ()
    assert taken_back(replay(journal(*events)))


def test_a_run_that_was_stopped_while_it_waited_keeps_its_message():
    assert kinds(accepted(), StopRequested(), RunCancelled()) == [Said, Notice]


def test_what_has_begun_can_not_be_taken_back():
    stop = StopRequested(removed=True)
    assert kinds(accepted(), started(), called(), stop) == [Said, Notice]
    assert kinds(accepted(), started(), called(), replied(text="Hi."), stop) == [
        Said,
        Reply,
        Notice,
    ]


# --- what models say


def test_words_are_shown_as_they_arrive_and_have_no_end_yet():
    reply = only(Reply, accepted(), started(), called(), thought("Hm."), said("Hel"), said("lo"))
    assert (reply.id, reply.seq, reply.at) == ("run_1.t1", 4, 4.0)
    assert (reply.text, reply.reasoning, reply.partial) == ("Hello", "Hm.", True)
    assert reply.model == "main"


def test_a_whole_reply_takes_the_place_of_its_first_words():
    words = (accepted(), started(), called(), thought("Hm."), said("Hello"))
    end = replied(text="Hello", stop="length", model="main-2")
    reply = only(Reply, *words, end)
    assert (reply.id, reply.seq, reply.text, reply.reasoning) == ("run_1.t1", 4, "Hello", "Hm.")
    assert (reply.partial, reply.stop, reply.model) == (False, "length", "main-2")


def test_a_reply_in_one_piece_is_shown_with_what_was_thought():
    thoughts = (Reasoning(text="First."), Reasoning(seal="x"), Reasoning(text="Then."))
    reply = only(Reply, accepted(), started(), called(), replied(text="Hello", reasoning=thoughts))
    assert (reply.text, reply.reasoning, reply.model) == ("Hello", "First.\n\nThen.", "main")


def test_a_reply_that_says_nothing_is_no_entry():
    assert kinds(accepted(), started(), called(), replied(call())) == [Said, Card]


def test_words_that_were_taken_back_are_gone():
    first = (accepted(), started(), called(), said("Hel"), failed())
    assert only(Reply, *first).text == "Hel"
    assert kinds(*first, retracted()) == [Said]
    again = only(Reply, *first, retracted(), called(attempt=2), said("Good day", attempt=2))
    assert (again.id, again.text, again.seq) == ("run_1.t1", "Good day", 8)


def test_words_that_were_cut_off_stay_and_have_no_end():
    reply = only(
        Reply,
        accepted(),
        started(),
        called(),
        said("Hel"),
        StopRequested(),
        failed("interrupt_abort"),
        RunCancelled(),
    )
    assert (reply.text, reply.partial) == ("Hel", True)


def test_two_equal_turns_are_two_turns():
    told = entries(
        accepted(),
        started(),
        called(),
        replied(text="Yes."),
        steer("Sure?"),
        called(2),
        replied(turn=2, text="Yes."),
        steer("Sure?"),
        called(3),
        replied(turn=3, text="Yes."),
        RunCompleted(),
    )
    assert [entry.id for entry in told] == [
        "run_1.1",
        "run_1.t1",
        "run_1.5",
        "run_1.t2",
        "run_1.8",
        "run_1.t3",
    ]


# --- tools


def test_a_card_follows_its_call():
    events = asking(call("c1", "look", '{"a": 1}'))
    card = only(Card, *events)
    assert (card.id, card.name, card.arguments, card.state) == ("c1", "look", '{"a": 1}', "pending")
    assert (card.turn, card.outcome, card.error) == (1, None, False)
    assert only(Card, *events, begun()).state == "running"
    end = done(output="shortened", seconds=1.5, blob=BlobRef("cd", 9))
    card = only(Card, *events, ToolStarted(call_id="c1", rule="rule_1"), end)
    assert (card.state, card.result, card.outcome, card.seconds) == ("done", "shortened", "ok", 1.5)
    assert (card.blob, card.rule, card.seq) == (BlobRef("cd", 9), "rule_1", 4)


def test_the_error_of_two_calls_alike_is_on_the_card_of_the_one_that_failed():
    events = asking(call("c1", "look"), call("c2", "look"))
    told = entries(*events, begun("c1"), begun("c2"), done("c1", "error"), done("c2"))
    cards = {entry.id: entry.error for entry in told if isinstance(entry, Card)}
    assert cards == {"c1": True, "c2": False}


def test_a_call_that_nobody_measured_took_as_long_as_it_was_seen_to():
    events = asking(call("c1", "look"), call("c2", "look"))
    told = entries(*events, begun("c1"), StopRequested(), done("c1", "cancelled"), done("c2"))
    assert [entry.seconds for entry in told if isinstance(entry, Card)] == [2.0, 0.0]


def test_a_call_of_a_worker_that_is_gone_is_not_said_to_run():
    assert only(Card, *asking(call()), begun(), *lost(2)).state == "pending"


def test_a_start_that_came_after_a_stop_is_none():
    assert only(Card, *asking(call()), StopRequested(), begun()).state == "pending"


# --- approvals


def test_a_question_waits_for_its_answer():
    events = (*asking(call()), asked(subject="pay 1", reason="it costs", expires=60.0))
    question = only(Question, *events)
    assert (question.id, question.call_id, question.tool) == ("a1", "c1", "pay")
    assert (question.subject, question.reason) == ("pay 1", "it costs")
    assert (question.state, question.expires_at) == ("pending", 65.0)
    assert only(Card, *events).state == "asking"
    question = only(Question, *events, answer("session", by="ada"))
    assert (question.state, question.choice, question.by) == ("answered", "session", "ada")
    assert only(Card, *events, answer()).state == "pending"


def test_an_answer_counts_once_and_in_time():
    events = (*asking(call()), asked())
    assert only(Question, *events, answer("deny"), answer("once")).choice == "deny"
    late = only(Question, *events, ApprovalExpired(approval_id="a1"), answer("once"))
    assert (late.state, late.choice) == ("expired", None)
    early = only(Question, *asking(call()), answer("once"), asked())
    assert early.state == "pending"


def test_a_question_expires_only_while_it_is_asked():
    expired = ApprovalExpired(approval_id="a1")
    assert only(Question, *asking(call()), asked(), answer(), expired).state == "answered"


def test_a_stop_withdraws_what_was_asked():
    stopped = (*asking(call()), asked(), StopRequested())
    assert only(Question, *stopped).state == "withdrawn"
    assert only(Question, *stopped, answer()).state == "withdrawn"
    assert kinds(*asking(call()), StopRequested(), asked()) == [Said, Card, Notice]


# --- what happens to a run


def test_a_stop_is_told_with_what_became_of_it():
    stop = StopRequested(by="ada", reason="enough")
    asked_to = only(Notice, accepted(), started(), called(), stop)
    assert asked_to.what == "stopping"
    assert asked_to.words == "The run was asked to stop by ada (enough)."
    events = (accepted(), started(), stop, called(), StopRequested(by="bob"), RunCancelled())
    stopped = only(Notice, *events)
    assert (stopped.id, stopped.what) == ("run_1.3", "stopped")
    assert stopped.words == "The run was stopped by ada (enough)."
    assert only(Notice, accepted(), StopRequested()).words == "The run was asked to stop."


def test_a_lost_worker_is_told_where_it_was_lost():
    lost_one = only(Notice, accepted(), started(), called(), rescued())
    assert (lost_one.what, lost_one.seq) == ("lost", 4)
    assert only(Notice, accepted(), started(), rescued("tripped")).what == "tripped"
    assert kinds(accepted(), started(), rescued("drained")) == [Said]


def test_a_failure_is_told_in_its_own_words():
    notice = only(Notice, accepted(), started(), RunFailed(code="model", message="it is gone."))
    assert (notice.what, notice.code) == ("failed", "model")
    assert notice.words == "The run failed: it is gone."


@pytest.mark.parametrize("why", ["length", "refusal"])
def test_an_end_before_the_end_is_told(why):
    end = (replied(text="Once upon", stop=why), RunCompleted(incomplete=why))
    notice = only(Notice, accepted(), started(), called(), *end)
    assert (notice.what, notice.code) == ("incomplete", why)
    assert kinds(accepted(), started(), called(), replied(text="Hi."), RunCompleted()) == [
        Said,
        Reply,
    ]


def test_a_wait_is_told_as_long_as_it_lasts():
    waits = (accepted(), started(), RunWaiting(what="model", name="main"))
    assert only(Notice, *waits).words == "The run waits for a worker that has the model main."
    place = only(Notice, *waits, RunWaiting(what="place", name="main"))
    assert (place.code, place.words) == ("place", "The run waits for a place at main.")
    assert kinds(*waits, called()) == [Said]
    assert kinds(*waits, RunFailed(code="budget", message="spent")) == [Said, Notice]


def test_what_a_newer_version_wrote_yields_nothing_and_breaks_nothing():
    told = Transcript("run_1", 1)
    bodies = [recorded.body for recorded in journal(*asking(call()), begun(), done())]
    for seq, body in enumerate([*bodies, b'{"type":"turn.rewound"}', *bodies[2:]], 1):
        told = grow(told, recall(seq, float(seq), body))
    assert [type(entry) for entry in told.entries] == [Said, Card]
    assert told.entries[1].outcome == "ok"


# --- what other designs got wrong: one truth, and ids that stay

WHOLE = (
    *asking(call("c1", "look"), call("c2", "look")),
    begun("c1"),
    begun("c2"),
    done("c2"),
    done("c1", "error"),
    called(2),
    said("The first is gone.", turn=2),
    replied(turn=2, text="The first is gone."),
    RunCompleted(),
)
SHORT = (accepted(), started(), called(), replied(text="Yes."), RunCompleted())


def session(*runs):
    """What a reader sees of a session of these runs, of each as much as there is."""
    shown = ()
    for ordinal, events in enumerate(runs, 1):
        state = replay(journal(*events))
        told = entries(*events, run_id=f"run_{ordinal}", ordinal=ordinal)
        mark = marker(state, leased=False, workers=False, now=100.0)
        shown += marked(told, mark, run_id=f"run_{ordinal}", ordinal=ordinal)
    return shown


def test_what_arrives_after_a_later_turn_was_answered_comes_in_its_place():
    before = session(WHOLE[:6], SHORT)
    assert [entry.ordinal for entry in before] == [1, 1, 1, 1, 2, 2]
    assert before[3].meaning == "still_arriving"
    after = session(WHOLE, SHORT)
    assert [entry.id for entry in after] == [
        "run_1.1",
        "c1",
        "c2",
        "run_1.t2",
        "run_2.1",
        "run_2.t1",
    ]


def test_a_card_stays_with_its_run_when_a_new_message_stands_below():
    told = session(WHOLE[:6], (accepted(),))
    assert [entry.run_id for entry in told if isinstance(entry, Card)] == ["run_1", "run_1"]
    assert told[-1].queued
    assert [entry.ordinal for entry in told] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("seen", range(1, len(WHOLE)))
def test_nothing_is_baked_in_when_only_half_can_be_seen(seen):
    half = reduce(grow, journal(*WHOLE)[:seen], Transcript("run_1", 1))
    later = reduce(grow, journal(*WHOLE)[seen:], half)
    assert later.entries == entries(*WHOLE)


def test_a_run_that_came_to_its_end_is_whole_and_unmarked():
    assert [type(entry) for entry in session(SHORT)] == [Said, Reply]


def test_the_same_words_asked_again_are_another_message():
    told = session((accepted(), started()), (accepted(),))
    assert [entry.id for entry in told if isinstance(entry, Said)] == ["run_1.1", "run_2.1"]


def test_the_same_question_and_the_same_answer_are_two_turns():
    told = session(SHORT, SHORT)
    assert [entry.id for entry in told] == ["run_1.1", "run_1.t1", "run_2.1", "run_2.t1"]


# --- any journal


@settings(max_examples=60)
@given(prefixes())
def test_an_incremental_reader_sees_what_a_new_one_does(prefix):
    told = reduce(grow, prefix, Transcript("run_1", 1))
    assert told.entries == transcribe("run_1", 1, prefix)
    assert told.state == replay(prefix)


@settings(max_examples=60)
@given(journals())
def test_ids_are_unique_and_entries_in_order_whatever_has_happened(journal):
    told = Transcript("run_1", 1)
    for recorded in journal:
        told = grow(told, recorded)
        ids = [entry.id for entry in told.entries]
        assert len(set(ids)) == len(ids)
        assert all(a.seq <= b.seq for a, b in pairwise(told.entries))


@settings(max_examples=60)
@given(journals())
def test_nothing_that_was_shown_goes_away_unless_it_was_taken_back(journal):
    told = Transcript("run_1", 1)
    for recorded in journal:
        before, told = told, grow(told, recorded)
        if taken_back(told.state):
            return
        now = {entry.id: entry for entry in told.entries}
        for was in before.entries:
            back = isinstance(recorded.event, ModelRetracted) and was.id.startswith("run_1.t")
            if back or (isinstance(was, Notice) and was.what == "waiting"):
                continue
            assert less(was, now[was.id]) is False, (was, now[was.id])


def less(was, now):
    """The later entry has another place than the earlier one, or misses some of its words."""
    moved = (was.seq, was.at, type(was)) != (now.seq, now.at, type(now))
    match was:
        case Reply():
            missing = not now.text.startswith(was.text) or was.reasoning not in now.reasoning
        case Card():
            missing = was.state == "done" and was != now
        case Question():
            missing = was.state != "pending" and was != now
        case _:
            missing = False
    return moved or missing


@settings(max_examples=30)
@given(prefixes())
def test_every_entry_can_be_sent(prefix):
    for entry in transcribe("run_1", 1, prefix):
        assert msgspec.json.decode(msgspec.json.encode(entry))["id"] == entry.id


def test_a_reply_of_many_words_is_read_in_one_pass():
    words = [said("word ") for _ in range(3000)]
    told = reduce(grow, journal(accepted(), started(), called(), *words), Transcript("r", 1))
    assert told.entries[-1].text == "word " * 3000
    # What is on its way is kept once, in the state.
    assert told.recent[-1].text == ""
