import subprocess
import sys


def test_the_package_can_be_run():
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.strip()
