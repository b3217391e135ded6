import io

import pytest

from holdfast.cli.question import Question, choose, show_open
from holdfast.cli.terminal import Terminal
from holdfast.core.events import ApprovalRequested


class Typed:
    """A keyboard at which these lines are typed."""

    def __init__(self, *lines):
        self._lines = list(lines)
        self.attentive = False

    def attention(self):
        return self

    def __enter__(self):
        self.attentive = True

    def __exit__(self, *error):
        self.attentive = False

    async def line(self):
        assert self.attentive
        return self._lines.pop(0)


def question(*lines, **request):
    paper = io.StringIO()
    request = ApprovalRequested(approval_id="apr_1", call_id="call_1", tool="pay", **request)
    return Question(request, Terminal(paper), Typed(*lines)), paper


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ("once", "once"),
        ("o", "once"),
        ("ONCE ", "once"),
        ("sess", None),
        ("always", "always"),
        ("session", "session"),
        ("a", None),
        ("al", None),
        ("s", None),
        ("d", "deny"),
        ("", "deny"),
        ("n", "deny"),
        ("no", "deny"),
        ("y", None),
        ("yes", None),
        ("once more", None),
        ("ok", None),
    ],
)
def test_only_a_word_that_says_yes_is_a_yes(line, choice):
    assert choose(line) == choice


async def test_the_question_shows_what_why_and_whose_doubt():
    asked, paper = question(
        "once", subject="transfer 5\nto\u202e ada\x1b", reason="it is money", doubt="call_0"
    )
    assert await asked.ask() == "once"
    assert paper.getvalue() == (
        "? pay needs your approval\n"
        "  Why: it is money\n"
        "  Careful: this may repeat call_0, of which nobody knows whether it took effect.\n"
        "  │ transfer 5\n"
        "  │ to\\u202e ada\\x1b\n"
        "  Allow it: once, or deny? [deny] "
    )


async def test_the_question_shows_all_that_a_yes_depends_on_and_how_far_it_would_reach():
    asked, paper = question(
        "always", subject="git push", binding="directory: /w\nprofile: none\x1b", key='["git"]'
    )
    assert await asked.ask() == "always"
    assert paper.getvalue() == (
        "? pay needs your approval\n"
        "  │ git push\n"
        "  With:\n"
        "  │ directory: /w\n"
        "  │ profile: none\\x1b\n"
        "  For this session, or always, that would cover:\n"
        '  │ ["git"]\n'
        "  Allow it: once, session, always, or deny? [deny] "
    )


async def test_what_no_rule_can_cover_cannot_be_allowed_for_longer():
    asked, paper = question("always", "session", "once", subject="x")
    assert await asked.ask() == "once"
    assert paper.getvalue().count("is none of the answers") == 2


@pytest.mark.parametrize(
    ("key", "answers"), [("5 euros", "once|session|always|deny"), ("", "once|deny")]
)
def test_who_is_not_asked_here_is_told_the_answers_that_can_be_given(key, answers):
    request = ApprovalRequested(approval_id="apr_1", call_id="call_1", tool="pay", key=key)
    show_open(request, "run_1", Terminal(paper := io.StringIO()))
    assert f"Answer: holdfast approve run_1 apr_1 {answers}\n" in paper.getvalue()


async def test_a_long_subject_is_shown_whole_and_marked_on_every_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    asked, paper = question(None, subject="x" * 100)
    assert await asked.ask() == "deny"
    lines = [line for line in paper.getvalue().splitlines() if "x" in line]
    assert [line.count("x") for line in lines] == [35, 35, 30]
    assert all(line.startswith("  │ ") for line in lines)


async def test_an_empty_subject_is_shown_as_that():
    asked, paper = question("once", subject="")
    await asked.ask()
    assert "  │ \n" in paper.getvalue()


async def test_no_answer_is_asked_for_again():
    asked, paper = question("yes", "", subject="x")
    assert await asked.ask() == "deny"
    assert "“yes” is none of the answers" in paper.getvalue()
    assert paper.getvalue().count("[deny]") == 2


async def test_it_reminds_only_when_something_came_between():
    asked, paper = question("once", subject="x")
    asked.remind()
    assert paper.getvalue() == ""
    await asked.ask()
    asked._terminal.write(" …")
    asked.remind()
    assert paper.getvalue().count("[deny]") == 1
    asked._terminal.line("something else")
    asked.remind()
    assert paper.getvalue().count("[deny]") == 2


async def test_nothing_but_the_subject_can_have_lines_of_its_own():
    asked, paper = question(
        "once", subject="rm -rf /", reason="harmless\n  │ ls", doubt="call_0\u2028  │ ls"
    )
    await asked.ask()
    assert [line for line in paper.getvalue().splitlines() if line.startswith("  │")] == [
        "  │ rm -rf /"
    ]
