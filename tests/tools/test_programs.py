import pytest

from holdfast.tools.programs import GIT, PROGRAMS, Program, taken

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
