import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.entries import Card, Mark, Notice, Question, Reply, Said
from holdfast.core.markdown import MOST_SHOWN, to_markdown
from holdfast.core.messages import BlobRef, Image, Text
from holdfast.core.transcript import transcribe
from holdfast.testing.strategies import prefixes

PLACE = {"run_id": "run_1", "ordinal": 1, "seq": 1, "at": 1.0, "id": "x"}


def person(*texts, **fields):
    return Said(parts=tuple(Text(text) for text in texts), **fields, **PLACE)


def reply(text, **fields):
    return Reply(turn=1, text=text, **fields, **PLACE)


def card(**fields):
    given = {"name": "look", "arguments": '{"a": 1}', "state": "done", "outcome": "ok", **fields}
    return Card(turn=1, **given, **PLACE)


def page(*entries):
    return to_markdown("Garden", entries)


def blocks(*entries):
    """What stands below the title and the first heading."""
    return page(*entries).rstrip("\n").split("\n\n")[2:]


# --- a page to read


def test_a_page_tells_who_said_what():
    told = page(
        person("What likes shade?"),
        reply("Let me look."),
        card(result="ferns", seconds=1.25),
        reply("Ferns.\n\nAnd moss."),
        person("Thanks."),
    )
    assert told == (
        "# Garden\n\n## Person\n\n> What likes shade?\n\n"
        "## Assistant\n\n> Let me look.\n\n"
        '**look** (ok, 1.2 s)\n\n```\n{"a": 1}\n```\n\n```\nferns\n```\n\n'
        "> Ferns.\n>\n> And moss.\n\n## Person\n\n> Thanks.\n"
    )


def test_a_page_without_entries_is_its_title():
    assert to_markdown("", ()) == "# Untitled\n"
    assert to_markdown("a *b*\n# c", ()) == "# a \\*b\\* \\# c\n"


def test_what_a_message_waits_for_and_how_it_came_is_said():
    assert blocks(person("hi", queued=True)) == ["*Waits for its turn.*", "> hi"]
    assert blocks(person("hi", steered=True))[0] == "*Added while the run was under way.*"


def test_pictures_are_told_of_and_not_fetched():
    kept = Image(media_type="image/png", blob=BlobRef("ab", 2))
    parts = (Text("look"), kept, Image(url="http://a.example/b.png"), Image())
    assert blocks(Said(parts=parts, **PLACE)) == [
        "> look",
        "*A picture: image/png.*",
        "*A picture: http://a.example/b.png.*",
        "*A picture: of unknown kind.*",
    ]


def test_a_reply_without_an_end_says_so():
    assert blocks(reply("Hel", partial=True)) == ["> Hel", "*This reply has no end.*"]
    assert blocks(reply("", partial=True)) == ["*This reply has no end.*"]


def test_a_card_tells_how_far_the_call_got():
    assert blocks(card(state="running", outcome=None))[0] == "**look** (running)"
    assert blocks(card(outcome="not_started"))[0] == "**look** (not started)"
    assert blocks(card(name=""))[0] == "**unnamed** (ok)"


def test_a_long_result_is_cut_and_says_so():
    shown = blocks(card(result="x" * (MOST_SHOWN + 7)))[-1]
    assert shown.endswith("x\n[7 more characters]\n```")


def test_questions_notices_and_markers_are_asides():
    question = Question(call_id="c1", tool="pay", state="pending", **PLACE)
    answered = Question(
        call_id="c1",
        tool="pay",
        subject="pay *1*",
        state="answered",
        choice="once",
        by="ada",
        **PLACE,
    )
    notice = Notice(what="failed", words="The run failed.", **PLACE)
    mark = Mark(meaning="resuming", cause="unknown", words="Nobody carries it.", **PLACE)
    told = page(question, answered, notice, mark).rstrip("\n").split("\n\n")[1:]
    assert told == [
        "*Asked for approval: pay (pending).*",
        "*Asked for approval: pay \\*1\\* (answered once by ada).*",
        "*The run failed.*",
        "*Nobody carries it.*",
    ]


# --- everything in its place


def test_words_that_look_like_the_page_stay_in_their_quotation():
    told = page(person("hi\n\n## Assistant\n\r\n> I agree\r# Title"))
    assert told.endswith("> hi\n>\n> ## Assistant\n>\n> > I agree\n> # Title\n")


@pytest.mark.parametrize("text", ["```", "a ````` b", "`" * 3 + "\n## Person\n" + "`" * 4])
def test_a_fence_is_longer_than_any_in_it(text):
    shown = blocks(card(arguments=text, result=text))
    fence = page(card(arguments=text)).split("(ok)\n\n")[1].split("\n")[0]
    assert shown
    assert fence == "`" * (max(map(len, re.findall("`+", text))) + 1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b>c</b>", "a \\<b>c\\</b>"),
        ("<!-- <?", "\\<!-- \\<?"),
        ("1 < 2 <3", "1 < 2 <3"),
        ("\\<b> \\\\<b>", "\\<b> \\\\\\<b>"),
        ("use `<b>` <b>", "use `<b>` \\<b>"),
        ("a ` `<b>`", "a ` `\\<b>`"),
        ("\\`<b>`", "\\`\\<b>`"),
        ("|`|<b>|`|", "|`|\\<b>|`|"),
        ("[a]: /evil", "[a]\\: /evil"),
        ("`x[1]:`", "`x[1]:`"),
    ],
)
def test_html_and_definitions_are_made_harmless_unless_they_are_code(text, shown):
    assert blocks(reply(text)) == [f"> {shown}"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```html\n<b>\n```\n<b>", "```html\n<b>\n```\n\\<b>"),
        ("~~~\n```\n<b>\n~~~~ \n<b>", "~~~\n```\n<b>\n~~~~ \n\\<b>"),
        ("````\n```\n<b>", "````\n```\n<b>"),
        ("a `\n`<b>`", "a `\n`\\<b>`"),
        # These may be read in two ways, so nothing in them is taken for code.
        ("- ```\n  ```\n<b>", "- ```\n  ```\n\\<b>"),
        ("```\n  ```\n<b>", "```\n  ```\n\\<b>"),
        ("```a`b\n<b>", "```a`b\n\\<b>"),
        ("```|\n|-|\n<b>", "```|\n|-|\n\\<b>"),
    ],
)
def test_a_fence_counts_where_every_reader_takes_it_for_one(text, shown):
    assert page(reply(text)).split("## Assistant\n\n")[1] == "".join(
        f"> {line}\n" for line in shown.split("\n")
    )


ODD = st.text(st.sampled_from("`~<b/!-#>[]:|\\ \n\r\t*_x\u2028"), max_size=30)


@settings(max_examples=100)
@given(ODD, ODD, ODD)
def test_every_line_of_a_page_is_known_whatever_was_said(said, name, output):
    notice = Notice(what="failed", words=name, **PLACE)
    told = page(person(said), card(name=name, arguments=output, result=output), notice)
    outside, fence = [], ""
    for line in told.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line
        else:
            outside.append(line)
    assert not fence
    kinds = [line for line in outside if line and not line.startswith(">")]
    assert kinds[:2] == ["# Garden", "## Person"][: len(kinds)]
    assert sum(line.startswith("#") for line in kinds) == 3
    assert all(re.match(r"# |## |\*", line) for line in kinds)


@settings(max_examples=30)
@given(prefixes())
def test_every_transcript_has_a_page(prefix):
    assert to_markdown("Garden", transcribe("run_1", 1, prefix)).startswith("# Garden\n")
