"""`holdfast rules`, beside a server that is not asked."""

import json
import os

import anyio
import pytest
from msgspec.structs import replace

from holdfast.core.events import ModelChoice, RunAccepted
from holdfast.core.messages import Text, ToolCall
from holdfast.stores.rules import RuleFile

RUN = "run_0123456789abcdef"
ACCEPTED = RunAccepted(
    input=(Text("hi"),), models=(ModelChoice("m"),), workspace="/srv/projects/a-long-name/shop"
)
PUSH = ToolCall(id="c1", tool="terminal", subject="git push", key='jail ["git","push"]')


@pytest.fixture
def book(data):
    data.mkdir(mode=0o700)
    return RuleFile(data, now=lambda: 1_800_000_000)


@pytest.fixture
def allow(book):
    """Have a rule made. Returns it."""

    def allow(key=PUSH.key, scope="always"):
        async def grant():
            # A run that has a session, which goes by the run's own name here.
            talk = replace(ACCEPTED, session_id=RUN)
            await book.grant(RUN, talk, replace(PUSH, key=key), scope, by="local")

        anyio.run(grant)
        return book.rules()[-1]

    return allow


@pytest.mark.parametrize("words", [("rules",), ("rules", "list")])
def test_no_rules_say_how_they_come_about(command, words):
    code, output, said = command(*words)
    assert (code, output) == (0, "")
    assert said.startswith("there are no rules yet; one is made when an approval is answered with")


def test_no_rules_are_no_lines(command):
    assert command("rules", "--json")[:2] == (0, "")


@pytest.mark.parametrize("words", [("rules",), ("rules", "list")])
def test_rules_are_listed_whole_for_programs(command, allow, words):
    always, session = allow(), allow("k", "session")
    code, output, said = command(*words)
    head, first, second = output.splitlines()
    assert (code, said) == (0, "")
    assert head.split() == ["RULE", "TOOL", "HOW", "LONG", "WHERE", "GRANTED", "WHAT"]
    assert first.startswith(f"{always.id}  terminal  always  ")
    assert f"  {ACCEPTED.workspace}  2027-01-1" in first and first.endswith(PUSH.key)
    assert second.startswith(f"{session.id}  terminal  session {RUN}  ")


def test_a_rule_is_a_line_of_json(command, allow):
    rule = allow()
    code, output, _ = command("rules", "list", "--json")
    assert code == 0
    assert json.loads(output) == {
        "id": rule.id,
        "tool": "terminal",
        "key": PUSH.key,
        "session": "",
        "workspace": ACCEPTED.workspace,
        "subject": "git push",
        "by": "local",
        "granted": "2027-01-15T08:00:00Z",
    }


def test_what_a_key_hides_is_shown(command, allow):
    rule = allow("git \u202epush\u200b\x1b[2J\n0 rules")
    _, output, _ = command("rules")
    assert output.endswith("git \\u202epush\\u200b\\x1b[2J 0 rules\n")
    _, output, _ = command("rules", "revoke", rule.id)
    assert output == f"revoked {rule.id}: terminal git \\u202epush\\u200b\\x1b[2J 0 rules\n"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("columns", "there", "gone"),
    [
        (120, ["HOW LONG", "GRANTED", "/a-long-name/shop  ", "session run_01234567 "], ["/srv"]),
        (80, ["HOW LONG", "always"], ["GRANTED"]),
        (40, ["TOOL", "jail ["], ["GRANTED", "WHERE", "HOW LONG"]),
    ],
)
def test_rules_fit_the_terminal(at_terminal, allow, columns, there, gone):
    allow()
    allow("k", "session")
    terminal = at_terminal("rules", columns=columns)
    assert terminal.end() == 0
    for words in there:
        assert words in terminal.seen
    for words in gone:
        assert words not in terminal.seen
    assert all(len(line) < columns for line in terminal.seen.splitlines())


def test_a_revoked_rule_stands_no_more(command, allow, book):
    first, _ = allow(), allow("k")
    before = book.standing(RUN, ACCEPTED)
    code, output, said = command("rules", "revoke", first.id[5:11])
    assert (code, said) == (0, "")
    assert output == f"revoked {first.id}: terminal {PUSH.key}\n"
    # Who has the file open sees it at once.
    assert book.standing(RUN, ACCEPTED) == before[1:]


def test_several_are_revoked_at_once_and_each_once(command, allow, book):
    first, second = allow(), allow("k")
    code, output, _ = command("rules", "revoke", first.id, second.id, first.id[:9])
    assert (code, output.count("revoked")) == (0, 2)
    assert book.rules() == ()


def test_if_one_is_not_found_none_is_revoked(command, allow, book):
    rule = allow()
    code, output, said = command("rules", "revoke", rule.id, "nobody")
    assert (code, output, said) == (2, "", "holdfast: there is no rule nobody\n")
    assert book.rules() == (rule,)


def test_to_revoke_nothing_is_a_mistake(command, allow):
    allow()
    code, _, said = command("rules", "revoke")
    assert code == 2 and "holdfast rules lists them" in said


def test_a_bad_rule_is_told_beside_those_that_stand(command, allow, book):
    rule = allow()
    with book.path.open("a") as file:
        file.write("\n[[rule]]\nid = 'rule_\\x1b'\n")
    code, output, said = command("rules")
    assert code == 65
    assert rule.id in output
    assert said.startswith("! ") and "this rule does not stand" in said and "\x1b" not in said
    assert command("rules", "revoke", rule.id)[0] == 0


def test_a_file_that_cannot_be_read_lists_nothing_and_is_left_alone(command, allow, book):
    rule = allow()
    book.path.write_text(book.path.read_text() + "[[rule")
    before = book.path.read_bytes()
    code, output, said = command("rules")
    assert (code, output) == (65, "")
    assert "rules.toml cannot be read" in said and "(at " in said
    code, _, said = command("rules", "revoke", rule.id)
    assert code == 74 and "rules.toml cannot be read" in said
    assert book.path.read_bytes() == before


def test_a_file_that_others_may_write_is_not_trusted(command, allow, book):
    allow()
    book.path.chmod(0o666)
    code, output, said = command("rules", "--json")
    assert (code, output) == (65, "")
    assert "others may write to it" in said


@pytest.mark.real_time
def test_it_works_from_a_shell_and_beside_whoever_writes(holdfast, allow, book):
    rule = allow()
    done = holdfast("rules", "revoke", rule.id)
    assert done.returncode == 0, done.stderr
    assert book.standing(RUN, ACCEPTED) == ()
    assert os.stat(book.path).st_mode & 0o777 == 0o600  # noqa: PTH116


@pytest.mark.parametrize("words", [("rules",), ("rules", "list"), ("rules", "revoke")])
def test_its_help_teaches(command, words):
    code, output, _ = command(*words, "--help")
    assert code == 0
    for part in ("Examples:", "holdfast rules", "Exit codes:", "78   a setting is wrong"):
        assert part in output
