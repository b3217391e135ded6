from hypothesis import given, settings

from holdfast.core.events import (
    InputAdded,
    ModelChoice,
    ModelRetracted,
    ReasoningStreamed,
    StopRequested,
)
from holdfast.core.messages import Text
from holdfast.server.openai.response_items import View
from holdfast.testing.strategies import journals
from tests.core.stories import (
    accepted,
    asked,
    asking,
    begun,
    call,
    called,
    done,
    failed,
    journal,
    replied,
    said,
    started,
)

CALLING = (accepted(), started(), called())
ADDED = InputAdded(parts=(Text("and"),))
TAKEN_BACK = ModelRetracted(turn=1, attempt=1, after=3)


def thought(text, turn=1, attempt=1):
    return ReasoningStreamed(turn=turn, attempt=attempt, text=text)


def view(*events):
    grown = View("run_1")
    for recorded in journal(*events):
        grown.take(recorded)
    return grown


def last(*events):
    grown = View("run_1")
    return [grown.take(recorded) for recorded in journal(*events)][-1]


def kinds(told):
    return [one["type"].removeprefix("response.") for one in told]


def shapes(grown):
    return [item.shape() for item in grown.items]


def test_the_first_words_open_an_item():
    added, part, delta = last(*CALLING, said("Hel"))
    assert added == {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {
            "id": "msg_1_4",
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        },
    }
    place = {"item_id": "msg_1_4", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert part == {"type": "response.content_part.added", **place, "part": empty}
    assert delta == {
        "type": "response.output_text.delta",
        **place,
        "logprobs": [],
        "delta": "Hel",
    }


def test_more_words_go_to_the_same_item():
    assert kinds(last(*CALLING, said("Hel"), said("lo"))) == ["output_text.delta"]


def test_a_reply_closes_its_item_with_all_of_its_words():
    told = last(*CALLING, said("Hel"), said("lo"), replied(text="Hello"))
    assert kinds(told) == ["output_text.done", "content_part.done", "output_item.done"]
    assert told[0]["text"] == told[1]["part"]["text"] == "Hello"
    assert told[2]["item"] == {
        "id": "msg_1_4",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
    }


def test_words_before_a_call_are_a_commentary_with_a_break_after_it():
    told = last(*CALLING, said("a"), replied(call(), text="a"))
    assert told[-1]["item"]["phase"] == "commentary"
    assert told[-1]["item"]["content"][0]["text"] == "a\n\n"
    assert (kinds(told)[0], told[0]["delta"], told[1]["text"]) == (
        "output_text.delta",
        "\n\n",
        "a\n\n",
    )
    assert last(*CALLING, replied(call())) == []


def test_words_are_a_commentary_until_it_is_known_where_a_shape_was_asked_for():
    shaped = (ModelChoice("main", {"response_format": {"type": "json_object"}}),)
    happened = (accepted(models=shaped), started(), called(), said("{}"))
    assert last(*happened)[0]["item"]["phase"] == "commentary"
    assert last(*happened, replied(text="{}"))[-1]["item"]["phase"] == "final_answer"
    assert "phase" not in last(*CALLING, said("{}"))[0]["item"]


def test_a_reply_is_not_the_answer_while_somebody_is_still_to_be_heard():
    told = last(*CALLING, said("a"), ADDED, replied(text="a"))
    assert told[-1]["item"]["phase"] == "commentary"
    assert told[-1]["item"]["content"][0]["text"] == "a\n\n"


def test_an_answer_after_which_somebody_was_heard_is_one_no_more():
    happened = (*CALLING, said("a"), replied(text="a"), ADDED, called(turn=2), said("b", turn=2))
    grown = view(*happened, replied(turn=2, text="b"))
    assert [item["phase"] for item in shapes(grown)] == ["commentary", "final_answer"]


def test_half_a_shape_that_is_taken_back_is_a_commentary_also_where_there_are_no_tools():
    shaped = (ModelChoice("main", {"response_format": {"type": "json_object"}}),)
    happened = (accepted(models=shaped, tools=()), started(), called(), said('{"a":'), failed())
    assert last(*happened, TAKEN_BACK)[-1]["item"]["phase"] == "commentary"


def test_a_reply_that_was_cut_off_is_incomplete_and_stands():
    grown = view(*CALLING, said("a"), replied(text="a", stop="length"))
    assert [item["status"] for item in shapes(grown)] == ["incomplete"]


def test_thoughts_are_an_item_of_their_own():
    told = last(*CALLING, thought("hm"))
    assert kinds(told) == ["output_item.added", "content_part.added", "reasoning_text.delta"]
    assert told[0]["item"]["summary"] == []
    assert told[1]["part"] == {"type": "reasoning_text", "text": ""}
    told = last(*CALLING, thought("h"), said("a"), thought("m"), replied(text="a"))
    assert kinds(told) == [
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    assert told[0]["text"] == "hm"


def test_what_is_taken_back_is_incomplete_and_does_not_stand():
    happened = (*CALLING, thought("hm"), said("a"), failed(), TAKEN_BACK)
    told = last(*happened)
    assert [one["item"]["status"] for one in told if "item" in one] == ["incomplete", "incomplete"]
    grown = view(*happened, called(attempt=2), said("b", attempt=2))
    assert [(item["id"], item["type"]) for item in shapes(grown)] == [("msg_1_9", "message")]
    assert grown.items[0].index == 2


def test_a_call_is_told_when_something_happens_to_it():
    happened = asking(call(), call("c2", "look"))
    assert last(*happened) == []
    added, delta, end, closed = last(*happened, begun("c2"))
    assert added["item"] == {
        "id": "fc_c2",
        "type": "function_call",
        "status": "in_progress",
        "call_id": "c2",
        "name": "look",
        "arguments": "",
    }
    assert delta["delta"] == end["arguments"] == closed["item"]["arguments"] == '{"sum": 1}'
    assert closed["item"]["status"] == "completed"


def test_a_call_is_told_once():
    happened = (*asking(call(gate="ask")), asked())
    assert kinds(last(*happened))[0] == "output_item.added"
    assert last(*happened, StopRequested(), begun()) == []


def test_what_came_of_a_call_is_an_item_of_its_own():
    added, closed = last(*asking(call()), begun(), done(output="paid"))
    assert (
        added["item"]
        == closed["item"]
        == {
            "id": "fco_c1",
            "type": "function_call_output",
            "status": "completed",
            "call_id": "c1",
            "output": "paid",
        }
    )


def test_a_call_that_never_ran_is_told_with_its_end():
    told = last(*asking(call()), done(outcome="denied", output="no"))
    assert len(told) == 6
    assert told[-1]["item"]["status"] == "incomplete"


def test_the_end_closes_what_is_open():
    grown = view(*CALLING, said("a"))
    assert kinds(grown.close())[-1] == "output_item.done"
    assert [item["status"] for item in shapes(grown)] == ["incomplete"]
    assert grown.close() == []


@settings(max_examples=30)
@given(journals())
def test_every_item_is_opened_once_and_closed_once_in_its_place(events):
    grown = View("run_1")
    each = [*map(grown.take, events), grown.close()]
    assert max(map(len, each)) <= 7
    told = [one for several in each for one in several]
    opened = [
        (one["output_index"], one["item"]["id"])
        for one in told
        if "added" in one["type"] and "item" in one
    ]
    closed = [
        (one["output_index"], one["item"]["id"])
        for one in told
        if one["type"].endswith("item.done")
    ]
    assert [index for index, _ in opened] == list(range(len(opened)))
    assert len({id for _, id in opened}) == len(opened)
    assert sorted(closed) == opened
    assert {item.id for item in grown.items} <= {id for _, id in opened}


def test_no_event_has_many_frames_not_even_of_a_reply_with_a_hundred_calls():
    calls = [call(f"c{n}", "look") for n in range(100)]
    grown = View("run_1")
    happened = journal(*asking(*calls), *(begun(c.id) for c in calls), *(done(c.id) for c in calls))
    assert max(len(grown.take(recorded)) for recorded in happened) <= 6
    assert len(grown.items) == 200
