import os
import socket
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import anyio
import pytest

from holdfast.errors import ToolError
from holdfast.tools.beneath import MOST_THREADS, Workspace
from holdfast.tools.opening import open_at_once, open_by_steps
from holdfast.tools.stamp import Stamp


@pytest.fixture(params=[open_at_once, open_by_steps])
def opener(request):
    return request.param


@pytest.fixture
def root(tmp_path):
    """A workspace, with a secret beside it."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "work"
    (root / "folder/deep").mkdir(parents=True)
    (root / "folder/file").write_text("inside")
    return root


@pytest.fixture
def files(root, opener):
    return Workspace(root, opener=opener)


def read(files, path, **how):
    with files.reading(path, **how) as opened:
        return opened.path, os.read(opened.fd, 100).decode()


def stamp(path):
    return Stamp.of(path.stat())


# --- names


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("file", "file"),
        ("./a//b/./c/", "a/b/c"),
        ("a/../b", "b"),
        (".", "."),
        ("a/..", "."),
        ("./~file", "~file"),
        ("with\nnewline", "with\nnewline"),
    ],
)
def test_a_path_is_taken_from_the_workspace_on(files, path, relative):
    assert files.relative(path) == relative
    assert files.relative(f"{files.root}/{path}") == relative


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "the path is empty"),
        ("a\0b", "NUL"),
        ("~", "~ has no meaning here"),
        ("~root/x", "~ has no meaning here"),
        ("a/" * 2048 + "b", "at most 4,096 bytes"),
        ("ü" * 128, "at most 255 bytes"),
        ("..", r"\.\. is outside the workspace"),
        ("a/../../b", "is outside the workspace"),
        ("/etc/passwd", "/etc/passwd is outside the workspace"),
        ("//etc/passwd", "is outside the workspace"),
        ("/proc/self/root/etc/passwd", "is outside the workspace"),
        ("/etc/\x1b[2J", r"/etc/\\x1b\[2J is outside"),
    ],
)
def test_what_cannot_be_a_path_in_the_workspace_is_refused(files, path, said):
    for use in (files.relative, lambda path: read(files, path)):
        with pytest.raises(ToolError, match=said):
            use(path)
    with pytest.raises(ToolError, match=said):
        files.write(path, b"", expect=None)


def test_a_folder_whose_name_only_begins_like_the_workspace_is_outside(files):
    with pytest.raises(ToolError, match="outside"):
        files.relative(f"{files.root}-other/file")


# --- reading


def test_a_file_is_read_by_any_spelling_of_its_path(files):
    for path in (
        "folder/file",
        "./folder//file",
        "folder/deep/../file",
        f"{files.root}/folder/file",
    ):
        assert read(files, path) == ("folder/file", "inside")


def test_a_folder_is_opened_too(files):
    for path in (".", "folder", "folder/"):
        with files.reading(path) as opened:
            assert opened.is_folder
            assert opened.path == path.strip("/")


@pytest.mark.parametrize("target", ["folder/file", "./folder/deep/../file", "hop", "ABSOLUTE"])
def test_a_link_that_stays_inside_is_followed_and_the_real_name_told(files, root, target):
    (root / "hop").symlink_to("folder/file")
    (root / "link").symlink_to(root / "folder/file" if target == "ABSOLUTE" else target)
    assert read(files, "link") == ("folder/file", "inside")


def test_dots_after_a_link_mean_the_folder_it_leads_to(files, root):
    (root / "link").symlink_to("folder/deep")
    assert read(files, "link/../file") == ("folder/file", "inside")


@pytest.mark.parametrize("target", ["../secret", "folder/../../secret", "ABSOLUTE", "../../x/../y"])
def test_a_link_that_leads_out_is_refused(files, root, target):
    (root / "link").symlink_to(root.parent / "secret" if target == "ABSOLUTE" else target)
    with pytest.raises(ToolError, match="link is outside the workspace"):
        read(files, "link")
    with pytest.raises(ToolError, match="link is outside the workspace"):
        files.write("link", b"", expect=None)
    assert (root.parent / "secret").read_text() == "outside"


def test_a_folder_that_is_a_link_out_is_refused(files, root):
    (root / "up").symlink_to("..")
    for path in ("up/secret", "folder/../up/secret", f"up/{root.name}/../secret"):
        with pytest.raises(ToolError, match="outside"):
            read(files, path)
    with pytest.raises(ToolError, match="outside"):
        files.write("up/new", b"", expect=None)
    assert not (root.parent / "new").exists()


def test_dots_that_leave_by_way_of_a_link_are_refused(files, root):
    (root / "folder/top").symlink_to("..")
    assert read(files, "folder/top/folder/file") == ("folder/file", "inside")
    with pytest.raises(ToolError, match="outside"):
        read(files, "folder/top/../secret")


def test_links_that_go_in_circles_are_refused(files, root):
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(ToolError, match="too many links"):
        read(files, "one")


def test_a_link_that_can_lead_nowhere_is_told(files, root):
    (root / "link").symlink_to("x" * 300)
    with pytest.raises(ToolError, match="link: the path is too long"):
        read(files, "link")


def test_links_are_not_followed_where_that_is_asked_for(files, root):
    (root / "link").symlink_to("folder")
    for path in ("link", "link/file"):
        with pytest.raises(ToolError):
            read(files, path, links=False)
    assert read(files, "folder/file", links=False) == ("folder/file", "inside")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("none", "none: there is no such file or folder"),
        ("folder/file/more", "a name on the way is that of a file"),
        ("no\nsuch", r"^no\\nsuch: "),
    ],
)
def test_what_is_not_there_is_told(files, path, said):
    with pytest.raises(ToolError, match=said):
        read(files, path)


def test_a_pipe_is_refused_without_waiting_for_its_other_end(files, root):
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolError, match="pipe is a pipe; only files and folders"):
        read(files, "pipe")
    with pytest.raises(ToolError, match="pipe is a pipe"):
        files.write("pipe", b"", expect=None)


def test_a_socket_is_refused(files, root, monkeypatch):
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(ToolError, match="socket"):
            read(files, "socket")
        with pytest.raises(ToolError, match="socket is a socket"):
            files.write("socket", b"", expect=None)


def test_a_device_is_refused(files, root):
    try:
        os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")
    with pytest.raises(ToolError, match=r"zero is a device|does not permit|denied"):
        read(files, "zero")


def test_magic_links_lead_nowhere(opener):
    files = Workspace(Path("/proc/self"), opener=opener)
    for path in ("root/etc/passwd", "cwd", "fd/0", "exe"):
        with pytest.raises(ToolError):
            read(files, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_hard_link_to_a_file_of_another_owner_is_refused(files, root):
    secret = root.parent / "secret"
    os.chown(secret, 4242, 4242)
    os.link(secret, root / "link")
    with pytest.raises(ToolError, match="link is a hard link"):
        read(files, "link")
    with pytest.raises(ToolError, match="link is a hard link"):
        files.write("link", b"", expect=stamp(root / "link"))


def test_a_hard_link_to_a_private_file_is_refused(files, root):
    secret = root.parent / "secret"
    secret.chmod(0o600)
    os.link(secret, root / "link")
    with pytest.raises(ToolError, match="link is a hard link"):
        read(files, "link")


def test_a_hard_link_to_what_everybody_may_read_is_read_and_writing_leaves_the_other_name(
    files, root
):
    store = root.parent / "store"
    store.write_text("package")
    store.chmod(0o644)
    os.link(store, root / "module")
    assert read(files, "module") == ("module", "package")
    files.write("module", b"changed", expect=stamp(root / "module"))
    assert (store.read_text(), (root / "module").read_text()) == ("package", "changed")


# --- what is ours


@pytest.fixture
def guarded(root, opener):
    (root / "data").mkdir()
    (root / "data/journal").write_text("ours")
    (root / "holdfast.toml").write_text("ours")
    (root / "around").symlink_to("data")
    os.link(root / "holdfast.toml", root / "innocent")
    (root / "innocent").chmod(0o644)
    return Workspace(root, [root / "data", root / "holdfast.toml", root / "missing"], opener=opener)


@pytest.mark.parametrize(
    "path", ["data", "data/journal", "holdfast.toml", "around/journal", "innocent", "data/none"]
)
def test_what_is_ours_is_kept_from_every_tool_under_any_name(guarded, root, path):
    for use in (
        lambda: read(guarded, path),
        lambda: guarded.write(path, b"theirs", expect=None),
        lambda: guarded.remove(path, expect=stamp(root / "data/journal")),
    ):
        with pytest.raises(ToolError, match=r"belongs to Holdfast itself|data/none: there is no"):
            use()
    assert (root / "data/journal").read_text() == (root / "holdfast.toml").read_text() == "ours"
    assert not (root / "data/none").exists()


def test_what_will_be_ours_is_not_made_by_others(guarded, root):
    with pytest.raises(ToolError, match="belongs to Holdfast itself"):
        guarded.write("missing/deep/file", b"theirs", expect=None)
    assert not (root / "missing").exists()


def test_hidden_names_are_known_without_looking(guarded):
    assert guarded.is_hidden("data")
    assert guarded.is_hidden("DATA/x")
    assert not guarded.is_hidden("data2")


def test_the_whole_file_system_may_be_the_workspace(root):
    files = Workspace(Path("/"), [root])
    assert files.is_hidden(f"{root}/file"[1:])
    assert not files.is_hidden("etc")
    assert files.relative(str(root)) == str(root)[1:]


# --- what is kept as it is


@pytest.fixture
def keeping(root, opener):
    (root / "mine.conf").write_text("ours")
    (root / "mine.conf").chmod(0o644)
    (root / "around").symlink_to("mine.conf")
    os.link(root / "mine.conf", root / "innocent")
    return Workspace(root, kept=[root / "mine.conf", root / "missing"], opener=opener)


@pytest.mark.parametrize(
    "path", ["mine.conf", "./x/../mine.conf", "around", "innocent", "MINE.conf", "ｍine.conf"]
)
def test_what_is_kept_is_never_changed_under_any_name(keeping, root, path):
    expect = stamp(root / "mine.conf")
    for use in (
        lambda: keeping.write(path, b"theirs", expect=expect),
        lambda: keeping.write(path, b"theirs", expect=None),
        lambda: keeping.check(path, expect=expect),
        lambda: keeping.remove(path, expect=expect),
    ):
        with pytest.raises(ToolError, match="tools may read it, and none may change it"):
            use()
    assert (root / "mine.conf").read_text() == "ours"
    names = {path.name for path in root.iterdir() if path.is_file()}
    assert names == {"mine.conf", "around", "innocent"}


@pytest.mark.parametrize("path", ["mine.conf", "./mine.conf", "around", "innocent"])
def test_what_is_kept_may_be_read(keeping, path):
    assert read(keeping, path)[1] == "ours"


def test_what_will_be_kept_is_not_made_by_others(keeping, root):
    with pytest.raises(ToolError, match="none may change it"):
        keeping.write("missing", b"theirs", expect=None)
    assert not (root / "missing").exists()
    assert keeping.is_kept("Missing")
    assert not keeping.is_kept("missing2")


# --- a name that somebody would be asked about


def test_a_link_does_not_get_around_a_question(files, root):
    (root / ".env").write_text("KEY=1")
    (root / "notes").symlink_to(".env")
    (root / ".git").mkdir()
    (root / "g").symlink_to(".git")
    with pytest.raises(ToolError, match=r"notes leads to \.env, and its name .*; name that path"):
        read(files, "notes")
    assert read(files, ".env") == (".env", "KEY=1")
    with pytest.raises(ToolError, match=r"g/hooks/post leads to \.git/hooks/post, and programs"):
        files.write("g/hooks/post", b"", expect=None)
    assert not list((root / ".git").iterdir())


# --- writing


def test_a_file_is_made_with_the_folders_it_needs(files, root):
    assert files.write("new/deep/file", b"content", expect=None) == "new/deep/file"
    assert (root / "new/deep/file").read_bytes() == b"content"
    assert [path.name for path in (root / "new/deep").iterdir()] == ["file"]


def test_folders_are_not_made_unasked(files, root):
    with pytest.raises(ToolError, match="no such file"):
        files.write("new/file", b"", expect=None, parents=False)
    assert not (root / "new").exists()


def test_a_file_is_replaced_and_keeps_its_permissions(files, root):
    old = root / "folder/file"
    old.chmod(0o4751)
    assert files.write("folder/file", b"new", expect=stamp(old)) == "folder/file"
    assert (old.read_bytes(), stat.S_IMODE(old.stat().st_mode)) == (b"new", 0o751)


@pytest.mark.real_time
async def test_who_may_not_read_a_file_may_not_read_what_is_about_to_replace_it(files, root):
    old = root / "folder/file"
    old.chmod(0o600)
    modes, done = set(), anyio.Event()

    async def write():
        data = b"x" * 50_000_000
        await files.aside(lambda: files.write("folder/file", data, expect=stamp(old)))
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        while not done.is_set():
            for draft in (root / "folder").glob(".holdfast-*"):
                with suppress(FileNotFoundError):
                    modes.add(stat.S_IMODE(draft.stat().st_mode))
            await anyio.sleep(0.001)
    assert modes == {0o600}
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_a_file_can_be_made_like_one_that_is_gone(files, root):
    gone = (root / "folder/file").stat()
    (root / "folder/file").chmod(0o640)
    status = (root / "folder/file").stat()
    assert status.st_mode != gone.st_mode
    files.remove("folder/file", expect=Stamp.of(status))
    files.write("folder/file", b"again", expect=None, like=status)
    assert (root / "folder/file").stat().st_mode == status.st_mode


def test_what_will_not_be_written_can_be_told_beforehand(files, root):
    expect = stamp(root / "folder/file")
    assert files.check("./folder/file", expect=expect) == "folder/file"
    assert files.check("folder/../new", expect=None) == "new"
    assert files.check("folder/new/deep/file", expect=None) == "folder/new/deep/file"
    for path, given, said in (
        ("folder/file", None, "changed meanwhile"),
        ("folder/none", expect, "changed meanwhile"),
        ("none/none", expect, "there is no such file or folder"),
        ("folder/file/new", None, "a name on the way is that of a file"),
        ("folder", None, "is a folder"),
        (".git/hooks/../../new/../../out", None, "outside the workspace"),
    ):
        with pytest.raises(ToolError, match=said):
            files.check(path, expect=given)
    (root / "folder/file").chmod(0o444)
    with pytest.raises(ToolError, match="is read-only"):
        files.check("folder/file", expect=stamp(root / "folder/file"))
    assert sorted(path.name for path in root.rglob("*")) == ["deep", "file", "folder"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_owner_stays_theirs(files, root):
    old = root / "folder/file"
    os.chown(old, 4242, 4343)
    files.write("folder/file", b"new", expect=stamp(old))
    assert (old.stat().st_uid, old.stat().st_gid) == (4242, 4343)


def test_what_a_link_inside_leads_to_is_replaced_and_the_link_stays(files, root):
    (root / "link").symlink_to("folder/file")
    assert files.write("link", b"new", expect=stamp(root / "folder/file")) == "folder/file"
    assert (root / "link").is_symlink()
    assert (root / "folder/file").read_bytes() == b"new"


def test_what_a_dangling_link_inside_leads_to_is_made(files, root):
    (root / "link").symlink_to("later/file")
    assert files.write("link", b"new", expect=None) == "later/file"


def test_a_file_that_changed_meanwhile_is_left_as_it_is(files, root):
    file = root / "folder/file"
    seen = stamp(file)
    file.write_text("by somebody else")
    for use in (
        lambda: files.write("folder/file", b"ours", expect=seen),
        lambda: files.write("folder/file", b"ours", expect=None),
        lambda: files.write("folder/none", b"ours", expect=seen),
        lambda: files.remove("folder/file", expect=seen),
    ):
        with pytest.raises(ToolError, match="changed meanwhile"):
            use()
    assert file.read_text() == "by somebody else"
    assert sorted(path.name for path in (root / "folder").iterdir()) == ["deep", "file"]


def test_a_folder_is_not_written_as_a_file(files):
    for path in (".", "folder"):
        with pytest.raises(ToolError, match="is a folder"):
            files.write(path, b"", expect=None)
    with pytest.raises(ToolError, match="that of a file"):
        files.write("folder/file/more", b"", expect=None)


def test_what_is_marked_read_only_stays_even_for_root(files, root):
    file = root / "folder/file"
    file.chmod(0o444)
    for use in (files.remove, lambda path, expect: files.write(path, b"x", expect=expect)):
        with pytest.raises(ToolError, match="folder/file is read-only"):
            use("folder/file", expect=stamp(file))
    assert file.read_text() == "inside"


def test_a_file_is_removed(files, root):
    assert files.remove("folder/file", expect=stamp(root / "folder/file")) == "folder/file"
    assert not (root / "folder/file").exists()


def test_names_are_not_made_the_same_by_us(files, root):
    """Two spellings of one letter are two files, where the file system says so."""
    files.write("\u00e9", b"one", expect=None)
    if not (root / "e\u0301").exists():
        files.write("e\u0301", b"two", expect=None)
        assert (root / "\u00e9").read_bytes() == b"one"


@pytest.mark.real_time
async def test_blocking_work_is_done_in_few_threads(files):
    assert await files.aside(lambda: 7) == 7
    with anyio.move_on_after(0):
        await files.reading_aside(lambda: 7, tool="a", left=print)
    crowd, alone = Barrier(MOST_THREADS + 1, timeout=0.1), []

    def meet():
        try:
            crowd.wait()
        except BrokenBarrierError:
            alone.append(1)

    async with anyio.create_task_group() as tasks:
        for read in (False, True, False, True, False):
            kind = partial(files.reading_aside, tool="a", left=print) if read else files.aside
            tasks.start_soon(kind, meet)
    assert len(alone) == MOST_THREADS + 1
