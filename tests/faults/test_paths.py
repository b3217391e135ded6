"""Nothing outside the workspace is read or written, while somebody changes paths under our hands."""

import os
import stat
import subprocess
import sys
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path

import pytest

from holdfast.errors import ToolError
from holdfast.tools.beneath import Workspace
from holdfast.tools.opening import FOLDER, open_at_once, open_by_steps
from holdfast.tools.stamp import Stamp
from tests.faults.small_disk import SmallDisk, SmallFiles

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.real_time, pytest.mark.seeds]

#: Exchanges each pair of names that it is given, over and over, until it is killed.
SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
names = [os.fsencode(name) for name in sys.argv[1:]]
pairs = list(zip(names[::2], names[1::2]))
def swap(one, other):
    if libc.renameat2(-100, one, -100, other, 2):
        sys.exit("names cannot be exchanged here")
for pair in pairs:
    swap(*pair)
print("ready", flush=True)
while True:
    for pair in pairs:
        swap(*pair)
"""


@contextmanager
def swapping(*pairs):
    """Somebody who exchanges a folder or a file with a link that leads out."""
    command = [sys.executable, "-I", "-S", "-c", SWAP, *(str(name) for name in sum(pairs, ()))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


@pytest.fixture
def work(memory):
    """A workspace with a folder and a file that take turns with links to the same outside."""
    for place, content in (
        ("outside", "secret"),
        ("work/folder", "inside"),
        ("work/plain", "inside"),
    ):
        (memory / place).mkdir(parents=True)
        (memory / place / "file").write_text(content)
    (memory / "work/link").symlink_to("../outside")
    (memory / "work/plain/link").symlink_to("../../outside/file")
    return memory / "work"


def races(work):
    return swapping((work / "folder", work / "link"), (work / "plain/file", work / "plain/link"))


PATHS = ("folder/file", "plain/file", "plain/../folder/file", "./folder/../plain/file")


def read_all(work, opener, times):
    """What was read how often: "" for what was refused."""
    files = Workspace(work, opener=opener)
    seen = {"": 0, "inside": 0, "secret": 0}
    for path in islice(cycle(PATHS), times):
        try:
            with files.reading(path) as opened:
                seen[os.read(opened.fd, 100).decode()] += 1
        except ToolError:
            seen[""] += 1
    return seen


def leaks_when_checked_first(work, use):
    """Whether what everybody writes first lets anything out: look where it leads, then open it."""
    for path in islice(cycle(PATHS), 400_000):
        with suppress(OSError):
            if os.path.realpath(work / path).startswith(f"{work}/") and use(work / path):
                return True
    return False


@pytest.mark.parametrize("opener", [open_at_once, open_by_steps])
def test_no_path_leads_out_while_its_names_are_exchanged_for_links(work, opener):
    with races(work):
        seen = read_all(work, opener, 8_000)
        assert leaks_when_checked_first(work, lambda path: path.read_text() == "secret")
    assert seen["secret"] == 0
    assert seen[""] and seen["inside"], "it was no race"


def test_the_kernel_opens_nothing_outside_a_hundred_thousand_times(work):
    seen = {"": 0, "inside": 0, "secret": 0}
    root = os.open(work, FOLDER)
    with races(work):
        for path in islice(cycle([("folder", "file"), ("plain", "file")]), 100_000):
            try:
                fd = open_at_once(root, path, os.O_RDONLY)
            except OSError:
                seen[""] += 1
                continue
            seen[os.read(fd, 100).decode()] += 1
            os.close(fd)
    os.close(root)
    assert seen["secret"] == 0
    assert seen[""] and seen["inside"], "it was no race"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("opener", [open_at_once, open_by_steps])
def test_no_path_leads_out_in_a_long_time(work, opener):
    with races(work):
        seen = read_all(work, opener, 500_000)
    assert seen["secret"] == 0
    assert seen[""] and seen["inside"], "it was no race"


def write_all(work, opener, times):
    files = Workspace(work, opener=opener)
    written = 0
    for number, path in enumerate(islice(cycle(("folder", "plain")), times)):
        for name, expect in (("file", now(work / path / "file")), (f"new/{number}", None)):
            with suppress(ToolError):
                files.write(f"{path}/{name}", b"written", expect=expect)
                written += 1
    return written


def now(path):
    try:
        return Stamp.of(path.lstat())
    except OSError:
        return None


@pytest.mark.parametrize("opener", [open_at_once, open_by_steps])
def test_nothing_is_written_outside_while_names_are_exchanged_for_links(work, opener):
    outside = work.parent / "outside"
    with races(work):
        written = write_all(work, opener, 1_000)
        assert names_in(outside) == ["file"]
        assert (outside / "file").read_text() == "secret"
        assert written > 100, "it was no race"

        def overwrite(path):
            path.write_text("overwritten")
            return (outside / "file").read_text() == "overwritten"

        assert leaks_when_checked_first(work, overwrite)
    assert not list(work.rglob(".holdfast-*"))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# --- disks and permissions


def fill(kind, folder):
    """In a process of its own: a file is replaced for which there is no room."""
    # What is mounted and cannot be used then stays in the way.
    (folder / "disk").mkdir()
    (folder / "plain").mkdir()
    try:
        disk = (SmallDisk if kind == "mount" else SmallFiles)(folder / "disk")
        folder = folder / "disk"
    except OSError:
        disk = SmallFiles(folder)
        folder = folder / "plain"
    files = Workspace(folder)
    files.write("file", b"before", expect=None)
    inside = names_in(folder)
    expect = Stamp.of((folder / "file").stat())
    words = "disk is full" if disk.name == "mount" else "larger than is allowed"
    with pytest.raises(ToolError, match=f"{words}.*; what was there before is still there"):
        files.write("file", bytes(4_000_000), expect=expect)
    assert (folder / "file").read_bytes() == b"before"
    assert names_in(folder) == inside
    files.write("file", b"after", expect=expect)


@pytest.mark.parametrize("kind", ["mount", "limit"])
def test_a_file_for_which_there_is_no_room_stays_as_it_was(tmp_path, kind):
    code = "import sys; from pathlib import Path; from tests.faults.test_paths import fill"
    command = [sys.executable, "-c", f"{code}; fill(sys.argv[1], Path(sys.argv[2]))"]
    done = subprocess.run(
        [*command, kind, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def refuse(folder):
    """As somebody who is not root: what permissions say is told."""
    os.setgroups([])
    os.setgid(4242)
    os.setuid(4242)
    files = Workspace(folder)
    for path in ("closed/file", "private"):
        with pytest.raises(ToolError, match=f"{path}: permission denied"), files.reading(path):
            pass
    for path, said in (("closed/file", "permission denied"), ("theirs", "is read-only")):
        with pytest.raises(ToolError, match=said):
            files.write(path, b"", expect=None)
    for path in ("new", "folder/new", "closed/new"):
        with pytest.raises(ToolError, match=f"{path}: permission denied"):
            files.write(path, b"", expect=None)
        with pytest.raises(ToolError, match=f"{path}: permission denied"):
            files.check(path, expect=None)
    with files.reading("theirs") as opened:
        assert os.read(opened.fd, 100) == b"content"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_permissions_forbid_is_told(memory):
    folder = memory / "work"
    for place in (memory, folder, folder / "closed"):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    for name, mode in (("closed/file", 0o644), ("private", 0o600), ("theirs", 0o644)):
        (folder / name).write_text("content")
        (folder / name).chmod(mode)
    (folder / "closed").chmod(0o700)
    code = "import sys; from pathlib import Path; from tests.faults.test_paths import refuse"
    command = [sys.executable, "-c", f"{code}; refuse(Path(sys.argv[1]))", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o600
    assert {path.read_text() for path in folder.rglob("*") if path.is_file()} == {"content"}
