import pytest

from holdfast.tools.shell import parse
from holdfast.tools.wrappers import DEEPEST, MOST, revealed


def names(text):
    found, complete = revealed(parse(text).commands)
    return [each.seen[0] for each in found if each.seen], complete


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls", ["ls"]),
        ("sudo -u root ls", ["sudo", "root", "ls"]),
        ("env -i A=1 ls x", ["env", "ls"]),
        ("timeout -k 1s 5 ls", ["timeout", "ls"]),
        ("nice -n 10 ls", ["nice", "ls"]),
        ("xargs -I {} rm {}", ["xargs", "{}", "rm"]),
        ("bash -lc 'a; b'", ["bash", "a", "b"]),
        ('sh -c "a \'unclosed"', ["sh", "a"]),
        ("bash script", ["bash"]),
        ("bash -c", ["bash"]),
        ("eval a b", ["eval", "a"]),
        ("find . -exec a {} + -ok b \\;", ["find", "a", "b"]),
        ("find . -exec", ["find"]),
        ("$'env'$IFS-i$IFS'rm'", ["env", "rm"]),
        ("A=1", []),
    ],
)
def test_wrapped_commands_are_revealed(text, expected):
    assert names(text) == (expected, True)


def test_there_is_an_end_to_revealing():
    assert names("env " * DEEPEST + "ls")[1]
    assert not names("env " * (DEEPEST + 1) + "ls")[1]
    assert not names("ls;" * (MOST + 1))[1]
    assert not names("find -exec " * 500)[1]
