"""What is in the repository must be true on every machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Put together here rather than written out, so that this file passes its own test.
FOLDERS = ("work", "root", r"home/\w+", r"Users/\w+", "opt/pypi", "opt/wheels")
OPTIONS = ("index-url", "extra-index-url", "find-links", "default-index")

#: Where the machine of whoever wrote a file would show through.
PRIVATE = {
    "a folder of one machine": re.compile(rf"(?<![\w.~*-])/(?:{'|'.join(FOLDERS)})/"),
    "a package index": re.compile(rf"--(?:{'|'.join(OPTIONS)})\b|://[^\s\\]+/simple\b"),
}


def tracked():
    """Every file that is, or would be, committed."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path):
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode()


@pytest.mark.parametrize("what", PRIVATE)
def test_nothing_of_one_machine_is_committed(what):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if PRIVATE[what].search(line)
    ]
    assert not found, f"{what} is named in:\n" + "\n".join(found)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_pins_every_package_with_hashes(lock):
    entries = re.split(r"\n(?=[a-zA-Z])", (ROOT / lock).read_text())[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in "".join(entries)


def test_both_locks_agree():
    def pins(lock):
        return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))

    runtime, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert runtime.items() <= dev.items()
