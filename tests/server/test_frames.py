from itertools import accumulate, groupby
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import recall, record
from holdfast.core.events import (
    FINAL,
    ApprovalExpired,
    Event,
    InputAdded,
    ModelHeard,
    ModelRetracted,
    ReasoningStreamed,
    Receipt,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunWaiting,
    StopRequested,
    TextStreamed,
    ToolProgressed,
    ToolStarted,
)
from holdfast.core.messages import BlobRef, Reasoning, Text
from holdfast.core.phase import phase
from holdfast.core.run import RunState, fold, replay
from holdfast.core.usage import Usage
from holdfast.server.frames import (
    BREAK,
    CLOSED,
    DELTAS,
    KEEPALIVE,
    NAMES,
    Projection,
    draining,
    retracted_attempts,
)
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
    replied,
    rescued,
    said,
    started,
)
from tests.fixtures.golden import journal as golden
from tests.fixtures.golden import names

RUN = "run_1"
CALLING = (accepted(), started(), called())
STOP = StopRequested(reason="Stop requested via API")
NO_USE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "total_tokens": 0,
    "cached_tokens": 0,
    "reasoning_tokens": 0,
    "cost": 0.0,
}


def thought(text, turn=1, attempt=1):
    return ReasoningStreamed(turn=turn, attempt=attempt, text=text)


def taken_back(after, turn=1, attempt=1):
    return ModelRetracted(turn=turn, attempt=attempt, after=after)


# --- reading a stream


def split(sent):
    """The frames in these bytes, each a line or two and an empty one."""
    frames = sent.split(b"\n\n")
    assert frames.pop() == b""
    return frames


def parse(frame):
    """The id, or None, and what the frame tells. Nothing but these two lines may be in it."""
    lines = frame.split(b"\n")
    assert 1 <= len(lines) <= 2
    assert lines[-1].startswith(b"data: ")
    assert b"\r" not in frame
    if len(lines) == 2:
        assert lines[0].startswith(b"id: ")
    seq = int(lines[0].removeprefix(b"id: ")) if len(lines) == 2 else None
    return seq, msgspec.json.decode(lines[-1].removeprefix(b"data: "))


def stream(events, *, after=0, retracted=frozenset()):
    projection = Projection(RUN, after=after, retracted=retracted)
    return [parse(f) for recorded in events for f in split(projection.frames(recorded))]


def replayed(events, *, after=0):
    """What a reader gets who comes when all of it is stored."""
    return stream(events, after=after, retracted=retracted_attempts(events))


def last(*events):
    """What is told of the last of these events, without what every frame holds."""
    projection = Projection(RUN)
    recorded = journal(*events)
    *_, sent = [projection.frames(one) for one in recorded]
    ids, told = zip(*map(parse, split(sent)), strict=True) if sent else ((), ())
    assert all(seq is None for seq in ids[:-1])
    assert all(seq == len(events) for seq in ids[-1:])
    assert all((f.pop("run_id"), f.pop("timestamp")) == (RUN, float(len(events))) for f in told)
    return list(told)


class Reader:
    """Reads with care: forgets what is taken back, and half of an event when it is cut off."""

    def __init__(self):
        self.cursor = 0
        self.kept = []
        self._half = []

    def read(self, seq, told):
        self._half.append(told)
        if seq is None:
            return
        assert seq > self.cursor
        self.cursor = seq
        self.kept += [(seq, one) for one in self._half]
        self._half = []
        if told["event"] == "message.retracted":
            self.kept = [one for one in self.kept if not self._taken_back(*one, told["after"])]

    def _taken_back(self, seq, told, after):
        return seq > after and told["event"] in ("message.delta", "reasoning.delta")

    def cut_off(self):
        self._half = []

    def all(self, frames):
        for seq, told in frames:
            self.read(seq, told)
        assert not self._half
        return self

    def text(self, name="message.delta", turn=None):
        deltas = [told for _, told in self.kept if told["event"] == name]
        return "".join(d["delta"] for d in deltas if turn in (None, d["turn"]))

    @property
    def rest(self):
        """All but words, and their being taken back."""
        skipped = ("message.delta", "reasoning.delta", "message.retracted")
        return [one for one in self.kept if one[1]["event"] not in skipped]


def standing(events, kind):
    """The words that stand, in their turns."""
    back = retracted_attempts(events)
    words = [r.event for r in events if isinstance(r.event, kind)]
    words = [word for word in words if (word.turn, word.attempt) not in back]
    turns = groupby(words, lambda word: word.turn)
    return ["".join(word.text for word in turn) for _, turn in turns]


def assert_exact(reader, events):
    """The reader has every word that stands, once and in its place, and no other."""
    assert reader.text() == "\n\n".join(standing(events, TextStreamed))
    assert reader.text("reasoning.delta") == "".join(standing(events, ReasoningStreamed))
    state = replay(events)
    if isinstance(state.ended, RunCompleted):
        assert reader.text(turn=state.replies) == state.output


# --- the bytes


def test_a_frame_is_an_id_and_one_line_of_json():
    projection = Projection(RUN)
    sent = [projection.frames(recorded) for recorded in journal(*CALLING, said("a\r\nb\u2028"))]
    assert sent[0] == b'id: 1\ndata: {"event":"run.queued","run_id":"run_1","timestamp":1.0}\n\n'
    assert sent[3] == (
        b'id: 4\ndata: {"event":"message.delta","run_id":"run_1","timestamp":4.0,'
        b'"delta":"a\\r\\nb\\u2028","turn":1,"attempt":1}\n\n'
    )


def test_what_is_not_of_the_journal_has_no_id():
    assert (KEEPALIVE, CLOSED) == (b": keepalive\n\n", b": stream closed\n\n")
    assert draining(RUN, at=2.5) == (
        b'data: {"event":"server.draining","run_id":"run_1","timestamp":2.5}\n\n'
    )


def test_every_event_has_a_name_on_the_stream():
    assert set(NAMES) == set(get_args(Event))


def test_an_event_of_a_newer_version_is_not_told_and_does_no_harm():
    events = [recall(1, 1.0, b'{"type":"run.forked"}')]
    later = (called(), failed(), begun(), done(), asked(), answer(), said("a"))
    events += [record(seq, 1.0, event) for seq, event in enumerate(later, 2)]
    told = [told for _, told in stream(events)]
    assert [one["event"] for one in told] == ["tool.started", "tool.completed", "message.delta"]
    assert [one["tool"] for one in told[:2]] == ["unknown", "unknown"]


@pytest.mark.parametrize("name", names())
def test_a_golden_journal_can_be_streamed(name):
    told = stream(golden(name))
    assert told
    assert all(isinstance(one["event"], str) for _, one in told)


# --- the run


def test_a_run_is_queued_when_it_is_accepted_and_whenever_it_lost_its_worker():
    assert last(accepted()) == [{"event": "run.queued"}]
    assert last(accepted(), started(), rescued()) == [{"event": "run.queued", "why": "rescued"}]


def test_a_run_is_started_by_each_worker_that_takes_it():
    assert last(accepted(), started()) == [{"event": "run.started"}]
    assert last(accepted(), started(), rescued(), started(2)) == [{"event": "run.started"}]


def test_a_run_that_lacks_something_says_so():
    lacking = RunWaiting(what="model", name="main")
    assert last(accepted(), started(), lacking) == [
        {"event": "run.phase", "waiting_for": "missing_model", "since": 3.0, "name": "main"}
    ]


def test_a_call_tells_what_is_waited_for_and_what_comes_then():
    assert last(*CALLING) == [
        {
            "event": "run.phase",
            "waiting_for": "first_event",
            "since": 3.0,
            "name": "main",
            "limit": 45.0,
            "attempt": 1,
            "attempts": 4,
            "next": "try again",
        }
    ]


def test_once_the_model_is_heard_the_wait_is_for_the_next_event():
    (told,) = last(*CALLING, ModelHeard(turn=1, attempt=1))
    assert (told["event"], told["waiting_for"], told["since"]) == ("run.phase", "next_event", 4.0)


def test_a_failure_is_told_with_what_comes_next():
    refusal = failed("overloaded", message="busy", status=503)
    assert last(*CALLING, refusal) == [
        {
            "event": "run.phase",
            "waiting_for": "retry",
            "since": 4.0,
            "name": "main",
            "limit": 1.0,
            "attempt": 2,
            "attempts": 4,
            "next": "try again",
            "failure": {"reason": "overloaded", "message": "busy", "status": 503},
        }
    ]


def test_stopping_and_steering_are_told():
    assert last(accepted(), STOP) == [{"event": "run.stopping", "reason": STOP.reason}]
    steer = InputAdded(parts=(Text("wait"),), message_id="m1")
    assert last(accepted(), steer) == [{"event": "run.steered", "message_id": "m1"}]


def test_a_completed_run_tells_its_output_and_what_it_used():
    usage = Usage(input=7, output=3, cached=2, reasoning=1, cost=None)
    reply = replied(text="Hello", usage=usage)
    assert last(*CALLING, said("Hello"), reply, RunCompleted(incomplete="length")) == [
        {
            "event": "run.completed",
            "output": "Hello",
            "usage": {
                "input_tokens": 7,
                "output_tokens": 3,
                "total_tokens": 10,
                "cached_tokens": 2,
                "reasoning_tokens": 1,
                "cost": None,
            },
            "incomplete": "length",
        }
    ]


def test_a_failed_run_tells_why():
    ended = RunFailed(code="model", message="the key was refused")
    assert last(accepted(), started(), ended) == [
        {"event": "run.failed", "error": "the key was refused", "code": "model"}
    ]


def test_a_cancelled_run_hands_over_its_receipt_and_leaves_nothing_unsaid():
    ended = RunCancelled(receipt=Receipt(tool_calls=("c1",), ended=("process 7: killed",)))
    receipt = {"model_calls": 0, "tool_calls": ["c1"], "may_bill": False, "problems": []}
    receipt |= {"ended": ["process 7: killed"], "left": []}
    assert last(accepted(), STOP, ended) == [{"event": "run.cancelled", "receipt": receipt}]


# --- words


def test_words_and_thoughts_are_told_as_they_arrive():
    assert last(*CALLING, said("Hel")) == [
        {"event": "message.delta", "delta": "Hel", "turn": 1, "attempt": 1}
    ]
    assert last(*CALLING, thought("hm")) == [
        {"event": "reasoning.delta", "delta": "hm", "turn": 1, "attempt": 1}
    ]


def test_a_reply_is_told_whole():
    usage = Usage(input=1)
    assert last(*CALLING, said("Hi"), replied(text="Hi", model="m-1", usage=usage)) == [
        {
            "event": "message.completed",
            "turn": 1,
            "text": "Hi",
            "model": "m-1",
            "stop": "stop",
            "usage": {**NO_USE, "input_tokens": 1, "total_tokens": 1},
        }
    ]


def test_reasoning_is_told_once_more_in_short_for_readers_that_know_of_no_deltas():
    thoughts = (Reasoning(text="x" * 400), Reasoning(seal="s"), Reasoning(text="y" * 400))
    available, completed = last(*CALLING, replied(text="Hi", reasoning=thoughts))
    assert available == {
        "event": "reasoning.available",
        "text": "x" * 400 + "\n\n" + "y" * 97 + "…",
    }
    assert completed["event"] == "message.completed"
    (only,) = last(*CALLING, replied(reasoning=(Reasoning(seal="s"),)))
    assert only["event"] == "message.completed"


TWO_TURNS = (
    *asking(call())[:3],
    said("One"),
    replied(call(), text="One"),
    begun(),
    done(),
    called(turn=2),
)


def test_the_words_of_a_later_turn_are_set_apart_by_a_blank_line_of_the_earlier_one():
    assert last(*TWO_TURNS, said("Two", turn=2)) == [
        {"event": "message.delta", "delta": "\n\n", "turn": 1, "attempt": 1},
        {"event": "message.delta", "delta": "Two", "turn": 2, "attempt": 1},
    ]
    assert len(last(*TWO_TURNS, said("Two", turn=2), said("!", turn=2))) == 1
    assert len(last(*TWO_TURNS, thought("hm", turn=2))) == 1
    assert len(last(*TWO_TURNS, thought("hm", turn=2), said("Two", turn=2))) == 2


def test_a_turn_without_words_needs_no_blank_line_after_it():
    silent = (*asking(call()), begun(), done(), called(turn=2))
    assert len(last(*silent, said("Two", turn=2))) == 1


# --- words that are taken back

STUMBLE = (*CALLING, said("Hel"), said("lo"), failed("reset"), taken_back(3))
STUMBLED = (*STUMBLE, called(attempt=2), said("Bye", attempt=2), replied(text="Bye", attempt=2))
ENDED = journal(*STUMBLED, RunCompleted())


def test_before_words_are_taken_back_simple_readers_are_shown_a_break():
    assert last(*STUMBLE) == [
        {"event": "message.delta", "delta": BREAK, "turn": 1, "attempt": 1},
        {"event": "message.retracted", "turn": 1, "attempt": 1, "after": 3},
    ]


def deltas(frames):
    words = [told for _, told in frames if told["event"] in ("message.delta", "message.retracted")]
    return [told.get("delta", "retracted") for told in words]


@pytest.mark.parametrize(
    ("after", "seen"),
    [
        (0, ["Bye"]),
        (3, ["Bye"]),
        (4, [BREAK, "retracted", "Bye"]),
        (5, [BREAK, "retracted", "Bye"]),
        (6, [BREAK, "retracted", "Bye"]),
        (7, ["Bye"]),
        (8, ["Bye"]),
        (9, []),
    ],
)
def test_a_replay_tells_of_words_taken_back_only_whoever_saw_some(after, seen):
    assert deltas(replayed(ENDED, after=after)) == seen


def test_words_are_taken_back_live_from_whoever_came_before_that():
    stored = ENDED[:5]
    frames = stream(ENDED, after=4, retracted=retracted_attempts(stored))
    assert deltas(frames) == ["lo", BREAK, "retracted", "Bye"]


def test_a_second_attempt_at_a_later_turn_is_set_apart_as_the_first_was():
    again = (said("Tw", turn=2), failed(turn=2), taken_back(8, turn=2), called(2, 2))
    events = journal(*TWO_TURNS, *again, said("Two", 2, 2), replied(turn=2, attempt=2, text="Two"))
    for frames in (stream(events), replayed(events)):
        assert Reader().all(frames).text() == "One\n\nTwo"


# --- tools


def test_a_call_that_starts_is_named_with_its_arguments():
    before = asking(call(arguments='{ "sum":\n 1 }'))
    assert last(*before, begun()) == [
        {
            "event": "tool.started",
            "tool": "pay",
            "call_id": "c1",
            "toolCallId": "c1",
            "args": {"sum": 1},
            "preview": '{ "sum": 1 }',
        }
    ]


def test_a_call_that_a_stop_came_before_did_not_start():
    assert last(*asking(call()), STOP, begun()) == []


def test_a_preview_is_one_short_line():
    (told,) = last(*asking(call(subject="rm\n\t-r " + "x" * 200)), begun())
    assert told["preview"] == "rm -r " + "x" * 113 + "…"
    assert len(told["preview"]) == 120


@pytest.mark.parametrize(
    "arguments",
    ["not json", "[1]", "", '{"a":' * 5000 + "1" + "}" * 5000, '{"a":' + "9" * 5000 + "}"],
    ids=["words", "list", "empty", "deep", "huge"],
)
def test_arguments_that_are_no_object_are_none(arguments):
    (told,) = last(*asking(call(arguments=arguments)), begun())
    assert told["args"] == {}


def test_progress_names_its_tool():
    progress = ToolProgressed(call_id="c1", text="half")
    assert last(*asking(call()), begun(), progress) == [
        {"event": "tool.progress", "tool": "pay", "call_id": "c1", "text": "half"}
    ]


def test_a_finished_call_tells_how_it_went():
    assert last(*asking(call()), begun(), done(output="paid", seconds=1.23456)) == [
        {
            "event": "tool.completed",
            "tool": "pay",
            "call_id": "c1",
            "toolCallId": "c1",
            "duration": 1.235,
            "error": False,
            "outcome": "ok",
            "result": "paid",
            "truncated": False,
        }
    ]


@pytest.mark.parametrize("outcome", ["not_started", "denied", "expired", "refused", "error"])
def test_a_call_that_never_started_is_closed_too(outcome):
    (told,) = last(*asking(call()), done(outcome=outcome, output="no"))
    assert (told["event"], told["tool"], told["result"]) == ("tool.completed", "pay", "no")
    assert (told["error"], told["outcome"], told["duration"]) == (True, outcome, 0.0)


def test_a_call_that_nobody_measured_took_from_its_start_to_its_end():
    (told,) = last(*asking(call()), begun(), STOP, done(outcome="cancelled"))
    assert told["duration"] == 2.0


def test_a_clock_that_was_set_back_makes_no_negative_duration():
    events = journal(*asking(call()), begun(), STOP)
    events.append(record(7, 0.5, done(outcome="cancelled")))
    assert stream(events)[-1][1]["duration"] == 0.0


def test_a_result_that_was_shortened_says_so():
    (long,) = last(*asking(call()), begun(), done(output="x" * 501))
    assert (len(long["result"]), long["result"][-1], long["truncated"]) == (500, "…", True)
    (whole,) = last(*asking(call()), begun(), done(output="x" * 500))
    assert (whole["result"], whole["truncated"]) == ("x" * 500, False)
    (kept,) = last(*asking(call()), begun(), done(output="x", blob=BlobRef("0" * 64, 9)))
    assert kept["truncated"] is True


# --- approvals


def test_a_person_is_asked_about_the_exact_call():
    before = asking(call(key="pay:shop", arguments='{"sum":1}'))
    request = asked(
        subject="pay 1 to shop",
        reason="it costs money",
        expires=60.0,
        binding="account: 7",
        digest="d1",
    )
    assert last(*before, request) == [
        {
            "event": "approval.request",
            "approval_id": "a1",
            "id": "a1",
            "request_id": "a1",
            "call_id": "c1",
            "tool": "pay",
            "command": "pay 1 to shop",
            "description": "it costs money",
            "pattern_key": "pay:shop",
            "pattern_keys": ["pay:shop"],
            "args": {"sum": 1},
            "choices": ["once", "session", "always", "deny"],
            "allow_permanent": True,
            "details": "account: 7",
            "digest": "d1",
            "expires_at": 65.0,
        }
    ]


def test_a_doubt_is_shown_and_cannot_be_waved_through_for_good():
    (told,) = last(*asking(call(key="k")), asked(reason="it may have run", doubt="c0"))
    assert told["description"] == "it may have run (c0)"
    assert told["choices"] == ["once", "session", "deny"]
    assert told["allow_permanent"] is False
    assert "expires_at" not in told


def test_a_call_that_no_rule_could_cover_offers_none():
    (told,) = last(*asking(call()), asked())
    assert (told["choices"], told["allow_permanent"]) == (["once", "deny"], False)
    assert (told["pattern_key"], told["pattern_keys"]) == ("", [])


def test_a_call_that_a_rule_let_pass_names_it():
    (told,) = last(*asking(call()), ToolStarted(call_id="c1", rule="rule_7"))
    assert told["rule"] == "rule_7"


def test_a_request_that_comes_after_a_stop_is_put_to_nobody():
    assert last(*asking(call()), STOP, asked()) == []


def test_an_answer_is_told_once():
    waiting = (*asking(call()), asked())
    assert last(*waiting, answer("session")) == [
        {
            "event": "approval.responded",
            "approval_id": "a1",
            "request_id": "a1",
            "choice": "session",
            "resolved": 1,
        }
    ]
    assert last(*waiting, answer("session"), answer("deny")) == []
    assert last(*waiting, answer(approval="another")) == []


def test_an_approval_expires_only_while_it_is_pending():
    waiting, expiry = (*asking(call()), asked()), ApprovalExpired(approval_id="a1")
    assert last(*waiting, expiry) == [{"event": "approval.expired", "approval_id": "a1"}]
    assert last(*waiting, answer(), expiry) == []


# --- any run at all


@given(prefixes())
def test_every_frame_is_an_object_that_says_what_it_is_whose_and_when(events):
    at = {recorded.seq: recorded.at for recorded in events}
    for seq, told in stream(events):
        assert isinstance(told["event"], str)
        assert told["run_id"] == RUN
        assert isinstance(told["timestamp"], float)
        assert seq is None or told["timestamp"] == at[seq]


@given(journals())
def test_the_last_frame_and_no_other_is_that_of_the_end(events):
    finals = [NAMES[final] for final in FINAL]
    frames = stream(events)
    ends = [told["event"] for _, told in frames if told["event"] in finals]
    assert ends == [frames[-1][1]["event"]]
    assert frames[-1][0] == len(events)


@given(journals())
def test_every_call_that_was_asked_for_is_closed_once(events):
    asked_for = [call.id for r in events for call in getattr(r.event, "calls", ())]
    closed = [told["call_id"] for _, told in stream(events) if told["event"] == "tool.completed"]
    assert sorted(closed) == sorted(asked_for)


@given(prefixes())
def test_a_careful_reader_ends_up_with_the_words_that_stand(events):
    assert_exact(Reader().all(stream(events)), events)


@given(prefixes())
def test_whoever_comes_late_gets_the_words_that_stand_and_no_others(events):
    frames = replayed(events)
    assert_exact(Reader().all(frames), events)
    assert not any(told["event"] == "message.retracted" for _, told in frames)
    assert not any(told.get("delta") == BREAK for _, told in frames)


@given(journals(), st.data())
def test_a_careful_reader_that_is_cut_off_anywhere_loses_and_doubles_nothing(events, data):
    """Each time it comes back with its cursor, more of the journal may be stored than it has seen."""
    reader, stored = Reader(), 0
    for _ in range(data.draw(st.integers(0, 4))):
        stored = data.draw(st.integers(max(stored, reader.cursor), len(events)))
        back = retracted_attempts(events[:stored])
        frames = stream(events, after=reader.cursor, retracted=back)
        for seq, told in frames[: data.draw(st.integers(0, len(frames)))]:
            reader.read(seq, told)
        reader.cut_off()
    back = retracted_attempts(events[: max(stored, reader.cursor)])
    reader.all(stream(events, after=reader.cursor, retracted=back))
    assert_exact(reader, events)
    assert reader.rest == Reader().all(stream(events)).rest


@given(journals(), st.data())
def test_a_simple_reader_never_sees_words_twice_without_a_break(events, data):
    """It shows every delta it is sent, and comes back with the last id it was sent."""
    first = stream(events[: data.draw(st.integers(0, len(events)))])
    cursor = max((seq for seq, _ in first if seq), default=0)
    shown = deltas([*first, *replayed(events, after=cursor)])
    assert shown.count(BREAK) == shown.count("retracted")
    if BREAK not in shown:
        assert "".join(shown) == "\n\n".join(standing(events, TextStreamed))


@given(journals())
def test_words_are_told_exactly_as_they_were_recorded(events):
    told = [(seq, d["delta"]) for seq, d in stream(events) if seq and "delta" in d]
    assert told == [(r.seq, r.event.text) for r in events if isinstance(r.event, DELTAS)]


@given(journals())
def test_what_is_waited_for_is_told_as_the_whole_journal_has_it(events):
    states = [*accumulate(events, fold, initial=RunState())]
    for seq, told in stream(events):
        if told["event"] == "run.phase":
            waiting = msgspec.to_builtins(phase(states[seq]))
            ours = ("event", "run_id", "timestamp", "failure")
            assert {key: told[key] for key in told if key not in ours} == waiting
