from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.events import (
    ModelRetracted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StopRequested,
)
from holdfast.core.run import replay
from holdfast.core.usage import Usage
from holdfast.server.openai.request import Echo
from holdfast.server.openai.response_frames import ROOM, ResponseProjection
from holdfast.server.openai.response_object import response_object
from holdfast.testing.strategies import journals, prefixes
from tests.core.stories import (
    accepted,
    asked,
    asking,
    call,
    called,
    failed,
    journal,
    replied,
    rescued,
    said,
    started,
)
from tests.fixtures.golden import journal as golden
from tests.fixtures.golden import names
from tests.server.openai.sse import comments, events, stream
from tests.server.openai.test_response_object import words_of

RUN = "run_1"
CALLING = (accepted(), started(), called())
REPLIED = (*CALLING, said("Hello"), replied(text="Hello", usage=Usage(input=3, output=1)))


def sent(happened, **how):
    return events(stream(ResponseProjection(RUN, **how), happened))


def kinds(told):
    return [one.name.removeprefix("response.") for one in told]


def test_a_response_from_its_first_event_to_its_last():
    told = sent(journal(*REPLIED, RunCompleted()))
    assert [
        (one.data["sequence_number"], kind) for one, kind in zip(told, kinds(told), strict=True)
    ] == [
        (100, "created"),
        (101, "queued"),
        (200, "in_progress"),
        (400, "output_item.added"),
        (401, "content_part.added"),
        (402, "output_text.delta"),
        (500, "output_text.done"),
        (501, "content_part.done"),
        (502, "output_item.done"),
        (600, "completed"),
    ]
    assert all(one.name == one.data["type"] for one in told)


def test_what_is_told_of_the_run_is_how_it_stood_then():
    echo = Echo(background=True)
    happened = journal(*REPLIED, RunCompleted())
    told = sent(happened, echo=echo)
    assert told[0].data["response"] == response_object(RUN, happened[:1], echo=echo)
    assert told[-1].data["response"] == response_object(RUN, happened, echo=echo)
    assert told[0].data["response"]["status"] == "queued"
    assert told[0].data["response"]["background"] is True


def test_a_run_that_lost_its_worker_waits_again():
    told = sent(journal(*CALLING, rescued(), started(2)))
    assert kinds(told) == ["created", "queued", "in_progress", "queued", "in_progress"]


@pytest.mark.parametrize(
    ("end", "name", "status"),
    [
        ((RunCompleted(),), "completed", "completed"),
        ((RunCompleted(incomplete="length"),), "incomplete", "incomplete"),
        ((RunFailed(code="budget", message="too dear"),), "failed", "failed"),
        # There is no event of this name on the wire: the official clients would not know it.
        ((StopRequested(), RunCancelled()), "incomplete", "cancelled"),
    ],
)
def test_each_end_has_its_event(end, name, status):
    last = sent(journal(*REPLIED, *end))[-1]
    assert last.name == f"response.{name}"
    assert last.data["response"]["status"] == status
    assert last.data["response"]["usage"]["total_tokens"] == 4


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ((StopRequested(), RunCancelled()), "incomplete"),
        ((failed(), RunFailed(code="model", message="no")), "failed"),
    ],
)
def test_the_end_closes_what_is_open_first(end, name):
    told = sent(journal(*CALLING, said("a"), *end))
    assert kinds(told)[-4:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        name,
    ]
    assert told[-2].data["item"]["status"] == "incomplete"
    assert told[-1].data["response"]["output"] == [told[-2].data["item"]]


def test_an_attempt_that_was_given_up_is_an_incomplete_item_and_a_new_one_begins():
    back = ModelRetracted(turn=1, attempt=1, after=3)
    again = (called(attempt=2), said("b", 1, 2), replied(attempt=2, text="b"), RunCompleted())
    told = sent(journal(*CALLING, said("a"), failed(), back, *again))
    closed = [one.data["item"] for one in told if one.name.endswith("item.done")]
    assert [(item["id"], item["status"]) for item in closed] == [
        ("msg_1_4", "incomplete"),
        ("msg_1_8", "completed"),
    ]
    assert told[-1].data["response"]["output"] == closed[1:]


def test_that_a_person_is_asked_is_a_comment():
    happened = journal(*asking(call(gate="ask")), asked())
    told = comments(stream(ResponseProjection(RUN), happened))
    assert told[-1] == ': hermes.approval.request {"run_id":"run_1","approval_id":"a1"}'
    stopped = journal(*asking(call(gate="ask")), StopRequested(), asked())
    assert "approval" not in comments(stream(ResponseProjection(RUN), stopped))[-1]


def test_what_is_waited_for_is_a_comment_unless_it_was_told():
    assert len(comments(stream(ResponseProjection(RUN), journal(*CALLING)))) == 1
    assert comments(stream(ResponseProjection(RUN, after=399), journal(*CALLING))) != []
    assert comments(stream(ResponseProjection(RUN, after=400), journal(*CALLING))) == []


@pytest.mark.parametrize("name", names())
def test_a_golden_journal_can_be_streamed(name):
    assert sent(golden(name))


# --- any journal


@settings(max_examples=60)
@given(prefixes(), st.data())
def test_numbers_only_grow_and_who_goes_on_behind_one_gets_exactly_the_rest(happened, data):
    projection = ResponseProjection(RUN)
    each = [events(projection.frames(recorded)) for recorded in happened]
    told = [one for several in each for one in several]
    numbers = [one.data["sequence_number"] for one in told]
    assert all(a < b for a, b in pairwise(numbers))
    for recorded, several in zip(happened, each, strict=True):
        assert {one.data["sequence_number"] // ROOM for one in several} <= {recorded.seq}
    after = data.draw(st.sampled_from([0, *numbers]) | st.integers(0, numbers[-1] + ROOM))
    rest = [one for one in told if one.data["sequence_number"] > after]
    assert sent(happened, after=after) == rest


@settings(max_examples=60)
@given(journals())
def test_the_words_that_stand_are_those_of_the_replies_and_the_end_is_the_runs(happened):
    told = sent(happened)
    standing = {item["id"]: item for item in told[-1].data["response"]["output"]}
    words = dict.fromkeys(standing, "")
    for one in told:
        if one.name == "response.output_text.delta" and one.data["item_id"] in words:
            words[one.data["item_id"]] += one.data["delta"]
    said = [text for id, text in words.items() if standing[id].get("phase")]
    assert said == words_of(happened)
    for id, item in standing.items():
        if item["type"] == "message":
            assert item["content"][0]["text"] == words[id]
    ends_as_its_run_did(told, happened)


def ends_as_its_run_did(told, happened):
    last, end = told[-1].data["response"], replay(happened)
    assert last == response_object(RUN, happened)
    assert last["usage"]["total_tokens"] == end.usage.total
    ends = ("completed", "failed", "incomplete")
    assert [kind for kind in kinds(told) if kind in ends] == kinds(told)[-1:]
    assert (kinds(told)[-1] == "failed") == isinstance(end.ended, RunFailed)
