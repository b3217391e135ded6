import tomllib
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import StoreError
from holdfast.stores.ruletext import MOST_RULES, Book, Rule, _load_quickly, add, cut, parse

PATH = Path("rules.toml")
PUSH = Rule(
    id="rule_00c0ffee",
    tool="terminal",
    key='jail ["git","push","origin"]',
    session="",
    workspace="/srv/shop",
    subject="git push origin",
    by="local",
    granted=datetime(2026, 11, 16, 10, 0, tzinfo=UTC),
)
NOTE = replace(PUSH, id="rule_0ddba115", tool="keep_note", key="note", session="run_1", by="")

#: Every text that can be stored: it holds no half of a character.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
words = texts.filter(bool)
listed = st.builds(
    lambda place, each: f"host{place} {msgspec.json.encode(each).decode()}",
    st.one_of(st.just(""), texts.map(lambda text: f" in {msgspec.json.encode(text).decode()}")),
    st.lists(texts),
)
rules = st.builds(
    Rule,
    id=st.from_regex(r"rule_[0-9a-f]{8}", fullmatch=True),
    tool=words,
    key=words.filter(lambda text: "[" not in text) | listed,
    session=texts,
    workspace=st.one_of(st.just(""), texts.map(lambda text: f"/{text}")),
    subject=texts,
    by=texts,
    granted=st.integers(0, 200_000_000_000).map(lambda at: datetime.fromtimestamp(at, UTC)),
)


def book(*rules, text=""):
    found = parse(text, PATH)
    for rule in rules:
        found = parse(add(found, rule, PATH), PATH)
    return found


@settings(max_examples=50)
@given(st.lists(rules, max_size=4, unique_by=lambda rule: rule.id))
def test_any_text_comes_back_as_it_was(kept):
    found = book(*kept)
    assert (found.rules, found.problems) == (tuple(kept), ())


@settings(max_examples=50)
@given(rules)
def test_the_file_shows_whatever_is_in_it(rule):
    """Nobody who reads it is deceived by what cannot be seen."""
    text = book(rule).text
    assert all(sign == "\n" or sign.isprintable() for sign in text)
    assert len(text.splitlines()) == len(book(PUSH).text.splitlines())


@settings(max_examples=50)
@given(st.lists(rules, min_size=1, max_size=4, unique_by=lambda rule: rule.id), st.data())
def test_what_is_added_and_cut_again_leaves_every_byte_as_it_was(kept, data):
    number = data.draw(st.integers(0, len(kept) - 1))
    rest = kept[:number] + kept[number + 1 :]
    text = cut(book(*kept), kept[number], PATH)
    assert text == (book(*rest).text or book(PUSH).text.partition("\n[[rule]]")[0])


def test_a_rule_is_easy_to_read():
    assert book(PUSH).text.endswith("""\
# What is changed here counts from the next decision on. A rule with a mistake in it allows nothing.

[[rule]]
id = "rule_00c0ffee"
tool = "terminal"
key = 'jail ["git","push","origin"]'
session = ""
workspace = "/srv/shop"
subject = "git push origin"
by = "local"
granted = 2026-11-16T10:00:00Z
""")


def test_the_preface_explains_the_file():
    preface = book(PUSH).text
    for words in ("delete its table", '"..." as the last word', "holdfast rules revoke"):
        assert words in preface


EDITED = """\
# mine
[[ rule ]] # the first
id = "rule_first"   # a name of my own
tool = 'terminal'
key = "k"
session = ""
workspace = "/w"
subject = '''
[[rule]]
id = "not a rule"
# '''
by = "me"
granted = 2026-11-16 11:00:00+01:00

# about the second
[["rule"]]
granted = 2026-11-16T10:00:00Z
id = "rule_second"
tool = "terminal"
key = "k2"
session = "s"
workspace = ""
subject = ""
by = ""
# the end"""


def test_what_people_wrote_stays_as_they_wrote_it():
    found = book(NOTE, text=EDITED)
    assert [rule.id for rule in found.rules] == ["rule_first", "rule_second", NOTE.id]
    assert found.text.startswith(f"{EDITED}\n\n[[rule]]\n")
    without = cut(found, found.rules[1], PATH)
    assert without == found.text.replace(
        EDITED[EDITED.index('[["rule"]]') : EDITED.index("# the end")], ""
    )
    assert "# about the second\n# the end\n" in without


def test_a_table_that_cannot_be_told_apart_is_left_to_people():
    found = book(text=EDITED)
    with pytest.raises(StoreError, match=r"rule_first cannot be told .* delete it there by hand"):
        cut(found, found.rules[0], PATH)


def test_what_looks_like_a_table_in_the_middle_of_a_text_is_not_counted_as_one():
    found = parse(EDITED.replace('by = ""', "by = 1"), PATH)
    line = EDITED[: EDITED.index('[["rule"]]')].count("\n") + 1
    assert found.problems[0].startswith(f"rules.toml, line {line}: ")


def test_lines_that_end_as_elsewhere_are_understood():
    text = book(PUSH, NOTE).text.replace("\n", "\r\n")
    found = parse("\ufeff" + text, PATH)
    assert found.rules == (PUSH, NOTE)
    assert parse(cut(found, PUSH, PATH), PATH).rules == (NOTE,)


def test_rules_in_one_line_can_be_read_and_not_changed():
    (table,) = tomllib.loads(book(PUSH).text)["rule"]
    inline = ", ".join(
        f"{name} = {value.isoformat() if name == 'granted' else repr(value)}"
        for name, value in table.items()
    )
    found = parse(f"rule = [{{{inline}}}]", PATH)
    assert found.rules == (PUSH,)
    with pytest.raises(StoreError, match="cannot be told"):
        cut(found, PUSH, PATH)
    with pytest.raises(StoreError, match="cannot be added"):
        add(found, NOTE, PATH)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('tool = "terminal"\n', "", "missing required field `tool`"),
        ('by = "local"', 'by = "local"\nuntil = "noon"', "unknown field `until`"),
        ('by = "local"', "by = 7", r"Expected `str`, got `int` - at `\$.by`"),
        ("2026-11-16T10:00:00Z", "2026-11-16", "at `\\$.granted`"),
        ("2026-11-16T10:00:00Z", "2026-11-16T10:00:00", "at `\\$.granted`"),
        ("rule_00c0ffee", "00c0ffee", "at `\\$.id`"),
        ("rule_00c0ffee", "rule_\\n", "at `\\$.id`"),
        ('"/srv/shop"', '"shop"', "at `\\$.workspace`"),
        ('"/srv/shop"', '"\\n"', "at `\\$.workspace`"),
        ('\'jail ["git","push","origin"]\'', '""', "at `\\$.key`"),
        ('"terminal"', '""', "at `\\$.tool`"),
        ("rule_00c0ffee", "rule_0ddba115", "another rule has the id rule_0ddba115"),
    ],
)
def test_a_rule_with_a_mistake_does_not_stand_and_the_others_do(before, after, why):
    text = book(NOTE, PUSH).text
    line = text[: text.rindex("[[rule]]")].count("\n") + 1
    assert text.count(before) >= 1
    head, _, tail = text.rpartition(before)
    found = parse(f"{head}{after}{tail}", PATH)
    assert found.rules == (NOTE,)
    assert found.problems[0].startswith(f"rules.toml, line {line}: ")
    with pytest.raises(ValueError, match=why):
        raise ValueError(found.problems[0])


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('jail ["git", "push", "..."]', 'jail ["git","push","..."]'),
        ('  jail  [ "git" ,\t"push" ] ', 'jail ["git","push"]'),
        ('jail["\\u0067it"]', 'jail ["git"]'),
        ('host  in  "a [\\"b"  ["git", "push"]', 'host in "a [\\"b" ["git","push"]'),
        ('{"words": [ "a" ]}', '{"words": [ "a" ]}'),
        ("notes [1].env", "notes [1].env"),
        (".env [1]", ".env [1]"),
        ("plain", "plain"),
    ],
)
def test_a_key_may_be_written_with_blanks_between_its_words(written, key):
    text = book(NOTE, PUSH).text
    text = text.replace('jail ["git","push","origin"]', written)
    found = parse(text, PATH)
    assert found.problems == ()
    assert [rule.key for rule in found.rules] == ["note", key]
    assert [each.key for each in found.grants["/srv/shop", ""]] == [key]
    rest = cut(found, found.rules[1], PATH)
    assert rest == book(NOTE).text


@pytest.mark.parametrize(
    "key",
    [
        *('jail ["git", push]', 'jail ["git",]', 'jail ["git", "push"', "jail [git]"),
        *('jail ["a", 1]', 'jail ["a"] and more', 'host in "\\x" ["git"]'),
    ],
)
def test_a_key_whose_words_cannot_be_read_does_not_stand(key):
    text = book(NOTE, PUSH).text.replace('jail ["git","push","origin"]', key)
    found = parse(text, PATH)
    assert found.rules == (NOTE,)
    assert "the list of words in its key is not JSON" in found.problems[0]
    assert found.problems[0].endswith("; this rule does not stand")


LINES = st.sampled_from(
    [
        "[[rule]]",
        *(
            "",
            "  \t",
            "# words",
            "#\x01",
            "\ufeff",
            "[[rule]] # mine",
            "[rule]",
            "[[rule.a]]",
            "\r",
        ),
        *('a = "b"', "a = 'b'", 'b = ""', "b = 'it''s'", 'c = "x" # mine', "c = 7", "a.b = 1"),
        *(
            r'd = "\n\t\\ \""',
            r'd = "\u0041"',
            r'd = "\/"',
            r'd = "\x"',
            r'd = "\\/"',
            r'd = "\ud800"',
        ),
        *(
            'e = """',
            "e = '''",
            '"""',
            "'''",
            "f = 2026-01-02T03:04:05Z",
            "f = 2026-99-99T03:04:05Z",
        ),
        *(
            "g = 'ü'",
            'g = "\x7f"',
            "g = '\t'",
            'g = "\t"',
            'ü = "a"',
            "h =",
            "h = 2026-01-02T03:04:05",
        ),
    ]
)


@example("[[rule]]\nf = 2026-99-99T03:04:05Z")
@example("[[rule]]\na = 'b'\na = 'c'")
@example('[[rule]]\nd = "\\x"')
@example('[[rule]]\nd = "\\/"')
@example('[[rule]]\nd = "\\ud83d\\ude00"')
@settings(max_examples=300)
@given(st.lists(LINES, max_size=8).map("\n".join))
def test_what_is_read_quickly_is_what_toml_says(text):
    try:
        slowly = tomllib.loads(text)
    except ValueError:
        slowly = None
    assert _load_quickly(text) in (None, slowly)


@given(st.lists(rules, max_size=3, unique_by=lambda rule: rule.id))
@settings(max_examples=30)
def test_what_we_wrote_is_read_quickly(kept):
    text = book(*kept).text
    assert _load_quickly(text) == tomllib.loads(text)


def test_a_good_rule_can_be_cut_beside_a_bad_one():
    found = parse(book(NOTE, PUSH).text.replace('by = ""', "by = 7"), PATH)
    rest = parse(cut(found, PUSH, PATH), PATH)
    assert (rest.rules, rest.problems) == ((), found.problems)


def test_a_bad_rule_without_a_line_of_its_own_is_counted():
    assert parse("rule = [{id = 1}, 2]", PATH).problems[1].startswith("rules.toml, rule 2: ")


def test_what_is_no_rule_is_named():
    found = parse(book(PUSH).text.replace("[[rule]]", "[[rules]]"), PATH)
    assert found.rules == ()
    assert found.problems == ("rules.toml: rules means nothing here; a rule begins with [[rule]]",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[rule]]\nid = \n", r"rules.toml cannot be read: Invalid value \(at line 2, column 6\)"),
        ('x = """', r"at end of document"),
        ("[rule]\n", "rule must stand in double brackets"),
        ("rule = 5\n", "rule must stand in double brackets"),
        ("[[rule]]\n" * (MOST_RULES + 1), "more than 1000 rules"),
        (f"x = {'9' * 5000}", "something too large"),
        (f"x = {'[' * 5000}", "something too large"),
    ],
)
def test_a_file_that_cannot_be_read_as_a_whole_is_refused(text, why):
    with pytest.raises(StoreError, match=why):
        parse(text, PATH)


def test_half_a_character_is_not_written():
    with pytest.raises(StoreError, match="half a character"):
        add(Book(), replace(PUSH, session="\ud83d"), PATH)


def test_a_rule_that_would_not_stand_is_not_written():
    with pytest.raises(StoreError, match="a rule for terminal cannot be added"):
        add(Book(), replace(PUSH, workspace="shop"), PATH)


def test_grants_are_found_by_where_and_how_long():
    grants = book(PUSH, NOTE).grants
    assert [(each.tool, each.scope, each.rule) for each in grants["/srv/shop", ""]] == [
        ("terminal", "always", PUSH.id)
    ]
    assert [(each.tool, each.scope, each.rule) for each in grants["/srv/shop", "run_1"]] == [
        ("keep_note", "session", NOTE.id)
    ]
