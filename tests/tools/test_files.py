import codecs
import json
import os
import tracemalloc
from contextlib import suppress
from time import process_time

import pytest

from holdfast.core.messages import ToolSpec
from holdfast.errors import ToolError
from holdfast.ports import Review, ToolUse
from holdfast.testing.contracts import ToolContract
from holdfast.tools.arguments import MOST_ARGUMENTS
from holdfast.tools.beneath import Workspace
from holdfast.tools.files import MOST_ASKED, MOST_BYTES, EditFile, ReadFile, WriteFile
from holdfast.tools.stamp import Stamp

pytestmark = pytest.mark.real_time


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture
def files(root):
    return Workspace(root, [root / "data"], kept=[root / "mine.conf"])


@pytest.fixture(params=[ReadFile, WriteFile, EditFile])
def tool(request, files):
    return request.param(files)


class TestTools(ToolContract):
    pass


async def run(tool, **arguments):
    async def progress(text):
        raise AssertionError("file tools have no progress to report")

    tool.review(json.dumps(arguments))
    return await tool.run(ToolUse(json.dumps(arguments), "effect_1", progress))


@pytest.fixture
def read(files):
    return lambda path, **more: run(ReadFile(files), path=path, **more)


@pytest.fixture
def write(files):
    return lambda path, content: run(WriteFile(files), path=path, content=content)


@pytest.fixture
def edit(files):
    return lambda path, old, new, **more: run(EditFile(files), path=path, old=old, new=new, **more)


@pytest.fixture
def patch(files):
    return lambda *lines: run(EditFile(files), patch="\n".join(lines) + "\n")


def test_a_tool_says_for_which_workspace_it_is(tool, root):
    assert tool.workspace == str(root)
    assert isinstance(tool.spec, ToolSpec)
    assert json.loads(tool.spec.schema)["additionalProperties"] is False
    assert tool.spec.writes is not tool.spec.repeatable is tool.spec.parallel


# --- who is asked


def review(tool, **arguments):
    return tool.review(json.dumps(arguments))


CALLS = [
    (ReadFile, lambda path: {"path": path}),
    (WriteFile, lambda path: {"path": path, "content": "x"}),
    (EditFile, lambda path: {"path": path, "old": "x", "new": "y"}),
    (EditFile, lambda path: {"patch": f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n"}),
]
each_call = pytest.mark.parametrize(("make", "arguments"), CALLS)


@each_call
def test_an_ordinary_file_needs_no_question(files, make, arguments):
    assert review(make(files), **arguments("src/main.py")).gate == "auto"


@each_call
def test_what_looks_like_a_secret_is_asked_about(files, make, arguments):
    found = review(make(files), **arguments("./deep/../.env"))
    assert (found.gate, found.key) == ("ask", ".env")
    assert found.reason == ".env: its name is one that secrets have"


@each_call
def test_what_programs_obey_is_asked_about_when_it_is_written(files, make, arguments):
    found = review(make(files), **arguments(".git/hooks/pre-commit"))
    assert found.gate == ("auto" if make is ReadFile else "ask")
    # The next time it may say anything.
    assert found.key == ""
    found = review(make(files), **arguments(".github/workflows/ci.yml"))
    assert found.key == ("" if make is ReadFile else ".github/workflows/ci.yml")


@each_call
def test_what_git_is_set_to_obey_is_asked_about_when_it_is_written(root, files, make, arguments):
    for folder in (".git", "tools"):
        (root / folder).mkdir()
    (root / ".git/config").write_text(
        "[core]\nhooksPath = tools/hooks\n[include]\npath = ../more\n"
    )
    for path in ("tools/hooks/pre-commit", "more", "TOOLS/hooks/x/y"):
        found = review(make(files), **arguments(path))
        assert (found.gate, found.key) == ("auto" if make is ReadFile else "ask", "")
    assert review(make(files), **arguments("tools/hook")).gate == "auto"


def test_where_git_might_obey_anything_each_write_is_asked_about(root, files):
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[include]\npath = a\n" * 101)
    assert review(WriteFile(files), path="a", content="b").gate == "ask"


async def test_a_link_to_what_git_obeys_does_not_hide_it(root, write):
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[core]\nhooksPath = hooks\n")
    (root / "hooks").mkdir()
    (root / "plain").symlink_to("hooks")
    with pytest.raises(ToolError, match="plain/pre-commit leads to hooks/pre-commit"):
        await write(path="plain/pre-commit", content="evil")
    assert list((root / "hooks").iterdir()) == []


def test_a_person_is_asked_before_a_workspace_is_made_the_inside_of_a_repository(root, files):
    assert review(WriteFile(files), path="HEAD", content="ref: refs/heads/x").gate == "ask"
    assert review(WriteFile(files), path="sub/HEAD", content="").gate == "auto"


@each_call
def test_what_is_ours_is_refused_and_nobody_is_asked(files, make, arguments):
    found = review(make(files), **arguments("data/journal"))
    assert found.gate == "refuse"
    assert "belongs to Holdfast" in found.reason


@each_call
def test_what_is_kept_may_be_read_and_nobody_is_asked_to_have_it_changed(files, make, arguments):
    found = review(make(files), **arguments("./Mine.conf"))
    assert found.gate == ("auto" if make is ReadFile else "refuse")
    assert ("tools may read it, and none may change it" in found.reason) is (make is not ReadFile)


async def test_what_is_kept_stays_as_it_is(root, read, write, edit, patch):
    (root / "mine.conf").write_text("a\n")
    (root / "link").symlink_to("mine.conf")
    assert "a" in await read("link")
    for change in (
        lambda: write("link", "b"),
        lambda: edit("link", "a", "b"),
        lambda: patch("--- a/link", "+++ /dev/null", "@@ -1 +0,0 @@", "-a"),
    ):
        with pytest.raises(ToolError, match="none may change it"):
            await change()
    assert (root / "mine.conf").read_text() == "a\n"


LONG = [
    (WriteFile, {"path": "x", "content": "\n" * 500_000}),
    (WriteFile, {"path": ".env", "content": "x" * 1_000_000}),
    (EditFile, {"path": "x", "old": "a" * 500_000, "new": "b" * 500_000}),
    (EditFile, {"patch": "--- x\n+++ x\n" + "@@ -1 +1 @@\n-\n+\n" * 3000}),
    (EditFile, {"patch": "--- x\n+++ x\n" + "@@ -1 +1 @@\n-\n+\n" * 50_000}),
    (EditFile, {"patch": "\n" * 500_000}),
    (EditFile, {"patch": "".join(f"--- {n}\n+++ {n}\n@@ -1 +0,0 @@\n-\n" for n in range(9999))}),
    (ReadFile, {"path": "a/" * 500_000}),
]


@pytest.mark.parametrize(("make", "arguments"), LONG)
def test_nobody_has_to_wait_for_a_review_whatever_is_reviewed(files, make, arguments):
    given = json.dumps(arguments)
    seconds = []
    for _ in range(5):
        began = process_time()
        with suppress(ToolError):
            make(files).review(given)
        seconds.append(process_time() - began)
    # A few milliseconds where nobody counts the lines that are run.
    assert min(seconds) < 0.2


@each_call
def test_what_is_outside_is_an_error(files, make, arguments):
    with pytest.raises(ToolError, match="outside the workspace"):
        review(make(files), **arguments("../secret"))


def test_a_yes_is_given_to_all_that_would_be_written(files):
    assert review(WriteFile(files), path=".envrc", content="a\nb") == Review(
        gate="ask",
        reason=".envrc: programs obey what such a file says",
        subject="write .envrc:\na\nb",
    )
    found = review(EditFile(files), path=".envrc", old="a", new="b", all=True)
    assert found.subject == "in .envrc replace each of these passages:\na\nby this:\nb"
    lines = "--- a/.husky/x\n+++ b/.husky/x\n@@ -1 +1 @@\n-x\n+y\n"
    lines += "--- a/main\n+++ b/main\n@@ -1 +1 @@\n-x\n+y\n"
    found = review(
        EditFile(files), patch=lines + lines.replace(".husky/x", ".env").replace("main", "x")
    )
    assert (found.subject.partition("\n")[2][:20], found.key) == (lines[:20], ".env\n.husky/x")


def test_nobody_is_asked_to_agree_to_more_than_can_be_read(files):
    with pytest.raises(ToolError, match="too long to be read"):
        review(WriteFile(files), path=".envrc", content="x" * MOST_ASKED)
    assert review(WriteFile(files), path="file", content="x" * MOST_ASKED).subject == "write file:"


# --- reading


async def test_lines_are_shown_with_their_numbers(root, read):
    (root / "file").write_text("one\ntwo\nthree\n")
    assert await read("file") == "     1\tone\n     2\ttwo\n     3\tthree\n[lines 1 to 3 of 3]"


async def test_a_page_says_how_to_read_on(root, read):
    (root / "file").write_text("".join(f"{number}\n" for number in range(1, 1001)))
    page = await read("file", offset=500, limit=2)
    assert page == "   500\t500\n   501\t501\n[lines 500 to 501 of 1,000; read on with offset=502]"
    assert (await read("file")).endswith("[lines 1 to 500 of 1,000; read on with offset=501]")
    assert (await read("file", offset=1000)) == "  1000\t1000\n[lines 1,000 to 1,000 of 1,000]"
    with pytest.raises(ToolError, match="has 1,000 lines, and the offset is 1,001"):
        await read("file", offset=1001)


async def test_long_lines_and_long_pages_are_cut(root, read):
    (root / "wide").write_text("x" * 5000 + "\n")
    assert "x [… 3,000 more characters on this line]" in await read("wide")
    (root / "long").write_text(("y" * 1990 + "\n") * 100)
    page = await read("long")
    assert 55_000 < len(page) < 64 * 1024
    assert page.endswith("[lines 1 to 31 of 100; read on with offset=32]")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\r\nb\r\n", "     1\ta\n     2\tb\n[lines 1 to 2 of 2; CRLF line endings]"),
        (b"a", "     1\ta\n[lines 1 to 1 of 1; the last one has no newline]"),
        ("ü\n".encode("latin-1"), "     1\tü\n[lines 1 to 1 of 1; read as windows-1252"),
        (b"\x93x\x94 \x80\n", "     1\t“x” €\n[lines 1 to 1 of 1; read as windows-1252"),
        (b"a\rb\r", "     1\ta\n     2\tb\n[lines 1 to 2 of 2; CR line endings]"),
        (b"a\r\nb\n", "     1\ta\n     2\tb\n[lines 1 to 2 of 2; mixed line endings, most"),
        (b"th\xc3\xa9 \xff\n", "     1\tthé \\xff\n[lines 1 to 1 of 1; some of its bytes are no"),
        ("ü\n".encode("utf-32"), "     1\tü\n[lines 1 to 1 of 1; utf-32-le, with a byte order"),
        (codecs.BOM_UTF8, "[file is empty, with a byte order mark]"),
        (codecs.BOM_UTF8 + b"a\n", "     1\ta\n[lines 1 to 1 of 1; with a byte order mark]"),
        (
            codecs.BOM_UTF16_LE + "ü\n".encode("utf-16-le"),
            "     1\tü\n[lines 1 to 1 of 1; utf-16-le",
        ),
        (b"", "[file is empty]"),
        (b"\x89PNG\r\n\x1a\n\0\0", "[file is not text but PNG image, 10 bytes; it is not shown]"),
    ],
)
async def test_what_is_unusual_about_a_file_is_told(root, read, data, said):
    (root / "file").write_bytes(data)
    assert (await read("file")).startswith(said)


async def test_a_folder_is_listed(root, read):
    (root / "b").mkdir()
    (root / "a\n").write_text("")
    (root / "c").symlink_to("b")
    assert await read(".") == "a\\n\nb/\nc (a link)\n[. is a folder: 3 entries]"
    for number in range(501):
        (root / f"b/{number:03}").touch()
    listing = await read("b")
    assert listing.endswith("499\n[b is a folder: 501 entries, of which 1 are not shown]")


async def test_a_huge_file_takes_neither_memory_nor_time(root, read):
    with (root / "sparse").open("wb") as file:
        file.truncate(10_000_000_000)
    assert "binary data, 10,000,000,000 bytes" in await read("sparse")
    with (root / "text").open("wb") as file:
        file.write(b"line\n" * 20_000)
        file.truncate(10_000_000_000)
    tracemalloc.start()
    page = await read("text", offset=20_000)
    with pytest.raises(ToolError, match="line 20,002 of text is past the first 33,554,432 bytes"):
        await read("text", offset=20_002)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "of more than 20,001; the rest is past the first" in page
    assert most < 5_000_000


async def test_where_reading_ends_is_told(root, read):
    with (root / "text").open("wb") as file:
        file.write(b"x" * 100_000)
        file.truncate(40_000_000)
    assert (await read("text")).endswith("past the first 33,554,432 bytes, where read_file ends]")


async def test_what_is_shown_of_a_file_is_what_is_edited_wherever_it_is_damaged(root, read, edit):
    far = b"a" * 100_000
    (root / "file").write_bytes(b"th\xc3\xa9\n" + far + b"\nbad \xff\n\xc3\xa9\n")
    assert (await read("file", limit=1)).startswith("     1\tthé\n")
    assert (await read("file", offset=3)).startswith("     3\tbad \\xff\n")
    assert await edit("file", "thé", "tea") == "edited file; at line 1"
    assert await edit("file", "bad \\xff", "good") == "edited file; at line 3"
    assert (root / "file").read_bytes() == b"tea\n" + far + b"\ngood\n\xc3\xa9\n"


async def test_a_missing_file_is_told(read):
    with pytest.raises(ToolError, match="none: there is no such file or folder"):
        await read("none")


# --- writing


async def test_a_file_is_created_and_replaced(root, write):
    assert await write("new/file", "ü\n") == "created new/file: 1 line, 3 bytes"
    assert await write("new/file", "a\nb") == "replaced new/file: 2 lines, 3 bytes"
    assert (root / "new/file").read_bytes() == b"a\nb"
    assert await write("new/file", "") == "replaced new/file: 0 lines, 0 bytes"


@pytest.mark.parametrize(
    ("old", "content", "new", "said"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n", ", CRLF line endings"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\r\n", ", CRLF line endings"),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n", ""),
        (b"a\r\nb\r\nc\n", "x\ny\n", b"x\r\ny\r\n", ", CRLF line endings"),
        (b"a\r\nb\r\nc\n", "x\ny\r\n", b"x\ny\r\n", ""),
        (b"a\rb\r", "x\ny\n", b"x\ry\r", ", CR line endings"),
        (b"th\xc3\xa9 \xff", "thé", "thé".encode(), "replaced file: 1 line, 4 bytes"),
        (b"a\n", "x\r\ny\n", b"x\r\ny\n", ""),
        (codecs.BOM_UTF8 + b"a", "x", codecs.BOM_UTF8 + b"x", ", with a byte order mark"),
        ("ü".encode("latin-1"), "ö€", b"\xf6\x80", ", read as windows-1252, since it is not UTF-8"),
        (b"\xfc\r\n", "→\n", "→\r\n".encode(), ", now UTF-8, as windows-1252 has not all"),
        (codecs.BOM_UTF16_BE + b"\0a", "ü", codecs.BOM_UTF16_BE + b"\0\xfc", ", utf-16-be"),
        (b"\x7fELF\0", "text", b"text", ""),
    ],
)
async def test_a_file_that_is_replaced_keeps_its_form(root, write, old, content, new, said):
    (root / "file").write_bytes(old)
    assert said in await write("file", content)
    assert (root / "file").read_bytes() == new


async def test_other_names_of_a_replaced_file_are_told_of(root, write):
    (root / "file").write_text("old")
    (root / "file").chmod(0o644)
    os.link(root / "file", root / "other")
    assert (await write("file", "new")).endswith("; its other hard links keep the old content")
    assert (root / "other").read_text() == "old"


async def test_what_cannot_be_written_is_told(root, write):
    with pytest.raises(ToolError, match="at most 1,048,576 in one call"):
        await write("file", "x" * MOST_ARGUMENTS)
    with pytest.raises(ToolError, match="workspace itself"):
        await write(".", "")
    (root / "folder").mkdir()
    with pytest.raises(ToolError, match="folder is a folder"):
        await write("folder", "")
    os.mkfifo(root / "folder/pipe")
    with pytest.raises(ToolError, match="is a pipe"):
        await write("folder/pipe", "")
    assert list(root.iterdir()) == [root / "folder"]


async def test_a_write_that_is_not_reviewed_as_it_should_be_is_not_done(files):
    with pytest.raises(ToolError, match="workspace itself"):
        await WriteFile(files).run(ToolUse(json.dumps({"path": ".", "content": ""}), "e", None))


# --- editing


async def test_a_passage_is_replaced(root, edit):
    (root / "file").write_text("one\ntwo\nthree\n")
    assert await edit("file", "two", "2") == "edited file; at line 2"
    assert await edit("file", "e", "E", all=True) == "edited file; at line 1 and 2 other places"
    assert (root / "file").read_text() == "onE\n2\nthrEE\n"


@pytest.mark.parametrize(
    ("data", "old", "new", "result"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\n", "b\n", "c\n", b"a\r\nc\n"),
        (b"a\r\nb\r\nc\n", "a\nb", "x\ny", b"x\r\ny\r\nc\n"),
        (b"a\rb\r", "a\nb", "x\ny", b"x\ry\r"),
        (b"th\xc3\xa9 \xff\nx\n", "x", "é→", b"th\xc3\xa9 \xff\n\xc3\xa9\xe2\x86\x92\n"),
        (b"th\xc3\xa9 \xff\nx\n", "é \\xff\n", "e \\xff\n", b"the \xff\nx\n"),
        ("ü\n".encode("utf-32"), "ü", "€", "€\n".encode("utf-32")),
        ("grün ü".encode("latin-1"), "grün", "rötlich", "rötlich ü".encode("latin-1")),
        (
            codecs.BOM_UTF16_LE + "a€".encode("utf-16-le"),
            "a",
            "b",
            codecs.BOM_UTF16_LE + b"b\0\xac ",
        ),
        (codecs.BOM_UTF8 + b"a", "a", "b", codecs.BOM_UTF8 + b"b"),
    ],
)
async def test_all_else_stays_as_it_was(root, edit, data, old, new, result):
    (root / "file").write_bytes(data)
    await edit("file", old, new)
    assert (root / "file").read_bytes() == result


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "file", "old": "none", "new": "x"}, "does not have that passage"),
        ({"path": "file", "old": "a", "new": "x"}, "2 times, at lines 1, 2"),
        ({"path": "file", "old": "", "new": "x"}, "`old` is empty"),
        ({"path": "file", "old": "a", "new": "a"}, "are the same"),
        ({"path": "none", "old": "a", "new": "x"}, "there is no such file"),
        ({"path": ".", "old": "a", "new": "x"}, "is a folder"),
        ({"path": "binary", "old": "a", "new": "x"}, "not text but binary data"),
        ({"path": "utf16", "old": "a", "new": "x"}, "cannot be read as text"),
        ({"path": "latin", "old": "\xfc", "new": "→"}, "in windows-1252, which has no '→'"),
        ({"path": "large", "old": "a", "new": "x"}, "too large to edit"),
        (
            {"path": "long", "old": "a", "new": "x" * 1_000_000, "all": True},
            "would be too large: at most 10,000,000 characters",
        ),
        (
            {"path": "long", "old": "a", "new": "€" * 150_000, "all": True},
            "would be too large: at most 10,000,000 bytes",
        ),
        ({"old": "a", "new": "x"}, "give `path`, `old` and `new`, or `patch`"),
        ({}, "give `path`, `old` and `new`, or `patch`"),
        ({"path": "file", "patch": "x"}, "not both"),
    ],
)
async def test_an_edit_that_is_not_clear_changes_nothing(root, files, arguments, said):
    (root / "file").write_text("a\na\n")
    (root / "long").write_text("a\n" * 30)
    (root / "binary").write_bytes(b"a\0")
    (root / "utf16").write_bytes(codecs.BOM_UTF16_LE + b"a")
    (root / "latin").write_bytes("\xfc".encode("latin-1"))
    with (root / "large").open("wb") as large:
        large.write(b"a" * 100_000)
        large.truncate(MOST_BYTES + 1)
    before = {path: Stamp.of(path.stat()) for path in root.iterdir()}
    with pytest.raises(ToolError, match=said):
        await run(EditFile(files), **arguments)
    assert {path: Stamp.of(path.stat()) for path in root.iterdir()} == before


async def test_a_patch_changes_creates_and_deletes(root, patch):
    (root / "one").write_bytes(b"a\r\nb\r\n")
    (root / "two").write_text("gone\n")
    (root / "three").write_text("0\nx\n")
    told = await patch(
        *("--- a/one", "+++ b/one", "@@ -1,2 +1,2 @@", " a", "-b", "+B"),
        *("--- a/two", "+++ /dev/null", "@@ -1 +0,0 @@", "-gone"),
        *("--- /dev/null", "+++ b/new/file", "@@ -0,0 +1 @@", "+hello"),
        *("--- a/three", "+++ b/three", "@@ -1 +1 @@", "-x", "+y"),
    )
    assert told.split("\n") == [
        "edited one",
        "deleted two",
        "created new/file",
        "edited three; @@ -1 +1 @@ was applied +1 lines from where it said",
    ]
    assert (root / "one").read_bytes() == b"a\r\nB\r\n"
    assert not (root / "two").exists()
    assert (root / "new/file").read_text() == "hello\n"


async def test_a_patch_creates_lines_that_end_as_it_says(root, patch):
    await patch("--- /dev/null", "+++ b/new.bat", "@@ -0,0 +1,2 @@", "+@echo off\r", "+dir\r")
    assert (root / "new.bat").read_bytes() == b"@echo off\r\ndir\r\n"
    await patch("--- a/new.bat", "+++ b/new.bat", "@@ -1,2 +1,2 @@", " @echo off", "-dir", "+cd")
    assert (root / "new.bat").read_bytes() == b"@echo off\r\ncd\r\n"


async def test_of_a_patch_that_does_not_fit_nothing_is_done(root, patch):
    (root / "one").write_text("a\n")
    good = ("--- a/one", "+++ b/one", "@@ -1 +1 @@", "-a", "+b")
    for bad in (
        ("--- a/two", "+++ b/two", "@@ -1 +1 @@", "-a", "+b"),
        ("--- /dev/null", "+++ b/one/../one", "@@ -0,0 +1 @@", "+hello"),
    ):
        with pytest.raises(ToolError, match=r"two: there is no such|one/\.\./one, which is there"):
            await patch(*good, *bad)
    assert (root / "one").read_text() == "a\n"


async def test_a_patch_changes_all_of_its_files_or_none(root, patch):
    (root / "one").write_text("a\n")
    (root / "two").write_text("a\n")
    (root / "two").chmod(0o444)
    lines = [f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b" for name in ("one", "two")]
    with pytest.raises(ToolError, match=r"^two is read-only, and stays as it is$"):
        await patch(*lines)
    assert [(root / name).read_text() for name in ("one", "two")] == ["a\n", "a\n"]


async def test_a_file_named_twice_by_two_spellings_is_found_before_anything_is_changed(root, patch):
    (root / "one").write_text("a\n")
    lines = [f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b" for name in ("one", "./one")]
    with pytest.raises(ToolError, match=r"^one and \./one are one file; put all changes"):
        await patch(*lines)
    assert (root / "one").read_text() == "a\n"


async def test_the_files_of_a_patch_are_held_at_once_and_so_there_is_a_limit(root, patch):
    for name in "abc":
        (root / name).write_text("a\n" + "x" * (MOST_BYTES - 2))
    lines = [f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b" for name in "abc"]
    with pytest.raises(ToolError, match="too large: at most 50,000,000 bytes together"):
        await patch(*lines)
    assert (root / "a").read_text()[0] == "a"
