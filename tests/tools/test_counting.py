import pytest

from holdfast.tools.counting import Effort, everything, files, wanted
from holdfast.tools.shell import parse


@pytest.mark.parametrize(
    ("text", "acted_on"),
    [
        ("find . -name '*.o' -delete", "a.o"),
        ("find . -iname '*.O' -delete", "a.o b.O"),
        ("find . -type f -name 'a.?' -exec rm {} +", "a.c a.o"),
        ("find . -name '[ab].o' -delete", "a.c a.o b.O"),
        ("find . -name a.c -name a.o -delete", "a.c a.o b.O"),
        ("find . -name a.c -o -delete", "a.c a.o b.O"),
        ("find . -delete -name a.c", "a.c a.o b.O"),
        ("find . -name -delete", "a.c a.o b.O"),
        ("find . -name $x -delete", "a.c a.o b.O"),
        ("find .", "a.c a.o b.O"),
    ],
)
def test_the_names_that_find_acts_on_are_known_if_one_decides(text, acted_on):
    wants = wanted(parse(text).commands[0])
    assert [name for name in ("a.c", "a.o", "b.O") if wants(name)] == acted_on.split()


def test_a_folder_that_is_wanted_counts_with_all_that_is_in_it(tmp_path):
    (tmp_path / "top/cache/deep").mkdir(parents=True)
    for name in ("a", "cache/b", "cache/deep/c"):
        (tmp_path / "top" / name).write_text("")
    (tmp_path / "top/cache/link").symlink_to(tmp_path)

    def counted(wants, name="top", **effort):
        return files(str(tmp_path / "top"), name, 20, Effort(**effort), wants)

    assert counted(everything) == 4
    assert counted(lambda name: name == "cache") == 3
    assert counted(lambda name: name == "top") == 4
    assert counted(lambda name: name == "c") == 1
    assert counted(lambda name: name == "none") == 0
    # What is too much to look at is more than enough.
    assert counted(lambda name: name == "none", entries=3) == 21
    assert counted(lambda name: name == "none", folders=1) == 21
    assert files(str(tmp_path / "top/a"), "a", 20, Effort(), everything) == 1
    assert files(str(tmp_path / "none"), "none", 20, Effort(), everything) == 0
