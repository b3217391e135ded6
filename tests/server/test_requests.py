import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.config import ModelSettings, Settings
from holdfast.config.settings import AgentSettings, ToolSettings
from holdfast.core.codec import decode, decode_history, encode, link_messages
from holdfast.core.messages import AssistantMessage, Image, Text, ToolSpec, UserMessage
from holdfast.core.usage import Budget
from holdfast.server.bodies import DEEPEST, MOST_TOKENS
from holdfast.server.problems import Problem
from holdfast.server.requests import (
    LONGEST_INSTRUCTIONS,
    MOST_TURNS,
    STOPPED,
    ApprovalRequest,
    RunRequest,
    accept,
    cursor,
    fingerprint,
    idempotency_key,
    read_approval,
    read_run,
    read_steer,
    read_stop,
)

LOOK, NOTE = ToolSpec("look"), ToolSpec("note")


def body(**fields):
    return json.dumps(fields).encode()


def run(**fields):
    return read_run(body(**{"input": "hi", **fields}))


def answer(**fields):
    return read_approval(body(**{"choice": "once", **fields}))


def refusal(read, *args, **kwargs):
    with pytest.raises(Problem) as caught:
        read(*args, **kwargs)
    assert caught.value.status == 400
    return caught.value.complaint


def nested(depth, inmost):
    """An object whose only field is a list in a list in a list."""
    return b'{"x":' + b"[" * (depth - 1) + inmost + b"]" * (depth - 1) + b"}"


# --- any body --------------------------------------------------------------------------

reads = pytest.mark.parametrize("read", [read_run, read_approval])


@reads
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"hello",
        b"{}{}",
        b"NaN",
        b'{"x": 1e999}',
        b'{"input": "\xff"}',
        b'{"input": "a\x00b"}',
        b'{"input": "\\ud800"}',
        b'{"input": "\\udc00 alone"}',
        b'{"input": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda data: ascii(data[:30]),
)
def test_what_is_no_json_is_refused(read, data):
    found = refusal(read, data)
    assert (found.message, found.type, found.code) == (
        "Invalid JSON",
        "invalid_request_error",
        None,
    )


@reads
@pytest.mark.parametrize("data", [b"[]", b"null", b'"x"', b"5", b"true", b'[{"input":"hi"}]'])
def test_what_is_no_object_is_refused(read, data):
    assert refusal(read, data).message == "Invalid JSON: the body must be an object"


@reads
@pytest.mark.parametrize(
    "data",
    [b'{"input":"a\\u0000b"}', b'{"\\u0000":1}', b'{"input":"x","other":[{"a":["\\u0000"]}]}'],
)
def test_a_nul_is_refused_wherever_it_stands(read, data):
    assert refusal(read, data).message == "Invalid JSON: no text may contain NUL"


@pytest.mark.parametrize("inmost", [b"", b"1", b"{}"])
def test_a_body_may_be_deep_but_not_too_deep(inmost):
    deep = DEEPEST - inmost.count(b"{")
    # Deep enough to be read as far as its missing field.
    assert refusal(read_run, nested(deep, inmost)).message == "Missing 'input' field"
    found = refusal(read_run, nested(deep + 1, inmost))
    assert found.message == "Invalid JSON: nested more than 64 deep"


@reads
def test_a_body_of_brackets_is_refused_before_it_is_read(read):
    many = b'{"x":[' + b"[]," * 3_000_000 + b"1]}"
    assert refusal(read, many).message == "Invalid JSON"
    assert read_stop(many) == STOPPED
    assert len(fingerprint(many)) == 64


def test_a_body_may_hold_many_things_but_not_too_many():
    # Six signs and texts come before the list.
    assert read_run(b'{"input":"hi","x":[' + b"1," * (MOST_TOKENS - 6) + b"1]}")
    found = refusal(read_run, b'{"input":"hi","x":[' + b"1," * (MOST_TOKENS - 5) + b"1]}")
    assert found.message == "Invalid JSON"


@pytest.mark.parametrize(
    "text", ["[" * 300_000, ',"' * 150_000, '\\"{[,' * 60_000], ids=["lists", "quotes", "escapes"]
)
def test_brackets_in_a_text_are_only_text(text):
    assert run(input=text).parts == (Text(text),)


def test_a_body_of_quotes_that_are_never_closed_takes_no_time():
    assert refusal(read_run, b'"' + b'\\"' * 4_000_000 + b"," * MOST_TOKENS + b",").message


# --- a run -----------------------------------------------------------------------------


def test_a_run_needs_nothing_but_its_input():
    assert run() == RunRequest(parts=(Text("hi"),))


def test_a_run_is_what_its_fields_say():
    found = run(
        instructions="be brief",
        previous_response_id="resp_1",
        session_id="s-1",
        model="big",
        provider="acme",
        reasoning_effort="high",
        service_tier="flex",
        metadata={"ticket": "7"},
        max_turns=3,
        approval="deny",
        tools=["look"],
        conversation_history=[{"role": "assistant", "content": "hello"}],
    )
    assert found == RunRequest(
        parts=(Text("hi"),),
        history=(AssistantMessage("hello"),),
        continues=True,
        instructions="be brief",
        previous_response_id="resp_1",
        session_id="s-1",
        model="big",
        provider="acme",
        reasoning_effort="high",
        service_tier="flex",
        metadata={"ticket": "7"},
        max_turns=3,
        approval="deny",
        tools=("look",),
    )


def test_fields_that_are_null_are_left_out_and_unknown_ones_ignored():
    names = [name for name in RunRequest.__struct_fields__ if name != "parts"]
    nothing = dict.fromkeys([*names, "conversation_history"])
    assert run(**nothing, stream=True, other={"a": [1]}) == run()


def test_fields_that_are_empty_are_left_out():
    names = ["instructions", "previous_response_id", "session_id", "model", "reasoning_effort"]
    assert run(**dict.fromkeys(names, ""), conversation_history=[], metadata={}) == run()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "Missing 'input' field"),
        (b'{"input":{"role":"user"}}', "No user message found in input"),
        (
            b'{"input":"hi","conversation_history":"x"}',
            "'conversation_history' must be an array of message objects",
        ),
        (
            b'{"input":"hi","conversation_history":[{"role":"user"}]}',
            "conversation_history[0] must have 'role' and 'content' fields",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_clients_know(data, message):
    assert refusal(read_run, data).message == message


def test_earlier_messages_of_the_input_are_the_history_unless_one_was_given():
    several = [
        {"role": role, "content": words}
        for role, words in (("user", "one"), ("assistant", "two"), ("user", "three"))
    ]
    found = run(input=several)
    assert found.parts == (Text("three"),)
    assert found.history == (UserMessage((Text("one"),)), AssistantMessage("two"))
    assert not found.continues
    assert run(input=several, conversation_history=[]) == found
    found = run(input=several, conversation_history=[{"role": "user", "content": "zero"}])
    assert found.history == (UserMessage((Text("zero"),)),)
    assert found.continues


def test_what_a_system_said_is_added_to_the_instructions():
    history = [{"role": "system", "content": "be kind"}, {"role": "system", "content": ""}]
    assert run(instructions="be brief", conversation_history=history).instructions == (
        "be brief\n\nbe kind"
    )
    assert run(input=[*history, {"role": "user", "content": "hi"}]).instructions == "be kind"


def test_instructions_may_be_long_but_not_too_long():
    assert run(instructions="x" * LONGEST_INSTRUCTIONS) and LONGEST_INSTRUCTIONS == 200_000
    history = [{"role": "system", "content": "y"}]
    for fields in (
        {"instructions": "x" * (LONGEST_INSTRUCTIONS + 1)},
        {"instructions": "x" * LONGEST_INSTRUCTIONS, "conversation_history": history},
    ):
        found = refusal(run, **fields)
        assert (found.code, found.param) == ("text_too_long", "instructions")


@pytest.mark.parametrize(
    "name", ["previous_response_id", "model", "provider", "reasoning_effort", "service_tier"]
)
def test_a_name_is_a_short_text(name):
    assert getattr(run(**{name: "x" * 256}), name) == "x" * 256
    found = refusal(run, **{name: "x" * 257})
    assert (found.code, found.param) == ("text_too_long", name)
    for value in (5, True, [], {"a": 1}):
        found = refusal(run, **{name: value})
        assert (found.message, found.param) == (f"'{name}' must be a string", name)


@pytest.mark.parametrize("value", [5, True, [], {}])
def test_instructions_are_a_text(value):
    assert refusal(run, instructions=value).message == "'instructions' must be a string"


@pytest.mark.parametrize("value", ["s", "webui:1.2-x_y", "über ß", "two words", "x" * 256])
def test_a_session_id_is_anything_one_can_see(value):
    assert run(session_id=value).session_id == value


@pytest.mark.parametrize(
    "value",
    ["a/b", "a\\b", "a..b", "..", "x" * 257, "a\nb", "\x1b[2J", "a\u200bb", " ", " a", 5, []],
)
def test_a_session_id_that_leads_elsewhere_or_cannot_be_seen_is_refused(value):
    found = refusal(run, session_id=value)
    assert (found.code, found.param) == ("invalid_session_id", "session_id")


@pytest.mark.parametrize("value", [{}, {"a": ""}, {str(n): "x" * 512 for n in range(16)}])
def test_metadata_is_a_few_short_texts(value):
    assert run(metadata=value).metadata == value


@pytest.mark.parametrize(
    "value",
    [
        "x",
        5,
        [],
        ["a"],
        {"a": 1},
        {"a": None},
        {"a": ["b"]},
        {"a": "x" * 513},
        {"x" * 513: "a"},
        {str(n): "x" for n in range(17)},
    ],
    ids=lambda value: str(value)[:20],
)
def test_other_metadata_is_refused(value):
    found = refusal(run, metadata=value)
    assert (found.code, found.param) == ("invalid_metadata", "metadata")


@pytest.mark.parametrize("value", [0, -1, True, 1.5, 2.0, "3", [], MOST_TURNS + 1, 10**40])
def test_turns_are_counted_from_one(value):
    assert run(max_turns=1).max_turns == 1 and run(max_turns=MOST_TURNS)
    assert refusal(run, max_turns=value).param == "max_turns"


@pytest.mark.parametrize("value", ["", "ASK", "yolo", True, [], {}])
def test_a_person_is_asked_or_not(value):
    assert run(approval="ask").approval == "ask" and run(approval="deny").approval == "deny"
    assert refusal(run, approval=value).param == "approval"


@pytest.mark.parametrize("value", ["look", {}, [5], [""], [{"name": "look"}], [None], ["x"] * 1001])
def test_tools_are_a_list_of_names(value):
    assert run(tools=[]).tools == () and run(tools=["a", "b"]).tools == ("a", "b")
    assert refusal(run, tools=value).param == "tools"


# --- what the web page sends -----------------------------------------------------------

PICTURE = "data:image/png;base64," + b64encode(b"\x89PNG").decode()


@pytest.mark.parametrize("model", ["default", "gpt-5.5", "@openrouter:x/y"])
@pytest.mark.parametrize(
    "said",
    [
        "hello",
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hello"},
                    {"type": "image_url", "image_url": {"url": PICTURE}},
                ],
            }
        ],
    ],
    ids=["text", "picture"],
)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "conversation_history": [
                {"role": "user", "content": "before"},
                {"role": "assistant", "content": "yes"},
            ],
            "provider": "openrouter",
            "reasoning_effort": "high",
            "service_tier": "priority",
        },
    ],
    ids=["plain", "full"],
)
def test_every_run_the_web_page_asks_for_is_accepted(model, said, more):
    asked = {
        "model": model,
        "input": said,
        "session_id": "20260801_ab12",
        "instructions": "x" * 3000,
    }
    found = read_run(body(**asked, **more))
    assert found.parts[0] == Text("hello")
    assert len(found.history) == len(more.get("conversation_history", ()))
    assert len(found.blobs) == sum(isinstance(part, Image) for part in found.parts)
    assert accepted(found).run.session_id == "20260801_ab12"


@pytest.mark.parametrize("choice", ["once", "session", "always", "deny"])
@pytest.mark.parametrize("approval_id", ["", "ap_12"])
def test_every_answer_the_web_page_gives_is_accepted(choice, approval_id):
    found = read_approval(body(choice=choice, approval_id=approval_id))
    assert found == ApprovalRequest(choice, approval_id)


def test_every_stop_the_web_page_asks_for_is_accepted():
    assert read_stop(b"{}") == STOPPED


# --- taking a run in -------------------------------------------------------------------


def settings(**changes):
    models = {
        "main": ModelSettings(
            "main", "demo", "m", fallback=("backup",), attempts=7, total=70.0, options={"a": 1}
        ),
        "backup": ModelSettings("backup", "demo", "b"),
        "big": ModelSettings("big", "demo", "huge", options={"reasoning_effort": "low"}),
    }
    fields = {"data": Path("data"), "models": models, "default_model": "main"}
    return Settings(**(fields | changes))


def accepted(request, *, tools=(LOOK, NOTE), principal="ann", **changes):
    return accept(request, settings=settings(**changes), tools=tools, principal=principal)


def names(models):
    return [model.name for model in models]


def test_a_run_is_taken_in_as_the_settings_say():
    request = run(session_id="s-1", metadata={"a": "b"}, model="big")
    found = accepted(
        request,
        workspace=Path("there"),
        budget=Budget(turns=9, tokens=5),
        tools=(LOOK,),
    )
    assert found.run.input == (Text("hi"),)
    assert found.run.session_id == "s-1"
    assert found.run.tools == (LOOK,)
    assert found.run.approval == "ask"
    assert found.run.budget == Budget(turns=9, tokens=5)
    assert found.run.workspace == "there"
    assert (found.run.surface, found.run.principal) == ("http", "ann")
    assert (found.run.asked_model, found.run.metadata) == ("big", {"a": "b"})


def test_history_and_pictures_come_beside_the_run():
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    history = [{"role": "user", "content": [image]}]
    request = run(conversation_history=history)
    found = accepted(request)
    assert found.history == request.history and len(found.history) == 1
    assert list(found.blobs.values()) == [b"\x89PNG"]


@pytest.mark.parametrize("asked", ["", "default", "gpt-5.5", "@acme:", "@acme", "main"])
def test_a_model_that_is_not_configured_means_the_usual_one_with_its_fallbacks(asked):
    found = accepted(run(model=asked))
    assert names(found.run.models) == ["main", "backup"]
    assert (found.run.attempts, found.run.retry_total) == (7, 70.0)
    assert found.run.asked_model == asked


@pytest.mark.parametrize("asked", ["big", "@acme:big", "@:big"])
def test_a_model_that_is_configured_is_the_one(asked):
    found = accepted(run(model=asked))
    assert names(found.run.models) == ["big"]
    assert (found.run.attempts, found.run.retry_total) == (4, 600.0)


@pytest.mark.parametrize(
    ("asked", "provider", "chosen"),
    [
        ("gpt-5.5", "", "own"),
        ("gpt-5.5", "openai", "own"),
        ("gpt-5.5", "OpenRouter", "via"),
        ("@openrouter:gpt-5.5", "", "via"),
        ("@openrouter:gpt-5.5", "openai", "own"),
        ("gpt-5.5", "via", "via"),
        ("gpt-5.5", "elsewhere", "own"),
        ("own", "openrouter", "own"),
        ("", "openrouter", "via"),
        ("", "elsewhere", "main"),
        ("gpt-9", "openrouter", "main"),
    ],
)
def test_a_model_may_be_meant_by_its_endpoints_name_for_it_and_by_who_provides_it(
    asked, provider, chosen
):
    models = {
        "main": ModelSettings("main", "demo", "m"),
        "own": ModelSettings("own", "openai-chat", "gpt-5.5", "https://api.openai.com/v1"),
        "via": ModelSettings("via", "openai-chat", "gpt-5.5", "https://openrouter.ai/api/v1"),
    }
    found = accepted(run(model=asked, provider=provider), models=models)
    assert names(found.run.models) == [chosen]


def test_a_configured_model_may_be_called_default():
    models = {name: ModelSettings(name, "demo", name) for name in ("main", "default")}
    assert names(accepted(run(model="default"), models=models).run.models) == ["default"]


def test_effort_and_tier_are_options_of_every_model():
    found = accepted(run(reasoning_effort="high", service_tier="flex"))
    asked = {"reasoning_effort": "high", "service_tier": "flex"}
    assert [model.options for model in found.run.models] == [{"a": 1} | asked, asked]
    assert accepted(run(model="big", reasoning_effort="high")).run.models[0].options == {
        "reasoning_effort": "high"
    }
    assert accepted(run(model="big")).run.models[0].options == {"reasoning_effort": "low"}


def test_instructions_are_laid_over_those_of_the_agent():
    agent = AgentSettings(instructions="be an agent")
    assert accepted(run(), agent=agent).run.instructions == "be an agent"
    assert accepted(run(instructions="be brief")).run.instructions == "be brief"
    assert accepted(run(instructions="be brief"), agent=agent).run.instructions == (
        "be an agent\n\nbe brief"
    )


def test_a_run_may_ask_for_some_of_the_tools():
    assert accepted(run()).run.tools == (LOOK, NOTE)
    assert accepted(run(tools=["note", "note"])).run.tools == (NOTE,)
    assert accepted(run(tools=[])).run.tools == ()


def test_a_tool_there_is_not_is_refused():
    found = refusal(accepted, run(tools=["look", "fly"]))
    assert (found.code, found.param) == ("unknown_tool", "tools") and "fly" in found.message


@pytest.mark.parametrize(
    ("asked", "limit", "turns"),
    [(None, 90, 90), (5, 90, 5), (500, 90, 90), (5, 0, 5), (None, 0, 0)],
)
def test_a_run_may_ask_for_fewer_turns_and_never_for_more(asked, limit, turns):
    found = accepted(run(max_turns=asked), budget=Budget(turns=limit))
    assert found.run.budget.turns == turns


@pytest.mark.parametrize(
    ("asked", "set_to", "mode"),
    [
        (None, "ask", "ask"),
        ("ask", "ask", "ask"),
        ("deny", "ask", "deny"),
        (None, "deny", "deny"),
        ("ask", "deny", "deny"),
        (None, "yolo", "ask"),
        ("deny", "yolo", "deny"),
    ],
)
def test_nobody_is_asked_if_either_the_caller_or_the_settings_say_so(asked, set_to, mode):
    tools = ToolSettings(approval=set_to, approval_timeout=7.0)
    found = accept(run(approval=asked), settings=settings(tools=tools), tools=(), principal="").run
    assert (found.approval, found.approval_timeout) == (mode, 7.0)


# --- an answer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        *((choice, choice) for choice in ("once", "session", "always", "deny")),
        *((word, "once") for word in ("approve", "approved", "allow", "yes")),
        *((word, "deny") for word in ("reject", "denied", "no")),
        (" Once\n", "once"),
        ("DENY", "deny"),
    ],
)
def test_a_choice_may_be_said_in_many_words(said, choice):
    assert answer(choice=said) == ApprovalRequest(choice)


@pytest.mark.parametrize("said", ["", "maybe", "on ce", None, True, 1, [], ["once"], {"once": 1}])
def test_what_is_no_choice_is_refused(said):
    found = refusal(answer, choice=said)
    assert (found.code, found.param) == ("invalid_approval_choice", "choice")
    assert "once, session, always, deny" in found.message
    assert refusal(read_approval, b"{}").code == "invalid_approval_choice"


def test_an_answer_may_name_its_approval_by_either_name():
    assert answer(approval_id="ap_1").approval_id == "ap_1"
    assert answer(request_id="ap_2").approval_id == "ap_2"
    assert answer(approval_id="", request_id="ap_2").approval_id == "ap_2"
    assert answer(approval_id="ap_1", request_id="ap_1").approval_id == "ap_1"
    with pytest.raises(Problem, match="two approvals") as refusal:
        answer(approval_id="ap_1", request_id="ap_2")
    assert refusal.value.code == "invalid_approval_request"
    assert answer(approval_id=None, request_id="").approval_id == ""
    assert answer(approval_id="x" * 256).approval_id == "x" * 256


@pytest.mark.parametrize("name", ["approval_id", "request_id"])
@pytest.mark.parametrize("value", ["x" * 257, "a\nb", " ", 5, 0, False, [], {}])
def test_what_is_no_name_of_an_approval_is_refused(name, value):
    found = refusal(answer, **{name: value})
    assert (found.code, found.param) == ("invalid_approval_request", name)


@pytest.mark.parametrize("name", ["all", "resolve_all"])
@pytest.mark.parametrize(
    ("value", "everything"),
    [
        *((value, True) for value in (True, 1, -1, 0.5, "1", "true", "yes", "on", " TRUE ")),
        *((value, False) for value in (False, 0, 0.0, "0", "false", "no", "off", "FALSE", "")),
        *((value, False) for value in ("maybe", "all", None, [], [1], {"a": 1})),
    ],
    ids=str,
)
def test_all_are_answered_only_by_a_clear_yes(name, value, everything):
    assert answer(**{name: value}).everything is everything


def test_either_word_for_all_is_enough():
    assert answer(all=False, resolve_all=True).everything


# --- a stop ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        b'{"reason":5}',
        b'{"reason":" "}',
        b'{"reason":"a\\u0000"}',
    ],
    ids=lambda data: ascii(data[:20]),
)
def test_a_stop_is_never_refused_for_its_body(data):
    assert read_stop(data) == STOPPED == "Stop requested via API"


@pytest.mark.parametrize("name", ["input", "message", "text"])
def test_what_is_said_to_a_run_goes_by_three_names(name):
    assert read_steer(body(**{name: "and now?"})) == ((Text("and now?"),), "")


@pytest.mark.parametrize(
    "fields", [{}, {"input": ""}, {"input": " \n"}, {"input": 5}, {"input": ["hi"]}, {"say": "hi"}]
)
def test_nothing_is_not_said_to_a_run(fields):
    with pytest.raises(Problem) as refusal:
        read_steer(body(**fields))
    assert (refusal.value.status, refusal.value.complaint.code) == (400, "invalid_steer_input")


def test_a_stop_may_have_a_reason():
    assert read_stop(b'{"reason":"enough"}') == "enough"
    assert read_stop(body(reason="x" * 5000)) == "x" * 1000


# --- once, and from where --------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "!~", "x" * 255])
def test_a_key_is_taken_as_it_is(key):
    assert idempotency_key(key) == key


def test_a_request_may_have_no_key():
    assert idempotency_key(None) is None


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "é", "a\n", "\x7f", "\x00"])
def test_what_is_no_key_is_refused(key):
    assert refusal(idempotency_key, key).code == "invalid_idempotency_key"


def test_the_same_json_has_the_same_fingerprint_however_it_is_written():
    once = fingerprint(b'{"input":"\xc3\xa9","a":{"x":1,"y":[1,2]}}')
    assert once == fingerprint(b' {"a": {"y": [1, 2], "x": 1},\n "input": "\\u00e9"} ')
    others = [b'{"input":"e","a":{"x":1,"y":[1,2]}}', b'{"input":"\xc3\xa9","a":{"x":1,"y":[2,1]}}']
    assert once not in map(fingerprint, others)
    assert len(once) == 64


def test_what_is_no_json_has_a_fingerprint_too():
    assert fingerprint(b"nonsense") != fingerprint(b"nonsense ")
    assert len(fingerprint(b"[" * 100_000)) == 64


@pytest.mark.parametrize(
    ("last_event_id", "after", "place"),
    [
        (None, None, 0),
        ("7", None, 7),
        (None, "5", 5),
        ("7", "5", 7),
        ("5", "7", 5),
        ("0", "7", 0),
        ("", "5", 5),
        ("nonsense", "5", 5),
        ("nonsense", "nonsense", 0),
        ("-1", None, 0),
        (None, "-1", 0),
        ("1.5", None, 0),
        ("+1", None, 0),
        ("1_0", None, 0),
        ("٣", None, 0),
        ("7\n", None, 0),
        ("9" * 19, None, 0),
        ("9" * 5000, "9" * 5000, 0),
        ("0007", None, 7),
    ],
)
def test_a_reader_goes_on_from_what_it_saw_last_or_from_the_start(last_event_id, after, place):
    assert cursor(last_event_id, after) == place


# --- whatever comes --------------------------------------------------------------------

texts = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["user", "assistant", "system", "text", "input_image", "https://a.b/c", PICTURE, "once", "true"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
fields = st.sampled_from(
    [
        *RunRequest.__struct_fields__,
        *("input", "conversation_history", "role", "content", "type", "text", "image_url", "url"),
        *("choice", "approval_id", "request_id", "all", "resolve_all", "reason"),
    ]
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(fields | texts, inner, max_size=5),
    max_leaves=20,
)
#: What can be stored.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
said = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": words})
    | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.just(PICTURE)})
    | st.dictionaries(fields, texts, max_size=3),
    min_size=1,
    max_size=3,
)
messages = st.lists(
    words | st.fixed_dictionaries({"role": texts, "content": words | said}), min_size=1, max_size=4
)
bodies = st.fixed_dictionaries(
    {"input": words | messages | values, "choice": texts},
    optional={
        "conversation_history": st.lists(
            st.fixed_dictionaries({"role": texts, "content": words | said | values}), max_size=4
        ),
        "instructions": words,
        "session_id": words,
        "metadata": st.dictionaries(words, words) | values,
        "max_turns": st.integers(),
    },
)


def outcome(read, data):
    """What came of it: nothing but a request, or a problem of the caller."""
    try:
        return read(data)
    except Problem as problem:
        return problem


def read_whatever(data):
    for read in (read_run, read_approval, read_steer):
        found = outcome(read, data)
        assert not isinstance(found, Problem) or (found.status == 400 and found.body)
        if isinstance(found, RunRequest):
            run, history, blobs = accepted(replace(found, tools=None))
            assert decode(encode(run)) == run and run.input
            assert decode_history(link.body for link in link_messages(history)) == history
            pictures = {part.blob.sha256 for part in run.input if getattr(part, "blob", None)}
            assert pictures <= blobs.keys()
    assert read_stop(data) and fingerprint(data)


@given(st.binary())
def test_no_bytes_raise_anything_but_a_problem(data):
    read_whatever(data)


@given(bodies | st.dictionaries(fields, values, max_size=8) | values)
def test_no_json_raises_anything_but_a_problem(value):
    read_whatever(json.dumps(value).encode())


@given(st.text() | st.none(), st.text() | st.none())
def test_no_header_raises_anything_but_a_problem(one, other):
    assert 0 <= cursor(one, other) < 2**63
    found = outcome(idempotency_key, one)
    assert found == one or found.code == "invalid_idempotency_key"


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), words)))
def test_a_conversation_is_read_as_it_was_written(said):
    history = [{"role": role, "content": text} for role, text in said]
    found = run(conversation_history=history).history
    assert found == tuple(
        UserMessage((Text(text),)) if role == "user" else AssistantMessage(text)
        for role, text in said
    )


@given(st.dictionaries(words, st.integers() | words | st.dictionaries(words, words)), st.randoms())
def test_the_order_of_fields_does_not_change_a_fingerprint(value, random):
    items = list(value.items())
    random.shuffle(items)
    data = json.dumps(dict(items), indent=1).encode()
    assert fingerprint(data) == fingerprint(json.dumps(value, ensure_ascii=False).encode())
