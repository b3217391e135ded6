from itertools import pairwise
from time import process_time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.events import (
    InputAdded,
    ModelRetracted,
    ReasoningStreamed,
    RunCancelled,
    StopRequested,
)
from holdfast.core.fit import CUT_OFF, STOPPED, conversation, fit
from holdfast.core.messages import (
    AssistantMessage,
    BlobRef,
    Image,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from holdfast.core.run import replay
from holdfast.core.state import RunState
from holdfast.models.anthropic import Anthropic
from holdfast.models.openai_chat import OpenAIChat
from holdfast.models.openai_responses import OpenAIResponses
from holdfast.testing.strategies import prefixes
from tests.core.stories import (
    accepted,
    asking,
    begun,
    call,
    called,
    done,
    failed,
    lost,
    replied,
    said,
    started,
    state,
)

STOP, INTERRUPTED = StopRequested(), failed("interrupt_abort")
PICTURE = Image(media_type="image/png", blob=BlobRef("ab", 2))


def user(*texts, **fields):
    return UserMessage(parts=tuple(Text(text) for text in texts), **fields)


def model(text="", *calls, **fields):
    return AssistantMessage(text=text, calls=calls, **fields)


def told(call_id="c1", output="42", tool="pay", **fields):
    return ToolMessage(call_id=call_id, tool=tool, output=output, **fields)


# --- what fits stays


def test_a_conversation_that_fits_goes_out_as_it_is():
    thoughts = (Reasoning(text="Hm.", seal="x"),)
    whole = (user("hi"), model("On it.", call(), reasoning=thoughts), told(), model("Done."))
    assert fit(whole) == whole
    assert fit(()) == ()


# --- calls and results


def test_a_call_without_a_result_is_said_to_have_none():
    fitted = fit((user("hi"), model("", call("c1"), call("c2")), told("c2")))
    assert [message.call_id for message in fitted[2:]] == ["c1", "c2"]
    assert "no result of this call is known" in fitted[2].output
    assert not fitted[2].ok
    assert fitted[3] == told("c2")


def test_a_result_without_a_call_is_left_out():
    assert fit((user("hi"), told("c9"), model("Hello."))) == (user("hi"), model("Hello."))
    early = fit((user("hi"), told("c1"), model("", call("c1"))))
    assert "known" in early[2].output


def test_a_result_stands_right_behind_its_call_and_once():
    wrong = (user("hi"), model("", call("c1")), user("well?"), told("c1", "1"), told("c1", "2"))
    assert fit(wrong) == (user("hi"), model("", call("c1")), told("c1", "1"), user("well?"))


def test_calls_of_one_id_are_told_apart():
    twice = (model("", call("c1")), told("c1", "1"), model("", call("c1")), told("c1", "2"))
    fitted = fit((user("hi"), *twice))
    first, one, second, two = fitted[1:]
    assert first.calls[0].id == one.call_id == "c1"
    assert second.calls[0].id == two.call_id != "c1"
    assert (one.output, two.output) == ("1", "2")
    again = fit((user("hi"), model("", call("c1")), model("", call("c1")), told("c1", "2")))
    assert [message.ok for message in again if isinstance(message, ToolMessage)] == [False, True]
    together = fit((user("hi"), model("", call("x"), call("x")), told("x", "1"), told("x", "2")))
    assert len({c.id for c in together[1].calls}) == 2
    assert [message.output for message in together[2:]] == ["1", "2"]


def test_a_new_id_is_none_that_is_in_use():
    calls = model("", call("call_2"), call("call_2"), call("call_3"), call(""))
    ids = [c.id for c in fit((user("hi"), calls))[1].calls]
    assert len(set(ids)) == 4
    assert ids[0] == "call_2"


@pytest.mark.parametrize("id", ["", "a b", "ö", "x" * 41, "a.b", "c\n"])
def test_an_id_that_some_wire_refuses_is_replaced(id):
    _, reply, result = fit((user("hi"), model("", call(id)), told(id)))
    assert reply.calls[0].id == result.call_id == "call_1"


@pytest.mark.parametrize(("name", "sent"), [("", "unknown"), ("fs/read", "fs_read"), ("a", "a")])
def test_a_name_that_no_tool_could_have_goes_out_as_one_that_could(name, sent):
    _, reply, result = fit((user("hi"), model("", call("c1", name)), told(tool=name)))
    assert (reply.calls[0].tool, result.tool) == (sent, sent)


# --- taking turns


def test_messages_that_nobody_answered_are_one():
    hurt = UserMessage(parts=(Text("look"), PICTURE), id="m_2")
    fitted = fit((user("hi", id="m_1"), hurt, user("well?"), model("Hello.")))
    assert fitted == (
        UserMessage(parts=(Text("hi"), Text("look"), PICTURE, Text("well?")), id="m_1"),
        model("Hello."),
    )


@pytest.mark.parametrize("empty", [model(), model(" \n"), model("", reasoning=(Reasoning("Hm."),))])
def test_a_reply_without_a_word_is_left_out(empty):
    assert fit((user("hi"), empty, user("well?"))) == (user("hi", "well?"),)


def test_two_replies_in_a_row_are_one():
    thoughts = (Reasoning(text="Hm.", seal="x"),)
    row = (model("One.", reasoning=thoughts), model("", call()), told(), model("Two."))
    fitted = fit((user("hi"), *row))
    assert fitted == (user("hi"), model("One.", call()), told(), model("Two."))
    assert fit((user("hi"), model("One."), model("Two.")))[1] == model("One.\n\nTwo.")


def test_a_message_without_words_keeps_its_place():
    assert fit((user(" "), model("Hello."))) == (user("[no words]"), model("Hello."))
    assert fit((user(""), user("hi"))) == (user("hi"),)
    picture = UserMessage(parts=(Text(""), PICTURE))
    assert fit((picture,)) == (UserMessage(parts=(PICTURE,)),)


def test_a_conversation_begins_with_a_person():
    first, second = fit((model("Hello."),))
    assert isinstance(first, UserMessage)
    assert second == model("Hello.")


# --- what later runs are shown of an earlier one


def test_a_run_is_shown_with_what_it_was_about_to_tell():
    ended = state(*asking(call()), begun(), done(output="42"), InputAdded(parts=(Text("and?"),)))
    assert conversation(ended) == (user("hi"), model("", call()), told(output="42"), user("and?"))


def test_words_that_were_cut_off_are_shown_as_such_and_in_their_place():
    cut = (accepted(), started(), called(), said("Hel"), said("lo \n"))
    later = InputAdded(parts=(Text("and?"),))
    shown = conversation(state(*cut, StopRequested()))
    assert shown == (user("hi"), model(f"Hello\n\n{CUT_OFF}"))
    assert conversation(state(*cut, later, *lost(2))) == (*shown, user("and?"))


@pytest.mark.parametrize("words", [(), (said(" "),)])
def test_where_no_words_were_seen_none_were_cut_off(words):
    assert conversation(state(accepted(), started(), called(), *words)) == (user("hi"),)
    thinking = ReasoningStreamed(turn=1, attempt=1, text="Hm.")
    assert conversation(state(accepted(), started(), called(), thinking)) == (user("hi"),)


def test_words_that_were_taken_back_are_not_shown():
    back = ModelRetracted(turn=1, attempt=1, after=3)
    taken = state(accepted(), started(), called(), said("Hel"), failed(), back)
    assert conversation(taken) == (user("hi"),)


def test_what_a_model_thought_stays_behind():
    thoughts = (Reasoning(text="Hm.", seal="x"),)
    thought = state(accepted(), started(), called(), replied(text="Hi.", reasoning=thoughts))
    assert conversation(thought) == (user("hi"), model("Hi."))


@pytest.mark.parametrize("stopped", [(STOP,), (started(), called(), STOP, INTERRUPTED)])
def test_what_was_stopped_before_a_word_is_not_asked_for_again_with_what_comes_next(stopped):
    shown = conversation(state(accepted(), *stopped, RunCancelled()))
    assert shown == (user("hi"), model(STOPPED))
    assert fit((*shown, user("b"))) == (user("hi"), model(STOPPED), user("b"))


def test_what_was_stopped_after_a_word_or_a_result_says_what_came_of_it_and_no_more():
    cut = state(accepted(), started(), called(), said("Hel"), STOP, INTERRUPTED, RunCancelled())
    assert conversation(cut) == (user("hi"), model(f"Hel\n\n{CUT_OFF}"))
    used = state(*asking(call()), begun(), done(output="42"), STOP, RunCancelled())
    assert conversation(used) == (user("hi"), model("", call()), told(output="42"))
    # Nobody knows what was asked there.
    assert conversation(RunState(ended=RunCancelled())) == ()


def test_nothing_is_shown_of_a_run_that_was_taken_back():
    assert conversation(state(accepted(), StopRequested(removed=True))) == ()
    assert conversation(state(accepted(), StopRequested())) == (user("hi"),)


# --- every wire takes it


def sent(wire, messages, origin=""):
    blobs = {PICTURE.blob.sha256: b"\x89PNG"}
    request = Request(model="m", instructions="", messages=messages, blobs=blobs)
    return msgspec.json.decode(wire.body(request, model="m", stream=True, origin=origin))


def check(messages):
    well_formed(messages)
    check_chat(sent(OpenAIChat(), messages)["messages"])
    check_chat(sent(OpenAIChat(), messages, "https://api.mistral.ai/v1")["messages"])
    check_responses(sent(OpenAIResponses(), messages)["input"])
    check_anthropic(sent(Anthropic(), messages)["messages"])


def well_formed(messages):
    assert not messages or isinstance(messages[0], UserMessage)
    for before, after in pairwise(messages):
        if isinstance(before, UserMessage):
            assert isinstance(after, AssistantMessage)
    ids = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert len(set(ids)) == len(ids)
    assert fit(messages) == messages


def check_chat(messages):
    """Each call is answered directly behind its message, once; nothing else is an answer."""
    open_ids = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_ids.pop(0)
            continue
        assert not open_ids
        assert message["content"] or message.get("tool_calls")
        open_ids = [c["id"] for c in message.get("tool_calls", ())]
    assert not open_ids


def check_responses(items):
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert calls == outputs
    assert len(set(calls)) == len(calls)
    for at, item in enumerate(items):
        if item["type"] == "function_call_output":
            earlier = items[:at]
            assert any(i.get("call_id") == item["call_id"] for i in earlier)
        if item["type"] == "message":
            assert item["content"]


def check_anthropic(turns):
    assert not turns or turns[0]["role"] == "user"
    for before, after in pairwise(turns):
        assert before["role"] != after["role"]
    for at, turn in enumerate(turns):
        assert turn["content"]
        used = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        following = turns[at + 1]["content"] if used else []
        results = [block["tool_use_id"] for block in following[: len(used)]]
        assert results == used
        texts = [block["text"] for block in turn["content"] if block["type"] == "text"]
        assert all(text.strip() for text in texts)


@settings(max_examples=60)
@given(st.lists(prefixes(), min_size=1, max_size=3))
def test_what_any_runs_left_behind_is_accepted_by_every_wire(runs):
    check(fit([message for run in runs for message in conversation(replay(run))]))


TEXTS = st.sampled_from(["", " ", "hi", "\u2028", "well?"])
IDS = st.sampled_from(["c1", "c2", "call_1", "", "a b"])
PARTS = st.one_of(TEXTS.map(Text), st.just(PICTURE))
CALLS = st.builds(
    ToolCall,
    id=IDS,
    tool=st.sampled_from(["pay", "", "a/b"]),
    arguments=st.sampled_from(["{}", "not json", "[1]", ""]),
)
HISTORIES = st.lists(
    st.one_of(
        st.builds(UserMessage, parts=st.lists(PARTS, max_size=3).map(tuple), id=IDS),
        st.builds(
            AssistantMessage,
            text=TEXTS,
            calls=st.lists(CALLS, max_size=3).map(tuple),
            reasoning=st.just((Reasoning(text="Hm."),)),
        ),
        st.builds(ToolMessage, call_id=IDS, tool=st.just("pay"), output=TEXTS),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(HISTORIES)
def test_any_history_is_accepted_by_every_wire(history):
    check(fit(history))


@settings(max_examples=100)
@given(HISTORIES)
def test_no_word_and_no_picture_is_lost_on_the_way(history):
    fitted = fit(history)

    def seen(messages):
        for message in messages:
            if isinstance(message, UserMessage):
                yield from (p for p in message.parts if p == PICTURE or p.text in ("hi", "well?"))
            elif isinstance(message, AssistantMessage):
                yield from (word for word in message.text.split() if word in ("hi", "well?"))
                yield from (c.arguments for c in message.calls)

    assert list(seen(fitted)) == list(seen(history))


@pytest.mark.parametrize(
    "message",
    [
        UserMessage(parts=(Text("a"),) * 35),
        AssistantMessage(text="a" * 1000),
        AssistantMessage(calls=tuple(ToolCall(id="?", tool="x", arguments="{}") for _ in range(9))),
    ],
)
def test_a_history_of_one_side_takes_no_longer_than_another(message):
    def seconds(many):
        names = (f"call_{n}" for n in range(9 * many, 18 * many))
        calls = tuple(ToolCall(id=name, tool="x", arguments="{}") for name in names)
        since = process_time()
        fit([message] * many)
        fit([AssistantMessage(calls=calls), *[message] * many])
        return process_time() - since

    # Eight times as much took more than sixty-four times as long, and everybody else waited.
    assert seconds(8_000) < 32 * seconds(1_000)
