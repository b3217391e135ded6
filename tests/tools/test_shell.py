import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.tools.shell import (
    Command,
    Redirection,
    Script,
    literal,
    parse,
    roughly,
    without_documents,
)


def words(text):
    script = parse(text)
    return [command.words for command in script.commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls", [("ls",)]),
        ("ls -l 'a b' \"c d\" e\\ f", [("ls", "-l", "a b", "c d", "e f")]),
        ("ls a'b'\"c\"d", [("ls", "abcd")]),
        ('echo "a\\"b\\\\c\\.d" "e$"', [("echo", 'a"b\\c\\.d', "e$")]),
        ("echo '' \"\"", [("echo", "", "")]),
        ("a | b |& c && d || e; f\ng", [(each,) for each in "abcdefg"]),
        ("! a && b # a remark; c", [("a",), ("b",)]),
        ("# a remark\nls", [("ls",)]),
        ("git log HEAD~3 HEAD^ a=b x#y", [("git", "log", "HEAD~3", "HEAD^", "a=b", "x#y")]),
        ("", []),
        ("ls;", [("ls",)]),
    ],
)
def test_a_plain_text_is_its_literal_words(text, expected):
    assert words(text) == expected
    assert parse(text).plain


@pytest.mark.parametrize(
    "word",
    [
        "$x",
        "${x}",
        "$(x)",
        "`x`",
        "*",
        "a?",
        "[ab]",
        "{a,b}",
        "{1..3}",
        "~",
        "~/x",
        "a=~",
        "a:~",
        "$'x'",
        '$"x"',
        '"$x"',
        '"a`b`"',
        "é",
        "#x",
    ],
)
def test_a_word_that_depends_on_anything_is_not_literal(word):
    assert literal(word) is None


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("ls &", "something left running in the background"),
        ("(ls)", "a subshell"),
        ("{ ls; }", "a group"),
        ("f() { ls; }", "a function"),
        ("if a; then b; fi", "a condition"),
        ("for i in a; do b; done", "a loop"),
        ("for ((;;)); do b; done", "a loop"),
        ("while a; do b; done", "a loop"),
        ("case a in b) c;; esac", "a case"),
        ("a;;b", "a case"),
        ("echo $(ls)", "a command in place of a word"),
        ("cat <(ls)", "a command in place of a file"),
        ("cat <<E\nx\nE", "a text for its input"),
        ("cat <<< x", "a text for its input"),
        ("export A=1", "a variable"),
        ("unset A", "a variable"),
        ("A=1", "a variable"),
        ("A=1 B=2", "a variable"),
        ("echo $x", "a variable"),
        ("echo $((1))", "a sum"),
        ("[ -f x ]", "a condition"),
        ("ls > a b", "a word after a redirection"),
        ("(ls) > a", "a redirection of several commands"),
        ("> a", "a redirection of several commands"),
        ("> a 2> b", "a redirection of several commands"),
        ("ls\\\n-l", "a continued line"),
        ('ls $"x"', "something that shells read in different ways"),
        ("echo {1..3}", "a brace expression"),
        ("ls;# x", "something that shells read in different ways"),
    ],
)
def test_what_is_more_than_plain_is_named(text, beyond):
    script = parse(text)
    assert not script.plain
    assert beyond in script.beyond


@pytest.mark.parametrize(
    "text",
    ["ls 'x", "ls )", "ls | | ls", "echo $(", "ls \0", "\ud800", "a|" * 3000, "a " * 5000, "if a"],
)
def test_what_does_not_parse_is_nothing(text):
    assert parse(text) is None


def test_commands_are_found_wherever_they_stand():
    text = """X=$(a 1) b "$(c 2)" <(d 3) > $(e 4); if f; then (g | { h; }); fi; i <<E
$(j 5)
E
while k; do l; done > m"""
    names = {each.seen[0] for each in parse(text).commands if each.seen}
    assert names == set("abcdefghijkl")


def test_a_command_knows_its_assignments_and_redirections():
    (command,) = parse("A=1 ls x 2>&1 >out <'a b'").commands
    assert command == Command(
        ("ls", "x"),
        ("ls", "x"),
        ("A=1",),
        (
            Redirection("2>&1", ">&", "1", "1"),
            Redirection(">out", ">", "out", "out"),
            Redirection("<'a b'", "<", "a b", "a b"),
        ),
    )


def test_a_redirection_behind_several_commands_is_kept():
    script = parse("a | b 2>/dev/null")
    assert script.plain
    found = [each.text for command in script.commands for each in command.redirections]
    assert found == ["2>/dev/null"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("rm${IFS}-rf${IFS}/", ("rm", "-rf", "/")),
        ("rm$IFS-rf$IFS/", ("rm", "-rf", "/")),
        ("rm$IFS$9-rf /", ("rm", "-rf", "/")),
        (r"$'\x72\155' $'\u002f\n\q'", ("rm", "/\nq")),
        ('rm "${HOME}/x" $HOME "a\\"$b"', ("rm", "$HOME/x", "$HOME", 'a"$b')),
        ("rm '*'* a\\ *", ("rm", "**", "a *")),
        ("r\\\nm x", ("rm", "x")),
    ],
)
def test_what_words_may_become_is_guessed(text, seen):
    (command,) = parse(text).commands
    assert command.seen == seen


def test_a_text_that_does_not_parse_is_cut_roughly():
    found = roughly("rm -rf '/' | git push; (x 'unclosed")
    assert [each.seen for each in found] == [
        ("rm", "-rf", "/"),
        ("git", "push"),
        ("x", "'unclosed"),
    ]
    assert all(word is None for each in found for word in each.words)


def test_what_is_cut_roughly_is_not_cut_within_quotes():
    found = roughly("""python -c 'a; b' "c; d" "$(e)" (""")
    assert [each.seen for each in found] == [("python", "-c", "a; b", "c; d", '"$'), ("e",), ('"',)]
    assert roughly("a " * 10_000) is None


BODY = "table = (make(1), {'a': [1]})\n  reboot\n  rm -rf /\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cat > f <<'EOF'\n", "EOF\n"),
        ('cat > f <<"EOF"\n', "EOF"),
        ("cat <<\\EOF > f\n", "EOF\n"),
        ("python3 - <<'EOF' | wc\n", "EOF\n"),
        ("cat <<EOF\n", "EOF\n"),
        ("cat <<-'END OF IT'\n", "\t\tEND OF IT\n"),
        ("git commit -m \"$(cat <<'EOF'\n", 'EOF\n)" && ls\n'),
        ("echo 'a' \"b\" # don't\ncat <<< x <<E\n", "E\nls"),
    ],
)
def test_documents_are_data(before, after):
    text = f"{before}{BODY * 300}{after}"
    assert without_documents(text) == before + after
    script = parse(text)
    assert "a text for its input" in script.beyond
    assert not {"reboot", "rm"} & {each.seen[0] for each in (*script.commands, *roughly(text))}


def test_several_documents_follow_each_other():
    text = "cat <<A - <<'B'; a\n1\nA\n2\nB\nb <<C\n3\nC\nc"
    assert without_documents(text) == "cat <<A - <<'B'; a\nA\nB\nb <<C\nC\nc"


@pytest.mark.parametrize(
    "text",
    [
        "echo '<<E'\nid\nE",
        'echo "<<E"\nid\nE',
        "echo \\<<E\nid\nE",
        "ls # <<E\nid\nE",
        "cat <<< E\nid\nE",
        "cat <<E'X'\nEX\nid\nE",
        "cat <<E\nid\nF",
        "cat <<-E\n\tid E\n",
        "cat <<E",
        "cat <<E\n",
    ],
)
def test_what_may_be_no_document_stays(text):
    assert without_documents(text) == text


def test_a_sum_that_looks_like_a_document_is_not_plain_either():
    text = "echo $((1<<E))\nid\nE"
    assert without_documents(text) == "echo $((1<<E))\nE"
    assert "a text for its input" in parse(text).beyond


def test_nothing_between_words_escapes():
    """Where the grammar skips a character, the text is not plain."""
    for odd in ("ls\u00a0x", "ls \\\n x", "ls\\ x", "ls\f"):
        script = parse(odd)
        assert script is None or not script.plain or script.commands[0].words != ("ls", "x")


@pytest.mark.real_time
@given(st.lists(st.text(alphabet="ab '\"\\$`~*#=:;|&<>(){}!-\n", max_size=6), max_size=4))
@example(["a", "~"])
@example(["a\\", "b"])
def test_a_plain_command_has_the_words_that_the_shell_has(pieces):
    """The shell itself is asked: `printf` says which words it was given."""
    text = "printf '<%s>' " + " ".join(pieces)
    match parse(text):
        case Script(commands=(Command(words=(_, _, *rest), redirections=()),), beyond=()) if (
            None not in rest
        ):
            shown = subprocess.run(["bash", "-c", text], capture_output=True, check=False).stdout
            assert shown.decode() == ("".join(f"<{word}>" for word in rest) or "<>")
