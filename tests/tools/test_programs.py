import pytest

from holdfast.tools.programs import GIT, PROGRAMS, Program, git_words, shown, taken

PROGRAM = Program(
    {"-a": "", "-b": "", "-n": "number", "-t": "text", "-u": "joined", "-vv": "", "--all": ""}
    | {"--lines": "number", "--text": "text", "--color": "joined"},
    counts=True,
)


@pytest.mark.parametrize(
    ("words", "given", "operands"),
    [
        ([], set(), []),
        (["-a", "x", "-b"], {"-a", "-b"}, ["x"]),
        (["-ab"], {"-a", "-b"}, []),
        (["-n5", "-n", "-5", "-an", "5"], {"-a", "-n"}, []),
        (["-tx", "-t", "x", "-t", ""], {"-t"}, []),
        (["-u", "x", "-ux"], {"-u"}, ["x"]),
        (["-vv"], {"-vv"}, []),
        (["-20", "x"], set(), ["x"]),
        (["--all", "--lines=5", "--lines", "+5", "--text=-x"], {"--all", "--lines", "--text"}, []),
        (["--color", "x", "--color=x"], {"--color"}, ["x"]),
        (["-", "--", "-z", "--what"], set(), ["-", "-z", "--what"]),
    ],
)
def test_listed_options_are_taken(words, given, operands):
    assert taken("it", PROGRAM, words) == (given, operands)


@pytest.mark.parametrize(
    "words",
    [
        "-z",
        "-az",
        "-n",
        "-nx",
        "-n x",
        "-t",
        "-t -a",
        "--al",
        "--all=x",
        "--lines",
        "--lines=x",
        "--text --all",
        "--what",
        "-5x",
    ],
)
def test_anything_else_is_not(words):
    assert "not on the list of options of it" in taken("it", PROGRAM, words.split())


def test_a_count_is_only_for_those_that_count():
    assert isinstance(taken("cat", PROGRAMS["cat"], ["-5"]), str)


def test_nothing_that_writes_runs_or_never_ends_is_listed():
    assert not {"-o", "--output", "-T", "--compress-program", "-m"} & set(PROGRAMS["sort"].options)
    assert not {"-f", "-F", "--follow", "--retry"} & set(PROGRAMS["tail"].options)
    assert not {"-f", "--file", "-R", "-d", "-D"} & set(PROGRAMS["grep"].options)
    assert not {"--pre", "--hostname-bin", "-z", "-L", "-u", "-f"} & set(PROGRAMS["rg"].options)
    assert not {"-s", "--set", "-f", "-r"} & set(PROGRAMS["date"].options)
    for program in GIT.values():
        risky = {"--output", "-O", "--ext-diff", "--textconv", "--no-index", "--contents"}
        assert not risky & set(program.options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git push x", ["push", "x"]),
        ("git -C a -c b=c --no-pager push", ["push"]),
        ("git --git-dir a push", ["push"]),
        ("git", []),
        ("git -C", []),
    ],
)
def test_the_subcommand_of_git_is_found(text, expected):
    assert git_words(text.split()) == expected


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("cat -n a b", ["a", "b"]),
        ("/bin/cat a", ["a"]),
        ("cp -r a b c", ["a", "b"]),
        ("grep -n pattern a", ["a"]),
        ("grep -e pattern a", ["pattern", "a"]),
        ("git -C x show HEAD:a", ["HEAD:a"]),
        ("git commit -m a", []),
        ("git", []),
        ("echo a", []),
        ("", []),
    ],
)
def test_which_files_are_shown_is_guessed(text, files):
    assert list(shown(text.split())) == files
