import codecs
import json
import os
import shutil
import time

import anyio
import pytest

from holdfast.errors import ToolError
from holdfast.ports import ToolUse
from holdfast.testing.contracts import ToolContract
from holdfast.tools import search
from holdfast.tools.beneath import Workspace
from holdfast.tools.search import MOST_BYTES, SearchFiles

pytestmark = pytest.mark.real_time


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture
def tool(root):
    return SearchFiles(Workspace(root, [root / "data"]))


class TestTool(ToolContract):
    pass


@pytest.fixture
def find(tool):
    async def progress(text):
        raise AssertionError("a search has no progress to report")

    async def find(pattern, *, tool=tool, **more):
        arguments = json.dumps({"pattern": pattern, **more})
        assert tool.review(arguments).gate == "auto"
        return (await tool.run(ToolUse(arguments, "effect_1", progress))).split("\n")

    return find


def put(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_search_says_what_it_is_for(tool, root):
    assert tool.workspace == str(root)
    assert tool.review('{"pattern":"x","path":"a/../b"}').subject == "search b for x"
    assert tool.review('{"pattern":"x\\n"}').subject == "search the workspace for x\\n"
    with pytest.raises(ToolError, match="outside"):
        tool.review('{"pattern":"x","path":".."}')
    assert not tool.spec.writes and tool.spec.parallel and tool.spec.repeatable


async def test_lines_are_found_in_the_order_of_their_paths(root, find):
    put(root, b="needle\n", a__z="hay\na needle\n", a__b="no\n", c="needle 1\nneedle 2")
    assert await find("needle") == [
        "a/z:2: a needle",
        "b:1: needle",
        "c:1: needle 1",
        "c:2: needle 2",
        "[4 lines shown; looked at 4 files]",
    ]


async def test_a_search_may_begin_in_a_folder_or_at_a_file(root, find):
    put(root, a__x="needle", a__b__y="needle", z="needle")
    assert (await find("needle", path="a"))[:-1] == ["a/b/y:1: needle", "a/x:1: needle"]
    assert (await find("needle", path="a/x"))[:-1] == ["a/x:1: needle"]
    with pytest.raises(ToolError, match="none: there is no such file"):
        await find("needle", path="none")


async def test_a_pattern_is_tried_on_each_line_by_itself(root, find):
    put(root, file="one\r\n\ntwo\nONE\n")
    assert (await find("^one$"))[0] == "file:1: one"
    assert (await find("(?i)^one$"))[:-1] == ["file:1: one", "file:4: ONE"]
    assert (await find("^$"))[:-1] == ["file:2: "]
    assert await find("one\\s+two") == ["[no line found; looked at 1 file]"]


async def test_a_page_says_how_to_go_on(root, find):
    put(root, file="x\n" * 5)
    assert await find("x", limit=2) == [
        "file:1: x",
        "file:2: x",
        "[2 lines shown; there are more: go on with offset=2; looked at 1 file]",
    ]
    assert await find("x", limit=2, offset=4) == ["file:5: x", "[1 line shown; looked at 1 file]"]
    assert await find("x", offset=5) == ["[no line found past the offset; looked at 1 file]"]


async def test_long_lines_and_long_pages_are_cut(root, find):
    put(root, file=("x" * 400 + "\n") * 500)
    found = await find("x", limit=500)
    assert found[0] == f"file:1: {'x' * 300} [… 400 characters]"
    assert len("\n".join(found)) < 64 * 1024
    shown = len(found) - 1
    assert f"[{shown} lines shown; there are more: go on with offset={shown};" in found[-1]


async def test_lines_around_are_shown(root, find):
    put(root, file="1\n2\n3\nx\n5\n6\n")
    assert (await find("x", context=1))[:-1] == ["file-3- 3", "file:4: x", "file-5- 5", "--"]


async def test_files_are_found_by_name(root, find):
    put(root, a__one="", a__two="", src__a__three="", src__four="")
    (root / "a/one").rename(root / "a/one.py")
    (root / "src/a/three").rename(root / "src/a/three.py")
    assert await find("*.py", target="files") == [
        "a/one.py",
        "src/a/three.py",
        "[2 files shown; looked at 2 files]",
    ]
    assert (await find("src/**/*.py", target="files"))[:-1] == ["src/a/three.py"]
    assert (await find("**/*.py", target="files", path="src"))[:-1] == ["src/a/three.py"]
    assert (await find("*", target="files", glob="*.py", limit=1))[-1].startswith(
        "[1 file shown; there are more: go on with offset=1"
    )
    assert await find("none", target="files") == ["[no file found; looked at 0 files]"]


async def test_only_files_of_a_glob_are_searched(root, find):
    put(root, a="needle", b__a="needle", b__c="needle")
    assert (await find("needle", glob="a"))[:-1] == ["a:1: needle", "b/a:1: needle"]


async def test_what_is_ignored_is_left_out_as_git_would(root, find):
    put(
        root,
        DOTgitignore="*.log\nbuild/\n/only_here\n!keep.log\n",
        sub__DOTgitignore="!special.log\nmore\n",
        **dict.fromkeys(
            [
                *("a.log", "keep.log", "build__x", "only_here", "sub__only_here", "sub__build__y"),
                *("sub__more", "sub__special.log", "sub__b.log", "DOThidden", "more"),
                *("DOTgit__config", "sub__DOTgit"),
            ],
            "x",
        ),
    )
    found = (await find("x$", target="content"))[:-1]
    assert {line.partition(":")[0] for line in found if "ignore" not in line} == {
        *(".hidden", "keep.log", "more", "sub/only_here", "sub/special.log")
    }
    shutil.rmtree(root / ".git")
    (root / "sub/.git").unlink()
    await anyio.run_process(["git", "init", "-q", root])
    others = ["git", "-C", root, "ls-files", "--others", "--exclude-standard"]
    listed = (await anyio.run_process(others)).stdout.decode().split()
    assert sorted((await find("*", target="files"))[:-1]) == sorted(listed)


async def test_what_git_is_told_to_ignore_elsewhere_or_after_a_mark_is_left_out_too(root, find):
    put(root, **dict.fromkeys(["a.log", "b.log", "c", "d\x0ce", "sub__c", "sub__f", "sub__g"], "x"))
    (root / ".gitignore").write_bytes(codecs.BOM_UTF8 + b"a.log\r\nd\x0ce\n!b.log\n")
    put(root, DOTgit__info__exclude="# comment\n*.log\n/c\n", sub__DOTgit__info__exclude="f\n")
    found = ["b.log:1: x", "sub/c:1: x", "sub/g:1: x"]
    assert (await find("x$"))[:-1] == found
    assert (await find("x$", path="sub"))[:-1] == found[1:]


async def test_a_name_that_is_no_text_can_be_ignored(root, find):
    put(root, **{"gr\udcfcn": "x", "rot": "x"})
    (root / ".gitignore").write_bytes(b"gr\xfcn\n")
    assert (await find("x"))[:-1] == ["rot:1: x"]


async def test_a_line_that_is_cut_off_ignores_nothing(root, find):
    put(root, a="x", DOTgitignore="b" * (search._IGNORE_BYTES - 2) + "\n*.log\n")
    assert "a:1: x" in await find("^x")


async def test_a_file_without_lines_has_no_empty_one(root, find):
    put(root, empty="", one="\n")
    assert (await find("^$"))[:-1] == ["one:1: "]


async def test_lines_are_searched_as_read_file_shows_them(root, find):
    (root / "bytes").write_bytes(b"th\xc3\xa9 \xff\r\nx\n")
    (root / "mac").write_bytes(b"tea\rth\xc3\xa9\r")
    assert (await find("thé"))[:-1] == ["bytes:1: thé \\xff", "mac:2: thé"]


async def test_an_ignored_folder_is_searched_if_it_is_named(root, find):
    put(root, DOTgitignore="build\n*.o\n", build__a="x", src__a="x", src__DOTgitignore="")
    assert (await find("x", path="build"))[:-1] == ["build/a:1: x"]
    put(root, **{"src__deep__b.o": "x", "src__deep__c": "x"})
    assert (await find("x", path="src/deep"))[:-1] == ["src/deep/c:1: x"]


async def test_what_may_be_secret_binary_large_or_ours_is_not_searched(root, find):
    put(root, DOTenv="x", ok="x", data__journal="x")
    (root / "binary").write_bytes(b"x\0")
    (root / "broken").write_bytes(b"\xff\xfex")
    (root / "large").write_bytes(b"x\n" * (MOST_BYTES // 2 + 1))
    os.mkfifo(root / "pipe")
    (root / "~tilde").write_text("x")
    *found, told = await find("x")
    assert found == ["ok:1: x", "~tilde:1: x"]
    assert told == (
        "[2 lines shown; looked at 7 files; left out 1 file that may hold secrets;"
        " left out 1 file of more than 5,000,000 bytes; 2 could not be read]"
    )


async def test_links_are_not_followed(root, find):
    (root.parent / "outside").mkdir()
    (root.parent / "outside/secret").write_text("x")
    put(root, real__file="x")
    (root / "folder").symlink_to("../outside")
    (root / "file").symlink_to("../outside/secret")
    (root / "inner").symlink_to("real")
    (root / "real/.gitignore").symlink_to("../../outside/secret")
    assert await find("x") == ["real/file:1: x", "[1 line shown; looked at 1 file]"]


@pytest.mark.parametrize("is_folder", [True, False])
async def test_what_became_a_link_since_it_was_listed_is_not_opened(root, is_folder):
    put(root, real__file="x")
    (root / "link").symlink_to("real" if is_folder else "real/file")
    walk = search._Walk(Workspace(root), SearchFiles.Arguments("x"), 10, 60)
    walk._todo = [search._Place("link", is_folder, ())]
    assert walk.batch() == []
    assert walk.over
    assert [*walk.remarks()][1:] == ["1 could not be read"]
    assert (walk._looked == 0) is is_folder


async def test_names_are_shown_on_one_line(root, find):
    (root / "a\nb\x1b").write_text("x")
    assert (await find("x"))[0] == "a\\nb\\x1b:1: x"
    assert (await find("*", target="files"))[0] == "a\\nb\\x1b"


async def test_what_is_no_expression_is_told(find):
    with pytest.raises(ToolError, match="not a regular expression: missing \\)"):
        await find("(")


async def test_an_expression_that_takes_for_ever_is_ended_and_what_was_found_is_told(root, find):
    put(root, a="aaab\n", b="a" * 50 + "b\n")
    # So long that it is looked at by itself, and what was found in it is told before the other.
    (root / "a").write_text("aaaa\n" + "filling " * 600_000)
    tool = SearchFiles(Workspace(root), seconds=2)
    with anyio.fail_after(20):
        found = await find("^(a+)+$", tool=tool)
    assert found[0] == "a:1: aaaa"
    assert "stopped after 2 s" in found[-1]


async def test_the_loop_goes_on_while_an_expression_takes_for_ever(root, find):
    put(root, a="a" * 50 + "b\n")
    ticks = 0
    async with anyio.create_task_group() as group:

        async def tick():
            nonlocal ticks
            while True:
                await anyio.sleep(0.01)
                ticks += 1

        group.start_soon(tick)
        await find("^(a+)+$", tool=SearchFiles(Workspace(root), seconds=0.5))
        group.cancel_scope.cancel()
    assert ticks > 20


async def test_a_search_that_is_cancelled_ends_at_once_with_its_process(root, find):
    put(root, a="a" * 50 + "b\n")
    began = time.monotonic()
    with anyio.move_on_after(0.3) as scope:
        await find("^(a+)+$")
    assert scope.cancelled_caught
    assert time.monotonic() - began < 8


async def test_a_process_that_dies_is_told():
    process = await anyio.open_process(["true"])
    async with process:
        await process.wait()
        with pytest.raises(ToolError, match="the process that matches has ended"):
            await search._Matcher(process).match(["x"], 1)


async def test_a_hostile_ignore_file_does_not_stop_the_loop(root, find):
    put(root, DOTgitignore="*a*a*a*a*a*a*b\n*a*a*b\n**/x/**/y/**\n", **{"a" * 250: "x"})
    began = time.monotonic()
    found = await find("x$")
    assert time.monotonic() - began < 8
    assert found[:-1] == [f"{'a' * 250}:1: x"]
    assert "did not heed 1 line of .gitignore with too many wildcards" in found[-1]


async def test_a_search_ends_after_so_many_files(root, find):
    put(root, a="x", b="x", c="x", d="x")
    tool = SearchFiles(Workspace(root), most=3)
    assert (await find("x", tool=tool))[-1] == "[3 lines shown; stopped after looking at 3 files]"


async def test_more_files_than_fit_in_a_batch_are_all_searched(root, find):
    put(root, **{f"f{number:04}": "x" for number in range(600)})
    assert (await find("x", limit=1, offset=599))[0] == "f0599:1: x"
    assert (await find("*", target="files", limit=1, offset=599))[0] == "f0599"


async def test_no_more_lines_of_ignore_files_are_heeded_than_can_be_tried(root, find):
    many = "".join(f"name{number}\n" for number in range(600))
    put(root, DOTgitignore=many, name599="x", sub__DOTgitignore=many + "late", sub__late="x")
    found = await find("x$")
    assert found[0] == "sub/late:1: x"
    assert "did not heed 201 lines of .gitignore" in found[-1]


async def test_what_lies_very_deep_is_left_out(root, find):
    deep = root
    for _ in range(6):
        deep = deep / ("d" * 200)
        deep.mkdir()
        (deep / "file").write_text("x")
    *found, told = await find("x")
    assert len(found) == 4
    assert "1 could not be read" in told


async def test_a_walk_that_nobody_waits_for_ends(root):
    put(root, a="x", b="x")
    walk = search._Walk(Workspace(root), SearchFiles.Arguments("x"), 10, -1)
    assert walk.batch() == []
    assert walk.over
