from base64 import b64encode

import pytest

from holdfast.core.messages import AssistantMessage, Image, Text, UserMessage
from holdfast.server.content import Instruction
from holdfast.server.openai.conversation import read_conversation
from holdfast.server.problems import Problem

PICTURE = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{b64encode(b'png').decode()}"},
}


def read(value, name="messages"):
    return read_conversation(value, name, {})


def refused(value, name="messages"):
    with pytest.raises(Problem) as caught:
        read(value, name)
    assert caught.value.status == 400
    return caught.value.complaint


def user(content):
    return {"role": "user", "content": content}


def test_the_last_of_the_users_messages_is_what_is_asked():
    spoken = read([user("a"), {"role": "assistant", "content": "b"}, user("c")])
    assert spoken.parts == (Text("c"),)
    assert spoken.history == (UserMessage((Text("a"),)), AssistantMessage("b"))


def test_instructions_may_stand_anywhere():
    told = [{"role": "system", "content": "x"}, user("a"), {"role": "developer", "content": "y"}]
    spoken = read(told)
    assert (spoken.parts, spoken.history) == ((Text("a"),), ())
    assert spoken.told == (Instruction("system", "x"), Instruction("developer", "y"))


def test_what_tools_said_elsewhere_is_left_out():
    calling = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    spoken = read([user("a"), calling, {"role": "tool", "tool_call_id": "1", "content": "r"}])
    assert (spoken.parts, spoken.history) == ((Text("a"),), ())


def test_items_that_are_no_messages_are_left_out():
    items = [{"type": "function_call", "call_id": "1"}, {"type": "reasoning"}, "a"]
    assert read(items, "input").parts == (Text("a"),)


def test_texts_are_messages_of_a_user():
    spoken = read(["a", "b"], "input")
    assert (spoken.parts, spoken.history) == ((Text("b"),), (UserMessage((Text("a"),)),))
    assert read("a", "input").parts == (Text("a"),)


def test_pictures_are_kept_beside():
    blobs = {}
    spoken = read_conversation([user([PICTURE, {"type": "text", "text": "a"}])], "messages", blobs)
    assert [type(part) for part in spoken.parts] == [Image, Text]
    assert list(blobs.values()) == [b"png"]


@pytest.mark.parametrize("value", [None, [], ""])
def test_nothing_at_all_is_missing(value):
    assert refused(value).message == "Missing 'messages' field"
    assert refused(value, "input").message == "Missing 'input' field"


@pytest.mark.parametrize(
    "value",
    [[{"role": "system", "content": "x"}], [user("")], [user([{"type": "text", "text": ""}])]],
    ids=["only told", "empty", "empty part"],
)
def test_somebody_must_have_said_something(value):
    assert refused(value).message == "No user message found in messages"
    assert refused(value).param == "messages"


@pytest.mark.parametrize("nothing", ["", None, [], [""], [{"type": "text", "text": ""}]])
def test_what_is_asked_last_may_not_be_empty(nothing):
    for before in ([user("a")], [user("a"), {"role": "assistant", "content": "b"}]):
        said = refused([*before, user(nothing)])
        assert said.message == "the last message in messages is empty"
        assert said.param == f"messages[{len(before)}].content"


def test_a_reply_cannot_be_what_is_asked():
    said = refused([user("a"), {"role": "assistant", "content": "b"}])
    assert said.param == "messages[1].role"


@pytest.mark.parametrize("value", [5, True, {"role": "user"}])
def test_a_conversation_is_a_list(value):
    assert refused(value).param == "messages"


@pytest.mark.parametrize("role", ["human", "", "users", 5])
def test_nobody_is_left_out_for_a_role_that_is_not_known(role):
    said = refused([{"role": role, "content": "a"}, user("b")])
    assert said.param == "messages[0].role"
    spoken = read([{"role": " System ", "content": "x"}, user("b")])
    assert spoken.told == (Instruction("system", "x"),)


def test_what_is_passed_over_is_named_once():
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    answered = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
    spoken = read([user("a"), called, answered, answered, user("b")])
    assert spoken.passed_over == ("messages.tool_calls", "messages.tool")
    items = [{"type": kind} for kind in ("reasoning", "function_call", "reasoning", "O dd\n", 5)]
    assert read([*items, user("b")]).passed_over == ("messages.reasoning", "messages.function_call")
    assert read([user("a"), user("b")]).passed_over == read("a").passed_over == ()
    many = [{"type": "x" * n} for n in range(1, 50)]
    assert len(read([*many, user("b")]).passed_over) <= 20


def test_what_is_wrong_is_told_by_its_place():
    bad = {"type": "input_file", "file_id": "f"}
    assert refused([user("a"), 5]).param == "messages[1]"
    assert refused([{"content": "a"}]).param == "messages[0].role"
    said = refused([{"role": "system", "content": "x"}, user([bad]), user("a")])
    assert (said.param, said.code) == ("messages[1].content[0]", "unsupported_content_type")
    said = refused([{"role": "system", "content": "x"}, user([bad])])
    assert said.param == "messages[1].content[0]"
    said = refused([user("a"), {"role": "system", "content": "x" * 1_000_001}])
    assert (said.param, said.code) == ("messages[1].content", "text_too_long")
    said = refused([user("a"), user([{"type": "input_image", "image_url": "ftp://x"}])], "input")
    assert (said.param, said.code) == ("input[1].content[0]", "invalid_image_url")
