import resource
import subprocess

import pytest

from holdfast.tools.limits import Limits, counts_by_namespace


@pytest.mark.parametrize(
    ("release", "counts"), [("5.10.0-8-amd64", False), ("5.14.0", True), ("6.18.44-x", True)]
)
def test_older_kernels_count_all_processes_of_a_user(monkeypatch, release, counts):
    monkeypatch.setattr("platform.release", lambda: release)
    assert counts_by_namespace() is counts


@pytest.mark.parametrize(("ours", "allowed"), [(200, 200), (1000, 512), (-1, 512)])
def test_nobody_is_allowed_more_processes_than_we_have(monkeypatch, ours, allowed):
    monkeypatch.setattr("resource.getrlimit", lambda which: (100, ours))
    assert Limits().processes_of_ours == allowed


def test_a_process_is_bound_and_never_to_more_than_before():
    process = subprocess.Popen(["sleep", "60"])
    try:
        Limits(open_files=64, cpu=7).bind(process.pid)
        Limits(open_files=128, cpu=5).bind(process.pid)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (64, 64)
        assert resource.prlimit(process.pid, resource.RLIMIT_CPU) == (5, 5)
    finally:
        process.kill()
        process.wait()
