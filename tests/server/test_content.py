from base64 import b64encode
from hashlib import sha256

import pytest

from holdfast.core.messages import AssistantMessage, BlobRef, Image, Text, UserMessage
from holdfast.server import content
from holdfast.server.content import (
    LARGEST_IMAGE,
    LONGEST_ADDRESS,
    LONGEST_INPUT,
    MOST_MESSAGES,
    MOST_PARTS,
    Instruction,
    laid_over,
    read_earlier,
    read_history,
    read_input,
)
from holdfast.server.problems import Problem

PIXEL = b"\x89PNG a pixel"


def data(picture=PIXEL, head="data:image/png;base64"):
    return f"{head},{b64encode(picture).decode()}"


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


def said(*parts):
    return [{"role": "user", "content": list(parts)}]


def parts_of(value):
    parts, _ = read_input(value, {})
    return parts


def refusal(read, value):
    with pytest.raises(Problem) as caught:
        read(value, {})
    assert caught.value.status == 400
    return caught.value.complaint


# --- the input -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", [], {}, 0, False])
def test_an_input_that_is_nothing_is_missing(value):
    found = refusal(read_input, value)
    assert (found.message, found.param, found.code) == ("Missing 'input' field", "input", None)


@pytest.mark.parametrize(
    "value",
    [
        {"role": "user", "content": "hi"},
        5,
        True,
        [5],
        [None],
        ["hi"],
        [["hi"]],
        [["hi"], 5],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {"text": "hi"}}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        ["hi", ""],
    ],
    ids=str,
)
def test_an_input_without_a_last_word_has_no_user_message(value):
    assert refusal(read_input, value).message == "No user message found in input"


@pytest.mark.parametrize(
    "value",
    [
        "hi",
        [{"role": "user", "content": "hi"}],
        [{"content": "hi"}],
        [{"role": "assistant", "content": "hi"}],
        said("hi"),
        said({"type": "text", "text": "hi"}),
        said({"type": "input_text", "text": "hi"}),
        said({"type": "output_text", "text": "hi"}, {"type": "text", "text": ""}),
    ],
    ids=str,
)
def test_an_input_may_be_said_in_many_ways(value):
    assert parts_of(value) == (Text("hi"),)


@pytest.mark.parametrize("blank", [" ", "\n\t"])
def test_an_input_of_blanks_is_an_input(blank):
    assert parts_of(blank) == parts_of([{"role": "user", "content": blank}]) == (Text(blank),)


def test_the_last_of_several_messages_is_the_input_and_the_others_came_earlier():
    parts, earlier = read_input(
        ["one", {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}], {}
    )
    assert parts == (Text("three"),)
    assert earlier == ["one", {"role": "assistant", "content": "two"}]


def test_an_input_may_be_long_but_not_too_long():
    assert parts_of("x" * LONGEST_INPUT)
    for value in ("x" * (LONGEST_INPUT + 1), said("x" * LONGEST_INPUT, "y")):
        found = refusal(read_input, value)
        assert found.code == "text_too_long" and f"{LONGEST_INPUT} characters" in found.message


def test_lists_may_be_long_but_not_too_long():
    history = [{"role": "user", "content": "x"}] * (MOST_MESSAGES + 1)
    assert parts_of(history[1:])
    assert refusal(read_input, history).code == "list_too_long"
    assert len(parts_of(said(*["x"] * MOST_PARTS))) == MOST_PARTS
    found = refusal(read_input, said(*["x"] * (MOST_PARTS + 1)))
    assert (found.code, found.param) == ("list_too_long", "input[0].content")
    assert refusal(read_history, history).code == "list_too_long"


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (5, "invalid_content_part"),
        (None, "invalid_content_part"),
        ([], "invalid_content_part"),
        ({"type": "text"}, "invalid_content_part"),
        ({"type": "text", "text": 5}, "invalid_content_part"),
        ({"text": "hi"}, "unsupported_content_type"),
        ({"type": "input_audio"}, "unsupported_content_type"),
        ({"type": ["text"]}, "unsupported_content_type"),
        ({"type": {}}, "unsupported_content_type"),
    ],
    ids=str,
)
def test_a_part_nobody_can_read_is_refused_by_its_place(part, code):
    found = refusal(read_input, ["first", {"role": "user", "content": ["hi", part]}])
    assert (found.code, found.param) == (code, "input[1].content[1]")


# --- images ----------------------------------------------------------------------------


def test_an_image_in_the_request_becomes_a_blob():
    blobs = {}
    parts, _ = read_input(said({"type": "text", "text": "look"}, image(data())), blobs)
    ref = BlobRef(sha256(PIXEL).hexdigest(), len(PIXEL))
    assert parts == (Text("look"), Image("image/png", ref))
    assert blobs == {ref.sha256: PIXEL}


def test_an_image_alone_is_an_input():
    assert parts_of(said(image("http://example.org/a.png")))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        {"type": "input_image", "image_url": {"url": "https://example.org/a.png"}},
    ],
    ids=str,
)
def test_an_image_at_an_address_stays_there(part):
    blobs = {}
    parts, _ = read_input(said(part), blobs)
    assert parts == (Image(url="https://example.org/a.png"),) and blobs == {}


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        ("data:image/png;base64", "image/png"),
        ("DATA:Image/PNG;Base64", "image/png"),
        ("data:image/jpg;base64", "image/jpeg"),
        ("data:image/svg+xml;charset=utf-8;base64", "image/svg+xml"),
    ],
)
def test_an_image_knows_its_kind_by_its_registered_name(head, media_type):
    (found,) = parts_of(said(image(data(head=head))))
    assert found.media_type == media_type


@pytest.mark.parametrize(
    "url",
    [
        None,
        5,
        "",
        {},
        "hello",
        "https://",
        "https:///path",
        "https://exam ple.org/",
        "https://example.org/\x1b[2J",
        "http://" + "x" * LONGEST_ADDRESS,
        "file:///etc/passwd",
        "ftp://example.org/a.png",
        "javascript:alert(1)",
        "data:text/html;base64,aGk=",
        "data:image/png,aGk=",
        "data:image/;base64,aGk=",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png;base64,a",
        "data:image/png;base64,aGk",
        "data:image/png;base64,a!Gk=",
        "data:image/png;base64,é",
        "data:image/png" + ";a" * 130 + ";base64,aGk=",
        "data:image/png" + ";a" * 1_000_000,
    ],
    ids=lambda url: str(url)[:40],
)
def test_what_is_no_address_of_an_image_is_refused_by_its_place(url):
    found = refusal(read_input, said("look", image(url)))
    assert (found.code, found.param) == ("invalid_image_url", "input[0].content[1]")


def test_an_image_part_without_an_address_is_refused():
    assert refusal(read_input, said({"type": "image_url"})).code == "invalid_image_url"


def test_an_image_may_be_large_but_not_too_large():
    assert parts_of(said(image(data(b"x" * LARGEST_IMAGE))))
    found = refusal(read_input, said(image(data(b"x" * (LARGEST_IMAGE + 1)))))
    assert found.code == "invalid_image_url" and f"{LARGEST_IMAGE} bytes" in found.message


# --- what was said before --------------------------------------------------------------


@pytest.mark.parametrize("value", ["hi", {"role": "user"}, 5, True], ids=str)
def test_a_history_is_a_list(value):
    found = refusal(read_history, value)
    assert found.message == "'conversation_history' must be an array of message objects"
    assert found.param == "conversation_history"


@pytest.mark.parametrize(
    "item", ["hi", None, 5, [], {}, {"role": "user"}, {"content": "x"}], ids=str
)
def test_a_history_is_made_of_messages(item):
    found = refusal(read_history, [{"role": "user", "content": "x"}, item])
    assert found.message == "conversation_history[1] must have 'role' and 'content' fields"
    assert found.param == "conversation_history[1]"


def test_a_history_keeps_its_order_and_its_roles():
    found = read_history(
        [
            {"role": "user", "content": "one"},
            {"role": "Assistant ", "content": "two"},
            {"role": "user", "content": "three"},
        ],
        {},
    )
    assert found.messages == (
        UserMessage((Text("one"),)),
        AssistantMessage("two"),
        UserMessage((Text("three"),)),
    )
    assert found.told == ()


def test_what_a_system_says_are_instructions():
    found = read_history(
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
        ],
        {},
    )
    assert found.messages == (UserMessage((Text("hi"),)),)
    told = (Instruction("system", "be brief"), Instruction("developer", "be kind"))
    assert found.told == told
    assert laid_over("first", told) == "first\n\nbe brief\n\nbe kind"
    assert laid_over("", told[:1]) == "be brief"


@pytest.mark.parametrize("role", ["tool", "function", "critic", None, 5, [], {}], ids=str)
def test_messages_of_tools_and_of_strangers_are_left_out_unread(role):
    odd = {"role": role, "content": [{"type": "strange"}]}
    blobs = {}
    found = read_history([odd, {"role": role, "content": [image(data())]}], blobs)
    assert found == ((), ()) and blobs == {}


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("empty", [None, "", [], [""]], ids=str)
def test_messages_that_say_nothing_are_left_out(role, empty):
    assert read_history([{"role": role, "content": empty}], {}).messages == ()


@pytest.mark.parametrize(
    ("value", "text"), [(5, "5"), (True, "true"), ({"a": [1]}, '{"a":[1]}')], ids=str
)
def test_what_is_no_text_is_taken_as_it_was_written(value, text):
    for role, message in [
        ("user", UserMessage((Text(text),))),
        ("assistant", AssistantMessage(text)),
    ]:
        assert read_history([{"role": role, "content": value}], {}).messages == (message,)


def test_an_assistant_is_quoted_by_its_words_alone():
    parts = ["one", {"type": "output_text", "text": "two"}, {"type": "text", "text": 5}]
    others = [{"type": "reasoning", "text": "hm"}, image("nonsense"), 5, {"text": "x"}]
    found = read_history([{"role": "assistant", "content": [*parts, *others]}], {})
    assert found.messages == (AssistantMessage("one\ntwo"),)


def test_an_image_of_the_history_is_kept_and_checked_as_well():
    blobs = {}
    found = read_history([{"role": "user", "content": [image(data())]}], blobs)
    assert isinstance(found.messages[0].parts[0], Image) and list(blobs.values()) == [PIXEL]
    complaint = refusal(read_history, [{"role": "user", "content": [image("nonsense")]}])
    assert complaint.param == "conversation_history[0].content[0]"


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_a_message_of_the_history_may_not_be_too_long(role):
    found = refusal(read_history, [{"role": role, "content": "x" * (LONGEST_INPUT + 1)}])
    assert (found.code, found.param) == ("text_too_long", "conversation_history[0].content")


def test_what_came_earlier_in_an_input_is_read_as_a_conversation():
    items = ["one", {"role": "assistant", "content": "two"}, {"role": "system", "content": "three"}]
    assert read_earlier(items, {}) == (
        (UserMessage((Text("one"),)), AssistantMessage("two")),
        (Instruction("system", "three"),),
    )


def test_what_is_no_message_among_an_input_is_skipped():
    items = [
        5,
        None,
        [],
        {"type": "function_call", "name": "x"},
        {"role": "user"},
        {"content": "x"},
    ]
    assert read_earlier(items, {}) == ((), ())


def test_the_limits_are_those_that_were_promised():
    assert content.LONGEST_INPUT == 1_000_000


@pytest.mark.parametrize(
    ("detail", "kept"), [("low", "low"), ("original", "original"), ("auto", ""), (5, ""), ([], "")]
)
def test_how_closely_to_look_at_a_picture_is_kept(detail, kept):
    url = "https://a.example/b.png"
    chat = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    response = {"type": "input_image", "image_url": url, "detail": detail}
    for part in (chat, response):
        assert content.read_parts([part], "input", {}) == (Image(url=url, detail=kept),)
