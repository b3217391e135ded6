import pytest

from holdfast.tools.shell import parse, roughly
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
    assert not names("find -exec " * 500)[1]


def test_of_very_many_commands_the_first_are_looked_at():
    found, followed = revealed(roughly("ls;" * (MOST + 1)))
    assert len(found) == MOST and followed


def test_texts_in_texts_are_read_so_far_and_no_further():
    found, followed = revealed(roughly(f"sh -c '{'a;' * 900}'"))
    assert [each.seen[0] for each in found] == ["sh", *["a"] * 900] and followed
    assert not names("; ".join([f"eval {'a' * 30_000}"] * 3))[1]
