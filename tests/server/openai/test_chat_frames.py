from itertools import groupby

import pytest
from hypothesis import given, settings

from holdfast.core.codec import recall, record
from holdfast.core.events import (
    ApprovalExpired,
    InputAdded,
    ModelChoice,
    ModelRetracted,
    ReasoningStreamed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StopRequested,
    TextStreamed,
)
from holdfast.core.messages import Text
from holdfast.core.run import replay
from holdfast.core.usage import Usage
from holdfast.server.frames import BREAK, retracted_attempts
from holdfast.server.openai.chat_frames import ChatProjection
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
from tests.server.openai.sse import DONE, comments, events, stream

RUN = "run_1"
CALLING = (accepted(asked_model="gpt"), started(), called())
WHOLE = (*CALLING, said("Hel"), said("lo"), replied(text="Hello", usage=Usage(input=3, output=1)))


def thought(text, turn=1, attempt=1):
    return ReasoningStreamed(turn=turn, attempt=attempt, text=text)


def taken_back(after, turn=1, attempt=1):
    return ModelRetracted(turn=turn, attempt=attempt, after=after)


def sent(*happened, **how):
    return events(stream(ChatProjection(RUN, **how), journal(*happened)))


def last(*happened, **how):
    """What is sent for the last of these."""
    projection = ChatProjection(RUN, **how)
    return events([projection.frames(recorded) for recorded in journal(*happened)][-1])


def chunks(told):
    return [one.data for one in told if not one.name and one.data != DONE]


def words(told, kind="content"):
    deltas = [choice["delta"] for chunk in chunks(told) for choice in chunk["choices"]]
    return [delta[kind] for delta in deltas if delta.get(kind)]


# --- words that are to have a shape

SHAPED = (
    accepted(models=(ModelChoice("main", {"response_format": {"type": "json_object"}}),)),
    started(),
    called(),
)


def test_a_shape_is_told_once_it_stands():
    assert words(sent(*SHAPED, said('{"a":'), said("1}"))) == []
    whole = (*SHAPED, said('{"a":'), said("1}"), replied(text='{"a":1}'), RunCompleted())
    assert words(last(*whole)) == ['{"a":1}']


def test_what_is_said_before_a_call_is_no_part_of_a_shape():
    told = sent(*SHAPED, thought("hm"), said("Let me look."), replied(call(), text="Let me look."))
    assert (words(told), words(told, "reasoning_content")) == ([], ["hm", "Let me look."])


@pytest.mark.parametrize("late", [True, False])
def test_a_shape_that_somebody_spoke_after_is_not_the_answer(late):
    added, reply = InputAdded(parts=(Text("and"),)), replied(text="{}")
    first = (reply, added) if late else (added, reply)
    second = (called(turn=2), said("[]", turn=2), replied(turn=2, text="[]"), RunCompleted())
    told = sent(*SHAPED, thought("hm"), said("{}"), *first, *second)
    assert (words(told), words(told, "reasoning_content")) == (["[]"], ["hm", "{}"])


def test_of_a_shape_that_was_taken_back_nothing_is_told():
    told = sent(*SHAPED, said('{"a"'), taken_back(4), called(attempt=2), said("{}", attempt=2))
    assert words(told) == []


def test_half_a_shape_is_told_when_no_more_will_come():
    told = sent(*SHAPED, said('{"a"'), StopRequested(by="ada"), RunCancelled())
    assert words(told) == ['{"a"']


# --- words


def test_a_stream_begins_with_a_role():
    assert sent(accepted(asked_model="gpt")) == [
        (
            "",
            {
                "id": "chatcmpl-run_1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "gpt",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"role": "assistant", "content": ""},
                        "finish_reason": None,
                    }
                ],
            },
        )
    ]


def test_words_and_thoughts_come_as_they_are_said():
    told = sent(*CALLING, thought("hm"), said("Hel"), said("lo"))
    assert words(told) == ["Hel", "lo"]
    assert words(told, "reasoning_content") == ["hm"]


def test_an_empty_line_parts_the_words_of_two_turns():
    first = (accepted(), started(), called(), said("a"), replied(call(), text="a"))
    told = sent(*first, begun(), done(), called(turn=2), said("b", turn=2), said("c", turn=2))
    assert words(told) == ["a", "\n\n", "b", "c"]


def test_an_empty_line_parts_the_thoughts_of_two_turns():
    first = (*CALLING, thought("hm"), replied(call()), begun(), done(), called(turn=2))
    told = sent(*first, thought("so", turn=2), thought(" it is", turn=2))
    assert words(told, "reasoning_content") == ["hm", "\n\n", "so", " it is"]


def test_nothing_parts_the_first_words_from_a_turn_without_any():
    told = sent(*asking(call()), begun(), done(), called(turn=2), said("b", turn=2))
    assert words(told) == ["b"]


def test_an_attempt_that_is_given_up_leaves_a_visible_break():
    told = sent(*CALLING, said("a"), failed(), taken_back(3), called(attempt=2), said("b", 1, 2))
    assert words(told) == ["a", BREAK, "b"]


def test_a_break_is_shown_among_the_words_it_breaks():
    told = sent(*CALLING, thought("hm"), failed(), taken_back(3), called(attempt=2))
    assert words(told) == []
    assert words(told, "reasoning_content") == ["hm", BREAK]
    told = sent(*CALLING, thought("hm"), said("a"), failed(), taken_back(3))
    assert (words(told), words(told, "reasoning_content")) == (["a", BREAK], ["hm", BREAK])


def test_who_comes_later_is_not_shown_what_was_taken_back():
    happened = (*CALLING, said("a"), thought("hm"), failed(), taken_back(3))
    told = sent(*happened, called(attempt=2), said("b", 1, 2), retracted={(1, 1)})
    assert words(told) == ["b"]
    assert words(told, "reasoning_content") == []


# --- the end


def test_a_run_that_ended_well_stops():
    told = last(*WHOLE, RunCompleted())
    assert told[-1].data == DONE
    assert chunks(told)[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert len(told) == 2
    assert {"usage", "hermes", "error"}.isdisjoint(told[0].data)


def test_usage_comes_last_and_alone_if_it_was_asked_for():
    told = sent(*WHOLE, RunCompleted(), include_usage=True)
    *others, usage = chunks(told)
    assert all(chunk["usage"] is None for chunk in others)
    assert usage["choices"] == []
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["total_tokens"]) == (3, 4)


def test_what_was_cut_off_says_so():
    cut = (*CALLING, said("a"), replied(text="a", stop="length"), RunCompleted(incomplete="length"))
    final = chunks(last(*cut))[0]
    assert final["choices"][0]["finish_reason"] == "length"
    assert (final["hermes"]["partial"], final["hermes"]["failed"]) == (True, False)
    assert "error" not in final


@pytest.mark.parametrize(
    ("happened", "partial", "code"),
    [
        ((RunFailed(code="model", message="gone"),), False, "model"),
        ((said("a"), StopRequested(), RunCancelled()), True, "cancelled"),
    ],
)
def test_a_failure_ends_the_stream_and_is_told_in_full(happened, partial, code):
    told = last(*CALLING, *happened, include_usage=True)
    final = told[0].data
    assert [one.data for one in told[1:]] == [DONE]
    assert final["choices"][0]["finish_reason"] == "error"
    assert (final["error"]["code"], final["error"]["type"]) == (code, "server_error")
    assert (final["hermes"]["partial"], final["hermes"]["error_code"]) == (partial, code)
    assert final["usage"]["total_tokens"] == 0


# --- beside the words


def test_a_tool_is_told_of_by_events_with_a_name_that_are_empty_chunks():
    happened = (*asking(call(arguments='{"sum":\n 1}')), begun())
    (running,) = last(*happened)
    assert running.name == "hermes.tool.progress"
    told = {name: running.data[name] for name in ("tool", "emoji", "label", "toolCallId", "status")}
    assert told == {
        "tool": "pay",
        "emoji": "🔧",
        "label": '{"sum": 1}',
        "toolCallId": "c1",
        "status": "running",
    }
    assert running.data["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert running.data["object"] == "chat.completion.chunk"
    (completed,) = last(*happened, done())
    assert completed.name == "hermes.tool.progress"
    assert (completed.data["toolCallId"], completed.data["status"]) == ("c1", "completed")


def test_a_tool_that_never_ran_is_not_said_to_have_ended():
    assert last(*asking(call()), done(outcome="refused")) == []


def test_a_tool_that_a_stop_came_before_is_not_said_to_run():
    assert last(*asking(call()), StopRequested(), begun()) == []


def test_a_tool_with_a_private_name_is_nobodys_business():
    assert last(*asking(call(tool="_inner")), begun()) == []


def test_that_a_person_is_asked_is_told_to_programs_and_to_people():
    happened = (*asking(call(gate="ask")), asked(subject="pay 5", digest="d", expires=9.0))
    event, remark = last(*happened)
    assert event.name == "hermes.approval.request"
    assert (event.data["run_id"], event.data["approval_id"]) == (RUN, "a1")
    assert (event.data["command"], event.data["digest"]) == ("pay 5", "d")
    assert event.data["expires_at"] == 14.0
    # The id and the choices are those of the completion in every chunk, or clients stumble.
    assert event.data["id"] == "chatcmpl-run_1"
    assert event.data["choices"][0]["delta"] == {}
    assert event.data["approval_choices"] == ["once", "deny"]
    assert words([remark]) == []
    shown = words([remark], "reasoning_content")[0]
    assert "pay 5" in shown
    assert "/v1/runs/run_1/approval" in shown


def test_an_answer_is_told_once_and_silence_as_well():
    happened = (*asking(call(gate="ask")), asked())
    (event,) = last(*happened, answer("deny"))
    assert (event.name, event.data["choice"]) == ("hermes.approval.responded", "deny")
    (event,) = last(*happened, ApprovalExpired(approval_id="a1"))
    assert event.data["choice"] == "expired"
    assert last(*happened, answer("deny"), answer("once")) == []


def test_nobody_is_asked_once_a_stop_was_wished_for():
    assert last(*asking(call(gate="ask")), StopRequested(), asked()) == []


def test_what_is_waited_for_is_a_comment():
    told = comments(stream(ChatProjection(RUN), journal(*CALLING, rescued())))
    assert [one.split(" ", 2)[1] for one in told] == ["run.phase", "run.phase"]
    assert '"first_event"' in told[0]
    assert '"worker"' in told[1]


def test_a_run_accepted_by_a_newer_version_does_no_harm():
    happened = [recall(1, 1.5, b'{"type":"run.forked"}'), record(2, 2.0, said("a"))]
    told = events(stream(ChatProjection(RUN), happened))
    assert [(one.data["id"], one.data["created"]) for one in told] == [("chatcmpl-run_1", 1)]


@pytest.mark.parametrize("name", names())
def test_a_golden_journal_can_be_streamed(name):
    assert stream(ChatProjection(RUN), golden(name))


# --- any journal


def standing(happened, kind):
    """The words that stand, in their turns."""
    back = retracted_attempts(happened)
    found = [r.event for r in happened if isinstance(r.event, kind)]
    found = [word for word in found if (word.turn, word.attempt) not in back]
    return ["".join(w.text for w in turn) for _, turn in groupby(found, lambda word: word.turn)]


@settings(max_examples=60)
@given(prefixes())
def test_who_is_there_sees_a_break_where_who_comes_later_sees_what_stands(happened):
    back = retracted_attempts(happened)
    later = events(stream(ChatProjection(RUN, retracted=back), happened))
    assert "".join(words(later)) == "\n\n".join(standing(happened, TextStreamed))
    told = words(events(stream(ChatProjection(RUN), happened)))
    spoken = [r.event for r in happened if isinstance(r.event, TextStreamed)]
    expected, earlier = [], 0
    for (turn, attempt), pieces in groupby(spoken, lambda word: (word.turn, word.attempt)):
        expected += ["\n\n"] if 0 < earlier < turn else []
        expected += [word.text for word in pieces]
        if (turn, attempt) in back:
            expected.append(BREAK)
        else:
            earlier = turn
    assert told == expected


@settings(max_examples=60)
@given(journals())
def test_every_run_is_one_completion_that_ends_once_and_with_its_usage(happened):
    told = events(stream(ChatProjection(RUN, include_usage=True), happened))
    assert [one.data == DONE for one in told] == [False] * (len(told) - 1) + [True]
    reasons = [c["finish_reason"] for chunk in chunks(told) for c in chunk["choices"]]
    reason, end = reasons[-1], replay(happened)
    assert [one for one in reasons if one] == [reason]
    completed = isinstance(end.ended, RunCompleted)
    assert (reason != "error") == completed
    assert (reason == "length") == (completed and end.ended.incomplete == "length")
    assert chunks(told)[-1]["usage"]["total_tokens"] == end.usage.total
    heads = {(one.data["id"], one.data["object"], one.data["created"]) for one in told[:-1]}
    assert len(heads) == 1


def test_a_message_thrown_in_changes_nothing_of_what_is_shown():
    assert last(*CALLING, InputAdded(parts=(Text("by the way"),))) == []
