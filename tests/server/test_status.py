import msgspec
from hypothesis import given

from holdfast.core.codec import recall
from holdfast.core.events import (
    InputAdded,
    Receipt,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StopRequested,
    ToolProgressed,
)
from holdfast.core.messages import Image, Text
from holdfast.core.phase import phase
from holdfast.core.run import replay
from holdfast.core.usage import Usage
from holdfast.server.frames import NAMES, Projection
from holdfast.server.status import MOST_INPUT, last_event, status, waits_behind
from holdfast.testing.strategies import prefixes
from tests.core.stories import (
    accepted,
    answer,
    asked,
    asking,
    begun,
    call,
    called,
    failed,
    journal,
    replied,
    rescued,
    said,
    started,
    state,
)

CALLING = (accepted(), started(), called())
WIRE = {
    "queued",
    "running",
    "waiting_for_approval",
    "stopping",
    "completed",
    "failed",
    "cancelled",
}


def wire(now, **fields):
    """The status as it is sent."""
    told = status("run_1", now, created_at=1.0, **fields)
    return msgspec.json.decode(msgspec.json.encode(told))


def told(*events, **fields):
    return wire(state(*events), **fields)


def test_a_run_that_was_just_accepted_is_told_in_full():
    assert told(accepted(), last_event="run.queued") == {
        "object": "hermes.run",
        "run_id": "run_1",
        "status": "queued",
        "created_at": 1.0,
        "updated_at": 1.0,
        "seq": 1,
        "last_event": "run.queued",
        "input": "hi",
        "model": "main",
        "effective_model": "main",
        "waiting_for": {"waiting_for": "worker", "since": 1.0},
    }


def test_what_came_with_the_request_is_given_back():
    got = told(accepted(session_id="s1", metadata={"user": "ada"}))
    assert (got["session_id"], got["metadata"]) == ("s1", {"user": "ada"})


def test_a_run_goes_through_the_statuses_clients_know():
    waiting = (*asking(call()), asked())
    stop = StopRequested()
    steps = [
        (accepted(),),
        (accepted(), started()),
        (accepted(), started(), rescued()),
        waiting,
        (*waiting, answer()),
        (*waiting, stop),
    ]
    assert [told(*events)["status"] for events in steps] == [
        "queued",
        "running",
        "queued",
        "waiting_for_approval",
        "running",
        "stopping",
    ]


def test_a_live_run_says_what_it_waits_for():
    got = told(*CALLING)
    assert got["waiting_for"] == {
        "waiting_for": "first_event",
        "since": 3.0,
        "name": "main",
        "limit": 45.0,
        "attempt": 1,
        "attempts": 4,
        "next": "try again",
    }
    assert (got["updated_at"], got["seq"]) == (3.0, 3)


def test_the_model_that_replied_is_named_beside_the_one_that_was_chosen():
    moved = (failed("refused", status=401), called(attempt=2, model="backup"))
    assert told(*CALLING)["effective_model"] == "main"
    assert told(*CALLING, *moved)["effective_model"] == "backup"
    got = told(*CALLING, *moved, replied(attempt=2, model="backup-1"))
    assert (got["model"], got["effective_model"]) == ("main", "backup-1")


def test_of_a_long_question_the_beginning_is_told():
    parts = (Text("why " * 100), Image(url="https://a.example/b.png"), Text("?"))
    got = told(accepted(input=parts))
    assert len(got["input"]) == MOST_INPUT and got["input"].endswith("why…")


def test_what_was_asked_for_is_told_beside_what_it_came_to():
    got = told(accepted(asked_model="gpt-9"))
    assert (got["model"], got["effective_model"]) == ("gpt-9", "main")


def test_a_run_that_waits_for_a_person_shows_what_the_stream_showed():
    calls = (call("c1", "look", key="k"), call("c2", "look"))
    events = journal(*asking(*calls), asked("c1", "a1", "look", expires=5.0), asked("c2", "a2"))
    got = wire(replay(events))
    projection = Projection("run_1")
    *_, first, second = [projection.frames(recorded) for recorded in events]
    shown = [msgspec.json.decode(frame.partition(b"data: ")[2]) for frame in (first, second)]
    for frame in shown:
        del frame["event"], frame["run_id"], frame["timestamp"]
    assert got["approvals"] == shown
    assert got["approval"] == shown[0]
    assert shown[0]["expires_at"] == 10.0


def test_once_answered_it_is_shown_no_longer():
    got = told(*asking(call()), asked(), answer())
    assert "approval" not in got
    assert "approvals" not in got


def test_a_completed_run_has_output_and_usage_and_waits_for_nothing():
    usage = Usage(input=2, output=1, cost=0.5)
    got = told(*CALLING, said("Hi"), replied(text="Hi", usage=usage), RunCompleted())
    assert (got["status"], got["output"]) == ("completed", "Hi")
    assert got["usage"] == {
        "input_tokens": 2,
        "output_tokens": 1,
        "total_tokens": 3,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "cost": 0.5,
    }
    assert not {"waiting_for", "incomplete", "error", "error_code", "receipt"} & got.keys()


def test_a_completed_run_that_was_cut_short_says_so():
    got = told(*CALLING, replied(stop="length"), RunCompleted(incomplete="length"))
    assert (got["output"], got["incomplete"]) == ("", "length")


def test_a_failed_run_says_why_in_words_and_in_a_code():
    got = told(*CALLING, replied(text="Hi"), RunFailed(code="budget", message="out of turns"))
    assert (got["status"], got["error"], got["error_code"]) == ("failed", "out of turns", "budget")
    assert not {"output", "usage", "receipt", "waiting_for"} & got.keys()


def test_a_cancelled_run_shows_its_receipt():
    ended = RunCancelled(receipt=Receipt(model_calls=1, may_bill=True))
    got = told(*CALLING, StopRequested(), ended)
    receipt = {"model_calls": 1, "tool_calls": [], "may_bill": True, "problems": []}
    receipt |= {"ended": [], "left": []}
    assert (got["status"], got["receipt"]) == ("cancelled", receipt)
    assert not {"output", "usage", "error", "waiting_for"} & got.keys()


def test_a_run_that_only_a_newer_version_understands_is_queued_for_one():
    got = wire(replay([recall(1, 1.0, b'{"type":"run.forked"}')]))
    assert got["status"] == "queued"
    assert "model" not in got


# --- the last event


def test_the_last_event_is_never_a_delta():
    assert last_event(journal(*CALLING, said("Hi"))) == "run.phase"
    assert last_event(journal(*CALLING, said("Hi"), replied(text="Hi"))) == "message.completed"


def test_the_last_event_goes_by_its_name_on_the_stream():
    started_tool = (*asking(call()), begun())
    assert last_event(journal(*started_tool)) == "tool.started"
    progress = ToolProgressed(call_id="c1", text="half")
    assert last_event(journal(*started_tool, progress)) == "tool.progress"
    steer = InputAdded(parts=(Text("wait"),))
    assert last_event(journal(*started_tool, progress, steer)) == "run.steered"


def test_an_event_of_a_newer_version_has_no_name():
    newer = recall(2, 2.0, b'{"type":"run.forked"}')
    assert last_event([*journal(accepted()), newer]) == "run.queued"
    assert last_event([newer]) == ""


# --- any run at all


@given(prefixes())
def test_at_any_moment_a_run_tells_where_it_stands(events):
    now = replay(events)
    got = wire(now, last_event=last_event(events))
    assert got["status"] in WIRE
    assert got["last_event"] in NAMES.values()
    assert ("waiting_for" in got) == now.status.live == (phase(now) is not None)
    assert ("approval" in got) == (got["status"] == "waiting_for_approval")
    assert ("output" in got) == ("usage" in got) == (got["status"] == "completed")
    assert ("error" in got) == ("error_code" in got) == (got["status"] == "failed")
    assert ("receipt" in got) == (got["status"] == "cancelled")
    assert (got["seq"], got["updated_at"]) == (len(events), events[-1].at)


def test_a_run_that_waits_for_its_turn_says_whose_it_is_and_what_that_one_waits_for():
    waiting, front = state(accepted()), state(*CALLING)
    ahead = status("run_0", front, created_at=0.5)
    behind = waits_behind(status("run_1", waiting, created_at=1.0), waiting, ahead)
    told = msgspec.json.decode(msgspec.json.encode(behind))
    assert told["waiting_for"]["waiting_for"] == "turn" and told["waiting_for"]["name"] == "run_0"
    assert told["behind"]["run_id"] == "run_0" and told["behind"]["status"] == "running"
    assert told["behind"]["waiting_for"]["waiting_for"] == "first_event"
