from datetime import date
from math import inf, nan

import pytest

from holdfast.config.tables import Setting, Table, chosen, looks_like_a_key, shown, spelled
from holdfast.errors import ConfigError

KEY = "sk-live-0123456789abcdef"


def refusal(act, *args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        act(*args, **kwargs)
    return str(caught.value)


def table(values, keys="port patience", **kwargs):
    return Table(Setting("holdfast.toml: ", values), keys, **kwargs)


def test_a_name_is_said_as_it_is_written():
    assert table({}).get("port", 1) == Setting("holdfast.toml: port", 1)
    inner = table({"patience": {"first": 5}}).table("patience", "first")
    assert inner.get("first", 1) == Setting("holdfast.toml: patience.first", 5)
    assert (inner.has("first"), inner.has("between")) == (True, False)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("soon", '"soon"'),
        ('say "hi"\n', r'"say \"hi\"\n"'),
        ("zwölf", '"zwölf"'),
        ("\x1b[31m\x9b\u202e", r'"\u001b[31m\x9b\u202e"'),
        ("\udc80", r'"\udc80"'),
        ("x" * 500, '"' + "x" * 199 + "…"),
        (True, "true"),
        (-3, "-3"),
        (0.5, "0.5"),
        (nan, "nan"),
        pytest.param(16**5000, "a very large number", id="large"),
        ({}, "a table"),
        ([1], "a list"),
        (date(2026, 1, 1), "a date or time"),
        (KEY, '"…"'),
    ],
)
def test_a_value_is_shown_as_it_is_written_if_it_can_be(value, said):
    assert shown(value) == said


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        "sk-1",
        "the key is ghp_abc",
        "AIzaSyA",
        "AKIAIOSFODNN7EXAMPLE",
        "Bearer x",
        "0123456789abcdef",
        "a1b2c3d4e5f6",
    ],
)
def test_a_key_is_known_by_its_looks(text):
    assert looks_like_a_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OPENAI_API_KEY",
        "claude-sonnet-4-5-20250929",
        "openai/gpt-5.5",
        "internationalisation",
        "123456789012345",
        "/tmp/a1b2c3d4e5f6",
        "task-list",
    ],
)
def test_most_things_do_not_look_like_a_key(text):
    assert not looks_like_a_key(text)


@pytest.mark.parametrize("value", ["", " x", "x ", "a\nb", 1, None, []])
def test_a_word_says_something(value):
    assert refusal(Setting("x", value).word, "a word").endswith("; it must be a word")


def test_what_is_right_comes_back():
    assert Setting("x", "").text() == ""
    assert Setting("x", "a word").word("") == "a word"
    assert Setting("x", False).flag() is False
    assert Setting("x", "b").one_of("a", "b") == "b"
    assert Setting("x", 0).count() == 0
    assert Setting("x", 5).number("") == 5.0
    assert type(Setting("x", 5).seconds()) is float
    assert Setting("x", ["a", "b"]).words("") == ("a", "b")


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_yes_and_no_have_no_other_spelling(value):
    assert refusal(Setting("x", value).flag).endswith("; it must be true or false")


@pytest.mark.parametrize("value", ["c", 404.0, True, None, [], {}])
def test_a_choice_is_one_of_those_there_are(value):
    said = refusal(Setting("x", value).one_of, 404, 1, "a")
    assert said == f"x is {shown(value)}; it must be one of 404, 1, a"


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", nan, 10**13, [], None])
def test_a_count_is_a_whole_number(value):
    assert refusal(Setting("x", value).count) == (
        f"x is {shown(value)}; it must be a whole number, 0 or more"
    )


def test_a_count_has_its_bounds():
    assert refusal(Setting("x", 0).count, least=1) == "x is 0; it must be a whole number, 1 or more"
    assert refusal(Setting("x", 9).count, most=8, must="up to 8") == "x is 9; it must be up to 8"


@pytest.mark.parametrize("value", [-1, -0.1, nan, inf, -inf, True, "45", 10**400, None, [], {}])
def test_seconds_are_a_number_and_not_below_zero(value):
    assert refusal(Setting("x", value).seconds) == (
        f"x is {shown(value)}; it must be a number of seconds, 0 to switch it off"
    )


def test_the_items_of_a_list_are_counted_from_one():
    assert refusal(Setting("x", ["a", 2]).words, "names") == (
        "x[2] is 2; it must be a text without blanks around it"
    )
    assert refusal(Setting("x", "a").words, "names") == 'x is "a"; it must be a list of names'


def test_what_json_can_say_passes():
    value = {"a": [1, -0.5, True, "x", {"b": []}], "c d": 2**63 - 1}
    assert Setting("x", value).json() == value


@pytest.mark.parametrize("value", [nan, inf, 2**63, -(2**63) - 1, date(2026, 1, 1), None])
def test_what_json_cannot_say_is_named_with_its_place(value):
    assert refusal(Setting("x", {"a": [1, {"b c": value}]}).json) == (
        f'x.a[2]."b c" is {shown(value)}; it must be something that JSON can say'
    )


def test_no_nesting_is_too_deep_to_be_refused():
    deep = {}
    for _ in range(20_000):
        deep = {"a": deep}
    assert refusal(Setting("x", deep).json) == f"x{'.a' * 20} is nested more than 20 deep"


def test_a_table_is_a_table():
    assert refusal(Table, Setting("x", []), "") == "x is a list; it must be a table"
    with pytest.raises(ConfigError, match=r"^holdfast.toml: models is 5; it must be a table$"):
        dict(table({"models": 5}, "models").named("models"))


def test_an_unknown_key_is_met_with_a_near_one_or_with_all_there_are():
    assert refusal(table, {"prot": 1}) == (
        "holdfast.toml: prot is not a setting; did you mean port?"
    )
    assert refusal(table, {"zzz": 1}) == (
        "holdfast.toml: zzz is not a setting; the settings here are port, patience"
    )
    assert refusal(table({"patience": {"a.b": 1}}).table, "patience", "first") == (
        'holdfast.toml: patience."a.b" is not a setting; the settings here are first'
    )


@pytest.mark.parametrize("name", ["api_key", "API-KEY", "apikey", "token", "password", "key"])
def test_a_key_in_the_file_is_refused_unseen(name):
    said = refusal(table, {name: KEY}, instead_of_a_key="put it elsewhere")
    assert said == (
        f"holdfast.toml: {name} is set; a key never stands in the file: put it elsewhere"
    )


def test_not_even_as_a_name_is_a_key_repeated():
    assert KEY not in refusal(table, {KEY: 1})


def test_what_is_needed_is_missed():
    assert refusal(table({}).need, "port", "a port") == (
        "holdfast.toml: port is missing; it must be a port"
    )
    assert table({"port": 1}).need("port", "").value == 1


def test_tables_are_found_by_the_names_they_were_given():
    found = dict(table({"mcp": {"a": 1, "b c": 2}}, "mcp").named("mcp"))
    assert found == {
        "a": Setting("holdfast.toml: mcp.a", 1),
        "b c": Setting('holdfast.toml: mcp."b c"', 2),
    }
    assert dict(table({}).named("mcp")) == {}


def test_a_flag_counts_before_a_variable_and_that_before_the_file():
    file = Setting("file", "c")
    assert chosen(Setting("--x", "a"), "X", {"X": "b"}, file) == Setting("--x", "a")
    assert chosen(Setting("--x", None), "X", {"X": "b"}, file) == Setting("X", "b")
    assert chosen(Setting("--x", None), "X", {"X": ""}, file) == file
    assert chosen(Setting("--x", ""), "X", {"X": "b"}, file) == Setting("--x", "")


def test_a_number_may_be_spelled_out():
    assert [spelled(text) for text in ("0", " 45 ", "1.5")] == [0, 45, 1.5]


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "+1", "1_0", "1e3", "inf", "nan", "٣", "9" * 31]
)
def test_what_does_not_spell_a_number_stays_a_text(text):
    assert spelled(text) == text
