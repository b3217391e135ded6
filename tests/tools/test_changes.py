import os

import pytest

from holdfast.errors import ToolError
from holdfast.tools.beneath import Workspace
from holdfast.tools.changes import Change, Old, carry_out, read


class Meddled(Workspace):
    """A workspace in which somebody else does something after each write."""

    meddle = staticmethod(lambda: None)

    def write(self, path, data, **more):
        real = super().write(path, data, **more)
        self.meddle()
        return real


@pytest.fixture
def root(tmp_path):
    return tmp_path


@pytest.fixture
def files(root):
    return Meddled(root)


@pytest.fixture
def change(files):
    def change(verb, path, new=""):
        if verb == "created":
            return Change(verb, path, new.encode(), None)
        with files.reading(path) as opened:
            old = Old(read(opened.fd, 100), opened.status)
        return Change(verb, path, new.encode(), old, ("as told",))

    return change


def texts(root):
    return {path.name: path.read_text() for path in root.rglob("*") if path.is_file()}


def test_all_changes_are_made_and_told(root, files, change):
    (root / "one").write_text("a")
    (root / "two").write_text("b")
    changes = [
        change("edited", "one", "A"),
        change("deleted", "two"),
        change("created", "n/x", "n"),
    ]
    assert carry_out(files, changes) == "edited one; as told\ndeleted two; as told\ncreated n/x"
    assert texts(root) == {"one": "A", "x": "n"}


def test_what_cannot_be_written_is_found_before_anything_is(root, files, change):
    for name in ("one", "two", "three"):
        (root / name).write_text("a")
    (root / "two").chmod(0o444)
    (root / "folder").mkdir()
    good = change("edited", "one", "A")
    stale = change("edited", "three", "A")
    (root / "three").write_text("changed")
    before = texts(root)
    for bad, said in (
        (change("edited", "two", "A"), "two is read-only"),
        (change("deleted", "two"), "two is read-only"),
        (stale, "three changed meanwhile"),
        (change("created", "one/new", ""), "a name on the way is that of a file"),
        (change("created", "three", ""), "three changed meanwhile"),
        (change("created", "folder", ""), "folder is a folder"),
        (change("edited", "./one", "B"), r"^one and \./one are one file"),
    ):
        with pytest.raises(ToolError, match=said):
            carry_out(files, [good, bad])
        assert texts(root) == before


def test_a_file_under_two_names_is_one_file(root, files, change):
    (root / "one").write_text("a")
    (root / "one").chmod(0o644)
    os.link(root / "one", root / "two")
    with pytest.raises(ToolError, match=r"^one and two are one file"):
        carry_out(files, [change("edited", "one", "A"), change("edited", "two", "A")])
    with pytest.raises(ToolError, match=r"^new/x and new/\./x are one file"):
        carry_out(files, [change("created", "new/x", "A"), change("created", "new/./x", "A")])
    assert texts(root) == {"one": "a", "two": "a"}


def test_what_was_done_is_taken_back_if_a_later_write_fails(root, files, change):
    for name in ("one", "two", "last"):
        (root / name).write_text("a")
    (root / "one").chmod(0o640)
    (root / "two").chmod(0o600)
    changes = [
        change("edited", "one", "A"),
        change("deleted", "two"),
        change("created", "new", "n"),
        change("edited", "last", "A"),
    ]
    files.meddle = lambda: (root / "last").write_text("changed")
    with pytest.raises(ToolError) as refusal:
        carry_out(files, changes)
    assert str(refusal.value).split("\n") == [
        "last changed meanwhile, and was left as it is now; read it again first",
        "what was done before that was taken back",
    ]
    assert texts(root) == {"one": "a", "two": "a", "last": "changed"}
    assert [(root / name).stat().st_mode & 0o777 for name in ("one", "two")] == [0o640, 0o600]


def test_what_somebody_changed_since_is_left_and_told(root, files, change):
    for name in ("one", "two", "last"):
        (root / name).write_text("a")
    changes = [change("edited", name, "A") for name in ("one", "two", "last")]

    def meddle():
        (root / "one").write_text("theirs")
        (root / "last").write_text("changed")

    files.meddle = meddle
    with pytest.raises(ToolError) as refusal:
        carry_out(files, changes)
    assert str(refusal.value).split("\n")[1:] == [
        "before that, this was done and stands:",
        "edited one; as told; this could not be taken back: somebody changed it meanwhile",
    ]
    assert texts(root) == {"one": "theirs", "two": "a", "last": "changed"}


def test_the_first_that_fails_has_nothing_to_take_back(root, change):
    class Full(Workspace):
        def write(self, path, data, **more):
            raise ToolError("the disk is full")

    with pytest.raises(ToolError, match=r"^the disk is full$"):
        carry_out(Full(root), [change("created", "one", "A")])


def test_a_file_is_read_as_far_as_is_asked_for(root, files):
    (root / "one").write_bytes(b"abc" * 1_000_000)
    for most, size in ((0, 0), (5, 5), (2_500_000, 2_500_000), (9_000_000, 3_000_000)):
        with files.reading("one") as opened:
            assert len(read(opened.fd, most)) == size
